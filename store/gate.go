package store

import (
	"context"
	"errors"
	"sync"
)

var errClosed = errors.New("store: it is closed")

// gate lets calls in while something is open, and waits for them before it closes: an etcd
// of this process breaks when it is asked after its end.
type gate struct {
	ctx  context.Context // ends when it closes
	stop context.CancelFunc

	mu     sync.Mutex
	closed bool
	inside sync.WaitGroup
}

func newGate() *gate {
	g := &gate{}
	g.ctx, g.stop = context.WithCancel(context.Background())
	return g
}

// enter gives a context that also ends when the gate closes, and what to call in the end.
func (g *gate) enter(ctx context.Context) (context.Context, func(), error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, nil, errClosed
	}
	g.inside.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(g.ctx, cancel)
	return ctx, func() { stop(); cancel(); g.inside.Done() }, nil
}

// close sends everybody out, and waits until they have gone.
func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.stop()
	g.inside.Wait()
}
