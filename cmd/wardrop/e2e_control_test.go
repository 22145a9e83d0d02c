package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/explain"
	"github.com/wardrop-lb/wardrop/internal/testaddr"
	"github.com/wardrop-lb/wardrop/suppose"
)

// controlPlane is a control plane that plans a file's expected demand: no data plane
// reports to it.
type controlPlane struct {
	*process
	file, text, admin string
}

const controlFile = `control: {store: %s, listen: %q, admin: %q, data: %q}
policy: {tick: 200ms}
clusters:
  - {name: a, region: a, distances: {a: 5ms, c: 150ms}}
  - {name: c, region: c, distances: {a: 150ms, c: 5ms}}
engines:
  - {name: near, region: a, url: "http://127.0.0.1:9", models: [demo], profile: {t0: 200ms, u_max: 125, batch: 200}}
  - {name: far, region: c, url: "http://127.0.0.1:10", models: [demo], profile: {t0: 200ms, u_max: 100, batch: 160}}
  - {name: other, region: c, url: "http://127.0.0.1:11", models: [other]}
demand:
  - {cluster: a, model: demo, rate: 120}
  - {cluster: c, model: demo, rate: 40}
`

func startControlPlane(t *testing.T) *controlPlane { return startControlPlaneWith(t, "memory") }

func startControlPlaneWith(t *testing.T, store string) *controlPlane {
	t.Helper()
	dir := t.TempDir()
	c := &controlPlane{file: filepath.Join(dir, "wardrop.yaml"), admin: testaddr.Own(t)}
	c.text = fmt.Sprintf(controlFile, store, testaddr.Own(t), c.admin, filepath.Join(dir, "data"))
	writeFile(t, c.file, c.text)
	c.process = start(t, "control", "-c", c.file)
	c.until("there is a plan", func() bool { return c.plan() != nil })
	return c
}

func (c *controlPlane) plan() *explain.Plan {
	var p explain.Plan
	if !get("http://"+c.admin+"/v1/plan", &p) {
		return nil
	}
	return &p
}

// edit replaces a part of the file.
func (c *controlPlane) edit(old, replacement string) {
	c.t.Helper()
	require.Contains(c.t, c.text, old)
	c.text = strings.Replace(c.text, old, replacement, 1)
	writeFile(c.t, c.file, c.text)
}

// ticks waits until the control plane has planned so many times more.
func (c *controlPlane) ticks(want int) {
	c.t.Helper()
	var first, s admin.Status
	require.True(c.t, get("http://"+c.admin+"/v1/status", &first))
	last, n := first.Published, 0
	c.until("it plans on", func() bool {
		if get("http://"+c.admin+"/v1/status", &s) && s.Published.After(last) {
			last = s.Published
			n++
		}
		return n >= want
	})
}

// requireSamePlan checks that two plans route alike. Prices settle after the first
// plan, because only then there are weights to keep.
func requireSamePlan(t *testing.T, want, got *explain.Plan) {
	t.Helper()
	require.Equal(t, want.Version, got.Version)
	require.Len(t, got.Engines, len(want.Engines))
	require.Len(t, got.Rows, len(want.Rows))
	for i := range want.Rows {
		require.Equal(t, want.Rows[i].Rate, got.Rows[i].Rate)
		require.Equal(t, want.Rows[i].Weights, got.Rows[i].Weights)
	}
}

