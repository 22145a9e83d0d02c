package optimal

import (
	"errors"
)

// solver answers one component, tick after tick, in the same memory.
type solver struct {
	build  builder
	inner  interior
	stayer stayer

	// Of a component with lean networks:
	columns     columns
	coarseBuild builder
	coarseInner interior

	solved bool // inner holds the optimum
	stays  bool // the last weights stay
	ramp   bool // limits of cold engines are kept
	err    error
}

// solve reads what the policy knows of the tick and changes nothing in it.
func (s *solver) solve(t *tick) {
	s.solved, s.stays, s.ramp, s.err = false, false, false, nil
	for _, e := range s.build.c.engines {
		s.ramp = s.ramp || t.t.Engines[e].Ramp > 0
	}
	s.err = s.try(t)
	if s.err == nil && s.ramp && s.refuses() {
		s.solved, s.stays, s.ramp = false, false, false
		s.err = s.try(t)
	}
}

func (s *solver) try(t *tick) error {
	past := t.past
	if t.p.Lambda == 0 {
		past = nil
	}
	can := past != nil && s.stayer.read(t, s.build.c, s.ramp)
	if can && s.stayer.goodByOwnPrices() {
		s.stays = true
		return nil
	}
	if s.build.c.lean {
		ok, err := s.solveLean(t, past)
		if !ok || err != nil {
			return err
		}
	} else {
		if !s.build.make(past, s.ramp) {
			return nil
		}
		if err := s.optimize(t); err != nil {
			return err
		}
	}
	s.solved = true
	s.stays = can && s.stayer.goodBySolution(&s.inner)
	return nil
}

// solveLean generates columns; false when nothing is asked of the component.
func (s *solver) solveLean(t *tick, past *past) (bool, error) {
	if !t.warm || s.columns.stale(t, s.build.c) {
		if ok, err := s.chooseColumns(t); !ok || err != nil {
			return ok, err
		}
	} else {
		s.columns.addLast(t, s.build.c)
	}
	s.build.columns = &s.columns
	for range columnRounds {
		if !s.build.make(past, s.ramp) {
			return false, nil // the columns are those of a tick with demand
		}
		if err := s.optimize(t); err != nil {
			return false, err
		}
		if s.columns.extend(t, &s.inner) <= t.tolerance*s.inner.worthwhile() {
			break
		}
	}
	return true, nil
}

// chooseColumns starts with columns that a coarse fleet's prices choose.
func (s *solver) chooseColumns(t *tick) (bool, error) {
	b, i := &s.coarseBuild, &s.coarseInner
	b.t, b.p, b.c = t.coarse.table, t.p, s.build.c
	if !b.make(nil, s.ramp) {
		return false, nil
	}
	i.reset(&b.network)
	i.tolerance, i.expired, i.careful = rough, t.expired, false
	i.setWorth()
	if err := i.run(cold, maxIterations); err != nil && !errors.Is(err, errStuck) {
		return false, err
	}
	arrivals(t, b.c, i, t.groupLow)
	s.columns.choose(t, b.c, t.groupLow)
	return true, nil
}

// optimize runs the interior point method, from the last tick's iterate where
// that promises to be quick.
func (s *solver) optimize(t *tick) error {
	i := &s.inner
	i.reset(&s.build.network)
	i.tolerance, i.trace, i.expired = t.tolerance, t.trace, t.expired
	i.kept.wanted = t.warm
	i.careful = false
	var err error
	if i.kept.fits(i, s.build.signature) {
		i.isWarm = true
		i.kept.taken = false
		i.worth = patient // few iterations are left, so that each counts
		err = i.run(warm, warmIterations)
		if err == nil || errors.Is(err, errExpired) {
			return err
		}
	}
	i.isWarm = false
	for _, careful := range []bool{false, true} {
		i.careful = careful
		i.setWorth()
		i.kept.taken, i.kept.signature = false, s.build.signature
		if err = i.run(cold, maxIterations); err == nil || errors.Is(err, errExpired) {
			break
		}
	}
	if errors.Is(err, errStuck) {
		return nil // the certificate judges what there is
	}
	return err
}

// tighten goes on where the last solve ended, for full caps leave no room to clean
// up in. What comes of it is no worse.
func (s *solver) tighten() {
	if s.solved && !s.stays && s.inner.tolerance > tight {
		s.inner.tolerance = tight
		if err := s.inner.run(here, maxIterations); errors.Is(err, errExpired) {
			s.err = err
		}
	}
}

// refuses says whether the answer sheds more than rounding.
func (s *solver) refuses() bool {
	if s.stays {
		return s.stayer.sheds
	}
	if !s.solved {
		return false
	}
	return s.inner.refuses()
}
