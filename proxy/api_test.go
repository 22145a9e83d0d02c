package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
)

// echo answers with what it got.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_ = json.NewEncoder(w).Encode(map[string]string{"path": r.URL.Path, "method": r.Method, "body": string(body), "type": r.Header.Get("Content-Type")})
}

type echoed struct{ Path, Method, Body, Type string }

func (h *harness) do(method, path, contentType, body string) (*http.Response, echoed) {
	h.t.Helper()
	req, err := http.NewRequest(method, h.url+path, strings.NewReader(body))
	require.NoError(h.t, err)
	req.Header.Set("Content-Type", contentType)
	resp, err := h.client.Do(req)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { _ = resp.Body.Close() })
	var e echoed
	if resp.StatusCode == http.StatusOK {
		require.NoError(h.t, json.NewDecoder(resp.Body).Decode(&e))
	}
	return resp, e
}

func TestEveryEndpointPassesThrough(t *testing.T) {
	h := newHarnessWith(t, config.Proxy{Paths: []string{"/v1/custom", "/rerank"}}, echo)
	form := &bytes.Buffer{}
	f := multipart.NewWriter(form)
	file, err := f.CreateFormFile("file", "a.wav")
	require.NoError(t, err)
	_, _ = file.Write([]byte("RIFF\r\nname=\"model\"\r\n\r\nnot this"))
	require.NoError(t, f.WriteField("model", "m"))
	require.NoError(t, f.Close())
	for _, e := range append(endpoints, endpoint{path: "/v1/custom"}) {
		body, contentType := chat, "application/json"
		if e.body == formBody {
			body, contentType = form.String(), f.FormDataContentType()
		}
		resp, got := h.do(http.MethodPost, e.path, contentType, body)
		require.Equal(t, http.StatusOK, resp.StatusCode, e.path)
		require.Equal(t, echoed{e.path, http.MethodPost, body, contentType}, got)
		resp, _ = h.do(http.MethodGet, e.path, "", "")
		require.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode, e.path)
	}
}

func TestBadForms(t *testing.T) {
	h := newHarness(t, echo)
	const b = "multipart/form-data; boundary=x"
	field := "--x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n"
	for name, c := range map[string]struct{ contentType, body string }{
		"not a form":  {"application/json", chat},
		"no boundary": {"multipart/form-data", field},
		"no model":    {b, "--x\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nm\r\n--x--\r\n"},
		"two models":  {b, field + field + "--x--\r\n"},
		"cut off":     {b, field},
	} {
		resp, _ := h.do(http.MethodPost, "/v1/audio/transcriptions", c.contentType, c.body)
		h.wantError(resp, http.StatusBadRequest, "invalid_body")
		_ = name
	}
}

func newAliasHarness(t *testing.T, aliases ...config.Alias) *harness {
	h := newHarness(t, echo)
	h.plane.aliasList, h.plane.aliases = aliases, newAliases(aliases)
	s := evenSnapshot(h.engines[0].URL)
	s.Rows = append(s.Rows, fleet.SnapshotRow{Model: "n", Targets: s.Rows[0].Targets})
	require.NoError(t, h.plane.apply(s))
	return h
}

// TestAliasChangesTheModelAlone: the engine is asked for the real model, and not
// another byte differs.
func TestAliasChangesTheModelAlone(t *testing.T) {
	h := newAliasHarness(t, config.Alias{Name: "gpt-4o", To: map[string]float64{"m": 1}})
	body := `{ "messages":[{"role":"user","content":"gpt-4o"}] ,"model" : "gpt-4o", "x": "gpt-4o"}`
	_, got := h.do(http.MethodPost, "/v1/chat/completions", "application/json", body)
	require.Equal(t, strings.Replace(body, `"model" : "gpt-4o"`, `"model" : "m"`, 1), got.Body)

	form := "--x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\ngpt-4o\r\n--x--\r\n"
	_, got = h.do(http.MethodPost, "/v1/audio/transcriptions", "multipart/form-data; boundary=x", form)
	require.Equal(t, strings.Replace(form, "gpt-4o", "m", 1), got.Body)

	resp, err := h.client.Get(h.url + "/v1/models")
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	require.Contains(t, h.read(resp), `"gpt-4o"`)
}

