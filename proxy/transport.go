package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/wardrop-lb/wardrop/config"
)

// dialer opens connections to engines.
type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

const (
	dialTimeout = 5 * time.Second
	// idleTimeout is shorter than uvicorn's keep-alive of 5 s, so that the engine
	// does not close a connection that is about to be used.
	idleTimeout = 4 * time.Second
	idlePerHost = 1024
	// writeBuffer holds a usual request, so that it leaves in one write.
	writeBuffer = 16 << 10
	// pingAfter notices an HTTP/2 peer that is gone without a word.
	pingAfter   = 10 * time.Second
	pingTimeout = 5 * time.Second
)

// transports are the ways to an engine: one for each protocol, not one for each
// engine.
type transports struct {
	http1, h2c *http.Transport
	unix       *http.Transport
}

func newTransports(c config.Proxy, dial dialer, secure *tls.Config) *transports {
	base := func() *http.Transport {
		return &http.Transport{
			DialContext: dial, MaxIdleConnsPerHost: idlePerHost, MaxConnsPerHost: c.MaxConnections, IdleConnTimeout: idleTimeout,
			DisableCompression: true, WriteBufferSize: writeBuffer,
			HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		}
	}
	t := &transports{http1: base(), h2c: base(), unix: base()}
	t.http1.ForceAttemptHTTP2 = true // over TLS, by ALPN
	t.http1.DialTLSContext = dialTLS(dial, secure)
	t.h2c.MaxConnsPerHost = 0
	t.h2c.Protocols = new(http.Protocols)
	t.h2c.Protocols.SetUnencryptedHTTP2(true)
	t.unix.DialContext = func(ctx context.Context, _, addr string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		path, err := decodeSocket(host)
		if err != nil {
			return nil, err
		}
		return dial(ctx, "unix", path)
	}
	return t
}

func (t *transports) closeIdle() {
	t.http1.CloseIdleConnections()
	t.h2c.CloseIdleConnections()
	t.unix.CloseIdleConnections()
}

// to gives the transport and the base URL of an engine.
func (t *transports) to(raw, protocol string) (*http.Transport, *url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case u.Scheme == "unix":
		return t.unix, &url.URL{Scheme: "http", Host: encodeSocket(u.Path)}, nil
	case protocol == "h2c" && u.Scheme == "http":
		return t.h2c, u, nil
	}
	return t.http1, u, nil
}
