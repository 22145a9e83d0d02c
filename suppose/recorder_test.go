package suppose_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wardrop-lb/wardrop/suppose"
)

// TestRecorderLosesNoHold: whatever rails hold when, the last records of all plans name every
// hold once, with when it began and ended, and no record that was given away changes.
func TestRecorderLosesNoHold(t *testing.T) {
	v := talk()
	p := plan(t, v, nil)
	rapid.Check(t, func(t *rapid.T) {
		var k suppose.Recorder
		kept := map[uint64]*suppose.Record{}
		given := map[*suppose.Record]int{}
		type span struct {
			rail    string
			version uint64
			until   time.Time
		}
		var want []span
		version, rail := uint64(0), ""
		for n := range rapid.IntRange(1, 30).Draw(t, "ticks") {
			at := time.Unix(int64(1000+2*n), 0)
			fresh := n == 0 || rapid.IntRange(0, 3).Draw(t, "fresh") == 0
			now := rapid.SampledFrom([]string{"", "", "movement", "fresh"}).Draw(t, "rail")
			if (fresh || now != rail) && rail != "" {
				want[len(want)-1].until = at
			}
			if fresh {
				version++
			}
			if now != "" && (fresh || now != rail) {
				want = append(want, span{rail: now, version: version})
			}
			var held *suppose.Held
			if now != "" {
				held = suppose.NewHeld(now, "because", at, p, p)
			}
			wants := k.Wants(fresh, now)
			out := k.Tick(&suppose.Record{Epoch: 1, Version: version, Time: at, View: v, Plan: p}, fresh, held)
			require.Equal(t, wants, len(out) > 0)
			for _, r := range out {
				require.GreaterOrEqual(t, r.Revision, revisionOf(kept[r.Version]))
				kept[r.Version], given[r] = r, len(r.Held)
			}
			rail = now
		}
		var got []span
		for i := uint64(1); i <= version; i++ {
			for _, h := range kept[i].Held {
				got = append(got, span{h.Rail, i, h.Until})
			}
		}
		require.Equal(t, want, got)
		for r, n := range given {
			require.Len(t, r.Held, n)
		}
	})
}

func revisionOf(r *suppose.Record) int {
	if r == nil {
		return 0
	}
	return r.Revision
}
