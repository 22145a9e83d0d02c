//go:build unix

package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// readMessage reads one HTTP message, whole: its headers, and its body by length
// or in chunks.
func readMessage(r *bufio.Reader) error {
	length, chunked := 0, false
	for first := true; ; first = false {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if first && bytes.HasPrefix(line, []byte("HTTP/")) && !bytes.Contains(line, []byte(" 200 ")) && !bytes.Contains(line, []byte(" 429 ")) {
			return fmt.Errorf("answered %q", line)
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(value)); err != nil {
				return err
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			chunked = true
		}
	}
	if !chunked {
		_, err := r.Discard(length)
		return err
	}
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(string(bytes.TrimRight(line, "\r\n")), 16, 32)
		if err != nil {
			return err
		}
		if _, err := r.Discard(int(n) + 2); err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
	}
}

// slice is what clients saw for a while, and what the proxy used.
type slice struct {
	requests, broken int // broken: the connection ended before the answer
	took, cpu        time.Duration
	latencies        []time.Duration
}

func (s *slice) add(o slice) {
	s.requests, s.broken = s.requests+o.requests, s.broken+o.broken
	s.took, s.cpu = s.took+o.took, s.cpu+o.cpu
	s.latencies = append(s.latencies, o.latencies...)
}

func (s *slice) perSecond() float64 { return float64(s.requests) / s.took.Seconds() }
func (s *slice) cpuMicros() float64 { return s.cpu.Seconds() * 1e6 / float64(s.requests) }
func (s *slice) percentile(q float64) time.Duration {
	slices.Sort(s.latencies)
	return s.latencies[int(q*float64(len(s.latencies)-1))]
}

// client asks one question after the other over a connection that it keeps.
type client struct {
	addr     string
	requests [][]byte
	next     int
	conn     net.Conn
	r        *bufio.Reader
}

// ask makes one exchange; after a broken one the connection is made anew.
func (c *client) ask() error {
	if c.conn == nil {
		conn, err := net.Dial("tcp", c.addr)
		if err != nil {
			return err
		}
		c.conn, c.r = conn, bufio.NewReaderSize(conn, 4<<10)
	}
	c.next++
	_, err := c.conn.Write(c.requests[c.next%len(c.requests)])
	if err == nil {
		err = readMessage(c.r)
	}
	if err != nil {
		c.close()
	}
	return err
}

func (c *client) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// load has clients ask as fast as they are answered.
func load(clients []*client) slice {
	var mu sync.Mutex
	var sum slice
	var wg sync.WaitGroup
	begin := time.Now()
	for _, c := range clients {
		wg.Go(func() {
			var s slice
			for now := time.Now(); now.Sub(begin) < benchSlice; {
				err := c.ask()
				end := time.Now()
				if err == nil {
					s.requests++
					s.latencies = append(s.latencies, end.Sub(now))
				} else {
					s.broken++
				}
				now = end
			}
			mu.Lock()
			defer mu.Unlock()
			sum.add(s)
		})
	}
	wg.Wait()
	sum.took = time.Since(begin)
	return sum
}

// newClients makes the clients of a proxy, each with sessions of its own, so that
// they spread over the engines.
func newClients(b *testing.B, addr string) []*client {
	filler := strings.Repeat("All work and no play. ", benchBody/22+1)
	out := make([]*client, benchClients)
	for c := range out {
		out[c] = &client{addr: addr}
		b.Cleanup(out[c].close)
		for s := range benchSessions {
			body := fmt.Sprintf(`{"model":"m","max_tokens":64,"messages":[{"role":"system","content":"Session %d of %d. `, s, c)
			body += filler[:benchBody-len(body)-len(`"}]}`)] + `"}]}`
			out[c].requests = append(out[c].requests, fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"+
				"User-Agent: bench\r\nAuthorization: Bearer 0123456789abcdef\r\nX-Session-Id: %d-%d\r\nContent-Length: %d\r\n\r\n%s",
				addr, c, s, len(body), body))
		}
	}
	return out
}

// startChildren starts a proxy of each kind with its clients, and warms them up.
func startChildren(b *testing.B, engines []string, kinds ...string) (children []*child, clients [][]*client) {
	for i, kind := range kinds {
		children = append(children, startChild(b, kind, engines))
		clients = append(clients, newClients(b, children[i].addr))
		for range 4 {
			load(clients[i])
		}
	}
	return children, clients
}

// inTurns loads proxies in short turns, so that whatever else the machine does
// falls on all.
func inTurns(b *testing.B, children []*child, clients [][]*client) []slice {
	sums := make([]slice, len(children))
	b.ResetTimer()
	defer b.StopTimer()
	for range b.N {
		for turn := range len(children) * benchTurns {
			i := turn % len(children)
			before := children[i].cpu()
			s := load(clients[i])
			s.cpu = children[i].cpu() - before
			sums[i].add(s)
		}
	}
	return sums
}
