package proxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
)

func TestBytesPassUnmodified(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	answer := make([]byte, 100_000)
	for i := range answer {
		answer[i] = byte(rng.Uint32())
	}
	type seen struct {
		body   []byte
		uri    string
		header http.Header
	}
	got := make(chan seen, 1)
	h := newHarness(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- seen{b, r.RequestURI, r.Header}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", fmt.Sprint(len(answer)))
		w.Header().Add("X-Engine-Says", "a")
		w.Header().Add("X-Engine-Says", "b")
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write(answer)
	})
	body := "{ \"model\" :\t\"m\",\n \"x\": \"\\u0041\\/\", \"messages\": [ ] , \"n\": 1.50e+01 }\n"
	req, err := http.NewRequest(http.MethodPost, h.url+"/v1/completions?a=b%2Fc&a=d", strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer secret")
	req.Header.Set("Connection", "X-Hop")
	req.Header.Set("X-Hop", "gone")
	resp, err := h.client.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	s := <-got
	require.Equal(t, body, string(s.body))
	require.Equal(t, "/v1/completions?a=b%2Fc&a=d", s.uri)
	require.Equal(t, "Bearer secret", s.header.Get("Authorization"))
	require.Empty(t, s.header.Get("X-Hop"), "a header of the connection stays on it")
	require.Equal(t, "127.0.0.1", s.header.Get("X-Forwarded-For"))
	require.Equal(t, http.StatusTeapot, resp.StatusCode)
	require.Equal(t, []string{"a", "b"}, resp.Header.Values("X-Engine-Says"))
	require.Equal(t, int64(len(answer)), resp.ContentLength)
	require.True(t, bytes.Equal(answer, []byte(h.read(resp))))
	require.Equal(t, "e0", resp.Header.Get("X-Wardrop-Engine"))
	h.requireIdle()
}

// TestStreamPassesTokenByToken: each token must reach the client before the
// engine makes the next one.
func TestStreamPassesTokenByToken(t *testing.T) {
	step := make(chan struct{})
	h := newHarness(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 5 {
			fmt.Fprintf(w, "data: {\"token\":%d}\n\n", i)
			w.(http.Flusher).Flush()
			<-step
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	})
	resp := h.post(`{"model":"m","stream":true}`)
	r := bufio.NewReader(resp.Body)
	for i := range 5 {
		line, err := r.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("data: {\"token\":%d}\n", i), line)
		_, _ = r.ReadString('\n')
		step <- struct{}{}
	}
	rest, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, "data: [DONE]\n\n", string(rest))
	h.requireIdle()
}

func TestCancellationReachesTheEngine(t *testing.T) {
	for name, firstByte := range map[string]bool{"in prefill": false, "in mid-stream": true} {
		t.Run(name, func(t *testing.T) {
			arrived, gone := make(chan struct{}), make(chan struct{})
			h := newHarness(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if firstByte {
					_, _ = io.WriteString(w, "data: x\n\n")
					w.(http.Flusher).Flush()
				}
				close(arrived)
				<-r.Context().Done()
				close(gone)
			})
			ctx, cancel := context.WithCancel(t.Context())
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url+"/v1/chat/completions", strings.NewReader(chat))
			require.NoError(t, err)
			var wg sync.WaitGroup
			wg.Go(func() {
				if resp, err := h.client.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			})
			<-arrived
			cancel()
			select {
			case <-gone:
			case <-time.After(5 * time.Second):
				t.Fatal("the engine was not told")
			}
			wg.Wait()
			h.requireIdle()
			require.Zero(t, h.plane.Stats()[0].Failed, "a client that leaves says nothing about the engine")
		})
	}
}

func TestSameKeySameEngine(t *testing.T) {
	h := newHarness(t, answers("a"), answers("b"), answers("c"))
	for name, header := range map[string][]string{"session": {"X-Session-Id", "s"}, "prefix": nil} {
		t.Run(name, func(t *testing.T) {
			engine := ""
			for range 20 {
				resp := h.post(chat, header...)
				h.read(resp)
				got := resp.Header.Get("X-Wardrop-Engine")
				require.True(t, engine == "" || engine == got)
				engine = got
			}
		})
	}
}

