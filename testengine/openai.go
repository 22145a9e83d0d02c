package testengine

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/wardrop-lb/wardrop/enginemodel"
)

// maxBody bounds a request's body, in bytes.
const maxBody = 64 << 20

// embeddingSize is the length of every embedding.
const embeddingSize = 8

func (s *Server) routes() {
	s.mux = http.NewServeMux()
	s.mux.HandleFunc("POST /v1/chat/completions", s.generate(parseChat))
	s.mux.HandleFunc("POST /v1/completions", s.generate(parseCompletion))
	s.mux.HandleFunc("POST /v1/embeddings", s.serveEmbeddings)
	s.mux.HandleFunc("GET /v1/models", s.sound(s.serveModels))
	s.mux.HandleFunc("GET /health", s.sound(s.serveHealth))
	s.mux.HandleFunc("GET /metrics", s.sound(s.serveMetrics))
	s.mux.HandleFunc("GET /faults", s.serveFaults)
	s.mux.HandleFunc("POST /faults", s.serveFaults)
}

// sound guards what works in every engine that is up.
func (s *Server) sound(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.Faults().Refuse {
			reset(w)
		}
		h(w, r)
	}
}

// job is a request for text, whichever way it came.
type job struct {
	chat         bool
	model        string
	prompt       string
	maxTokens    int // 0: none named
	stream       bool
	includeUsage bool
}

