package connlimit

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// checkInterval is the minimum interval between checks of the files, so that frequent connections do not cause frequent
// reads.
const checkInterval = 2 * time.Second

// certificate is the certificate of a listener. It reloads the files when they change, for example after a renewal.
// While the certificate and the key do not match, it keeps the previous certificate. It is safe for concurrent use.
type certificate struct {
	files TLS

	mu         sync.Mutex // guards the fields below
	current    *tls.Certificate
	checked    time.Time // time of the last check of the files
	chain, key []byte    // contents of the files at that time
	unreadable bool      // the last check failed
}

// newCertificate reads the certificate. It returns an error if a file is unreadable or the key does not match the
// certificate.
func newCertificate(files TLS) (*certificate, error) {
	c := &certificate{files: files, checked: time.Now()}
	if err := c.read(); err != nil {
		return nil, err
	}
	return c, nil
}

// read reads the files and replaces the certificate if they changed.
func (c *certificate) read() error {
	chain, err := os.ReadFile(c.files.CertFile)
	if err != nil {
		return fmt.Errorf("load the certificate: %w", err)
	}
	key, err := os.ReadFile(c.files.KeyFile)
	if err != nil {
		return fmt.Errorf("load the key of the certificate: %w", err)
	}
	if bytes.Equal(chain, c.chain) && bytes.Equal(key, c.key) {
		return nil
	}
	c.chain, c.key = chain, key
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return fmt.Errorf("load the certificate %s: %w", c.files.CertFile, err)
	}
	c.current = &pair
	return nil
}

// get returns the current certificate, after reloading it if the files have changed. It never returns an error.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Sub(c.checked) < checkInterval {
		return c.current, nil
	}
	c.checked = now
	before := c.current
	err := c.read()
	switch {
	case c.files.Log == nil:
	case err != nil && !c.unreadable:
		c.files.Log.Error("a certificate could not be reloaded: the previous one remains in use",
			slog.Any("error", err))
	case c.current != before:
		c.files.Log.Info("a certificate was reloaded", slog.String("file", c.files.CertFile),
			slog.Time("until", c.current.Leaf.NotAfter))
	}
	c.unreadable = err != nil
	return c.current, nil
}