func TestWeightedAliasIsFaithfulToItsParts(t *testing.T) {
	h := newAliasHarness(t, config.Alias{Name: "chat", To: map[string]float64{"m": 3, "n": 1}})
	counts := map[string]int{}
	for i := range 400 {
		session := fmt.Sprint("s", i%200)
		resp := h.post(`{"model":"chat"}`, "X-Session-Id", session)
		var e echoed
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&e))
		if i >= 200 {
			require.Equal(t, counts[session], len(e.Body), "a session stays with its model")
		}
		counts[session] = len(e.Body)
		counts[e.Body]++
	}
	require.InDelta(t, 100, counts[`{"model":"n"}`], 40)
	require.Equal(t, 400, counts[`{"model":"n"}`]+counts[`{"model":"m"}`])
}

// keeper is an engine that stores responses.
func keeper(name string) http.HandlerFunc {
	kept := map[string]bool{}
	return func(w http.ResponseWriter, r *http.Request) {
		id := strings.TrimPrefix(r.URL.Path, "/v1/responses/")
		switch {
		case r.Method == http.MethodPost && r.URL.Path == "/v1/responses":
			_, _ = io.Copy(io.Discard, r.Body)
			id := fmt.Sprintf("resp_%s_%d", name, len(kept))
			kept[id] = true
			fmt.Fprintf(w, `{"object":"response","id": %q,"by":%q}`, id, name)
		case kept[strings.TrimSuffix(id, "/cancel")]:
			fmt.Fprintf(w, `{"id":%q,"by":%q}`, id, name)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}
}

func TestStoredResponsesAreFoundWhereTheyAre(t *testing.T) {
	h := newHarness(t, keeper("a"), keeper("b"), keeper("c"))
	var ids []string
	for i := range 12 {
		resp := h.postTo("/v1/responses", fmt.Sprintf(`{"model":"m","input":"question %d"}`, i))
		ids = append(ids, responseID([]byte(h.read(resp))))
	}
	ask := func(h *harness, method, path string) *http.Response {
		req, err := http.NewRequest(method, h.url+path, nil)
		require.NoError(t, err)
		resp, err := h.client.Do(req)
		require.NoError(t, err)
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	// Another data plane knows nothing and must find them all the same.
	stranger := &harness{t: t, plane: newPlane(t, config.Proxy{}), client: h.client}
	require.NoError(t, stranger.plane.apply(h.plane.Snapshot()))
	front := httptest.NewServer(stranger.plane.Handler())
	defer front.Close()
	stranger.url = front.URL
	for _, id := range ids {
		for _, who := range []*harness{h, stranger} {
			resp := ask(who, http.MethodGet, "/v1/responses/"+id)
			require.Equal(t, http.StatusOK, resp.StatusCode)
			require.Contains(t, who.read(resp), id)
			require.Equal(t, http.StatusOK, ask(who, http.MethodPost, "/v1/responses/"+id+"/cancel").StatusCode)
		}
		owner := strings.Split(id, "_")[1]
		resp := h.postTo("/v1/responses", fmt.Sprintf(`{"model":"m","previous_response_id":%q}`, id))
		require.Contains(t, h.read(resp), fmt.Sprintf(`"by":%q`, owner), "what goes on from a response goes where it is")
	}
	h.wantError(ask(h, http.MethodGet, "/v1/responses/resp_nowhere"), http.StatusNotFound, "response_not_found")
	h.requireIdle()
}

func (h *harness) postTo(path, body string) *http.Response {
	h.t.Helper()
	resp, err := h.client.Post(h.url+path, "application/json", strings.NewReader(body))
	require.NoError(h.t, err)
	h.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func TestStoredForgetsTheOldest(t *testing.T) {
	s := newStored()
	for i := range maxStored + 10 {
		s.put(fmt.Sprint(i), "m", "e")
		s.get("5") // used, so it stays
	}
	require.Equal(t, maxStored, len(s.where))
	_, ok := s.get("5")
	require.True(t, ok)
	_, ok = s.get("0")
	require.False(t, ok)
}

func TestResponseID(t *testing.T) {
	for first, want := range map[string]string{
		`{"id":"resp_1"}`: "resp_1",
		`event: response.created` + "\n" + `data: {"type":"response.created","response":{"id": "resp_2","x":1}}`: "resp_2",
		`{"id":7}`: "", `{"id":"`: "", ``: "",
	} {
		require.Equal(t, want, responseID([]byte(first)))
	}
}

// TestOtherWaysToAnEngine: HTTP/2 without TLS, and a unix socket.
func TestOtherWaysToAnEngine(t *testing.T) {
	protocol := make(chan string, 10)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protocol <- r.Proto
		echo(w, r)
	})
	h2 := httptest.NewUnstartedServer(handler)
	h2.Config.Protocols = new(http.Protocols)
	h2.Config.Protocols.SetUnencryptedHTTP2(true)
	h2.Start()
	defer h2.Close()
	socket := filepath.Join(t.TempDir(), "engine.sock")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	unix := &httptest.Server{Listener: l, Config: &http.Server{Handler: handler}}
	unix.Start()
	defer unix.Close()
	v6, err := net.Listen("tcp", "[::1]:0")
	require.NoError(t, err)
	six := &httptest.Server{Listener: v6, Config: &http.Server{Handler: handler}}
	six.Start()
	defer six.Close()

	h := newHarness(t)
	for url, want := range map[string]string{h2.URL: "HTTP/2.0", "unix://" + socket: "HTTP/1.1", six.URL: "HTTP/1.1"} {
		s := evenSnapshot(url)
		if want == "HTTP/2.0" {
			s.Engines[0].Protocol = "h2c"
		}
		require.NoError(t, h.plane.apply(s))
		resp := h.post(chat)
		require.Contains(t, h.read(resp), "hi")
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Equal(t, want, <-protocol)
	}
}

func TestForwardedHeadersAndTracing(t *testing.T) {
	got := make(chan http.Header, 1)
	h := newHarness(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header })
	h.post(chat, "Traceparent", "00-abc-def-01", "X-Forwarded-For", "10.0.0.1", "X-Forwarded-Proto", "https", "Expect", "")
	header := <-got
	require.Equal(t, "00-abc-def-01", header.Get("Traceparent"))
	require.Equal(t, "10.0.0.1, 127.0.0.1", header.Get("X-Forwarded-For"))
	require.Equal(t, "https", header.Get("X-Forwarded-Proto"), "what a proxy before us said stays")
	require.Equal(t, strings.TrimPrefix(h.url, "http://"), header.Get("X-Forwarded-Host"))
}

// TestExpectContinue: the client waits to be told to send its body; the engine is
// not asked.
func TestExpectContinue(t *testing.T) {
	expect := make(chan string, 1)
	h := newHarness(t, func(w http.ResponseWriter, r *http.Request) {
		expect <- r.Header.Get("Expect")
		echo(w, r)
	})
	conn, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n", len(chat))
	line := make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n"))
	_, err = io.ReadFull(conn, line)
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 100 Continue\r\n\r\n", string(line))
	fmt.Fprint(conn, chat)
	rest, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Contains(t, string(rest), "200 OK")
	require.Empty(t, <-expect)
}

func TestTrailersPass(t *testing.T) {
	h := newHarness(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Trailer", "X-Sum")
		_, _ = io.WriteString(w, "body")
		w.(http.Flusher).Flush()
		w.Header().Set("X-Sum", "7")
	})
	resp := h.post(chat)
	h.read(resp)
	require.Equal(t, "7", resp.Trailer.Get("X-Sum"))
}
