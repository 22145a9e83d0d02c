package signals

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// auto finds out what an engine is and reads it as that. It asks anew when the
// engine was started anew or could not be reached in between, and when its page
// stops making sense.
type auto struct {
	page  string // where the metrics are said to be
	kind  string // "" until it is known
	inner Adapter
	sure  bool // nothing has happened since that may have put another engine there
	start string
}

// kindTeller is an adapter that finds out the kind of its engine.
type kindTeller interface{ Kind() string }

// Kind gives the engine's kind, KindAuto until it is known.
func (a *auto) Kind() string {
	if a.kind == "" {
		return KindAuto
	}
	return a.kind
}

// Read implements Adapter.
func (a *auto) Read(ctx context.Context, get Get) (Reading, error) {
	asked := !a.sure
	if asked {
		if err := a.detect(ctx, get); err != nil {
			return Reading{}, err
		}
	}
	r, err := a.inner.Read(ctx, get)
	if !asked && senseless(err) && a.detect(ctx, get) == nil { // another engine answers there by now
		asked = true
		r, err = a.inner.Read(ctx, get)
	}
	a.sure = err == nil && (asked || r.Start == a.start)
	if err != nil {
		return Reading{}, err
	}
	a.start = r.Start
	return r, nil
}

// senseless says that an engine answered, though not as its kind would.
func senseless(err error) bool {
	var status *StatusError
	return errors.Is(err, errNothing) || errors.As(err, &status) && status.Code < 500
}

// detect finds the kind and makes its adapter.
func (a *auto) detect(ctx context.Context, get Get) error {
	kind, err := kindAt(ctx, get, a.page)
	if err != nil {
		return err
	}
	if kind != a.kind { // else what the adapter remembers holds
		a.kind, a.inner = kind, kinds[kind](a.page)
	}
	return nil
}

// errUnknown is the outcome of a detection that nothing answered to.
var errUnknown = errors.New("no kind of engine is known that answers like this: say its kind, or the names of its metrics")

// kindAt asks an engine what it is. The order keeps two promises: nothing is
// asked that costs an engine work, and the page /metrics comes last, when
// it cannot be that of trtllm-serve, which forgets what it has told.
func kindAt(ctx context.Context, get Get, page string) (string, error) {
	ask := asker{ctx: ctx, get: get}
	if page != "" {
		return ask.settle(kindOfPage(ask.page(page)))
	}
	if p := ask.page("/prometheus/metrics"); p != nil && isTRTLLM(*p) {
		return "trtllm", nil
	}
	for _, p := range probes {
		if a, ok := ask.answer(p.path); ok {
			if kind := p.kind(a); kind != "" {
				return kind, nil
			}
		}
	}
	return ask.settle(kindOfPage(ask.page("/metrics")))
}

// probes are asked in turn; kind gives "" when an answer says nothing.
var probes = []struct {
	path string
	kind func(Answer) string
}{
	{"/v1/models", kindOfOwner},
	{ollamaPage, func(a Answer) string { return when(version(a) != "", "ollama") }},
	{"/v1/metadata", func(a Answer) string { return when(hasKey(a, "modelInfo", "model_info"), "nim") }},
	{"/v1/metrics", func(a Answer) string { return when(kindOfPage(&a.Page) != "", "nim") }},
	{"/props", func(a Answer) string {
		return when(hasKey(a, "total_slots", "default_generation_settings"), "llamacpp")
	}},
	{"/get_server_info", kindOfServerInfo},
	{"/server_info", kindOfServerInfo},
	{"/info", func(a Answer) string { return when(hasKey(a, "max_total_tokens", "max_concurrent_requests"), "tgi") }},
}

func kindOfServerInfo(a Answer) string { return when(hasKey(a, "tp_size", "tokenizer_path"), "sglang") }

func when(yes bool, kind string) string {
	if yes {
		return kind
	}
	return ""
}

// owners are what engines call the owner of the models they list.
var owners = map[string]string{
	"vllm": "vllm", "sglang": "sglang", "tensorrt_llm": "trtllm", "llamacpp": "llamacpp", "lmdeploy": "lmdeploy", "library": "ollama",
}

func kindOfOwner(a Answer) string {
	var list struct {
		Data []struct {
			OwnedBy string `json:"owned_by"`
		} `json:"data"`
	}
	if json.Unmarshal(a.Body, &list) != nil || len(list.Data) == 0 {
		return ""
	}
	return owners[list.Data[0].OwnedBy]
}

// hasKey says whether the answer is a JSON object with one of the keys.
func hasKey(a Answer, keys ...string) bool {
	var object map[string]json.RawMessage
	if json.Unmarshal(a.Body, &object) != nil {
		return false
	}
	for _, k := range keys {
		if _, there := object[k]; there {
			return true
		}
	}
	return false
}

// prefixes are how the names on engines' pages begin. Those without one come
// last: other engines have such series too.
var prefixes = []struct{ prefix, kind string }{
	{"vllm:", "vllm"}, {"vllm_", "vllm"}, {"sglang:", "sglang"}, {"trtllm_", "trtllm"}, {"nv_trt_llm_", "triton"},
	{"tgi_", "tgi"}, {"llamacpp:", "llamacpp"}, {"lmdeploy:", "lmdeploy"}, {"num_requests_running", "nim"}, {"num_request_max", "nim"},
}

// kindOfPage finds the kind by the names on a page; "" if there is none.
func kindOfPage(page *Page) string {
	if page == nil {
		return ""
	}
	for _, p := range prefixes {
		if bytes.HasPrefix(page.Body, []byte(p.prefix)) || bytes.Contains(page.Body, []byte("\n"+p.prefix)) {
			return p.kind
		}
	}
	return ""
}

// isTRTLLM says whether a page at trtllm-serve's address is its own. Early
// builds have names without a prefix, and none before the first request.
func isTRTLLM(page Page) bool {
	kind := kindOfPage(&page)
	return kind == "trtllm" || kind == "nim" || kind == "" && bytes.HasPrefix(bytes.TrimSpace(page.Body), []byte("#"))
}

// asker asks one engine several things, until one gets no answer.
type asker struct {
	ctx context.Context
	get Get
	err error // why asking further is of no use
}

// answer gives what the path answers with; not ok if that is another status.
func (k *asker) answer(path string) (Answer, bool) {
	if k.err != nil {
		return Answer{}, false
	}
	a, err := k.get(k.ctx, path)
	var status *StatusError
	switch {
	case err == nil:
		return a, true
	case !errors.As(err, &status), status.Code >= 500 && status.Code != http.StatusNotImplemented:
		// An engine that is not well must not be taken for another.
		k.err = err
	}
	return Answer{}, false
}

func (k *asker) page(path string) *Page {
	if a, ok := k.answer(path); ok {
		return &a.Page
	}
	return nil
}

// settle gives the kind, or why there is none.
func (k *asker) settle(kind string) (string, error) {
	switch {
	case k.err != nil:
		return "", fmt.Errorf("finding out the kind of engine: %w", k.err)
	case kind == "":
		return "", errUnknown
	}
	return kind, nil
}
