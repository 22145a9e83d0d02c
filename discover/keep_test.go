package discover

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wardrop-lb/wardrop/config"
)

func enginesOf(numbers ...int) []config.Engine {
	var out []config.Engine
	for _, n := range numbers {
		out = append(out, config.Engine{URL: fmt.Sprintf("http://10.0.0.%d:8000", n)})
	}
	return out
}

func someEngines(t *rapid.T, label string) []config.Engine {
	return enginesOf(rapid.SliceOfNDistinct(rapid.IntRange(1, 12), 0, 12, rapid.ID).Draw(t, label)...)
}

// However a source answers, fails and answers again: never does more than half of what
// it had go at once, unless it said so for the whole of Grace; what it names is there;
// a failure takes nothing away.
func TestKeeperNeverEmptiesAtOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var k keeper
		now := time.Unix(0, 0)
		var saidGone time.Time // since when more than half are gone, without a failure between
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 12).Draw(t, "seconds")) * time.Second)
			before := k.all()
			kept := maps.Clone(k.kept)
			switch rapid.SampledFrom([]string{"take", "take", "fail", "expire"}).Draw(t, "what") {
			case "fail":
				k.fail()
				require.Equal(t, before, k.all())
				saidGone = time.Time{}
			case "expire":
				if k.expire(now) {
					require.GreaterOrEqual(t, now.Sub(saidGone), Grace)
				}
			case "take":
				next := byAddresses(someEngines(t, "found"))
				gone := missing(kept, next)
				if 2*gone <= len(kept) {
					saidGone = time.Time{}
				} else if saidGone.IsZero() {
					saidGone = now
				}
				outcome := k.take(slices.Collect(maps.Values(next)), now)
				for at := range next {
					require.Contains(t, k.all(), at)
				}
				if outcome == outcomeHeld {
					require.Zero(t, missing(kept, k.all()))
					require.Positive(t, k.held())
				} else {
					require.Equal(t, next, k.all())
					if 2*gone > len(kept) {
						require.GreaterOrEqual(t, now.Sub(saidGone), Grace)
					}
				}
			}
		}
	})
}

// To say the same again changes nothing, in whatever order.
func TestKeeperIsIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var k keeper
		now := time.Unix(0, 0)
		k.take(someEngines(t, "first"), now)
		again := someEngines(t, "again")
		outcome := k.take(again, now)
		want := k.engines()
		slices.Reverse(again)
		require.Equal(t, outcome, k.take(again, now))
		require.Equal(t, want, k.engines())
	})
}

func TestKeeperTakesTheOneThatDoesNotDrain(t *testing.T) {
	for _, drain := range [][2]bool{{true, false}, {false, true}} {
		var k keeper
		k.take([]config.Engine{{URL: "http://a:1", Drain: drain[0]}, {URL: "HTTP://A:1/", Drain: drain[1]}}, time.Time{})
		require.Len(t, k.engines(), 1)
		require.False(t, k.engines()[0].Drain)
	}
}
