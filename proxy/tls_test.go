package proxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/protect"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // its own certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, file: filepath.Join(t.TempDir(), "ca.pem")}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "an authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	var der []byte
	a.key, der = a.sign(a.cert)
	a.write(a.file, "CERTIFICATE", der)
	return a
}

// sign gives a new key and its certificate; the first signs itself.
func (a *authority) sign(template *x509.Certificate) (*ecdsa.PrivateKey, []byte) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	signer := a.key
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, signer)
	require.NoError(a.t, err)
	return key, der
}

func (a *authority) write(path, kind string, der []byte) {
	require.NoError(a.t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

// pair writes a certificate made out to a name, and its key.
func (a *authority) pair(name string) (certFile, keyFile string) {
	a.t.Helper()
	dir := a.t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	a.renew(name, certFile, keyFile)
	return certFile, keyFile
}

func (a *authority) renew(name, certFile, keyFile string) {
	a.t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	if ip := net.ParseIP(name); ip != nil {
		template.DNSNames, template.IPAddresses = nil, []net.IP{ip}
	}
	key, der := a.sign(template)
	a.write(certFile, "CERTIFICATE", der)
	der, err := x509.MarshalECPrivateKey(key)
	require.NoError(a.t, err)
	a.write(keyFile, "EC PRIVATE KEY", der)
}

// engine serves over TLS with a certificate made out to a name.
func (a *authority) engine(name string, http2 bool, edit func(*tls.Config), handler http.HandlerFunc) string {
	a.t.Helper()
	cert, err := tls.LoadX509KeyPair(a.pair(name))
	require.NoError(a.t, err)
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = http2
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	if edit != nil {
		edit(s.TLS)
	}
	s.StartTLS()
	a.t.Cleanup(s.Close)
	return s.URL
}

func says(what string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, what+" by "+r.Proto)
	}
}

func TestEnginesOverTLS(t *testing.T) {
	ca := newAuthority(t)
	for want, http2 := range map[string]bool{"served by HTTP/1.1": false, "served by HTTP/2.0": true} {
		h := newHarnessWith(t, config.Proxy{EngineTLS: config.EngineTLS{CAFile: ca.file}})
		require.NoError(t, h.plane.apply(evenSnapshot(ca.engine("127.0.0.1", http2, nil, says("served")))))
		for range 3 {
			resp := h.post(chat)
			require.Equal(t, want, h.read(resp))
			require.Equal(t, http.StatusOK, resp.StatusCode)
		}
		h.requireIdle()
	}
}

// TestUntrustedEngineIsUnreachable: what is wrong with its certificate is said, it
// costs no retry budget, and it is no fault of the client's.
func TestUntrustedEngineIsUnreachable(t *testing.T) {
	ours, other := newAuthority(t), newAuthority(t)
	plain := httptest.NewServer(says("plain"))
	defer plain.Close()
	never := func(http.ResponseWriter, *http.Request) { t.Error("a request reached an engine that is not trusted") }
	for name, c := range map[string]struct{ url, want string }{
		"another authority":   {other.engine("127.0.0.1", false, nil, never), "signed by unknown authority"},
		"another over HTTP/2": {other.engine("127.0.0.1", true, nil, never), "signed by unknown authority"},
		"another's name":      {ours.engine("elsewhere.test", false, nil, never), "doesn't contain any IP SANs"},
		"no TLS":              {strings.Replace(plain.URL, "http:", "https:", 1), "does not look like a TLS handshake"},
		"wants ours, TLS 1.2": {ours.engine("127.0.0.1", false, func(c *tls.Config) { c.ClientAuth, c.MaxVersion = tls.RequireAnyClientCert, tls.VersionTLS12 }, never), "handshake failure"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarnessWith(t, config.Proxy{EngineTLS: config.EngineTLS{CAFile: ours.file}})
			require.NoError(t, h.plane.apply(evenSnapshot(c.url)))
			resp := h.post(chat)
			require.NotEmpty(t, resp.Header.Get("Retry-After"))
			require.Contains(t, h.wantError(resp, http.StatusServiceUnavailable, "no_engine"), c.want)
			require.Equal(t, "unreachable", h.decision(resp.Header).Attempts[0].Outcome)

			require.NoError(t, h.plane.apply(evenSnapshot(c.url, ours.engine("127.0.0.1", false, nil, says("well")))))
			for range 30 { // without any retry budget
				resp := h.post(chat)
				require.Equal(t, "well by HTTP/1.1", h.read(resp))
				require.Equal(t, http.StatusOK, resp.StatusCode)
			}
			h.requireIdle()
		})
	}
}

