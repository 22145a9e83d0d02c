package optimal

import (
	"cmp"
	"slices"
)

// rowSide solves for the step of the group prices where there are many more
// groups than rows: it eliminates the groups and keeps a matrix of the rows. It is
// the same system as assemble's, eliminated in the other order.
//
// Groups of one place may share classes, so that they depend on one another beyond
// the rows; each such block is inverted by itself. No step subtracts, see mMatrix.
type rowSide struct {
	order      []int32 // groups, by place
	blockStart []int32 // by block: where its groups begin in order; one more at the end
	inverseAt  []int32 // by block: where its inverse begins
	inverse    []float64
	block      []int32 // by group
	local      []int32 // by group: its number in its block

	flowStart []int32 // by group: where the flows into it begin; one more at the end
	flow      []int32 // arcs and sides, by their place in theta
	flowRow   []int32

	ground []float64 // by group: what its classes give way at a price
	held   []float64 // by group: scratch
	rows   []float64 // by row: scratch
	small  mMatrix
	matrix mMatrix
}

// reset reads the network's structure.
func (w *rowSide) reset(s *interior) {
	w.setBlocks(s.network)
	w.setFlows(s)
	w.ground, w.held = resize(w.ground, s.groups), resize(w.held, s.groups)
	w.rows = resize(w.rows, len(s.row))
	w.matrix.reset(len(s.row))
}

func (w *rowSide) setBlocks(n *network) {
	w.order, w.block, w.local = resize(w.order, n.groups), resize(w.block, n.groups), resize(w.local, n.groups)
	for g := range w.order {
		w.order[g] = int32(g)
	}
	slices.SortFunc(w.order, func(a, b int32) int { return cmp.Or(cmp.Compare(n.place[a], n.place[b]), cmp.Compare(a, b)) })
	w.blockStart, w.inverseAt = w.blockStart[:0], w.inverseAt[:0]
	size := int32(0)
	for from := 0; from < n.groups; {
		to := from
		for to < n.groups && n.place[w.order[to]] == n.place[w.order[from]] {
			g := w.order[to]
			w.block[g], w.local[g] = int32(len(w.blockStart)), int32(to-from)
			to++
		}
		w.blockStart, w.inverseAt = append(w.blockStart, int32(from)), append(w.inverseAt, size)
		size += int32((to - from) * (to - from))
		from = to
	}
	w.blockStart = append(w.blockStart, int32(n.groups))
	w.inverse = resize(w.inverse, int(size))
}

// setFlows lists the flows into each group.
func (w *rowSide) setFlows(s *interior) {
	w.flowStart = resize(w.flowStart, s.groups+1)
	clear(w.flowStart)
	all := len(s.arcGroup)
	for _, g := range s.arcGroup {
		w.flowStart[g]++
	}
	for _, g := range s.sideGroup {
		if int(g) < s.groups {
			w.flowStart[g]++
			all++
		}
	}
	w.flow, w.flowRow = resize(w.flow, all), resize(w.flowRow, all)
	end := int32(0)
	for g, n := range w.flowStart[:s.groups] { // to where each group's flows end
		end += n
		w.flowStart[g] = end
	}
	w.flowStart[s.groups] = end
	for r := len(s.row) - 1; r >= 0; r-- { // backwards, so that they begin in order
		for i := s.sideStart[r+1] - 1; i >= s.sideStart[r]; i-- {
			if g := s.sideGroup[i]; int(g) < s.groups {
				w.put(g, s.sides+int(i), r)
			}
		}
		for a := s.arcStart[r+1] - 1; a >= s.arcStart[r]; a-- {
			w.put(s.arcGroup[a], int(a), r)
		}
	}
}

func (w *rowSide) put(g int32, flow, row int) {
	w.flowStart[g]--
	at := w.flowStart[g]
	w.flow[at], w.flowRow[at] = int32(flow), int32(row)
}

// assemble builds and factors the matrix.
func (w *rowSide) assemble(s *interior) {
	w.matrix.clear()
	clear(w.ground)
	clear(w.inverse)
	for k := range s.count {
		w.addClass(s, k)
	}
	for r := range s.row {
		for i := s.sideStart[r]; i < s.sideStart[r+1]; i++ {
			if int(s.sideGroup[i]) == s.groups {
				w.matrix.excess[r] += s.theta[s.sides+int(i)]
			}
		}
	}
	for b := range w.inverseAt {
		w.invert(s, b)
		w.addBlock(s, b)
	}
	w.matrix.factor()
}

// addClass adds what a class's groups take from one another, and give way.
func (w *rowSide) addClass(s *interior, k int) {
	if s.isWide(k) {
		w.addWide(s, k)
		return
	}
	flows := [2]struct {
		groups []int32
		theta  []float64
	}{
		{s.linkGroup[s.linkStart[k]:s.linkStart[k+1]], s.theta[s.links+int(s.linkStart[k]):]},
		{s.holdGroup[s.holdStart[k]:s.holdStart[k+1]], s.theta[s.holds+int(s.holdStart[k]):]},
	}
	share := s.share(k)
	for _, x := range flows {
		for i, g := range x.groups {
			w.ground[g] += x.theta[i] * s.stiff[k]
			n := w.blockSize(w.block[g])
			row := w.inverse[int(w.inverseAt[w.block[g]])+n*int(w.local[g]):][:n]
			for _, y := range flows {
				for j, h := range y.groups {
					if h != g {
						row[w.local[h]] += x.theta[i] * y.theta[j] * share
					}
				}
			}
		}
	}
}

