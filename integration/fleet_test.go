package integration

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/internal/testaddr"
)

// place is where processes run: this machine, or a network namespace of it.
type place struct {
	ip      string
	netns   string        // empty for the test's own
	network *http.Client  // that asks from there
	link    *networkPlace // nil on this machine
}

func (p place) addr(t testing.TB) string {
	if p.netns == "" {
		return testaddr.Own(t)
	}
	p.link.ports++
	return net.JoinHostPort(p.ip, strconv.Itoa(p.link.ports))
}

// command runs something in the place.
func (p place) command(args ...string) []string {
	if p.netns == "" {
		return args
	}
	return append([]string{"nsenter", "--net=/run/netns/" + p.netns}, args...)
}

var local = place{ip: "127.0.0.1", network: http.DefaultClient}

// member is one of the control plane's, dataPlane one of a cluster's, as processes.
type member struct {
	*process
	place
	name, listen, admin, peer string
	binary                    string
}

type dataPlane struct {
	*process
	place
	cluster, listen, admin string
	binary                 string
}

// fleet is a control plane of three members, data planes of two clusters, an engine near
// each, and clients of both.
type fleet struct {
	t       testing.TB
	binary  string
	dir     string
	file    string
	members []*member
	relays  []*relay
	planes  []*dataPlane
	load    *load
	history history
}

// fleetOptions are what tests want to be different.
type fleetOptions struct {
	places  map[string]place // of members a, b, c, and of the clusters' regions x and y; local if absent
	relays  int              // that data planes connect to; without any to the members
	data    func(dir string) // prepares a member's directory
	store   string           // of members; embedded if absent
	old     string           // a binary of another version, which c and y run
	goodFor string
	far     string // from one region to the other
	third   bool   // there is a cluster z in region x, for data planes that the test starts
}

func (o *fleetOptions) place(name string) place {
	if p, ok := o.places[name]; ok {
		return p
	}
	return local
}

// startFleet runs it all until every data plane routes by the leader's plan and answers come.
func startFleet(t testing.TB, o fleetOptions) *fleet {
	t.Helper()
	path, err := binary()
	require.NoError(t, err)
	f := &fleet{t: t, binary: path, dir: t.TempDir(), history: history{t: t}}
	f.file = filepath.Join(f.dir, "fleet.yaml")
	o.goodFor, o.far = cmp.Or(o.goodFor, "30s"), cmp.Or(o.far, "20ms")
	var c strings.Builder
	fmt.Fprintf(&c, "control: {good_for: %s, store: %s, members: [", o.goodFor, cmp.Or(o.store, "embedded"))
	for _, name := range []string{"a", "b", "c"} {
		p := o.place(name)
		m := &member{place: p, name: name, listen: p.addr(t), admin: p.addr(t), peer: p.addr(t), binary: path}
		if name == "c" {
			m.binary = cmp.Or(o.old, path)
		}
		f.members = append(f.members, m)
		fmt.Fprintf(&c, "{name: %s, listen: %q, admin: %q, peer: %q, data: %q}, ", name, m.listen, m.admin, m.peer, filepath.Join(f.dir, name))
	}
	fmt.Fprintf(&c, "]}\npolicy: {tick: 500ms}\nsignals: {interval: 250ms}\nproxy: {stall_after: 3s, data: %q%s}\nclusters:\n", filepath.Join(f.dir, "planes"), f.controlKey(o.relays))
	var engines strings.Builder
	for i, name := range []string{"x", "y"} {
		p := o.place(name)
		d := &dataPlane{place: p, cluster: name, listen: p.addr(t), admin: p.addr(t), binary: path}
		if name == "y" {
			d.binary = cmp.Or(o.old, path)
		}
		f.planes = append(f.planes, d)
		fmt.Fprintf(&c, "  - {name: %s, region: %s, listen: %q, admin: %q, distances: {%s: 1ms, %s: %s}}\n", name, name, d.listen, d.admin, name, []string{"y", "x"}[i], o.far)
		engine := p.addr(t)
		e := runCommand(t, p.command(path, "testengine", "--name", name, "--listen", engine, "--model", "tiny", "--t0", "50ms", "--u-max", "120", "--batch", "100"))
		e.until("the engine is healthy", func() bool { return p.get("http://"+engine+"/health", nil) })
		fmt.Fprintf(&engines, "  - {name: %s, region: %s, url: \"http://%s\", kind: vllm, models: [tiny], profile: {t0: 50ms, u_max: 120, batch: 100}}\n", name, name, engine)
	}
	if o.third {
		fmt.Fprintf(&c, "  - {name: z, region: x, distances: {x: 1ms, y: %s}}\n", o.far)
	}
	fmt.Fprintf(&c, "engines:\n%sdemand:\n  - {cluster: x, model: tiny, rate: 30}\n  - {cluster: y, model: tiny, rate: 10}\n", engines.String())
	require.NoError(t, os.WriteFile(f.file, []byte(c.String()), 0o600))
	for _, m := range f.members {
		if o.data != nil {
			dir := filepath.Join(f.dir, m.name)
			require.NoError(t, os.Mkdir(dir, 0o700))
			o.data(dir)
		}
		f.startMember(m)
	}
	for _, r := range f.relays {
		f.startRelay(r)
	}
	for _, d := range f.planes {
		f.startPlane(d)
	}
	f.load = startLoad(t, f.planes)
	f.settled("it begins")
	return f
}

// relay is one between the members and the data planes.
type relay struct {
	*process
	listen, data string
}

// controlKey is where data planes find the control plane: relays, if there shall be some.
func (f *fleet) controlKey(relays int) string {
	if relays == 0 {
		return ""
	}
	var list []string
	for i := range relays {
		r := &relay{listen: testaddr.Own(f.t), data: filepath.Join(f.dir, fmt.Sprint("relay", i))}
		f.relays, list = append(f.relays, r), append(list, r.listen)
	}
	return ", control: [" + strings.Join(list, ", ") + "]"
}

