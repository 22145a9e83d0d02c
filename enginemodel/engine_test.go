package enginemodel_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wardrop-lb/wardrop/enginemodel"
)

func small() enginemodel.Params {
	return enginemodel.Params{
		Base: 0.010, PerPrefillToken: 0.001, PerRequest: 0.001,
		MaxBatch: 4, MaxStepTokens: 64, Blocks: 32, BlockSize: 16,
	}
}

func engine(t testing.TB, p enginemodel.Params) *enginemodel.Engine {
	t.Helper()
	e, err := enginemodel.New(p)
	require.NoError(t, err)
	return e
}

// step runs one step and gives the time it ended and what happened.
func step(t testing.TB, e *enginemodel.Engine, now time.Duration) (time.Duration, []enginemodel.Event) {
	t.Helper()
	until, working := e.Begin(now)
	require.True(t, working)
	return until, e.End(nil)
}

// runDry steps until the engine is empty and gives the time at which it is.
func runDry(e *enginemodel.Engine) (now time.Duration) {
	for {
		until, working := e.Begin(now)
		if !working && until == enginemodel.Never {
			return now
		}
		now = until
		e.End(nil)
	}
}

func TestOneRequest(t *testing.T) {
	e := engine(t, small())
	require.NoError(t, e.Add(enginemodel.Request{ID: 7, Prompt: 20, Output: 3}, 0))
	require.Equal(t, 1, e.Gauges().Waiting)

	now, events := step(t, e, 0)
	require.Equal(t, 31*time.Millisecond, now, "base, one request and 20 tokens of prompt")
	require.Equal(t, []enginemodel.Event{{ID: 7, At: 31 * time.Millisecond, Token: 1}}, events)
	require.True(t, events[0].First())
	require.InDelta(t, 2.0/32, e.Gauges().KVUsage, 1e-9)

	now, events = step(t, e, now)
	require.Equal(t, 42*time.Millisecond, now)
	require.Equal(t, []enginemodel.Event{{ID: 7, At: 42 * time.Millisecond, Token: 2}}, events)

	now, events = step(t, e, now)
	require.Equal(t, []enginemodel.Event{{ID: 7, At: now, Token: 3, Last: true}}, events)
	require.Equal(t, enginemodel.Gauges{PromptTokens: 20, GenerationTokens: 3, Finished: 1, Steps: 3}, e.Gauges())

	until, working := e.Begin(now)
	require.False(t, working)
	require.Equal(t, enginemodel.Never, until)
	require.Empty(t, e.End(nil))
}

func TestPromptsAreChunkedAndStreamsGoOn(t *testing.T) {
	e := engine(t, small())
	require.NoError(t, e.Add(enginemodel.Request{ID: 1, Prompt: 10, Output: 20}, 0))
	now, _ := step(t, e, 0)
	require.NoError(t, e.Add(enginemodel.Request{ID: 2, Prompt: 130, Output: 1}, now))

	var second int
	for i := 1; i <= 3; i++ {
		var events []enginemodel.Event
		now, events = step(t, e, now)
		require.Equal(t, uint64(1), events[0].ID, "the stream gets a token in every step")
		if len(events) == 2 {
			second = i
		}
	}
	require.Equal(t, 3, second, "63 tokens fit beside the stream: 63 + 63 + 4")
}

func TestQueueIsFirstInFirstOut(t *testing.T) {
	p := small()
	p.MaxBatch = 1
	e := engine(t, p)
	for id := uint64(1); id <= 5; id++ {
		require.NoError(t, e.Add(enginemodel.Request{ID: id, Prompt: 4, Output: 2}, 0))
	}
	var order []uint64
	for now := time.Duration(0); len(order) < 5; {
		var events []enginemodel.Event
		now, events = step(t, e, now)
		require.LessOrEqual(t, e.Gauges().Running, 1)
		for _, ev := range events {
			if ev.Last {
				order = append(order, ev.ID)
			}
		}
	}
	require.Equal(t, []uint64{1, 2, 3, 4, 5}, order)
}

func TestPreemptionRecomputesAndFinishes(t *testing.T) {
	p := small()
	p.Blocks = 8 // 128 tokens; two requests of 32 + 64 do not fit to their ends
	e := engine(t, p)
	for id := uint64(1); id <= 2; id++ {
		require.NoError(t, e.Add(enginemodel.Request{ID: id, Prompt: 32, Output: 64}, 0))
	}
	tokens := map[uint64]int{}
	for now := time.Duration(0); e.Gauges().Finished < 2; {
		var events []enginemodel.Event
		now, events = step(t, e, now)
		for _, ev := range events {
			tokens[ev.ID]++
			require.Equal(t, tokens[ev.ID], ev.Token, "no token twice, none left out")
		}
	}
	g := e.Gauges()
	require.Positive(t, g.Preemptions)
	require.Equal(t, uint64(64), g.PromptTokens, "a prompt computed again is not counted again")
	require.Equal(t, uint64(128), g.GenerationTokens)
	require.Zero(t, g.KVUsage)
}

