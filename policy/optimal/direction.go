package optimal

// assemble builds and factors the matrix of the group prices: how much more flow
// leaves than enters each group when a price rises. Rows and classes are
// eliminated in closed form.
func (s *interior) assemble() {
	if s.lean {
		s.rowSide.assemble(s)
		return
	}
	s.matrix.clear()
	for k := range s.count {
		s.assembleClass(k)
	}
	for from := 0; from < len(s.row); {
		// Rows of one model share their groups and are added together.
		n := 0
		for n < block && from+n < len(s.row) && s.first[from+n] == s.first[from] {
			s.assembleRow(from+n, &s.fans[n])
			n++
		}
		s.matrix.addPairs(int(s.first[from]), s.fans[:n])
		from += n
	}
	s.matrix.factor()
}

func (s *interior) assembleClass(k int) {
	from, to := int(s.linkStart[k]), int(s.linkStart[k+1])
	hold, holdTo := int(s.holdStart[k]), int(s.holdStart[k+1])
	if s.isWide(k) {
		s.assembleWide(k)
		return
	}
	stiff := s.stiff[k]
	share := s.share(k)
	for i := from; i < to; i++ {
		t, g := s.theta[s.links+i], int(s.linkGroup[i])
		s.matrix.excess[g] += t * stiff
		for j := i + 1; j < to; j++ {
			s.matrix.couple(g, int(s.linkGroup[j]), t*s.theta[s.links+j]*share)
		}
		for j := hold; j < holdTo; j++ {
			s.matrix.couple(g, int(s.holdGroup[j]), t*s.theta[s.holds+j]*share)
		}
	}
	for i := hold; i < holdTo; i++ {
		t, g := s.theta[s.holds+i], int(s.holdGroup[i])
		s.matrix.excess[g] += t * stiff
		for j := i + 1; j < holdTo; j++ {
			s.matrix.couple(g, int(s.holdGroup[j]), t*s.theta[s.holds+j]*share)
		}
	}
}

// share is H/(1+H classTheta): what two flows of a class take from one another.
func (s *interior) share(k int) float64 {
	at := s.caps + k
	return (s.bend[k] + s.dual[at]*s.perPrimal[at]) * s.stiff[k]
}

func (s *interior) assembleRow(r int, to *fan) {
	from, end := int(s.arcStart[r]), int(s.arcStart[r+1])
	to.theta = append(to.theta[:0], s.theta[from:end]...)
	to.sum, to.shed = s.rowTheta[r], 0
	first := s.first[r]
	for i := s.sideStart[r]; i < s.sideStart[r+1]; i++ {
		t := s.theta[s.sides+int(i)]
		if g := s.sideGroup[i]; int(g) < s.groups {
			to.theta[g-first] += t
		} else {
			to.shed += t
		}
	}
}

// gather sets the forces for what is wanted of the pairs, on top of scale times
// the predictor's.
func (s *interior) gather(scale float64) {
	want := s.want
	force := s.force[:s.sides]
	pull, w := s.pull[:len(force)], want[:len(force)]
	for i := range force {
		force[i] = scale*pull[i] + w[i]
	}
	for i := range s.sideGroup {
		at := s.sides + i
		s.force[at] = scale*s.pull[at] + want[at] - want[s.sideBounds+i]
	}
	for k := range s.count {
		cap := want[s.caps+k]
		for i := s.linkStart[k]; i < s.linkStart[k+1]; i++ {
			at := s.links + int(i)
			s.force[at] = scale*s.pull[at] + want[at] - cap
		}
		for i := s.holdStart[k]; i < s.holdStart[k+1]; i++ {
			at := s.holds + int(i)
			s.force[at] = scale*s.pull[at] + want[at] - want[s.holdBounds+int(i)] - cap
		}
		if s.isWide(k) {
			s.gatherWide(k)
		}
	}
}

