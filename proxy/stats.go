package proxy

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

// Stats lists the engines of every row, by model and engine. Rates are those of
// the last report.
func (p *DataPlane) Stats() []Stat {
	t := p.table.Load()
	if t == nil {
		return nil
	}
	var out []Stat
	for _, model := range t.router.Models() {
		row := t.rows[model]
		for i, target := range row.Targets() {
			s := row.targets[i].seen
			out = append(out, Stat{
				Model: model, Engine: s.engine, Weight: target.Weight,
				Requests: s.attempts.total.Load(), Failed: s.failures.total.Load(),
				Rate: s.rate.load(), FirstByte: s.wait.load(), InFlight: target.Flight.Requests(),
			})
		}
	}
	return out
}
