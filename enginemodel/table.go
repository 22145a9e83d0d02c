package enginemodel

import "math/bits"

// table finds handles by 64-bit keys, which lie in a slice of the owner's by handle;
// handle 0 is none. It is open addressing, and removal moves back what follows, so
// that unlike a map it never allocates while its size stays within what it has held,
// whatever comes and goes, and takes a few bytes each.
type table struct {
	slots []int32
	len   int
	shift uint8 // 64 less the bits of an index into slots
}

// spread multiplies keys so that their high bits differ: 2^64 over the golden ratio.
const spread = 0x9e3779b97f4a7c15

func (t *table) home(key uint64) int { return int(key * spread >> t.shift) }

// get gives the handle of key, 0 if there is none.
func (t *table) get(keys []uint64, key uint64) int32 {
	if t.len == 0 {
		return 0
	}
	return t.slots[t.find(keys, key)]
}

// find gives the slot that holds key, or the empty one where it would go.
func (t *table) find(keys []uint64, key uint64) int {
	mask := len(t.slots) - 1
	i := t.home(key)
	for t.slots[i] != 0 && keys[t.slots[i]] != key {
		i = (i + 1) & mask
	}
	return i
}

// put adds a handle, whose key is not there yet.
func (t *table) put(keys []uint64, handle int32) {
	if 4*t.len >= 3*len(t.slots) {
		t.grow(keys)
	}
	t.slots[t.find(keys, keys[handle])] = handle
	t.len++
}

// remove takes out the handle of key, which is there.
func (t *table) remove(keys []uint64, key uint64) {
	i, mask := t.find(keys, key), len(t.slots)-1
	for j := (i + 1) & mask; t.slots[j] != 0; j = (j + 1) & mask {
		// What lies between its home and here may not move before its home.
		if (j-t.home(keys[t.slots[j]]))&mask >= (j-i)&mask {
			t.slots[i] = t.slots[j]
			i = j
		}
	}
	t.slots[i] = 0
	t.len--
}

func (t *table) grow(keys []uint64) {
	old := t.slots
	t.slots = make([]int32, max(8, 2*len(old)))
	t.shift = uint8(64 - bits.Len(uint(len(t.slots)-1)))
	for _, handle := range old {
		if handle != 0 {
			t.slots[t.find(keys, keys[handle])] = handle
		}
	}
}
