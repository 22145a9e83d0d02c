package tick

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/enginemodel"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/latency"
)

// unknown is an engine of which nobody knows anything, under Poisson arrivals of chats
// in virtual time, and what a data plane and a reader see of it.
type unknown struct {
	engine  enginemodel.Simulated
	params  enginemodel.Params
	random  *rand.Rand
	now     time.Duration
	arrival time.Duration
	sent    int
	done    int
	spent   float64 // seconds, over those that are done
	started map[uint64]time.Duration
	events  []enginemodel.Event
}

func newUnknown(t *testing.T, p enginemodel.Params, seed uint64) *unknown {
	t.Helper()
	engine, err := enginemodel.NewFast(p)
	require.NoError(t, err)
	return &unknown{engine: engine, params: p, random: rand.New(rand.NewPCG(seed, 3)), started: map[uint64]time.Duration{}}
}

func (u *unknown) size(mean float64) int {
	const sigma = 0.5
	return max(1, int(mean*math.Exp(sigma*u.random.NormFloat64()-sigma*sigma/2)))
}

// run lets requests come at a rate until a time.
func (u *unknown) run(until time.Duration, rate float64) {
	for {
		next := min(u.arrival, until, u.engine.Next())
		u.now = max(u.now, next)
		u.events = u.engine.Run(u.now, u.events[:0])
		for _, e := range u.events {
			if e.Last {
				u.done++
				u.spent += (u.now - u.started[e.ID]).Seconds()
				delete(u.started, e.ID)
			}
		}
		if u.now >= until {
			return
		}
		if u.now >= u.arrival {
			u.sent++
			id := uint64(u.sent)
			if u.engine.Add(enginemodel.Request{ID: id, Prompt: u.size(256), Output: u.size(128)}, u.now) == nil {
				u.started[id] = u.now
			}
			u.arrival = u.now + time.Duration(u.random.ExpFloat64()/rate*1e9)
		}
	}
}

// whole is the seconds that all requests were in the engine so far.
func (u *unknown) whole() float64 {
	sum := u.spent
	for _, began := range u.started {
		sum += (u.now - began).Seconds()
	}
	return sum
}

// report is what is known of some engines at a time.
func report(at time.Time, engines []*unknown) []Report {
	r := &pb.ReportRequest{Cluster: "c", Instance: "i", Time: timestamppb.New(at)}
	for i, u := range engines {
		g, name := u.engine.Gauges(u.now), fmt.Sprintf("e%d", i)
		f := func(x float64) *float64 { return &x }
		r.Observations = append(r.Observations, &pb.Observation{Engine: name, Model: "m", Requests: uint64(u.sent), InFlight: float64(len(u.started)), Ended: uint64(u.done), Spent: u.whole()})
		r.Readings = append(r.Readings, &pb.Reading{
			Engine: name, Kind: "vllm", Incarnation: 1, Reachable: true, Time: r.Time, Good: r.Time,
			Running: f(float64(g.Running)), Waiting: f(float64(g.Waiting)), KvUsage: f(g.KVUsage), Slots: f(float64(u.params.MaxBatch)),
			GenerationTokens: f(float64(g.GenerationTokens)), PromptTokens: f(float64(g.PromptTokens)),
		})
	}
	return []Report{{r, at}}
}

var guess = fleet.Profile{T0: 1, UMax: 10_000, Batch: 10_000, Kappa: 0.9}

// learned plans every two seconds while each engine's load goes up and down
// to at most half of its saturation, and gives the engines as the last view has them.
func learned(m *Memory, engines []*unknown, from time.Time, ticks int, saturation float64) []fleet.Engine {
	var view *fleet.View
	for tick := 1; tick <= ticks; tick++ {
		for _, u := range engines {
			load := []float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.35, 0.25}[tick/20%7]
			u.run(u.now+2*time.Second, load*saturation)
		}
		now := from.Add(time.Duration(tick) * 2 * time.Second)
		view = &fleet.View{}
		for i := range engines {
			view.Engines = append(view.Engines, fleet.Engine{Name: fmt.Sprintf("e%d", i), Models: []string{"m"}, Profile: guess, Learn: true})
		}
		m.Apply(view, report(now, engines), "optimal", now)
	}
	return view.Engines
}

