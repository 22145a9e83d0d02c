package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wardrop-lb/wardrop/loadgen"
	"github.com/wardrop-lb/wardrop/sim"
)

// player sends a scenario's requests through the data planes' sockets and lets its
// events happen to the simulated engines.
type player struct {
	up      *fleetUp
	play    *sim.Play
	since   time.Time
	client  *http.Client
	urls    []string       // by cluster
	index   map[string]int // of engines, by name
	replies chan numbered
	calls   sync.WaitGroup

	under map[uint64]context.CancelFunc // requests under way
	down  map[int]bool                  // engines that have crashed

	mu     sync.Mutex
	counts loadgen.Counts
}

type numbered struct {
	id uint64
	sim.Reply
	err error
}

func newPlayer(up *fleetUp, s *sim.Scenario) (*player, error) {
	p := &player{
		up: up, index: map[string]int{}, replies: make(chan numbered, 1024),
		under: map[uint64]context.CancelFunc{}, down: map[int]bool{},
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2048, DisableCompression: true}},
	}
	var err error
	if p.play, err = sim.NewPlay(s, p, 1); err != nil {
		return nil, err
	}
	f := p.play.Fleet()
	for i, e := range f.Engines {
		p.index[e.Name] = i
	}
	for _, c := range f.Clusters {
		for _, plane := range up.planes {
			if plane.cluster == c.Name {
				p.urls = append(p.urls, plane.url)
			}
		}
	}
	return p, nil
}

// startPlay plays the scenario; its end ends everything.
func (up *fleetUp) startPlay(ctx context.Context, end func(), s *servers) error {
	p, err := newPlayer(up, up.scenario)
	if err != nil {
		return err
	}
	up.load, up.loadSince, up.loadDone = p.loadCounts, time.Now(), make(chan struct{})
	s.run("load", func(context.Context) error {
		defer end()
		defer close(up.loadDone)
		up.result = p.run(ctx, up.cfg.Policy.Name)
		return nil
	})
	return nil
}

// crash ends a simulated engine at once, or starts it anew, with what is wrong with it.
func (up *fleetUp) crash(i int, down bool) {
	old := up.engines[i]
	if down {
		old.Close()
		return
	}
	if err := up.startEngine(i, strings.TrimPrefix(up.cfg.Engines[i].URL, "http://")); err != nil {
		up.log.Error("a simulated engine does not come back", "engine", up.cfg.Engines[i].Name, "error", err)
	}
	_ = up.engines[i].SetFaults(old.Faults()) // they were checked before
}

// drain does what an operator does who edits the configuration.
func (up *fleetUp) drain(i int, begins bool) {
	cfg := *up.cfg
	cfg.Engines = slices.Clone(cfg.Engines)
	cfg.Engines[i].Drain = begins
	up.cfg = &cfg
	up.control.Reload(&cfg)
}

// run plays until the scenario ends, or ctx does: then the result is partial. What is
// still under way then is given up.
func (p *player) run(ctx context.Context, name string) *sim.Result {
	p.since = time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	partial := false
	for !partial {
		at, more := p.play.Next()
		if !more {
			break
		}
		timer.Reset(time.Until(p.since.Add(at)))
		select {
		case <-ctx.Done():
			partial = true
		case x := <-p.replies:
			p.reply(x)
		case <-timer.C:
			p.play.Advance(time.Since(p.since))
		}
	}
	result := p.play.Result(name, time.Since(p.since), partial)
	for _, cancel := range p.under {
		cancel()
	}
	go func() { // whoever still has a reply may lay it down
		p.calls.Wait()
		close(p.replies)
	}()
	for x := range p.replies {
		delete(p.under, x.id)
	}
	p.client.CloseIdleConnections()
	return result
}

func (p *player) reply(x numbered) {
	cancel := p.under[x.id]
	if cancel == nil {
		return // the client had left
	}
	cancel()
	delete(p.under, x.id)
	p.mu.Lock()
	switch {
	case x.Outcome == sim.Answered:
		p.counts.Succeeded++
	case x.Refused:
		p.counts.Shed++
	default:
		p.counts.Failed++
		p.counts.LastError = x.err.Error()
	}
	p.mu.Unlock()
	p.play.Reply(x.id, x.Reply)
}

