package optimal

// Iteration is one look at one component while it is solved.
type Iteration struct {
	Component int     // in the order of their first engines
	Number    int     // from 0; a cold start after a warm one counts anew
	Warm      bool    // the solve began at the last solve's iterate
	Objective float64 // seconds per second
	Products  float64 // complementarity, relative to the objective
	DualRes   float64 // relative to the objective
	PrimalRes float64 // greatest, relative to the row, group or cap it is of
}

func (s *interior) report() {
	p := &s.now
	s.trace(Iteration{
		Component: s.component, Number: s.iterations, Warm: s.isWarm,
		Objective: p.objective, Products: p.products / p.objective, DualRes: p.dualRes / p.objective, PrimalRes: p.primalRes,
	})
}