type body struct {
	Model    string `json:"model"`
	Messages []struct {
		Content content `json:"content"`
	} `json:"messages"`
	Prompt              content `json:"prompt"`
	Input               content `json:"input"`
	MaxTokens           *int    `json:"max_tokens"`
	MaxCompletionTokens *int    `json:"max_completion_tokens"`
	Stream              bool    `json:"stream"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	EncodingFormat string `json:"encoding_format"`
}

// content is text in any of the shapes the API has for it: a string, a list of
// strings, a list of parts, a list of token ids.
type content []string

func (c *content) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		*c = content{text}
		return nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil {
		return errors.New("neither text nor a list")
	}
	*c = nil
	for _, item := range list {
		var part struct {
			Text string `json:"text"`
		}
		if json.Unmarshal(item, &text) == nil {
			*c = append(*c, text)
		} else if json.Unmarshal(item, &part) == nil {
			*c = append(*c, part.Text)
		} else {
			*c = append(*c, string(item))
		}
	}
	return nil
}

func (c content) text() string { return strings.Join(c, "\n") }

func (b *body) job() (job, error) {
	j := job{model: b.Model, stream: b.Stream, includeUsage: b.StreamOptions.IncludeUsage}
	for _, n := range []*int{b.MaxTokens, b.MaxCompletionTokens} {
		if n == nil {
			continue
		}
		if *n < 1 {
			return j, fmt.Errorf("max_tokens must be at least 1, got %d", *n)
		}
		j.maxTokens = *n
	}
	return j, nil
}

func parseChat(b *body) (job, error) {
	j, err := b.job()
	j.chat = true
	texts := make([]string, 0, len(b.Messages))
	for _, m := range b.Messages {
		texts = append(texts, m.Content.text())
	}
	if len(texts) == 0 && err == nil {
		err = errors.New("messages: none")
	}
	j.prompt = strings.Join(texts, "\n")
	return j, err
}

func parseCompletion(b *body) (job, error) {
	j, err := b.job()
	j.prompt = b.Prompt.text()
	if len(b.Prompt) == 0 && err == nil {
		err = errors.New("prompt: none")
	}
	return j, err
}

// read reads a request's body and checks its model; false when it has answered.
func (s *Server) read(w http.ResponseWriter, r *http.Request, b *body) bool {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		err = json.Unmarshal(raw, b)
	}
	if err != nil {
		writeError(w, http.StatusBadRequest, "BadRequestError", err.Error(), "")
		return false
	}
	if !slices.Contains(s.config.Models, b.Model) {
		writeError(w, http.StatusNotFound, "NotFoundError", fmt.Sprintf("The model `%s` does not exist.", b.Model), "model")
		return false
	}
	return true
}

// start puts a request into the model; nil when it has answered instead.
func (s *Server) start(w http.ResponseWriter, prompt string, output int) *call {
	tokens, prefix := s.config.PromptTokens, []enginemodel.Block(nil)
	if tokens == 0 {
		tokens, prefix = textTokens(prompt), prefixOf(prompt, s.config.Params.BlockSize)
	}
	c, err := s.submit(tokens, output, prefix)
	if err == nil {
		return c
	}
	message := err.Error()
	if errors.Is(err, enginemodel.ErrTooLong) {
		message = fmt.Sprintf("This model's maximum context length is %d tokens. However, you requested %d tokens (%d in the prompt, %d in the completion).",
			s.config.Params.MaxTokens(), tokens+output, tokens, output)
	}
	writeError(w, http.StatusBadRequest, "BadRequestError", message, "")
	return nil
}

func (s *Server) generate(parse func(*body) (job, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var b body
		if !s.read(w, r, &b) || s.broken(w, r) {
			return
		}
		j, err := parse(&b)
		if err != nil {
			writeError(w, http.StatusBadRequest, "BadRequestError", err.Error(), "")
			return
		}
		output, finish := s.config.OutputTokens, "stop"
		if j.maxTokens > 0 {
			output, finish = j.maxTokens, "length"
		}
		c := s.start(w, j.prompt, output)
		if c == nil {
			return
		}
		defer func() {
			if s.release(c) {
				s.metrics.finish("abort")
			} else {
				s.metrics.finish(finish)
			}
		}()
		a := newAnswer(s, j, c, finish)
		if j.stream {
			s.stream(w, r, a)
			return
		}
		if !s.wait(w, r, c, c.output) {
			return
		}
		if end := s.ending(c); int(c.tokens.Load()) >= end.after {
			a.writeBroken(w, end)
			return
		}
		writeJSON(w, http.StatusOK, a.whole(c.output, finish))
	}
}

// wait waits until the request has that many tokens, or as many as the faults
// let it have; false when the client has gone.
func (s *Server) wait(w http.ResponseWriter, r *http.Request, c *call, tokens int) bool {
	for {
		if s.faults.Load().Refuse {
			reset(w)
		}
		if n := int(c.tokens.Load()); n >= tokens || n >= s.ending(c).after {
			return true
		}
		select {
		case <-c.notify:
		case <-r.Context().Done():
			return false
		case <-s.stop:
			reset(w)
		}
	}
}

func (s *Server) serveModels(w http.ResponseWriter, _ *http.Request) {
	type model struct {
		ID          string `json:"id"`
		Object      string `json:"object"`
		Created     int64  `json:"created"`
		OwnedBy     string `json:"owned_by"`
		MaxModelLen int    `json:"max_model_len"`
	}
	list := make([]model, 0, len(s.config.Models))
	for _, m := range s.config.Models {
		list = append(list, model{m, "model", s.epoch.Unix(), "testengine", s.config.Params.MaxTokens()})
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": list})
}

func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	f := s.Faults()
	switch {
	case f.Health != 0:
		w.WriteHeader(f.Health)
	case f.HealthBusy != 0 && s.owes():
		w.WriteHeader(f.HealthBusy)
	}
}

// owes tells whether a request waits for its first token.
func (s *Server) owes() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if c.tokens.Load() == 0 {
			return true
		}
	}
	return false
}

// serveEmbeddings takes the time of a prompt and one token, and answers with
// vectors that depend on the texts alone.
func (s *Server) serveEmbeddings(w http.ResponseWriter, r *http.Request) {
	var b body
	if !s.read(w, r, &b) || s.broken(w, r) {
		return
	}
	if len(b.Input) == 0 {
		writeError(w, http.StatusBadRequest, "BadRequestError", "input: none", "input")
		return
	}
	c := s.start(w, b.Input.text(), 1)
	if c == nil {
		return
	}
	defer s.release(c)
	if !s.wait(w, r, c, c.output) {
		return
	}
	if end := s.ending(c); int(c.tokens.Load()) >= end.after {
		(&answer{job: job{model: b.Model}, call: c}).writeBroken(w, end)
		return
	}
	data := make([]map[string]any, len(b.Input))
	for i, text := range b.Input {
		data[i] = map[string]any{"object": "embedding", "index": i, "embedding": embedding(text, b.EncodingFormat)}
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"object": "list", "model": b.Model, "data": data,
		"usage": map[string]int{"prompt_tokens": c.prompt, "total_tokens": c.prompt},
	})
}

func embedding(text, format string) any {
	x := digest(0, text)
	vector := make([]float32, embeddingSize)
	var raw []byte
	for i := range vector {
		x = mix(x)
		vector[i] = float32(x>>40)/(1<<23) - 1
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(vector[i]))
	}
	if format == "base64" {
		return base64.StdEncoding.EncodeToString(raw)
	}
	return vector
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // only values of this package come here
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", fmt.Sprint(len(raw)))
	w.WriteHeader(code)
	_, _ = w.Write(raw)
}

// writeError answers as vLLM does.
func writeError(w http.ResponseWriter, code int, kind, message, param string) {
	var p any
	if param != "" {
		p = param
	}
	writeJSON(w, code, map[string]any{"error": map[string]any{
		"message": message, "type": kind, "param": p, "code": code,
	}})
}

func created(c *call) int64 { return c.arrived.Truncate(time.Second).Unix() }