func TestNoKeySpreads(t *testing.T) {
	h := newHarness(t, answers("a"), answers("b"))
	seen := map[string]int{}
	for range 100 {
		resp, err := h.client.Post(h.url+"/v1/embeddings", "application/json", strings.NewReader(`{"model":"m","input":"x"}`))
		require.NoError(t, err)
		h.read(resp)
		_ = resp.Body.Close()
		seen[resp.Header.Get("X-Wardrop-Engine")]++
	}
	require.Greater(t, seen["e0"], 20)
	require.Greater(t, seen["e1"], 20)
}

func TestBadInput(t *testing.T) {
	h := newHarnessWith(t, config.Proxy{MaxBody: 100}, answers(""))
	big := `{"model":"m","x":"` + strings.Repeat("x", 200) + `"}`
	h.wantError(h.post(big), http.StatusRequestEntityTooLarge, "body_too_large")

	chunked, err := http.NewRequest(http.MethodPost, h.url+"/v1/chat/completions", io.MultiReader(strings.NewReader(big)))
	require.NoError(t, err)
	resp, err := h.client.Do(chunked)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	h.wantError(resp, http.StatusRequestEntityTooLarge, "body_too_large")

	h.wantError(h.post("hello"), http.StatusBadRequest, "invalid_body")
	h.wantError(h.post(`{"model":"m","model":"n"}`), http.StatusBadRequest, "invalid_body")
	h.wantError(h.post(`{"messages":[]}`), http.StatusBadRequest, "invalid_body")
	h.wantError(h.post(`{"model":"ghost"}`), http.StatusNotFound, "model_not_found")
	h.wantError(h.post(chat, "X-Priority", "highest"), http.StatusBadRequest, "invalid_priority")
	require.Equal(t, http.StatusOK, h.post(chat, "X-Priority", "batch").StatusCode)

	resp, err = h.client.Post(h.url+"/v1/audio", "application/json", strings.NewReader(chat))
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	h.wantError(resp, http.StatusNotFound, "unknown_url")
	resp, err = h.client.Get(h.url + "/v1/embeddings")
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	h.wantError(resp, http.StatusMethodNotAllowed, "method_not_allowed")
	require.Zero(t, h.plane.Stats()[0].Failed)
}

func TestNoSnapshotYet(t *testing.T) {
	front := httptest.NewServer(newPlane(t, config.Proxy{}).Handler())
	defer front.Close()
	h := &harness{t: t, url: front.URL, client: front.Client()}
	h.wantError(h.post(chat), http.StatusServiceUnavailable, "no_snapshot")
	resp, err := h.client.Get(h.url + "/v1/models")
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	h.wantError(resp, http.StatusServiceUnavailable, "no_snapshot")
}

func TestShedsWhatThePlanSays(t *testing.T) {
	h := newHarness(t, answers("x"))
	s := evenSnapshot(h.engines[0].URL)
	s.Rows[0].Shed[fleet.Batch] = 0.5
	require.NoError(t, h.plane.apply(s))
	shed := 0
	for range 400 {
		resp := h.post(chat, "X-Priority", "batch")
		if resp.StatusCode == http.StatusTooManyRequests {
			shed++
			require.NotEmpty(t, resp.Header.Get("Retry-After"))
			h.wantError(resp, http.StatusTooManyRequests, "shed")
		}
		h.read(resp)
		require.Equal(t, http.StatusOK, h.post(chat, "X-Priority", "critical").StatusCode)
	}
	require.InDelta(t, 200, shed, 60)
	demand := &h.plane.memory.models["m"].demand
	require.Equal(t, uint64(400), demand[fleet.Batch].total.Load(), "what is shed counts as demand, else shedding hides its cause")
	for range 20 {
		a, b := h.post(chat, "X-Priority", "batch", "X-Request-Id", "r1"), h.post(chat, "X-Priority", "batch", "X-Request-Id", "r1")
		require.Equal(t, a.StatusCode, b.StatusCode, "the same request id draws the same lot")
	}
}

