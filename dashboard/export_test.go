package dashboard

import "github.com/wardrop-lb/wardrop/control"

// Past is what is remembered of the weights, for a benchmark.
type Past struct{ *past }

// NewPast remembers nothing yet.
func NewPast() Past { return Past{newPast()} }

// Add sums a plan up and remembers it, as is done at every tick.
func (p Past) Add(s *control.State) { p.add(summarise(s)) }
