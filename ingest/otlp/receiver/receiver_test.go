package receiver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// held is an intake that blocks requests until they are released or canceled.
type held struct {
	came  chan int // sizes of received bodies
	letGo chan struct{}
}

func newHeld() *held { return &held{came: make(chan int, 100), letGo: make(chan struct{})} }

func (h *held) Take(ctx context.Context, body []byte, _ Format) (Rejected, error) {
	h.came <- len(body)
	select {
	case <-h.letGo:
		return Rejected{}, nil
	case <-ctx.Done():
		return Rejected{}, ctx.Err()
	}
}

// background sends body over both transports and returns a channel for the two results: nil for success.
func background(t testing.TB, s *Server, body []byte) <-chan error {
	answers := make(chan error, 2)
	conn := dial(t, s.GRPCAddr().String())
	go func() {
		_, err := exportRaw(context.Background(), conn, body)
		conn.Close()
		answers <- err
	}()
	go func() {
		r, err := http.Post("http://"+s.HTTPAddr().String()+tracesPath, "application/x-protobuf", bytes.NewReader(body))
		if err == nil {
			r.Body.Close()
			if r.StatusCode != http.StatusOK {
				err = errors.New(r.Status)
			}
		}
		answers <- err
	}()
	return answers
}

// Shutdown answers current requests and accepts no others.
func TestShutdownDrains(t *testing.T) {
	before := runtime.NumGoroutine()
	h := newHeld()
	s, err := New(h, Options{GRPC: "127.0.0.1:0", HTTP: "127.0.0.1:0"})
	must(t, err)
	must(t, s.Listen(t.Context()))
	served := make(chan error)
	go func() { served <- s.Serve() }()
	answers := background(t, s, requestOf(1, 1))
	<-h.came
	<-h.came
	down := make(chan error)
	go func() { down <- s.Shutdown(context.Background()) }()
	for _, address := range []net.Addr{s.GRPCAddr(), s.HTTPAddr()} {
		for end := time.Now().Add(patience); ; time.Sleep(quick) {
			c, err := net.Dial("tcp", address.String())
			if err != nil {
				break
			}
			c.Close()
			if time.Now().After(end) {
				t.Fatal("Shutdown still accepts connections")
			}
		}
	}
	select {
	case err := <-down:
		t.Fatalf("Shutdown returned %v before the requests were answered", err)
	default:
	}
	close(h.letGo)
	must(t, <-answers)
	must(t, <-answers)
	must(t, <-down)
	must(t, <-served)
	settled(t, before)
}

// settled waits until there are no more goroutines than before.
func settled(t testing.TB, before int) {
	t.Helper()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	end := time.Now().Add(patience) // goroutines of clients end a little later
	for ; runtime.NumGoroutine() > before; time.Sleep(quick) {
		if time.Now().After(end) {
			var stacks [1 << 16]byte
			t.Fatalf("%d goroutines, want %d:\n%s",
				runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks[:], true)])
		}
	}
}

// When its context is done, Shutdown cancels requests in the Intake, waits for them and returns an error.
func TestShutdownInTime(t *testing.T) {
	before := runtime.NumGoroutine()
	h := newHeld()
	s, err := New(h, Options{GRPC: "127.0.0.1:0", HTTP: "127.0.0.1:0"})
	must(t, err)
	must(t, s.Listen(t.Context()))
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	answers := background(t, s, nil)
	<-h.came
	<-h.came
	ctx, cancel := context.WithTimeout(t.Context(), quick)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown returned %v", err)
	}
	if load := s.Load(); load.Requests != 0 || load.Bytes != 0 {
		t.Errorf("load after Shutdown: %+v", load)
	}
	for range 2 {
		if err := <-answers; err == nil {
			t.Error("a canceled request succeeded")
		}
	}
	must(t, <-served)
	settled(t, before)
}

