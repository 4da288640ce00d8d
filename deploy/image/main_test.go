package main

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// TestImage: the layout holds a valid image with the files, an unprivileged user, and the same digest for equal inputs.
// .ci/packages starts the real one.
func TestImage(t *testing.T) {
	in, out := t.TempDir(), filepath.Join(t.TempDir(), "image")
	for _, name := range []string{"sibyl", "ca.crt"} {
		if err := os.WriteFile(filepath.Join(in, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{
		"-binary", filepath.Join(in, "sibyl"), "-certificates", filepath.Join(in, "ca.crt"),
		"-licenses", "../..", "-version", "1.2", out,
	}
	var first, second strings.Builder
	for _, w := range []io.Writer{&first, &second} {
		if err := run(args, w, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	if first.String() != second.String() || !strings.Contains(first.String(), "sha256:") {
		t.Errorf("%q, then %q", &first, &second)
	}
	index, err := layout.ImageIndexFromPath(out)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("%+v, %v; want one image", manifest, err)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(image); err != nil {
		t.Error(err)
	}
	config, err := image.ConfigFile()
	if err != nil || config.Config.User != "65532:65532" ||
		config.Config.Labels["org.opencontainers.image.version"] != "1.2" {
		t.Errorf("%+v, %v", config, err)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 2 {
		t.Fatalf("%d layers, %v; want 2", len(layers), err)
	}
	found := make(map[string]*tar.Header)
	for _, l := range layers {
		r, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		for files := tar.NewReader(r); ; {
			h, err := files.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			found[h.Name] = h
		}
	}
	if h := found["usr/local/bin/sibyl"]; h == nil || h.Mode != 0o755 || h.Uid != 0 {
		t.Errorf("program: %+v", h)
	}
	if h := found["usr/share/doc/sibyl/THIRD_PARTY_NOTICES"]; h == nil || h.Size == 0 {
		t.Errorf("licenses of others: %+v", h)
	}
	if h := found["data/"]; h == nil || h.Mode != 0o700 || h.Uid != user {
		t.Errorf("data directory: %+v", h)
	}
}

func TestWrongInput(t *testing.T) {
	for _, args := range [][]string{
		nil,
		{"-binary", "/nowhere", t.TempDir()},
		{"-certificates", "/nowhere", t.TempDir()},
		{"-licenses", "/nowhere", t.TempDir()},
	} {
		if err := run(args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
