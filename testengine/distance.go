package testengine

import (
	"context"
	"net"
	"os"
	"sync"
	"time"
)

// maxInFlight bounds the bytes under way in one direction of a connection; a
// writer waits beyond it. It is far more than a distance's worth of tokens.
const maxInFlight = 16 << 20

// readSize is the most that is read from the near end at once, in bytes.
const readSize = 32 << 10

// Dialer gives a dial function, fit for http.Transport.DialContext, whose
// connections have the network distance that rtt says for their address. A dial
// takes one round trip, whether it succeeds or not. Every byte arrives half a
// round trip after it was written, in order, in both directions, with as many
// under way as there are: the distance delays and does not throttle. The end of
// a connection and its errors travel as the bytes do; what was written before
// Close still arrives. A distance of 0 gives plain connections. rtt must be safe
// for concurrent use.
func Dialer(rtt func(addr string) time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		start, distance := time.Now(), rtt(addr)
		conn, err := d.DialContext(ctx, network, addr)
		if distance <= 0 {
			return conn, err
		}
		select {
		case <-time.After(distance - time.Since(start)):
		case <-ctx.Done():
			if conn != nil {
				_ = conn.Close()
			}
			return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
		}
		if err != nil {
			return nil, err
		}
		return newFarConn(conn, distance/2), nil
	}
}

// linger is how long a closed connection tries to get rid of what was written
// to it before.
const linger = 5 * time.Second

// farConn is a connection with a distance.
type farConn struct {
	net.Conn
	in, out                     line
	readDeadline, writeDeadline deadline
	closing                     sync.Once
	closed                      chan struct{}

	reading sync.Mutex
	rest    []byte // arrived, not read yet
	readErr error  // what every Read answers once it has arrived
}

func newFarConn(near net.Conn, delay time.Duration) *farConn {
	c := &farConn{Conn: near, closed: make(chan struct{})}
	c.in.init(delay)
	c.out.init(delay)
	c.readDeadline.init()
	c.writeDeadline.init()
	go c.receive()
	go c.send()
	return c
}

// receive takes what arrives at the near end and sends it on its way to Read.
func (c *farConn) receive() {
	for {
		buf := make([]byte, readSize)
		n, err := c.Conn.Read(buf)
		if n > 0 {
			if n < readSize/4 {
				buf = append([]byte(nil), buf[:n]...) // tokens are short; do not hold 32 KiB for each
			}
			if c.in.put(parcel{data: buf[:n]}, nil, c.closed) != nil {
				return
			}
		}
		if err != nil {
			_ = c.in.put(parcel{err: err}, nil, c.closed)
			return
		}
	}
}

// send hands what Write has put on its way to the near end when its time comes.
// Close comes last in the line, so that nothing written before it is lost.
func (c *farConn) send() {
	defer func() { _ = c.Conn.Close() }()
	for {
		p, err := c.out.take(nil, nil)
		if err != nil || p.err != nil {
			return
		}
		if _, err := c.Conn.Write(p.data); err != nil {
			c.out.fail(err)
			<-c.closed // what the far end has sent can still be read
			return
		}
	}
}

