package testturn

import (
	"sync/atomic"
	"testing"
)

// Of many that want the turn at once one has it.
func TestTake(t *testing.T) {
	var have, had atomic.Int64
	t.Run("all", func(t *testing.T) {
		for range 8 {
			t.Run("one", func(t *testing.T) {
				t.Parallel()
				Take(t)
				if have.Add(1) != 1 {
					t.Error("two have it")
				}
				had.Add(1)
				t.Cleanup(func() { have.Add(-1) })
			})
		}
	})
	if had.Load() != 8 {
		t.Errorf("%d of 8 had it", had.Load())
	}
}
