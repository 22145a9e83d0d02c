package testengine

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"strconv"
	"strings"
)

// answer renders the tokens of one request.
type answer struct {
	job
	call   *call
	id     string
	finish string
	text   writer

	head, tail, last []byte // what stands around a token in a stream
	totals           bool   // every event says the usage so far
}

// writer makes an answer's words.
type writer struct {
	seed   uint64
	prompt uint64
}

var words = strings.Fields("the road to a far town is long and the near one full so who goes where is not for " +
	"each to choose alone but all arrive sooner when some take the other way and none would gain by turning back")

// token is the i-th token of the answer, from 0. The first names the prompt.
func (t writer) token(dst []byte, i int) []byte {
	if i == 0 {
		return strconv.AppendUint(dst, t.prompt, 16)
	}
	dst = append(dst, ' ')
	return append(dst, words[mix(t.seed+uint64(i))%uint64(len(words))]...)
}

// Text is what the engine answers to the prompt (of a chat: the messages'
// contents, joined by newlines) with that many tokens. Engines of one seed
// answer alike.
func (s *Server) Text(prompt string, tokens int) string { return Text(s.config.Seed, prompt, tokens) }

// Text is what an engine of the seed answers to the prompt with that many tokens.
func Text(seed uint64, prompt string, tokens int) string {
	t := writer{seed, digest(seed, prompt)}
	var b []byte
	for i := range tokens {
		b = t.token(b, i)
	}
	return string(b)
}

func digest(seed uint64, text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return mix(h.Sum64() + seed)
}

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func newAnswer(s *Server, j job, c *call, finish string) *answer {
	kind := "cmpl"
	if j.chat {
		kind = "chatcmpl"
	}
	return &answer{
		job: j, call: c, finish: finish,
		id:   fmt.Sprintf("%s-%s-%d", kind, s.config.Name, c.id),
		text: writer{s.config.Seed, digest(s.config.Seed, j.prompt)},
	}
}

type usage struct {
	Prompt     int           `json:"prompt_tokens"`
	Total      int           `json:"total_tokens"`
	Completion int           `json:"completion_tokens"`
	Details    *usageDetails `json:"prompt_tokens_details,omitempty"`
}

type usageDetails struct {
	Cached int64 `json:"cached_tokens"`
}

// usage is as vLLM's: details stand there only when something was in the cache.
func (a *answer) usage(tokens int) usage {
	u := usage{Prompt: a.call.prompt, Total: a.call.prompt + tokens, Completion: tokens}
	if n := a.call.cached.Load(); n > 0 {
		u.Details = &usageDetails{n}
	}
	return u
}

// whole is the answer in one piece, of so many tokens.
func (a *answer) whole(tokens int, finish string) map[string]any {
	var b []byte
	for i := range tokens {
		b = a.text.token(b, i)
	}
	choice := map[string]any{"index": 0, "logprobs": nil, "finish_reason": finish}
	object := "text_completion"
	if a.chat {
		object = "chat.completion"
		choice["message"] = map[string]any{"role": "assistant", "content": string(b)}
	} else {
		choice["text"] = string(b)
	}
	return map[string]any{
		"id": a.id, "object": object, "created": created(a.call), "model": a.model,
		"choices": []any{choice}, "usage": a.usage(tokens),
	}
}

// envelope is the part of a stream's events that does not change.
func (a *answer) envelope() string {
	object := "text_completion"
	if a.chat {
		object = "chat.completion.chunk"
	}
	model, _ := json.Marshal(a.model)
	id, _ := json.Marshal(a.id)
	return fmt.Sprintf(`data: {"id":%s,"object":%q,"created":%d,"model":%s,"choices":`, id, object, created(a.call), model)
}

// prepare makes what stands around the tokens, once a stream.
func (a *answer) prepare() {
	open, shut := `[{"index":0,"text":"`, `"`
	if a.chat {
		open, shut = `[{"index":0,"delta":{"content":"`, `"}`
	}
	a.head = []byte(a.envelope() + open)
	a.tail = []byte(shut + `,"logprobs":null,"finish_reason":null}]`)
	a.last = []byte(shut + `,"logprobs":null,"finish_reason":"` + a.finish + `"}]`)
}

// event appends the event of the i-th token, from 0. Tokens need no escaping.
func (a *answer) event(dst []byte, i int) []byte {
	if i == 0 && a.chat {
		dst = append(dst, a.envelope()...)
		dst = append(dst, `[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}`+"\n\n"...)
	}
	dst = append(dst, a.head...)
	dst = a.text.token(dst, i)
	if i == a.call.output-1 {
		dst = append(dst, a.last...)
	} else {
		dst = append(dst, a.tail...)
	}
	if a.totals {
		u, _ := json.Marshal(a.usage(i + 1))
		dst = append(append(dst, `,"usage":`...), u...)
	}
	return append(dst, "}\n\n"...)
}

// empty appends an event without choices.
func (a *answer) empty(dst []byte) []byte {
	return append(append(dst, a.envelope()...), "[]}\n\n"...)
}

// end appends what follows the last token.
func (a *answer) end(dst []byte) []byte {
	if a.includeUsage {
		u, _ := json.Marshal(a.usage(a.call.output))
		dst = append(append(dst, a.envelope()...), `[],"usage":`...)
		dst = append(append(dst, u...), "}\n\n"...)
	}
	return append(dst, "data: [DONE]\n\n"...)
}

// stream sends the answer as it is generated: an event a token, a write for all
// that are there. The headers go out before the first token, as vLLM's do.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, a *answer) {
	a.prepare()
	dead := s.dead() // counted before the headers let the client begin another
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	flusher := http.NewResponseController(w)
	if flusher.Flush() != nil {
		return
	}
	shape := shaper{w, flusher, s.faults.Load().Shape}
	a.totals = shape.has(ShapeUsage)
	if dead && !s.standStill(w, r) {
		return
	}
	var buf []byte
	if shape.has(ShapeEmpty) {
		buf = a.empty(buf)
	}
	for sent := 0; sent < a.call.output; buf = buf[:0] {
		if !s.wait(w, r, a.call, sent+1) {
			return
		}
		n, end := int(a.call.tokens.Load()), s.ending(a.call)
		cut := n >= end.after
		if cut {
			n = end.after
		}
		for ; sent < n; sent++ {
			buf = a.event(buf, sent)
		}
		switch {
		case cut:
			buf = a.breakOff(buf, end)
		case sent == a.call.output:
			buf = a.end(buf)
		}
		if !shape.send(buf) {
			return
		}
		if end.how == breakReset && cut {
			reset(w)
		}
		if cut {
			return
		}
	}
}
