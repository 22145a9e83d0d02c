package sim

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy/optimal"
	"github.com/wardrop-lb/wardrop/tick"
)

// TestLossMovesLeast: when a region is lost, what moves is what was there, and by the price
// of moving what gains more than that by making room; an unchanged view, and demand that moves
// by a percent, move nothing at all.
func TestLossMovesLeast(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "scenarios", "region-lost.yaml"))
	require.NoError(t, err)
	for _, price := range []time.Duration{70 * time.Millisecond, 200 * time.Millisecond} {
		s := load(t, string(text))
		s.Config.Policy.Churn = config.Duration(price)
		view := s.Config.View()
		p := tick.Policy(s.Config.Policy, optimal.Options{Warm: true})
		before, err := p.Plan(view, nil)
		require.NoError(t, err)
		same, err := p.Plan(view, before)
		require.NoError(t, err)
		require.Zero(t, movedPart(before, same))
		for i := range view.Demands {
			view.Demands[i].Rate *= []float64{1.01, 0.99, 1.005}[i%3]
		}
		nearly, err := p.Plan(view, before)
		require.NoError(t, err)
		require.Zero(t, movedPart(before, nearly))

		forced := lose(view, nearly, "us")
		require.Greater(t, forced, 0.3)
		after, err := p.Plan(view, nearly)
		require.NoError(t, err)
		moved := movedPart(nearly, after)
		t.Logf("at a price of %v %.4f of the traffic moved, %.4f had to", price, moved, forced)
		require.GreaterOrEqual(t, moved, forced-1e-9)
		if price > 100*time.Millisecond { // beyond what a shorter way saves
			require.LessOrEqual(t, moved, 1.1*forced)
		}
	}
}

// lose takes a region's engines out of a view, and says which part of a plan's traffic went
// there.
func lose(view *fleet.View, plan *fleet.Plan, region string) float64 {
	lost, left := map[string]bool{}, []fleet.Engine{}
	for _, e := range view.Engines {
		if lost[e.Name] = e.Region == region; !lost[e.Name] {
			left = append(left, e)
		}
	}
	view.Engines = left
	there, all := 0.0, 0.0
	for _, r := range plan.Rows {
		all += r.Rate
		for _, a := range r.Arcs {
			if lost[plan.Engines[a.Engine].Name] {
				there += r.Rate * a.Weight
			}
		}
	}
	return there / all
}
