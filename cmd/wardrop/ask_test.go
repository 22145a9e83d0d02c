package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/control"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/guard"
	"github.com/wardrop-lb/wardrop/store"
)

func ptr(x float64) *float64 { return &x }

func TestEnginesTable(t *testing.T) {
	out := &strings.Builder{}
	require.NoError(t, writeEngines(out, &admin.Engines{Engines: []control.Engine{
		{Name: "eu-1", Region: "eu", Kind: "vllm", State: control.EngineLive, Ramp: 0.3, Slowdown: 2.34, Load: 3.25, Capacity: 10,
			Reading: &control.EngineReading{Cluster: "a", Age: ptr(0.42), Running: ptr(7), Waiting: ptr(0), KVUsage: ptr(0.256)}},
		{Name: "eu-2", Region: "eu", Kind: "auto", State: control.EngineDead,
			Reading: &control.EngineReading{Cluster: "a", Error: "dial tcp:\nrefused"}},
		{Name: "us-1", Region: "us", Kind: "none", State: control.EngineUnread, Capacity: 1234567},
	}}))
	require.Equal(t, `ENGINE  REGION  KIND  STATE                         RUNNING  WAITING  KV   LOAD  CAPACITY   AGE   READ BY  TROUBLE
eu-1    eu      vllm  live, slow x2.3, ramping 30%  7        0        26%  3.25  10         0.4s  a        -
eu-2    eu      auto  dead                          -        -        -    -     -          -     a        dial tcp: refused
us-1    us      none  unread                        -        -        -    -     1.235e+06  -     -        -
`, out.String(), "no penalty anywhere, so no column of penalties")
	out.Reset()
	require.NoError(t, writeEngines(out, &admin.Engines{Engines: []control.Engine{
		{Name: "a", State: "live", Profile: control.Profile{Source: control.SourceConfigured, T0: 0.25}},
		{Name: "b", State: "live", Profile: control.Profile{Source: control.SourceLearned, T0: 1.2345, Doubt: 0.021}},
		{Name: "c", State: "live", Profile: control.Profile{Source: control.SourceLearned, T0: 1.2345, Doubt: 1}},
		{Name: "d", State: "live", Profile: control.Profile{Source: control.SourceGuessed, Doubt: 1}},
		{Name: "e", State: "dead"},
	}}))
	require.Equal(t, `ENGINE  STATE  PROFILE
a       live   0.25s
b       live   1.23s ±2%
c       live   ~1.23s
d       live   learning
e       dead   -
`, out.String())
	out.Reset()
	require.NoError(t, writeEngines(out, &admin.Engines{}))
	require.Equal(t, "There are no engines.\n", out.String())
}

func TestDemandTable(t *testing.T) {
	out := &strings.Builder{}
	demand := []control.Demand{
		{Cluster: "a", Model: "demo", Priority: fleet.Standard, Rate: 30.123456, Source: control.SourceMeasured, DataPlanes: 2, Age: 0.5, Requests: 600},
		{Cluster: "b", Model: "demo", Priority: fleet.Batch, Rate: 9, Source: control.SourceExpected},
	}
	require.NoError(t, writeDemand(out, &admin.Demand{Demand: demand}))
	require.Equal(t, `CLUSTER  MODEL  PRIORITY  REQ/S  SOURCE    REQUESTS  DATA PLANES  AGE
a        demo   standard  30.12  measured  600       2            0.5s
b        demo   batch     9      expected  -         -            -
`, out.String())
	out.Reset()
	told, guessed := demand[0], demand[0]
	told.Retries, told.Cancelled, told.Samples, told.PromptTokens, told.CachedTokens, told.OutputTokens = 3, 1, 10, 5000, 1250, 640
	guessed.Samples, guessed.Estimated, guessed.PromptTokens, guessed.OutputTokens = 2, 2, 100, 10
	require.NoError(t, writeDemand(out, &admin.Demand{Demand: []control.Demand{told, guessed}}))
	require.Equal(t, `CLUSTER  MODEL  PRIORITY  REQ/S  SOURCE    REQUESTS  RETRIES  CANCELLED  PROMPT  CACHED  OUTPUT  DATA PLANES  AGE
a        demo   standard  30.12  measured  600       3        1          500     25%     64      2            0.5s
a        demo   standard  30.12  measured  600       -        -          ~50     -       ~5      2            0.5s
`, out.String())
	out.Reset()
	forecast := demand[0]
	forecast.Missed, forecast.Dispersion = 0.12, 1.42
	require.NoError(t, writeDemand(out, &admin.Demand{Demand: []control.Demand{forecast}}))
	require.Equal(t, `CLUSTER  MODEL  PRIORITY  REQ/S  FORECAST  BURSTY  SOURCE    REQUESTS  DATA PLANES  AGE
a        demo   standard  30.12  ±12%      1.4     measured  600       2            0.5s
`, out.String())
	out.Reset()
	require.NoError(t, writeDemand(out, &admin.Demand{Demand: demand[1:]}))
	require.Equal(t, "CLUSTER  MODEL  PRIORITY  REQ/S  SOURCE\nb        demo   batch     9      expected\n", out.String())
}

