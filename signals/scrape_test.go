package signals

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// network answers requests in virtual time.
type network func(*http.Request) (*http.Response, error)

func (n network) RoundTrip(r *http.Request) (*http.Response, error) { return n(r) }

func answer(code int, body string) (*http.Response, error) {
	return &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

func vllmPage(start float64, running, tokens int) string {
	return fmt.Sprintf("process_start_time_seconds %f\nvllm:num_requests_running{engine=\"0\"} %d\n"+
		"vllm:prompt_tokens_total{engine=\"0\"} 0\nvllm:generation_tokens_total{engine=\"0\"} %d\n", start, running, tokens)
}

func targets(names ...string) []Target {
	var out []Target
	for _, n := range names {
		out = append(out, Target{Engine: n, URL: "http://" + n, Kind: "vllm"})
	}
	return out
}

func TestASlowEngineDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewScraper(t.Context(), Options{Transport: network(func(r *http.Request) (*http.Response, error) {
			if r.URL.Host == "slow" {
				<-r.Context().Done() // never answers
				return nil, r.Context().Err()
			}
			return answer(200, vllmPage(1.7e9, 3, 9))
		})})
		defer s.Close()
		require.NoError(t, s.Set(targets("slow", "a", "b")))
		time.Sleep(100 * time.Second)
		states := s.States()
		require.Len(t, states, 3)
		for _, st := range states[:2] {
			require.True(t, st.Reachable)
			require.Empty(t, st.Err)
			require.Equal(t, Some(3), st.Signal.Running)
			require.InDelta(t, 100, st.Signal.Sequence, 12, "one a second, with jitter")
			require.Less(t, time.Since(st.LastGood), 1200*time.Millisecond)
			require.Equal(t, uint64(1.7e15), st.Signal.Incarnation)
		}
		slow := states[2]
		require.Equal(t, "slow", slow.Engine)
		require.False(t, slow.Reachable)
		require.Contains(t, slow.Err, "deadline")
		require.Nil(t, slow.Signal, "never zeros")
		require.InDelta(t, 100/5, slow.Failures, 5, "it is asked less often")
	})
}

func TestFailureKeepsTheLastGoodSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var code atomic.Int64
		code.Store(200)
		s := NewScraper(t.Context(), Options{Transport: network(func(*http.Request) (*http.Response, error) {
			return answer(int(code.Load()), vllmPage(1.7e9, 3, 9))
		})})
		defer s.Close()
		require.NoError(t, s.Set(targets("a")))
		time.Sleep(10 * time.Second)
		good := s.States()[0]

		code.Store(500)
		time.Sleep(time.Minute)
		bad := s.States()[0]
		require.True(t, bad.Reachable, "it answers, though not what was asked for")
		require.Equal(t, "/metrics: 500 Internal Server Error", bad.Err)
		require.Positive(t, bad.Failures)
		require.Equal(t, Some(3), bad.Signal.Running)
		require.GreaterOrEqual(t, time.Since(bad.LastGood), 59*time.Second)

		code.Store(200)
		time.Sleep(6 * time.Second)
		again := s.States()[0]
		require.Empty(t, again.Err)
		require.Zero(t, again.Failures)
		require.Equal(t, good.Signal.Incarnation, again.Signal.Incarnation)
		require.Greater(t, again.Signal.Sequence, good.Signal.Sequence)
	})
}

func TestIncarnations(t *testing.T) {
	p, err := newPoller(targets("a")[0])
	require.NoError(t, err)
	now := time.Unix(1.8e9, 0)
	next := func(start string, tokens float64) uint64 {
		now = now.Add(time.Second)
		p.state.Signal = p.signal(Reading{Start: start, Values: Values{GenerationTokens: Some(tokens)}}, now)
		return p.state.Signal.Incarnation
	}
	first := next("1700000000", 100)
	require.Equal(t, uint64(1.7e15), first, "the engine's own start, the same for every reader")
	require.Equal(t, first, next("1700000000", 100))
	restarted := next("1700005000", 7)
	require.Equal(t, uint64(1.700005e15), restarted)
	reset := next("1700005000", 3)
	require.Greater(t, reset, restarted, "counters that fall")
	require.Equal(t, reset, next("1700005000", 4))
	mark := next("12345", 5)
	require.Equal(t, uint64(now.UnixMicro()), mark, "a start that is no time")
	require.Equal(t, mark, next("12345", 6))
	require.Greater(t, next("12", 6), mark)
	require.Greater(t, next("", 6), mark)
	require.Equal(t, uint64(9), p.state.Signal.Sequence)
}

func TestTheSetChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		asked := map[string]int{}
		s := NewScraper(t.Context(), Options{Transport: network(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			asked[r.URL.String()]++
			mu.Unlock()
			return answer(200, vllmPage(1.7e9, 1, 1))
		})})
		defer s.Close()
		none := Target{Engine: "quiet", Kind: KindNone}
		require.NoError(t, s.Set(append(targets("a", "b"), none)))
		time.Sleep(10 * time.Second)
		require.Len(t, s.Collect(), 2, "an engine that exports nothing has no state")
		require.Empty(t, s.Collect(), "nothing new since")

		moved := Target{Engine: "b", URL: "http://elsewhere/base/", Kind: "vllm"}
		require.NoError(t, s.Set([]Target{targets("a")[0], moved}))
		require.Len(t, s.States(), 1, "the moved engine is not known yet")
		time.Sleep(10 * time.Second)
		states := s.States()
		require.InDelta(t, 20, states[0].Signal.Sequence, 3, "the one that stayed was read on")
		require.InDelta(t, 10, states[1].Signal.Sequence, 2)

		err := s.Set([]Target{{Engine: "a", URL: "ftp://a", Kind: "vllm"}, {Engine: "c", Kind: "x"}, {Kind: "none"}, none, none})
		for _, want := range []string{`engine "a": "ftp://a" is not an http URL`, `unknown engine kind "x"`, "no name", "there twice"} {
			require.ErrorContains(t, err, want)
		}
		time.Sleep(5 * time.Second)
		require.Len(t, s.Collect(), 2, "a wrong set changes nothing")

		require.NoError(t, s.Set(nil))
		mu.Lock()
		clear(asked)
		mu.Unlock()
		time.Sleep(10 * time.Second)
		require.Empty(t, asked)
		require.Empty(t, s.States())
	})
}

func TestReportGetsEveryAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []State
		refused := errors.New("refused")
		s := NewScraper(t.Context(), Options{
			Report: func(st State) { got = append(got, st) },
			Transport: network(func(*http.Request) (*http.Response, error) {
				if len(got)%2 == 1 {
					return nil, refused
				}
				return answer(200, vllmPage(1.7e9, len(got), 1))
			}),
		})
		require.NoError(t, s.Set(targets("a")))
		time.Sleep(20 * time.Second)
		s.Close()
		require.Greater(t, len(got), 10)
		for i, st := range got {
			require.Equal(t, i%2 == 0, st.Err == "")
			require.Equal(t, i%2 == 0, st.Reachable)
			require.Equal(t, Some(float64(i/2*2)), st.Signal.Running)
		}
		require.NoError(t, s.Set(targets("b")), "after the end nothing starts")
		time.Sleep(10 * time.Second)
	})
}

func TestScraperEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := NewScraper(ctx, Options{Transport: network(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})})
		require.NoError(t, s.Set(targets("a", "b")))
		time.Sleep(time.Second)
		cancel()
		synctest.Wait() // the bubble must be empty when the test returns
		s.Close()
	})
}

func TestPauseBacksOff(t *testing.T) {
	s := &Scraper{options: Options{Interval: time.Second, Backoff: 10 * time.Second}.withDefaults()}
	for failures, want := range map[int]time.Duration{0: time.Second, 1: 2 * time.Second, 2: 4 * time.Second, 4: 10 * time.Second, 1000: 10 * time.Second} {
		for range 100 {
			got := s.pause(failures, 0)
			require.InDelta(t, want, got, float64(want)/10+1)
		}
	}
	require.Equal(t, time.Second/5, s.pause(1, time.Minute))
	require.Equal(t, 4500*time.Millisecond, s.pause(0, 500*time.Millisecond), "a tenth of the time")
	require.Equal(t, 10*time.Second, s.pause(0, time.Minute), "but not out of sight")
}

func TestPagesOverRealConnections(t *testing.T) {
	page := vllmPage(1.7e9, 3, 9)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/endless/metrics":
			_, _ = io.WriteString(w, page)
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat("other_series 1\n", 10000)); err != nil {
					return
				}
			}
		case "/broken/metrics":
			_, _ = io.WriteString(w, page+"# TYPE x gauge\nvllm:num_requests_waiting{engine=\"0\"} 1")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case "/moved/metrics":
			http.Redirect(w, r, "/endless/metrics", http.StatusFound)
		}
	}))
	defer server.Close()
	s := NewScraper(t.Context(), Options{})
	defer s.Close()
	for _, c := range []struct {
		path      string
		truncated bool
		status    int
	}{{"/endless", true, 0}, {"/broken", true, 0}, {"/moved", false, 302}} {
		a, err := get(t.Context(), s.client, server.URL+c.path+"/metrics", "/metrics")
		var status *StatusError
		if errors.As(err, &status) {
			require.Equal(t, c.status, status.Code)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.truncated, a.Truncated)
		require.LessOrEqual(t, len(a.Body), maxPage)
		r, err := (vllm{"/metrics"}).Read(t.Context(), pages{"/metrics": a}.get)
		require.NoError(t, err)
		require.Equal(t, Some(3), r.Running)
		require.False(t, r.Waiting.Known)
	}
}

// TestInBand: what an engine says in an answer is newer than its reading, and a reading
// that fails is no reason to forget it.
func TestInBandOutlivesFailures(t *testing.T) {
	var down atomic.Bool
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, "vllm:num_requests_running 3\nvllm:kv_cache_usage_perc 0.1\n")
	}))
	defer engine.Close()
	read := make(chan State, 100)
	s := NewScraper(t.Context(), Options{Interval: 10 * time.Millisecond, Timeout: 5 * time.Second, Report: func(st State) { read <- st }})
	defer s.Close()
	require.False(t, s.InBand("e", Values{KVUsage: Some(0.9)}, time.Now()), "not in the set")
	require.NoError(t, s.Set([]Target{{Engine: "e", URL: engine.URL, Kind: "vllm"}}))
	<-read
	down.Store(true)
	for st := range read {
		if st.Failures > 0 {
			break
		}
	}
	old := s.States()[0].Signal
	require.False(t, s.InBand("e", Values{KVUsage: Some(0.9)}, old.Time.Add(-time.Second)), "older than the reading")
	require.True(t, s.InBand("e", Values{KVUsage: Some(0.9)}, time.Now()))
	failures := (<-read).Failures
	for (<-read).Failures < failures+2 {
	}
	st := s.States()[0]
	require.Equal(t, []float64{3, 0.9}, []float64{st.Signal.Running.Value, st.Signal.KVUsage.Value})
	require.Equal(t, 0.1, old.KVUsage.Value, "what was given is not changed")
	require.Equal(t, old.Sequence, st.Signal.Sequence)
	down.Store(false)
	for (<-read).Failures > 0 {
	}
	require.Equal(t, 0.1, s.States()[0].Signal.KVUsage.Value)
}