func TestReload(t *testing.T) {
	t.Parallel()
	c := startControlPlane(t)
	before := c.plan()
	require.Len(t, before.Engines, 3)
	require.Positive(t, before.Rows[0].Weights["far"])

	c.edit("  - {name: other,", "  - {name: spare, region: a, url: \"http://127.0.0.1:12\", models: [demo], profile: {t0: 200ms, u_max: 125, batch: 200}}\n  - {name: other,")
	c.until("the plan uses the new engine", func() bool { return c.plan().Rows[0].Weights["spare"] > 0 })
	grown := c.plan()
	require.Greater(t, grown.Version, before.Version)
	require.Equal(t, before.Epoch, grown.Epoch)
	// A cold engine ramps: it takes its part over a few plans.
	c.until("with two engines next to a, little has to go far", func() bool {
		return c.plan().Rows[0].Weights["far"] < before.Rows[0].Weights["far"]/2
	})

	c.edit("u_max: 100, batch: 160", "u_max: 200, batch: 320")
	c.until("the plan knows the new profile", func() bool { return c.plan().Engines["far"].Capacity > 159 })
	require.InDelta(t, 160, c.plan().Engines["far"].Capacity, 1e-6)

	// What is wrong changes nothing, however often it is looked at.
	c.ticks(12) // then the new engine has its whole capacity
	in := c.plan()
	c.edit("models: [other]", "modles: [other]")
	c.logs("the new configuration is not valid; the one in force stays")
	require.Contains(t, c.log.String(), c.file+`:10:58: unknown key \"modles\" in engines[3]: did you mean \"models\"?`)
	c.ticks(2)
	requireSamePlan(t, in, c.plan())
	require.Equal(t, 1, strings.Count(c.log.String(), "is not valid"))

	c.edit("modles: [other]", "models: [other, another]")
	c.edit("  - {cluster: c, model: demo, rate: 40}", "  - {cluster: c, model: another, rate: 1}")
	c.until("the plan follows again", func() bool {
		p := c.plan()
		return p.Engines["other"].Load > 0
	})
	require.Zero(t, c.stop(os.Interrupt))
}

func TestReloadSurvivesAFileThatIsAwayForAMoment(t *testing.T) {
	t.Parallel()
	c := startControlPlane(t)
	before := c.plan()
	require.NoError(t, os.Rename(c.file, c.file+".away"))
	c.ticks(8) // of 200 ms; the file is looked at every second
	requireSamePlan(t, before, c.plan())
	require.NotContains(t, c.log.String(), "level=ERROR")
	c.edit("rate: 40}", "rate: 20}")
	c.until("it is back", func() bool { return c.plan().Rows[2].Rate == 20 })
}

func TestWhyWeight(t *testing.T) {
	t.Parallel()
	c := startControlPlane(t)
	why := []string{"why", "weight", "--admin", c.admin, "--model", "demo", "--cluster"}

	code, table, stderr := command(t, append(why, "a")...)
	require.Zero(t, code, stderr)
	require.Regexp(t, `^demo at a: 120 requests/s, policy optimal, plan \d+\.1

ENGINE  WEIGHT  REQ/S  LOAD  CAPACITY  NETWORK  LATENCY  CONGESTION  CAP  PENALTY  CHURN +TOTAL +DEARER BY
near    0\.7\d+ +89\.\d* +89\.\d* +100 +5ms .* -
far     0\.2\d+ +30\.\d* +70\.\d* +80 +150ms .* -

near and far are both at 2\.\d+s: traffic is split so that neither can be improved; far is 145ms farther away, though the next request at near would cost the others \S+ more\.
$`, table)

	code, _, stderr = command(t, "why", "weight", "-c", c.file, "--model", "demo", "--cluster", "a")
	require.Zero(t, code, stderr)

	var w explain.Weight
	decode := func(args ...string) {
		t.Helper()
		code, stdout, stderr := command(t, args...)
		require.Zero(t, code, stderr)
		w = explain.Weight{}
		require.NoError(t, json.Unmarshal([]byte(stdout), &w))
	}
	decode(append(why, "a", "--json")...)
	require.Equal(t, []string{"a", "demo", "optimal"}, []string{w.Cluster, w.Model, w.Policy})
	require.Len(t, w.Engines, 2)
	for _, e := range w.Engines {
		require.InDelta(t, w.Level, e.Terms.Total, 1e-3*w.Level)
		require.Zero(t, e.Dearer)
	}
	require.InDelta(t, 1, w.Engines[0].Weight+w.Engines[1].Weight, 1e-9)
	require.Len(t, w.Words, 1)
	require.Len(t, w.Compared, 1)
	require.Equal(t, explain.Network, w.Compared[0].Decides)
	require.Equal(t, explain.Congestion, w.Compared[0].Against)
	require.Empty(t, w.Binds)

	decode(append(why, "c", "--engine", "near", "--json")...)
	require.Len(t, w.Engines, 1)
	require.Zero(t, w.Engines[0].Weight)
	require.Positive(t, w.Engines[0].Dearer)
	require.Len(t, w.Words, 2)
	require.Contains(t, w.Words[0], "near gets nothing: a request there would cost ")

	for want, args := range map[string][]string{
		`wardrop: the control plane says: the plan has no row for cluster "b" and model "demo": it has a/demo, a/other, c/demo, c/other`: append(why, "b"),
		`wardrop: the control plane says: the plan has no row for cluster "a" and model "dem": it has a/demo, a/other, c/demo, c/other`:  {"why", "weight", "--admin", c.admin, "--model", "dem", "--cluster", "a"},
		`wardrop: the control plane says: engine "other" does not serve "demo" in this plan`:                                             append(why, "a", "--engine", "other"),
	} {
		code, stdout, stderr := command(t, args...)
		require.Equal(t, 1, code, args)
		require.Empty(t, stdout)
		require.Equal(t, want+"\n", stderr)
	}
}

