package optimal_test

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/latency"
)

// shape is what a random fleet looks like.
type shape struct {
	clusters, engines, models, regions int

	seed  uint64
	util  float64 // demand over capacity, of all
	multi float64 // fraction of engines that serve two models
	kinds bool    // engines are of three kinds exactly; else each has its own figures
	mixed bool    // three priorities instead of standard alone
	kappa float64
	asks  bool    // models ask different work, tokens and slots, and weigh their time differently
	noise float64 // relative, of each engine's distances around its region's
}

// view draws a fleet: regions on a sphere, lognormal clusters, Zipf models, three
// kinds of hardware, engines placed without regard to demand.
func (s shape) view() *fleet.View {
	r := rand.New(rand.NewPCG(s.seed, 1))
	v := &fleet.View{}
	type place [3]float64
	where := func() place {
		z, a := 2*r.Float64()-1, 2*math.Pi*r.Float64()
		q := math.Sqrt(1 - z*z)
		return place{q * math.Cos(a), q * math.Sin(a), z}
	}
	apart := func(a, b place) float64 {
		dot := a[0]*b[0] + a[1]*b[1] + a[2]*b[2]
		return 0.002 + 0.13*math.Acos(max(-1, min(1, dot)))/math.Pi*2
	}
	regions := make([]place, s.regions)
	for i := range regions {
		regions[i] = where()
	}
	for c := range s.clusters {
		at := regions[c%s.regions]
		name := fmt.Sprintf("c%03d", c)
		v.Clusters = append(v.Clusters, fleet.Cluster{Name: name, Region: fmt.Sprintf("r%02d", c%s.regions)})
		for i, p := range regions {
			v.Distances = append(v.Distances, fleet.Distance{
				Cluster: name, Region: fmt.Sprintf("r%02d", i), Seconds: apart(at, p) * (1 + 0.01*r.Float64()),
			})
		}
	}
	kinds := []fleet.Profile{
		{T0: 4, UMax: 12, Batch: 256}, {T0: 6, UMax: 6, Batch: 96}, {T0: 9, UMax: 3, Batch: 34},
	}
	capacity := make([]float64, s.models)
	for e := range s.engines {
		p := kinds[r.IntN(len(kinds))]
		if !s.kinds {
			p.T0 *= 0.9 + 0.2*r.Float64()
			p.UMax *= 0.9 + 0.2*r.Float64()
			p.Batch *= 0.9 + 0.2*r.Float64()
		}
		p.Kappa = s.kappa
		if p.Kappa == 0 {
			p.Kappa = 0.9
		}
		first := e % s.models
		models := []string{model(first)}
		share := latency.New(p).Capacity()
		if s.models > 1 && r.Float64() < s.multi {
			second := (first + 1 + r.IntN(s.models-1)) % s.models
			models = append(models, model(second))
			share /= 2
			capacity[second] += share
		}
		capacity[first] += share
		v.Engines = append(v.Engines, fleet.Engine{
			Name: fmt.Sprintf("e%05d", e), Region: fmt.Sprintf("r%02d", r.IntN(s.regions)), Models: models, Profile: p,
		})
	}
	if s.noise > 0 {
		s.addNoise(v, r)
	}
	size := make([]float64, s.clusters)
	for m := range s.models {
		sum := 0.0
		for c := range size {
			size[c] = math.Exp(r.NormFloat64())
			sum += size[c]
		}
		for c := range size {
			rate := s.util * capacity[m] * size[c] / sum
			if !s.mixed {
				v.Demands = append(v.Demands, fleet.Demand{Cluster: v.Clusters[c].Name, Model: model(m), Priority: fleet.Standard, Rate: rate})
				continue
			}
			for k, part := range [...]float64{0.2, 0.5, 0.3} {
				v.Demands = append(v.Demands, fleet.Demand{
					Cluster: v.Clusters[c].Name, Model: model(m), Priority: fleet.Priority(k), Rate: rate * part,
				})
			}
		}
	}
	if s.asks {
		s.addAsks(v)
	}
	return v
}

