package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
)

// opAlert is what crypto/tls calls a TLS alert of the peer in a net.OpError. With
// TLS 1.3 an engine that does not accept our certificate says so only when the
// request was sent; it has not looked at it.
const opAlert = "remote error"

// dialTLS opens a connection and secures it. Whatever goes wrong is an error of
// dialing: no request has been sent, so that the engine counts as unreachable and
// the next may be asked.
func dialTLS(dial dialer, secure *tls.Config) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		raw, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		own := secure.Clone()
		own.NextProtos = []string{"h2", "http/1.1"}
		if own.ServerName == "" {
			own.ServerName = host
		}
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		conn := tls.Client(raw, own)
		if err := conn.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			if errors.Is(err, context.DeadlineExceeded) {
				err = errHandshake
			}
			return nil, &net.OpError{Op: "dial", Net: network, Addr: raw.RemoteAddr(), Err: err}
		}
		return conn, nil
	}
}

var errHandshake = errors.New("the engine did not answer the TLS handshake in time")