// TestDrain takes an engine out by command, over a restart of the control plane, and back in.
func TestDrain(t *testing.T) {
	t.Parallel()
	c := startControlPlaneWith(t, "embedded")
	code, out, errors := wardrop(t, "status", "-c", c.file)
	require.Zero(t, code, errors)
	require.Contains(t, out, "No data plane reports.")
	code, out, errors = wardrop(t, "drain", "near", "-c", c.file)
	require.Zero(t, code, errors)
	require.Contains(t, out, "near gets nothing new")
	gone := func() bool { p := c.plan(); return p != nil && p.Rows[0].Weights["near"] == 0 }
	c.until("the plan leaves it out", gone)
	c.ticks(1)
	require.Zero(t, c.stop(syscall.SIGTERM))
	c.process = start(t, "control", "-c", c.file)
	c.until("the next control plane leaves it out", gone)
	code, _, errors = wardrop(t, "drain", "near", "--undo", "--admin", c.admin)
	require.Zero(t, code, errors)
	c.until("it is back", func() bool { p := c.plan(); return p != nil && p.Rows[0].Weights["near"] > 0 })
	code, _, errors = wardrop(t, "drain", "nobody", "--admin", c.admin)
	require.NotZero(t, code)
	require.Contains(t, errors, `there is no engine "nobody"`)
}

