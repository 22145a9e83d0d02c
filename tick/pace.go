package tick

import (
	"math"
	"slices"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/guard"
	"github.com/wardrop-lb/wardrop/latency"
)

// paces turns what data planes counted into what went through each engine. The zero
// value is ready.
type paces struct {
	planes map[string]*planePace  // by instance
	tried  map[string]guard.Tried // by engine: since the call before
}

// planePace is what one data plane counted: totals as it last said, and rates since
// the time before.
type planePace struct {
	at    instant
	seen  map[seenKey]counted
	rates map[string]flow // by engine
	tried map[string]guard.Tried
}

type seenKey struct{ engine, model string }

type counted struct{ requests, failed, inFlight, ended, spent float64 }

// flow is what goes through an engine, by work: requests/s, those on the way there, in it and
// on the way back, and by Little's law the mean of those in it alone, 0 where nothing ended.
type flow struct{ arrived, finished, inFlight, inside float64 }

// of adds up what all data planes see of each engine now.
func (p *paces) of(view *fleet.View, planes []Report) map[string]flow {
	work := workOf(view)
	next := make(map[string]*planePace, len(planes))
	sum, network := map[string]flow{}, networkOf(view)
	p.tried = map[string]guard.Tried{}
	for _, r := range planes {
		plane := p.planes[r.Instance]
		if plane == nil || !r.Time.AsTime().Equal(plane.at.own) {
			plane = plane.advance(r, work, network)
			for name, t := range plane.tried {
				all := p.tried[name]
				p.tried[name] = guard.Tried{Attempts: all.Attempts + t.Attempts, Failed: all.Failed + t.Failed}
			}
		}
		next[r.Instance] = plane
		for name, f := range plane.rates {
			all := sum[name]
			sum[name] = flow{all.arrived + f.arrived, all.finished + f.finished, all.inFlight + f.inFlight, all.inside + f.inside}
		}
	}
	p.planes = next
	return sum
}

// advance makes rates of a report and the one before, if there was one.
func (p *planePace) advance(r Report, work func(model string) float64, network func(cluster, engine string) float64) *planePace {
	out := &planePace{at: r.instant(), seen: make(map[seenKey]counted, len(r.Observations)), rates: map[string]flow{}, tried: map[string]guard.Tried{}}
	seconds := 0.0
	if p != nil {
		seconds = out.at.since(p.at)
	}
	for _, o := range r.Observations {
		key, now := seenKey{o.Engine, o.Model}, counted{float64(o.Requests), float64(o.Failed), o.InFlight, float64(o.Ended), o.Spent}
		if !plausible(now.requests) || !plausible(now.failed) || !plausible(now.inFlight) || !plausible(now.spent) {
			continue
		}
		out.seen[key] = now
		w, f := work(o.Model), out.rates[o.Engine]
		f.inFlight += w * now.inFlight
		// A count that is new, or fell, is not known for this while.
		before, ok := p.counted(key)
		if ok && seconds > 0 && now.requests >= before.requests {
			arrived := now.requests - before.requests
			finished := max(0, now.ended-before.ended)
			f.arrived += w * arrived / seconds
			f.finished += w * finished / seconds
			f.inside += w * max(0, now.spent-before.spent-finished*network(r.Cluster, o.Engine)) / seconds
		}
		// Of a data plane that is not new all that it tries first is of this while.
		if p != nil && now.requests >= before.requests && now.failed >= before.failed && now != before {
			t := out.tried[o.Engine]
			out.tried[o.Engine] = guard.Tried{Attempts: t.Attempts + now.requests - before.requests, Failed: t.Failed + now.failed - before.failed}
		}
		out.rates[o.Engine] = f
	}
	return out
}

// networkOf gives the seconds of network time between a cluster and an engine.
func networkOf(view *fleet.View) func(cluster, engine string) float64 {
	far := make(map[[2]string]float64, len(view.Distances))
	for _, d := range view.Distances {
		if d.Engine != "" {
			far[[2]string{d.Cluster, "\x00" + d.Engine}] = d.Seconds
		} else {
			far[[2]string{d.Cluster, d.Region}] = d.Seconds
		}
	}
	engines := make(map[string]*fleet.Engine, len(view.Engines))
	for i := range view.Engines {
		engines[view.Engines[i].Name] = &view.Engines[i]
	}
	return func(cluster, engine string) float64 {
		e := engines[engine]
		if e == nil {
			return 0
		}
		if s, ok := far[[2]string{cluster, "\x00" + engine}]; ok {
			return s + e.Offset
		}
		return far[[2]string{cluster, e.Region}] + e.Offset
	}
}

func (p *planePace) counted(key seenKey) (counted, bool) {
	if p == nil {
		return counted{}, false
	}
	c, ok := p.seen[key]
	return c, ok
}

// slowdowns finds engines that take longer than their profiles say, by what
// arrives there and how many are in them. The zero value is ready.
type slowdowns struct {
	engines map[string]*latency.Slowdown
}

// apply sets the slowdowns of the view's engines and slows their profiles. What
// most engines of a model have in common is no slowdown of theirs: the requests have
// changed, and to move them would help none.
func (s *slowdowns) apply(view *fleet.View, flows map[string]flow, newest map[string]*pb.Reading, seconds float64) {
	next := make(map[string]*latency.Slowdown, len(view.Engines))
	for i := range view.Engines {
		e := &view.Engines[i]
		slow := s.engines[e.Name]
		if slow == nil {
			slow = &latency.Slowdown{}
		}
		next[e.Name] = slow
		f, seen := flows[e.Name]
		if !seen || seconds == 0 || e.Learn && e.Doubt > sureEnough { // against a guess nothing is slow
			continue
		}
		m := latency.New(e.Profile)
		slow.Observe(&m, latency.Pace{Seconds: seconds, Arrived: f.arrived, Finished: f.finished, InEngine: inEngine(newest[e.Name], f)})
	}
	s.engines = next
	usual := s.usual(view)
	for i := range view.Engines {
		e := &view.Engines[i]
		common := math.Inf(1)
		for _, m := range e.Models {
			common = min(common, usual[m])
		}
		if factor := next[e.Name].Factor() / common; factor > 1 {
			e.Slowdown, e.Profile = factor, latency.Slowed(e.Profile, factor)
		}
	}
}

// inEngine is how many requests are in an engine: what it says, or else what data planes
// have on the way there, in it and on the way back.
func inEngine(r *pb.Reading, f flow) float64 {
	if r == nil || r.Running == nil {
		return f.inFlight
	}
	if n := r.GetRunning() + r.GetWaiting(); plausible(n) {
		return n
	}
	return f.inFlight
}

// usual is the slowdown of the better half of a model's engines at most; a single one's is
// usual, for there is none to compare it with.
func (s *slowdowns) usual(view *fleet.View) map[string]float64 {
	factors := map[string][]float64{}
	for i := range view.Engines {
		e := &view.Engines[i]
		for _, m := range e.Models {
			factors[m] = append(factors[m], s.engines[e.Name].Factor())
		}
	}
	out := make(map[string]float64, len(factors))
	for m, list := range factors {
		slices.Sort(list)
		out[m] = list[(len(list)-1)/2]
	}
	return out
}
