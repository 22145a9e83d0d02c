package enginemodel

// finish says which step gives a sequence its last token. Those of one step finish
// in the order in which they joined the batch.
type finish struct {
	step  int
	place uint64
	s     *sequence
}

func (a *finish) before(b *finish) bool {
	return a.step < b.step || a.step == b.step && a.place < b.place
}

// heap has the first finish at its root and four children a node: most of what it
// does is to sink one from the root, which reads siblings that lie side by side.
type heap []finish

func (h *heap) push(f finish) {
	*h = append(*h, f)
	h.rise(len(*h) - 1)
}

func (h *heap) pop() *sequence {
	s := (*h)[0].s
	h.removeAt(0)
	return s
}

// remove takes out the finish of what joined the batch as place. It looks at all of
// them: only requests that are cancelled or preempted leave before they finish.
func (h *heap) remove(place uint64) {
	for i := range *h {
		if (*h)[i].place == place {
			h.removeAt(i)
			return
		}
	}
}

func (h *heap) removeAt(i int) {
	last := len(*h) - 1
	moved := (*h)[last]
	(*h)[last] = finish{}
	*h = (*h)[:last]
	if i == last {
		return
	}
	(*h)[i] = moved
	if !h.rise(i) {
		h.sink(i)
	}
}

// rise moves a finish towards the root and says whether it moved.
func (h *heap) rise(i int) bool {
	a, f, start := *h, (*h)[i], i
	for i > 0 {
		up := (i - 1) / 4
		if !f.before(&a[up]) {
			break
		}
		a[i] = a[up]
		i = up
	}
	a[i] = f
	return i != start
}

func (h *heap) sink(i int) {
	a, f := *h, (*h)[i]
	for {
		least := 4*i + 1
		if least >= len(a) {
			break
		}
		for j := least + 1; j < min(4*i+5, len(a)); j++ {
			if a[j].before(&a[least]) {
				least = j
			}
		}
		if !a[least].before(&f) {
			break
		}
		a[i] = a[least]
		i = least
	}
	a[i] = f
}