// TestSuppose asks for what another solve answers.
func TestSuppose(t *testing.T) {
	t.Parallel()
	c := startControlPlane(t)
	say := func(args ...string) string {
		t.Helper()
		code, out, errors := wardrop(t, append(args, "-c", c.file)...)
		require.Zero(t, code, errors)
		return out
	}
	out := say("what-if", "--drain", "near")
	require.Regexp(t, `near +\d\.\d+ +0\.0000`, out)
	require.Contains(t, out, "of the traffic would go elsewhere")
	require.Contains(t, say("what-if", "--demand", "*/*=1"), "\nNo weight would change")
	require.Contains(t, say("advise"), "DESIRED")
	first := ""
	c.until("the first plan is recorded", func() bool { first = say("plans"); return first != "" })
	require.Regexp(t, `^\d+\.1 `, first)

	c.edit("rate: 120", "rate: 12")
	c.until("there is another plan", func() bool { p := c.plan(); return p != nil && p.Version > 1 })
	c.until("it is recorded", func() bool { return say("plans") != first })
	out = say("why", "change")
	require.Contains(t, out, "Demand accounts for 100 % of what moved: standard for demo of a from 120 to 12 requests/s.")
	require.Regexp(t, `near .* demand [+-]0\.\d+`, out)
	out = say("why", "weight", "--cluster", "a", "--model", "demo", "--engine", "far")
	require.Contains(t, out, "It would get some at a demand of ")

	// A distance typed wrong is held back; what would have moved is said in text and in JSON.
	c.edit("c: 5ms}", "c: 1000s}")
	c.until("it is said", func() bool { return strings.Contains(say("why", "change"), "Held back by the rail movement") })
	var held suppose.Change
	require.NoError(t, json.Unmarshal([]byte(say("why", "change", "--json")), &held))
	require.Equal(t, "movement", held.Holds[0].Rail)
	require.Contains(t, held.Holds[0].Reason, "would move")
	require.NotEmpty(t, held.Holds[0].Moves)

	lines := strings.Split(strings.TrimSpace(say("plans", "--records")), "\n")
	require.GreaterOrEqual(t, len(lines), 2)
	var record suppose.Record
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &record))
	require.EqualValues(t, 1, record.Version)
	require.NotEmpty(t, record.View.Engines)
	require.NotEmpty(t, record.Plan.Rows)
	require.NotContains(t, say("plans", "--from", fmt.Sprintf("%d.2", record.Epoch)), strings.TrimSpace(first))

	for want, args := range map[string][]string{
		"nothing is supposed to be different":   {"what-if"},
		"write it CLUSTER/MODEL=FACTOR":         {"what-if", "--demand", "a=2"},
		`there is no engine "x" to drain`:       {"what-if", "--drain", "x"},
		`"7" is no plan`:                        {"why", "change", "--from", "7", "--to", "8"},
		`--from: "8" is no plan`:                {"plans", "--from", "8"},
		"there is no record of that plan: 1.99": {"why", "change", "--from", "1.99", "--to", "1.100"},
	} {
		code, _, errors := wardrop(t, append(args, "-c", c.file)...)
		require.NotZero(t, code)
		require.Contains(t, errors, want)
	}
}

// TestOverride pins and lists by command.
func TestOverride(t *testing.T) {
	t.Parallel()
	c := startControlPlane(t)
	say := func(want string, args ...string) {
		t.Helper()
		code, out, errors := wardrop(t, append(append([]string{"override"}, args...), "-c", c.file)...)
		require.Zero(t, code, errors)
		require.Contains(t, out, want)
	}
	say("Nothing is overridden.")
	say("near gets at most 85% of its capacity", "cap", "near", "85%")
	c.until("the cap binds", func() bool {
		_, out, _ := wardrop(t, "why", "weight", "--cluster", "a", "--model", "demo", "--admin", c.admin)
		return strings.Contains(out, "An override keeps near at 85 % of its capacity, which costs ")
	})
	say("near gets at most 25% of its capacity", "cap", "near", "25%", "--why", "new driver", "--for", "1h")
	say("All weights stay as they are", "freeze")
	say("static plans from the next tick on", "policy", "static")
	say("cap/near  0.25", "list")
	say("new driver")
	_, out, _ := wardrop(t, "status", "-c", c.file)
	require.Contains(t, out, "freeze")
	for _, key := range []string{"freeze", "policy", "cap/near"} {
		say(key+" has ended.", "remove", key)
	}
	say("Nothing is overridden.", "list")
	for want, args := range map[string][]string{
		`there is no override "freeze"`:    {"remove", "freeze"},
		`policy wants one of`:              {"policy", "best"},
		`"x%" is no part of a capacity`:    {"cap", "near", "x%"},
		`cap wants a part of the capacity`: {"cap", "near", "3"},
	} {
		code, _, errors := wardrop(t, append(append([]string{"override"}, args...), "--admin", c.admin)...)
		require.NotZero(t, code)
		require.Contains(t, errors, want)
	}
}
