package proxy

import (
	"net/http"
	"net/textproto"
	"sync/atomic"
	"time"

	"github.com/wardrop-lb/wardrop/signals"
)

// inBandEvery is how often an engine is asked to say how it is in an answer, in
// nanoseconds: twice as often as is reported. Engines write a line to their log each
// time, so that to ask always would cost more than it tells.
const inBandEvery = int64(250 * time.Millisecond)

// inBand is whether an engine says how it is in its answers, and when it was asked to
// the last time. The zero value does not ask. Safe for concurrent use.
type inBand struct {
	tells atomic.Bool
	asked atomic.Int64 // nanoseconds
}

// ask tells, for an answer that is no stream, whether to ask with a request of that
// time.
func (b *inBand) ask(now int64) bool {
	if !b.tells.Load() {
		return false
	}
	last := b.asked.Load()
	return now-last >= inBandEvery && b.asked.CompareAndSwap(last, now)
}

// learn takes what is known of an engine that this data plane reads. Of the engines
// whose kind tells, those with several ranks speak of the first alone.
func (b *inBand) learn(st signals.State) {
	b.tells.Store((st.Kind == "vllm" || st.Kind == "triton") && st.Ranks <= 1)
}

var (
	inBandFormat = textproto.CanonicalMIMEHeaderKey(signals.ORCARequestHeader)
	inBandReport = textproto.CanonicalMIMEHeaderKey(signals.ORCAHeader)
	inBandText   = []string{"text"} // engines take it in any case but that of one is lower
)

// takeInBand takes in what an engine says of itself in the head of an answer.
func (p *DataPlane) takeInBand(engine string, head http.Header) {
	report := head[inBandReport]
	if len(report) == 0 {
		return
	}
	p.reader.InBand(engine, report[0], time.Now())
}
