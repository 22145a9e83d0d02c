package enginemodel

import (
	"math"

	"github.com/wardrop-lb/wardrop/fleet"
)

// profileKappa is the hard cap that Profile gives.
const profileKappa = 0.9

// Profile gives the profile that an operator would measure of an engine whose
// requests have these means, in tokens: prompt and output, at least 1, and cached, 0
// to prompt: the part of the prompt that is in the engine's prefix cache.
//
// T0 and FirstToken are a request's alone. Saturation is where the engine is as full
// as it gets: of requests (MaxBatch), of KV cache, or of tokens in a step. UMax is
// what makes the profile's law meet it,
//
//	Batch / (T0 + Batch/UMax) = requests a step at most / seconds of such a step
//
// which is the processor sharing of steps whose time is linear in what they hold. A
// request counts towards Batch from its arrival, in the frontend too. Prefixes that
// requests have in common at the same time make the KV cache larger than the profile
// says, outputs that differ much make it smaller.
func Profile(p Params, prompt, output, cached float64) fleet.Profile {
	l := loadOf(&p, prompt, output, cached)
	first := p.Frontend + l.prefill
	t0 := first + l.decode

	joins, step := l.saturated(&p)
	u := joins / step
	batch := joins*l.steps + u*p.Frontend
	// One request at a time shares nothing: UMax is then far away.
	perRequest := max(1/u-t0/batch, 1e-6*t0)
	return fleet.Profile{T0: t0, UMax: 1 / perRequest, Batch: batch, Kappa: profileKappa, FirstToken: first}
}

// load is what one request asks of an engine.
type load struct {
	compute float64 // prompt tokens to compute
	chunks  float64 // steps that takes
	steps   float64 // all steps it is in the batch for
	context float64 // mean over these of the context it has read
	held    float64 // mean over these of the tokens of KV cache it holds

	prefill float64 // seconds to its first token, alone in the batch
	decode  float64 // seconds from there to its last
}

func loadOf(p *Params, prompt, output, cached float64) load {
	prompt, output = max(prompt, 1), max(output, 1)
	cached = min(max(cached, 0), prompt-1)
	most := float64(p.MaxStepTokens)
	l := load{compute: prompt - cached}
	l.chunks = math.Ceil(l.compute / most)
	more := output - 1 // tokens after the first, one a step
	l.steps = l.chunks + more

	read := l.chunks*cached + most*l.chunks*(l.chunks-1)/2
	reads := more*prompt + more*(more-1)/2
	l.context = (read + reads) / l.steps
	l.held = prompt + more*(more+1)/2/l.steps + float64(p.BlockSize-1)/2

	free := float64(p.FreePrefillTokens)
	last := l.compute - (l.chunks-1)*most
	each := p.Base + p.PerRequest
	l.prefill = l.chunks*each + p.PerContextToken*read +
		p.PerPrefillToken*((l.chunks-1)*max(0, most-free)+max(0, last-free))
	l.decode = more*each + p.PerContextToken*reads
	return l
}

// saturated gives how many requests join the full batch in a step, in the mean, and
// the step's mean seconds.
func (l *load) saturated(p *Params) (joins, step float64) {
	batch := float64(p.MaxBatch)
	usable := p.Blocks - reserve(p, p.MaxBatch)
	batch = min(batch, max(1, float64(usable*p.BlockSize)/l.held))
	joins = min(batch/l.steps, float64(p.MaxStepTokens)/(l.compute+l.steps-l.chunks))
	batch = joins * l.steps
	prefill := excess(joins*l.chunks, l.compute/l.chunks, float64(p.FreePrefillTokens))
	return joins, p.Base + p.PerRequest*batch + p.PerContextToken*l.context*batch + p.PerPrefillToken*prefill
}

// excess is the mean of what exceeds free in a step with a Poisson number of chunks
// of size tokens, mean in number.
func excess(mean, size, free float64) float64 {
	sum := mean*size - free
	chance := math.Exp(-mean)
	for k := 0.0; k*size < free && chance > 1e-12; k++ {
		sum += chance * (free - k*size)
		chance *= mean / (k + 1)
	}
	return max(0, sum)
}
