package signals

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestField_33_ReadingBurdensNoEngine: however long an engine takes to answer, it
// is asked one thing at a time and not again at once. The number is the case's in
// the project's catalogue of field failures, docs/failures.md.
func TestField_33_ReadingBurdensNoEngine(t *testing.T) {
	for _, takes := range []time.Duration{0, 900 * time.Millisecond, 3 * time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			var asked, now, most atomic.Int64
			s := NewScraper(t.Context(), Options{Transport: network(func(r *http.Request) (*http.Response, error) {
				asked.Add(1)
				most.Store(max(most.Load(), now.Add(1)))
				defer now.Add(-1)
				select {
				case <-time.After(takes):
				case <-r.Context().Done():
					return nil, r.Context().Err()
				}
				return answer(200, vllmPage(1.7e9, 1, 1))
			})})
			defer s.Close()
			for range 100 {
				require.NoError(t, s.Set(targets("a")), "being told again of the same engine reads it no sooner")
				time.Sleep(time.Second)
			}
			require.Equal(t, int64(1), most.Load())
			require.LessOrEqual(t, asked.Load(), int64(112), "one a second, with jitter")
			require.Greater(t, asked.Load(), int64(10))
		})
	}
}
