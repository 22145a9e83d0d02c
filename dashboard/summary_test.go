package dashboard

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wardrop-lb/wardrop/control"
	"github.com/wardrop-lb/wardrop/fleet"
)

// shares draws weights by name that add up to 1.
func shares(t *rapid.T) []share {
	var out []share
	sum := 0.0
	for i := range 30 {
		if w := rapid.IntRange(-10, 9).Draw(t, "w"); w > 0 {
			out = append(out, share{fmt.Sprintf("e%02d", i), float64(w)})
			sum += float64(w)
		}
	}
	for i := range out {
		out[i].weight /= sum
	}
	return out
}

// TestMovedAndHeaviest against what they are by definition.
func TestMovedAndHeaviest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := shares(t), shares(t)
		was, is := map[string]float64{}, map[string]float64{}
		for _, x := range a {
			was[x.name] = x.weight
		}
		for _, x := range b {
			is[x.name] = x.weight
		}
		want := 0.0
		for i := range 30 {
			name := fmt.Sprintf("e%02d", i)
			want += math.Abs(was[name]-is[name]) / 2
		}
		require.InDelta(t, want, moved(a, b), 1e-12)
		require.InDelta(t, want, moved(b, a), 1e-12)
		require.Zero(t, moved(a, a))

		n := rapid.IntRange(1, 8).Draw(t, "n")
		sorted := slices.Clone(a)
		slices.SortStableFunc(sorted, func(x, y share) int {
			switch {
			case x.weight > y.weight:
				return -1
			case x.weight < y.weight:
				return 1
			}
			return 0
		})
		require.Equal(t, sorted[:min(n, len(sorted))], append([]share(nil), heaviest(a, n)...))
	})
}

// TestNumbers have four significant digits, or are none.
func TestNumbers(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 0.123456: "0.1235", 123456: "1.235e+05", math.Inf(1): "null"} {
		require.Equal(t, want, string(number(x).append(nil)))
	}
	require.Equal(t, "null", string(number(math.NaN()).append(nil)))
}

// TestPastIsBounded: what is forgotten leaves what it came to.
func TestPastIsBounded(t *testing.T) {
	p := newPast()
	key := [2]string{"c", "m"}
	begin := time.Unix(1000, 0)
	last := 0.0
	for i := range 5000 {
		last = float64(i%2) * 0.5
		s := &summary{
			state:   &control.State{Plan: &fleet.Plan{Epoch: 1, Version: uint64(i)}, Published: begin.Add(time.Duration(i) * 2 * time.Second)},
			regions: []string{"a", "b"},
			rows: []rowSummary{{
				key: key, rate: 1, used: []share{{"x", 0.25 + last}, {"y", 0.75 - last}}, regions: []part{{0, 0.25 + last, 1, 1}, {1, 0.75 - last, 1, 1}},
			}},
		}
		p.add(s)
		p.add(s) // again, it is the same
	}
	points, since := p.of(key, time.Time{})
	require.Len(t, points, 1+int(pastFor/(2*time.Second))+1)
	require.LessOrEqual(t, p.shares, pastShares)
	require.Equal(t, begin.Add(4999*2*time.Second).Add(-pastFor), since)
	require.Zero(t, points[0].moved, "what is before all others is no change")
	require.InDelta(t, 0.5, points[1].moved, 1e-12)
	require.InDelta(t, 0.25+last, points[len(points)-1].regions[0].weight, 1e-12)
	later, _ := p.of(key, since.Add(time.Second))
	require.Len(t, later, len(points)-2)
}
