package protect_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wardrop-lb/wardrop/protect"
)

const stallAfter = 10 * time.Second

// watched is an engine that is read every second, and judged twice a second as a data
// plane does.
type watched struct {
	life protect.Liveness
	now  int64
	next int64 // reading
	c    protect.Counts
	work protect.Work
	step func(*protect.Counts) // what a second does to the counts
}

func newWatched() *watched {
	w := &watched{now: int64(time.Hour), c: protect.Counts{Incarnation: 1, Running: 4}}
	w.work = protect.Work{Requests: 4, Since: w.now, Heard: w.now, Answered: w.now, Predicted: 1}
	w.step = works
	return w
}

func works(c *protect.Counts)     { c.Steps, c.Tokens = c.Steps+100, c.Tokens+100 }
func hangs(*protect.Counts)       {}
func churns(c *protect.Counts)    { c.Preemptions += 100 }
func prefills(c *protect.Counts)  { c.Steps += 10 }
func halfPages(c *protect.Counts) { c.KVUsage += 1e-4 }

// run passes time until a verdict is not Live, and says how long that took.
func (w *watched) run(d time.Duration) (protect.Verdict, time.Duration) {
	begin := w.now
	for w.now < begin+int64(d) {
		if w.now >= w.next {
			w.step(&w.c)
			if moved, _ := w.life.Read(w.c, w.now); moved {
				w.work.Heard = w.now
			}
			w.next = w.now + int64(time.Second)
		}
		w.now += int64(500 * time.Millisecond)
		if v := w.life.Judge(&w.work, stallAfter, w.now); v.State != protect.Live {
			return v, time.Duration(w.now - begin)
		}
	}
	return protect.Verdict{}, d
}

func (w *watched) lives(t *testing.T, d time.Duration) {
	t.Helper()
	v, _ := w.run(d)
	require.Equal(t, protect.Live, v.State, v.Reason)
}

func TestEachFailureHasItsName(t *testing.T) {
	for name, c := range map[string]struct {
		step   func(*protect.Counts)
		change func(*protect.Work, *protect.Counts)
		want   protect.State
		within time.Duration // from the last reading that moved
		least  time.Duration
	}{
		"everything is known and tokens came every second": {step: hangs, want: protect.BlackHole, within: 6 * time.Second, least: 5 * time.Second},
		"others have work there too": {step: hangs, change: func(w *protect.Work, c *protect.Counts) { c.Running = 9 },
			want: protect.BlackHole, within: 16 * time.Second, least: 15 * time.Second},
		"a prompt of 100k tokens is in flight": {step: hangs, change: func(w *protect.Work, _ *protect.Counts) { w.Prompts = 40 },
			want: protect.BlackHole, within: 212 * time.Second, least: 205 * time.Second},
		"a slow model": {step: hangs, change: func(w *protect.Work, _ *protect.Counts) { w.Predicted = 20 },
			want: protect.BlackHole, within: 102 * time.Second, least: 100 * time.Second},
		"it preempts all the time": {step: churns, want: protect.Livelock, within: 6 * time.Second, least: 5 * time.Second},
		"it preempts, and pages move": {step: func(c *protect.Counts) { churns(c); halfPages(c) },
			want: protect.Livelock, within: 16 * time.Second, least: 15 * time.Second},
		"it makes steps for nothing": {step: prefills, want: protect.Livelock, within: 47 * time.Second, least: 45 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatched()
			w.lives(t, 10*time.Second)
			w.step = c.step
			if c.change != nil {
				c.change(&w.work, &w.c)
				w.life.Read(w.c, w.now-1) // the change itself is no motion of what stands still
			}
			v, took := w.run(time.Hour)
			require.Equal(t, c.want, v.State)
			require.NotEmpty(t, v.Reason)
			require.False(t, v.Own, "the engine itself says so")
			require.LessOrEqual(t, took, c.within)
			require.GreaterOrEqual(t, took, c.least-time.Second)
		})
	}
}

// TestNobodyKnowsWhy: an engine without counters.
func TestNobodyKnowsWhy(t *testing.T) {
	var l protect.Liveness
	w := protect.Work{Requests: 1, Predicted: 1, Outputs: 2}
	for _, c := range []struct {
		streams, whole time.Duration
		want           protect.State
	}{
		{15 * time.Second, 25 * time.Second, protect.Live}, {16 * time.Second, 0, protect.BlackHole}, {0, 26 * time.Second, protect.Doubtful},
	} {
		w.Streams, w.Whole = c.streams, c.whole
		v := l.Judge(&w, stallAfter, int64(time.Hour))
		require.Equal(t, c.want, v.State)
		require.Equal(t, c.want != protect.Live, v.Own)
	}
}

