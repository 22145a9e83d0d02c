package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/route"
)

// moody answers, now and then with a failure.
func moody(seed uint64) http.HandlerFunc {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 1))
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		x := rng.IntN(12)
		mu.Unlock()
		switch x {
		case 0:
			http.Error(w, "broken", http.StatusInternalServerError)
		case 1:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "busy", http.StatusServiceUnavailable)
		default:
			_, _ = io.WriteString(w, `{"usage":{"prompt_tokens":7,"completion_tokens":3}}`)
		}
	}
}

// crowd sends requests of all kinds from several clients at once.
func (h *harness) crowd(clients, each int) {
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(c), 2))
			for range each {
				body := fmt.Sprintf(`{"model":"m","max_tokens":%d,"messages":[{"role":"user","content":%q}]}`, 1+rng.IntN(500), strings.Repeat(fmt.Sprint("p", rng.IntN(5)), 200))
				req, err := http.NewRequest(http.MethodPost, h.url+"/v1/chat/completions", strings.NewReader(body))
				if err != nil {
					panic(err)
				}
				if rng.IntN(2) == 0 {
					req.Header.Set("X-Session-Id", fmt.Sprint(rng.IntN(20)))
				}
				resp, err := h.client.Do(req)
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}
		})
	}
	all.Wait()
}

// exported is what the admin address gives.
func exported(t *testing.T, p *DataPlane, w Wanted) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	list := p.Decisions(w)
	for _, x := range p.Tables(list) {
		require.NoError(t, e.Encode(Recorded{Table: &x}))
	}
	for i := range list {
		require.NoError(t, e.Encode(Recorded{Decision: &list[i]}))
	}
	return b.Bytes()
}

// Decisions of real requests, many at once, through engines that fail, are full and come back, by
// several snapshots, come out the same from a file.
func TestReplayOfServedRequests(t *testing.T) {
	h := newHarnessWith(t, config.Proxy{RetryBudget: 1, QueueTime: config.Duration(20 * time.Millisecond), QueueBytes: 1 << 20}, moody(1), moody(2), moody(3))
	var urls []string
	for _, e := range h.engines {
		urls = append(urls, e.URL)
	}
	for version := range 3 {
		s := evenSnapshot(urls...)
		s.Version, s.Replicas = uint64(version+2), 1+version%2
		s.Rows[0].Utilisation = 0.3
		for i := range s.Rows[0].Targets {
			s.Rows[0].Targets[i].Limit = float64(version + 1)
		}
		require.NoError(t, h.plane.apply(s))
		h.crowd(8, 60)
	}
	file := exported(t, h.plane, Wanted{})
	counts := map[string]int{}
	require.NoError(t, Replay(bytes.NewReader(file), func(r Replayed) {
		if r.Why() == nil {
			require.NoError(t, r.Err, "%+v", r.Decision)
			require.Equal(t, r.Decision.Picked, r.Picked)
			counts["same"]++
			counts[r.Decision.Key]++
			if len(r.Decision.Attempts) > 0 && r.Picked != "" {
				require.Equal(t, r.Picked, r.Decision.Attempts[0].Engine, "the engine that got it")
			}
			return
		}
		counts[r.Why().Error()]++
	}))
	t.Log(counts)
	require.Greater(t, counts["same"], 1000)
	require.Greater(t, counts["session"], 100)
	require.Greater(t, counts["prefix"], 100)
	require.Zero(t, counts[ErrNoTable.Error()])
	require.Less(t, counts[route.ErrCut.Error()], 20)
}

func TestReplayTellsWhatIsWrong(t *testing.T) {
	h := newHarness(t, answers(`{}`), answers(`{}`))
	for i := range 10 {
		require.Equal(t, 200, h.post(chat, "X-Session-Id", fmt.Sprint(i)).StatusCode)
	}
	file := string(exported(t, h.plane, Wanted{}))
	replay := func(text string) (errs []string, err error) {
		err = Replay(strings.NewReader(text), func(r Replayed) {
			if r.Err != nil {
				errs = append(errs, r.Err.Error())
			}
		})
		return errs, err
	}
	errs, err := replay(file)
	require.NoError(t, err)
	require.Empty(t, errs)

	table, rest, _ := strings.Cut(file, "\n")
	errs, err = replay(rest)
	require.NoError(t, err)
	require.Len(t, errs, 10)
	require.Equal(t, ErrNoTable.Error(), errs[0])
	errs, err = replay(strings.ReplaceAll(table, `"e1"`, `"e9"`) + "\n" + rest)
	require.NoError(t, err)
	require.NotEmpty(t, errs)
	require.Contains(t, strings.Join(errs, "\n"), `its table has no engine "e1"`)
	errs, err = replay(table + "\n" + strings.Replace(rest, `"picked":"e`, `"picked":"x`, 1))
	require.NoError(t, err)
	require.Len(t, errs, 1)
	require.Regexp(t, `"e[01]" comes out, and was "x[01]"`, errs[0])
	for text, want := range map[string]string{
		"{}": "line 1 holds neither", table + "\n{": "line 2: ", "nonsense": "line 1: ", `{"table":{"snapshot":{"Rows":[{}]}}}`: "line 1: ",
	} {
		_, err = replay(text)
		require.ErrorContains(t, err, want)
	}
}

