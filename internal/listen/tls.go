package listen

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLS names the files of transport security, in PEM. The zero TLS is clear text.
type TLS struct {
	CertFile     string // the server's certificate and those between it and the root
	KeyFile      string
	ClientCAFile string // who may sign certificates of clients, which then must have one; "": they need none
}

// Config reads the files, and returns nil for clear text.
func (t TLS) Config() (*tls.Config, error) {
	if t == (TLS{}) {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("load the certificate: %w", err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if t.ClientCAFile == "" {
		return c, nil
	}
	authorities, err := os.ReadFile(t.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("load who signs certificates of clients: %w", err)
	}
	c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("load who signs certificates of clients: %s: %w", t.ClientCAFile, errNoCertificate)
	}
	return c, nil
}

var errNoCertificate = errors.New("no certificate in PEM")
