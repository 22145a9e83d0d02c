package testengine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

const oneWay = 40 * time.Millisecond

// far runs f in virtual time with the two ends of a connection that is oneWay
// long in both directions.
func far(t *testing.T, f func(t *testing.T, near *farConn, other net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		c := newFarConn(a, oneWay)
		f(t, c, b)
		_ = c.Close()
		_ = b.Close()
		time.Sleep(time.Minute) // virtual; by then the end has arrived at the other end
	})
}

func TestBytesTakeHalfARoundTripEachWay(t *testing.T) {
	far(t, func(t *testing.T, c *farConn, other net.Conn) {
		go func() { _, _ = io.Copy(other, other) }()
		start := time.Now()
		_, err := c.Write([]byte("hello"))
		require.NoError(t, err)
		require.Zero(t, time.Since(start), "a write does not wait")
		got := make([]byte, 5)
		_, err = io.ReadFull(c, got)
		require.NoError(t, err)
		require.Equal(t, "hello", string(got))
		require.Equal(t, 2*oneWay, time.Since(start))
	})
}

func TestManyChunksAreUnderWayAtOnce(t *testing.T) {
	far(t, func(t *testing.T, c *farConn, other net.Conn) {
		start := time.Now()
		go func() {
			for i := range 1000 {
				_, _ = other.Write([]byte{byte(i)})
				time.Sleep(time.Millisecond)
			}
			_ = other.Close()
		}()
		b := make([]byte, 64)
		for i := range 1000 {
			n, err := c.Read(b)
			require.NoError(t, err)
			require.Equal(t, 1, n)
			require.Equal(t, byte(i), b[0])
			require.Equal(t, oneWay+time.Duration(i)*time.Millisecond, time.Since(start))
		}
		_, err := c.Read(b)
		require.ErrorIs(t, err, io.EOF)
		_, err = c.Read(b)
		require.ErrorIs(t, err, io.EOF, "the end stays the end")
		require.Equal(t, oneWay+time.Second, time.Since(start), "the end travels like the rest")
	})
}

func TestOrderAndContentOfLargeTransfers(t *testing.T) {
	far(t, func(t *testing.T, c *farConn, other net.Conn) {
		sent := make([]byte, 3<<20)
		rng := rand.NewChaCha8([32]byte{1})
		_, _ = rng.Read(sent)
		go func() {
			for b := sent; len(b) > 0; {
				n, _ := c.Write(b[:min(len(b), 1+rand.IntN(100000))])
				b = b[n:]
			}
			_ = c.Close()
		}()
		got, err := io.ReadAll(other)
		require.NoError(t, err)
		require.True(t, bytes.Equal(sent, got), "what was written before Close arrives whole")
	})
}

func TestWriterWaitsWhenTooMuchIsUnderWay(t *testing.T) {
	far(t, func(t *testing.T, c *farConn, _ net.Conn) {
		require.NoError(t, c.SetWriteDeadline(time.Now().Add(time.Second)))
		start := time.Now()
		n, err := c.Write(make([]byte, maxInFlight+3*readSize)) // nobody reads
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
		require.GreaterOrEqual(t, n, maxInFlight)
	})
}

func TestReadDeadline(t *testing.T) {
	far(t, func(t *testing.T, c *farConn, other net.Conn) {
		b := make([]byte, 1)
		start := time.Now()
		require.NoError(t, c.SetReadDeadline(start.Add(time.Second)))
		_, err := c.Read(b)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		var timeout net.Error
		require.True(t, errors.As(err, &timeout) && timeout.Timeout())
		require.Equal(t, time.Second, time.Since(start))

		require.NoError(t, c.SetReadDeadline(time.Time{}))
		go func() { _, _ = other.Write([]byte{7}) }()
		_, err = c.Read(b)
		require.NoError(t, err)
		require.Equal(t, byte(7), b[0])

		time.AfterFunc(time.Minute, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
		_, err = c.Read(b)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, "a deadline set during the read")
	})
}

func TestCloseEndsReadAndReachesTheOtherEndLater(t *testing.T) {
	far(t, func(t *testing.T, c *farConn, other net.Conn) {
		start := time.Now()
		time.AfterFunc(time.Second, func() { _ = c.Close() })
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, net.ErrClosed)
		require.Equal(t, time.Second, time.Since(start))
		_, err = other.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, time.Second+oneWay, time.Since(start))
		_, err = c.Write([]byte{1})
		require.ErrorIs(t, err, net.ErrClosed)
		require.ErrorIs(t, c.Close(), net.ErrClosed)
	})
}

func TestDialerOverRealSockets(t *testing.T) {
	defer goleak.VerifyNone(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	const rtt = 30 * time.Millisecond
	dial := Dialer(func(addr string) time.Duration {
		require.Equal(t, l.Addr().String(), addr)
		return rtt
	})
	start := time.Now()
	c, err := dial(t.Context(), "tcp", l.Addr().String())
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(start), rtt)
	require.Equal(t, l.Addr(), c.RemoteAddr())

	far, err := l.Accept()
	require.NoError(t, err)
	require.NoError(t, far.(*net.TCPConn).SetLinger(0))
	require.NoError(t, far.Close())
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET, "a reset arrives as a reset")
	require.NoError(t, c.Close())

	require.NoError(t, l.Close())
	start = time.Now()
	_, err = dial(t.Context(), "tcp", l.Addr().String())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.GreaterOrEqual(t, time.Since(start), rtt, "to be refused takes a round trip too")
}

func TestDialerGivesUpWithItsContext(t *testing.T) {
	defer goleak.VerifyNone(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = Dialer(func(string) time.Duration { return time.Hour })(ctx, "tcp", l.Addr().String())
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestNoDistanceIsAPlainConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	c, err := Dialer(func(string) time.Duration { return 0 })(t.Context(), "tcp", l.Addr().String())
	require.NoError(t, err)
	require.IsType(t, &net.TCPConn{}, c)
	require.NoError(t, c.Close())
}
