package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const members = `control:
  members:
    - {name: a, listen: 127.0.0.1:1, admin: 127.0.0.1:2, peer: 127.0.0.1:3}
    - {name: b, listen: 127.0.0.1:4, admin: 127.0.0.1:5, peer: 127.0.0.1:6, data: /b}
`

func TestMembers(t *testing.T) {
	c, err := Parse("w.yaml", []byte(good+members))
	require.NoError(t, err)
	require.Equal(t, []string{"127.0.0.1:1", "127.0.0.1:4"}, c.Proxy.Control)
	a, err := c.Control.Member("a")
	require.NoError(t, err)
	require.Equal(t, "wardrop-data/control-a", a.Data)
	b, err := c.Control.Member("b")
	require.NoError(t, err)
	require.Equal(t, "/b", b.Data)
	_, err = c.Control.Member("")
	require.EqualError(t, err, "the control plane has several members: which one is this? --member a")
	_, err = c.Control.Member("aa")
	require.EqualError(t, err, `control.members has no "aa": known are a, b`)

	require.Equal(t, Guard{Movement: 0.5, Fresh: 0.5}, c.Control.Guard)
	c, err = Parse("w.yaml", []byte(good+"control: {guard: {fresh: 0, movement: 1}}\n"))
	require.NoError(t, err)
	require.Equal(t, Guard{Movement: 1}, c.Control.Guard)

	c, err = Parse("w.yaml", []byte(good))
	require.NoError(t, err)
	only, err := c.Control.Member("")
	require.NoError(t, err)
	require.Equal(t, c.Control.Listen, only.Listen)
	require.Equal(t, c.Control.Data, only.Data)
}

func TestWhatIsWrongWithMembers(t *testing.T) {
	for name, c := range map[string]struct{ yaml, want string }{
		"an address of none": {"control: {listen: 127.0.0.1:9, members: [{name: a, listen: 127.0.0.1:1, admin: 127.0.0.1:2, peer: 127.0.0.1:3}]}\n", `w.yaml:11:19: control.listen: each of control.members has its own`},
		"one address twice":  {"control: {members: [{name: a, listen: 127.0.0.1:1, admin: 127.0.0.1:1, peer: 127.0.0.1:3}]}\n", `w.yaml:11:59: control.members[0].admin: 127.0.0.1:1 is control.members[0].listen already`},
		"no peer":            {"control: {members: [{name: a, listen: 127.0.0.1:1, admin: 127.0.0.1:2}]}\n", `w.yaml:11:21: control.members[0].peer: missing`},
		"several forget":     {"control: {store: memory, members: [{name: a, listen: h:1, admin: h:2}, {name: b, listen: h:3, admin: h:4}]}\n", `w.yaml:11:18: control.store: memory is for one process: several members need embedded or etcd`},
		"etcd nowhere":       {"control: {store: etcd}\n", `w.yaml:11:10: control.etcd.endpoints: required: the addresses of the etcd that keeps the epoch`},
		"etcd of no use":     {"control: {etcd: {endpoints: [h:1]}}\n", `w.yaml:11:17: control.etcd: counts only with store: etcd`},
		"short lease":        {"control: {store: etcd, etcd: {endpoints: [h:1], lease: 1s}}\n", `w.yaml:11:56: control.etcd.lease: want at least 2s`},
		"slow heart":         {"control: {heartbeat: 1m}\n", `w.yaml:11:22: control.heartbeat: want 10ms to 5s`},
		"guard against all":  {"control: {guard: {movement: 0}}\n", `w.yaml:11:29: control.guard.movement: 0 is not between 0.01 and 1`},
		"more than fresh":    {"control: {guard: {fresh: 1.5}}\n", `w.yaml:11:26: control.guard.fresh: 1.5 is not between 0 and 1`},
		"data planes' way":   {"proxy: {control: [here]}\n", `w.yaml:11:19: proxy.control[0]: "here" is not an address: write host:port, like 127.0.0.1:8080`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("w.yaml", []byte(good+c.yaml))
			require.EqualError(t, err, c.want)
		})
	}
}