// FuzzReplay: whatever a file holds, it is refused or replayed.
func FuzzReplay(f *testing.F) {
	f.Add([]byte(`{"table":{"instance":"i","number":1,"bound":0.5,"snapshot":{"Cluster":"c","Epoch":1,"Version":1,"Engines":[{"Name":"e0","URL":"http://x","Capacity":1}],"Rows":[{"Model":"m","Targets":[{"Engine":0,"Weight":1,"Predicted":1}]}]}}}
{"decision":{"id":"i-1","table":1,"model":"m","key":"session","key_hash":"7","work":3,"probes":[{"look":"row","state":"within"},{"look":"probe","engine":"e0","state":"within","bound":3},{"look":"charge","engine":"e0","state":"within"}],"picked":"e0"}}`))
	f.Add([]byte(`{"decision":{"probes":[{}]}}`))
	f.Fuzz(func(_ *testing.T, b []byte) {
		if len(b) < 1<<14 {
			_ = Replay(bytes.NewReader(b), func(Replayed) {})
		}
	})
}

// What is notable is remembered however much else there is.
func TestNotableDecisionsStay(t *testing.T) {
	h := newHarnessWith(t, config.Proxy{RetryBudget: 1, RecordRate: 10}, answers(`{}`))
	s := evenSnapshot(h.engines[0].URL)
	require.NoError(t, h.plane.apply(s))
	resp := h.post(chat)
	require.Equal(t, 200, resp.StatusCode)
	first := resp.Header.Get("X-Wardrop-Decision")
	d, ok := h.plane.Decision(first)
	require.True(t, ok)
	require.Equal(t, KeptSample, d.Kept)
	require.Equal(t, "/v1/chat/completions", d.Path)
	require.NotEmpty(t, d.Client)
	require.Equal(t, "e0", d.Picked)
	require.Positive(t, d.Attempts[0].Expected)

	h.engines[0].Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "broken", 500) })
	resp = h.post(chat)
	require.Equal(t, 500, resp.StatusCode)
	failed := resp.Header.Get("X-Wardrop-Decision")
	h.engines[0].Config.Handler = answers(`{}`)
	kept := 0
	for range 3000 {
		r := &record{sequence: h.plane.records.next.Add(1), arrived: time.Now().UnixNano(), status: 200}
		h.plane.records.put(r)
	}
	for _, d := range h.plane.Decisions(Wanted{Kept: KeptSample}) {
		require.Equal(t, KeptSample, d.Kept)
		kept++
	}
	require.Less(t, kept, 40, "a second's worth at once, and ten a second")
	require.Greater(t, kept, 5)
	d, ok = h.plane.Decision(failed)
	require.True(t, ok)
	require.Equal(t, KeptError, d.Kept)
	require.Len(t, h.plane.Decisions(Wanted{Kept: KeptError}), 1)
	require.Len(t, h.plane.Decisions(Wanted{Engine: "e0"}), 2)
	require.Empty(t, h.plane.Decisions(Wanted{Engine: "e1"}))
	require.Empty(t, h.plane.Decisions(Wanted{Model: "other"}))
	require.Empty(t, h.plane.Decisions(Wanted{Since: time.Now().Add(time.Hour)}))
}

func TestWhatIsNotable(t *testing.T) {
	for _, c := range []struct {
		r    record
		want Kept
	}{
		{record{status: 200, n: 1}, KeptSample},
		{record{status: 200, n: 1, slow: true}, KeptSlow},
		{record{status: 200, n: 2, slow: true}, KeptRetry},
		{record{status: 502, n: 2}, KeptError},
		{record{status: 503}, KeptError},
		{record{status: 429, refused: "shed"}, KeptSample},
		{record{status: 404, refused: "model_not_found"}, KeptSample},
		{record{status: statusClientClosed, n: 1, first: Attempt{Error: "context canceled"}}, KeptSample},
		{record{status: 200, n: 1, first: Attempt{Error: "in the stream: 500"}}, KeptError},
	} {
		require.Equal(t, c.want, c.r.notable(), "%+v", c.r)
	}
}

