package sim

import (
	"math"
	"slices"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/enginemodel"
)

// setFleet makes the fleet and its engines of the scenario's configuration.
func (w *world) setFleet() error {
	c := w.scenario.Config
	view := c.View()
	f := &Fleet{Clusters: view.Clusters}
	for _, e := range c.Engines {
		f.Models = append(f.Models, e.Models...)
	}
	slices.Sort(f.Models)
	f.Models = slices.Compact(f.Models)
	f.Serving = make([][]int, len(f.Models))
	for i, e := range view.Engines {
		params := w.scenario.paramsOf(&c.Engines[i])
		x := Engine{
			Name: e.Name, Region: e.Region, Profile: e.Profile,
			Slots: params.MaxBatch, Tokens: params.MaxTokens(), Prefill: params.PerPrefillToken,
		}
		for _, name := range e.Models {
			m, _ := slices.BinarySearch(f.Models, name)
			x.Models = append(x.Models, m)
			f.Serving[m] = append(f.Serving[m], i)
		}
		f.Engines = append(f.Engines, x)
		w.engines = append(w.engines, engine{params: params})
	}
	far := map[[2]string]float64{}
	for _, d := range view.Distances {
		to := d.Region
		if d.Engine != "" {
			to = "engine " + d.Engine
		}
		far[[2]string{d.Cluster, to}] = d.Seconds
	}
	for _, cl := range f.Clusters {
		row := make([]float64, len(f.Engines))
		for i, e := range f.Engines {
			s, ok := far[[2]string{cl.Name, "engine " + e.Name}]
			if !ok {
				s = far[[2]string{cl.Name, e.Region}]
			}
			row[i] = s + view.Engines[i].Offset
		}
		f.Distance = append(f.Distance, row)
	}
	w.fleet = f
	return nil
}

// hardwareOf is the entry that counts for an engine; nil when it is made to fit its
// profile.
func (s *Scenario) hardwareOf(engine string) *Hardware {
	for i := range s.Hardware {
		if matches(s.Hardware[i].Engine, engine) {
			return &s.Hardware[i]
		}
	}
	return nil
}

// paramsOf is what an engine is made of.
func (s *Scenario) paramsOf(e *config.Engine) enginemodel.Params {
	if h := s.hardwareOf(e.Name); h != nil {
		p, _ := enginemodel.Hardware(h.Kind) // checked when it was read
		if h.Slots > 0 {
			p.MaxBatch = h.Slots
		}
		return p
	}
	prompt, output, _ := s.usual(e.Models[0])
	return enginemodel.FromProfile(e.Fleet().Profile, int(math.Round(prompt)), int(math.Round(output)))
}

// usual is a model's mean prompt and output in tokens, and how much of the prompt was
// in one before.
func (s *Scenario) usual(model string) (prompt, output, repeated float64) {
	for i := range s.Traces {
		if t := &s.Traces[i]; t.Model == model {
			return t.usual()
		}
	}
	l := s.loadOf(s.Config.Clusters[0].Name, model)
	repeated = float64(l.Shared)
	if l.Documents.Count > 0 {
		repeated += l.Documents.Part * l.Documents.Tokens
	}
	// The turns of a conversation have as many before them in the mean, for the law has
	// no memory.
	before := (l.Sessions.Turns - 1) * (l.Prompt.Mean + l.Output.Mean)
	repeated += before
	return repeated + l.Prompt.Mean, l.Output.Mean, repeated
}

// setProfiles gives engines of known hardware the profile that their operator would
// have measured.
func (s *Scenario) setProfiles() {
	for i := range s.Config.Engines {
		e := &s.Config.Engines[i]
		if s.hardwareOf(e.Name) == nil {
			continue
		}
		prompt, output, repeated := s.usual(e.Models[0])
		p := enginemodel.Profile(s.paramsOf(e), prompt, output, repeated)
		e.Profile.T0, e.Profile.UMax, e.Profile.Batch = config.Duration(p.T0*1e9), p.UMax, p.Batch
		e.Profile.Kappa, e.Profile.FirstToken = p.Kappa, config.Duration(p.FirstToken*1e9)
	}
}
