package sim

import (
	"fmt"
	"time"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/optimal"
)

// boundStep is how long rates are taken to stand still.
const boundStep = 10 * time.Second

// Bound is the least mean latency in seconds that any routing could have: the optimum
// at every instant's true mean rates, of engines that are as their profiles say and
// know no chance, with nothing to pay for moving. Real arrivals come by chance, which
// costs; so no policy reaches it but where its engines do better than their profiles, and
// where caches save them work.
func Bound(s *Scenario) (float64, error) {
	problem := policy.DefaultProblem()
	problem.Lambda, problem.Floor, problem.Keep = 0, 0, 0
	solver := optimal.New(optimal.Options{Problem: &problem, Warm: true})
	w, err := newWorld(s, Options{}, nil)
	if err != nil {
		return 0, err
	}
	spent, all := 0.0, 0.0
	base := s.Config.View()
	for at := time.Duration(s.Warmup); at < time.Duration(s.Duration); at += boundStep {
		v := *base
		v.Demands = append([]fleet.Demand(nil), base.Demands...)
		v.Engines = nil
		for i := range w.sources {
			src := w.sources[i]
			src.factor = s.factorAt(w.fleet.Clusters[src.cluster].Name, at)
			v.Demands[i].Rate = src.rateAt(at) * src.load.Sessions.Turns
		}
		for i, e := range base.Engines {
			if s.slowdownAt(i, at) < gone {
				e.Profile.T0 *= s.slowdownAt(i, at)
				e.Profile.FirstToken *= s.slowdownAt(i, at)
				e.Profile.UMax /= s.slowdownAt(i, at)
				v.Engines = append(v.Engines, e)
			}
		}
		plan, err := solver.Plan(&v, nil)
		if err != nil {
			return 0, fmt.Errorf("the fluid bound at %v: %w", at, err)
		}
		cost, admitted := served(plan)
		spent += cost
		all += admitted
		solver.Recycle(plan)
	}
	if all == 0 {
		return 0, nil
	}
	return spent / all, nil
}

// served is what a plan's admitted requests spend, and how many there are.
func served(plan *fleet.Plan) (cost, admitted float64) {
	for i := range plan.Rows {
		r := &plan.Rows[i]
		flow := r.Admitted()
		admitted += flow
		for _, a := range r.Arcs {
			cost += flow * a.Weight * a.Network
		}
	}
	for i := range plan.Engines {
		cost += plan.Engines[i].Load * plan.Engines[i].Seconds
	}
	return cost, admitted
}

// lasts says whether an event is on at a time.
func (e *Event) lasts(at time.Duration) bool {
	return at >= time.Duration(e.At) && (e.For == 0 || at < time.Duration(e.At+e.For))
}

// factorAt is how many times its usual demand a cluster has at a time.
func (s *Scenario) factorAt(cluster string, at time.Duration) float64 {
	f := 1.0
	for i := range s.Events {
		if e := &s.Events[i]; e.Do == "" && e.Control == "" && e.lasts(at) && matches(e.Cluster, cluster) {
			f *= e.Factor
		}
	}
	return f
}

// gone is the slowdown of an engine that does nothing at all.
const gone = 1e7

// slowdownAt is how many times as long an engine's steps take at a time; gone
// where nothing can be had of it.
func (s *Scenario) slowdownAt(engine int, at time.Duration) float64 {
	for i := range s.Events {
		e := &s.Events[i]
		if e.Do == "" || !e.lasts(at) {
			continue
		}
		for _, x := range s.enginesOf(e) {
			if x == engine {
				if e.Do == "slow" {
					return e.Factor
				}
				return gone
			}
		}
	}
	return 1
}