func TestPace(t *testing.T) {
	p := pace{interval: 1e8}
	count := func(from, to, step int64) (n int) {
		for now := from; now < to; now += step {
			if p.lets(now) {
				n++
			}
		}
		return n
	}
	require.InDelta(t, 110, count(1e15, 1e15+10e9, 1e6), 2, "ten a second, and ten at once")
	require.Equal(t, 5, count(2e15, 2e15+5e8, 1e8), "as many as come, if they are fewer")
	none := pace{}
	require.False(t, none.lets(1))
}

// slowWriter takes nothing until it is told to.
type slowWriter struct {
	mu   sync.Mutex
	goes chan struct{}
	text bytes.Buffer
}

func (w *slowWriter) Write(b []byte) (int, error) {
	<-w.goes
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

// A disk that stands still costs lines, which are counted, and makes no request wait.
func TestAccessLog(t *testing.T) {
	w := &slowWriter{goes: make(chan struct{})}
	l := NewAccessLog(w, nil)
	h := newHarness(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"usage":{"prompt_tokens":7,"completion_tokens":3}}`)
	})
	h.plane.records.log = l
	require.Equal(t, 200, h.post(chat, "X-Session-Id", "s").StatusCode)
	require.Equal(t, 404, h.post(`{"model":"ghost"}`).StatusCode)
	const more = 3 * accessQueue
	for range more {
		h.plane.records.put(&record{sequence: h.plane.records.next.Add(1), arrived: time.Now().UnixNano(), status: 200})
	}
	close(w.goes)
	require.NoError(t, l.Close())
	lines := strings.Split(strings.TrimSpace(w.text.String()), "\n")
	require.Positive(t, l.Dropped())
	require.EqualValues(t, more+2, uint64(len(lines))+l.Dropped(), "each is written or counted")
	var first, second map[string]any
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &first))
	require.NoError(t, json.Unmarshal([]byte(lines[1]), &second))
	require.Equal(t, "m", first["model"])
	require.Equal(t, "session", first["key"])
	require.EqualValues(t, 3, first["output_tokens"])
	require.NotContains(t, first, "probes")
	require.Equal(t, "model_not_found", second["refused"])
	before := l.Dropped()
	l.put(h.plane.records, &record{})
	require.Equal(t, before+1, l.Dropped(), "after its end")
}

// disk takes so many bytes at a write, and fails if that is less than it should.
type disk struct {
	room int
	text bytes.Buffer
}

func (d *disk) Write(b []byte) (int, error) {
	n := min(len(b), d.room)
	d.text.Write(b[:n])
	if n < len(b) {
		return n, io.ErrShortWrite
	}
	return n, nil
}

// A full disk costs lines, which are counted, and is told once; when it has room again the log goes on,
// and every line but a torn one can be read.
func TestAccessLogOnAFullDisk(t *testing.T) {
	d, told := &disk{}, 0
	l := &AccessLog{ending: make(chan struct{}), w: d, failed: func(err error) { told++; require.ErrorIs(t, err, io.ErrShortWrite) }}
	e, g := json.NewEncoder(&l.buf), &records{instance: "i"}
	put := func(lines int) {
		for range lines {
			l.line(e, &accessed{by: g, r: record{arrived: 1, sequence: g.next.Add(1)}})
		}
		l.flush()
	}
	put(3)
	put(2)
	require.EqualValues(t, 5, l.Dropped())
	require.Equal(t, 1, told)
	d.room = 1 << 20
	put(1)
	d.room = len(d.text.String())*3/2 + 1
	put(3)
	require.EqualValues(t, 7, l.Dropped(), "one of three went whole")
	d.room = 1 << 20
	put(2)
	require.NoError(t, l.err)
	require.Equal(t, 2, told)
	var ids []string
	for line := range strings.Lines(d.text.String()) {
		var x Decision
		if json.Unmarshal([]byte(line), &x) == nil {
			ids = append(ids, x.ID)
		}
	}
	require.Equal(t, []string{"i-6", "i-7", "i-10", "i-11"}, ids)
}

func TestAccessLogSaysWhyItEnded(t *testing.T) {
	told := make(chan error, 1)
	l := NewAccessLog(&disk{}, func(err error) { told <- err })
	l.put(&records{instance: "i"}, &record{arrived: 1})
	require.ErrorIs(t, l.Close(), io.ErrShortWrite)
	require.ErrorIs(t, <-told, io.ErrShortWrite)
	require.EqualValues(t, 1, l.Dropped())
}

// What recording costs a request that is not recorded, and one that is.
func BenchmarkRecord(b *testing.B) {
	for name, rate := range map[string]float64{"not of the sample": 0, "recorded": 1e9} {
		b.Run(name, func(b *testing.B) {
			g := newRecords("i", "c", rate)
			r := &record{status: 200, n: 1, arrived: 1e15}
			b.ReportAllocs()
			for b.Loop() {
				r.sequence = g.next.Add(1)
				r.arrived += 1000
				g.put(r)
			}
		})
	}
}