func (p *player) loadCounts() loadgen.Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

// Send is that of sim.Target.
func (p *player) Send(r *sim.Request) {
	p.mu.Lock()
	p.counts.Sent++
	p.mu.Unlock()
	f := p.play.Fleet()
	body := fmt.Appendf(nil, `{"model":%q,"stream":true,"stream_options":{"include_usage":true},"max_tokens":%d,"messages":[{"role":"user","content":"`,
		f.Models[r.Model], r.Output)
	body = append(promptText(body, r), `"}]}`...)
	ctx, cancel := context.WithCancel(context.Background())
	p.under[r.ID] = cancel
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.urls[r.Cluster]+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		panic(err) // the URL is the data plane's own
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Priority", r.Priority.String())
	if r.Session != 0 {
		req.Header.Set("X-Session-Id", strconv.FormatUint(r.Session, 16))
	}
	id := r.ID
	p.calls.Go(func() {
		x := numbered{id: id}
		x.err = p.call(req, &x.Reply)
		if x.err != nil {
			x.Outcome = sim.Failed
		}
		x.Finished = time.Since(p.since)
		p.replies <- x
	})
}

var cachedTokens = regexp.MustCompile(`"cached_tokens":(\d+)`)

// call makes a request and reads the whole answer, noting when it began.
func (p *player) call(req *http.Request, x *sim.Reply) error {
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	x.Engine = p.index[resp.Header.Get("X-Wardrop-Engine")]
	x.Attempts, _ = strconv.Atoi(resp.Header.Get("X-Wardrop-Attempts"))
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		x.Refused = x.Attempts == 0
		return fmt.Errorf("%s: %.200s", resp.Status, text)
	}
	// The end says how much was in the cache, and that it is the end.
	const kept = 1024
	buf, have := make([]byte, 32<<10), 0
	for err == nil {
		var n int
		n, err = resp.Body.Read(buf[have:])
		if n > 0 && x.FirstToken == 0 {
			x.FirstToken = time.Since(p.since)
		}
		if have += n; have > len(buf)/2 {
			have = copy(buf, buf[have-kept:have])
		}
	}
	end := bytes.TrimSpace(buf[:have])
	switch {
	case !errors.Is(err, io.EOF):
		return err
	case !bytes.HasSuffix(end, []byte("data: [DONE]")):
		return errors.New("the stream ends without [DONE]")
	}
	if m := cachedTokens.FindSubmatch(end); m != nil {
		x.Cached, _ = strconv.Atoi(string(m[1]))
	}
	return nil
}

// Leave is that of sim.Target.
func (p *player) Leave(id uint64) {
	p.under[id]()
	delete(p.under, id)
}

// Load is that of sim.Target.
func (p *player) Load(engine int) (running, waiting int) {
	s := p.up.engines[engine].Stats()
	return s.Running, s.Waiting
}

// Change is that of sim.Target. Events of several kinds may meet at an engine.
func (p *player) Change(engine int, e *sim.Event, begins bool) {
	faults := p.up.engines[engine].Faults()
	switch e.Do {
	case "down":
		if begins != p.down[engine] {
			p.down[engine] = begins
			p.up.crash(engine, begins)
		}
		return
	case "drain":
		p.up.drain(engine, begins)
		return
	case "hang":
		faults.Hang = begins
	default:
		faults.Slow = 0
		if begins {
			faults.Slow = e.Factor
		}
	}
	_ = p.up.engines[engine].SetFaults(faults) // the scenario's were checked when it was read
}

// promptText writes a prompt that the engines count as so many tokens: blocks that are
// the same are the same text.
func promptText(dst []byte, r *sim.Request) []byte {
	const bytesPerToken = 4
	begin, end := len(dst), 0
	write := func(text uint64, until int) {
		for until = begin + bytesPerToken*min(until, r.Prompt-1); len(dst) < until; {
			text = text*6364136223846793005 + 1442695040888963407 // Knuth's MMIX
			word := strconv.AppendUint(nil, text|1<<63, 16)
			dst = append(dst, word[:min(len(word), until-len(dst))]...)
		}
	}
	for _, b := range r.Prefix {
		write(b.Hash, b.End)
		end = b.End
	}
	if end < r.Prompt {
		write(^r.ID, r.Prompt)
	}
	return dst
}