// Requests beyond the maximum number are refused before their bodies are read.
func TestTooManyRequests(t *testing.T) {
	h := newHeld()
	s := start(t, h, Options{MaxRequests: 2})
	answers := background(t, s, requestOf(1, 1))
	<-h.came
	<-h.came
	wantOverload(t, s, "too many requests at the same time")
	close(h.letGo)
	must(t, <-answers)
	must(t, <-answers)
}

// While the Intake is slow, fewer requests are admitted.
func TestAdmitsFewerWhenSlow(t *testing.T) {
	b := &budget{maxRequests: 2 * lateRequests, slow: time.Minute}
	enter := func() (n int) {
		for b.enter(func() {}) != nil {
			n++
		}
		return n
	}
	b.taken(lateAfter + 1)
	if n := enter(); n != lateRequests {
		t.Errorf("%d requests admitted, want %d", n, lateRequests)
	}
	b.taken(lateAfter)
	if n := enter(); n != lateRequests {
		t.Errorf("%d more requests admitted, want %d", n, lateRequests)
	}
}

// If Options.Refuse returns a refusal, requests are refused before their bodies are read.
func TestRefuse(t *testing.T) {
	h := newHeld()
	s := start(t, h, Options{Refuse: func() *refusal.Error {
		return refusal.New(refusal.Overloaded, "the disk is full", "")
	}})
	wantOverload(t, s, "the disk is full")
	if len(h.came) != 0 {
		t.Error("the Intake was called")
	}
}

// Requests beyond the maximum bytes in flight are refused before their bodies are read.
func TestTooManyBytes(t *testing.T) {
	h := newHeld()
	s := start(t, h, Options{MaxRequestBytes: 1 << 20, MaxInFlightBytes: 5 << 20})
	var answers []<-chan error
	for _, size := range []int{1 << 20, 1 << 20, 1 << 19} {
		answers = append(answers, background(t, s, make([]byte, size)))
		<-h.came
		<-h.came
	}
	if load := s.Load(); load.Requests != 6 || load.Bytes != 5<<20 {
		t.Errorf("load %+v", load)
	}
	wantOverload(t, s, "too many bytes in flight")
	close(h.letGo)
	for _, answer := range answers {
		must(t, <-answer)
		must(t, <-answer)
	}
}

// wantOverload sends headers of requests over both transports and checks that they are refused.
func wantOverload(t *testing.T, s *Server, why string) {
	t.Helper()
	c := connect(t, s.HTTPAddr(), postJSON+"Content-Length: 1000000\r\n\r\n")
	r := c.answer(t)
	if st := statusOf(t, r); r.code != http.StatusTooManyRequests || r.header.Get("Retry-After") != "1" ||
		st.GetMessage() != why {
		t.Errorf("%d, Retry-After %q: %s", r.code, r.header.Get("Retry-After"), r.body)
	}
	body, sender := newPipe(t)
	sender.Write([]byte{0, 0, 15, 0, 0})
	g := rawCall(t, s.GRPCAddr().String(), "", body)
	if g.grpc != "14" || g.header.Get("Grpc-Message") != why || g.header.Get("Grpc-Status-Details-Bin") == "" {
		t.Errorf("header %v", g.header)
	}
	_, err := exportRaw(t.Context(), dial(t, s.GRPCAddr().String()), make([]byte, 1_000_000))
	if st := status.Convert(err); st.Code() != codes.Unavailable || st.Message() != why ||
		retryDelay(st) != time.Second {
		t.Errorf("gRPC: %v", err)
	}
}

// If there are too many connections, the one that has been idle for the longest time is closed. A connection whose
// request wasn't read completely is idle, too. Closed connections make room for others.
func TestTooManyConnections(t *testing.T) {
	slow := map[string]string{
		"idle":          "",
		"slow body":     postJSON + "Content-Length: 100\r\n\r\n{",
		"refused":       "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
		"HTTP/2, quiet": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + string(http2Frame(4, 0, 0, nil)),
	}
	for name, text := range slow {
		t.Run(name, func(t *testing.T) {
			s := start(t, newDecoding(t), Options{MaxConnections: 2})
			addresses := []net.Addr{s.GRPCAddr(), s.HTTPAddr()}
			for _, address := range addresses {
				all := []rawConn{connect(t, address, text), connect(t, address, text)}
				time.Sleep(quick)
				all = append(all, connect(t, address, text))
				if _, err := io.Copy(io.Discard, all[0]); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the first connection to %s is still open", address)
				}
			}
			answers := background(t, s, nil)
			must(t, <-answers)
			must(t, <-answers)
			load := s.Load()
			if load.GRPC.Refused != 0 || load.HTTP.Refused != 0 ||
				load.GRPC.Gone+load.HTTP.Gone == 0 { // text of the other transport is refused
				t.Errorf("%+v", load)
			}
		})
	}
}

