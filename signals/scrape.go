package signals

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	maxPage   = 4 << 20  // of an answer, in bytes after decompression
	maxHeader = 64 << 10 // of its header, in bytes
	maxError  = 500      // of the text that says why there is no signal, in bytes
)

// Target is an engine to read.
type Target struct {
	Engine string // its name
	URL    string // base URL without a path, http or https, or unix:///path/of/socket
	Kind   string // one of Kinds; "" for KindAuto

	// MetricsURL is where the metrics are, if not where engines of the kind have
	// them: a path below URL, beginning with /, or an http or https URL; for KindORCA
	// host:port.
	MetricsURL string
	Names      Names // what the metrics are called; for KindGeneric, and only then
}

// Options says how a Scraper reads. The zero value reads every second.
type Options struct {
	Interval time.Duration // between readings of one engine, jittered by a tenth; default 1 s
	Timeout  time.Duration // of one reading; default twice the interval, at most 5 s
	Backoff  time.Duration // longest interval for an engine that cannot be read; default 5 s, at least Interval

	// Report, if set, gets the state after every attempt. Calls for one engine
	// come one after the other, those for several at the same time; a call that
	// blocks delays the readings of its engine alone.
	Report func(State)

	Transport http.RoundTripper // default: a transport of its own, without proxies
}

func (o Options) withDefaults() Options {
	if o.Interval <= 0 {
		o.Interval = time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = min(2*o.Interval, 5*time.Second)
	}
	if o.Backoff <= 0 {
		o.Backoff = 5 * time.Second
	}
	o.Backoff = max(o.Backoff, o.Interval)
	return o
}

// Scraper reads a set of engines, each on its own, so that a slow one delays no
// other. Its methods are safe for concurrent use.
type Scraper struct {
	options Options
	client  *http.Client
	own     *http.Transport // nil if the options brought one
	secure  *tls.Config     // the transport's
	ctx     context.Context
	cancel  context.CancelFunc
	polls   sync.WaitGroup

	mu      sync.Mutex
	pollers map[string]*poller
	states  map[string]State
	news    map[string]bool // engines whose state Collect has not given yet
}

// NewScraper makes a scraper of no engines. It stops when ctx ends or by Close.
func NewScraper(ctx context.Context, o Options) *Scraper {
	s := &Scraper{
		options: o.withDefaults(),
		pollers: map[string]*poller{}, states: map[string]State{}, news: map[string]bool{},
	}
	s.ctx, s.cancel = context.WithCancel(ctx)
	transport := o.Transport
	if transport == nil {
		s.own = &http.Transport{MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: maxHeader}
		transport = s.own
	}
	if t, ok := transport.(*http.Transport); ok {
		s.secure = t.TLSClientConfig.Clone()
	}
	s.client = newClient(transport)
	return s
}

func newClient(t http.RoundTripper) *http.Client {
	return &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// socketClient reads over a unix socket. It keeps no connection: opening one
// there costs next to nothing.
func socketClient(path string) *http.Client {
	return newClient(&http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeader, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}})
}

// Close stops all readings and returns when none is under way any more.
func (s *Scraper) Close() {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.polls.Wait()
	if s.own != nil {
		s.own.CloseIdleConnections()
	}
}

// Set replaces the set of engines. Those that stay as they were are read on
// undisturbed; of those that left, or changed in anything, the state is
// forgotten. An engine of KindNone is not read and has no state. The error
// names every target that is wrong, and then nothing has changed.
func (s *Scraper) Set(targets []Target) error {
	next := make(map[string]*poller, len(targets))
	var errs []error
	for _, t := range targets {
		p, err := newPoller(t)
		if err == nil && next[t.Engine] != nil {
			err = errors.New("it is there twice")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("engine %q: %w", t.Engine, err))
			continue
		}
		next[t.Engine] = p
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, old := range s.pollers {
		if p := next[name]; p != nil && reflect.DeepEqual(p.target, old.target) {
			next[name] = old
			continue
		}
		old.stop()
		delete(s.states, name)
		delete(s.news, name)
	}
	for _, p := range next {
		if p.ctx == nil {
			s.launch(p)
		}
	}
	s.pollers = next
	return nil
}

// launch starts a poller; the lock is held.
func (s *Scraper) launch(p *poller) {
	p.ctx, p.stop = context.WithCancel(s.ctx)
	if p.adapter == nil || s.ctx.Err() != nil {
		return
	}
	if a, ok := p.adapter.(interface{ secureBy(*tls.Config) }); ok {
		a.secureBy(s.secure)
	}
	s.polls.Go(func() { s.poll(p) })
}

