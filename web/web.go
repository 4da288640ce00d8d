// Package web serves the web UI. dist contains its files, which are built from the sources next to it and compressed
// with gzip. Their names contain a hash of their content, except for the page. `make web` rebuilds them; the Go
// toolchain alone can build the service with them.
//
// The package does not know the API, which the page in the browser calls, and must not import other packages of this
// module.
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
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzhttp"
)

//go:embed all:dist
var dist embed.FS

// policy is the Content-Security-Policy of the page: it may load from and call only its own origin. Styles may be
// inline because radix uses them to position menus. Images may be inline because the page draws charts to save them.
const policy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; " +
	"img-src 'self' data: blob:; connect-src 'self'; font-src 'self'; base-uri 'self'; form-action 'none'; " +
	"frame-ancestors 'none'"

// page is the file served for the paths of all views. Its script reads the path.
const page = "index.html"

// UI serves the files of the web UI below a base path. It is safe for concurrent use.
type UI struct {
	base  string
	files map[string]*file // by path below base, without a leading slash
}

// file is a file of the UI.
type file struct {
	packed []byte // content, compressed with gzip
	media  string
	tag    string // ETag of the content, without quotes
}

// New returns the UI for base, a path like "/sibyl" or "". It returns an error if web/dist is not built properly.
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
			return fmt.Errorf("web/dist/%s is not compressed: run make web", name)
		}
		u.files[name], err = u.load(name, packed)
		return err
	})
	if err == nil && u.files[page] == nil {
		err = fmt.Errorf("web/dist has no %s: run make web", page)
	}
	return u, err
}

// load returns the embedded file called name. packed is the file's gzip-compressed form. load sets the base path in the
// page.
func (u *UI) load(name string, packed []byte) (*file, error) {
	plain, err := unpack(packed)
	if err != nil {
		return nil, fmt.Errorf("unpack web/dist/%s: %w", name, err)
	}
	if name == page {
		plain = bytes.Replace(plain, []byte(`<base href="/" />`),
			[]byte(`<base href="`+html.EscapeString(u.base)+`/" />`), 1)
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
	_, _ = z.Write(plain) // a buffer doesn't fail
	_ = z.Close()
	return b.Bytes()
}

// views lists the first path elements of the UI's views.
var views = []string{
	"audit", "compare", "incidents", "map", "objectives", "problems", "service", "services", "silences", "status",
	"tracepoints", "traces", "trees",
}

// wantsPage reports whether the response to r, a request for a path without a file, is the page. A request that accepts
// HTML gets the page for any path. A request that accepts anything, as curl and link checkers send, gets the page only
// for the paths of views.
func wantsPage(r *http.Request, path string) bool {
	accept := r.Header.Get("Accept")
	if strings.Contains(accept, "text/html") {
		return true
	}
	view, _, _ := strings.Cut(path, "/")
	return slices.Contains(views, view) && (accept == "" || strings.HasPrefix(accept, "*/*"))
}

// Serve serves the page and its files. It returns false, without writing a response, if r asks for anything else. It
// also serves the page for some other paths; see wantsPage.
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
	if f == nil && wantsPage(r, name) || name == "" {
		name, f = page, u.files[page]
	}
	if !below || f == nil {
		return false
	}
	negotiate(f.handler(name != page)).ServeHTTP(w, r)
	return true
}

// negotiate wraps a handler so that it gets a gzhttp.GzipResponseWriter if the client accepts gzip.
var negotiate = func() func(http.Handler) http.HandlerFunc {
	wrap, err := gzhttp.NewWrapper(gzhttp.EnableZstd(false))
	if err != nil {
		panic(err) // the options are constants
	}
	return wrap
}()

// handler returns the handler that sends f. Clients may keep the file forever if its name contains its hash.
func (f *file) handler(forever bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Content-Type", f.media)
		h.Set("Cache-Control", "no-cache")
		if forever {
			h.Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		content, tag := f.packed, f.tag+"-gzip"
		if acceptsGzip(w) {
			h.Set("Content-Encoding", "gzip") // gzhttp doesn't compress it again
			h.Set("Content-Length", strconv.Itoa(len(content)))
		} else if plain, err := unpack(f.packed); err == nil { // New has already unpacked it
			content, tag = plain, f.tag
		}
		h.Set("ETag", `"`+tag+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}
}

// acceptsGzip reports whether negotiate made w for a client that accepts gzip.
func acceptsGzip(w http.ResponseWriter) bool {
	switch w.(type) {
	case *gzhttp.GzipResponseWriter, gzhttp.GzipResponseWriterWithCloseNotify:
		return true
	}
	return false
}
