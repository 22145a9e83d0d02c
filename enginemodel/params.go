package enginemodel

import (
	"errors"
	"fmt"
	"math"

	"github.com/wardrop-lb/wardrop/fleet"
)

// Params says how fast an engine is and how much it holds. A step that prefills
// p tokens and works on b requests with c tokens of context between them takes
//
//	Base + PerPrefillToken*max(0, p-FreePrefillTokens) + PerRequest*b + PerContextToken*c
//
// seconds.
type Params struct {
	Base              float64 // seconds a step takes with nothing in it: reading the weights
	PerPrefillToken   float64 // seconds per prompt token computed in the step
	FreePrefillTokens int     // prompt tokens that ride along for nothing
	PerRequest        float64 // seconds per request in the step
	PerContextToken   float64 // seconds per token of context read in the step
	Frontend          float64 // seconds between a request's arrival and its place in the queue

	MaxBatch      int // requests in the batch at once
	MaxStepTokens int // tokens computed in one step, prefill and decode together
	Blocks        int // blocks of the KV cache
	BlockSize     int // tokens in one block

	NoPrefixCache bool // every prompt is computed whole, whatever its Prefix
}

// MaxTokens is the longest request that fits, prompt and output together.
func (p Params) MaxTokens() int { return p.Blocks * p.BlockSize }

// Validate reports every parameter that is out of range. Times are finite and
// not negative, and a step takes some; counts are at least 1.
func (p Params) Validate() error {
	var errs []error
	seconds := func(name string, x float64) {
		if !(x >= 0) || x > math.MaxInt32 {
			errs = append(errs, fmt.Errorf("%s: %v is not a number of seconds", name, x))
		}
	}
	count := func(name string, n, low int) {
		if n < low {
			errs = append(errs, fmt.Errorf("%s: %d is less than %d", name, n, low))
		}
	}
	seconds("base", p.Base)
	seconds("per prefill token", p.PerPrefillToken)
	seconds("per request", p.PerRequest)
	seconds("per context token", p.PerContextToken)
	seconds("frontend", p.Frontend)
	if p.Base+p.PerRequest <= 0 {
		errs = append(errs, errors.New("base: a step takes no time"))
	}
	count("free prefill tokens", p.FreePrefillTokens, 0)
	count("max batch", p.MaxBatch, 1)
	count("max step tokens", p.MaxStepTokens, 1)
	count("blocks", p.Blocks, 1)
	count("block size", p.BlockSize, 1)
	return errors.Join(errs...)
}

const (
	profileBlockSize  = 16
	profileStepTokens = 2048 // the least; vLLM's own default is in this range
	profileContext    = 8192 // tokens that fit at least, so that a small engine takes long requests

	// outputWork is what an output token costs over what a prompt token costs,
	// beyond the step's base. Fits to an 8B model at 512 prompt and 256 output
	// tokens spend about half of that work on either.
	outputWork = 2
)

// FromProfile gives parameters under which requests of promptTokens and
// outputTokens (each at least 1) see the profile's latency curve
//
//	L(u) = T0 / (1 - u/UMax)   while u is well below   Batch / (T0 + Batch/UMax)
//
// A request alone takes T0: outputTokens steps of a base time, and 1/UMax of
// work of its own. In company it also waits for the work of those beside it,
// which is what bends the curve; when the steps hold nothing but work, UMax is
// reached. The batch is rounded to whole requests. A profile whose work alone
// exceeds T0 (T0*UMax < 1) is met in T0, not in UMax.
func FromProfile(profile fleet.Profile, promptTokens, outputTokens int) Params {
	prompt, output := max(promptTokens, 1), max(outputTokens, 1)
	work := min(1/profile.UMax, 0.95*profile.T0)
	unit := work / float64(prompt+outputWork*output)
	batch := max(int(math.Round(profile.Batch)), 1)

	p := Params{
		Base:            (profile.T0 - work) / float64(output),
		PerPrefillToken: unit,
		PerRequest:      unit * outputWork,
		MaxBatch:        batch,
		BlockSize:       profileBlockSize,
	}
	// A full batch must get its prompts through without waiting for room in the
	// step, or the engine saturates before the profile says so.
	perStep := 2 * batch * (1 + (prompt+output-1)/output)
	p.MaxStepTokens = max(profileStepTokens, prompt+batch, perStep)
	each := blocks(prompt+output, profileBlockSize)
	p.Blocks = max(batch*each+batch*each/50+1, profileContext/profileBlockSize)
	return p
}

// blocks is how many blocks of size hold tokens.
func blocks(tokens, size int) int { return (tokens + size - 1) / size }
