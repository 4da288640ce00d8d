package api

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/api/access"
)

// events reads the kinds of events from a stream until enough returns true.
func events(t *testing.T, server *httptest.Server, lastID string, enough func(kind, id string) bool) (kinds []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // the epochs may take a while
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/api/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	if lastID != "" {
		r.Header.Set("Last-Event-ID", lastID)
	}
	out, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer out.Body.Close()
	if got := out.Header.Get("Content-Type"); got != "text/event-stream" || out.StatusCode != http.StatusOK {
		t.Errorf("got %d with Content-Type %s", out.StatusCode, got)
	}
	id := ""
	for lines := bufio.NewScanner(out.Body); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ": ")
		switch key {
		case "id":
			id = value
		case "event":
			kinds = append(kinds, value)
			if enough(value, id) {
				return kinds
			}
		}
	}
	return kinds
}

// streams returns the number of open event streams.
func (w *harness) streams(t *testing.T) (n int) {
	t.Helper()
	_, after, _ := strings.Cut(w.callUnchecked(http.MethodGet, "/metrics").Body.String(), "\nsibyl_api_streams ")
	if _, err := fmt.Sscan(after, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Concurrent readers get all events, from the first epoch to a decision. A reader that reconnects gets the events it
// missed.
func TestEvents(t *testing.T) {
	w := newHarness(t)
	w.clock = time.Now // connections have real deadlines
	server := httptest.NewServer(w)
	defer server.Close()
	var readers sync.WaitGroup
	last := make([]string, 4)
	for i := range last {
		readers.Go(func() {
			kinds := events(t, server, "", func(kind, id string) bool { last[i] = id; return kind == "decision" })
			for _, want := range []string{"epoch", "problem.opened", "decision"} {
				if !slices.Contains(kinds, want) {
					t.Errorf("reader %d: no %s in %v", i, want, kinds)
				}
			}
		})
	}
	for streams := 0; streams < len(last) && t.Context().Err() == nil && !t.Failed(); streams = w.streams(t) {
		time.Sleep(time.Millisecond)
	}
	w.play(t, 8, w.learned)
	w.app.Inject(w.now)
	w.play(t, 40, func() bool { return w.decided > 0 })
	readers.Wait()
	w.epoch(t)
	kinds := events(t, server, last[0], func(kind, _ string) bool { return kind == "epoch" })
	if kinds[0] == "reset" || slices.Contains(kinds, "problem.opened") {
		t.Errorf("after reconnecting: %v", kinds)
	}
	if kinds := events(t, server, "elsewhere-7", func(string, string) bool { return true }); kinds[0] != "reset" {
		t.Errorf("with an ID of another run: %v", kinds)
	}
}

// A HEAD request for events ends immediately.
func TestHeadOfEvents(t *testing.T) {
	w := newHarness(t)
	w.clock = time.Now // connections have real deadlines
	server := httptest.NewServer(w)
	defer server.Close()
	defer server.CloseClientConnections() // otherwise Close waits for open streams
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 { // on a single connection
		r, err := http.NewRequestWithContext(ctx, http.MethodHead, server.URL+"/api/v1/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		out, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		out.Body.Close()
		if got := out.Header.Get("Content-Type"); got != "text/event-stream" {
			t.Errorf("got Content-Type %s", got)
		}
	}
	if n := w.streams(t); n != 0 {
		t.Errorf("%d streams are open, want 0", n)
	}
}

// A request is refused if its body doesn't arrive in time.
func TestSlowBody(t *testing.T) {
	w := newHarness(t)
	w.clock = func() time.Time { return time.Now().Add(time.Second/2 - requestTimeout) }
	server := httptest.NewServer(w)
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(requestTimeout / 2))
	fmt.Fprintf(conn, "PUT /api/v1/tracepoints/0000000000000001 HTTP/1.1\r\nHost: localhost\r\n"+
		"Content-Type: application/json\r\nContent-Length: 20\r\n\r\n{")
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, " 408 ") {
		t.Errorf("%q, %v", line, err)
	}
}

// A stream ends when its token is revoked or the service stops.
func TestStreamsEnd(t *testing.T) {
	for name, end := range map[string]func(w *harness, id string) error{
		"revoked": func(w *harness, id string) error { return w.tokens.Revoke(id) },
		"stopped": func(w *harness, _ string) error { w.Close(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := newHarness(t)
			w.clock = time.Now // connections have real deadlines
			server := httptest.NewServer(w)
			defer server.Close()
			secret, made, err := w.tokens.Create(access.Token{Role: access.Viewer}, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			// All local callers can read as long as there is no token.
			if _, _, err := w.tokens.Create(access.Token{Role: access.Admin}, time.Now()); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			lines := bufio.NewScanner(stream(ctx, t, server.URL, secret))
			until(lines, ": events follow")
			w.epoch(t)
			until(lines, "event: epoch")
			if err := end(w, made.ID); err != nil {
				t.Fatal(err)
			}
			w.epoch(t)
			if until(lines, "event: epoch") {
				t.Error("got an event afterwards")
			}
			if ctx.Err() != nil {
				t.Error("the stream did not end")
			}
		})
	}
}

// stream opens an event stream with a token.
func stream(ctx context.Context, t *testing.T, url, secret string) io.Reader {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+secret)
	out, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Body.Close() })
	return out.Body
}

// until reads up to the line want, and reports whether it found the line.
func until(lines *bufio.Scanner, want string) bool {
	for lines.Scan() {
		if lines.Text() == want {
			return true
		}
	}
	return false
}
