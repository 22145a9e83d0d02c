package signals

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func models(owner string) Answer {
	return text(`{"object":"list","data":[{"id":"m","object":"model","owned_by":"` + owner + `"}]}`)
}

// engines are what engines of each kind answer, as far as it matters here.
func engines(t testing.TB) map[string][]pages {
	page := func(name string) Answer { return golden(t, name) }
	return map[string][]pages{
		"vllm": {
			{"/v1/models": models("vllm"), "/version": text(`{"version":"0.29.0"}`), "/metrics": page("vllm.txt")},
			{"/version": text(`{"version":"0.29.0"}`), "/metrics": page("vllm.txt")}, // models need a key
			{"/v1/models": models("somebody"), "/metrics": page("vllm_ray.txt")},
			{"/v1/models": text(`{"data":[]}`), "/server_info": text(`{"vllm_config":"..."}`), "/metrics": page("vllm_dp2.txt")},
		},
		"sglang": {
			{"/v1/models": models("sglang"), "/get_server_info": text(`{"tp_size":1}`), "/metrics": page("sglang.txt")},
			{"/server_info": text(`{"tp_size":1,"dp_size":1}`), "/metrics": page("sglang_old.txt")},
			{"/metrics": page("sglang_dp2.txt")},
		},
		"trtllm": {
			{"/v1/models": models("tensorrt_llm"), "/prometheus/metrics": page("trtllm.txt"), "/metrics": page("trtllm_metrics.json")},
			{"/prometheus/metrics": page("trtllm_unprefixed.txt"), "/metrics": page("trtllm_metrics.json")},
		},
		"tgi": {
			{"/v1/models": models("org/model"), "/info": text(`{"model_id":"org/model","max_concurrent_requests":128}`), "/metrics": page("tgi.txt")},
			{"/metrics": page("tgi.txt")},
		},
		"llamacpp": {
			{"/v1/models": models("llamacpp"), "/props": text(`{"total_slots":2}`), "/metrics": page("llamacpp_busy.txt")},
			{"/props": text(`{"total_slots":2}`), "/metrics": page("llamacpp_idle.txt")},
		},
		"lmdeploy": {{"/v1/models": models("lmdeploy"), "/metrics": page("lmdeploy.txt")}, {"/metrics": page("lmdeploy.txt")}},
		"nim": {
			{"/v1/models": models("system"), "/v1/metadata": text(`{"version":"1.8","modelInfo":[]}`), "/v1/metrics": page("nim.txt")},
			{"/v1/models": models("system"), "/v1/metrics": page("nim_vllm.txt")},
			{"/metrics": page("nim.txt")}, // an older one
		},
		"ollama": {{"/v1/models": models("library"), "/api/version": page("ollama_version.json")}, {"/api/version": page("ollama_version.json")}},
		"triton": {{"/metrics": page("triton.txt")}}, // asked at its metrics' port
	}
}

func TestKindsAreFoundOut(t *testing.T) {
	all := engines(t)
	for _, k := range Kinds() {
		if k != KindNone && k != KindAuto && k != KindGeneric && k != KindORCA {
			require.NotEmpty(t, all[k], k)
		}
	}
	for kind, list := range all {
		for i, p := range list {
			for _, name := range []string{"", KindAuto} {
				a, err := NewAdapter(Target{Kind: name})
				require.NoError(t, err)
				require.Equal(t, KindAuto, a.(kindTeller).Kind())
				r, err := a.Read(t.Context(), p.get)
				require.NoError(t, err, "%s %d", kind, i)
				require.Equal(t, kind, a.(kindTeller).Kind(), i)
				if kind == "triton" {
					continue // its usual page is elsewhere
				}
				want, err := readTarget(t, Target{Kind: kind}, p)
				require.NoError(t, err)
				require.Equal(t, want, r)
			}
		}
	}
}

func TestTheKindIsFoundByThePageThatIsNamed(t *testing.T) {
	for url, file := range map[string]string{"http://m:8002/metrics": "triton.txt", "/other": "vllm.txt"} {
		r, err := readTarget(t, Target{MetricsURL: url}, pages{url: golden(t, file)})
		require.NoError(t, err)
		require.True(t, r.Running.Known)
	}
	_, err := readTarget(t, Target{MetricsURL: "/other"}, pages{"/other": text("a 1\n"), "/metrics": golden(t, "vllm.txt")})
	require.ErrorIs(t, err, errUnknown)
	_, err = readTarget(t, Target{MetricsURL: "/other"}, pages{"/metrics": golden(t, "vllm.txt")})
	require.ErrorIs(t, err, errUnknown)
}

func TestUnknownEnginesAreSaidToBeUnknown(t *testing.T) {
	for _, p := range []pages{
		{}, {"/metrics": text("go_goroutines 7\n")}, {"/metrics": text("<html>vllm:x</html>")}, {"/v1/models": models("us"), "/metrics": golden(t, "generic.txt")},
		{"/version": text(`{"version":"1"}`)},
	} {
		a, err := NewAdapter(Target{})
		require.NoError(t, err)
		_, err = a.Read(t.Context(), p.get)
		require.ErrorIs(t, err, errUnknown)
		require.Equal(t, KindAuto, a.(kindTeller).Kind())
	}
}

