// Command image builds a container image from a static binary of sibyl, without a container engine or a base image. The
// image is an OCI layout, which skopeo, podman and crane can read. Equal inputs give the same image.
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// options holds the command-line options: the files that go into the image, its version and its architecture.
type options struct {
	binary, certificates, licenses, version, arch string
}

func run(args []string, out, errOut io.Writer) error {
	var o options
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.StringVar(&o.binary, "binary", "bin/sibyl", "static binary")
	flags.StringVar(&o.certificates, "certificates", "/etc/ssl/certs/ca-certificates.crt",
		"CA certificates, for webhooks")
	flags.StringVar(&o.licenses, "licenses", ".", "directory of LICENSE and THIRD_PARTY_NOTICES")
	flags.StringVar(&o.version, "version", "", "version")
	flags.StringVar(&o.arch, "arch", runtime.GOARCH, "architecture of the binary")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("usage: image [flags] DIRECTORY")
	}
	image, err := build(&o)
	if err != nil {
		return err
	}
	if err := write(image, flags.Arg(0), o.version); err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s %s\n", flags.Arg(0), digest)
	return err
}

// write replaces a directory with an OCI layout that contains one image.
func write(image v1.Image, dir, version string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	to, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("write %s: %w", dir, err)
	}
	annotations := map[string]string{"org.opencontainers.image.ref.name": version}
	if err := to.AppendImage(image, layout.WithAnnotations(annotations)); err != nil {
		return fmt.Errorf("write %s: %w", dir, err)
	}
	return nil
}

// user is the ID of the unprivileged user and of its group, as in distroless images.
const user = 65532

// build returns an image with the files and the metadata in o.
func build(o *options) (v1.Image, error) {
	system, err := systemFiles(o)
	if err != nil {
		return nil, err
	}
	binary, err := os.ReadFile(o.binary)
	if err != nil {
		return nil, fmt.Errorf("read the binary: %w", err)
	}
	program := []entry{
		dir("usr/local", 0, 0o755), dir("usr/local/bin", 0, 0o755),
		{name: "usr/local/bin/sibyl", mode: 0o755, data: binary},
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, files := range [][]entry{system, program} { // the first layer rarely changes
		layer, err := layerOf(files)
		if err != nil {
			return nil, err
		}
		if image, err = mutate.AppendLayers(image, layer); err != nil {
			return nil, fmt.Errorf("add a layer: %w", err)
		}
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = "linux", o.arch, v1.Time{Time: time.Unix(0, 0).UTC()}
	file.Config = v1.Config{
		User:       fmt.Sprintf("%d:%d", user, user),
		Entrypoint: []string{"/usr/local/bin/sibyl"},
		Cmd:        []string{"serve"},
		WorkingDir: "/",
		StopSignal: "SIGTERM",
		Env: []string{
			"PATH=/usr/local/bin", "SIBYL_DATA_DIR=/data", "SIBYL_HTTP=0.0.0.0:8321", "SIBYL_OTLP_GRPC=0.0.0.0:4317",
			"SIBYL_OTLP_HTTP=0.0.0.0:4318",
		},
		Volumes:      map[string]struct{}{"/data": {}},
		ExposedPorts: map[string]struct{}{"4317/tcp": {}, "4318/tcp": {}, "8321/tcp": {}},
		Labels: map[string]string{
			"org.opencontainers.image.title": "Sibyl", "org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.source":  "https://github.com/sibyl-trace/sibyl",
			"org.opencontainers.image.version": o.version,
		},
	}
	return mutate.ConfigFile(image, file)
}

// entry is a file or, if its data is nil, a directory.
type entry struct {
	name  string
	owner int
	mode  int64
	data  []byte
}

func dir(name string, owner int, mode int64) entry {
	return entry{name: name, owner: owner, mode: mode}
}

// systemFiles returns all files of the image except the program.
func systemFiles(o *options) ([]entry, error) {
	certificates, err := os.ReadFile(o.certificates)
	if err != nil {
		return nil, fmt.Errorf("read CA certificates; install ca-certificates, or name a file with -certificates: %w",
			err)
	}
	license, err := os.ReadFile(filepath.Join(o.licenses, "LICENSE"))
	if err != nil {
		return nil, fmt.Errorf("read the license: %w", err)
	}
	notices, err := os.ReadFile(filepath.Join(o.licenses, "THIRD_PARTY_NOTICES"))
	if err != nil {
		return nil, fmt.Errorf("read the licenses of others: %w", err)
	}
	passwd := fmt.Sprintf("root:x:0:0::/:/sbin/nologin\nsibyl:x:%d:%d::/data:/sbin/nologin\n", user, user)
	return []entry{
		dir("etc", 0, 0o755),
		{name: "etc/passwd", mode: 0o644, data: []byte(passwd)},
		{name: "etc/group", mode: 0o644, data: fmt.Appendf(nil, "root:x:0:\nsibyl:x:%d:\n", user)},
		dir("etc/ssl", 0, 0o755), dir("etc/ssl/certs", 0, 0o755),
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: certificates},
		dir("usr", 0, 0o755), dir("usr/share", 0, 0o755), dir("usr/share/doc", 0, 0o755),
		dir("usr/share/doc/sibyl", 0, 0o755),
		{name: "usr/share/doc/sibyl/LICENSE", mode: 0o644, data: license},
		{name: "usr/share/doc/sibyl/THIRD_PARTY_NOTICES", mode: 0o644, data: notices},
		dir("tmp", 0, 0o1777), dir("data", user, 0o700),
	}, nil
}

// layerOf returns a layer with files. Their modification times are in 1970, so that equal files give equal layers.
func layerOf(files []entry) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{
			Typeflag: tar.TypeReg,
			Name:     f.name,
			Uid:      f.owner,
			Gid:      f.owner,
			Mode:     f.mode,
			Size:     int64(len(f.data)),
			ModTime:  time.Unix(0, 0),
			Format:   tar.FormatUSTAR,
		}
		if f.data == nil {
			h.Typeflag, h.Name = tar.TypeDir, f.name+"/"
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.name, err)
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	data := b.Bytes()
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil },
		tarball.WithMediaType(types.OCILayer))
}
