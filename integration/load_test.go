package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// load is clients that send requests at an even pace to data planes, and remember what failed.
type load struct {
	mu       sync.Mutex
	answered map[string]int // by cluster
	failed   []string
	paused   map[string]bool
	idle     map[string]*sync.WaitGroup // what is under way, by cluster
}

// pause sends nothing more to a cluster, and waits for what is under way.
func (l *load) pause(cluster string) {
	l.mu.Lock()
	l.paused[cluster] = true
	under := l.idle[cluster]
	l.mu.Unlock()
	under.Wait()
}

func (l *load) resume(cluster string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.paused[cluster] = false
}

// loadRates are requests/s by cluster.
var loadRates = map[string]int{"x": 30, "y": 10}

func startLoad(t testing.TB, planes []*dataPlane) *load {
	l := &load{answered: map[string]int{}, paused: map[string]bool{}, idle: map[string]*sync.WaitGroup{}}
	for _, d := range planes {
		l.idle[d.cluster] = &sync.WaitGroup{}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, d := range planes {
		wg.Go(func() { l.send(ctx, d) })
	}
	t.Cleanup(func() { cancel(); wg.Wait() })
	return l
}

func (l *load) send(ctx context.Context, d *dataPlane) {
	tick := time.NewTicker(time.Second / time.Duration(loadRates[d.cluster]))
	defer tick.Stop()
	under := l.idle[d.cluster]
	defer under.Wait()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		l.mu.Lock()
		if !l.paused[d.cluster] {
			under.Go(func() { l.one(ctx, d, n) })
		}
		l.mu.Unlock()
	}
}

// requestTimeout is when a client gives up, which counts as failed.
const requestTimeout = 30 * time.Second

func (l *load) one(ctx context.Context, d *dataPlane, n int) {
	asked, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	body := fmt.Sprintf(`{"model":"tiny","prompt":"%s %d","max_tokens":4}`, d.cluster, n)
	req, err := http.NewRequestWithContext(asked, http.MethodPost, "http://"+d.listen+"/v1/completions", strings.NewReader(body))
	if err != nil {
		panic(err) // the address is the test's own
	}
	req.Header.Set("x-session-id", fmt.Sprint(n%500))
	what := ""
	resp, err := d.network.Do(req)
	if err == nil {
		var answer []byte
		answer, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err == nil && (resp.StatusCode != http.StatusOK || !strings.Contains(string(answer), `"finish_reason":"length"`)) {
			what = fmt.Sprintf("%d %s", resp.StatusCode, answer)
		}
	}
	if ctx.Err() != nil {
		return // the test is over
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		l.failed = append(l.failed, fmt.Sprintf("%s %d: %v", d.cluster, n, err))
	case what != "":
		l.failed = append(l.failed, fmt.Sprintf("%s %d: %s", d.cluster, n, what))
	default:
		l.answered[d.cluster]++
	}
}

func (l *load) counts() (answered map[string]int, failed []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	answered = map[string]int{}
	for c, n := range l.answered {
		answered[c] = n
	}
	return answered, slices.Clone(l.failed)
}

// more waits until so many more requests were answered at each cluster.
func (l *load) more(t testing.TB, n int) {
	t.Helper()
	before, _ := l.counts()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		now, _ := l.counts()
		if now["x"] >= before["x"]+n && now["y"] >= before["y"]+n {
			return
		}
		select {
		case <-deadline:
			_, failed := l.counts()
			t.Fatalf("no more answers come: %v, failed %v", now, failed)
		case <-tick.C:
		}
	}
}
