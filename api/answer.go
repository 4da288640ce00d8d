package api

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/gzip"
)

// leastPacked is the size from which an answer is worth packing: less fits into a packet anyway.
const leastPacked = 1400

// draft is an answer before it is sent.
type draft struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (d *draft) Header() http.Header { return d.header }

// WriteHeader implements http.ResponseWriter.
func (d *draft) WriteHeader(status int) {
	if d.status == 0 {
		d.status = status
	}
}

// Write implements http.ResponseWriter.
func (d *draft) Write(b []byte) (int, error) {
	d.WriteHeader(http.StatusOK)
	return d.body.Write(b)
}

// immutable are the operations whose answers never change.
var immutable = map[string]bool{"getDecision": true}

// answer completes what handlers write: a tag by which callers learn that nothing has changed, and compression.
func (a *API) answer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d := &draft{header: w.Header()}
		next.ServeHTTP(d, r)
		h := d.header
		op, _, _ := a.operation(r)
		reading := r.Method == http.MethodGet || r.Method == http.MethodHead
		if reading && d.status == http.StatusOK {
			tag := `"` + strconv.FormatUint(xxhash.Sum64(d.body.Bytes()), 36) + `"`
			h.Set("ETag", tag)
			h.Set("Cache-Control", "private, no-cache")
			if immutable[op.OperationID] {
				h.Set("Cache-Control", "private, max-age=86400, immutable")
			}
			h.Add("Vary", "Accept-Encoding, Authorization")
			if matches(r.Header.Get("If-None-Match"), tag) {
				h.Del("Content-Type")
				h.Del("Content-Length")
				w.WriteHeader(http.StatusNotModified)
				return
			}
		}
		if d.body.Len() >= leastPacked && packs(r) && h.Get("Content-Encoding") == "" {
			h.Set("Content-Encoding", "gzip")
			pack(&d.body)
		}
		if d.body.Len() > 0 || d.status == http.StatusOK {
			h.Set("Content-Length", strconv.Itoa(d.body.Len()))
		}
		w.WriteHeader(d.status)
		_, _ = w.Write(d.body.Bytes()) // whoever left is told nothing; of HEAD the server drops it
	})
}

// matches reports whether an If-None-Match header holds a tag. Proxies may have made it a weak one.
func matches(header, tag string) bool {
	for part := range strings.SplitSeq(header, ",") {
		if part = strings.TrimPrefix(strings.TrimSpace(part), "W/"); part == tag || part == "*" {
			return true
		}
	}
	return false
}

// packs reports whether the caller reads gzip.
func packs(r *http.Request) bool {
	return accepts(strings.ReplaceAll(strings.Join(r.Header.Values("Accept-Encoding"), ","), "gzip", "coding/gzip"), []string{"coding/gzip"})
}

var packers = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// pack replaces what b holds by its gzip.
func pack(b *bytes.Buffer) {
	var packed bytes.Buffer
	z, _ := packers.Get().(*gzip.Writer)
	z.Reset(&packed)
	_, _ = z.Write(b.Bytes()) // buffers do not fail
	_ = z.Close()
	packers.Put(z)
	*b = packed
}
