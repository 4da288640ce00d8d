package web

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// get requests path from u. It returns nil if u doesn't serve it.
func get(t *testing.T, u *UI, path string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	out := httptest.NewRecorder()
	if !u.Serve(out, r) {
		return nil
	}
	return out
}

func body(t *testing.T, r *httptest.ResponseRecorder) []byte {
	t.Helper()
	if r.Header().Get("Content-Encoding") != "gzip" {
		return r.Body.Bytes()
	}
	b, err := unpack(r.Body.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func newUI(t *testing.T, base string) *UI {
	t.Helper()
	u, err := New(base)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

var links = regexp.MustCompile(`(?:src|href)="\./([^"]+)"`)

// TestBasePath reads the page and its links below a base path, with and without gzip.
func TestBasePath(t *testing.T) {
	for _, base := range []string{"", "/sibyl"} {
		u := newUI(t, base)
		for _, coding := range []string{"gzip, br", "", "gzip;q=0"} {
			r := get(t, u, base+"/", "Accept-Encoding", coding)
			text := body(t, r)
			if !bytes.Contains(text, []byte(`<base href="`+base+`/" />`)) {
				t.Errorf("page below %q lacks its base: %s", base, text)
			}
			if (r.Header().Get("Content-Encoding") == "gzip") != (coding == "gzip, br") {
				t.Errorf("Accept-Encoding %q: sent as %q", coding, r.Header().Get("Content-Encoding"))
			}
			found := links.FindAllSubmatch(text, -1)
			if len(found) < 3 {
				t.Fatalf("the page links to %d files, want a script, a style and an icon", len(found))
			}
			for _, link := range found {
				file := get(t, u, base+"/"+string(link[1]), "Accept-Encoding", coding)
				if file == nil || len(body(t, file)) == 0 ||
					!strings.Contains(file.Header().Get("Cache-Control"), "immutable") {
					t.Errorf("%s: missing, empty or not immutable: %+v", link[1], file)
				}
			}
		}
	}
}

// The variable views lists all routes of the page.
func TestViews(t *testing.T) {
	source, err := os.ReadFile("src/app.tsx")
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]bool)
	for _, m := range regexp.MustCompile(`<Route path="/([a-z]+)`).FindAllSubmatch(source, -1) {
		found[string(m[1])] = true
	}
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, views) {
		t.Errorf("the page has the routes %v, want %v", got, views)
	}
}

func TestServe(t *testing.T) {
	u := newUI(t, "/sibyl")
	const html = "text/html,application/xhtml+xml"
	for _, c := range []struct {
		path, accept string
		status       int // 0 if not served
	}{
		{"/sibyl", "", http.StatusFound},
		{"/sibyl/", "", http.StatusOK},
		{"/sibyl/problems/0123", html, http.StatusOK},
		{"/sibyl/problems/0123", "application/json", 0},
		{"/sibyl/incidents/0123", "*/*", http.StatusOK},
		{"/sibyl/incidents/0123", "", http.StatusOK},
		{"/sibyl/none", "*/*", 0},
		{"/sibyl/assets/none.js", "*/*", 0},
		{"/elsewhere", html, 0},
		{"/sibyl/../web.go", "*/*", 0},
	} {
		r := get(t, u, c.path, "Accept", c.accept)
		status := 0
		if r != nil {
			status = r.Code
		}
		if status != c.status {
			t.Errorf("%s as %q: %d, want %d", c.path, c.accept, status, c.status)
		}
	}
	if u.Serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/sibyl/", nil)) {
		t.Error("POST of a page is served")
	}
}

