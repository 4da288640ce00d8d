package estate

import (
	"bytes"
	"compress/gzip"
	"crypto/sha1" //nolint:gosec // npm's shasum
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// stub is a stub mapping of WireMock.
type stub struct {
	ID       string         `json:"id,omitempty"`
	Priority int            `json:"priority,omitempty"`
	Request  map[string]any `json:"request"`
	Response map[string]any `json:"response"`
}

// writeStubs writes the stub mappings of an instance of WireMock.
func (e *estate) writeStubs(name string, stubs map[string]stub) error {
	dir := filepath.Join(e.dir(name), "mappings")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for file, s := range stubs {
		data, err := json.Marshal(s)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file+".json"), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// stubProxy makes WireMock a proxy to Kinto and Datasette.
func stubProxy(e *estate) error {
	stubs := make(map[string]stub)
	for prefix, to := range map[string]string{"/store": "kinto", "/tables": "datasette"} {
		stubs[to] = stub{
			Request: map[string]any{"method": "ANY", "urlPathPattern": prefix + "/.*"},
			Response: map[string]any{
				"proxyBaseUrl":           "http://" + e.address("wiremock", to),
				"proxyUrlPrefixToRemove": prefix,
			},
		}
	}
	return e.writeStubs("wiremock", stubs)
}

// npmPackages is the number of packages that the origin of Verdaccio offers.
const npmPackages = 6

// npmPackage returns the name of a package of the origin.
func npmPackage(i int) string { return fmt.Sprintf("estate-part-%d", i) }

// stubOrigin makes WireMock a package registry with small packages.
func stubOrigin(e *estate) error {
	var archive bytes.Buffer
	w := gzip.NewWriter(&archive)
	_, err := w.Write(bytes.Repeat([]byte("estate"), 2000))
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	sum := sha1.Sum(archive.Bytes()) //nolint:gosec // npm's shasum
	stubs := make(map[string]stub)
	for i := range npmPackages {
		name := npmPackage(i)
		file := "/" + name + "/-/" + name + "-1.0.0.tgz"
		stubs[name] = stub{
			Request: map[string]any{"method": "GET", "urlPath": "/" + name},
			Response: map[string]any{
				"status":  200,
				"headers": map[string]string{"Content-Type": "application/json"},
				"jsonBody": map[string]any{
					"name":      name,
					"dist-tags": map[string]string{"latest": "1.0.0"},
					"versions": map[string]any{"1.0.0": map[string]any{
						"name":    name,
						"version": "1.0.0",
						"dist": map[string]string{
							"shasum":  hex.EncodeToString(sum[:]),
							"tarball": "http://" + e.address("verdaccio", "npm-origin") + file,
						},
					}},
				},
			},
		}
		stubs[name+"-archive"] = stub{
			Request: map[string]any{"method": "GET", "urlPath": file},
			Response: map[string]any{
				"status":     200,
				"headers":    map[string]string{"Content-Type": "application/octet-stream"},
				"base64Body": archive.Bytes(),
			},
		}
	}
	return e.writeStubs("npm-origin", stubs)
}