// TestEngineWantsACertificate: with TLS 1.3 it says so only after the request was
// sent, and the end of its connection may overtake its words. It is the engine's
// failure in any case.
func TestEngineWantsACertificate(t *testing.T) {
	ca := newAuthority(t)
	for _, http2 := range []bool{false, true} {
		h := newHarnessWith(t, config.Proxy{EngineTLS: config.EngineTLS{CAFile: ca.file}})
		require.NoError(t, h.plane.apply(evenSnapshot(ca.engine("127.0.0.1", http2, func(c *tls.Config) { c.ClientAuth = tls.RequireAnyClientCert }, answers("")))))
		resp := h.post(chat)
		require.Contains(t, []int{http.StatusBadGateway, http.StatusServiceUnavailable}, resp.StatusCode)
		require.NotEqual(t, "success", h.decision(resp.Header).Attempts[0].Outcome)
		h.requireIdle()
	}
	alert := fmt.Errorf("round trip: %w", &net.OpError{Op: opAlert, Err: errors.New("tls: certificate required")})
	require.Equal(t, protect.Unreachable, outcomeOf(t.Context(), alert))
}

func TestClientCertificate(t *testing.T) {
	ca := newAuthority(t)
	cert, key := ca.pair("wardrop-1")
	url := ca.engine("engines.test", false, func(c *tls.Config) {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		pem, err := os.ReadFile(ca.file)
		require.NoError(t, err)
		c.ClientCAs.AppendCertsFromPEM(pem)
	}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close") // each request over a connection of its own
		_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	})
	h := newHarnessWith(t, config.Proxy{EngineTLS: config.EngineTLS{CAFile: ca.file, CertFile: cert, KeyFile: key, ServerName: "engines.test"}})
	require.NoError(t, h.plane.apply(evenSnapshot(url)))
	require.Equal(t, "wardrop-1", h.read(h.post(chat)))
	ca.renew("wardrop-2", cert, key)
	require.Equal(t, "wardrop-2", h.read(h.post(chat)), "a renewed certificate needs no restart")
	require.NoError(t, os.Remove(cert))
	require.Contains(t, h.wantError(h.post(chat), http.StatusServiceUnavailable, "no_engine"), "cert.pem")
}

func TestSignalsOverTLS(t *testing.T) {
	ca := newAuthority(t)
	h := newHarnessWith(t, config.Proxy{EngineTLS: config.EngineTLS{CAFile: ca.file}})
	h.plane.reader.Follow(&fleet.Snapshot{Engines: []fleet.SnapshotEngine{
		{Name: "e0", Kind: "vllm", Collector: "c", URL: ca.engine("127.0.0.1", false, nil, answers("vllm:num_requests_running 3\n"))},
	}})
	until(t, "the engine is read", func() bool {
		read := h.plane.reader.Readings(true)
		return len(read) == 1 && read[0].GetRunning() == 3
	})
}

func TestUnusableTLSFiles(t *testing.T) {
	ca := newAuthority(t)
	cert, key := ca.pair("x")
	for want, c := range map[string]config.EngineTLS{
		"proxy.engine_tls.ca_file: open /nowhere":      {CAFile: "/nowhere"},
		"holds no PEM certificate":                     {CAFile: key},
		"proxy.engine_tls.cert_file and key_file: ":    {CertFile: cert, KeyFile: ca.file},
		"key_file: open /nowhere: no such file or dir": {CertFile: cert, KeyFile: "/nowhere"},
	} {
		_, err := c.Client()
		require.ErrorContains(t, err, want)
	}
}

// TestSilentHandshakeIsUnreachable: an engine that accepts and says nothing cannot
// be waited for, for nothing was sent.
func TestSilentHandshakeIsUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, config.Proxy{}, says("well"))
		silent := b.net.listen("silent:443")
		go func() {
			for {
				conn, err := silent.Accept()
				if err != nil {
					return
				}
				go func() { _, _ = io.Copy(io.Discard, conn) }()
			}
		}()
		defer func() { _ = silent.Close() }()
		s := evenSnapshot("https://silent", "http://engine0:80")
		s.Rows[0].Targets[0].Weight, s.Rows[0].Targets[1].Weight = 1, 0
		require.NoError(t, b.plane.apply(s))
		start := time.Now()
		resp, err := b.request(t.Context(), chat)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, "well by HTTP/1.1", string(body))
		require.Equal(t, dialTimeout, time.Since(start))
		d, ok := b.plane.Decision(resp.Header.Get("X-Wardrop-Decision"))
		require.True(t, ok)
		require.Equal(t, "unreachable", d.Attempts[0].Outcome)
		require.Contains(t, d.Attempts[0].Error, errHandshake.Error())
	})
}
