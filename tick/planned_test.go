package tick

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/optimal"
)

// TestPlannedIsWhatWasCut: who goes on from the snapshots moves nothing that who has the plan
// would not.
func TestPlannedIsWhatWasCut(t *testing.T) {
	c, err := config.Parse("w.yaml", []byte(`
clusters:
  - {name: z, region: a, distances: {a: 5ms, c: 150ms}}
  - {name: c, region: c, distances: {a: 150ms, c: 5ms}}
engines:
  - {name: near, region: a, url: "http://near", models: [demo], profile: {t0: 200ms, u_max: 125, batch: 200}}
  - {name: far, region: c, url: "http://far", models: [demo, big], profile: {t0: 200ms, u_max: 100, batch: 160}}
demand:
  - {cluster: z, model: demo, rate: 120}
  - {cluster: c, model: demo, rate: 40}
  - {cluster: c, model: big, rate: 5}
`))
	require.NoError(t, err)
	view := c.View()
	p := Policy(c.Policy, optimal.Options{})
	plan, err := p.Plan(view, nil)
	require.NoError(t, err)
	collectors := map[string][]string{"@a": {"i"}}
	cut := Cut(c, view, plan, collectors)
	for i, s := range cut {
		s.Epoch, s.Version = 4, uint64(7+i)
	}
	again := Planned(cut)
	require.Equal(t, uint64(4), again.Epoch)
	require.Equal(t, uint64(6+len(cut)), again.Version)
	require.Len(t, again.Rows, len(plan.Rows))
	for i := range plan.Rows {
		require.Equal(t, plan.Rows[i].Cluster+plan.Rows[i].Model, again.Rows[i].Cluster+again.Rows[i].Model)
	}
	for _, last := range []*fleet.Plan{plan, again} {
		require.True(t, Same(cut, Cut(c, view, policy.Rescale(view, last), collectors)))
	}
	view.Demands[0].Rate = 105 // something moves, and less than without a last plan
	one, err := p.Plan(view, plan)
	require.NoError(t, err)
	two, err := p.Plan(view, again)
	require.NoError(t, err)
	none, err := p.Plan(view, nil)
	require.NoError(t, err)
	require.True(t, Same(Cut(c, view, one, nil), Cut(c, view, two, nil)))
	require.False(t, Same(Cut(c, view, one, nil), Cut(c, view, none, nil)))
	require.Nil(t, Planned(nil))
}
