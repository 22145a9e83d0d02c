package signals

import (
	"context"
	"encoding/json"
	"errors"
)

// tgiTable is for Text Generation Inference. Its token counts are sums of
// histograms that get a request's at its end; the passes of the model are
// counted as they happen.
var tgiTable = mustTable(Names{
	Running:          []string{"tgi_batch_current_size"},
	Waiting:          []string{"tgi_queue_size"},
	PromptTokens:     []string{"tgi_request_input_length_sum"},
	GenerationTokens: []string{"tgi_request_generated_tokens_sum"},
	Progress:         []string{"tgi_batch_inference_count"},
}, rule{})

// lmdeploy reads LMDeploy. Requests that wait for one of the server's handles
// are in no engine's queue yet, and wait all the same.
type lmdeploy struct{ page string }

var lmdeployTable = mustTable(Names{
	Running:          []string{"lmdeploy:num_requests_running"},
	KVUsage:          []string{"lmdeploy:gpu_cache_usage_perc"},
	PromptTokens:     []string{"lmdeploy:prompt_tokens_total"},
	GenerationTokens: []string{"lmdeploy:generation_tokens_total"},
	Start:            []string{"process_start_time_seconds"},
}, perProcess, []string{"lmdeploy:num_requests_waiting"}, []string{"lmdeploy:num_api_requests_waiting"})

// Read implements Adapter.
func (l lmdeploy) Read(ctx context.Context, get Get) (Reading, error) {
	f, r, err := lmdeployTable.read(ctx, get, l.page)
	if err != nil {
		return Reading{}, err
	}
	if queued := f.sum(f.extra[0]); queued.Known {
		r.Waiting = together(queued, f.sum(f.extra[1]))
	}
	running, _ := f.collect(f.terms[nRunning])
	r.Ranks = len(running)
	return checked(r)
}

// ollama asks Ollama for its version, which it answers without work. It exports
// no metrics: everything is absent, and what is in flight there only the data
// planes know.
type ollama struct{}

const ollamaPage = "/api/version"

// Read implements Adapter.
func (ollama) Read(ctx context.Context, get Get) (Reading, error) {
	answer, err := get(ctx, ollamaPage)
	if err != nil {
		return Reading{}, err
	}
	if version(answer) == "" {
		return Reading{}, errors.New(ollamaPage + ": no version in the answer")
	}
	return Reading{}, nil
}

// version takes the version out of an answer that has one.
func version(a Answer) string {
	var v struct {
		Version string `json:"version"`
	}
	if json.Unmarshal(a.Body, &v) != nil {
		return ""
	}
	return v.Version
}