func (f *fleet) startRelay(r *relay) {
	f.t.Helper()
	r.process = run(f.t, f.binary, "relay", "-c", f.file, "--listen", r.listen, "--data", r.data)
}

// startMember starts one, also again.
func (f *fleet) startMember(m *member, more ...string) {
	f.t.Helper()
	m.process = runCommand(f.t, m.command(append([]string{m.binary, "--log-level", "debug", "control", "-c", f.file, "--member", m.name}, more...)...))
	f.history.members = append(f.history.members, said{m.name, m.process})
}

// restartDead starts those that have ended.
func (f *fleet) restartDead() {
	f.t.Helper()
	for _, m := range f.members {
		if !m.running() {
			f.startMember(m)
		}
	}
}

func (f *fleet) startPlane(d *dataPlane) {
	f.t.Helper()
	d.process = runCommand(f.t, d.command(d.binary, "--log-level", "debug", "proxy", "-c", f.file, "--cluster", d.cluster))
	f.history.planes = append(f.history.planes, said{d.cluster, d.process})
	d.until("the data plane routes", func() bool { return d.get("http://"+d.admin+"/readyz", nil) })
}

// get asks for JSON from the place; false without an answer.
func (p place) get(url string, into any) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := p.network.Do(req)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode == http.StatusOK && (into == nil || json.NewDecoder(resp.Body).Decode(into) == nil)
}

// memberState is what a member says of itself.
type memberState struct {
	Epoch, Version uint64
	Leading        bool
	DataPlanes     []struct {
		Cluster        string
		Epoch, Version uint64
		Refused        string
	} `json:"data_planes"`
}

func (m *member) state() (s memberState, ok bool) {
	ok = m.get("http://"+m.admin+"/v1/status", &s)
	return s, ok
}

func (m *member) running() bool {
	select {
	case <-m.done:
		return false
	default:
		return true
	}
}

// leader is who leads by the highest epoch of those that answer; nil while none does.
func (f *fleet) leader() (*member, memberState) {
	var best *member
	var state memberState
	for _, m := range f.members {
		if s, ok := m.state(); ok && s.Leading && s.Epoch > state.Epoch {
			best, state = m, s
		}
	}
	return best, state
}

// another waits until another member leads than did, by a higher epoch.
func (f *fleet) another(leader *member, was memberState) {
	f.t.Helper()
	f.until("another leads", func() bool {
		m, s := f.leader()
		return m != nil && m != leader && s.Epoch > was.Epoch
	})
}

// until polls the fleet, and fails the test after a minute.
func (f *fleet) until(what string, ok func() bool) {
	f.t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			f.t.Fatalf("still not: %s%s", what, f.ended())
		case <-tick.C:
		}
	}
}

// ended are the last words of members that do not run, whether that was meant or not.
func (f *fleet) ended() string {
	var b strings.Builder
	for _, m := range f.members {
		if !m.running() {
			fmt.Fprintf(&b, "\nmember %s has ended: %s", m.name, m.log.tail())
		}
	}
	return b.String()
}

// snapshot is what a data plane routes by.
type snapshot struct {
	Epoch, Version uint64
	Engines        []struct{ Name string }
	Rows           []struct {
		Targets []struct {
			Engine int
			Weight float64
		}
	}
}

func (d *dataPlane) snapshot() (s snapshot, ok bool) {
	ok = d.get("http://"+d.admin+"/v1/snapshot", &s)
	return s, ok
}

// weights are those that a data plane routes by, by engine.
func (f *fleet) weights(d *dataPlane) map[string]float64 {
	f.t.Helper()
	s, ok := d.snapshot()
	require.True(f.t, ok)
	out := map[string]float64{}
	for _, target := range s.Rows[0].Targets {
		out[s.Engines[target.Engine].Name] = target.Weight
	}
	return out
}

// settled waits until all data planes route by what the leader has planned last, and answers
// come at both. It gives the leader.
func (f *fleet) settled(what string) *member {
	f.t.Helper()
	var leader *member
	f.until(what+": all data planes follow the leader", func() bool {
		m, s := f.leader()
		if m == nil || s.Version == 0 {
			return false
		}
		leader = m
		return !slices.ContainsFunc(f.planes, func(d *dataPlane) bool {
			got, ok := d.snapshot()
			return !ok || got.Epoch != s.Epoch || got.Version < s.Version
		})
	})
	f.load.more(f.t, 20)
	return leader
}

// sameWeights holds the weights against those from before a fault. Demand is measured, so
// that they are the same up to what that moves.
func (f *fleet) sameWeights(before []map[string]float64) {
	f.t.Helper()
	for i, d := range f.planes {
		got := f.weights(d)
		require.Len(f.t, got, len(before[i]))
		for engine, w := range before[i] {
			require.InDelta(f.t, w, got[engine], 0.05, "%s of %s", engine, d.cluster)
		}
	}
}

func (f *fleet) allWeights() []map[string]float64 {
	out := make([]map[string]float64, len(f.planes))
	for i, d := range f.planes {
		out[i] = f.weights(d)
	}
	return out
}

// noneFailed is what every fault here must leave true.
func (f *fleet) noneFailed() {
	f.t.Helper()
	answered, failed := f.load.counts()
	require.Empty(f.t, failed, "of %v", answered)
	f.history.check()
}

// runCommand is run of a whole command line.
func runCommand(t testing.TB, command []string) *process {
	t.Helper()
	return run(t, command[0], command[1:]...)
}

// signal sends one to a process.
func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

// kill ends a process at once, and waits for it.
func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	<-p.done
}
