package enginemodel_test

import (
	"math/rand/v2"
	"time"

	"github.com/wardrop-lb/wardrop/enginemodel"
)

// outcome is what a driven run measured, arrivals of the warm-up left out.
type outcome struct {
	mean       float64 // seconds from arrival to the last token
	throughput float64 // requests finished per second
	gauges     enginemodel.Gauges
}

// drive offers Poisson arrivals at rate for horizon seconds of virtual time and
// measures what happens after a fifth of it.
func drive(e *enginemodel.Engine, rate, horizon float64, seed uint64, size func(*rand.Rand) (prompt, output int)) outcome {
	rng := rand.New(rand.NewPCG(seed, 1))
	at := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	end, warm := at(horizon), at(horizon/5)
	arrival := at(rng.ExpFloat64() / rate)
	arrived := map[uint64]time.Duration{}
	var (
		now      time.Duration
		id       uint64
		events   []enginemodel.Event
		sum      float64
		measured int
		finished int
	)
	for now < end {
		for arrival <= now {
			id++
			prompt, output := size(rng)
			if err := e.Add(enginemodel.Request{ID: id, Prompt: prompt, Output: output}, arrival); err != nil {
				panic(err)
			}
			arrived[id] = arrival
			arrival += at(rng.ExpFloat64() / rate)
		}
		until, working := e.Begin(now)
		if !working {
			now = min(arrival, until)
			continue
		}
		now = until
		events = e.End(events[:0])
		for _, ev := range events {
			if !ev.Last {
				continue
			}
			if now > warm {
				finished++
			}
			if a := arrived[ev.ID]; a > warm {
				sum += (now - a).Seconds()
				measured++
			}
			delete(arrived, ev.ID)
		}
	}
	return outcome{sum / float64(measured), float64(finished) / (end - warm).Seconds(), e.Gauges()}
}

func fixed(prompt, output int) func(*rand.Rand) (int, int) {
	return func(*rand.Rand) (int, int) { return prompt, output }
}