// States gives what is known of every engine that has been tried, by name.
func (s *Scraper) States() []State {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]State, 0, len(s.states))
	for _, st := range s.states {
		out = append(out, st)
	}
	sortStates(out)
	return out
}

// InBand takes in what an engine said of itself in an answer at that time, see
// State.InBand. It says whether that changed anything: of an engine that is not in
// the set, or has not been read yet, nothing is kept.
func (s *Scraper) InBand(engine string, report Values, at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.states[engine]
	if !ok || old.Signal == nil {
		return false
	}
	next := old.InBand(report, at)
	if next.Signal == old.Signal {
		return false
	}
	s.states[engine], s.news[engine] = next, true
	return true
}

// Collect gives the newest state of every engine tried since the last Collect,
// by name.
func (s *Scraper) Collect() []State {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]State, 0, len(s.news))
	for name := range s.news {
		out = append(out, s.states[name])
	}
	clear(s.news)
	sortStates(out)
	return out
}

func sortStates(list []State) {
	slices.SortFunc(list, func(a, b State) int { return strings.Compare(a.Engine, b.Engine) })
}

// poller reads one engine.
type poller struct {
	target  Target
	base    string
	client  *http.Client // nil for the scraper's
	adapter Adapter
	ctx     context.Context
	stop    context.CancelFunc

	state    State
	start    string // what the engine last said of its start
	sequence uint64
}

func newPoller(t Target) (*poller, error) {
	adapter, err := NewAdapter(t)
	if err != nil {
		return nil, err
	}
	if t.Engine == "" {
		return nil, errors.New("no name")
	}
	p := &poller{target: t, adapter: adapter, state: State{Engine: t.Engine}}
	if adapter == nil {
		return p, nil
	}
	u, err := url.Parse(t.URL)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "unix" && u.Host == "" && u.Path != "" {
		p.base, p.client = "http://localhost", socketClient(u.Path)
		return p, nil
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is not an http URL", t.URL)
	}
	p.base = strings.TrimSuffix(u.String(), "/")
	return p, nil
}

// poll reads until the poller is stopped. The first reading comes at a random
// moment of the first quarter of an interval, so that many engines that are set
// at once are not read at once.
func (s *Scraper) poll(p *poller) {
	if a, ok := p.adapter.(interface{ close() }); ok {
		defer a.close()
	}
	timer := time.NewTimer(rand.N(s.options.Interval/4 + 1))
	defer timer.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-timer.C:
		}
		begin := time.Now()
		s.read(p)
		if !s.publish(p) {
			return
		}
		timer.Reset(s.pause(p.state.Failures, time.Since(begin)))
	}
}

// pause is how long to wait after a reading that took that long.
func (s *Scraper) pause(failures int, took time.Duration) time.Duration {
	interval := s.options.Interval
	for range min(failures, 30) {
		if interval *= 2; interval >= s.options.Backoff {
			interval = s.options.Backoff
			break
		}
	}
	jittered := interval - interval/10 + rand.N(interval/5+1)
	if failures > 0 {
		return max(jittered-took, interval/10)
	}
	// Reading takes at most a tenth of the time of an engine that is slow to
	// answer, but a signal never gets older for it than those of engines that fail.
	return max(jittered-took, min(maxShare*took, s.options.Backoff))
}

// maxShare is how many times longer than a reading the pause after it is, at least.
const maxShare = 9

// read makes one attempt and leaves the outcome in the poller's state.
func (s *Scraper) read(p *poller) {
	ctx, cancel := context.WithTimeout(p.ctx, s.options.Timeout)
	defer cancel()
	answered := false
	reading, err := p.adapter.Read(ctx, func(ctx context.Context, path string) (Answer, error) {
		a, err := p.get(ctx, s.client, path)
		var status *StatusError
		answered = answered || err == nil || errors.As(err, &status)
		return a, err
	})
	var reached *reachedError
	p.note(reading, err, answered || err == nil || errors.As(err, &reached), time.Now())
}