// A connection whose request is being taken isn't idle, so at the limit the new connection is closed.
func TestTooManyRequestsTaken(t *testing.T) {
	h := newHeld()
	s := start(t, h, Options{MaxConnections: 1})
	answers := background(t, s, nil)
	<-h.came
	<-h.came
	for _, address := range []net.Addr{s.GRPCAddr(), s.HTTPAddr()} {
		c := connect(t, address, "")
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the second connection to %s is open", address)
		}
	}
	close(h.letGo)
	must(t, <-answers)
	must(t, <-answers)
}

// If an address is in use, Listen returns an error and leaves no other address open.
func TestListenFails(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	s, err := New(drop{}, Options{GRPC: "127.0.0.1:0", HTTP: taken.Addr().String()})
	must(t, err)
	if err := s.Listen(t.Context()); err == nil || !strings.Contains(err.Error(), taken.Addr().String()) {
		t.Errorf("Listen returned %v", err)
	}
	if c, err := net.Dial("tcp", s.GRPCAddr().String()); err == nil {
		c.Close()
		t.Error("the other address is still open")
	}
}

// A server may have only one address. If one of two listeners fails, Serve closes the other.
func TestServeFails(t *testing.T) {
	s, err := New(drop{}, Options{HTTP: "127.0.0.1:0"})
	must(t, err)
	must(t, s.Listen(t.Context()))
	if s.GRPCAddr() != nil {
		t.Error("the address of gRPC is open")
	}
	must(t, s.http.Listener.Close())
	if err := s.Serve(); err == nil {
		t.Error("Serve returned nil")
	}
	s, err = New(drop{}, Options{GRPC: "127.0.0.1:0", HTTP: "127.0.0.1:0"})
	must(t, err)
	must(t, s.Listen(t.Context()))
	must(t, s.grpc.Listener.Close())
	if err := s.Serve(); err == nil {
		t.Error("Serve returned nil")
	}
}

// Shutdown before Listen or Serve is allowed.
func TestShutdownBeforeServe(t *testing.T) {
	s, err := New(drop{}, Options{GRPC: "127.0.0.1:0", HTTP: "127.0.0.1:0"})
	must(t, err)
	must(t, s.Listen(t.Context()))
	must(t, s.Shutdown(t.Context()))
	must(t, s.Serve())
}

// New rejects options that would refuse the largest requests forever.
func TestOptionsThatNeverTake(t *testing.T) {
	if _, err := New(drop{}, Options{MaxRequestBytes: 64 << 20, MaxInFlightBytes: 130 << 20}); err == nil {
		t.Error("New accepted them")
	}
	// The largest request is accepted in every encoding with the minimum that is allowed.
	got := make(chan int, 1)
	s := start(t, intake(func(_ context.Context, body []byte, _ Format) (Rejected, error) {
		got <- len(body)
		return Rejected{}, nil
	}), Options{MaxRequestBytes: 8 << 20, MaxInFlightBytes: 19 << 20})
	data := make([]byte, 8<<20)
	rand.NewChaCha8([32]byte{}).Read(data) // grows when compressed
	for _, encoding := range []string{"", "gzip", "zstd"} {
		r := post(t, s, "application/x-protobuf", encoding, io.MultiReader(bytes.NewReader(compressed(encoding, data))))
		if r.code != http.StatusOK || <-got != len(data) {
			t.Errorf("%q: %d", encoding, r.code)
		}
	}
}
