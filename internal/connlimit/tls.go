package connlimit

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
)

// TLS names the files of transport security, in PEM. The zero TLS is clear text.
type TLS struct {
	CertFile     string // the server's certificate and those between it and the root
	KeyFile      string
	ClientCAFile string       // who may sign certificates of clients, which then must have one; "": they need none
	Log          *slog.Logger // is told when a certificate was renewed, or cannot be; nil: nobody is
}

// Config reads the files, and returns nil for clear text. Those of the certificate are read again when they change.
func (t TLS) Config() (*tls.Config, error) {
	if t.CertFile == "" && t.KeyFile == "" && t.ClientCAFile == "" {
		return nil, nil
	}
	shown, err := newCertificate(t)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{GetCertificate: shown.get, MinVersion: tls.VersionTLS12}
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
