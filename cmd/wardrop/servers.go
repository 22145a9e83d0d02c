package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/wardrop-lb/wardrop/weights"
)

// servers runs what a role serves, until its context ends or one of them fails.
type servers struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
}

func newServers(ctx context.Context) *servers {
	s := &servers{}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	return s
}

// run starts a part; an error ends all of them.
func (s *servers) run(name string, f func(context.Context) error) {
	s.wg.Go(func() {
		if err := f(s.ctx); err != nil {
			s.cancel(fmt.Errorf("%s: %w", name, err))
		}
	})
}

// wait blocks until everything has ended and returns the first failure.
func (s *servers) wait() error {
	<-s.ctx.Done()
	s.wg.Wait()
	if err := context.Cause(s.ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// http serves a handler; when the end comes, requests in flight may finish for
// as long as drain says.
func (s *servers) http(name string, l net.Listener, h http.Handler, drain time.Duration) {
	b := &busy{Handler: h}
	server := &http.Server{Handler: b, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	s.run(name, func(ctx context.Context) error {
		done := make(chan struct{})
		go func() {
			defer close(done)
			<-ctx.Done()
			limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
			defer cancel()
			if server.Shutdown(limit) != nil {
				_ = server.Close()
				b.wait(cutPatience)
			}
		}()
		err := server.Serve(l)
		if errors.Is(err, http.ErrServerClosed) {
			<-done
			return nil
		}
		return err
	})
}

// cutPatience is how long requests that were cut off may take to notice and to be recorded.
const cutPatience = time.Second

// busy knows when no request is served any more: of those that it has cut off a server does not say.
type busy struct {
	http.Handler
	serving sync.RWMutex // for reading by who serves
}

func (b *busy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.serving.RLock()
	defer b.serving.RUnlock()
	b.Handler.ServeHTTP(w, r)
}

// wait returns when none is served, or after limit.
func (b *busy) wait(limit time.Duration) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.serving.Lock()
		defer b.serving.Unlock()
	}()
	select {
	case <-done:
	case <-time.After(limit):
	}
}

// grpc serves a gRPC server.
func (s *servers) grpc(name string, l net.Listener, server *grpc.Server) {
	s.run(name, func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, server.Stop)
		defer stop()
		return server.Serve(l)
	})
}

// dialAll connects to every upstream; closeAll ends all connections.
func dialAll(addrs []string) (conns []grpc.ClientConnInterface, closeAll func(), err error) {
	var open []*grpc.ClientConn
	closeAll = func() {
		for _, c := range open {
			_ = c.Close()
		}
	}
	for _, addr := range addrs {
		c, err := dialControl(addr)
		if err != nil {
			closeAll()
			return nil, nil, fmt.Errorf("%s: %w", addr, err)
		}
		open, conns = append(open, c), append(conns, c)
	}
	return conns, closeAll, nil
}

func dialControl(addr string) (*grpc.ClientConn, error) {
	return grpc.NewClient(addr, append(weights.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
}

func listen(what, addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return l, nil
}
