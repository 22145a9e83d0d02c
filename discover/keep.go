package discover

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/wardrop-lb/wardrop/config"
)

// Grace is how long engines are kept when more than half of a source's vanish at
// once: longer than a server or a resolver takes to come back.
const Grace = 30 * time.Second

// Outcomes of a refresh.
const (
	outcomeOK     = "ok"
	outcomeHeld   = "held"   // more than half have vanished; they are kept for now
	outcomeFailed = "failed" // nothing is known; all are kept
)

// keeper holds the engines of one source against what it says next. The zero value
// has none. It is pure; not safe for concurrent use.
type keeper struct {
	kept map[string]config.Engine // by address
	// next is what the source says while more than half of kept are held back; nil
	// when nothing is.
	next  map[string]config.Engine
	until time.Time // when next counts
}

// take is the source's word, complete. Engines at the same address are one: that
// which is not draining, else the first.
func (k *keeper) take(engines []config.Engine, now time.Time) string {
	next := byAddresses(engines)
	gone := missing(k.kept, next)
	if 2*gone <= len(k.kept) {
		k.kept, k.next = next, nil
		return outcomeOK
	}
	if k.next == nil {
		k.until = now.Add(Grace)
	}
	k.next = next
	if k.expire(now) {
		return outcomeOK
	}
	return outcomeHeld
}

// fail is a refresh that gave nothing. What is held back must be seen anew: a source
// that fails is not to be believed that its engines are gone. What it found new
// meanwhile stays.
func (k *keeper) fail() {
	if k.next != nil {
		k.kept, k.next = k.all(), nil
	}
}

// expire lets go of what was held back long enough, and says whether it did.
func (k *keeper) expire(now time.Time) bool {
	if k.next == nil || now.Before(k.until) {
		return false
	}
	k.kept, k.next = k.next, nil
	return true
}

// held counts the engines that are there though the source says that they are gone.
func (k *keeper) held() int {
	if k.next == nil {
		return 0
	}
	return missing(k.kept, k.next)
}

// all is what is there: what is kept, and what is new, which is no reason to wait.
func (k *keeper) all() map[string]config.Engine {
	all := maps.Clone(k.kept)
	if all == nil {
		all = map[string]config.Engine{}
	}
	maps.Copy(all, k.next)
	return all
}

// engines lists what is there, by address.
func (k *keeper) engines() []config.Engine {
	all := k.all()
	out := make([]config.Engine, 0, len(all))
	for _, at := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[at])
	}
	return out
}

func byAddresses(engines []config.Engine) map[string]config.Engine {
	out := make(map[string]config.Engine, len(engines))
	for _, e := range engines {
		at, err := address(e.URL)
		if err != nil {
			continue // a source refuses these itself
		}
		if old, ok := out[at]; !ok || old.Drain && !e.Drain {
			out[at] = e
		}
	}
	return out
}

// missing counts what of a is not in b.
func missing(a, b map[string]config.Engine) int {
	n := 0
	for at := range a {
		if _, ok := b[at]; !ok {
			n++
		}
	}
	return n
}

// byAddress orders engines, so that what follows does not depend on the order in
// which they were found.
func byAddress(a, b config.Engine) int {
	x, _ := address(a.URL)
	y, _ := address(b.URL)
	return cmp.Or(cmp.Compare(x, y), cmp.Compare(a.URL, b.URL), cmp.Compare(a.Name, b.Name))
}
