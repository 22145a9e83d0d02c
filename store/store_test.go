package store

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// follow collects what Watch says.
type follow struct {
	mu   sync.Mutex
	last []Override
	seen bool
}

func followed(t *testing.T, s Store) *follow {
	f := &follow{}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		s.Watch(ctx, func(list []Override) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.last, f.seen = list, true
		})
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return f
}

func (f *follow) becomes(t *testing.T, want ...Override) {
	t.Helper()
	require.Eventually(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.last) != len(want) || !f.seen {
			return false
		}
		for i := range want {
			if f.last[i] != want[i] {
				return false
			}
		}
		return true
	}, 20*time.Second, 5*time.Millisecond, "overrides become %v", want)
}

func override(kind, subject, value string) Override {
	return Override{Kind: kind, Subject: subject, Value: value, Reason: "so", Set: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
}

// keepsOverrides holds for every store; others see what one keeps.
func keepsOverrides(t *testing.T, s Store, others ...Store) {
	views := []*follow{followed(t, s)}
	for _, o := range others {
		views = append(views, followed(t, o))
	}
	everywhere := func(want ...Override) {
		t.Helper()
		for _, v := range views {
			v.becomes(t, want...)
		}
	}
	everywhere()
	drain, policy := override("drain", "e/1", ""), override("policy", "", "static")
	require.NoError(t, s.Put(t.Context(), policy))
	require.NoError(t, s.Put(t.Context(), drain))
	everywhere(drain, policy)
	policy.Value = "optimal"
	require.NoError(t, s.Put(t.Context(), policy))
	everywhere(drain, policy)
	ok, err := s.Remove(t.Context(), drain.Key())
	require.NoError(t, err)
	require.True(t, ok)
	ok, err = s.Remove(t.Context(), drain.Key())
	require.NoError(t, err)
	require.False(t, ok)
	everywhere(policy)
	ok, err = s.Remove(t.Context(), policy.Key())
	require.NoError(t, err)
	require.True(t, ok)
	everywhere()
}

func TestMemoryEpochsGrow(t *testing.T) {
	m := &Memory{Last: 7}
	term, err := m.Lead(context.Background(), 0)
	require.NoError(t, err)
	require.Equal(t, uint64(8), term.Epoch)
	term, err = m.Lead(context.Background(), 20)
	require.NoError(t, err)
	require.Equal(t, uint64(21), term.Epoch)
	keepsOverrides(t, m)
}
