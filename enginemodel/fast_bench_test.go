package enginemodel_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/enginemodel"
)

// offer is a load of Poisson arrivals drawn beforehand, so that a benchmark times
// the engine alone. It is offered again and again.
type offer struct {
	requests []enginemodel.Request
	gaps     []time.Duration
}

// newOffer draws n requests with lengths spread like an exponential's. With sessions
// above 0, each goes on with one of as many conversations: a system prompt that all
// share, and 256 tokens that no other has.
func newOffer(n int, rate, prompt, output float64, sessions int) *offer {
	rng := rand.New(rand.NewPCG(1, 2))
	o := &offer{requests: make([]enginemodel.Request, n), gaps: make([]time.Duration, n)}
	for i := range o.requests {
		r := enginemodel.Request{Prompt: 1 + int(prompt*rng.ExpFloat64()), Output: 1 + int(output*rng.ExpFloat64())}
		if sessions > 0 {
			session := uint64(1 + rng.IntN(sessions))
			r.Prompt += 768
			r.Prefix = []enginemodel.Block{block(1, 256), block(2, 512), block(session<<8, 640), block(session<<8+1, 768)}
		}
		o.requests[i] = r
		o.gaps[i] = time.Duration(rng.ExpFloat64() / rate * 1e9)
	}
	return o
}

// player offers to one engine.
type player struct {
	*offer
	engine enginemodel.Simulated
	i      int
	id     uint64
	at     time.Duration
	events []enginemodel.Event
}

// play lets one more request arrive, and all happen that happens before.
func (p *player) play() {
	p.at += p.gaps[p.i]
	for next := p.engine.Next(); next <= p.at; next = p.engine.Next() {
		p.events = p.engine.Run(next, p.events[:0])
	}
	r := &p.requests[p.i]
	p.id++
	r.ID = p.id
	if err := p.engine.Add(*r, p.at); err != nil {
		panic(err)
	}
	if p.i++; p.i == len(p.requests) {
		p.i = 0
	}
}

func fast(t testing.TB, p enginemodel.Params) *enginemodel.Fast {
	t.Helper()
	e, err := enginemodel.NewFast(p)
	require.NoError(t, err)
	return e
}

// BenchmarkRequest is one request from its arrival to its last token.
func BenchmarkRequest(b *testing.B) {
	p := preset(b, "8b-h100")
	for _, c := range []struct {
		name     string
		sessions int
		cached   float64
	}{{"chat", 0, 0}, {"sessions", 1000, 768}} {
		for _, load := range []float64{0.3, 0.8, 0.95} {
			rate := load * saturation(enginemodel.Profile(p, 512+c.cached, 256, c.cached))
			for _, way := range []string{"fast", "stepped"} {
				b.Run(fmt.Sprintf("%s/%s/load %v", way, c.name, load), func(b *testing.B) {
					var e enginemodel.Simulated = fast(b, p)
					if way == "stepped" {
						s, err := enginemodel.NewStepped(p)
						require.NoError(b, err)
						e = s
					}
					x := player{offer: newOffer(10000, rate, 512, 256, c.sessions), engine: e}
					warm := 10000
					for range warm {
						x.play()
					}
					b.ReportAllocs()
					for b.Loop() {
						x.play()
					}
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
				})
			}
		}
	}
}

// BenchmarkFleet is 10,000 engines of 20 requests each, as a simulator holds them:
// an engine is seldom in the processor's cache.
func BenchmarkFleet(b *testing.B) {
	const engines = 10000
	p := preset(b, "8b-h100")
	profile := enginemodel.Profile(p, 512, 256, 0)
	rate := 20 / (profile.T0 + 20/profile.UMax)
	shared := newOffer(10000, rate, 512, 256, 0)
	before := heap()
	fleet := make([]player, engines)
	for i := range fleet {
		fleet[i] = player{offer: shared, engine: fast(b, p), i: i}
	}
	// The fleet's virtual time goes on engine by engine, a request each.
	for range 60 {
		for i := range fleet {
			fleet[i].play()
		}
	}
	held := heap() - before
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		fleet[i].play()
		if i++; i == engines {
			i = 0
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
	b.ReportMetric(float64(held)/1e6, "MB")
	runtime.KeepAlive(fleet)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
