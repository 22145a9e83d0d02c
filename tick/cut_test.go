package tick

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/policy/optimal"
)

// TestPredictionsEndAtCapacity: the older policies load engines beyond it, where a
// curve says years; what a data plane is told must still be a time to compare with.
func TestPredictionsEndAtCapacity(t *testing.T) {
	c, err := config.Parse("w.yaml", []byte(`
policy: {name: static}
clusters:
  - {name: a, region: a, distances: {a: 5ms}}
engines:
  - {name: small, region: a, models: [demo], profile: {t0: 200ms, u_max: 12, batch: 20}, weight: 1}
demand:
  - {cluster: a, model: demo, rate: 500}
`))
	require.NoError(t, err)
	v := c.View()
	plan, err := Policy(c.Policy, optimal.Options{}).Plan(v, nil)
	require.NoError(t, err)
	require.Greater(t, plan.Engines[0].Seconds, 1e3)
	s := Cut(c, c.View(), plan, nil)
	require.Less(t, s[0].Rows[0].Targets[0].Predicted, 5.0)
}
