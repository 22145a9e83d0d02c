package config

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// Client gives the settings of connections to engines. The error names what of the
// configuration cannot be used. Each new connection shows the certificate that the
// files hold then.
func (t EngineTLS) Client() (*tls.Config, error) {
	return secureClient("proxy.engine_tls", t)
}

// TLS gives the settings of connections to an etcd; nil where none are configured. The
// error as of EngineTLS.Client.
func (e Etcd) TLS() (*tls.Config, error) {
	if e.CAFile == "" && e.CertFile == "" {
		return nil, nil
	}
	return secureClient("control.etcd", EngineTLS{CAFile: e.CAFile, CertFile: e.CertFile, KeyFile: e.KeyFile})
}

func secureClient(path string, t EngineTLS) (*tls.Config, error) {
	secure := &tls.Config{ServerName: t.ServerName}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("%s.ca_file: %w", path, err)
		}
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s.ca_file: %s holds no PEM certificate", path, t.CAFile)
		}
	}
	if t.CertFile == "" {
		return secure, nil
	}
	load := func() (*tls.Certificate, error) {
		cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		return &cert, err
	}
	if _, err := load(); err != nil {
		return nil, fmt.Errorf("%s.cert_file and key_file: %w", path, err)
	}
	// Connections are kept, so that to read the files for each new one is cheap.
	secure.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	return secure, nil
}
