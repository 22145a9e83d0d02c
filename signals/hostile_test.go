package signals

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// hostile serves a page and gives the state after one reading of it over real
// sockets.
func hostile(t *testing.T, o Options, serve http.HandlerFunc) State {
	t.Helper()
	server := httptest.NewServer(serve)
	defer server.Close()
	return attempt(t, o, Target{Engine: "e", URL: server.URL, Kind: "vllm"})
}

// attempt gives the state after the first reading of a target.
func attempt(t *testing.T, o Options, target Target) State {
	t.Helper()
	done := make(chan State, 1)
	o.Report = func(st State) {
		select {
		case done <- st:
		default:
		}
	}
	o.Interval = min(o.withDefaults().Interval, 40*time.Millisecond) // the first reading comes at once
	s := NewScraper(t.Context(), o)
	defer s.Close()
	require.NoError(t, s.Set([]Target{target}))
	select {
	case st := <-done:
		require.True(t, utf8.ValidString(st.Err))
		require.LessOrEqual(t, len(st.Err), maxError+3)
		return st
	case <-time.After(30 * time.Second):
		t.Fatal("no attempt ended")
		return State{}
	}
}

var longTime = Options{Timeout: 20 * time.Second}

// The page's beginning is good, and each of these goes on in a way of its own.
func TestPagesWithoutEndAreCutOff(t *testing.T) {
	good := vllmPage(1.7e9, 3, 9) + "# next\n"
	line := strings.Repeat("vllm:request_success_total{finished_reason=\"stop\"} 1\n", 1000)
	for name, write := range map[string]func(io.Writer) error{
		"100 MB": func(w io.Writer) error {
			for n := 0; n < 100<<20; n += len(line) {
				if _, err := io.WriteString(w, line); err != nil {
					return err
				}
			}
			return nil
		},
		"one line of 100 MB": func(w io.Writer) error {
			for range 100 {
				if _, err := w.Write(bytes.Repeat([]byte("x"), 1<<20)); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		var sent atomic.Int64
		st := hostile(t, longTime, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, good)
			_ = write(writerFunc(func(b []byte) (int, error) { sent.Add(int64(len(b))); return w.Write(b) }))
		})
		require.Empty(t, st.Err, name)
		require.Equal(t, Some(3), st.Signal.Running, name)
		require.Equal(t, uint64(1), st.Faults.Truncated, name)
		require.Less(t, sent.Load(), int64(60<<20), "the connection is closed, not drained: %s", name)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// stalling is a page that goes no further until the reading's time is over.
type stalling struct {
	io.Reader
	ctx context.Context
}

func (s *stalling) Read(b []byte) (int, error) {
	if n, _ := s.Reader.Read(b); n > 0 {
		return n, nil
	}
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

func (s *stalling) Close() error { return nil }

func TestAPageThatNeverEndsIsTakenAsFarAsItCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := attempt(t, Options{Timeout: 3 * time.Second, Transport: network(func(r *http.Request) (*http.Response, error) {
			page := strings.NewReader(vllmPage(1.7e9, 3, 9) + "# next\nvllm:num_requests_waiting{engine=\"0\"} 4")
			return &http.Response{StatusCode: 200, Body: &stalling{page, r.Context()}}, nil
		})}, targets("e")[0])
		require.Empty(t, st.Err)
		require.Equal(t, Some(3), st.Signal.Running)
		require.False(t, st.Signal.Waiting.Known, "it may be 40")
		require.Equal(t, uint64(1), st.Faults.Truncated)
	})
}

// TestGzipBomb: 1 GB of zeros packed into 1 MB is unpacked no further than a page
// may be long.
func TestGzipBomb(t *testing.T) {
	pack := func(page []byte) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, err := z.Write(page)
		require.NoError(t, err)
		require.NoError(t, z.Close())
		return b.Bytes()
	}
	// What is packed in several goes unpacks to all of them.
	bomb := append(pack([]byte(vllmPage(1.7e9, 3, 9)+"# next\n")), bytes.Repeat(pack(make([]byte, 1<<20)), 1024)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	st := hostile(t, longTime, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
		}
		_, _ = w.Write(bomb)
	})
	runtime.ReadMemStats(&after)
	require.Empty(t, st.Err)
	require.Equal(t, Some(3), st.Signal.Running)
	require.Equal(t, uint64(1), st.Faults.Truncated)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20), "bytes allocated for all of it")
}

