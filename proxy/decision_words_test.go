package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDecisionInWords(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	base := Decision{Time: at, Cluster: "eu", Model: "m", Priority: "standard", Epoch: 3, Version: 7, Key: "none", Status: 200, Seconds: 1.5}
	for name, c := range map[string]struct {
		edit func(*Decision)
		want string
	}{
		"plain": {func(d *Decision) {
			d.Attempts = []Attempt{{Engine: "near", Outcome: "success", FirstByte: 0.21, Predicted: 1.2}}
		}, `At 03:04:05.006 a standard request for m came to eu, which routed by plan 3.7.
Nothing tied it to others: of four engines it went to the one with the most room for its weight.
near was asked and began to answer after 210ms; 1.2s in all were predicted.
The answer had status 200 and ended 1.5s after the request came.`},
		"the second engine": {func(d *Decision) {
			d.Key, d.Passed, d.Spilled, d.Aged = "session", 1, 2, 0.3
			d.Attempts = []Attempt{{Engine: "near", Outcome: "unreachable", Error: "connection refused"}, {Engine: "far", Outcome: "success", FirstByte: 0.3}}
		}, `At 03:04:05.006 a standard request for m came to eu, which routed by plan 3.7.
That plan was old: 30 % of its weights had given way to the engines' capacities.
Its session decided the order of engines, as for all with the same.
2 engines of its order were passed over, at the bound of what their weights allow.
One engine of its order was passed over for failures shortly before.
near was asked: unreachable (connection refused).
Then far was asked and began to answer after 300ms.
The answer had status 200 and ended 1.5s after the request came.`},
		"refused": {func(d *Decision) { d.Status, d.Refused, d.Queued, d.Key, d.Depth = 429, "full", 0.5, "prefix", 4 }, `At 03:04:05.006 a standard request for m came to eu, which routed by plan 3.7.
Its prefix, 4 blocks deep, decided the order of engines.
It waited 500ms for room, for every engine was full.
It was refused here with status 429: no engine had room, and none came in time (full).`},
		"hedged, remembered, gone": {func(d *Decision) {
			d.Status, d.Key, d.Remembered = 0, "prefix", true
			d.Attempts = []Attempt{{Engine: "near", Outcome: "outrun"}, {Engine: "far", Outcome: "success"}}
		}, `At 03:04:05.006 a standard request for m came to eu, which routed by plan 3.7.
Its prefix went to the same engine before, where its cache is to be expected.
near was asked, and the other was faster.
Then far was asked: success.
The client had gone before there was an answer.`},
	} {
		t.Run(name, func(t *testing.T) {
			d := base
			c.edit(&d)
			require.Equal(t, c.want, strings.Join(d.Words(), "\n"))
		})
	}
}
