package proxy

import (
	"context"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/fleet"
)

const (
	probeInterval  = 2 * time.Second
	probeTimeout   = 2 * time.Second
	probesByRegion = 3  // engines probed a round
	probesKept     = 10 // samples a region's minimum is taken over
)

// prober measures the distance to each region: the least of the recent times
// that opening a connection to one of its engines took, which is one round trip.
type prober struct {
	dial dialer

	mu      sync.Mutex
	samples map[string][]float64 // by region, newest last, seconds
}

func newProber(dial dialer) *prober {
	return &prober{dial: dial, samples: map[string][]float64{}}
}

// run probes until ctx is done.
func (p *prober) run(ctx context.Context, snapshot func() *fleet.Snapshot) {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for round := 0; ; round++ {
		p.round(ctx, snapshot(), round)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// round probes a few engines of every region at the same time, others each round.
func (p *prober) round(ctx context.Context, s *fleet.Snapshot, round int) {
	if s == nil {
		return
	}
	regions := map[string][]string{}
	for _, e := range s.Engines {
		if addr, ok := address(e.URL); ok {
			regions[e.Region] = append(regions[e.Region], addr)
		}
	}
	var wg sync.WaitGroup
	for region, addrs := range regions {
		for i := range min(probesByRegion, len(addrs)) {
			addr := addrs[(round*probesByRegion+i)%len(addrs)]
			wg.Go(func() { p.probe(ctx, region, addr) })
		}
	}
	wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for region := range p.samples {
		if regions[region] == nil {
			delete(p.samples, region)
		}
	}
}

func (p *prober) probe(ctx context.Context, region, addr string) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	start := time.Now()
	conn, err := p.dial(ctx, "tcp", addr)
	if err != nil {
		return // a missing sample is no distance
	}
	took := time.Since(start).Seconds()
	_ = conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	list := append(p.samples[region], took)
	p.samples[region] = list[max(0, len(list)-probesKept):]
}

// report gives the measured distances, sorted by region.
func (p *prober) report() []*pb.Distance {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*pb.Distance
	for region, samples := range p.samples {
		out = append(out, &pb.Distance{Region: region, Seconds: slices.Min(samples)})
	}
	slices.SortFunc(out, func(a, b *pb.Distance) int { return strings.Compare(a.Region, b.Region) })
	return out
}

// address gives the host and port of an engine's URL.
func address(raw string) (string, bool) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return "", false
	}
	if u.Port() != "" {
		return u.Host, true
	}
	port := "80"
	if u.Scheme == "https" {
		port = "443"
	}
	return net.JoinHostPort(u.Hostname(), port), true
}