// addWide is addClass for a wide class.
func (w *rowSide) addWide(s *interior, k int) {
	s.setWide(k)
	s.eachAnswer(k,
		func(g int32, x float64) { w.ground[g] += x },
		func(g, h int32, x float64) {
			if g != h {
				n := w.blockSize(w.block[g])
				block := w.inverse[w.inverseAt[w.block[g]]:][:n*n]
				block[n*int(w.local[g])+int(w.local[h])] -= x
				block[n*int(w.local[h])+int(w.local[g])] -= x
			}
		})
}

func (w *rowSide) blockSize(b int32) int { return int(w.blockStart[b+1] - w.blockStart[b]) }

// invert replaces a block's couplings by the inverse of its matrix, whose diagonal
// is what its rows and classes move and take.
func (w *rowSide) invert(s *interior, b int) {
	n := w.blockSize(int32(b))
	inverse := w.inverse[w.inverseAt[b]:][:n*n]
	groups := w.order[w.blockStart[b]:][:n]
	if n == 1 {
		inverse[0] = 1 / (w.ground[groups[0]] + w.theta(s, groups[0]))
		return
	}
	w.small.reset(n)
	w.small.clear()
	for i, g := range groups {
		w.small.excess[i] = w.ground[g] + w.theta(s, g)
		for j := i + 1; j < n; j++ {
			w.small.couple(i, j, inverse[i*n+j])
		}
	}
	w.small.factor()
	clear(inverse)
	for i := range n {
		row := inverse[i*n:][:n]
		row[i] = 1
		w.small.solve(row)
	}
}

// theta adds up the flows into a group.
func (w *rowSide) theta(s *interior, g int32) float64 {
	sum := 0.0
	for _, f := range w.flow[w.flowStart[g]:w.flowStart[g+1]] {
		sum += s.theta[f]
	}
	return sum
}

// addBlock adds to the rows' matrix what they take from one another by a block's
// groups.
func (w *rowSide) addBlock(s *interior, b int) {
	n := w.blockSize(int32(b))
	inverse := w.inverse[w.inverseAt[b]:][:n*n]
	groups := w.order[w.blockStart[b]:][:n]
	for i, g := range groups {
		excess := 0.0
		for j, h := range groups {
			excess += inverse[i*n+j] * w.ground[h]
		}
		flows := w.flow[w.flowStart[g]:w.flowStart[g+1]]
		rows := w.flowRow[w.flowStart[g]:][:len(flows)]
		for a, f := range flows {
			t := s.theta[f]
			w.matrix.excess[rows[a]] += t * excess
			w.addPairs(s, int(rows[a]), t*inverse[i*n+i], flows[a+1:], rows[a+1:])
			for j := i + 1; j < n; j++ {
				from, to := w.flowStart[groups[j]], w.flowStart[groups[j]+1]
				w.addPairs(s, int(rows[a]), t*inverse[i*n+j], w.flow[from:to], w.flowRow[from:to])
			}
		}
	}
}

func (w *rowSide) addPairs(s *interior, r int, t float64, flows, rows []int32) {
	right := w.matrix.off[r*len(w.rows):]
	for i, f := range flows {
		if other := int(rows[i]); other > r {
			right[other] += t * s.theta[f]
		} else {
			w.matrix.couple(r, other, t*s.theta[f])
		}
	}
}

// solve replaces what the groups have too much by the step of their prices.
func (w *rowSide) solve(s *interior, rhs []float64) {
	clear(w.rows)
	w.multiply(rhs, w.held)
	for g, x := range w.held {
		for i := w.flowStart[g]; i < w.flowStart[g+1]; i++ {
			w.rows[w.flowRow[i]] += s.theta[w.flow[i]] * x
		}
	}
	w.matrix.solve(w.rows)
	for g := range w.held {
		sum := 0.0
		for i := w.flowStart[g]; i < w.flowStart[g+1]; i++ {
			sum += s.theta[w.flow[i]] * w.rows[w.flowRow[i]]
		}
		rhs[g] += sum
	}
	w.multiply(rhs, w.held)
	copy(rhs, w.held)
}

// multiply sets y to the blocks' inverses times x.
func (w *rowSide) multiply(x, y []float64) {
	for b, at := range w.inverseAt {
		n := w.blockSize(int32(b))
		groups := w.order[w.blockStart[b]:][:n]
		for i, g := range groups {
			sum := 0.0
			for j, h := range groups {
				sum += w.inverse[int(at)+i*n+j] * x[h]
			}
			y[g] = sum
		}
	}
}
