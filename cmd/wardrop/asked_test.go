package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/explain"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/sim"
	"github.com/wardrop-lb/wardrop/suppose"
)

func questions() []question {
	return []question{
		{
			name: "talk-why-far", scenario: "talk", at: 2*time.Minute + 5*time.Second, answer: whyFar,
			asks:    "An engine is near: why does cluster a send between a fifth and a quarter of its requests to the far one?",
			command: "wardrop why weight --cluster a --model demo",
		}, {
			name: "heterogeneous-why-more", scenario: "heterogeneous", at: 5 * time.Minute, answer: whyMore,
			asks:    "Why does an H100 get three times what an A100 gets?",
			command: "wardrop why weight --cluster c --model chat",
		}, {
			name: "black-hole-why-nothing", scenario: "black-hole", at: 5 * time.Minute, answer: whyNothing,
			asks:    "The health page of e1 is good: why does it get nothing, and what would change that?",
			command: "wardrop why weight --cluster c --model demo --engine e1",
		}, {
			name: "flash-crowd-why-change", scenario: "flash-crowd", at: 4*time.Minute + 30*time.Second, answer: whyCrowd,
			asks:    "Why did the weights move at four minutes?",
			command: "wardrop why change --from 1.18 --to 1.21",
		}, {
			name: "region-lost-why-change", scenario: "region-lost", at: 4*time.Minute + 30*time.Second, answer: whyLost,
			asks:    "Why did the weights move at four minutes, and what by how much?",
			command: "wardrop why change --from 1.2 --to 1.3",
		}, {
			name: "overload-who-is-refused", scenario: "overload", at: 3 * time.Minute, answer: whoIsRefused,
			asks:    "Who is refused, and why?",
			command: "wardrop why weight --cluster c --model demo",
		}, {
			name: "flash-crowd-what-if", scenario: "flash-crowd", at: 3*time.Minute + 58*time.Second, answer: ifDemandTrebles,
			asks:    "What if three times as much came to eu?",
			command: "wardrop what-if --demand 'eu/*=3'",
		}, {
			name: "region-lost-what-if", scenario: "region-lost", at: 3*time.Minute + 58*time.Second, answer: ifRegionLost,
			asks:    "What if the region us were lost?",
			command: "wardrop what-if --lose us",
		}, {
			name: "talk-where-another-engine", scenario: "talk", at: 5 * time.Minute, answer: whereAnother,
			asks:    "Where would another engine help most, and by how much?",
			command: "wardrop advise",
		}, {
			name: "slow-engine-why-not", scenario: "slow-engine", at: 4*time.Minute + 30*time.Second, change: cautious, answer: whyNotMoved,
			asks:    "e1 has been slow for half a minute, and nothing may move more than 5 % of the traffic at once: why have the weights not moved?",
			command: "wardrop why change",
		}, {
			name: "rolling-restart-why-little", scenario: "rolling-restart", at: 3*time.Minute + 7*time.Second, answer: whyLittle,
			asks:    "e1 has been back from its restart for seven seconds: why does it get so little?",
			command: "wardrop why weight --cluster c --model chat --engine e1",
		}, {
			name: "black-hole-why-so-long", scenario: "black-hole", at: 5 * time.Minute, trips: true, answer: whySoLong,
			asks:    "Why did this request take a quarter of a minute?",
			command: "wardrop why request ID",
		}, {
			name: "sessions-why-not", scenario: "sessions", at: 5 * time.Minute, trips: true, answer: whyNotAtHome,
			asks:    "This session's cache is in eu-2: why did its request not go there?",
			command: "wardrop why not ID --engine eu-2",
		},
	}
}

// near is how far a fraction may be from what it ought to be: moving has a price, which what
// the answers are held against does not know.
const near = 0.03

// slope is what one more request/s costs everybody at an engine, by differences of the curve.
func slope(p fleet.Profile, u float64) float64 {
	const d = 1e-4
	return (inside(p, u+d) - inside(p, u-d)) / (2 * d)
}

// load is an engine's in the plan.
func (m *moment) load(name string) float64 {
	m.t.Helper()
	for _, e := range m.Plan.Engines {
		if e.Name == name {
			return e.Load
		}
	}
	m.t.Fatalf("the plan has no engine %s", name)
	return 0
}

// engine is one of the view's.
func (m *moment) engine(name string) *fleet.Engine {
	m.t.Helper()
	for i := range m.View.Engines {
		if m.View.Engines[i].Name == name {
			return &m.View.Engines[i]
		}
	}
	m.t.Fatalf("there is no engine %s", name)
	return nil
}

