package proxy

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
)

// Decisions by the rough table of a data plane that has just started, and by weights that age has
// taken a part of, come out the same from a file.
func TestReplayOfRoughAndAgedTables(t *testing.T) {
	h := newHarnessWith(t, config.Proxy{RetryBudget: 1}, answers(`{}`), answers(`{}`), answers(`{}`))
	p := h.plane
	s := evenSnapshot(h.engines[0].URL, h.engines[1].URL, h.engines[2].URL)
	s.Version, s.GoodFor = 2, 30*time.Second
	for i, w := range []float64{0.7, 0.2, 0.1} {
		s.Rows[0].Targets[i].Weight = w
	}
	p.ageing.restoring = true
	require.NoError(t, p.apply(s))
	p.ageing.restoring = false
	h.crowd(4, 20)
	p.age(time.Now())
	h.crowd(4, 20)
	for _, age := range []time.Duration{2 * time.Minute, 5 * time.Minute, 20 * time.Minute} {
		p.age(time.Now().Add(age))
		h.crowd(4, 20)
	}
	h.front()
	list := p.Decisions(Wanted{})
	tables := p.Tables(list)
	require.Len(t, tables, 5)
	require.True(t, tables[0].Rough)
	require.False(t, tables[1].Rough)
	aged := map[float64]bool{}
	for i := range list {
		aged[list[i].Aged] = true
	}
	require.Len(t, aged, 4)
	requireReplayed(t, p, len(list))
}

// requireReplayed makes all decisions again, of which there are that many.
func requireReplayed(t *testing.T, p *DataPlane, want int) {
	t.Helper()
	n := 0
	require.NoError(t, Replay(bytes.NewReader(exported(t, p, Wanted{})), func(r Replayed) {
		if r.Why() == nil {
			require.NoError(t, r.Err, "%+v", r.Decision)
			n++
		}
	}))
	require.Equal(t, want, n)
}

// With hedges, whose losers outlive their requests, failing engines and queues, each request is
// recorded once and can be decided again.
func TestRecordsOfHedges(t *testing.T) {
	late := func(seed uint64) http.HandlerFunc {
		engine, n := moody(seed), make(chan struct{}, 1)
		return func(w http.ResponseWriter, r *http.Request) {
			select {
			case n <- struct{}{}: // one at a time is slow
				defer func() { <-n }()
				select {
				case <-time.After(5 * time.Millisecond):
				case <-r.Context().Done():
				}
			default:
			}
			engine(w, r)
		}
	}
	h := newHarnessWith(t, config.Proxy{
		RetryBudget: 1, HedgeAfter: config.Duration(time.Millisecond), QueueTime: config.Duration(20 * time.Millisecond), QueueBytes: 1 << 20,
	}, late(1), late(2), late(3))
	s := evenSnapshot(h.engines[0].URL, h.engines[1].URL, h.engines[2].URL)
	s.Version, s.Rows[0].Utilisation = 2, 0.2
	for i := range s.Rows[0].Targets {
		s.Rows[0].Targets[i].Limit = 3
	}
	require.NoError(t, h.plane.apply(s))
	h.crowd(8, 40)
	h.front()
	h.plane.background.Wait()
	list := h.plane.Decisions(Wanted{})
	require.Len(t, list, 320)
	outcomes, again := map[string]int{}, 0
	for i := range list {
		d := &list[i]
		if len(d.Probes) > 0 && !d.Cut {
			again++
		}
		for k, a := range d.Attempts {
			outcomes[a.Outcome]++
			require.True(t, k == 0 || d.Attempts[k-1].After <= a.After, "%+v", d)
		}
		if n := len(d.Attempts); n > 0 {
			require.Equal(t, d.Picked, d.Attempts[0].Engine, "%+v", d)
		}
		require.NotEmpty(t, d.Words())
	}
	require.Positive(t, outcomes[outrun], "%v", outcomes)
	requireReplayed(t, h.plane, again)
}
