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

// A certificate that was renewed is shown without a restart; while its files do not fit together, or are not there, the one before is, and the log says so
// once.
func TestCertificateIsRenewed(t *testing.T) {
	files, first := issued(t)
	renewed, second := issued(t)
	synctest.Test(t, func(t *testing.T) {
		var told bytes.Buffer
		files.Log = slog.New(slog.NewTextHandler(&told, nil))
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
				t.Errorf("%s: another certificate is shown (%v)", when, err)
			}
		}
		shows(first, "at first")
		move(renewed.CertFile, files.CertFile)
		shows(first, "before anybody looked")
		for range 3 {
			time.Sleep(lookEvery)
			shows(first, "with another's key")
		}
		if n := strings.Count(told.String(), "level=ERROR"); n != 1 {
			t.Errorf("the log has %d errors, want one:\n%s", n, &told)
		}
		move(renewed.KeyFile, files.KeyFile)
		time.Sleep(lookEvery)
		shows(second, "with its key")
		if !strings.Contains(told.String(), "read again") {
			t.Errorf("the log does not say that it was renewed:\n%s", &told)
		}
		move(files.KeyFile, files.KeyFile+".gone")
		time.Sleep(lookEvery)
		shows(second, "without a file")
	})
}

// issued returns files with a certificate that signed itself, and that certificate.
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
	}{{files.CertFile, pem.Block{Type: "CERTIFICATE", Bytes: certificate}}, {files.KeyFile, pem.Block{Type: "PRIVATE KEY", Bytes: secret}}} {
		if err := os.WriteFile(f.name, pem.EncodeToMemory(&f.block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files, certificate
}
