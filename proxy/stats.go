package proxy

import (
	"cmp"
	"slices"
)

// Stat is what this data plane saw of one engine serving one model.
type Stat struct {
	Model     string  `json:"model"`
	Engine    string  `json:"engine"`
	Weight    float64 `json:"weight"`
	Requests  uint64  `json:"requests"`   // attempts since the start
	Failed    uint64  `json:"failed"`     // of these, failed
	Rate      float64 `json:"rate"`       // attempts/s over the window
	FirstByte float64 `json:"first_byte"` // seconds, mean over the window
	InFlight  int64   `json:"in_flight"`  // requests
}

// Stats lists the engines of every row, by model and engine, and those that left
// it with requests still in flight, at weight 0. Rates are those of the last
// report.
func (p *DataPlane) Stats() []Stat {
	t := p.table.Load()
	if t == nil {
		return nil
	}
	var out []Stat
	listed := map[*seenState]bool{}
	for _, model := range t.router.Models() {
		row := t.rows[model]
		for i, target := range row.Targets() {
			s := row.targets[i].seen
			listed[s] = true
			out = append(out, s.stat(target.Weight))
		}
	}
	for _, s := range p.memory.draining(listed) {
		out = append(out, s.stat(0))
	}
	slices.SortFunc(out, func(a, b Stat) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Engine, b.Engine))
	})
	return out
}

func (s *seenState) stat(weight float64) Stat {
	return Stat{
		Model: s.model, Engine: s.engine, Weight: weight,
		Requests: s.attempts.total.Load(), Failed: s.failures.total.Load(),
		Rate: s.rate.load(), FirstByte: s.wait.load(), InFlight: s.flight.Requests(),
	}
}

// draining lists what is in flight at engines that are not listed.
func (m *memory) draining(listed map[*seenState]bool) (out []*seenState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.seen {
		if !listed[s] && s.flight.Requests() > 0 {
			out = append(out, s)
		}
	}
	return out
}