func TestDistancesTable(t *testing.T) {
	out := &strings.Builder{}
	require.NoError(t, writeDistances(out, &admin.Distances{Distances: []control.Distance{
		{Cluster: "a", Region: "eu", Seconds: 0.00123, Source: control.SourceMeasured, Age: ptr(200), Configured: 0.002},
		{Cluster: "a", Region: "us", Engine: "far", Seconds: 0.09, Source: control.SourceConfigured, Configured: 0.09},
	}}))
	require.Equal(t, `CLUSTER  REGION  ENGINE  DISTANCE  SOURCE      CONFIGURED  AGE
a        eu      -       1.23ms    measured    2ms         3m20s
a        us      far     90ms      configured  -           -
`, out.String())
}

// TestAskCommands go over a real socket, with the errors that people meet.
func TestAskCommands(t *testing.T) {
	known := control.Distance{Cluster: "a", Region: "eu", Seconds: 0.002, Source: control.SourceConfigured, Configured: 0.002}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/distances", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(admin.Distances{Distances: []control.Distance{known}})
	})
	mux.HandleFunc("GET /v1/engines", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "[]") }) // a data plane's
	s := httptest.NewServer(mux)
	defer s.Close()
	addr := strings.TrimPrefix(s.URL, "http://")

	code, stdout, stderr := command(t, "distances", "--admin", addr)
	require.Zero(t, code, stderr)
	require.Equal(t, "CLUSTER  REGION  DISTANCE  SOURCE\na        eu      2ms       configured\n", stdout)

	file := newFile(t, fmt.Sprintf("control: {admin: %q}\n", addr)+valid)
	code, stdout, stderr = command(t, "distances", "-c", file, "--json")
	require.Zero(t, code, stderr)
	var back admin.Distances
	require.NoError(t, json.Unmarshal([]byte(stdout), &back))
	require.Equal(t, []control.Distance{known}, back.Distances)

	code, stdout, stderr = command(t, "engines", "--admin", addr)
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "wardrop: what answers at "+addr+" is no control plane of this version")
	code, _, stderr = command(t, "demand", "--admin", addr)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "the control plane says: 404")
	code, stdout, stderr = command(t, "demand", "--watch", "--admin", "127.0.0.1:1")
	require.Equal(t, 1, code, "what was never there is not waited for")
	require.Empty(t, stdout)
	require.Contains(t, stderr, "the control plane does not answer")
	code, _, stderr = command(t, "demand", "-c", newFile(t, "clusters: []\n"))
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "clusters: none")
}

// TestWatchGoesOn: over a control plane that is away for a while, until it is told to
// stop, which is no failure.
func TestWatchGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		answers := []struct {
			text string
			err  error
		}{{"one\n", nil}, {"", errors.New("away")}, {"three\n", nil}}
		out, n, begin := &bytes.Buffer{}, 0, time.Now()
		err := watch(ctx, out, func(context.Context) (string, error) {
			if n == len(answers) {
				cancel()
				return "", ctx.Err()
			}
			n++
			return answers[n-1].text, answers[n-1].err
		})
		require.NoError(t, err)
		require.Equal(t, "one\nwardrop: away\nthree\n", out.String())
		require.Equal(t, 3*time.Second, time.Since(begin))
	})
}

