package optimal

// assemble builds the matrix of the group prices: how much more flow leaves
// than enters each group when a price rises. Rows and classes are eliminated in
// closed form.
func (s *interior) assemble() {
	s.matrix.clear()
	for k := range s.member {
		s.assembleClass(k)
	}
	for from := 0; from < len(s.row); {
		// Rows of one model share their groups and are added together.
		n := 0
		for n < block && from+n < len(s.row) && s.first[from+n] == s.first[from] {
			s.assembleRow(from+n, &s.spreads[n])
			n++
		}
		s.matrix.addPairs(int(s.first[from]), s.spreads[:n])
		from += n
	}
}

func (s *interior) assembleClass(k int) {
	from, to := s.linkStart[k], s.linkStart[k+1]
	if from == to {
		return
	}
	sum, top := 0.0, from
	for l := from; l < to; l++ {
		i := s.arcs + int(l)
		s.theta[i] = s.primal[i] / s.dual[i]
		sum += s.theta[i]
		if s.theta[i] > s.theta[s.arcs+int(top)] {
			top = l
		}
	}
	at := s.links + k
	h := s.bend[k] + s.dual[at]/s.primal[at]
	stiff := 1 / (1 + h*sum)
	s.classTheta[k], s.classTop[k], s.stiff[k] = sum, top, stiff
	for l := from; l < to; l++ {
		t, g := s.theta[s.arcs+int(l)], int(s.linkGroup[l])
		s.matrix.excess[g] += t * stiff
		row := s.matrix.row(g)
		for m := l + 1; m < to; m++ { // groups ascend
			row[int(s.linkGroup[m])-g-1] += t * s.theta[s.arcs+int(m)] * h * stiff
		}
	}
}

func (s *interior) assembleRow(r int, to *spread) {
	first, from, end := s.first[r], s.arcStart[r], s.arcStart[r+1]
	to.theta = to.theta[:s.width[r]]
	clear(to.theta)
	to.sum, to.shed = 0, 0
	top := from
	for a := from; a < end; a++ {
		t := s.dual[a] / s.primal[a]
		if b := s.boundOf[a]; b >= 0 {
			t += s.dual[b] / s.primal[b]
		}
		t = 1 / t
		s.theta[a] = t
		to.sum += t
		if t > s.theta[top] {
			top = a
		}
		if g := s.group[a]; g >= 0 {
			to.theta[g-first] += t
		} else {
			to.shed += t
		}
	}
	s.rowTheta[r], s.rowTop[r] = to.sum, top
}

// direction solves for the step that adds want to the pairs' products and
// removes scale times the residuals. Flows follow from prices relative to the
// row's or class's greatest theta: sums of large terms that cancel would lose
// the digits that matter once caps bind.
func (s *interior) direction(scale float64) {
	rhs := s.dGroupPrice
	for g := range rhs {
		rhs[g] = scale * s.groupSurplus[g]
	}
	for k := range s.member {
		s.pushClass(k, scale, rhs)
	}
	for r := range s.row {
		s.pushRow(r, scale, rhs)
	}
	s.matrix.solve(rhs)
	for r := range s.row {
		s.pullRow(r, scale)
	}
	for i, a := range s.bounded {
		s.slack(s.caps+i, scale, s.dPrimal[a])
	}
	for k := range s.member {
		s.pullClass(k, scale)
	}
}

// capForce is what the cap's or bound's own pair contributes to its flows.
func (s *interior) capForce(at int, scale float64) float64 {
	return (s.want[at] - scale*s.dual[at]*s.residual[at]) / s.primal[at]
}

// slack gives the step of the pair of a cap or bound whose flow moves by du.
func (s *interior) slack(at int, scale, du float64) {
	s.dPrimal[at] = scale*s.residual[at] - du
	s.dDual[at] = (s.want[at] - s.dual[at]*s.dPrimal[at]) / s.primal[at]
}

// flow sets the step of a flow's pair.
func (s *interior) flow(i int, dx float64) {
	s.dPrimal[i] = dx
	s.dDual[i] = (s.want[i] - s.dual[i]*dx) / s.primal[i]
}

func (s *interior) pushClass(k int, scale float64, rhs []float64) {
	from, to := s.arcs+int(s.linkStart[k]), s.arcs+int(s.linkStart[k+1])
	if from == to {
		return
	}
	cap := s.capForce(s.links+k, scale)
	for i := from; i < to; i++ {
		s.force[i] = -scale*s.residual[i] + s.want[i]/s.primal[i] - cap
	}
	ref := s.force[s.arcs+int(s.classTop[k])]
	rel := 0.0
	for i := from; i < to; i++ {
		rel += s.theta[i] * (s.force[i] - ref)
	}
	rel /= s.classTheta[k]
	both := (ref + rel) * s.stiff[k]
	for i := from; i < to; i++ {
		rhs[s.linkGroup[i-s.arcs]] -= s.theta[i] * ((s.force[i] - ref - rel) + both)
	}
}

func (s *interior) pushRow(r int, scale float64, rhs []float64) {
	from, to := s.arcStart[r], s.arcStart[r+1]
	for a := from; a < to; a++ {
		s.force[a] = -scale*s.residual[a] + s.want[a]/s.primal[a]
		if b := s.boundOf[a]; b >= 0 {
			s.force[a] -= s.capForce(int(b), scale)
		}
	}
	ref := s.force[s.rowTop[r]]
	rel := -scale * s.rowMissing[r]
	for a := from; a < to; a++ {
		rel += s.theta[a] * (s.force[a] - ref)
	}
	rel /= s.rowTheta[r]
	for a := from; a < to; a++ {
		if g := s.group[a]; g >= 0 {
			rhs[g] += s.theta[a] * ((s.force[a] - ref) - rel)
		}
	}
}

func (s *interior) pullRow(r int, scale float64) {
	from, to := s.arcStart[r], s.arcStart[r+1]
	force := func(a int32) float64 {
		if g := s.group[a]; g >= 0 {
			return s.force[a] - s.dGroupPrice[g]
		}
		return s.force[a]
	}
	ref := force(s.rowTop[r])
	rel := -scale * s.rowMissing[r]
	for a := from; a < to; a++ {
		s.force[a] = force(a) - ref
		rel += s.theta[a] * s.force[a]
	}
	rel /= s.rowTheta[r]
	s.dRowPrice[r] = -(ref + rel)
	for a := from; a < to; a++ {
		s.flow(int(a), s.theta[a]*(s.force[a]-rel))
	}
}

func (s *interior) pullClass(k int, scale float64) {
	from, to := s.arcs+int(s.linkStart[k]), s.arcs+int(s.linkStart[k+1])
	if from == to {
		s.slack(s.links+k, scale, 0)
		return
	}
	for i := from; i < to; i++ {
		s.force[i] += s.dGroupPrice[s.linkGroup[i-s.arcs]]
	}
	ref := s.force[s.arcs+int(s.classTop[k])]
	rel := 0.0
	for i := from; i < to; i++ {
		s.force[i] -= ref
		rel += s.theta[i] * s.force[i]
	}
	rel /= s.classTheta[k]
	both := (ref + rel) * s.stiff[k]
	for i := from; i < to; i++ {
		s.flow(i, s.theta[i]*((s.force[i]-rel)+both))
	}
	s.slack(s.links+k, scale, s.classTheta[k]*both)
}