// part is what of a cluster's requests the plan sends to engines that match.
func (m *moment) part(cluster string, match func(*fleet.Engine) bool) float64 {
	return partOf(m.Plan, m.View, cluster, match)
}

// again plays the scenario with a change.
func (m *moment) again(name string, until time.Duration, change func(*sim.Scenario)) *moment {
	m.t.Helper()
	return play(m.t, name, until, change, false)
}

// figure reads a number that stands in an answer; form has it in parentheses.
func (m *moment) figure(words []string, form string) float64 {
	m.t.Helper()
	found := regexp.MustCompile(form).FindStringSubmatch(strings.Join(words, "\n"))
	require.NotNil(m.t, found, "%s in %v", form, words)
	x, err := strconv.ParseFloat(found[1], 64)
	require.NoError(m.t, err)
	return x
}

func withoutEvents(s *sim.Scenario) { s.Events = nil }

func whyFar(m *moment) []string {
	w, words := m.weight("a", "demo", "")
	require.InDelta(m.t, 0.225, m.part("a", called("far")), 0.025)
	require.InDelta(m.t, newReference(m.View).part("a", called("far")), m.part("a", called("far")), near, "an independent solver sends as much")
	// The next request costs the same at both, by differences of the curve.
	for _, x := range w.Engines {
		total := distanceOf(m.View, "a", m.engine(x.Engine)) + slope(m.engine(x.Engine).Profile, m.load(x.Engine)) + x.Terms.Churn
		require.InDelta(m.t, w.Level, total, 0.01*w.Level, x.Engine)
	}
	require.Contains(m.t, words[0], "near and far are both at")
	more := slope(m.engine("near").Profile, m.load("near")) - slope(m.engine("far").Profile, m.load("far"))
	require.Greater(m.t, more, 0.145, "which is what the way costs")
	require.Equal(m.t, explain.Congestion, w.Compared[0].Decides)
	return words
}

func whyMore(m *moment) []string {
	w, words := m.weight("c", "chat", "")
	best := newReference(m.View)
	for _, name := range []string{"h100-1", "a100-3"} {
		require.InDelta(m.t, best.part("c", called(name)), m.part("c", called(name)), near)
	}
	require.InDelta(m.t, 3, m.part("c", called("h100-1"))/m.part("c", called("a100-1")), 0.5)
	// An H100 is full of requests, and an A100 slow: what one is worse by the other is by something else.
	h, a := m.engine("h100-1").Profile, m.engine("a100-1").Profile
	hLoad, aLoad := m.load("h100-1"), m.load("a100-1")
	slower := inside(a, aLoad)/aLoad - inside(h, hLoad)/hLoad
	dearer := slope(h, hLoad) - inside(h, hLoad)/hLoad - slope(a, aLoad) + inside(a, aLoad)/aLoad
	require.InDelta(m.t, dearer, w.Compared[0].DecidesBy, 0.01*dearer)
	require.Equal(m.t, explain.Congestion, w.Compared[0].Decides)
	require.InDelta(m.t, slower, w.Compared[0].AgainstBy, 0.01*slower)
	require.Equal(m.t, explain.Latency, w.Compared[0].Against)
	return words
}

func whyNothing(m *moment) []string {
	w, words := m.weight("c", "demo", "e1")
	require.Zero(m.t, w.Engines[0].Weight)
	hung := m.scenario.Events[0]
	require.Equal(m.t, []string{"e1", "hang"}, []string{hung.Engine, hung.Do}, "the scenario has it hang just now")
	require.Equal(m.t, explain.Latency, w.Compared[0].Decides, "it is taken for as slow as it has been seen to be")
	// The thresholds: a little beyond an independent solver sends something there, a little before nothing.
	list, err := suppose.Thresholds(m.View, m.Plan, "c", "demo", "e1", m.solve)
	require.NoError(m.t, err)
	require.Nil(m.t, list[0].Needed)
	for factor, some := range map[float64]bool{1.1: true, 0.9: false} {
		v := *m.View
		v.Demands = []fleet.Demand{v.Demands[0]}
		v.Demands[0].Rate = factor * *list[1].Needed
		require.Equal(m.t, some, newReference(&v).part("c", called("e1")) > 1e-3, "demand times %v", factor)
	}
	// When it is well again it gets its part again.
	after := m.again("black-hole", 9*time.Minute+30*time.Second, nil)
	require.Greater(m.t, after.part("c", called("e1")), 0.2)
	return words
}

