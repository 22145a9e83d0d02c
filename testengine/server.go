package testengine

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardrop-lb/wardrop/enginemodel"
)

// Config says what a test engine is. Only Models must be set.
type Config struct {
	Name   string             // what the x-engine header says; default "testengine"
	Models []string           // served models; metrics go under the first
	Params enginemodel.Params // how fast it is; the zero value is DefaultParams

	// PromptTokens is the size of every prompt, 0 to take four bytes of text as
	// one token. OutputTokens is how many a request gets that names no maximum,
	// default 16; one that does gets its maximum.
	PromptTokens int
	OutputTokens int

	Seed uint64 // decides the words of the answers
}

// DefaultParams is an engine fit for tests: quick, with room for 64 requests.
func DefaultParams() enginemodel.Params {
	return enginemodel.Params{
		Base: 1e-3, PerPrefillToken: 2e-6, PerRequest: 20e-6,
		MaxBatch: 64, MaxStepTokens: 2048, Blocks: 4096, BlockSize: 16,
	}
}

// Stats counts a test engine's requests. Started = Finished + Cancelled +
// Running + Waiting + those in the frontend.
type Stats struct {
	Started, Finished, Cancelled uint64
	Running, Waiting             int
}

// Server is one test engine. Its methods are safe for concurrent use.
type Server struct {
	config  Config
	epoch   time.Time // zero of the model's time
	metrics metrics
	faults  atomic.Pointer[Faults]
	mux     *http.ServeMux
	sleeps  atomic.Uint64 // how often it fell asleep
	streams atomic.Uint64 // that have begun

	mu       sync.Mutex
	engine   *enginemodel.Engine
	clock    time.Duration // the model's time
	stepping bool
	until    time.Duration // end of the step, while stepping
	calls    map[uint64]*call
	lastID   uint64
	changed  chan struct{} // closed and renewed when the faults change
	shown    enginemodel.Gauges
	storm    storm
	// countFrom is what counters on the page of metrics begin at.
	countFrom enginemodel.Gauges
	lifting   *time.Timer // of the faults; nil if they do not end by themselves
	events    []enginemodel.Event
	closed    bool
	http      *http.Server
	listener  net.Listener

	wake     chan struct{}
	stop     chan struct{}
	running  sync.WaitGroup // the stepping goroutine and the HTTP server
	handlers sync.WaitGroup
}

// New makes a test engine whose model runs at once; Close ends it.
func New(c Config) (*Server, error) {
	if len(c.Models) == 0 {
		return nil, errors.New("test engine: no models")
	}
	if c.Params == (enginemodel.Params{}) {
		c.Params = DefaultParams()
	}
	if c.Name == "" {
		c.Name = "testengine"
	}
	if c.OutputTokens == 0 {
		c.OutputTokens = 16
	}
	engine, err := enginemodel.New(c.Params)
	if err != nil {
		return nil, fmt.Errorf("test engine %s: %w", c.Name, err)
	}
	s := &Server{
		config: c, epoch: time.Now(), engine: engine,
		calls: map[uint64]*call{}, changed: make(chan struct{}),
		wake: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	s.faults.Store(&Faults{})
	s.routes()
	s.running.Go(s.run)
	return s, nil
}

// Start listens on addr ("127.0.0.1:0" for any free port) and serves. It may be
// called once.
func (s *Server) Start(addr string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.listener != nil {
		return errors.New("test engine: started or closed before")
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("test engine %s: %w", s.config.Name, err)
	}
	s.listener = l
	s.http = &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second}
	s.running.Go(func() { _ = s.http.Serve(l) }) // it ends with ErrServerClosed, by Close
	return nil
}

// Addr is the address the engine listens on, "" before Start.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// URL is the base URL of the engine, without a path; "" before Start.
func (s *Server) URL() string {
	if a := s.Addr(); a != "" {
		return "http://" + a
	}
	return ""
}

// Close ends the engine as a crash would: its address refuses, requests in it
// are cut off. It returns when nothing of the engine runs any more.
func (s *Server) Close() {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	server := s.http
	if s.lifting != nil {
		s.lifting.Stop()
	}
	s.mu.Unlock()
	if first {
		close(s.stop)
	}
	if server != nil {
		_ = server.Close()
	}
	s.running.Wait()
	s.handlers.Wait()
}

// Stats gives the engine's counts.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.engine.Gauges()
	return Stats{
		Started: s.lastID, Finished: g.Finished, Cancelled: g.Cancelled,
		Running: g.Running, Waiting: g.Waiting,
	}
}

// Handler serves the engine's API; it ends with Close, like everything else.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.enter() {
			panic(http.ErrAbortHandler)
		}
		defer s.handlers.Done()
		w.Header().Set("x-engine", s.config.Name)
		if s.Faults().State == Loading && r.URL.Path != "/faults" {
			writeError(w, http.StatusServiceUnavailable, "unavailable_error", "Loading model", "")
			return
		}
		s.mux.ServeHTTP(w, r)
	})
}

func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.handlers.Add(1)
	return true
}

// reset cuts the connection as a dying process does, with a TCP reset where the
// connection allows it. It does not return.
func reset(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
	panic(http.ErrAbortHandler)
}
