package connlimit

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A renewed certificate takes effect without a restart. While its files don't match, or one is missing, the previous
// certificate remains in use, and the error is logged once.
func TestCertificateReload(t *testing.T) {
	files, first := issued(t)
	renewed, second := issued(t)
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		files.Log = slog.New(slog.NewTextHandler(&log, nil))
		c, err := files.Config()
		if err != nil {
			t.Fatal(err)
		}
		move := func(from, to string) {
			t.Helper()
			if err := os.Rename(from, to); err != nil {
				t.Fatal(err)
			}
		}
		shows := func(want []byte, when string) {
			t.Helper()
			got, err := c.Clone().GetCertificate(nil)
			if err != nil || !bytes.Equal(got.Certificate[0], want) {
				t.Errorf("%s: another certificate is in use (%v)", when, err)
			}
		}
		shows(first, "at first")
		move(renewed.CertFile, files.CertFile)
		shows(first, "before the next check")
		for range 3 {
			time.Sleep(checkInterval)
			shows(first, "with a key that does not match")
		}
		if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
			t.Errorf("%d errors in the log, want 1:\n%s", n, &log)
		}
		move(renewed.KeyFile, files.KeyFile)
		time.Sleep(checkInterval)
		shows(second, "with the matching key")
		if !strings.Contains(log.String(), "was reloaded") {
			t.Errorf("the reload is not logged:\n%s", &log)
		}
		move(files.KeyFile, files.KeyFile+".gone")
		time.Sleep(checkInterval)
		shows(second, "without a file")
	})
}

// issued returns the files of a self-signed certificate, and the certificate.
func issued(t *testing.T) (files TLS, certificate []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	if certificate, err = x509.CreateCertificate(rand.Reader, template, template, key.Public(), key); err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	files = TLS{CertFile: filepath.Join(folder, "cert.pem"), KeyFile: filepath.Join(folder, "key.pem")}
	for _, f := range []struct {
		name  string
		block pem.Block
	}{
		{files.CertFile, pem.Block{Type: "CERTIFICATE", Bytes: certificate}},
		{files.KeyFile, pem.Block{Type: "PRIVATE KEY", Bytes: secret}},
	} {
		if err := os.WriteFile(f.name, pem.EncodeToMemory(&f.block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files, certificate
}
