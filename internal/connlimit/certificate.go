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

// lookEvery is the least time between two looks at the files of a certificate: each is a few kilobytes, and who connects often must not have them
// read as often.
const lookEvery = 2 * time.Second

// certificate is what a listener shows to who connects. Files that changed, as they do when a certificate is renewed, are read again; while they do
// not fit together the one before is shown. It is safe for concurrent use.
type certificate struct {
	files TLS

	mu         sync.Mutex // guards all below
	shown      *tls.Certificate
	looked     time.Time // when the files were last looked at
	chain, key []byte    // their texts then
	unreadable bool      // they could not be read then
}

// newCertificate reads the files.
func newCertificate(files TLS) (*certificate, error) {
	c := &certificate{files: files, looked: time.Now()}
	if err := c.read(); err != nil {
		return nil, err
	}
	return c, nil
}

// read reads the files, and shows what is in them if they changed.
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
	c.shown = &pair
	return nil
}

// get returns the certificate to show.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Sub(c.looked) < lookEvery {
		return c.shown, nil
	}
	c.looked = now
	before := c.shown
	err := c.read()
	switch {
	case c.files.Log == nil:
	case err != nil && !c.unreadable:
		c.files.Log.Error("a certificate cannot be read again: the one before is still shown", slog.Any("error", err))
	case c.shown != before:
		c.files.Log.Info("a certificate was read again", slog.String("file", c.files.CertFile), slog.Time("until", c.shown.Leaf.NotAfter))
	}
	c.unreadable = err != nil
	return c.shown, nil
}
