package enginemodel

// Block is a stretch of a prompt that requests may have in common: its hash covers
// all of the prompt up to its end, so that equal hashes mean equal prefixes.
type Block struct {
	Hash uint64
	End  int // prompt tokens up to the block's end
}