// TestHeaders checks that the page may only run scripts of its origin and that clients revalidate it.
func TestHeaders(t *testing.T) {
	u := newUI(t, "")
	r := get(t, u, "/")
	csp := r.Header().Get("Content-Security-Policy")
	if !strings.Contains(csp, "default-src 'none'; script-src 'self';") || strings.Count(csp, "unsafe") != 1 ||
		!strings.Contains(csp, "style-src 'self' 'unsafe-inline'") {
		t.Errorf("Content-Security-Policy: %s", csp)
	}
	if bytes.Contains(body(t, r), []byte("<script>")) {
		t.Error("the page has an inline script, which its policy forbids")
	}
	if got := r.Header().Get("Cache-Control"); got != "no-cache" {
		t.Errorf("Cache-Control of the page: %q, want no-cache", got)
	}
	if again := get(t, u, "/", "If-None-Match", r.Header().Get("ETag")); again.Code != http.StatusNotModified {
		t.Errorf("same tag: %d, want 304", again.Code)
	}
	if any := get(t, u, "/", "If-None-Match", "*"); any.Code != http.StatusNotModified {
		t.Errorf("any tag: %d, want 304", any.Code)
	}
	other := get(t, u, "/", "If-None-Match", r.Header().Get("ETag"), "Accept-Encoding", "gzip")
	if other.Code != http.StatusOK {
		t.Errorf("tag of another encoding: %d, want 200", other.Code)
	}
}

// TestOverHTTP checks that a server sends the embedded gzip unchanged, with its length, and ranges of it.
func TestOverHTTP(t *testing.T) {
	u := newUI(t, "")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { u.Serve(w, r) }))
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	packed := u.files[page].packed
	for _, c := range []struct {
		method, coding, bytes string
		status                int
		want                  []byte
		length                int
	}{
		{http.MethodGet, "br, gzip", "", http.StatusOK, packed, len(packed)},
		{http.MethodGet, "gzip", "bytes=5-9", http.StatusPartialContent, packed[5:10], 5},
		{http.MethodGet, "br", "", http.StatusOK, mustUnpack(t, packed), len(mustUnpack(t, packed))},
		{http.MethodHead, "br", "", http.StatusOK, nil, len(mustUnpack(t, packed))},
	} {
		r, err := http.NewRequest(c.method, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept-Encoding", c.coding)
		if c.bytes != "" {
			r.Header.Set("Range", c.bytes)
		}
		out, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(out.Body)
		if out.Body.Close(); err != nil || out.StatusCode != c.status || !bytes.Equal(got, c.want) ||
			out.ContentLength != int64(c.length) {
			t.Errorf("%+v: %d, %d of %d bytes: %v", c, out.StatusCode, len(got), out.ContentLength, err)
		}
		if vary := out.Header.Values("Vary"); len(vary) != 1 || vary[0] != "Accept-Encoding" {
			t.Errorf("%+v: Vary: %v", c, vary)
		}
	}
}

func mustUnpack(t *testing.T, packed []byte) []byte {
	t.Helper()
	plain, err := unpack(packed)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

var hashed = regexp.MustCompile(`^assets/[a-z-]+\.[\w-]{8}\.(js|css|svg)$`)

// TestNamesContainHashes checks the names of files that clients cache forever.
func TestNamesContainHashes(t *testing.T) {
	for name := range newUI(t, "").files {
		if name != page && !hashed.MatchString(name) {
			t.Errorf("%s has no hash, but is cached for ever", name)
		}
	}
}

// maxFirstLoad is the maximum number of compressed bytes that the first view needs.
const maxFirstLoad = 200 << 10

// lazy are the views that load on demand.
var lazy = []string{"compare", "problem", "service", "trace", "tracepoints", "tree", "trees"}

func TestFirstLoad(t *testing.T) {
	u := newUI(t, "")
	sum := len(u.files[page].packed)
	first := make(map[string]bool)
	for _, link := range links.FindAllSubmatch(body(t, get(t, u, "/")), -1) {
		first[string(link[1])] = true
		sum += len(u.files[string(link[1])].packed)
	}
	for _, view := range lazy {
		own := slices.DeleteFunc(slices.Collect(maps.Keys(u.files)),
			func(name string) bool { return !strings.HasPrefix(name, "assets/"+view+".") })
		if len(own) != 1 || first[own[0]] {
			t.Errorf("view %s has the files %v, want one that the page does not load first", view, own)
		}
	}
	if t.Logf("the first view needs %d bytes", sum); sum > maxFirstLoad {
		t.Errorf("the first view needs %d bytes, want at most %d", sum, maxFirstLoad)
	}
}