func TestRedirectsAreRefusedCountedAndShown(t *testing.T) {
	var elsewhere atomic.Int64
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer target.Close()
	st := hostile(t, longTime, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, target.URL+"/\xff"+strings.Repeat("x", 3000), http.StatusTemporaryRedirect)
	})
	require.Equal(t, "/metrics: 307 Temporary Redirect is not followed", st.Err)
	require.True(t, st.Reachable)
	require.Equal(t, Faults{Failed: 1, Redirects: 1}, st.Faults)
	require.Nil(t, st.Signal)
	require.Zero(t, elsewhere.Load())
}

func TestAWrongCertificateIsRefusedAndShown(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		t.Error("nothing may be asked of it")
	}))
	server.Config.ErrorLog = nil
	server.StartTLS()
	defer server.Close()
	st := attempt(t, longTime, Target{Engine: "e", URL: server.URL, Kind: "vllm"})
	require.False(t, st.Reachable)
	require.Contains(t, st.Err, "certificate")
	require.Equal(t, Faults{Failed: 1}, st.Faults)
}

func TestHeadersWithoutEndAreRefused(t *testing.T) {
	st := hostile(t, longTime, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X", strings.Repeat("x", 1<<20))
		_, _ = io.WriteString(w, vllmPage(1.7e9, 3, 9))
	})
	require.NotEmpty(t, st.Err)
	require.Nil(t, st.Signal)
}

// TestTheTextOfAnErrorIsBounded: it goes into messages that must be UTF-8 and
// have a limit.
func TestTheTextOfAnErrorIsBounded(t *testing.T) {
	p, err := newPoller(targets("a")[0])
	require.NoError(t, err)
	p.note(Reading{}, errors.New(strings.Repeat("\xf0\x9f\x92\xa9\xff", 1000)), true, time.Now())
	require.True(t, utf8.ValidString(p.state.Err))
	require.LessOrEqual(t, len(p.state.Err), maxError+3)
}

// TestManyLabelSets: those of a page that are looked for are bounded, and up to
// there counted right.
func TestManyLabelSets(t *testing.T) {
	page := func(n int, labels string) Answer {
		var b strings.Builder
		b.WriteString(vllmPage(1.7e9, 3, 9))
		for i := range n {
			fmt.Fprintf(&b, "vllm:num_requests_waiting{"+labels+"} 1\n", i)
		}
		return text(b.String())
	}
	for _, c := range []struct {
		n      int
		labels string
		want   Opt
	}{
		{10000, `engine="%d"`, Some(10000)},
		{10000, `engine="0",pid="%d"`, Some(1)},
		{10000, `pid="%d",adapter="a"`, Some(1)},
		{maxSamples, `engine="%d"`, Opt{}}, // some of them are not seen
	} {
		r, err := read(t, "vllm", pages{"/metrics": page(c.n, c.labels)})
		require.NoError(t, err)
		require.Equal(t, c.want, r.Waiting, c)
		require.Equal(t, Some(3), r.Running)
	}
	sets := page(10000, `engine="0",priority="%d"`)
	r, err := read(t, "sglang", pages{"/metrics": text(strings.ReplaceAll(string(sets.Body), "vllm:num_requests_waiting", "sglang:num_queue_reqs"))})
	require.NoError(t, err)
	require.Equal(t, Some(10000), r.Waiting, "parts without a whole add up")
}

