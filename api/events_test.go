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
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/search"
)

// events reads events of a stream until enough says so.
func events(t *testing.T, server *httptest.Server, lastID string, enough func(kind, id string) bool) (kinds []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
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
		t.Errorf("%d as %s", out.StatusCode, got)
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

// TestEvents streams what happens to several readers at a time, from the first epoch to a problem with a decision, and lets one come again.
func TestEvents(t *testing.T) {
	w := newWorld(t)
	w.clock = time.Now // deadlines of connections are real
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
	for streams := 0; streams < len(last) && t.Context().Err() == nil && !t.Failed(); streams, _ = w.hub.readers() {
		time.Sleep(time.Millisecond)
	}
	w.play(t, 8, w.core.Learned)
	w.app.Inject(w.now)
	w.play(t, 40, func() bool { return len(w.past.decisions) > 0 })
	readers.Wait()
	w.epoch(t)
	if kinds := events(t, server, last[0], func(kind, _ string) bool { return kind == "epoch" }); kinds[0] == "reset" || slices.Contains(kinds, "problem.opened") {
		t.Errorf("after coming again: %v", kinds)
	}
	if kinds := events(t, server, "elsewhere-7", func(string, string) bool { return true }); kinds[0] != "reset" {
		t.Errorf("after another run: %v", kinds)
	}
}

// TestHeadOfEvents asks only what events would be sent as: nobody reads them then.
func TestHeadOfEvents(t *testing.T) {
	w := newWorld(t)
	w.clock = time.Now // deadlines of connections are real
	server := httptest.NewServer(w)
	defer server.Close()
	defer server.CloseClientConnections() // or it waits for those who read
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range 2 { // on one connection
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
			t.Errorf("as %s", got)
		}
	}
	if n, _ := w.hub.readers(); n != 0 {
		t.Errorf("%d still read", n)
	}
}

// TestClosed tells that a problem closed.
func TestClosed(t *testing.T) {
	w := troubled(t)
	id := w.core.Problems()[0].ID
	w.hub.known[w.past.group] = search.Located // another one that is gone
	got := w.happened(w.core, w.now, nil)
	kinds := make([]string, len(got))
	for i := range got {
		kinds[i] = got[i].Type
	}
	if !slices.Equal(kinds, []string{"epoch", "problem.closed"}) || *got[1].Problem != w.past.group.String() || *got[0].Problems != 1 {
		t.Errorf("%v of %s", kinds, id)
	}
}

// TestSlowReader: who falls behind is told to begin again, and never gets events twice or out of order.
func TestSlowReader(t *testing.T) {
	var h hub
	h.begin(time.Unix(1, 0))
	epoch := []contract.Event{{Type: "epoch"}}
	for range keptEvents {
		h.publish(epoch)
	}
	if text, next, _, lost := h.since(0); lost || next != keptEvents || strings.Count(text, "event: epoch") != keptEvents {
		t.Errorf("all that is kept: lost %v, next %d", lost, next)
	}
	h.publish(epoch)
	if _, _, _, lost := h.since(0); !lost {
		t.Error("events were lost and it is not said")
	}
	for id, want := range map[string]struct {
		number uint64
		missed bool
	}{
		"": {keptEvents + 1, false},
		fmt.Sprintf("%s-%d", h.began, keptEvents):   {keptEvents + 1, false},
		fmt.Sprintf("%s-%d", h.began, 1):            {2, false},
		fmt.Sprintf("%s-%d", h.began, 0):            {keptEvents + 1, true},
		fmt.Sprintf("%s-%d", h.began, keptEvents+1): {keptEvents + 1, true},
		"x-1":                             {keptEvents + 1, true},
		h.began + "-18446744073709551615": {keptEvents + 1, true},
		h.began:                           {keptEvents + 1, true},
	} {
		if number, missed := h.resume(id); number != want.number || missed != want.missed {
			t.Errorf("after %q: %d, %v", id, number, missed)
		}
	}
	for range maxStreams {
		if !h.enter() {
			t.Fatal("too few readers are let in")
		}
	}
	if h.enter() {
		t.Error("too many readers are let in")
	}
	h.leave(true)
	if streams, cut := h.readers(); streams != maxStreams-1 || cut != 1 {
		t.Errorf("%d readers, %d cut", streams, cut)
	}
}

// TestSlowBody: a body that does not come is not waited for.
func TestSlowBody(t *testing.T) {
	w := newWorld(t)
	w.clock = func() time.Time { return time.Now().Add(time.Second/2 - patience) }
	server := httptest.NewServer(w)
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience / 2))
	fmt.Fprintf(conn, "PUT /api/v1/tracepoints/0000000000000001 HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{")
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, " 408 ") {
		t.Errorf("%q, %v", line, err)
	}
}

// Readers are told nothing more once their token is revoked, however often something happens, or when the service stops.
func TestStreamsEnd(t *testing.T) {
	for what, end := range map[string]func(w *world, id string) error{
		"revoked": func(w *world, id string) error { return w.tokens.Revoke(id) },
		"stopped": func(w *world, _ string) error { w.Close(); return nil },
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			w.clock = time.Now // deadlines of connections are real
			server := httptest.NewServer(w)
			defer server.Close()
			secret, made, err := w.tokens.Create(access.Viewer, "", time.Now(), time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := w.tokens.Create(access.Admin, "", time.Now(), time.Time{}); err != nil { // without any everybody may read
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), heartbeat/2)
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
				t.Error("told of an epoch afterwards")
			}
			if ctx.Err() != nil {
				t.Error("the stream did not end")
			}
		})
	}
}

// stream begins to read events with a token.
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

// until reads up to a line, and reports whether it came.
func until(lines *bufio.Scanner, want string) bool {
	for lines.Scan() {
		if lines.Text() == want {
			return true
		}
	}
	return false
}
