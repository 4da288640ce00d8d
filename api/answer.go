package api

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/gzhttp"
)

// minCompressed is the minimum size, in bytes, of responses that are compressed. Smaller responses fit into one packet
// anyway.
const minCompressed = 1400

// gzipSuffix is appended to the ETags of compressed responses, whose bytes differ from the uncompressed ones.
const gzipSuffix = "-gzip"

// compressed compresses the responses of a handler for clients that accept gzip.
var compressed = func() func(http.Handler) http.HandlerFunc {
	wrap, err := gzhttp.NewWrapper(gzhttp.MinSize(minCompressed), gzhttp.EnableZstd(false),
		gzhttp.SuffixETag(gzipSuffix))
	if err != nil {
		panic(err) // the options are constants
	}
	return wrap
}()

// bufferedResponse is an [http.ResponseWriter] that keeps the response in memory.
type bufferedResponse struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (b *bufferedResponse) Header() http.Header { return b.header }

// WriteHeader implements http.ResponseWriter.
func (b *bufferedResponse) WriteHeader(status int) {
	if b.status == 0 {
		b.status = status
	}
}

// Write implements http.ResponseWriter.
func (b *bufferedResponse) Write(p []byte) (int, error) {
	b.WriteHeader(http.StatusOK)
	return b.body.Write(p)
}

// immutable lists the operations whose responses never change.
var immutable = map[string]bool{"getDecision": true}

// answer compresses the responses of next, and adds an ETag to successful responses to GET requests. It buffers
// responses, so don't use it for streams.
func (a *API) answer(next http.Handler) http.Handler {
	return compressed(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := &bufferedResponse{header: w.Header()}
		next.ServeHTTP(b, r)
		h := b.header
		if reading := r.Method == http.MethodGet || r.Method == http.MethodHead; !reading || b.status != http.StatusOK {
			if b.body.Len() > 0 {
				h.Set("Content-Length", strconv.Itoa(b.body.Len()))
			}
			w.WriteHeader(b.status)
			_, _ = w.Write(b.body.Bytes()) // fails if the client has left
			return
		}
		h.Set("Cache-Control", "private, no-cache")
		if op, _, _ := a.operation(r); immutable[op.OperationID] {
			h.Set("Cache-Control", "private, max-age=86400, immutable")
		}
		h.Add("Vary", "Authorization, Cookie")
		h.Set("ETag", tagOf(b.body.Bytes(), r.Header.Get("If-None-Match")))
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b.body.Bytes()))
	}))
}

// tagOf returns the ETag of an uncompressed body. known is the value of the If-None-Match header. If it contains the
// ETag of the body's compressed form, tagOf returns that ETag, so that the client learns that its copy is current.
func tagOf(body []byte, known string) string {
	hash := strconv.FormatUint(xxhash.Sum64(body), 36)
	if tag := `"` + hash + gzipSuffix + `"`; strings.Contains(known, tag) {
		return tag
	}
	return `"` + hash + `"`
}