func TestStatusTable(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	s := &overview{Members: []memberStatus{{Status: &admin.Status{}}}, Status: &admin.Status{Leading: true, Epoch: 3, Version: 20, Policy: "optimal", Gap: 1.5e-8, Published: at.Add(-time.Second), TickTook: 0.0021, DataPlanes: []control.DataPlane{
		{Cluster: "a", Instance: "x", Epoch: 3, Version: 20, Age: 0.3}, {Cluster: "a", Instance: "y", Epoch: 3, Version: 18, Age: 0.2},
		{Cluster: "@us", Instance: "z", Epoch: 3, Version: 20, Age: 0.1},
	}}}
	out := &strings.Builder{}
	require.NoError(t, writeStatus(out, s, at))
	require.Equal(t, `plan 3.20 (epoch.version), policy optimal, published 1.0s ago, tick 2.1 ms, gap 1.5e-08
CLUSTER  DATA PLANE  ROUTES BY  BEHIND      REPORTED
a        x           3.20       -           0.3s ago
a        y           3.18       2 versions  0.2s ago
@us      z           3.20       -           0.1s ago
`, out.String())
	require.False(t, troubled(s, at))
	require.True(t, troubled(s, at.Add(time.Hour)), "no plan for an hour")
	s.DataPlanes[1].Epoch, s.DataPlanes[0].Refused = 2, "weights add up to 2"
	out.Reset()
	s.Trouble, s.Hold = "no plan in time", &guard.Hold{Rail: guard.Movement, Reason: "would move all", Since: at.Add(-20 * time.Second), Ticks: 11}
	require.NoError(t, writeStatus(out, s, at))
	require.Contains(t, out.String(), "the policy's plan is held back, for 20.0s: would move all\n`wardrop override release` lets it through.\n")
	require.Contains(t, out.String(), "a fallback is in force: no plan in time\n")
	require.Contains(t, out.String(), "a        x           3.20       -         0.3s ago  weights add up to 2\n")
	require.Contains(t, out.String(), "a        y           2.18       an epoch  0.2s ago  -\n")
	for _, wrong := range []func(*overview){
		func(s *overview) { s.Epoch = 0 }, func(s *overview) { s.Trouble = "x" }, func(s *overview) { s.Hold = &guard.Hold{} }, func(s *overview) { s.Leading = false },
		func(s *overview) { s.DataPlanes[0].Refused = "x" }, func(s *overview) { s.DataPlanes[0].Epoch = 2 },
		func(s *overview) { s.Members[1].Status = nil },
	} {
		x := overview{
			Status:  &admin.Status{Leading: true, Epoch: 3, Published: at, DataPlanes: []control.DataPlane{{Epoch: 3}}},
			Members: []memberStatus{{Status: &admin.Status{}}, {Status: &admin.Status{}}},
		}
		require.False(t, troubled(&x, at))
		wrong(&x)
		require.True(t, troubled(&x, at))
	}
	out.Reset()
	require.NoError(t, writeStatus(out, &overview{Status: &admin.Status{}, Members: make([]memberStatus, 1)}, at))
	require.Equal(t, "There is no plan yet.\nNo data plane reports.\n", out.String())
}

func TestStatusOfMembers(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	plan := &admin.Status{
		Leading: true, Leader: "b", Epoch: 4, Version: 2, Policy: "static", Published: at,
		Overrides: []store.Override{{Kind: "drain", Subject: "e", Reason: "fans", Set: at.Add(-time.Minute), Until: at.Add(time.Hour)}, {Kind: "freeze", Set: at}},
		Followers: []control.Follower{{Kind: "relay", Instance: "member c", Wire: 2, Epoch: 4, Version: 2, Connected: 60}, {Kind: "turned away", Cluster: "x", Instance: "old", Wire: 9, Refused: "too new", Connected: 5}},
	}
	o := &overview{Status: plan, Members: []memberStatus{
		{Name: "a", Admin: "h:1", Error: "refused"}, {Name: "b", Admin: "h:2", Status: plan, Leads: true, Epoch: 4},
		{Name: "c", Admin: "h:3", Status: &admin.Status{Leader: "b", DataPlanes: make([]control.DataPlane, 7)}, Epoch: 3},
	}}
	require.Equal(t, 1, leading(o.Members))
	out := &strings.Builder{}
	require.NoError(t, writeStatus(out, o, at))
	require.Equal(t, `plan 4.2 (epoch.version), policy static, published 0.0s ago, tick 0 ms
MEMBER  ADMIN  DOES           REPORTS  REASON
a       h:1    not answer     -        refused
b       h:2    lead, epoch 4  0        -
c       h:3    stand by       7        -
OVERRIDE  SINCE      ENDS       WHY
drain/e   60.0s ago  in 1h0m0s  fans
freeze    0.0s ago   -          -
FOLLOWER  KIND         CLUSTER  HAS  CONNECTED  REFUSED
member c  relay        -        4.2  60.0s      -
old       turned away  x        -    5.0s       too new
No data plane reports.
`, out.String())
	require.True(t, troubled(&overview{Status: plan, Members: []memberStatus{{Status: plan}}}, at), "one was turned away")

	o.Members[1].Status = nil // what is left knows no leader
	o.Members[2].Status.Leader = ""
	require.Equal(t, 2, leading(o.Members))
	o.Status = o.Members[2].Status
	out.Reset()
	require.NoError(t, writeStatus(out, o, at))
	require.Contains(t, out.String(), "No member leads: no plan is made until a majority of them runs.")
	require.Contains(t, out.String(), "c       h:3    wait for a majority  7        -\n")
	require.Equal(t, -1, leading([]memberStatus{{}, {}}))
	twice := []memberStatus{{Status: plan, Leads: true, Epoch: 3}, {Status: plan, Leads: true, Epoch: 4}}
	require.Equal(t, 1, leading(twice), "the other does not know yet that it no longer leads")
}