// Read implements net.Conn.
func (c *farConn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	default:
	}
	c.reading.Lock()
	defer c.reading.Unlock()
	if len(c.rest) == 0 && c.readErr == nil {
		p, err := c.in.take(&c.readDeadline, c.closed)
		if err != nil {
			return 0, err
		}
		c.rest, c.readErr = p.data, p.err
	}
	if len(c.rest) == 0 {
		return 0, c.readErr
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// Write implements net.Conn.
func (c *farConn) Write(b []byte) (int, error) {
	n := 0
	for len(b) > 0 {
		part := b[:min(len(b), readSize)]
		err := c.out.put(parcel{data: append([]byte(nil), part...)}, &c.writeDeadline, c.closed)
		if err != nil {
			return n, err
		}
		n += len(part)
		b = b[len(part):]
	}
	return n, nil
}

// Close implements net.Conn. The far end learns of it half a round trip later.
func (c *farConn) Close() error {
	err := net.ErrClosed
	c.closing.Do(func() {
		close(c.closed)
		c.out.end(net.ErrClosed)
		err = c.Conn.SetWriteDeadline(time.Now().Add(c.out.delay + linger))
	})
	return err
}

// SetDeadline implements net.Conn.
func (c *farConn) SetDeadline(t time.Time) error {
	c.readDeadline.set(t)
	c.writeDeadline.set(t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *farConn) SetReadDeadline(t time.Time) error {
	c.readDeadline.set(t)
	return nil
}

// SetWriteDeadline implements net.Conn. It bounds the wait for room on the way.
func (c *farConn) SetWriteDeadline(t time.Time) error {
	c.writeDeadline.set(t)
	return nil
}

// parcel is something on its way: bytes, or the end.
type parcel struct {
	data []byte
	err  error
	due  time.Time
}

// line is one direction of a connection: parcels in order, each with the time
// at which it arrives. One goroutine takes from it at a time.
type line struct {
	delay time.Duration
	more  chan struct{} // holds one: something was put
	room  chan struct{} // holds one: something was taken

	mu      sync.Mutex
	parcels []parcel
	bytes   int
	failed  error // what put answers from now on
}

func (l *line) init(delay time.Duration) {
	l.delay, l.more, l.room = delay, make(chan struct{}, 1), make(chan struct{}, 1)
}

func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// put sends a parcel off, once there is room.
func (l *line) put(p parcel, d *deadline, closed <-chan struct{}) error {
	for {
		select {
		case <-closed:
			return net.ErrClosed
		case <-d.passed():
			return os.ErrDeadlineExceeded
		default:
		}
		l.mu.Lock()
		if err := l.failed; err != nil {
			l.mu.Unlock()
			return err
		}
		if l.bytes < maxInFlight {
			p.due = time.Now().Add(l.delay)
			l.parcels = append(l.parcels, p)
			l.bytes += len(p.data)
			l.mu.Unlock()
			nudge(l.more)
			nudge(l.room) // another writer may have room too
			return nil
		}
		l.mu.Unlock()
		select {
		case <-l.room:
		case <-closed:
		case <-d.passed():
		}
	}
}

// end lets nothing more be put, after a last parcel that says why.
func (l *line) end(err error) {
	l.mu.Lock()
	l.failed = err
	l.parcels = append(l.parcels, parcel{err: err, due: time.Now().Add(l.delay)})
	l.mu.Unlock()
	nudge(l.more)
}

// fail has put answer err.
func (l *line) fail(err error) {
	l.mu.Lock()
	if l.failed == nil {
		l.failed = err
	}
	l.parcels, l.bytes = nil, 0
	l.mu.Unlock()
	nudge(l.room)
}

// take waits for the first parcel to arrive.
func (l *line) take(d *deadline, closed <-chan struct{}) (parcel, error) {
	var timer *time.Timer
	for {
		l.mu.Lock()
		wait := time.Duration(-1)
		if len(l.parcels) > 0 {
			p := l.parcels[0]
			if wait = time.Until(p.due); wait <= 0 {
				l.parcels[0] = parcel{}
				l.parcels = l.parcels[1:]
				l.bytes -= len(p.data)
				l.mu.Unlock()
				nudge(l.room)
				return p, nil
			}
		}
		l.mu.Unlock()
		var arrival <-chan time.Time
		if wait > 0 {
			if timer == nil {
				timer = time.NewTimer(wait)
				defer timer.Stop()
			} else {
				timer.Reset(wait)
			}
			arrival = timer.C
		}
		select {
		case <-l.more:
		case <-arrival:
		case <-closed:
			return parcel{}, net.ErrClosed
		case <-d.passed():
			return parcel{}, os.ErrDeadlineExceeded
		}
	}
}

// deadline is a point in time that can be moved while others wait for it.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	done  chan struct{} // closed when the time has come
}

func (d *deadline) init() { d.done = make(chan struct{}) }

// passed gives the channel that is closed at the deadline; nil has none.
func (d *deadline) passed() <-chan struct{} {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.done
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		<-d.done // it has fired; wait for it to say so
	}
	d.timer = nil
	select {
	case <-d.done:
		d.done = make(chan struct{})
	default:
	}
	if t.IsZero() {
		return
	}
	done := d.done
	if wait := time.Until(t); wait > 0 {
		d.timer = time.AfterFunc(wait, func() { close(done) })
	} else {
		close(done)
	}
}