// addAsks makes the models differ in what they ask and what their time is worth, and
// gives some engines limits on tokens and slots near where their caps bind.
func (s shape) addAsks(v *fleet.View) {
	r := rand.New(rand.NewPCG(s.seed, 8))
	work := map[string]float64{}
	for m := range s.models {
		x := fleet.Model{Name: model(m), Work: 0.2 + 4*r.Float64(), TokenSeconds: 1e4 * r.Float64(), SlotSeconds: 10 * r.Float64()}
		if r.IntN(2) == 0 {
			x.FirstToken, x.Decode = 4*r.Float64(), r.Float64()
		}
		work[x.Name] = x.Work
		v.Models = append(v.Models, x)
	}
	for i := range v.Demands {
		v.Demands[i].Rate /= work[v.Demands[i].Model]
	}
	for i := range v.Engines {
		p := &v.Engines[i].Profile
		p.FirstToken = p.T0 * float64(r.IntN(3)) / 4
		p.Spread = 0.5 + float64(r.IntN(2))
		top := latency.New(*p).Capacity()
		if r.IntN(2) == 0 {
			p.Tokens = top * 5e3 * (0.2 + r.Float64())
		}
		if r.IntN(2) == 0 {
			p.Slots = top * 5 * (0.2 + r.Float64())
		}
	}
}

// addNoise gives every engine distances of its own.
func (s shape) addNoise(v *fleet.View, r *rand.Rand) {
	far := v.Distances
	for _, e := range v.Engines {
		for _, d := range far {
			if d.Region == e.Region {
				d.Engine = e.Name
				d.Seconds *= max(0.1, 1+s.noise*r.NormFloat64())
				v.Distances = append(v.Distances, d)
			}
		}
	}
}

func model(m int) string { return fmt.Sprintf("m%02d", m) }

// shuffled is the same view in another order.
func shuffled(v *fleet.View, seed uint64) *fleet.View {
	r := rand.New(rand.NewPCG(seed, 2))
	w := *v
	w.Clusters = mix(r, v.Clusters)
	w.Engines = mix(r, v.Engines)
	w.Demands = mix(r, v.Demands)
	w.Distances = mix(r, v.Distances)
	for i := range w.Engines {
		w.Engines[i].Models = mix(r, w.Engines[i].Models)
	}
	return &w
}

func mix[T any](r *rand.Rand, s []T) []T {
	s = append([]T(nil), s...)
	r.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
	return s
}

// drifted is the view with every demand multiplied by up to 1 +- by.
func drifted(v *fleet.View, by float64, seed uint64) *fleet.View {
	r := rand.New(rand.NewPCG(seed, 3))
	w := *v
	w.Demands = append([]fleet.Demand(nil), v.Demands...)
	for i := range w.Demands {
		w.Demands[i].Rate *= 1 + by*(2*r.Float64()-1)
	}
	return &w
}

// shifted is the view with demand moved by a lognormal factor, and each model's
// sum kept.
func shifted(v *fleet.View, by float64, seed uint64) *fleet.View {
	r := rand.New(rand.NewPCG(seed, 33))
	w := *v
	w.Demands = append([]fleet.Demand(nil), v.Demands...)
	before, after := map[string]float64{}, map[string]float64{}
	for i := range w.Demands {
		d := &w.Demands[i]
		before[d.Model] += d.Rate
		d.Rate *= math.Exp(by * r.NormFloat64())
		after[d.Model] += d.Rate
	}
	for i := range w.Demands {
		w.Demands[i].Rate *= before[w.Demands[i].Model] / after[w.Demands[i].Model]
	}
	return &w
}

// changed counts the weights that differ, to the bit.
func changed(a, b *fleet.Plan) int {
	n := 0
	for i := range a.Rows {
		for j := range a.Rows[i].Arcs {
			if a.Rows[i].Arcs[j].Weight != b.Rows[i].Arcs[j].Weight {
				n++
			}
		}
	}
	return n
}