// TestAnEngineThatIsNotWellIsNotTakenForAnother: the first answer that says
// nothing of the kind ends the search.
func TestAnEngineThatIsNotWellIsNotTakenForAnother(t *testing.T) {
	for _, failure := range []error{&StatusError{Path: "/v1/models", Code: 503}, errors.New("connection reset"), context.DeadlineExceeded} {
		a, err := NewAdapter(Target{})
		require.NoError(t, err)
		p := engines(t)["vllm"][0]
		p["/props"] = text(`{"total_slots":1}`)
		var asked []string
		_, err = a.Read(t.Context(), func(ctx context.Context, path string) (Answer, error) {
			asked = append(asked, path)
			if path == "/v1/models" {
				return Answer{}, failure
			}
			return p.get(ctx, path)
		})
		require.ErrorIs(t, err, failure)
		require.Equal(t, []string{"/prometheus/metrics", "/v1/models"}, asked)
	}
}

// switched is an engine that becomes another one.
type switched struct {
	now   atomic.Pointer[pages]
	asked atomic.Int64
	drain atomic.Int64 // questions for /metrics
}

func (s *switched) answer(r *http.Request) (*http.Response, error) {
	s.asked.Add(1)
	p := s.now.Load()
	if p != nil && r.URL.Path == "/metrics" {
		s.drain.Add(1)
	}
	if p == nil {
		return nil, errors.New("connection refused")
	}
	a, err := p.get(r.Context(), r.URL.Path)
	if err != nil {
		return answer(404, "not found")
	}
	return answer(200, string(a.Body))
}

// TestTheKindIsFoundAnew: when an engine was started anew or away, or its page
// is another's. What was found is seen in the state, and as long as nothing
// happens it is not looked for.
func TestTheKindIsFoundAnew(t *testing.T) {
	all := engines(t)
	synctest.Test(t, func(t *testing.T) {
		e := &switched{}
		s := NewScraper(t.Context(), Options{Transport: network(e.answer)})
		defer s.Close()
		require.NoError(t, s.Set([]Target{{Engine: "e", URL: "http://e"}}))
		become := func(p *pages, within time.Duration) State {
			e.now.Store(p)
			time.Sleep(within)
			return s.States()[0]
		}
		st := become(nil, 3*time.Second)
		require.Equal(t, KindAuto, st.Kind)
		require.False(t, st.Reachable)

		st = become(&all["vllm"][0], 10*time.Second)
		require.Equal(t, "vllm", st.Kind)
		require.Equal(t, Some(7), st.Signal.Running)
		e.asked.Store(0)
		time.Sleep(50 * time.Second)
		require.InDelta(t, 50, e.asked.Load(), 6, "one question a reading")
		require.Equal(t, st.Signal.Incarnation, s.States()[0].Signal.Incarnation)

		failed := st.Faults.Failed
		st = become(&all["sglang"][0], 3*time.Second)
		require.Equal(t, "sglang", st.Kind, "in its place, at once")
		require.Equal(t, Some(11), st.Signal.Running)
		require.Equal(t, failed, st.Faults.Failed)

		st = become(nil, 20*time.Second)
		require.Equal(t, "sglang", st.Kind, "what it was last")
		require.NotEmpty(t, st.Err)
		st = become(&all["ollama"][0], 10*time.Second)
		require.Equal(t, "ollama", st.Kind)
		require.Empty(t, st.Err)

		// An old NIM that is replaced by a vLLM between two readings still makes
		// sense; its start has changed.
		st = become(&all["nim"][2], 10*time.Second)
		require.Equal(t, "nim", st.Kind)
		st = become(&all["vllm"][0], 10*time.Second)
		require.Equal(t, "vllm", st.Kind)

		for _, before := range []string{"vllm", "tgi"} { // one that tells its start and one that does not
			st = become(&all[before][0], 10*time.Second)
			require.Equal(t, before, st.Kind)
			become(nil, 5*time.Second)
			e.drain.Store(0)
			st = become(&all["trtllm"][0], 10*time.Second)
			require.Equal(t, "trtllm", st.Kind)
			require.Zero(t, e.drain.Load(), "after an absence, what it was says nothing of where to read")
		}
	})
}

// TestAHiccupCostsNoIncarnation: what an adapter remembers survives that its
// kind is found out again.
func TestAHiccupCostsNoIncarnation(t *testing.T) {
	body := string(golden(t, "sglang_old.txt").Body)
	synctest.Test(t, func(t *testing.T) {
		var down, steps atomic.Int64
		s := NewScraper(t.Context(), Options{Transport: network(func(r *http.Request) (*http.Response, error) {
			switch {
			case down.Load() == 1:
				return nil, errors.New("connection reset")
			case r.URL.Path == "/v1/models":
				return answer(200, string(models("sglang").Body))
			case r.URL.Path == "/metrics":
				if steps.Add(1)%2 == 0 {
					return answer(200, strings.ReplaceAll(body, "812.4376", "801.5"))
				}
				return answer(200, body)
			}
			return answer(404, "")
		})})
		defer s.Close()
		require.NoError(t, s.Set([]Target{{Engine: "e", URL: "http://e", Kind: KindAuto}}))
		time.Sleep(20 * time.Second)
		before := s.States()[0].Signal
		down.Store(1)
		time.Sleep(10 * time.Second)
		down.Store(0)
		time.Sleep(10 * time.Second)
		after := s.States()[0].Signal
		require.Greater(t, after.Sequence, before.Sequence)
		require.Greater(t, after.Progress.Value, before.Progress.Value)
		require.Equal(t, before.Incarnation, after.Incarnation)
	})
}
