package tick

import (
	"cmp"
	"math"
	"slices"
	"strings"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/latency"
)

const (
	// sureEnough is the doubt below which what was learned of an engine counts, and tells
	// what its kind is like.
	sureEnough = 0.05
	// learnFor is for how many seconds an engine must have had requests: how its latency grows
	// with its load is not seen at one load.
	learnFor = 180
	// fitEvery is after how many seconds a profile is looked at anew: it takes longer than all
	// else that a tick does, and changes in minutes.
	fitEvery = 10
	// profileStep is the relative change of a profile that is worth a plan.
	profileStep = 0.02
	// profileGrowth is how fast a learned capacity may grow, by second and by its doubt:
	// at a doubt of one percent by 6 percent a minute. It falls at once.
	profileGrowth = 0.1
)

// profiles learns the profiles of engines that have none from what they say and do. The
// zero value is ready.
type profiles struct {
	engines  map[string]*learner
	restored map[string]fleet.Profile // what the last leader had learned
}

// learner is what is known of one engine.
type learner struct {
	fit     *latency.Fitter
	kind    string
	last    *pb.Reading
	seconds float64       // in which it had requests
	waited  float64       // seconds since its profile was looked at
	applied fleet.Profile // what plans rest on; zero while they rest on the guess
}

// apply observes, and replaces the profiles of the engines that have none by what was
// learned: of the engine where that is sure enough, else of others of its kind.
func (p *profiles) apply(view *fleet.View, flows map[string]flow, newest map[string]*pb.Reading, seconds float64) {
	next := make(map[string]*learner, len(p.engines))
	for i := range view.Engines {
		e := &view.Engines[i]
		if !e.Learn {
			continue
		}
		l := p.engines[e.Name]
		if l == nil || l.kind != kindOf(e) {
			l = p.newLearner(e)
			l.waited = float64(i % fitEvery) // not all in one tick
		}
		next[e.Name] = l
		if f, seen := flows[e.Name]; seen && seconds > 0 {
			l.observe(newest[e.Name], f, seconds)
		}
	}
	p.engines = next
	kinds := p.kinds()
	for i := range view.Engines {
		e := &view.Engines[i]
		if !e.Learn {
			continue
		}
		l := next[e.Name]
		e.Doubt = l.doubt()
		if l.waited += seconds; e.Doubt <= sureEnough {
			if l.waited >= fitEvery {
				l.change(l.fit.Profile(), l.waited)
				l.waited = 0
			}
		} else if kind, known := kinds[l.kind]; known && l.applied.T0 == 0 {
			l.change(kind, seconds)
		}
		if l.applied.T0 > 0 {
			kappa, tokens, slots := e.Profile.Kappa, e.Profile.Tokens, e.Profile.Slots
			e.Profile, e.Learned = l.applied, true
			e.Profile.Kappa, e.Profile.Tokens, e.Profile.Slots = kappa, tokens, slots
		}
	}
}

// newLearner goes on from what the last leader had learned.
func (p *profiles) newLearner(e *fleet.Engine) *learner {
	l := &learner{fit: latency.NewFitter(e.Profile), kind: kindOf(e)}
	if known, ok := p.restored[e.Name]; ok && known.Validate() == nil {
		l.fit, l.applied = latency.NewFitter(known), known
		delete(p.restored, e.Name)
	}
	return l
}

// kindOf tells engines apart that cannot be expected to be alike.
func kindOf(e *fleet.Engine) string {
	models := slices.Clone(e.Models)
	slices.Sort(models)
	return e.Hardware + "\x00" + strings.Join(models, "\x00")
}

// observe takes in what an engine did since the last tick.
func (l *learner) observe(r *pb.Reading, f flow, seconds float64) {
	// Of requests that ended, so that rate and stay are of the same ones.
	o := latency.Observation{Seconds: seconds, Rate: f.finished, InEngine: f.inside}
	if r != nil {
		o.KVUsage, o.Slots = r.GetKvUsage(), r.GetSlots()
		o.Running = max(0, f.inside-r.GetWaiting())
		o.Prompt, o.Output = tokenRates(l.last, r)
		// A gauge shows what a step left behind, which misses one step of each request.
		if o.Output > 0 {
			o.Running *= o.Output / (o.Output + o.Rate)
		}
	}
	l.last = r
	l.fit.Observe(o)
	if f.arrived > 0 {
		l.seconds += seconds
	}
}

// doubt is the fit's, and 1 as long as it has seen too little.
func (l *learner) doubt() float64 {
	if l.seconds < learnFor {
		return 1
	}
	return l.fit.Doubt()
}

// tokenRates are the tokens/s of prompts computed and of answers generated between two
// readings; 0 where that is not known, as of engines that count a request's at its end.
func tokenRates(before, r *pb.Reading) (prompt, output float64) {
	if before == nil || before.Incarnation != r.Incarnation || !slices.Contains(countAsTheyGo, r.Kind) {
		return 0, 0
	}
	seconds := r.Good.AsTime().Sub(before.Good.AsTime()).Seconds()
	if seconds <= 0 {
		return 0, 0
	}
	computed := func(r *pb.Reading) float64 { return r.GetPromptTokens() - r.GetPrefixHits() }
	return max(0, computed(r)-computed(before)) / seconds, max(0, r.GetGenerationTokens()-before.GetGenerationTokens()) / seconds
}

// countAsTheyGo are the kinds of engines whose counters of tokens grow with every step.
var countAsTheyGo = []string{"vllm", "trtllm", "lmdeploy", "nim"}

// change takes over a profile that differs enough: a lower capacity at once, a higher one
// slowly, for what an engine can do more is seen only once it has done it.
func (l *learner) change(p fleet.Profile, seconds float64) {
	if l.applied.T0 == 0 {
		l.applied = p
		return
	}
	old, now := latency.New(l.applied).Saturation(), latency.New(p).Saturation()
	if most := old * (1 + profileGrowth*l.doubt()*seconds); now > most {
		// Both scaled alike scale the saturation, and leave T0 as it is.
		p.UMax, p.Batch = p.UMax*most/now, p.Batch*most/now
	}
	if differs(l.applied.T0, p.T0) || differs(l.applied.UMax, p.UMax) || differs(l.applied.Batch, p.Batch) {
		l.applied = p
	}
}

func differs(a, b float64) bool { return math.Abs(a-b) > profileStep*a }

// kinds gives what engines of each kind are like: the one of the middle saturation, of
// those that are known well.
func (p *profiles) kinds() map[string]fleet.Profile {
	known := map[string][]fleet.Profile{}
	for _, l := range p.engines {
		if l.applied.T0 > 0 && l.doubt() <= sureEnough {
			known[l.kind] = append(known[l.kind], l.applied)
		}
	}
	out := make(map[string]fleet.Profile, len(known))
	for kind, list := range known {
		slices.SortFunc(list, func(a, b fleet.Profile) int {
			return cmp.Or(cmp.Compare(latency.New(a).Saturation(), latency.New(b).Saturation()), cmp.Compare(a.T0, b.T0))
		})
		out[kind] = list[(len(list)-1)/2]
	}
	return out
}