// direction solves for the step of the flows and slacks under the given forces,
// which removes scale times the residuals. Flows follow from prices relative to
// the row's or class's greatest theta: sums of large terms that cancel would lose
// the digits that matter once caps bind.
func (s *interior) direction(scale float64, force []float64) {
	rhs := s.rhs
	for g := range rhs {
		rhs[g] = scale * s.groupSurplus[g]
	}
	for k := range s.count {
		s.pushClass(k, force, rhs)
	}
	for r := range s.row {
		s.pushRow(r, scale, force, rhs)
	}
	if s.lean {
		s.rowSide.solve(s, rhs[:s.groups])
	} else {
		s.matrix.solve(rhs[:s.groups])
	}
	copy(s.dGroupPrice, rhs[:s.groups])
	s.dGroupPrice[s.groups] = 0
	for r := range s.row {
		s.pullRow(r, scale, force)
	}
	for k := range s.count {
		s.pullClass(k, scale, force)
	}
	dx := s.dPrimal
	for i := range s.sideGroup {
		at := s.sideBounds + i
		dx[at] = scale*s.slack[at-s.caps] - dx[s.sides+i]
	}
	for i := range s.holdGroup {
		at := s.holdBounds + i
		dx[at] = scale*s.slack[at-s.caps] - dx[s.holds+i]
	}
}

func (s *interior) pushClass(k int, force, rhs []float64) {
	if s.isWide(k) {
		s.pushWide(k, force, rhs)
		return
	}
	from, to := s.links+int(s.linkStart[k]), s.links+int(s.linkStart[k+1])
	hold, holdTo := s.holds+int(s.holdStart[k]), s.holds+int(s.holdStart[k+1])
	if to-from == 1 && hold == holdTo {
		rhs[s.linkGroup[from-s.links]] -= s.theta[from] * force[from] * s.stiff[k]
		return
	}
	if from == to {
		return
	}
	ref := force[s.classTop[k]]
	rel := 0.0
	for i := from; i < to; i++ {
		rel += s.theta[i] * (force[i] - ref)
	}
	for i := hold; i < holdTo; i++ {
		rel += s.theta[i] * (force[i] - ref)
	}
	rel /= s.classTheta[k]
	both := (ref + rel) * s.stiff[k]
	for i := from; i < to; i++ {
		rhs[s.linkGroup[i-s.links]] -= s.theta[i] * ((force[i] - ref - rel) + both)
	}
	for i := hold; i < holdTo; i++ {
		rhs[s.holdGroup[i-s.holds]] -= s.theta[i] * ((force[i] - ref - rel) + both)
	}
}

func (s *interior) pushRow(r int, scale float64, force, rhs []float64) {
	if s.lean {
		s.pushLean(r, scale, force, rhs)
		return
	}
	from, to := int(s.arcStart[r]), int(s.arcStart[r+1])
	side, sideTo := s.sides+int(s.sideStart[r]), s.sides+int(s.sideStart[r+1])
	theta := s.theta[from:to]
	f, out := force[from:to][:len(theta)], rhs[s.first[r]:][:len(theta)]
	ref := force[s.rowTop[r]]
	var rel0, rel1 float64
	j := 0
	for ; j+2 <= len(theta); j += 2 {
		rel0 += theta[j] * (f[j] - ref)
		rel1 += theta[j+1] * (f[j+1] - ref)
	}
	if j < len(theta) {
		rel0 += theta[j] * (f[j] - ref)
	}
	for i := side; i < sideTo; i++ {
		rel1 += s.theta[i] * (force[i] - ref)
	}
	rel := (rel0 + rel1 - scale*s.rowMissing[r]) / s.rowTheta[r]
	for j, t := range theta {
		out[j] += t * ((f[j] - ref) - rel)
	}
	for i := side; i < sideTo; i++ {
		rhs[s.sideGroup[i-s.sides]] += s.theta[i] * ((force[i] - ref) - rel)
	}
}

func (s *interior) pushLean(r int, scale float64, force, rhs []float64) {
	from, to := int(s.arcStart[r]), int(s.arcStart[r+1])
	side, sideTo := s.sides+int(s.sideStart[r]), s.sides+int(s.sideStart[r+1])
	ref := force[s.rowTop[r]]
	rel := 0.0
	for a := from; a < to; a++ {
		rel += s.theta[a] * (force[a] - ref)
	}
	for i := side; i < sideTo; i++ {
		rel += s.theta[i] * (force[i] - ref)
	}
	rel = (rel - scale*s.rowMissing[r]) / s.rowTheta[r]
	for a := from; a < to; a++ {
		rhs[s.arcGroup[a]] += s.theta[a] * ((force[a] - ref) - rel)
	}
	for i := side; i < sideTo; i++ {
		rhs[s.sideGroup[i-s.sides]] += s.theta[i] * ((force[i] - ref) - rel)
	}
}