// TestTheWayIsDead: it works and has no queue, and yet nothing comes.
func TestTheWayIsDead(t *testing.T) {
	w := newWatched()
	w.c.Running = 20 // others' requests
	w.lives(t, 10*time.Second)
	w.work.Unserved = 44 * time.Second
	w.lives(t, time.Second)
	w.work.Unserved = 46 * time.Second
	v, _ := w.run(time.Second)
	require.Equal(t, protect.DeadStreams, v.State)
	require.True(t, v.Own)
	require.False(t, v.State.TakesNothing(), "it serves others")
	w.c.Waiting = 1 // there is a queue: ours may wait in it
	w.life.Read(w.c, w.now)
	w.lives(t, time.Second/2)
}

// TestItLearnsWhatIsUsual: an engine that stood still and went on by itself may do so again.
func TestItLearnsWhatIsUsual(t *testing.T) {
	w := newWatched()
	w.lives(t, 10*time.Second)
	w.step = hangs
	w.lives(t, 4*time.Second)
	w.step = works
	w.lives(t, 10*time.Second)
	w.step = hangs
	v, took := w.run(time.Minute)
	require.Equal(t, protect.BlackHole, v.State)
	require.Greater(t, took, 8*time.Second, "twice as long as last time")
	require.Less(t, took, 12*time.Second)
}

// TestIdleIsNoStandstill: nothing is learned from the time before the first request.
func TestIdleIsNoStandstill(t *testing.T) {
	w := newWatched()
	w.lives(t, 10*time.Second)
	w.work.Requests, w.c.Running, w.step = 0, 0, hangs
	w.lives(t, time.Minute)
	w.work.Requests, w.c.Running, w.work.Since = 4, 4, w.now
	w.lives(t, time.Second) // read before its first token
	w.step = works
	w.lives(t, 10*time.Second)
	w.step = hangs
	v, took := w.run(time.Minute)
	require.Equal(t, protect.BlackHole, v.State)
	require.LessOrEqual(t, took, 6*time.Second)
}

func TestRefusals(t *testing.T) {
	second := int64(time.Second)
	read := func(l *protect.Liveness, at int64, running, waiting float64) {
		l.Read(protect.Counts{Incarnation: 1, Running: running, Waiting: waiting}, at)
	}
	t.Run("it says so", func(t *testing.T) {
		for body, want := range map[string]protect.State{
			`{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`:   protect.Loading,
			`{"error":{"message":"The engine is shutting down."}}`:                          protect.Draining,
			`{"error":{"message":"The request queue is full."}}`:                            protect.Live,
			`{"error":"server busy, please try again.  maximum pending requests exceeded"}`: protect.Live,
			``: protect.Live,
		} {
			var l protect.Liveness
			lease := l.Refused([]byte(body), second)
			require.Equal(t, want, l.Mark(second).State, body)
			require.Equal(t, want != protect.Live, lease > 0)
		}
	})
	t.Run("leases double while it goes on, and end with an answer", func(t *testing.T) {
		var l protect.Liveness
		now := second
		for _, want := range []time.Duration{1, 2, 4, 8, 16, 16} {
			require.Equal(t, want*time.Second, l.Refused([]byte("draining"), now))
			require.Equal(t, want*time.Second-time.Millisecond, l.Refused([]byte("draining"), now+1e6), "one that was under way is no new evidence")
			require.False(t, l.Proven())
			now += int64(want*time.Second) + 1
		}
		l.Answered(now - 20*second) // what it still had
		require.False(t, l.Proven())
		l.Answered(now)
		require.True(t, l.Proven())
		require.Equal(t, time.Second, l.Refused([]byte("draining"), now+1))
	})
	t.Run("it has room and takes nothing", func(t *testing.T) {
		var l protect.Liveness
		for at := second; at < 10*second; at += second {
			read(&l, at, max(0, 8-float64(at/second)), 0)
			if l.Refused(nil, at+1) > 0 {
				require.Equal(t, protect.Draining, l.Mark(at+1).State)
				require.GreaterOrEqual(t, at, 5*second, "half of what it had is gone")
				return
			}
		}
		t.Fatal("never found")
	})
	t.Run("a burst is no drain", func(t *testing.T) {
		var l protect.Liveness
		for at := second; at < 600*second; at += second {
			read(&l, at, 0, 0) // between bursts it is empty
			l.Answered(at + 1)
			for range 20 {
				require.Zero(t, l.Refused(nil, at+2))
			}
		}
	})
	t.Run("full is full", func(t *testing.T) {
		var l protect.Liveness
		for at := second; at < 600*second; at += second {
			read(&l, at, 8, 0)
			for range 20 {
				require.Zero(t, l.Refused(nil, at+2))
			}
		}
	})
	t.Run("health is a vote", func(t *testing.T) {
		var l protect.Liveness
		read(&l, second, 3, 0)
		l.Unwell(second + 1)
		require.Zero(t, l.Refused(nil, second+2), "it works: the page lies")
		read(&l, 2*second, 0, 0)
		require.Positive(t, l.Refused(nil, 2*second+2))
		require.Equal(t, protect.Loading, l.Mark(2*second+3).State)
		var idle protect.Liveness
		idle.Unwell(second)
		idle.Unready(second)
		require.Equal(t, protect.Live, idle.Mark(second).State, "nobody was refused")
		require.Positive(t, idle.Refused(nil, second))
	})
}

