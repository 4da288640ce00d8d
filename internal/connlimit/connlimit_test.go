package connlimit

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// served is an HTTP server. Each request is sent to came, and is answered after a receive from let.
type served struct {
	*Listener
	came, let chan struct{}
	taken     chan net.Conn // hijacked connections, by requests for /taken
	states    chan http.ConnState
}

func serve(t *testing.T, share *Share) *served {
	t.Helper()
	l, err := Open(t.Context(), "127.0.0.1:0", share)
	if err != nil {
		t.Fatal(err)
	}
	s := &served{l, make(chan struct{}), make(chan struct{}), make(chan net.Conn, 1), make(chan http.ConnState, 100)}
	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/taken" {
				c, _, _ := http.NewResponseController(w).Hijack()
				s.taken <- c
				return
			}
			s.came <- struct{}{}
			s.let <- struct{}{}
		}),
		ConnState: func(c net.Conn, state http.ConnState) {
			l.State(c, state)
			s.states <- state
		},
	}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return s
}

// ask opens a connection and sends a request for path.
func (s *served) ask(t *testing.T, path string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return c
}

// closed checks that the server closed a connection.
func closed(t *testing.T, c net.Conn) {
	t.Helper()
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read %d bytes: %v", n, err)
	}
}

// until waits until any connection enters a state.
func (s *served) until(state http.ConnState) {
	for state != <-s.states {
	}
}

// lines is a writer that counts lines.
type lines struct {
	mu sync.Mutex
	n  int
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n += strings.Count(string(p), "\n")
	return len(p), nil
}

// Two listeners share a limit of two connections. While both have a request, further connections are closed. If one is
// idle, it is closed for a new one.
func TestShare(t *testing.T) {
	var log lines
	share := NewShare(2, slog.New(slog.NewTextHandler(&log, nil)))
	a, b := serve(t, share), serve(t, share)
	first, second := a.ask(t, "/"), b.ask(t, "/")
	<-a.came
	<-b.came
	for _, s := range []*served{a, b} {
		closed(t, s.ask(t, "/"))
	}
	<-a.let
	if _, err := io.ReadFull(first, make([]byte, len("HTTP/1.1 200 OK"))); err != nil {
		t.Fatal(err)
	}
	a.until(http.StateIdle)
	third := b.ask(t, "/")
	<-b.came
	if _, err := io.Copy(io.Discard, first); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the idle connection was not closed: %v", err)
	}
	want := []Load{{Open: 0, Most: 2, Refused: 1, Gone: 1}, {Open: 2, Most: 2, Refused: 1}}
	if got := []Load{a.Load(), b.Load()}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	log.mu.Lock()
	if log.n != 1 {
		t.Errorf("%d log messages within a minute, want 1", log.n)
	}
	log.mu.Unlock()
	for _, c := range []net.Conn{second, third} {
		<-b.let
		c.Close()
	}
	for range 2 {
		b.until(http.StateClosed)
	}
	if l := b.Load(); l.Open != 0 {
		t.Errorf("%+v", l)
	}
}

// Hijacked connections, such as WebSockets, aren't idle.
func TestHijacked(t *testing.T) {
	s := serve(t, NewShare(1, slog.New(slog.DiscardHandler)))
	c := s.ask(t, "/taken")
	s.until(http.StateHijacked)
	closed(t, s.ask(t, "/"))
	taken := <-s.taken
	defer taken.Close()
	if _, err := io.WriteString(taken, "x"); err != nil {
		t.Error(err)
	}
	if n, err := c.Read(make([]byte, 1)); n != 1 {
		t.Error(err)
	}
}

// The connection without work that was accepted first makes room, regardless of the order in which servers start to
// read.
func TestOrderOfReading(t *testing.T) {
	l, err := Open(t.Context(), "127.0.0.1:0", NewShare(2, slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.ByWork()
	var clients, accepted []net.Conn
	add := func() {
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		client.SetDeadline(time.Now().Add(time.Minute))
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		clients, accepted = append(clients, client), append(accepted, c)
	}
	add()
	add()
	l.State(accepted[1], http.StateActive)
	l.State(accepted[0], http.StateActive)
	add()
	closed(t, clients[0])
}
