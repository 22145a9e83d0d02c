package proxy

import (
	"context"
	"maps"
	"math"
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
	probesKept     = 10 // samples that a longer way must show in
	// distanceDrift is the time in which a longer way is learned to 1 - 1/e: a route that
	// changed is longer for good, a network that is busy is not.
	distanceDrift = time.Minute
	// distanceGap is the longest time between two samples that counts for that.
	distanceGap = 10 * time.Second
	// distanceLease is how long a distance counts of which nothing is heard any more.
	distanceLease = 5 * time.Minute
)

// distance is how far a region is, by the times that opening a connection took, which
// is one round trip: the least of them. A shorter way is learned at once, a longer one
// slowly, and not before all recent samples show it. The zero value knows nothing.
type distance struct {
	seconds float64
	recent  []float64 // newest last
	at      time.Time // of the newest
}

func (d *distance) add(seconds float64, at time.Time) {
	gap := min(max(at.Sub(d.at), 0), distanceGap)
	known := len(d.recent) > 0
	d.recent = append(d.recent, seconds)
	d.recent = d.recent[max(0, len(d.recent)-probesKept):]
	d.at = at
	switch least := slices.Min(d.recent); {
	case !known || least <= d.seconds:
		d.seconds = least
	case len(d.recent) == probesKept:
		d.seconds += (least - d.seconds) * -math.Expm1(-gap.Seconds()/distanceDrift.Seconds())
	}
}

// prober measures the distance to each region.
type prober struct {
	dial dialer

	mu        sync.Mutex
	distances map[string]*distance // by region
}

func newProber(dial dialer) *prober {
	return &prober{dial: dial, distances: map[string]*distance{}}
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
		if e.URL != "" {
			regions[e.Region] = append(regions[e.Region], e.URL)
		}
	}
	var wg sync.WaitGroup
	for region, urls := range regions {
		for i := range min(probesByRegion, len(urls)) {
			if addr, ok := address(urls[(round*probesByRegion+i)%len(urls)]); ok {
				wg.Go(func() { p.probe(ctx, region, addr) })
			}
		}
	}
	wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.distances, func(region string, _ *distance) bool { return regions[region] == nil })
}

func (p *prober) probe(ctx context.Context, region, addr string) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	start := time.Now()
	conn, err := p.dial(ctx, "tcp", addr)
	if err != nil {
		return // a missing sample is no distance
	}
	now := time.Now()
	_ = conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.distances[region]
	if d == nil {
		d = &distance{}
		p.distances[region] = d
	}
	d.add(now.Sub(start).Seconds(), now)
}

// report gives the distances that were measured within their lease, sorted by region.
func (p *prober) report(now time.Time) []*pb.Distance {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*pb.Distance
	for region, d := range p.distances {
		if age := now.Sub(d.at); age <= distanceLease {
			out = append(out, &pb.Distance{Region: region, Seconds: d.seconds, Age: max(age, 0).Seconds()})
		}
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