// TestHostileModelNames: whatever a label's value is, a series is that of its
// engine and no other line is misread for it.
func TestHostileModelNames(t *testing.T) {
	names := []string{
		`a"} 99`, "a\nvllm:num_requests_running 99", `\`, `\\"`, "{}", `"}{"`, ",=,", "\x00\xff", "é", strings.Repeat("x", 1<<20),
		strings.Repeat(`"\`+"\n", 1<<16), `engine="9"`, `,pid="1`,
	}
	check := func(t require.TestingT, name string) {
		escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(name)
		page := fmt.Sprintf("vllm:num_requests_running{model_name=\"%s\",engine=\"0\"} 2\nvllm:num_requests_running{model_name=\"%[1]s\",engine=\"1\"} 5\n"+
			"vllm:cache_config_info{model_name=\"%[1]s\",engine=\"0\",num_gpu_blocks=\"10\",block_size=\"16\"} 1\n", escaped)
		f := vllmTable.find(Page{Body: []byte(page)})
		require.Len(t, f.samples, 3)
		require.Equal(t, name, f.samples[0].label("model_name"))
		require.Equal(t, Some(7), f.sum(f.terms[nRunning]))
		require.Equal(t, Some(160), f.vllmCacheTokens(f.extra[0]))
	}
	for _, name := range names {
		check(t, name)
	}
	rapid.Check(t, func(t *rapid.T) { check(t, rapid.String().Draw(t, "name")) })
}

// TestGarbageBetweenLinesChangesNothing: one bad line never loses the page.
func TestGarbageBetweenLinesChangesNothing(t *testing.T) {
	clean := string(golden(t, "sglang_dp2.txt").Body)
	want, err := read(t, "sglang", pages{"/metrics": text(clean)})
	require.NoError(t, err)
	garbage := []string{
		"<html><body>502</body></html>", `{"a":[1,2]}`, "}{", "# TYPE sglang:num_queue_reqs gauge", "# TYPE", "#", "\x00\x01", "sglang:fwd_occupancy NaN",
		"sglang:utilization{x=\"", "nan", "-nan", "\r", strings.Repeat("y", 100000), "sglang:num_queue_reqs_more 9", "sglang:num_queue_req 9", `"sglang:num_queue_reqs" 9`,
	}
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		ending := rapid.SampledFrom([]string{"\n", "\r\n", "  \n"}).Draw(t, "ending")
		for line := range strings.SplitSeq(strings.TrimSpace(clean), "\n") {
			if rapid.IntRange(0, 9).Draw(t, "here") == 0 {
				b.WriteString(rapid.SampledFrom(garbage).Draw(t, "garbage") + ending)
			}
			b.WriteString(line + ending)
		}
		body := b.String()
		if rapid.Bool().Draw(t, "no last newline") {
			body = strings.TrimRight(body, "\r\n ")
		}
		a, err := NewAdapter(Target{Kind: "sglang"})
		require.NoError(t, err)
		r, err := a.Read(context.Background(), pages{"/metrics": text(body)}.get)
		require.NoError(t, err)
		require.Equal(t, want, r)
	})
}

// TestAPageWithOneSeriesSpoiltSaysSo and loses only what that series was for.
func TestAPageWithOneSeriesSpoiltSaysSo(t *testing.T) {
	body := string(golden(t, "vllm_dp2.txt").Body)
	spoil := func(from, to string) Reading {
		require.Contains(t, body, from)
		r, err := read(t, "vllm", pages{"/metrics": text(strings.Replace(body, from, to, 1))})
		require.NoError(t, err)
		require.Equal(t, 1, r.Spoilt)
		return r
	}
	want, err := read(t, "vllm", pages{"/metrics": text(body)})
	require.NoError(t, err)
	for _, bad := range []string{"NaN", "-nan", "+Inf", "x", ""} {
		r := spoil(`vllm:num_preemptions_total{engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 2.0`,
			`vllm:num_preemptions_total{engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"} `+bad)
		require.False(t, r.Preemptions.Known)
		r.Preemptions, r.Spoilt = want.Preemptions, 0
		require.Equal(t, want, r)
	}
}
