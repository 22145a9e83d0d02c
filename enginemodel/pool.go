package enginemodel

// pool counts the blocks of the KV cache and knows which prefixes lie in them.
//
// Prefixes are a tree of nodes, one for each Block, the parent being the block
// before. Only whole blocks of the KV cache are shared. A node is held while a
// running request's prefix goes through it, and idle afterwards; idle nodes give way
// to what running requests need, least recently used first. A request's nodes fall
// idle from its last to its first, so that of a prefix the end is always evicted
// before the beginning: a node in the tree has its parent there.
//
// It is vLLM's cache in what it finds and in the order in which it evicts. It leaves
// out that vLLM keeps answers' blocks too, which a conversation's next turn finds and
// which push out prompts earlier.
type pool struct {
	size  int // tokens in a block
	total int // blocks
	free  int // blocks that no running request holds, those of idle nodes too
	idle  int // blocks of idle nodes

	index  table    // of nodes by hash
	hashes []uint64 // by node
	nodes  []node   // nodes[0] closes the ring of idle ones: its next is the oldest
	spare  int32    // unused nodes, chained by next; 0 when there is none
	unheld int      // idle nodes
}

// node is small, for there are many.
type node struct {
	parent     int32 // 0: it is the first of its prefix
	prev, next int32 // in the ring of idle ones
	refs       int32 // held children, and running requests whose prefix ends here
	end        int32 // whole blocks from the prompt's beginning to this node's end
}

func newPool(p Params) pool { return pool{size: p.BlockSize, total: p.Blocks, free: p.Blocks} }

// take takes free blocks for a running request; there must be enough.
func (p *pool) take(n int) {
	p.free -= n
	for p.idle > p.free {
		p.evict()
	}
}

// evict forgets the node that has been idle for longest.
func (p *pool) evict() {
	oldest := p.nodes[0].next
	p.wake(oldest)
	p.drop(oldest)
}

// admit gives a sequence the blocks up to its target, those of its prefix that are
// there shared, if all but reserve blocks are enough, and sets its context to what
// need not be computed.
func (p *pool) admit(s *sequence, reserve int) bool {
	need := blocks(s.target, p.size)
	if len(s.Prefix) == 0 {
		if need > p.free-reserve {
			return false
		}
		s.blocks = need
		p.take(need)
		return true
	}
	if need-s.Prefix[len(s.Prefix)-1].End/p.size > p.free-reserve {
		return false
	}
	found, leaf := p.find(s.Prefix)
	shared := 0
	if found > 0 {
		shared = s.Prefix[found-1].End / p.size
	}
	if need-shared+p.asleep(leaf) > p.free-reserve {
		return false
	}
	p.hold(leaf)
	s.context = min(shared, (s.target-1)/p.size) * p.size
	s.known = shared
	for _, b := range s.Prefix[found:] {
		if p.index.get(p.hashes, b.Hash) != 0 {
			break // as part of another prefix: the rest is the sequence's own
		}
		end := b.End / p.size
		leaf = p.insert(b.Hash, leaf, end)
		shared = end
	}
	s.leaf, s.shared = leaf, shared
	s.blocks = need - shared
	p.take(s.blocks)
	return true
}

// release gives back what a sequence holds. Of its prefix the tokens computed stay
// in the cache. Only the last that was admitted may have more than that: nobody is
// admitted beside a prompt that takes all of a step, so nobody builds on its rest.
func (p *pool) release(s *sequence, computed int) {
	p.free += s.blocks
	leaf := s.leaf
	for leaf != 0 {
		n := &p.nodes[leaf]
		if n.refs > 1 || int(n.end) <= s.known || int(n.end)*p.size <= computed {
			break
		}
		parent := n.parent
		p.free += p.blocks(leaf)
		p.drop(leaf)
		leaf = parent
	}
	for leaf != 0 {
		n := &p.nodes[leaf]
		if n.refs--; n.refs > 0 {
			break
		}
		p.sleep(leaf)
		leaf = n.parent
	}
	for p.unheld > p.total {
		p.evict() // nodes of less than a whole block take none, yet they are not for ever
	}
	s.blocks, s.shared, s.known, s.leaf = 0, 0, 0, 0
}

// find gives how many leading blocks of a prefix are there, and the last one's
// node. Since a node has its parent there, halving finds it.
func (p *pool) find(prefix []Block) (found int, leaf int32) {
	low, high := 0, len(prefix)
	for low < high {
		middle := (low + high) / 2
		n := p.index.get(p.hashes, prefix[middle].Hash)
		if n == 0 {
			high = middle
			continue
		}
		low, leaf = middle+1, n
	}
	return low, leaf
}

// asleep is how many blocks up to leaf are idle.
func (p *pool) asleep(leaf int32) (sum int) {
	for leaf != 0 && p.nodes[leaf].refs == 0 {
		sum += p.blocks(leaf)
		leaf = p.nodes[leaf].parent
	}
	return sum
}

// blocks is how many blocks a node has.
func (p *pool) blocks(i int32) int { return int(p.nodes[i].end - p.nodes[p.nodes[i].parent].end) }

// hold holds a node once more, and its parents if it was idle.
func (p *pool) hold(leaf int32) {
	for leaf != 0 {
		n := &p.nodes[leaf]
		if n.refs++; n.refs > 1 {
			return
		}
		p.wake(leaf)
		p.free -= p.blocks(leaf)
		leaf = n.parent
	}
}

// insert makes a node that is held once, by its child or by the request that makes it.
func (p *pool) insert(hash uint64, parent int32, end int) int32 {
	if len(p.nodes) == 0 {
		p.nodes, p.hashes = append(p.nodes, node{}), append(p.hashes, 0)
	}
	i := p.spare
	if i != 0 {
		p.spare = p.nodes[i].next
	} else {
		i = int32(len(p.nodes))
		p.nodes, p.hashes = append(p.nodes, node{}), append(p.hashes, 0)
	}
	p.nodes[i], p.hashes[i] = node{parent: parent, refs: 1, end: int32(end)}, hash
	p.index.put(p.hashes, i)
	p.free -= p.blocks(i)
	return i
}

// drop forgets a node that is in no ring; its blocks are the caller's to count.
func (p *pool) drop(i int32) {
	p.index.remove(p.hashes, p.hashes[i])
	p.nodes[i] = node{next: p.spare}
	p.spare = i
}

// sleep puts a node at the end of the ring of idle ones.
func (p *pool) sleep(i int32) {
	n, ring := &p.nodes[i], &p.nodes[0]
	n.prev, n.next = ring.prev, 0
	p.nodes[ring.prev].next = i
	ring.prev = i
	p.idle += p.blocks(i)
	p.free += p.blocks(i)
	p.unheld++
}

// wake takes a node out of the ring of idle ones.
func (p *pool) wake(i int32) {
	n := &p.nodes[i]
	p.nodes[n.prev].next = n.next
	p.nodes[n.next].prev = n.prev
	p.idle -= p.blocks(i)
	p.unheld--
}

// used is the fraction of the blocks that running requests hold.
func (p *pool) used() float64 { return 1 - float64(p.free)/float64(p.total) }
