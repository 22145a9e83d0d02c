package enginemodel

import "math/bits"

// table maps 64-bit keys to values: open addressing, and removal that moves back
// what follows. Unlike a map it never allocates while its size stays within what it
// has held, whatever comes and goes.
type table[V any] struct {
	slots []slot[V]
	len   int
	shift uint8 // 64 less the bits of an index into slots
}

type slot[V any] struct {
	key   uint64
	used  bool
	value V
}

// spread multiplies keys so that their high bits differ: 2^64 over the golden ratio.
const spread = 0x9e3779b97f4a7c15

func (t *table[V]) get(key uint64) (value V, ok bool) {
	if t.len == 0 {
		return value, false
	}
	if i := t.find(key); t.slots[i].used {
		return t.slots[i].value, true
	}
	return value, false
}

// find gives the slot that holds key, or the empty one where it would go.
func (t *table[V]) find(key uint64) int {
	mask := len(t.slots) - 1
	i := int(key * spread >> t.shift)
	for t.slots[i].used && t.slots[i].key != key {
		i = (i + 1) & mask
	}
	return i
}

func (t *table[V]) put(key uint64, value V) {
	if 4*t.len >= 3*len(t.slots) {
		t.grow()
	}
	i := t.find(key)
	if !t.slots[i].used {
		t.len++
	}
	t.slots[i] = slot[V]{key: key, used: true, value: value}
}

func (t *table[V]) remove(key uint64) {
	if t.len == 0 {
		return
	}
	i := t.find(key)
	if !t.slots[i].used {
		return
	}
	t.len--
	mask := len(t.slots) - 1
	for j := (i + 1) & mask; t.slots[j].used; j = (j + 1) & mask {
		home := int(t.slots[j].key * spread >> t.shift)
		// What lies between its home and here may not move before its home.
		if (j-home)&mask >= (j-i)&mask {
			t.slots[i] = t.slots[j]
			i = j
		}
	}
	t.slots[i] = slot[V]{}
}

func (t *table[V]) grow() {
	old := t.slots
	t.slots = make([]slot[V], max(8, 2*len(old)))
	t.shift = uint8(64 - bits.Len(uint(len(t.slots)-1)))
	for _, s := range old {
		if s.used {
			t.slots[t.find(s.key)] = s
		}
	}
}
