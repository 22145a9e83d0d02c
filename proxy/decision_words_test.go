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
	"a short prefix": {func(d *Decision) {
		d.Key, d.Depth, d.Picked = "prefix", 1, "near"
		d.Probes = []Probe{{Look: "row"}, {Look: "probe", Engine: "near", State: "within"}, {Look: "charge", Engine: "near", State: "within"}}
	}, `At 03:04:05.006 a standard request for m came to eu, which routed by plan 3.7.
Its prefix, one block deep, decided the order of engines.
The answer had status 200 and ended 1.5s after the request came.`, nil},
	"plain": {func(d *Decision) {
		d.Probes = []Probe{{Look: "choice", Engine: "near"}, {Look: "choice", Engine: "far"}, {Look: "choice", Engine: "near"}, {Look: "choice", Engine: "fourth"}, {Look: "row"}, {Look: "probe", Engine: "near", State: "within"}, {Look: "charge", Engine: "near", State: "within"}}
		d.Picked = "near"
		d.Attempts = []Attempt{{Engine: "near", Outcome: "success", FirstByte: 0.21, Expected: 0.3, Predicted: 1.2}}
	}, `At 03:04:05.006 a standard request for m came to eu, which routed by plan 3.7.
Nothing tied it to others: of three engines it went to the one with the most room for its weight.
near was asked and began to answer after 210ms; 300ms were expected, and 1.2s in all for a usual request.
The answer had status 200 and ended 1.5s after the request came.`, map[string]string{
		"far":   "far was one of three that were compared, and had less room for its weight.\nnear was picked.",
		"other": "other was not among the three that were drawn by their weights.\nnear was picked.",
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
ill was passed over: it had failed or refused shortly before.
tight was full: 4 requests in flight, and this data plane may have 4 there.
near was asked: unreachable (connection refused).
After 50ms far was asked and began to answer after 300ms.
11.5 retries were left in the budget when it came, at 70 % utilisation.
The answer had status 200 and ended 1.5s after the request came.`, map[string]string{
		"big":   "big was passed over: 5200 tokens in flight, and its weight allows 4900.\nnear was picked.",
		"ill":   "ill was passed over: it had failed or refused shortly before.\nnear was picked.",
		"tight": "tight was full: 4 requests in flight, and this data plane may have 4 there.\nnear was picked.",
		"near":  "near was picked.\nnear was asked: unreachable (connection refused).",
		"other": "other was not reached: the request's session leads to others first. How often it comes first is its weight: ask why weight.\nnear was picked.",
	}},
	"refused": {func(d *Decision) {
		d.Status, d.Refused, d.Queued, d.Key, d.Depth = 429, "full", 0.5, "prefix", 4
		d.Probes = []Probe{{Look: "place"}, {Look: "charge", Engine: "near", State: "full", InFlight: 2, Bound: 2}, {Look: "crowded", State: "full"}}
	}, `At 03:04:05.006 a standard request for m came to eu, which routed by plan 3.7.
Its prefix, 4 blocks deep, decided the order of engines.
near was full: 2 requests in flight, and this data plane may have 2 there.
Most of the row was full: it could only wait for the engine that has its cache.
It waited 500ms for room: where it might have gone was full, or others waited before it.
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
The plan refuses 25 % of standard requests; it drew 0.7, so it was let through.
Nothing tied it to others.
near had failed or refused before; this request was to find out whether it is back.
Of all engines that are well and had room far was the fastest.
The answer had status 200 and ended 1.5s after the request came.`, nil},
	"hedged, remembered, gone": {func(d *Decision) {
		d.Refused, d.Key, d.Remembered, d.RetriesLeft, d.Picked = "client_closed", "prefix", true, 3, "near"
		d.Probes = []Probe{{Look: "place", Engine: "near"}, {Look: "probe", Engine: "near", State: "within"}}
		d.Attempts = []Attempt{{Engine: "near", Outcome: "outrun"}, {Engine: "far", After: 0.2, Outcome: "success"}}
	}, `At 03:04:05.006 a standard request for m came to eu, which routed by plan 3.7.
Its prefix went to the same engine before, where its cache is to be expected.
near was asked, and the other was faster.
After 200ms far was asked: success.
3.0 retries were left in the budget when it came, at 0 % utilisation.
The connection to the client was closed 1.5s after the request came, before there was an answer.`, map[string]string{
		"third": "third was not looked at: the prefix went to near before, which had room.\nnear was picked.",
	}},
	"refused before the plan was looked at": {func(d *Decision) {
		d.Model, d.Epoch, d.Version, d.Status, d.Refused = "", 0, 0, 413, "body_too_large"
	}, `At 03:04:05.006 a standard request came to eu.
It was refused here with status 413: body too large.`, map[string]string{
		"near": "The request ended before an engine was picked.",
	}},
	"called by an alias, too short": {func(d *Decision) {
		d.Alias, d.Status, d.Refused = "best", 504, "deadline"
	}, `At 03:04:05.006 a standard request for m, asked for as best, came to eu, which routed by plan 3.7.
It was refused here with status 504: its time was up, or too short from the beginning (deadline).`, nil},
	"a stored response": {func(d *Decision) {
		d.Model, d.Path = "", "/v1/responses/{id}"
		d.Attempts = []Attempt{{Engine: "near", Outcome: "not_here", FailedAfter: 0.001}, {Engine: "far", After: 0.002, Outcome: "success", FirstByte: 0.003}}
	}, `At 03:04:05.006 a standard request for a stored response came to eu, which routed by plan 3.7.
near was asked and did not hold it.
After 2ms far was asked and began to answer after 3ms.
The answer had status 200 and ended 1.5s after the request came.`, map[string]string{
		"third": "third was not asked: of the engines that may hold the response the first that has it answers.",
	}},
	"cut off": {func(d *Decision) {
		d.Key, d.Picked, d.Aborted = "session", "near", "engine_failed"
		d.Probes = []Probe{{Look: "probe", Engine: "near", State: "within"}, {Look: "charge", Engine: "near", State: "within"}}
		d.Attempts = []Attempt{{Engine: "near", Outcome: "failure", Error: "unexpected EOF", FirstByte: 0.2, FailedAfter: 1.2}}
	}, `At 03:04:05.006 a standard request for m came to eu, which routed by plan 3.7.
Its session decided the order of engines, as for all with the same.
near was asked and began to answer after 200ms. It ended in failure after 1.2s (unexpected EOF).
0.0 retries were left in the budget when it came, at 0 % utilisation.
The answer had status 200 and was cut off 1.5s after the request came: the engine failed (engine_failed).`, nil},
	"gone during the answer": {func(d *Decision) {
		d.Key, d.Picked, d.Aborted, d.Queued = "session", "near", "client_closed", 1e-6
		d.Probes = []Probe{{Look: "probe", Engine: "near", State: "within"}, {Look: "charge", Engine: "near", State: "within"}}
		d.Attempts = []Attempt{{Engine: "near", Outcome: "success", FirstByte: 0.2}}
	}, `At 03:04:05.006 a standard request for m came to eu, which routed by plan 3.7.
Its session decided the order of engines, as for all with the same.
near was asked and began to answer after 200ms.
The connection to the client was closed 1.5s after the request came, during the answer of status 200.`, nil},
	"all beyond their bounds, and the client impatient": {func(d *Decision) {
		d.Key, d.Picked, d.Status, d.Refused = "session", "big", 499, "client_closed"
		d.Probes = []Probe{
			{Look: "row"}, {Look: "probe", Engine: "big", State: "over", InFlight: 60, Bound: 50}, {Look: "probe", Engine: "ill", State: "failing"}, {Look: "probe", Engine: "small", State: "over", InFlight: 30, Bound: 10},
			{Look: "charge", Engine: "big", State: "within", Bound: 3.5},
			{Look: "next", Engine: "far", State: "within"}, {Look: "charge", Engine: "far", State: "within"},
		}
		d.Attempts = []Attempt{{Engine: "big", Outcome: "canceled", Error: "context canceled", FailedAfter: 1.4}}
	}, `At 03:04:05.006 a standard request for m came to eu, which routed by plan 3.7.
Its session decided the order of engines, as for all with the same.
big was passed over: 60 tokens in flight, and its weight allows 50.
ill was passed over: it had failed or refused shortly before.
small was passed over: 30 tokens in flight, and its weight allows 10.
All that came into question were at their bounds or failing: big was the least beyond its own.
big was asked, and had not begun to answer when it was called off after 1.4s.
The connection to the client was closed 1.5s after the request came, before there was an answer.`, map[string]string{
		"far": "far was to be next, but no retry was left.\nbig was picked.",
	}},
	"at the engine that holds the response": {func(d *Decision) {
		d.Key, d.Picked = "conversation", "far"
		d.Probes = []Probe{{Look: "probe", Engine: "near", State: "within"}, {Look: "stored", Engine: "far"}, {Look: "charge", Engine: "far", State: "full", InFlight: 4, Bound: 3.5}, {Look: "any"}}
	}, `At 03:04:05.006 a standard request for m came to eu, which routed by plan 3.7.
Its conversation decided the order of engines, as for all with the same.
far holds the response that it goes on from.
far was full: 4 requests in flight, and this data plane may have 4 there.
No engine that is well had room.
The answer had status 200 and ended 1.5s after the request came.`, map[string]string{
		"near": "near does not hold the response that the request goes on from: far does.\nfar was picked.",
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