// note leaves the outcome of an attempt in the poller's state.
func (p *poller) note(reading Reading, err error, answered bool, now time.Time) {
	p.state.Attempt, p.state.Reachable = now, answered
	p.state.Refused, p.state.Status = errors.Is(err, syscall.ECONNREFUSED), 0
	p.state.Kind = p.target.Kind
	if t, ok := p.adapter.(kindTeller); ok {
		p.state.Kind = t.Kind()
	}
	if err != nil {
		var status *StatusError
		if errors.As(err, &status) {
			p.state.Status = status.Code
		}
		p.state.Err = cut(err.Error(), maxError)
		p.state.Failures++
		p.state.Faults.Failed++
		return
	}
	p.state.Err, p.state.Failures, p.state.Ranks = "", 0, reading.Ranks
	if at := reading.At; !at.IsZero() {
		if last := p.state.Signal; last != nil && at.Equal(last.Time) {
			return // the engine has said nothing since
		}
		now = at
	}
	p.state.LastGood = now
	p.state.Faults.Spoilt += uint64(reading.Spoilt)
	p.state.Signal = p.signal(reading, now)
}

// cut bounds a text that engines may have had a part in. Such texts are passed
// on in messages that take nothing but UTF-8.
func cut(text string, most int) string {
	if len(text) > most {
		text = text[:most] + "..."
	}
	return strings.ToValidUTF8(text, "?")
}

// get fetches what an adapter asks for, and counts what is wrong with it.
func (p *poller) get(ctx context.Context, client *http.Client, path string) (Answer, error) {
	address := path
	if strings.HasPrefix(path, "/") {
		address = p.base + path
		if p.client != nil {
			client = p.client
		}
	}
	a, err := get(ctx, client, address, path)
	var status *StatusError
	if errors.As(err, &status) && status.redirect() {
		p.state.Faults.Redirects++
	}
	if a.Truncated {
		p.state.Faults.Truncated++
	}
	return a, err
}

// signal numbers a reading.
func (p *poller) signal(r Reading, now time.Time) *Signal {
	p.sequence++
	next := &Signal{Engine: p.target.Engine, Sequence: p.sequence, Time: now, Values: r.Values}
	last := p.state.Signal
	if last != nil && r.Start == p.start && !fell(last.Values, r.Values) {
		next.Incarnation = last.Incarnation
		return next
	}
	next.Incarnation = uint64(now.UnixMicro())
	if started, ok := startTime(r.Start); ok && r.Start != p.start {
		next.Incarnation = started
	}
	if last != nil {
		next.Incarnation = max(next.Incarnation, last.Incarnation+1)
	}
	p.start = r.Start
	return next
}

// fell says whether a counter went down, which it does by starting anew.
func fell(last, next Values) bool {
	before, after := last.counters(), next.counters()
	for i := range before {
		if before[i].Known && after[i].Known && after[i].Value < before[i].Value {
			return true
		}
	}
	return false
}

// startTime reads a start that is given in seconds since 1970, in microseconds.
// Others, such as those counted from the machine's own start, are no time.
func startTime(start string) (uint64, bool) {
	seconds, err := strconv.ParseFloat(start, 64)
	const in2000, in2200 = 946684800, 7258118400
	if err != nil || !(seconds > in2000 && seconds < in2200) {
		return 0, false
	}
	return uint64(seconds * 1e6), true
}

// publish makes the poller's state known; false when it is no longer wanted.
func (s *Scraper) publish(p *poller) bool {
	s.mu.Lock()
	if p.ctx.Err() != nil {
		s.mu.Unlock()
		return false
	}
	st := p.state
	if old := s.states[p.target.Engine].Signal; old != nil && st.Signal != nil && old.Sequence == st.Signal.Sequence {
		st.Signal = old // a failed attempt is no reason to forget what the engine said since the last good one
	}
	s.states[p.target.Engine] = st
	s.news[p.target.Engine] = true
	s.mu.Unlock()
	if s.options.Report != nil {
		s.options.Report(p.state)
	}
	return true
}

// get fetches a page. One that breaks off is given as far as it came, and so is
// one that is too long.
func get(ctx context.Context, client *http.Client, address, path string) (Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return Answer{}, err
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4, */*;q=0.1")
	resp, err := client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		_, _ = io.CopyN(io.Discard, resp.Body, 4096) // a short error leaves the connection usable
		return Answer{}, &StatusError{Path: path, Code: resp.StatusCode}
	}
	a := Answer{Header: resp.Header}
	a.Body, err = io.ReadAll(io.LimitReader(resp.Body, maxPage+1))
	if len(a.Body) > maxPage {
		a.Body, a.Truncated = a.Body[:maxPage], true
	}
	if err != nil {
		a.Truncated = true
		if len(a.Body) == 0 {
			return Answer{}, fmt.Errorf("%s: %w", path, err)
		}
	}
	return a, nil
}
