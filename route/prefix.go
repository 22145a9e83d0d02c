package route

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

const (
	// prefixBlock is the size in bytes of a prompt's blocks: about 64 tokens.
	prefixBlock = 256
	// maxBlocks bounds how deep a key may lie: 256 KiB into the prompt.
	maxBlocks = 1024
	// popularShare is the part of an even share of the traffic beyond which a
	// prefix counts as shared by all. Between 0.1 and 1 it makes little
	// difference.
	popularShare = 0.25

	// fewRequests is how many recent requests a prefix may have before its share
	// matters: where there is little traffic, affinity is worth more than balance.
	fewRequests = 32
	// halfLife is after how long counts have halved at the latest, nanoseconds.
	halfLife = 60e9

	sketchRows     = 4
	minSketchWidth = 1 << 11
	maxSketchWidth = 1 << 18
)

// Prefix is the chain of block hashes of a prompt: each covers all that stands
// before it. The zero value is an empty prompt.
type Prefix struct {
	hashes []uint64
	last   uint64
}

// Add appends a part of the prompt, such as a message: its end is the end of a
// block, so that a conversation's chain begins alike from turn to turn.
func (p *Prefix) Add(part []byte) {
	for len(part) > 0 && len(p.hashes) < maxBlocks {
		n := min(prefixBlock, len(part))
		p.last = mix(p.last ^ xxhash.Sum64(part[:n]) + phi)
		p.hashes = append(p.hashes, p.last)
		part = part[n:]
	}
}

// AddHash takes in a block by a hash that covers all of the prompt up to its end.
func (p *Prefix) AddHash(h uint64) {
	if len(p.hashes) < maxBlocks {
		p.last = h
		p.hashes = append(p.hashes, h)
	}
}

// Reset empties the prefix and keeps its memory.
func (p *Prefix) Reset() { p.hashes, p.last = p.hashes[:0], 0 }

// Full tells that further parts would change nothing.
func (p *Prefix) Full() bool { return len(p.hashes) == maxBlocks }

// Len is the number of blocks.
func (p *Prefix) Len() int { return len(p.hashes) }

// Popularity knows which prefixes are shared by so much of a model's recent
// traffic that they say nothing about where a request belongs: a count-min sketch
// (Cormode and Muthukrishnan 2005) whose counts halve with every window of
// requests, and every minute. Its memory is bounded and holds nothing per engine. Safe for
// concurrent use; racing updates cost a count at most.
type Popularity struct {
	mask    uint64
	counts  []atomic.Uint32 // rows of mask+1
	total   atomic.Uint64
	window  uint64
	due     atomic.Int64 // when the counts halve next
	halving sync.Mutex
}

// NewPopularity makes a sketch for a row of that many engines: the more engines,
// the smaller the shares it must tell apart.
func NewPopularity(engines int) *Popularity {
	width := sketchWidth(engines)
	return &Popularity{
		mask: uint64(width - 1), counts: make([]atomic.Uint32, sketchRows*width), window: uint64(2 * width),
	}
}

// Fits tells whether the sketch is of the size that a row of that many engines
// wants.
func (s *Popularity) Fits(engines int) bool { return uint64(sketchWidth(engines)-1) == s.mask }

func sketchWidth(engines int) int {
	wanted := 1 << bits.Len(uint(16/popularShare)*uint(max(engines, 1)))
	return min(max(wanted, minSketchWidth), maxSketchWidth)
}

// Key gives the hash that ties a request to those it shares its cache with: the
// chain's at the first depth whose share of the recent traffic is under a quarter
// of an engine's even share. What all have in common is passed over, a document
// that some share stays together, a prompt that ends before uses all its blocks.
// It counts the request, at time now in nanoseconds, and returns the depth in
// blocks too. The prefix must not be empty.
func (s *Popularity) Key(p *Prefix, engines int, now int64) (key uint64, depth int) {
	total := s.total.Add(1)
	if total >= s.window || now >= s.due.Load() {
		s.halve(now)
	}
	limit := max(fewRequests, uint32(float64(total)*popularShare/float64(max(engines, 1))))
	for i, h := range p.hashes {
		if s.add(h) <= limit || i == len(p.hashes)-1 {
			return h, i + 1
		}
	}
	return 0, 0
}

// add counts a hash and returns its count, which may be too high but, but for
// races, never too low.
func (s *Popularity) add(h uint64) uint32 {
	least := ^uint32(0)
	for row := range uint64(sketchRows) {
		h = mix(h + phi)
		least = min(least, s.counts[row*(s.mask+1)+h&s.mask].Add(1))
	}
	return least
}

// halve forgets: what was popular a while ago does not count. One caller does it,
// the others go on.
func (s *Popularity) halve(now int64) {
	if !s.halving.TryLock() {
		return
	}
	defer s.halving.Unlock()
	s.due.Store(now + halfLife)
	s.total.Store(s.total.Load() / 2)
	for i := range s.counts {
		c := &s.counts[i]
		c.Store(c.Load() / 2)
	}
}