func whyCrowd(m *moment) []string {
	before := 4*time.Minute - 2*time.Second
	c := m.changed(before, m.At)
	require.Contains(m.t, m.command, fmt.Sprintf("--from 1.%d --to 1.%d", c.From[1], c.To[1]))
	event := m.scenario.Events[0]
	require.Equal(m.t, []any{"eu", 3.0, config.Duration(4 * time.Minute)}, []any{event.Cluster, event.Factor, event.At}, "what the scenario does then")
	require.Equal(m.t, suppose.InputDemand, c.Inputs[0].Input)
	require.Greater(m.t, c.Inputs[0].Share, 0.95)
	require.Regexp(m.t, `^standard for chat of eu from .* to 6[0-9]\.?\d* requests/s$`, c.Inputs[0].What[0], "three times 22")
	// Without the event nothing moves.
	calm := m.again("flash-crowd", m.At+time.Second, withoutEvents)
	require.InDelta(m.t, calm.partAt(before, "eu", inRegion("eu")), calm.part("eu", inRegion("eu")), near)
	require.Less(m.t, m.part("eu", inRegion("eu")), m.partAt(before, "eu", inRegion("eu"))-0.3)
	return c.Words
}

// partAt is part at an earlier time.
func (m *moment) partAt(at time.Duration, cluster string, match func(*fleet.Engine) bool) float64 {
	p := m.tickAt(at)
	return partOf(p.Plan, p.View, cluster, match)
}

func whyLost(m *moment) []string {
	before := 4*time.Minute - 2*time.Second
	c := m.changed(before, m.At)
	require.Contains(m.t, m.command, fmt.Sprintf("--from 1.%d --to 1.%d", c.From[1], c.To[1]))
	event := m.scenario.Events[0]
	require.Equal(m.t, []any{"us", "down", config.Duration(4 * time.Minute)}, []any{event.Region, event.Do, event.At}, "what the scenario does then")
	require.Equal(m.t, suppose.InputMembership, c.Inputs[0].Input)
	require.Greater(m.t, c.Inputs[0].Share, 0.9)
	require.Equal(m.t, []string{"us-1 went", "us-2 went"}, c.Inputs[0].What)
	// Without the event nothing moves; with it an independent solver has them go the same way.
	calm := m.again("region-lost", m.At+time.Second, withoutEvents)
	require.InDelta(m.t, calm.partAt(before, "us", inRegion("us")), calm.part("us", inRegion("us")), near)
	require.InDelta(m.t, newReference(m.View).part("us", inRegion("ap")), m.part("us", inRegion("ap")), 2*near)
	require.InDelta(m.t, 100*m.part("us", called("ap-1")), m.figure(c.Words, `ap-1 from 0 % to ([0-9.]+) %`), 0.1)
	return c.Words
}

func whoIsRefused(m *moment) []string {
	w, words := m.weight("c", "demo", "")
	demand := map[string]float64{}
	for _, d := range m.View.Demands {
		demand[d.Priority.String()] += d.Rate
	}
	over := demand["critical"] + demand["standard"] + demand["batch"] - capacity(m.View)
	require.InDelta(m.t, over/demand["batch"], w.Shed["batch"], 1e-3, "what does not fit is taken of the least important")
	require.Zero(m.t, w.Shed["critical"]+w.Shed["standard"])
	require.InDelta(m.t, 100*over/demand["batch"], m.figure(words, `^Refused are ([0-9.]+) % of batch requests`), 0.1)
	require.InDelta(m.t, over, m.figure(words, `\(([0-9.]+)/s\), none of standard or critical: every engine is full`), 0.1)
	return words
}

func ifDemandTrebles(m *moment) []string {
	o := m.whatIf(suppose.Changes{Demand: []suppose.DemandChange{{Cluster: "eu", Factor: 3}}})
	m.follows(o, m.again("flash-crowd", 5*time.Minute, nil), "eu")
	return o.Words
}

func ifRegionLost(m *moment) []string {
	o := m.whatIf(suppose.Changes{Lose: []string{"us"}})
	m.follows(o, m.again("region-lost", 5*time.Minute, nil), "us")
	return o.Words
}

