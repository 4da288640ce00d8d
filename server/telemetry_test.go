package server

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/sibyl-trace/sibyl/config"
)

// The API of Kubernetes gets the token in the file as it is now, over TLS only, and only if its authority is known.
func TestKubernetesTransport(t *testing.T) {
	got := ""
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Get("Authorization") })
	cluster, plain := httptest.NewTLSServer(handler), httptest.NewServer(handler)
	defer cluster.Close()
	defer plain.Close()
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cluster.Certificate().Raw})
	c := &config.Kubernetes{CAFile: write("ca.crt", string(authority))}
	call := func(url, token string) string {
		t.Helper()
		c.URL, c.TokenFile, got = url, write("token", token), ""
		transport, err := kubernetesTransport(c)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := (&http.Client{Transport: transport}).Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return got
	}
	for _, token := range []string{"a", "b\n"} {
		if got := call(cluster.URL, token); got != "Bearer "+token[:1] {
			t.Errorf("sent %q", got)
		}
	}
	if got := call(plain.URL, "a"); got != "" {
		t.Errorf("sent %q without encryption", got)
	}
	for _, wrong := range []string{filepath.Join(dir, "none"), write("empty", "")} {
		c.URL, c.CAFile = cluster.URL, wrong
		if _, err := kubernetesTransport(c); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}
