package fleetgen

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/latency"
)

// Spec says what to draw.
type Spec struct {
	Clusters int     // default 10
	Engines  int     // default 100
	Models   int     // default 1
	Regions  int     // default: about the square root of Engines/4, at least 2
	Util     float64 // demand over capacity of each model, default 0.8
	Kappa    float64 // the engines' caps over saturation, default 0.9
	Multi    float64 // fraction of engines that serve two models, 0..1
	Asks     float64 // fraction of engines with limits on tokens and slots, 0..1; above 0 models ask different amounts
	Noise    float64 // relative, of each engine's distances around its region's; 0: as far as the region
	Seed     uint64
}

// Parse reads a spec like clusters=100,engines=10000,models=20,util=0.95,seed=1.
func Parse(text string) (Spec, error) {
	s := Spec{Clusters: 10, Engines: 100, Models: 1, Util: 0.8, Kappa: 0.9}
	counts := map[string]*int{"clusters": &s.Clusters, "engines": &s.Engines, "models": &s.Models, "regions": &s.Regions}
	numbers := map[string]*float64{"util": &s.Util, "kappa": &s.Kappa, "multi": &s.Multi, "noise": &s.Noise, "asks": &s.Asks}
	for part := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(part, "=")
		var err error
		switch {
		case counts[key] != nil:
			if *counts[key], err = strconv.Atoi(value); err == nil && *counts[key] < 1 {
				err = fmt.Errorf("%q is less than 1", value)
			}
		case numbers[key] != nil:
			*numbers[key], err = strconv.ParseFloat(value, 64)
		case key == "seed":
			s.Seed, err = strconv.ParseUint(value, 10, 64)
		default:
			return s, fmt.Errorf("unknown %q: known are clusters, engines, models, regions, util, kappa, multi, noise, asks, seed", key)
		}
		if err != nil {
			return s, fmt.Errorf("%s: %w", key, err)
		}
	}
	if s.Regions == 0 {
		s.Regions = max(2, int(math.Sqrt(float64(s.Engines)/17)))
	}
	return s, s.validate()
}

func (s Spec) validate() error {
	switch {
	case s.Models > s.Engines:
		return fmt.Errorf("models: %d engines cannot serve %d models", s.Engines, s.Models)
	case !(s.Util >= 0 && s.Util <= 100):
		return fmt.Errorf("util: %v is not in [0, 100]", s.Util)
	case !(s.Kappa > 0 && s.Kappa <= 0.95):
		return fmt.Errorf("kappa: %v is not in (0, 0.95]", s.Kappa)
	case !(s.Multi >= 0 && s.Multi <= 1):
		return fmt.Errorf("multi: %v is not in [0, 1]", s.Multi)
	case !(s.Asks >= 0 && s.Asks <= 1):
		return fmt.Errorf("asks: %v is not in [0, 1]", s.Asks)
	case !(s.Noise >= 0 && s.Noise <= 1):
		return fmt.Errorf("noise: %v is not in [0, 1]", s.Noise)
	}
	return nil
}

// View draws the fleet. The spec must be one that Parse gives.
func (s Spec) View() *fleet.View {
	d := &draw{Spec: s, rng: rand.New(rand.NewPCG(s.Seed, 17)), view: &fleet.View{}, capacity: make([]float64, s.Models)}
	d.places()
	d.engines()
	d.addNoise()
	d.demands()
	d.asks()
	return d.view
}

type draw struct {
	Spec
	rng      *rand.Rand
	view     *fleet.View
	capacity []float64 // by model, requests/s
}

// milli rounds, so that a fleet written as text reads back as it was.
func milli(x float64) float64 { return math.Round(x*1e3) / 1e3 }

type place [3]float64

func (d *draw) place() place {
	z, a := 2*d.rng.Float64()-1, 2*math.Pi*d.rng.Float64()
	q := math.Sqrt(1 - z*z)
	return place{q * math.Cos(a), q * math.Sin(a), z}
}

// apart is a round trip: 2 ms, and 130 ms to the other side of a sphere, as light
// in fibre on roundabout ways takes.
func apart(a, b place) float64 {
	dot := a[0]*b[0] + a[1]*b[1] + a[2]*b[2]
	return 0.002 + 0.13*math.Acos(max(-1, min(1, dot)))/math.Pi*2
}

func region(i int) string { return fmt.Sprintf("r%02d", i) }

