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
	secure := &tls.Config{ServerName: t.ServerName}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("proxy.engine_tls.ca_file: %w", err)
		}
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("proxy.engine_tls.ca_file: %s holds no PEM certificate", t.CAFile)
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
		return nil, fmt.Errorf("proxy.engine_tls.cert_file and key_file: %w", err)
	}
	// Connections are kept, so that to read the files for each new one is cheap.
	secure.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	return secure, nil
}
