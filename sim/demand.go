package sim

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/wardrop-lb/wardrop/enginemodel"
	"github.com/wardrop-lb/wardrop/fleet"
)

// source is the demand of one (cluster, model, priority). Requests of a conversation
// after its first come from the answers before, so the source begins fewer
// conversations than it sends requests.
type source struct {
	cluster, model int
	priority       fleet.Priority
	rate           float64 // of requests, mean, requests/s
	load           *Load
	random         *rand.Rand
	factor         float64 // by events
	replaced       bool    // a trace's requests are sent in place of its own
	salt           uint64
	next           uint64 // number of the next conversation
	documents      []int  // tokens of each
	popular        []float64
}

func newSource(cluster, model int, priority fleet.Priority, rate float64, l *Load, seed uint64) *source {
	id := uint64(cluster)<<32 | uint64(model)<<8 | uint64(priority)
	s := &source{cluster: cluster, model: model, priority: priority, rate: rate, load: l, factor: 1,
		random: rand.New(rand.NewPCG(seed, id)), salt: id}
	shared := rand.New(rand.NewPCG(seed, uint64(model)|1<<63)) // documents are the same for all clusters
	sum := 0.0
	for i := range l.Documents.Count {
		s.documents = append(s.documents, Size{l.Documents.Tokens, 0.5}.draw(shared.NormFloat64()))
		sum += 1 / float64(i+1)
		s.popular = append(s.popular, sum)
	}
	return s
}

// rateAt is the rate of new conversations at a time.
func (s *source) rateAt(t time.Duration) float64 {
	d := &s.load.Daily
	wave := 1 + d.Amplitude*math.Cos(2*math.Pi*(t-time.Duration(d.Phase)).Seconds()/d.Period.Seconds())
	return s.rate * s.factor * wave / s.load.Sessions.Turns
}

// gap is the time to the next conversation: of the law, at the rate of now. Rates
// change slowly beside it.
func (s *source) gap(now time.Duration) time.Duration {
	rate := s.rateAt(now)
	if rate <= 1e-9 || s.replaced {
		return time.Second // and look again
	}
	var x float64 // of mean 1
	switch s.load.Arrivals {
	case "gamma":
		shape := 1 / (s.load.CV * s.load.CV)
		x = gamma(s.random, shape) / shape
	case "weibull":
		shape := weibullShape(s.load.CV)
		x = math.Pow(s.random.ExpFloat64(), 1/shape) / math.Gamma(1+1/shape)
	default:
		x = s.random.ExpFloat64()
	}
	return time.Duration(x / rate * 1e9)
}

// silent says whether nothing arrives for now.
func (s *source) silent(now time.Duration) bool { return s.replaced || s.rateAt(now) <= 1e-9 }

// gamma draws from the gamma distribution of a shape and scale 1: Marsaglia and Tsang
// (2000).
func gamma(r *rand.Rand, shape float64) float64 {
	boost := 1.0
	if shape < 1 {
		boost = math.Pow(r.Float64(), 1/shape)
		shape++
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := r.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v *= v * v
		if math.Log(1-r.Float64()) < 0.5*x*x+d-d*v+d*math.Log(v) {
			return boost * d * v
		}
	}
}

// weibullShape is the shape whose coefficient of variation is cv, by halving.
func weibullShape(cv float64) float64 {
	low, high := 0.1, 50.0
	for range 60 {
		mid := (low + high) / 2
		g1, g2 := math.Gamma(1+1/mid), math.Gamma(1+2/mid)
		if math.Sqrt(max(0, g2/(g1*g1)-1)) > cv {
			low = mid
		} else {
			high = mid
		}
	}
	return (low + high) / 2
}

// blockTokens is the size of the blocks that prompts are compared by.
const blockTokens = 64

// start makes the first request of a conversation.
func (s *source) start(r *Request) {
	s.next++
	r.Cluster, r.Model, r.Priority = s.cluster, s.model, s.priority
	own := s.load.Prompt.draw(s.random.NormFloat64())
	r.Output = s.load.Output.draw(s.random.NormFloat64())
	conversation := s.salt<<20 ^ s.next
	if s.load.Sessions.Turns > 1 {
		r.Session = conversation<<1 | 1
	}
	r.Prefix = r.Prefix[:0]
	r.Prompt = 0
	if !s.load.repeats() {
		r.Prompt = own // nothing that another could find in a cache
		return
	}
	if s.load.Shared > 0 {
		r.extend(uint64(s.model)<<8|1, s.load.Shared)
	}
	if n := len(s.documents); n > 0 && s.random.Float64() < s.load.Documents.Part {
		d := s.pickDocument()
		r.extend(uint64(s.model)<<40|uint64(d)<<8|2, s.documents[d])
	}
	r.extend(conversation<<8|3, own)
}

// repeats says whether some of a prompt may be in another's.
func (l *Load) repeats() bool {
	return l.Sessions.Turns > 1 || l.Shared > 0 || l.Documents.Count > 0
}

func (s *source) pickDocument() int {
	x := s.random.Float64() * s.popular[len(s.popular)-1]
	low, high := 0, len(s.popular)-1
	for low < high {
		mid := (low + high) / 2
		if s.popular[mid] < x {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// follow turns an answered request into the conversation's next turn: its prompt is
// all that was said, and something new. False when the conversation ends here.
func (s *source) follow(r *Request) (think time.Duration, ok bool) {
	if s.load.Sessions.Turns <= 1 || s.random.Float64() < 1/s.load.Sessions.Turns {
		return 0, false
	}
	r.extend(r.Session<<8|4, r.Output+s.load.Prompt.draw(s.random.NormFloat64()))
	r.Output = s.load.Output.draw(s.random.NormFloat64())
	return time.Duration(s.random.ExpFloat64() * float64(s.load.Sessions.Think)), true
}

// extend lets the prompt go on with tokens of a stretch of text.
func (r *Request) extend(text uint64, tokens int) {
	last, end := uint64(0), r.Prompt
	if n := len(r.Prefix); n > 0 {
		last = r.Prefix[n-1].Hash
	}
	r.Prompt += tokens
	for i := uint64(0); end < r.Prompt; i++ {
		end = min(end+blockTokens, r.Prompt)
		last = mix(last ^ mix(text+i*0x9e3779b97f4a7c15))
		r.Prefix = append(r.Prefix, enginemodel.Block{Hash: last, End: end})
	}
}

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
