package enginemodel_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/enginemodel"
)

func prefixed(id uint64, prompt, output int, prefix ...enginemodel.Block) enginemodel.Request {
	return enginemodel.Request{ID: id, Prompt: prompt, Output: output, Prefix: prefix}
}

func block(hash uint64, end int) enginemodel.Block { return enginemodel.Block{Hash: hash, End: end} }

// firsts runs the engine dry and gives the first tokens by request.
func firsts(e *enginemodel.Engine, now time.Duration) (time.Duration, map[uint64]enginemodel.Event) {
	got := map[uint64]enginemodel.Event{}
	for {
		until, working := e.Begin(now)
		if !working && until == enginemodel.Never {
			return now, got
		}
		now = until
		for _, ev := range e.End(nil) {
			if ev.First() {
				got[ev.ID] = ev
			}
		}
	}
}

func TestAPrefixIsComputedOnce(t *testing.T) {
	e := engine(t, small())
	require.NoError(t, e.Add(prefixed(1, 40, 1, block(10, 16), block(11, 32)), 0))
	now, got := firsts(e, 0)
	require.Zero(t, got[1].Cached)
	require.Equal(t, 51*time.Millisecond, now)
	require.Zero(t, e.Gauges().KVUsage, "what nobody uses is not in use")

	require.NoError(t, e.Add(prefixed(2, 40, 1, block(10, 16), block(11, 32)), now))
	later, got := firsts(e, now)
	require.Equal(t, 32, got[2].Cached)
	require.Equal(t, 19*time.Millisecond, later-now, "8 tokens of 40")

	require.NoError(t, e.Add(prefixed(3, 40, 1, block(10, 16), block(12, 32)), later))
	_, got = firsts(e, later)
	require.Equal(t, 16, got[3].Cached, "only the beginning is the same")

	g := e.Gauges()
	require.Equal(t, uint64(120), g.PrefixQueries)
	require.Equal(t, uint64(48), g.PrefixHits)
	require.Equal(t, uint64(120), g.PromptTokens)
}

func TestTheLastPromptTokenIsAlwaysComputed(t *testing.T) {
	e := engine(t, small())
	var now time.Duration
	for id := uint64(1); id <= 2; id++ {
		require.NoError(t, e.Add(prefixed(id, 32, 1, block(10, 16), block(11, 32)), now))
		var got map[uint64]enginemodel.Event
		now, got = firsts(e, now)
		require.Equal(t, 16*int(id-1), got[id].Cached, "the block with the last token is computed whole")
	}
}

func TestSharedBlocksCountOnce(t *testing.T) {
	e := engine(t, small())
	for id := uint64(1); id <= 2; id++ {
		require.NoError(t, e.Add(prefixed(id, 40, 4, block(10, 32)), 0))
	}
	_, events := step(t, e, 0)
	require.Len(t, events, 2, "the second needs 8 tokens of the step, beside the 40 of the first")
	require.Equal(t, 32, events[1].Cached)
	require.InDelta(t, (2+1+1)/32.0, e.Gauges().KVUsage, 1e-9)
	require.True(t, e.Cancel(1))
	require.InDelta(t, (2+1)/32.0, e.Gauges().KVUsage, 1e-9)
}

func TestTheLeastRecentlyUsedPrefixGivesWay(t *testing.T) {
	p := small()
	p.Blocks, p.MaxBatch = 8, 1
	e := engine(t, p)
	var now time.Duration
	ask := func(id, hash uint64, prompt int) int {
		t.Helper()
		require.NoError(t, e.Add(prefixed(id, prompt, 1, block(hash, 32), block(hash+1, 48)), now))
		var got map[uint64]enginemodel.Event
		now, got = firsts(e, now)
		return got[id].Cached
	}
	require.Zero(t, ask(1, 100, 50))
	require.Zero(t, ask(2, 200, 50), "6 blocks are in the cache now, 2 are empty")
	require.Equal(t, 48, ask(3, 100, 50), "used again")
	require.Zero(t, ask(4, 300, 50), "4 blocks: two are empty, 200's go")
	require.Equal(t, 48, ask(5, 100, 50))
	require.Zero(t, ask(6, 200, 50), "which pushes out 300's")
	require.Equal(t, 48, ask(7, 100, 50))
}

func TestAnUnfinishedPromptLeavesWhatWasComputed(t *testing.T) {
	e := engine(t, small())
	prefix := []enginemodel.Block{block(10, 32), block(11, 64), block(12, 96), block(13, 128)}
	require.NoError(t, e.Add(prefixed(1, 130, 1, prefix...), 0))
	now, _ := step(t, e, 0)
	e.Begin(now)
	require.True(t, e.Cancel(1), "64 tokens are computed, 64 more in the step under way")
	e.End(nil)
	require.Zero(t, e.Gauges().KVUsage)
	require.NoError(t, e.Add(prefixed(2, 200, 1, prefix...), now))
	now, _ = step(t, e, now)
	require.True(t, e.Cancel(2))
	require.NoError(t, e.Add(prefixed(3, 200, 1, append(prefix, block(14, 200))...), now))
	_, got := firsts(e, now)
	require.Equal(t, 128, got[3].Cached)
}

func TestNoPrefixCache(t *testing.T) {
	p := small()
	p.NoPrefixCache = true
	e := engine(t, p)
	for id := uint64(1); id <= 2; id++ {
		require.NoError(t, e.Add(prefixed(id, 20, 1, block(10, 16)), 0))
	}
	now, got := firsts(e, 0)
	require.Zero(t, got[2].Cached)
	require.Equal(t, 52*time.Millisecond, now)
	require.Zero(t, e.Gauges().PrefixQueries)
}

func TestBadPrefixesAreRefused(t *testing.T) {
	e := engine(t, small())
	require.ErrorIs(t, e.Add(prefixed(1, 20, 1, block(10, 21)), 0), enginemodel.ErrPrefix)
	require.ErrorIs(t, e.Add(prefixed(1, 20, 1, block(10, 0)), 0), enginemodel.ErrPrefix)
	require.ErrorIs(t, e.Add(prefixed(1, 20, 1, block(10, 8), block(11, 8)), 0), enginemodel.ErrPrefix)
	require.NoError(t, e.Add(prefixed(1, 20, 1, block(10, 8), block(11, 9)), 0))
}
