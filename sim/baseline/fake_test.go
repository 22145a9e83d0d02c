package baseline

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/wardrop-lb/wardrop/enginemodel"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/sim"
)

// fake is an Env that a test moves by hand.
type fake struct {
	now      time.Duration
	fleet    *sim.Fleet
	random   *rand.Rand
	readings map[int]sim.Reading // of engines
	down     map[int]bool
	drained  map[int]bool
	deaf     map[int]bool // to probes
	later    []call
}

type call struct {
	at time.Duration
	do func()
}

// newFake has one model and one cluster in each region; distances are seconds, by
// cluster and region, and engines have 10 slots.
func newFake(engines map[string]int, regions []string, distance ...[]float64) *fake {
	f := &sim.Fleet{Models: []string{"m"}, Serving: [][]int{nil}}
	for _, region := range regions {
		f.Clusters = append(f.Clusters, fleet.Cluster{Name: region, Region: region})
	}
	f.Distance = make([][]float64, len(regions))
	for i, region := range regions {
		for range engines[region] {
			n := len(f.Engines)
			f.Engines = append(f.Engines, sim.Engine{
				Name: region + string(rune('0'+n)), Region: region, Models: []int{0}, Slots: 10, Tokens: 100 * blockTokens, Prefill: 1e-4,
			})
			f.Serving[0] = append(f.Serving[0], n)
			for c := range regions {
				f.Distance[c] = append(f.Distance[c], distance[c][i])
			}
		}
	}
	return &fake{
		fleet: f, random: rand.New(rand.NewPCG(1, 2)),
		readings: map[int]sim.Reading{}, down: map[int]bool{}, drained: map[int]bool{}, deaf: map[int]bool{},
	}
}

// alone has so many engines in one region.
func alone(engines int) *fake {
	return newFake(map[string]int{"r": engines}, []string{"r"}, []float64{0.01})
}

func (f *fake) Now() time.Duration      { return f.now }
func (f *fake) Fleet() *sim.Fleet       { return f.fleet }
func (f *fake) Random() *rand.Rand      { return f.random }
func (f *fake) Up(_, engine int) bool   { return !f.down[engine] }
func (f *fake) Drained(engine int) bool { return f.drained[engine] }
func (f *fake) Abort(*sim.Request)      {}

func (f *fake) After(d time.Duration, do func()) { f.later = append(f.later, call{f.now + d, do}) }

func (f *fake) Reading(_, engine int) (sim.Reading, bool) {
	x, ok := f.readings[engine]
	return x, ok
}

func (f *fake) Probe(_, engine int, answer func(sim.Reading)) {
	if !f.deaf[engine] {
		x := f.readings[engine]
		f.After(0, func() { answer(x) })
	}
}

// advance lets time pass.
func (f *fake) advance(d time.Duration) {
	end := f.now + d
	for {
		first := -1
		for i := range f.later {
			if f.later[i].at <= end && (first < 0 || f.later[i].at < f.later[first].at) {
				first = i
			}
		}
		if first < 0 {
			break
		}
		c := f.later[first]
		f.later = slices.Delete(f.later, first, first+1)
		f.now = c.at
		c.do()
	}
	f.now = end
}

// reads gives an engine's newest reading.
func (f *fake) reads(engine, running, waiting int, kv float64) {
	f.readings[engine] = sim.Reading{At: f.now, Running: running, Waiting: waiting, KVUsage: kv}
}

func (f *fake) router(name string) *base { return Policies()[name](f).(*base) }

// prompt is a request whose prompt is these blocks, one after the other.
func prompt(blocks ...uint64) *sim.Request {
	r := &sim.Request{Engine: -1}
	last := uint64(0)
	for _, b := range blocks {
		r.Prompt += blockTokens
		last = mix(last ^ mix(b+1))
		r.Prefix = append(r.Prefix, enginemodel.Block{Hash: last, End: r.Prompt})
	}
	return r
}

// route sends a request and leaves it in its engine.
func (b *base) route(r *sim.Request) int {
	e, _ := b.Route(r)
	r.Engine, r.Sent = e, b.Now()
	r.Attempts++
	return e
}

// serve sends a request and answers it at once.
func (b *base) serve(r *sim.Request) int {
	e := b.route(r)
	b.FirstToken(r)
	b.Done(r, sim.Answered)
	return e
}
