package route

import (
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// manyPlaces is how many prefixes are remembered: the last ones, in 1 MiB.
const manyPlaces = 1 << 17

// places remembers which engines prefixes were sent to, all models' together: the upper
// half of the key's hash and the engine. The zero value is empty. Safe for concurrent
// use.
type places struct {
	slots atomic.Pointer[[manyPlaces]atomic.Uint64] // made when the first prefix comes
}

func (p *places) get(h uint64) (engine uint32, ok bool) {
	slots := p.slots.Load()
	if slots == nil {
		return 0, false
	}
	x := slots[h%manyPlaces].Load()
	return uint32(x), x != 0 && x>>32 == h>>32
}

func (p *places) put(h uint64, engine uint32) {
	slots := p.slots.Load()
	if slots == nil {
		p.slots.CompareAndSwap(nil, new([manyPlaces]atomic.Uint64))
		slots = p.slots.Load()
	}
	slots[h%manyPlaces].Store(h>>32<<32 | uint64(engine))
}

// engineID tells engines apart beyond a snapshot. Two of the same cost a prefix its
// cache and nothing more.
func engineID(name string) uint32 { return uint32(xxhash.Sum64String(name)) }

// remember gives the row a memory of where prefixes went.
func (r *Row) remember(p *places) {
	r.places, r.byID = p, make(map[uint32]int32, len(r.targets))
	for i := range r.targets {
		r.byID[engineID(r.targets[i].Engine.Name)] = int32(i)
	}
}

// pickPrefix is pick for a key that is a prompt's prefix: a guess at what will come
// again, of which much never does. The only data plane of a cluster remembers where
// prefixes went: one that is new goes, like a request without a key, to the least
// loaded of a few; one that comes again goes where it was. Where there are several
// data planes, who cannot know that of each other, the key's hash alone decides.
//
// Beyond the bound, and by hash, the bound gets tighter from half of the row's capacity
// on, where an uneven load costs most.
func (r *Row) pickPrefix(h uint64, work, now int64, trace *Trace) Pick {
	if r.places == nil {
		p := r.pick(h, work, now, r.tight, trace)
		p.home = p.Spilled == 0 && p.Passed == 0 && !p.Probing
		return p
	}
	i := r.place(h, trace)
	if i < 0 {
		p := r.pickAny(h, work, now, trace)
		p.learn, p.place = true, h // once it is known to have room
		return p
	}
	t := &r.targets[i]
	limit := r.allowance*t.Share*float64(r.inFlight(trace)) + float64(work)
	if _, state := t.look(i, limit, now, false, trace); state != Within {
		return r.pick(h, work, now, r.tight, trace)
	}
	p := Pick{hash: h, Remembered: true, home: true, trace: trace}
	p.add(i)
	return p
}

// place is the target that a prefix went to; -1 when it is new, or the target gets no traffic
// any more.
func (r *Row) place(h uint64, trace *Trace) int32 {
	id, known := r.places.get(h)
	i, there := r.byID[id]
	if !known || !there || r.targets[i].Weight < weightFloor {
		i = -1
	}
	if trace != nil {
		i = trace.see(Look{Kind: LookPlace, Target: i}).Target
	}
	return i
}