func (s *interior) pullRow(r int, scale float64, force []float64) {
	from, to := int(s.arcStart[r]), int(s.arcStart[r+1])
	side, sideTo := s.sides+int(s.sideStart[r]), s.sides+int(s.sideStart[r+1])
	top := int(s.rowTop[r])
	ref := force[top]
	if top < to {
		ref -= s.dGroupPrice[s.groupOfArc(r, top)]
	} else {
		ref -= s.dGroupPrice[s.sideGroup[top-s.sides]]
	}
	rel := s.pullArcs(r, ref, force)
	for i := side; i < sideTo; i++ {
		d := force[i] - s.dGroupPrice[s.sideGroup[i-s.sides]] - ref
		s.dPrimal[i] = d
		rel += s.theta[i] * d
	}
	rel = (rel - scale*s.rowMissing[r]) / s.rowTheta[r]
	s.dRowPrice[r] = -(ref + rel)
	theta := s.theta[from:to]
	dx := s.dPrimal[from:to][:len(theta)]
	for j, t := range theta {
		dx[j] = t * (dx[j] - rel)
	}
	for i := side; i < sideTo; i++ {
		s.dPrimal[i] = s.theta[i] * (s.dPrimal[i] - rel)
	}
}

// pullArcs sets dPrimal of the row's arcs to their forces relative to ref, and
// gives the sum of these by theta.
func (s *interior) pullArcs(r int, ref float64, force []float64) float64 {
	from, to := int(s.arcStart[r]), int(s.arcStart[r+1])
	theta := s.theta[from:to]
	f, dx := force[from:to][:len(theta)], s.dPrimal[from:to][:len(theta)]
	rel := 0.0
	if s.lean {
		for j, g := range s.arcGroup[from:to] {
			dx[j] = f[j] - s.dGroupPrice[g] - ref
			rel += theta[j] * dx[j]
		}
		return rel
	}
	price := s.dGroupPrice[s.first[r]:][:len(theta)]
	var rel0, rel1 float64
	j := 0
	for ; j+2 <= len(theta); j += 2 {
		d0, d1 := f[j]-price[j]-ref, f[j+1]-price[j+1]-ref
		dx[j], dx[j+1] = d0, d1
		rel0 += theta[j] * d0
		rel1 += theta[j+1] * d1
	}
	if j < len(theta) {
		dx[j] = f[j] - price[j] - ref
		rel0 += theta[j] * dx[j]
	}
	return rel0 + rel1
}

func (s *interior) pullClass(k int, scale float64, force []float64) {
	if s.isWide(k) {
		s.pullWide(k, scale, force)
		return
	}
	from, to := s.links+int(s.linkStart[k]), s.links+int(s.linkStart[k+1])
	hold, holdTo := s.holds+int(s.holdStart[k]), s.holds+int(s.holdStart[k+1])
	if to-from == 1 && hold == holdTo {
		dy := s.theta[from] * s.stiff[k] * (force[from] + s.dGroupPrice[s.linkGroup[from-s.links]])
		s.dPrimal[from] = dy
		s.dPrimal[s.caps+k] = scale*s.slack[k] - dy
		return
	}
	if from == to {
		s.dPrimal[s.caps+k] = scale * s.slack[k]
		return
	}
	top := int(s.classTop[k])
	ref := force[top]
	if top < to {
		ref += s.dGroupPrice[s.linkGroup[top-s.links]]
	} else {
		ref += s.dGroupPrice[s.holdGroup[top-s.holds]]
	}
	rel := 0.0
	for i := from; i < to; i++ {
		d := force[i] + s.dGroupPrice[s.linkGroup[i-s.links]] - ref
		s.dPrimal[i] = d
		rel += s.theta[i] * d
	}
	for i := hold; i < holdTo; i++ {
		d := force[i] + s.dGroupPrice[s.holdGroup[i-s.holds]] - ref
		s.dPrimal[i] = d
		rel += s.theta[i] * d
	}
	rel /= s.classTheta[k]
	both := (ref + rel) * s.stiff[k]
	for i := from; i < to; i++ {
		s.dPrimal[i] = s.theta[i] * ((s.dPrimal[i] - rel) + both)
	}
	for i := hold; i < holdTo; i++ {
		s.dPrimal[i] = s.theta[i] * ((s.dPrimal[i] - rel) + both)
	}
	s.dPrimal[s.caps+k] = scale*s.slack[k] - s.classTheta[k]*both
}
