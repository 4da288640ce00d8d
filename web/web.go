// Package web serves the web UI as it was built from the sources beside it: dist holds its files packed with gzip, whose names, but for that
// of the page, hold a hash of their content. `make web` makes them again; Go alone builds the service with them.
//
// It knows nothing of the API, which the page in the browser calls; it may not depend on anything of this module.
package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
)

//go:embed all:dist
var dist embed.FS

// policy is what the page may do: load and call what its own origin serves. Styles may be inline, since radix positions menus with them; so
// may images that it draws itself, to save them.
const policy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; connect-src 'self'; " +
	"font-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'"

// page is the name of the page, which stands for every path that is no file: the page reads the path itself.
const page = "index.html"

// UI serves the files of the UI below a path. It is safe for concurrent use.
type UI struct {
	base  string
	files map[string]*file // by name, without base and leading slash
}

// file is a file as it is sent.
type file struct {
	packed []byte // gzip
	media  string
	tag    string // of the content, without quotes
}

// New returns the UI below a path like "/sibyl"; empty: none.
func New(base string) (*UI, error) {
	u := &UI{base: base, files: make(map[string]*file)}
	err := fs.WalkDir(dist, "dist", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		packed, err := dist.ReadFile(name)
		if err != nil {
			return err
		}
		name, isPacked := strings.CutSuffix(strings.TrimPrefix(name, "dist/"), ".gz")
		if !isPacked {
			return fmt.Errorf("web/dist/%s is not packed: run make web", name)
		}
		u.files[name], err = u.load(name, packed)
		return err
	})
	if err == nil && u.files[page] == nil {
		err = fmt.Errorf("web/dist has no %s: run make web", page)
	}
	return u, err
}

// load makes a file of what is embedded. Of the page it sets the path that its links count from.
func (u *UI) load(name string, packed []byte) (*file, error) {
	plain, err := unpack(packed)
	if err != nil {
		return nil, fmt.Errorf("unpack web/dist/%s: %w", name, err)
	}
	if name == page {
		plain = bytes.Replace(plain, []byte(`<base href="/" />`), []byte(`<base href="`+html.EscapeString(u.base)+`/" />`), 1)
		packed = pack(plain)
	}
	hash := sha256.Sum256(plain)
	return &file{packed, mime.TypeByExtension(path.Ext(name)), base64.RawURLEncoding.EncodeToString(hash[:12])}, nil
}

func unpack(packed []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

func pack(plain []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(plain) // buffers do not fail
	_ = z.Close()
	return b.Bytes()
}

// Serve answers a request for the page or one of its files, and reports whether it was one. A path that is no file is one of the page's own
// views, if it is a browser that wants to see it.
func (u *UI) Serve(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	name, below := strings.CutPrefix(r.URL.Path, u.base+"/")
	if !below && r.URL.Path == u.base {
		http.Redirect(w, r, u.base+"/", http.StatusFound)
		return true
	}
	f := u.files[name]
	if f == nil && strings.Contains(r.Header.Get("Accept"), "text/html") || name == "" {
		name, f = page, u.files[page]
	}
	if !below || f == nil {
		return false
	}
	f.serve(w, r, name != page)
	return true
}

// serve sends a file, which is forever if its name holds its hash.
func (f *file) serve(w http.ResponseWriter, r *http.Request, forever bool) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Content-Type", f.media)
	h.Set("Vary", "Accept-Encoding")
	h.Set("Cache-Control", "no-cache")
	if forever {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	packed := readsGzip(r.Header.Get("Accept-Encoding"))
	tag := `"` + f.tag + `"`
	if packed {
		tag = `"` + f.tag + `-gzip"`
	}
	h.Set("ETag", tag)
	if known := r.Header.Get("If-None-Match"); strings.Contains(known, tag) || strings.TrimSpace(known) == "*" {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := f.packed
	if packed {
		h.Set("Content-Encoding", "gzip")
	} else if plain, err := unpack(f.packed); err == nil { // it was unpacked before
		body = plain
	}
	h.Set("Content-Length", fmt.Sprint(len(body)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(body) // whoever left is told nothing
	}
}

// readsGzip reports whether an Accept-Encoding header allows gzip.
func readsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		coding, weight, _ := strings.Cut(strings.ReplaceAll(part, " ", ""), ";")
		if coding == "gzip" || coding == "*" {
			return !strings.HasPrefix(weight, "q=0") || strings.Trim(weight, "q=0.") != ""
		}
	}
	return false
}
