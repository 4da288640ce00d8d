package connlimit

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
)

// TLS names the files of transport security, in PEM format. The zero TLS means clear text.
type TLS struct {
	CertFile     string // the server's certificate and the intermediate ones
	KeyFile      string
	ClientCAFile string       // authorities for client certificates; if empty, clients need no certificate
	Log          *slog.Logger // logs reloads of the certificate; may be nil
}

// Config reads the files and returns a configuration that reloads the certificate when its files change, or nil for
// clear text.
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
		return nil, fmt.Errorf("load the client CA: %w", err)
	}
	c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("load the client CA: %s: %w", t.ClientCAFile, errNoCertificate)
	}
	return c, nil
}

// ClientCertificate returns the certificate of the client of a connection, or nil if the connection isn't encrypted or
// the client has no verified certificate.
func ClientCertificate(c *tls.ConnectionState) *x509.Certificate {
	if c == nil || len(c.VerifiedChains) == 0 {
		return nil
	}
	return c.VerifiedChains[0][0]
}

var errNoCertificate = errors.New("no certificate in PEM")