// TestARestartKeepsNothing: whatever was held against the old run.
func TestARestartKeepsNothing(t *testing.T) {
	w := newWatched()
	w.lives(t, 10*time.Second)
	w.step = hangs
	v, _ := w.run(time.Minute)
	w.life.Found(v, w.now, 16*time.Second)
	for range 5 {
		w.life.Refused([]byte("draining"), w.now)
	}
	require.False(t, w.life.Proven())
	moved, anew := w.life.Read(protect.Counts{Incarnation: 2, Running: 4}, w.now)
	require.True(t, moved)
	require.True(t, anew)
	require.True(t, w.life.Proven())
	require.Equal(t, protect.Restarting, w.life.Mark(w.now).State)
	require.Equal(t, time.Second, w.life.Refused([]byte("loading model"), w.now), "the first lease")
	_, anew = w.life.Read(protect.Counts{Incarnation: 0}, w.now+1)
	require.False(t, anew, "one that does not say")
}

func TestStateNames(t *testing.T) {
	for s := protect.Live; s <= protect.Restarting; s++ {
		back, ok := protect.ParseState(s.String())
		require.True(t, ok)
		require.Equal(t, s, back)
	}
	_, ok := protect.ParseState("of a later version")
	require.False(t, ok)
}

// TestEveryStateIsALease: whatever happened, when nothing more does the engine is live
// again within a lease; a lease is never longer than the longest, and an answer to what
// was sent since ends it at once.
func TestEveryStateIsALease(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l protect.Liveness
		now := int64(time.Hour)
		number := rapid.SampledFrom([]float64{0, 1, 7, 1e6, math.NaN()})
		span := rapid.Int64Range(0, int64(20*time.Second))
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			now += rapid.Int64Range(0, int64(10*time.Second)).Draw(t, "pause")
			switch rapid.IntRange(0, 6).Draw(t, "event") {
			case 0:
				l.Read(protect.Counts{
					Incarnation: rapid.Uint64Range(0, 2).Draw(t, "incarnation"), Running: number.Draw(t, "running"), Waiting: number.Draw(t, "waiting"),
					KVUsage: number.Draw(t, "kv"), Steps: number.Draw(t, "steps"), Tokens: number.Draw(t, "tokens"), Preemptions: number.Draw(t, "preemptions"),
				}, now)
			case 1, 2:
				w := protect.Work{
					Requests: rapid.Int64Range(1, 9).Draw(t, "requests"), Since: now - span.Draw(t, "since"), Heard: now - span.Draw(t, "heard"),
					Answered: now - span.Draw(t, "answered"), Streams: time.Duration(span.Draw(t, "streams")), Whole: time.Duration(span.Draw(t, "whole")),
					Unserved: time.Duration(span.Draw(t, "unserved")), Predicted: rapid.Float64Range(0, 1e9).Draw(t, "predicted"),
				}
				if v := l.Judge(&w, time.Duration(span.Draw(t, "stall after"))+1, now); v.State != protect.Live {
					l.Found(v, now, time.Duration(rapid.Int64Range(0, int64(16*time.Second)).Draw(t, "lease")))
				}
			case 3:
				text := rapid.SampledFrom([]string{"", "loading model", "draining", "queue full"}).Draw(t, "body")
				require.LessOrEqual(t, l.Refused([]byte(text), now), 16*time.Second)
			case 4:
				l.Unready(now)
				l.Unwell(now)
			case 5:
				l.Away(now, time.Second)
			case 6:
				l.Answered(now - span.Draw(t, "sent"))
			}
			if m := l.Mark(now); m.State != protect.Live {
				require.NotEmpty(t, m.Reason)
				require.LessOrEqual(t, time.Duration(m.Until-now), 16*time.Second)
			}
		}
		require.Equal(t, protect.Live, l.Mark(now+int64(16*time.Second)).State)
		l.Answered(now)
		require.True(t, l.Proven())
	})
}
