package store

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMemoryEpochsGrow(t *testing.T) {
	m := &Memory{Last: 7}
	epoch, err := m.Lead(context.Background(), 0)
	require.NoError(t, err)
	require.Equal(t, uint64(8), epoch)
	epoch, err = m.Lead(context.Background(), 20)
	require.NoError(t, err)
	require.Equal(t, uint64(21), epoch)
}

func TestEmbeddedEpochSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	for want := uint64(1); want <= 3; want++ {
		s, err := OpenEmbedded(t.Context(), dir)
		require.NoError(t, err)
		epoch, err := s.Lead(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, want, epoch)
		if want == 3 {
			epoch, err = s.Lead(t.Context(), 100)
			require.NoError(t, err)
			require.Equal(t, uint64(101), epoch)
		}
		require.NoError(t, s.Close())
	}
}

func TestEmbeddedEpochsAreNeverGivenTwice(t *testing.T) {
	s, err := OpenEmbedded(t.Context(), t.TempDir())
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	var mu sync.Mutex
	seen := map[uint64]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			epoch, err := s.Lead(t.Context(), 0)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || seen[epoch] {
				t.Errorf("epoch %d twice, or %v", epoch, err)
			}
			seen[epoch] = true
		})
	}
	wg.Wait()
}

func TestEmbeddedRefusesADirectoryThatIsAFile(t *testing.T) {
	_, err := OpenEmbedded(t.Context(), "/dev/null/x")
	require.ErrorContains(t, err, "store:")
}

// TestEmbeddedDirectoryIsHeldByOne: the second is told so at once, and may have it
// when the first has ended.
func TestEmbeddedDirectoryIsHeldByOne(t *testing.T) {
	dir := t.TempDir()
	first, err := OpenEmbedded(t.Context(), dir)
	require.NoError(t, err)
	_, err = OpenEmbedded(t.Context(), dir)
	require.EqualError(t, err, "store: another process uses "+dir)
	require.NoError(t, first.Close())
	second, err := OpenEmbedded(t.Context(), dir)
	require.NoError(t, err)
	require.NoError(t, second.Close())
}