func TestCancel(t *testing.T) {
	p := small()
	p.MaxBatch, p.Frontend = 1, 0.005
	e := engine(t, p)
	for id := uint64(1); id <= 3; id++ {
		require.NoError(t, e.Add(enginemodel.Request{ID: id, Prompt: 4, Output: 9}, 0))
	}
	until, working := e.Begin(0)
	require.False(t, working)
	require.Equal(t, 5*time.Millisecond, until, "the frontend holds them")
	require.True(t, e.Cancel(3))

	until, working = e.Begin(until)
	require.True(t, working)
	require.True(t, e.Cancel(1), "in the batch, in the middle of a step")
	require.Empty(t, e.End(nil))
	require.Zero(t, e.Gauges().KVUsage)
	require.False(t, e.Cancel(1))

	until, events := step(t, e, until)
	require.Equal(t, []enginemodel.Event{{ID: 2, At: until, Token: 1}}, events)
	require.NoError(t, e.Add(enginemodel.Request{ID: 1, Prompt: 1, Output: 1}, until), "the id is free again")
	require.Equal(t, uint64(2), e.Gauges().Cancelled)
}

func TestSlowdown(t *testing.T) {
	took := func(factor float64) time.Duration {
		e := engine(t, small())
		e.SetSlowdown(factor)
		require.NoError(t, e.Add(enginemodel.Request{ID: 1, Prompt: 10, Output: 10}, 0))
		return runDry(e)
	}
	require.Equal(t, 3*took(1), took(3))
	require.Equal(t, took(1), took(-1))
}

func TestAddRefuses(t *testing.T) {
	e := engine(t, small())
	require.ErrorIs(t, e.Add(enginemodel.Request{ID: 1, Prompt: 500, Output: 13}, 0), enginemodel.ErrTooLong)
	require.ErrorIs(t, e.Add(enginemodel.Request{ID: 1, Prompt: 0, Output: 1}, 0), enginemodel.ErrEmpty)
	require.NoError(t, e.Add(enginemodel.Request{ID: 1, Prompt: 500, Output: 12}, 0))
	require.ErrorIs(t, e.Add(enginemodel.Request{ID: 1, Prompt: 1, Output: 1}, 0), enginemodel.ErrDuplicate)
	_, err := enginemodel.New(enginemodel.Params{})
	require.ErrorContains(t, err, "max batch")
}

// Whatever is added and cancelled in whatever order: bounds hold, every token
// comes once and in order, and in the end nothing is left behind.
func TestAnyScheduleKeepsTheBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := small()
		p.MaxBatch = rapid.IntRange(1, 6).Draw(t, "batch")
		p.MaxStepTokens = rapid.IntRange(1, 80).Draw(t, "step tokens")
		p.Blocks = rapid.IntRange(4, 40).Draw(t, "blocks")
		p.Frontend = rapid.SampledFrom([]float64{0, 0.02}).Draw(t, "frontend")
		e, err := enginemodel.New(p)
		require.NoError(t, err)

		var now time.Duration
		var id uint64
		left := map[uint64]int{}
		seen := map[uint64]int{}
		advance := func() bool {
			until, working := e.Begin(now)
			if !working && until == enginemodel.Never {
				return false
			}
			now = until
			g := e.Gauges()
			require.LessOrEqual(t, g.Running, p.MaxBatch)
			require.GreaterOrEqual(t, g.KVUsage, 0.0)
			require.LessOrEqual(t, g.KVUsage, 1.0)
			for _, ev := range e.End(nil) {
				seen[ev.ID]++
				require.Equal(t, seen[ev.ID], ev.Token)
				require.Equal(t, ev.Token == left[ev.ID], ev.Last)
				if ev.Last {
					delete(left, ev.ID)
				}
			}
			return true
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				id++
				r := enginemodel.Request{ID: id, Prompt: rapid.IntRange(1, 40).Draw(t, "prompt"), Output: rapid.IntRange(1, 24).Draw(t, "output")}
				require.NoError(t, e.Add(r, now))
				left[id] = r.Output
			},
			"cancel": func(t *rapid.T) {
				victim := rapid.Uint64Range(0, id).Draw(t, "victim")
				_, there := left[victim]
				require.Equal(t, there, e.Cancel(victim))
				delete(left, victim)
			},
			"begin": func(*rapid.T) { e.Begin(now) },
			"step":  func(*rapid.T) { advance() },
		})
		for advance() {
		}
		require.Empty(t, left)
		g := e.Gauges()
		require.Zero(t, g.Running+g.Waiting)
		require.Zero(t, g.KVUsage)
		require.Equal(t, id, g.Finished+g.Cancelled)
	})
}

func BenchmarkStep(b *testing.B) {
	p := small()
	p.MaxBatch, p.Blocks, p.MaxStepTokens = 256, 1<<16, 8192
	e := engine(b, p)
	var events []enginemodel.Event
	var now time.Duration
	for id := uint64(1); id <= 300; id++ {
		require.NoError(b, e.Add(enginemodel.Request{ID: id, Prompt: 512, Output: 256}, 0))
	}
	id := uint64(300)
	b.ReportAllocs()
	for b.Loop() {
		now, _ = e.Begin(now)
		events = e.End(events[:0])
		for _, ev := range events {
			if ev.Last {
				id++
				_ = e.Add(enginemodel.Request{ID: id, Prompt: 512, Output: 256}, now)
			}
		}
	}
	b.ReportMetric(float64(e.Gauges().GenerationTokens)/b.Elapsed().Seconds(), "tokens/s")
}
