package suppose_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/suppose"
)

// TestWhatIfInWords: who is refused, what a request takes, where traffic goes and who is full are
// said as the figures have it.
func TestWhatIfInWords(t *testing.T) {
	v := talk()
	p := plan(t, v, nil)
	tooMuch := changed(v, func(v *fleet.View) { v.Demands[0].Rate = 200 })
	full := plan(t, tooMuch, nil)
	for name, x := range map[string]struct {
		full    bool
		changes suppose.Changes
		says    []string
	}{
		"nothing": {says: []string{"Nothing would be refused.", "as it does now.", "No weight would change", "would still be the fullest engine"}},
		"too much comes": {changes: suppose.Changes{Demand: []suppose.DemandChange{{Cluster: "a", Factor: 2}}},
			says: []string{"Refused would be 100 requests/s of standard; now nothing is.", " longer than now.", "2 engines would be full; now 0 are."}},
		"too much goes": {full: true, changes: suppose.Changes{Demand: []suppose.DemandChange{{Cluster: "a", Factor: 0.5}}},
			says: []string{"Nothing would be refused any more; now it is 60 requests/s of standard.", " less than now."}},
		"too much still": {full: true, changes: suppose.Changes{Demand: []suppose.DemandChange{{Cluster: "a", Factor: 0.75}}},
			says: []string{"Refused would be 10 requests/s of standard; now it is 60 requests/s of standard."}},
		"the far engine is drained": {changes: suppose.Changes{Drain: []string{"far"}, Demand: []suppose.DemandChange{{Factor: 0.5}}},
			says: []string{"of the traffic would go elsewhere, most of it m at c: near would get 100 % instead of 0 %."}},
		"nobody comes": {changes: suppose.Changes{Demand: []suppose.DemandChange{{Factor: 0}}},
			says: []string{"No request would be served."}},
	} {
		t.Run(name, func(t *testing.T) {
			view, in := v, p
			if x.full {
				view, in = tooMuch, full
			}
			o, err := suppose.WhatIf(view, in, x.changes, solve)
			require.NoError(t, err)
			words := strings.Join(o.Words, "\n")
			for _, s := range x.says {
				require.Contains(t, words, s)
			}
			require.LessOrEqual(t, len(strings.Fields(words)), 70)
		})
	}
}