// follows holds what was supposed against what came of it when it happened, and against an
// independent solver.
func (m *moment) follows(o *suppose.Outcome, came *moment, cluster string) {
	m.t.Helper()
	require.Empty(m.t, o.After.Shed)
	require.InEpsilon(m.t, suppose.TotalsOf(came.Plan).Seconds, o.After.Seconds, near)
	require.InEpsilon(m.t, newReference(came.View).seconds(), o.After.Seconds, near)
	require.Equal(m.t, "Nothing would be refused.", o.Words[0])
	require.InEpsilon(m.t, suppose.TotalsOf(came.Plan).Seconds, m.figure(o.Words, `A request would take ([0-9.]+) s in the mean`), near)
	require.InDelta(m.t, 1e3*(suppose.TotalsOf(came.Plan).Seconds-suppose.TotalsOf(m.Plan).Seconds), m.figure(o.Words, `, ([0-9.]+) ms longer than now`), 100)
	for _, region := range []string{"eu", "us", "ap"} {
		require.InDelta(m.t, came.part(cluster, inRegion(region)), partOf(o.Plan, came.View, cluster, inRegion(region)), 2*near, region)
	}
}

func whereAnother(m *moment) []string {
	a, err := suppose.Advise(m.View, m.Plan, m.solve)
	require.NoError(m.t, err)
	// It is added, and the scenario played anew: that saves most where the advice says, and as much.
	base := m.again("talk", 10*time.Minute, nil).result.Whole.Mean
	saved := map[string]float64{}
	for i, region := range []string{"a", "c"} {
		more := m.again("talk", 10*time.Minute, func(s *sim.Scenario) {
			e := s.Config.Engines[i]
			e.Name = "another"
			s.Config.Engines = append(s.Config.Engines, e)
		})
		require.Equal(m.t, region, more.engine("another").Region)
		saved[region] = base - more.result.Whole.Mean
	}
	require.Greater(m.t, saved["a"], saved["c"])
	require.Equal(m.t, "a", a.Add[0].Region)
	for _, x := range a.Add {
		require.InEpsilon(m.t, saved[x.Region], x.Saved/suppose.TotalsOf(m.Plan).Admitted, 0.1, x.Region)
	}
	var b strings.Builder
	require.NoError(m.t, writeAdvice(&b, a))
	text, _, _ := strings.Cut(b.String(), "\n\n")
	words := strings.Split(text, "\n")
	require.InEpsilon(m.t, 1e3*saved["a"], m.figure(words, `^Another engine like near for demo in a would save a request ([0-9.]+) ms`), 0.1)
	return words
}

func cautious(s *sim.Scenario) { s.Config.Control.Guard.Movement = 0.05 }

func whyNotMoved(m *moment) []string {
	c := m.changed(m.At, m.At)
	require.Empty(m.t, c.Weights)
	require.InDelta(m.t, m.partAt(4*time.Minute-2*time.Second, "c", called("e1")), m.part("c", called("e1")), near)
	h := c.Holds[len(c.Holds)-1]
	require.Equal(m.t, []string{"movement", "e1"}, []string{h.Rail, h.Moves[0].Engine})
	// What was held back is what an independent solver has there as well, and without the rail it moves.
	for _, p := range m.ticks {
		if p.Fresh && p.Plan.Version == c.To[1] {
			require.InDelta(m.t, newReference(p.View).part("c", called("e1")), h.Moves[0].After, near)
		}
	}
	require.InDelta(m.t, 100*h.Moves[0].After, m.figure(c.Words, `e1 would have got ([0-9.]+) % instead`), 0.1)
	free := m.again("slow-engine", m.At+time.Second, nil)
	require.Less(m.t, free.part("c", called("e1")), 0.12)
	return c.Words
}

func whyLittle(m *moment) []string {
	w, words := m.weight("c", "chat", "e1")
	gone := m.scenario.Events[0]
	require.Equal(m.t, []any{"e1", "drain", config.Duration(3 * time.Minute)}, []any{gone.Engine, gone.Do, gone.At + gone.For}, "it comes back then")
	whole := 0.9 * saturation(m.engine("e1").Profile)
	require.InEpsilon(m.t, w.Engines[0].Load, m.figure(words, `may have ([0-9.]+) % of its capacity so far`)/100*whole, 0.01)
	require.Less(m.t, w.Engines[0].Weight, 0.1)
	// Some ticks later it has its part.
	after := m.again("rolling-restart", 3*time.Minute+30*time.Second, nil)
	require.InDelta(m.t, 0.2, after.part("c", called("e1")), near)
	return words
}
