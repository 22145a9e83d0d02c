package enginemodel

// Block is a stretch of a prompt that requests may have in common: its hash covers
// all of the prompt up to its end, so that equal hashes mean equal prefixes. Of a
// stretch that ends within a block of the KV cache, the next one has the rest: only
// whole blocks are shared. An engine has some 45 bytes for each Block in its
// cache, so a driver with thousands of engines does well to hand in long ones.
type Block struct {
	Hash uint64
	End  int // prompt tokens up to the block's end
}
