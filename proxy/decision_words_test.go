package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// told is a decision, how it is told, and why an engine was not picked.
type told struct {
	edit func(*Decision)
	want string
	not  map[string]string
}

var tellings = map[string]told{
	"plain": {func(d *Decision) {
		d.Probes = []Probe{{Look: "choice", Engine: "near"}, {Look: "choice", Engine: "far"}, {Look: "row"}, {Look: "probe", Engine: "near", State: "within"}, {Look: "charge", Engine: "near", State: "within"}}
		d.Picked = "near"
		d.Attempts = []Attempt{{Engine: "near", Outcome: "success", FirstByte: 0.21, Expected: 0.3, Predicted: 1.2}}
	}, `At 03:04:05.006 a standard request for m came to eu, which routed by plan 3.7.
Nothing tied it to others: of four engines it went to the one with the most room for its weight.
near was asked and began to answer after 210ms; 300ms were expected, and 1.2s in all for a usual request.
The answer had status 200 and ended 1.5s after the request came.`, map[string]string{
		"far":   "far was one of four that were compared, and had less room for its weight.\nnear was picked.",
		"other": "other was not among the four that were drawn by their weights.\nnear was picked.",
	}},
	"the second engine": {func(d *Decision) {
		d.Key, d.Aged, d.RetriesLeft, d.Utilisation, d.Picked = "session", 0.3, 11.5, 0.7, "near"
		d.Probes = []Probe{
			{Look: "row", InFlight: 9000}, {Look: "probe", Engine: "big", State: "over", InFlight: 5200, Bound: 4900}, {Look: "probe", Engine: "ill", State: "failing"},
			{Look: "probe", Engine: "near", State: "within"}, {Look: "charge", Engine: "near", State: "within"}, {Look: "next", Engine: "ill", State: "failing"},
			{Look: "next", Engine: "tight", State: "within"}, {Look: "charge", Engine: "tight", State: "full", InFlight: 4, Bound: 4}, {Look: "next", Engine: "far", State: "within"}, {Look: "charge", Engine: "far", State: "within"},
		}
		d.Attempts = []Attempt{{Engine: "near", Outcome: "unreachable", Error: "connection refused"}, {Engine: "far", After: 0.05, Outcome: "success", FirstByte: 0.3}}
	}, `At 03:04:05.006 a standard request for m came to eu, which routed by plan 3.7.
That plan was old: 30 % of its weights had given way to the engines' capacities.
Its session decided the order of engines, as for all with the same.
big was passed over: 5200 tokens in flight, and its weight allows 4900.
ill was passed over for failures shortly before.
tight was full: 4 requests in flight, and this data plane may have 4 there.
near was asked: unreachable (connection refused).
After 50ms far was asked and began to answer after 300ms.
11.5 retries were left in the budget when it came, at 70 % utilisation.
The answer had status 200 and ended 1.5s after the request came.`, map[string]string{
		"big":   "big was passed over: 5200 tokens in flight, and its weight allows 4900.\nnear was picked.",
		"ill":   "ill was passed over for failures shortly before.\nnear was picked.",
		"tight": "tight was full: 4 requests in flight, and this data plane may have 4 there.\nnear was picked.",
		"near":  "near was asked: unreachable (connection refused).",
		"other": "other was not reached: the request's session leads to others first. How often it comes first is its weight: ask why weight.\nnear was picked.",
	}},
	"refused": {func(d *Decision) {
		d.Status, d.Refused, d.Queued, d.Key, d.Depth = 429, "full", 0.5, "prefix", 4
		d.Probes = []Probe{{Look: "place"}, {Look: "charge", Engine: "near", State: "full", InFlight: 2, Bound: 2}, {Look: "crowded", State: "full"}}
	}, `At 03:04:05.006 a standard request for m came to eu, which routed by plan 3.7.
Its prefix, 4 blocks deep, decided the order of engines.
near was full: 2 requests in flight, and this data plane may have 2 there.
Most of the row was full: it could only wait for the engine that has its cache.
It waited 500ms for room, for every engine was full.
It was refused here with status 429: no engine had room, and none came in time (full).`, nil},
	"shed": {func(d *Decision) {
		d.Status, d.Refused, d.ShedPart, d.Lot, d.Priority = 429, "shed", 0.25, 0.12, "batch"
	}, `At 03:04:05.006 a batch request for m came to eu, which routed by plan 3.7.
The plan refuses 25 % of batch requests; it drew 0.12, so it was refused.
It was refused here with status 429: the plan sheds this part of its priority, for demand exceeds capacity (shed).`, map[string]string{
		"near": "No engine got it: it was refused before one was picked.\nThe plan refuses 25 % of batch requests, and it drew 0.12.",
	}},
	"drawn, and let through": {func(d *Decision) {
		d.ShedPart, d.Lot = 0.25, 0.7
		d.Probes, d.Picked = []Probe{{Look: "probe", Engine: "near", State: "probing"}, {Look: "any", Engine: "far"}}, "far"
	}, `At 03:04:05.006 a standard request for m came to eu, which routed by plan 3.7.
The plan refuses 25 % of standard requests; it drew 0.70, so it was let through.
Nothing tied it to others: of four engines it went to the one with the most room for its weight.
near had failed before; this request was to find out whether it is back.
Of all engines that had room far was the fastest.
The answer had status 200 and ended 1.5s after the request came.`, nil},
	"hedged, remembered, gone": {func(d *Decision) {
		d.Status, d.Key, d.Remembered, d.RetriesLeft, d.Picked = 0, "prefix", true, 3, "near"
		d.Probes = []Probe{{Look: "place", Engine: "near"}, {Look: "probe", Engine: "near", State: "within"}}
		d.Attempts = []Attempt{{Engine: "near", Outcome: "outrun"}, {Engine: "far", After: 0.2, Outcome: "success"}}
	}, `At 03:04:05.006 a standard request for m came to eu, which routed by plan 3.7.
Its prefix went to the same engine before, where its cache is to be expected.
near was asked, and the other was faster.
After 200ms far was asked: success.
3.0 retries were left in the budget when it came, at 0 % utilisation.
The client had gone before there was an answer.`, map[string]string{
		"third": "third was not looked at: the prefix went to near before, which had room.\nnear was picked.",
	}},
}

func TestDecisionInWords(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	base := Decision{Time: at, Cluster: "eu", Model: "m", Priority: "standard", Epoch: 3, Version: 7, Key: "none", Status: 200, Seconds: 1.5}
	for name, c := range tellings {
		t.Run(name, func(t *testing.T) {
			d := base
			c.edit(&d)
			require.Equal(t, c.want, strings.Join(d.Words(), "\n"))
			for engine, want := range c.not {
				require.Equal(t, want, strings.Join(d.WhyNot(engine), "\n"), engine)
			}
		})
	}
}
