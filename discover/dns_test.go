package discover

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	wire "github.com/miekg/dns"
	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
)

// nameServer is a DNS server on the loopback that answers as told, over UDP and TCP.
type nameServer struct {
	address string
	answer  atomic.Pointer[func(*wire.Msg, wire.ResponseWriter)]
}

func startNameServer(t *testing.T) *nameServer {
	t.Helper()
	s := &nameServer{}
	udp, tcp := listenTwice(t)
	s.address = udp.LocalAddr().String()
	handler := wire.HandlerFunc(func(w wire.ResponseWriter, question *wire.Msg) {
		m := new(wire.Msg).SetReply(question)
		(*s.answer.Load())(m, w)
		_ = w.WriteMsg(m)
	})
	for _, server := range []*wire.Server{{PacketConn: udp, Handler: handler}, {Listener: tcp, Handler: handler}} {
		started, ended := make(chan struct{}), make(chan error, 1)
		server.NotifyStartedFunc = func() { close(started) }
		go func() { ended <- server.ActivateAndServe() }()
		<-started
		t.Cleanup(func() {
			_ = server.Shutdown()
			require.NoError(t, <-ended)
		})
	}
	return s
}

// listenTwice takes one free port for UDP and TCP.
func listenTwice(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	var err error
	for range 20 { // one that is free for UDP may be taken for TCP
		udp, e := net.ListenPacket("udp", "127.0.0.1:0")
		require.NoError(t, e)
		tcp, e := net.Listen("tcp", udp.LocalAddr().String())
		if e == nil {
			return udp, tcp
		}
		_ = udp.Close()
		err = e
	}
	t.Fatal(err)
	return nil, nil
}

func (s *nameServer) say(code int, records ...string) {
	f := func(m *wire.Msg, w wire.ResponseWriter) {
		m.Rcode, m.Authoritative = code, true
		for _, r := range records {
			rr, err := wire.NewRR(r)
			if err != nil {
				panic(err)
			}
			if rr.Header().Rrtype == m.Question[0].Qtype {
				m.Answer = append(m.Answer, rr)
			}
		}
		if _, udp := w.RemoteAddr().(*net.UDPAddr); udp {
			m.Truncate(1232)
		}
	}
	s.answer.Store(&f)
}

func TestDNS(t *testing.T) {
	s := startNameServer(t)
	look := func(c config.DNSSource) Found {
		c.Name, c.Resolver = "engines.test.", s.address
		return newDNS(config.Source{DNS: c, Scheme: "http"}).look(t.Context())
	}
	a := config.DNSSource{Records: "a", Port: 8000}

	s.say(wire.RcodeSuccess, "engines.test. 1 IN A 10.0.0.1", "engines.test. 1 IN A 10.0.0.2", "engines.test. 1 IN AAAA fd00::1")
	found := look(a)
	require.NoError(t, found.Err)
	require.ElementsMatch(t, enginesOf(1, 2), found.Engines, "each engine once, whatever families it has")
	require.Equal(t, []config.Engine{{URL: "http://[fd00::1]:8000"}}, look(config.DNSSource{Records: "aaaa", Port: 8000}).Engines)

	s.say(wire.RcodeSuccess, "engines.test. 1 IN SRV 0 0 8001 h1.test.", "engines.test. 1 IN SRV 0 0 8002 h1.test.", "engines.test. 1 IN SRV 0 0 8003 .")
	found = look(config.DNSSource{Records: "srv"})
	require.NoError(t, found.Err)
	require.ElementsMatch(t, []config.Engine{{URL: "http://h1.test:8001"}, {URL: "http://h1.test:8002"}}, found.Engines)

	// An answer that is empty is one: what comes of it the keeper says.
	for _, code := range []int{wire.RcodeSuccess, wire.RcodeNameError} {
		s.say(code)
		found = look(a)
		require.NoError(t, found.Err)
		require.Empty(t, found.Engines)
	}
	for _, code := range []int{wire.RcodeServerFailure, wire.RcodeRefused} {
		s.say(code)
		require.Error(t, look(a).Err, wire.RcodeToString[code])
	}
}

// More addresses than a datagram holds come over TCP.
func TestDNSManyAddresses(t *testing.T) {
	s := startNameServer(t)
	var records []string
	for i := range 200 {
		records = append(records, "engines.test. 1 IN A "+net.IPv4(10, 0, 1, byte(i)).String())
	}
	s.say(wire.RcodeSuccess, records...)
	found := newDNS(config.Source{DNS: config.DNSSource{Name: "engines.test.", Records: "a", Port: 1, Resolver: s.address}, Scheme: "http"}).look(t.Context())
	require.NoError(t, found.Err)
	require.Len(t, found.Engines, 200)
}

// A resolver that is not there is a failure, not an answer.
func TestDNSWithoutResolver(t *testing.T) {
	l, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	at := l.LocalAddr().String()
	require.NoError(t, l.Close())
	reports := make(chan Found)
	d := newDNS(config.Source{DNS: config.DNSSource{Name: "engines.test.", Records: "a", Port: 1, Resolver: at}, Interval: config.Duration(time.Hour)})
	done := make(chan error)
	ctx, cancel := contextOf(t)
	go func() { done <- d.Run(ctx, func(f Found) { reports <- f }) }()
	require.Error(t, (<-reports).Err)
	cancel()
	require.NoError(t, <-done)
}
