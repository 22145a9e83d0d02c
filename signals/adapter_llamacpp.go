package signals

import (
	"context"
	"encoding/json"
)

// llamacpp reads llama.cpp's server, started with --metrics. Its tokens are
// counted when a request ends; the calls of its decoder are counted as they
// happen and tell whether it works.
type llamacpp struct {
	page  string
	slots once
}

const (
	llamaStart    = "Process-Start-Time-Unix"
	llamaSlotPath = "/props"
)

var llamaTable = mustTable(Names{
	Running:          []string{"llamacpp:requests_processing"},
	Waiting:          []string{"llamacpp:requests_deferred"},
	KVUsage:          []string{"llamacpp:kv_cache_usage_ratio"}, // in old versions
	PromptTokens:     []string{"llamacpp:prompt_tokens_total"},  // those found in the cache not counted
	PrefixHits:       []string{"llamacpp:prompt_tokens_cached_total"},
	GenerationTokens: []string{"llamacpp:tokens_predicted_total"},
	Progress:         []string{"llamacpp:n_decode_total"},
}, rule{})

// Read implements Adapter.
func (l *llamacpp) Read(ctx context.Context, get Get) (Reading, error) {
	start := ""
	_, r, err := llamaTable.read(ctx, func(ctx context.Context, path string) (Answer, error) {
		a, err := get(ctx, path)
		start = a.Header.Get(llamaStart)
		return a, err
	}, l.page)
	if err != nil {
		return Reading{}, err
	}
	if r, err = checked(r); err != nil {
		return Reading{}, err
	}
	r.Start = start
	r.PrefixQueries = plus(r.PrefixHits, r.PromptTokens)
	if r.PrefixQueries.Known {
		r.PromptTokens = r.PrefixQueries
	} else {
		r.PrefixHits = Opt{}
	}
	r.Slots = l.slots.learn(r.Start, func() Opt { return llamaSlots(ctx, get) })
	return r, nil
}

func llamaSlots(ctx context.Context, get Get) Opt {
	answer, err := get(ctx, llamaSlotPath)
	if err != nil {
		return Opt{}
	}
	var props struct {
		TotalSlots int `json:"total_slots"`
	}
	if json.Unmarshal(answer.Body, &props) != nil || props.TotalSlots <= 0 {
		return Opt{}
	}
	return Some(float64(props.TotalSlots))
}
