package baseline

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/wardrop-lb/wardrop/sim"
)

// warm is a router over so many engines that has routed a while, and a request.
func warm(name string, engines int) (*fake, *base, []*sim.Request) {
	f := newFake(map[string]int{"a": engines / 2, "b": engines - engines/2}, []string{"a", "b"}, []float64{0.01, 0.1}, []float64{0.1, 0.01})
	for e := range engines {
		f.reads(e, 5, 0, 0.3)
	}
	b := f.router(name)
	var requests []*sim.Request
	for i := range uint64(64) {
		requests = append(requests, prompt(1, 2, i%8, i, 3, 4, 5, 6))
	}
	for range 20 {
		for _, r := range requests {
			r.Attempts = 0
			b.serve(r)
			f.advance(time.Millisecond)
		}
	}
	return f, b, requests
}

// TestRouteAllocatesLittle: Prequal pays for its probes, the others for nothing.
func TestRouteAllocatesLittle(t *testing.T) {
	for _, name := range names {
		f, b, requests := warm(name, 20)
		i := 0
		n := testing.AllocsPerRun(500, func() {
			r := requests[i%len(requests)]
			i++
			r.Attempts = 0
			b.serve(r)
			f.advance(time.Millisecond)
		})
		limit := 0.0
		if name == "prequal" {
			limit = 2*probeRate + 1
		}
		assert.LessOrEqual(t, n, limit, name)
	}
}

func BenchmarkRoute(b *testing.B) {
	for _, name := range names {
		b.Run(name, func(b *testing.B) {
			f, router, requests := warm(name, 100)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r := requests[i%len(requests)]
				r.Attempts = 0
				router.serve(r)
				f.advance(time.Millisecond)
			}
		})
	}
}