func (d *draw) places() {
	at := make([]place, d.Regions)
	for i := range at {
		at[i] = d.place()
	}
	for c := range d.Clusters {
		name := fmt.Sprintf("c%03d", c)
		d.view.Clusters = append(d.view.Clusters, fleet.Cluster{Name: name, Region: region(c % d.Regions)})
		for i, p := range at {
			d.view.Distances = append(d.view.Distances, fleet.Distance{
				Cluster: name, Region: region(i), Seconds: milli(apart(at[c%d.Regions], p) * (1 + 0.01*d.rng.Float64())),
			})
		}
	}
}

func (d *draw) engines() {
	kinds := []fleet.Profile{{T0: 4, UMax: 12, Batch: 256}, {T0: 6, UMax: 6, Batch: 96}, {T0: 9, UMax: 3, Batch: 34}}
	for e := range d.Engines {
		p := kinds[d.rng.IntN(len(kinds))]
		vary := func(x float64) float64 { return milli(x * (0.9 + 0.2*d.rng.Float64())) }
		p.T0, p.UMax, p.Batch, p.Kappa = vary(p.T0), vary(p.UMax), vary(p.Batch), d.Kappa
		first := e % d.Models
		models, share := []string{model(first)}, latency.New(p).Capacity()
		if d.Models > 1 && d.rng.Float64() < d.Multi {
			second := (first + 1 + d.rng.IntN(d.Models-1)) % d.Models
			models = append(models, model(second))
			share /= 2
			d.capacity[second] += share
		}
		d.capacity[first] += share
		d.view.Engines = append(d.view.Engines, fleet.Engine{
			Name: fmt.Sprintf("e%05d", e), Region: region(d.rng.IntN(d.Regions)), Models: models, Profile: p,
		})
	}
	d.drop()
}

// drop leaves out distances to regions that no engine came to lie in.
func (d *draw) drop() {
	used := map[string]bool{}
	for _, e := range d.view.Engines {
		used[e.Region] = true
	}
	var kept []fleet.Distance
	for _, x := range d.view.Distances {
		if used[x.Region] {
			kept = append(kept, x)
		}
	}
	d.view.Distances = kept
}

// addNoise gives every engine distances of its own.
func (d *draw) addNoise() {
	if d.Noise == 0 {
		return
	}
	far := map[string][]fleet.Distance{}
	for _, x := range d.view.Distances {
		far[x.Region] = append(far[x.Region], x)
	}
	for _, e := range d.view.Engines {
		for _, x := range far[e.Region] {
			x.Engine = e.Name
			x.Seconds = math.Round(1e6*x.Seconds*max(0.1, 1+d.Noise*d.rng.NormFloat64())) / 1e6
			d.view.Distances = append(d.view.Distances, x)
		}
	}
}

func model(m int) string { return fmt.Sprintf("m%02d", m) }

func (d *draw) demands() {
	size := make([]float64, d.Clusters)
	for m := range d.Models {
		sum := 0.0
		for c := range size {
			size[c] = math.Exp(d.rng.NormFloat64())
			sum += size[c]
		}
		for c := range size {
			rate := d.Util * d.capacity[m] * size[c] / sum
			for k, part := range [fleet.NumPriorities]float64{0.2, 0.5, 0.3} {
				d.view.Demands = append(d.view.Demands, fleet.Demand{
					Cluster: d.view.Clusters[c].Name, Model: model(m), Priority: fleet.Priority(k), Rate: milli(rate * part),
				})
			}
		}
	}
}

// asks makes models differ in what their requests ask and what their time is worth,
// and gives engines limits on tokens and slots near where their caps bind.
func (d *draw) asks() {
	if d.Asks == 0 {
		return
	}
	work := map[string]float64{}
	for m := range d.Models {
		x := fleet.Model{
			Name: model(m), Work: milli(0.2 + 4*d.rng.Float64()), TokenSeconds: milli(1e4 * d.rng.Float64()), SlotSeconds: milli(10 * d.rng.Float64()),
			FirstToken: 1, Decode: milli(0.1 + 0.9*d.rng.Float64()),
		}
		work[x.Name] = x.Work
		d.view.Models = append(d.view.Models, x)
	}
	for i := range d.view.Demands {
		x := &d.view.Demands[i]
		x.Rate = milli(x.Rate / work[x.Model])
	}
	for i := range d.view.Engines {
		p := &d.view.Engines[i].Profile
		p.FirstToken = milli(p.T0 * 0.2 * d.rng.Float64())
		capacity := latency.New(*p).Capacity()
		if d.rng.Float64() < d.Asks {
			p.Tokens = math.Round(capacity * 5e3 * (0.4 + d.rng.Float64()))
			p.Slots = milli(capacity * 5 * (0.4 + d.rng.Float64()))
		}
	}
}