// kindsOfEngines are an 8B model on an H100, bound by compute, and on an A100 with few slots.
var kindsOfEngines = map[string]enginemodel.Params{
	"compute": {
		Base: 6.9e-3, PerPrefillToken: 20e-6, PerContextToken: 7.6e-8, PerRequest: 5e-6,
		MaxBatch: 256, MaxStepTokens: 8192, Blocks: 28000, BlockSize: 16,
	},
	"slots": {
		Base: 10.6e-3, PerPrefillToken: 70e-6, PerContextToken: 1.25e-7, PerRequest: 5e-6,
		MaxBatch: 64, MaxStepTokens: 8192, Blocks: 28000, BlockSize: 16,
	},
}

// alone is how long a usual request takes in an engine that has nothing else.
func alone(t *testing.T, p enginemodel.Params) float64 {
	u := newUnknown(t, p, 99)
	u.run(100*time.Hour, 0.01)
	return u.spent / float64(u.done)
}

// saturationOf is what comes out of an engine that always has a queue, requests/s.
func saturationOf(t *testing.T, p enginemodel.Params) float64 {
	u := newUnknown(t, p, 98)
	u.run(20*time.Second, 1000)
	u.arrival = math.MaxInt64
	before := u.done
	u.run(140*time.Second, 0)
	require.Positive(t, u.engine.Gauges(u.now).Waiting)
	return float64(u.done-before) / 120
}

// TestProfileIsLearned: within ten minutes at loads of at most a half, an engine of which
// nothing was known is known to five percent, as to its time alone and its saturation; and
// another of its kind that has just come is taken for the same.
func TestProfileIsLearned(t *testing.T) {
	for name, params := range kindsOfEngines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t0, saturation := alone(t, params), saturationOf(t, params)
			for seed := range uint64(4) {
				var m Memory
				from := time.Unix(1_700_000_000, 0)
				engines := []*unknown{newUnknown(t, params, seed)}
				e := learned(&m, engines, from, 300, saturation)[0]
				t.Logf("T0 %.3f, is %.3f; saturation %.1f, is %.1f; doubt %.3f", e.Profile.T0, t0, latency.New(e.Profile).Saturation(), saturation, e.Doubt)
				assert.InEpsilon(t, t0, e.Profile.T0, 0.05)
				assert.InEpsilon(t, saturation, latency.New(e.Profile).Saturation(), 0.05)
				assert.Less(t, e.Doubt, 0.05)

				both := learned(&m, append(engines, newUnknown(t, params, seed+100)), from.Add(10*time.Minute), 1, saturation)
				require.Equal(t, both[0].Profile, both[1].Profile)
				require.Equal(t, 1.0, both[1].Doubt)

				var next Memory // of the next leader
				next.Restore(m.Learned())
				again := learned(&next, engines, from.Add(11*time.Minute), 1, saturation)
				require.Equal(t, both[0].Profile, again[0].Profile)
			}
		})
	}
}

// TestIdleEngineTeachesNothing: one that hardly gets anything keeps the guess, and so does
// one that the operator has measured.
func TestIdleEngineTeachesNothing(t *testing.T) {
	var m Memory
	now := time.Unix(1_700_000_000, 0)
	engines := []*unknown{newUnknown(t, kindsOfEngines["compute"], 1)}
	require.Equal(t, guess, learned(&m, engines, now, 300, 1e-6)[0].Profile)

	u := newUnknown(t, kindsOfEngines["compute"], 2)
	for tick := range 300 {
		u.run(u.now+2*time.Second, 30)
		now := now.Add(time.Duration(tick+1000) * 2 * time.Second)
		view := &fleet.View{Engines: []fleet.Engine{{Name: "e0", Models: []string{"m"}, Profile: paceProfile}}}
		m.Apply(view, report(now, []*unknown{u}), "optimal", now)
		require.Equal(t, paceProfile, view.Engines[0].Profile)
	}
}

// TestProfileGrowsSlowly: a learned capacity falls at once and grows by parts.
func TestProfileGrowsSlowly(t *testing.T) {
	l := &learner{fit: latency.NewFitter(guess), seconds: learnFor}
	at := func(scale float64) fleet.Profile {
		return fleet.Profile{T0: 1, UMax: 100 * scale, Batch: 200 * scale, Kappa: 0.9}
	}
	saturation := func() float64 { return latency.New(l.applied).Saturation() }
	l.change(at(1), 2)
	whole := saturation()
	l.change(at(0.5), 2)
	require.InEpsilon(t, 0.5*whole, saturation(), 1e-9)
	l.change(at(1), 0.3)
	require.InEpsilon(t, 0.515*whole, saturation(), 1e-9, "by the doubt of one who has seen nothing, a tenth a second")
	require.Equal(t, 1.0, l.applied.T0)
	l.change(at(0.52), 100)
	require.InEpsilon(t, 0.515*whole, saturation(), 1e-9, "too little to plan for")
}