// TestShedLooksNoFurther: what is refused anyway is not read for what may be wrong
// with it; what is served is. Where the model stands in the body, and whether it is
// an alias that names it, makes no difference.
func TestShedLooksNoFurther(t *testing.T) {
	h := newHarness(t, answers("x"))
	h.plane.aliases = newAliases([]config.Alias{{Name: "other", To: map[string]float64{"m": 1}}})
	s := evenSnapshot(h.engines[0].URL)
	s.Rows[0].Shed[fleet.Batch] = 1
	require.NoError(t, h.plane.apply(s))
	model := h.plane.memory.models["m"]
	bodies := []string{`{"model":"m","model":"n"}`, `{"model":"m","x":[1,`, `{"x":1,"model":"m"}`, `{"x":1,"model":"other"}`, chat}
	for i, body := range bodies {
		message := h.wantError(h.post(body, "X-Priority", "batch"), http.StatusTooManyRequests, "shed")
		require.Equal(t, "demand for \"m\" exceeds capacity: 100% of batch requests are refused", message)
		require.Equal(t, uint64(i+1), model.demand[fleet.Batch].total.Load())
		require.Equal(t, uint64(i+1), model.shed[fleet.Batch].total.Load())
	}
	for _, body := range bodies[:2] {
		h.wantError(h.post(body), http.StatusBadRequest, "invalid_body")
	}
	h.wantError(h.post(`{"x":[1,`, "X-Priority", "batch"), http.StatusBadRequest, "invalid_body")
	for _, body := range bodies[2:] {
		require.Equal(t, http.StatusOK, h.post(body).StatusCode)
	}
	require.Equal(t, float64(len(bodies)), testutil.ToFloat64(h.plane.metrics.refused.WithLabelValues("shed")))
}

func TestModels(t *testing.T) {
	h := newHarness(t, answers("x"))
	resp, err := h.client.Get(h.url + "/v1/models")
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	var list struct {
		Object string
		Data   []struct{ ID, Object string }
	}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&list))
	require.Equal(t, "list", list.Object)
	require.Len(t, list.Data, 1)
	require.Equal(t, "m", list.Data[0].ID)
	require.Equal(t, "model", list.Data[0].Object)
}

// TestEarlyAnswersAreNotCut: an engine may answer before it has read the body;
// a proxy that forwards while reading cuts such answers.
func TestEarlyAnswersAreNotCut(t *testing.T) {
	h := newHarness(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error":"no"}`)
	})
	body := `{"model":"m","x":"` + strings.Repeat("x", 500_000) + `"}`
	for range 50 {
		resp := h.post(body)
		require.Equal(t, http.StatusUnauthorized, resp.StatusCode)
		require.Equal(t, `{"error":"no"}`, h.read(resp))
	}
}

func TestFirstByteTimeout(t *testing.T) {
	release := make(chan struct{})
	h := newHarnessWith(t, config.Proxy{RetryBudget: 1, FirstByteTimeout: config.Duration(20 * time.Millisecond)},
		func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			select {
			case <-release:
			case <-r.Context().Done():
			}
		})
	defer close(release)
	h.wantError(h.post(chat), http.StatusBadGateway, "engine_failed")
	h.requireIdle()
}

func TestManyAtOnceLeaveNothingBehind(t *testing.T) {
	h := newHarness(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch len(body) % 4 {
		case 0:
			cut(w)
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			_, _ = w.Write(body)
		}
	}, answers("ok"), answers("ok"))
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range 40 {
				body := `{"model":"m","x":"` + strings.Repeat("y", (i*j)%50) + `"}`
				resp, err := h.client.Post(h.url+"/v1/completions", "application/json", strings.NewReader(body))
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}
		})
	}
	wg.Wait()
	h.requireIdle()
	require.Zero(t, h.plane.memory.flights.Get("m", "e0").Requests())
}
