package receiver

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// rawConn is a connection on which tests write HTTP byte by byte, without a client.
type rawConn struct{ net.Conn }

// connect opens a connection with a deadline and sends text.
func connect(t testing.TB, to net.Addr, text string) rawConn {
	t.Helper()
	c, err := net.Dial("tcp", to.String())
	must(t, err)
	t.Cleanup(func() { c.Close() })
	must(t, c.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(c, text)
	must(t, err)
	return rawConn{c}
}

// answer reads an HTTP response.
func (c rawConn) answer(t testing.TB) answer {
	t.Helper()
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	must(t, err)
	return readAnswer(t, r)
}

// wantClosed sends data n times and checks that the server closes the connection, in any way.
func (c rawConn) wantClosed(t testing.TB, data []byte, n int) {
	t.Helper()
	go func() {
		for range n {
			if _, err := c.Write(data); err != nil {
				return
			}
		}
	}()
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection is still open")
	}
}

// newPipe returns a pipe that is closed when the test ends, and doesn't wait for its reader.
func newPipe(t testing.TB) (io.Reader, io.Writer) {
	r, w := net.Pipe()
	t.Cleanup(func() { w.Close() })
	buffered := make(chan []byte, 10)
	go func() {
		for data := range buffered {
			if _, err := w.Write(data); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { close(buffered) })
	return r, sender(buffered)
}

type sender chan []byte

func (s sender) Write(data []byte) (int, error) {
	s <- data
	return len(data), nil
}

// The server closes connections of clients that send a header or a body too slowly.
func TestSlowSenders(t *testing.T) {
	var outcomes sync.Map
	s := start(t, newDecoding(t), Options{
		ReadTimeout: 100 * time.Millisecond, Observe: func(e Event) { outcomes.Store(e.Transport, e.Refused) },
	})

	header := connect(t, s.HTTPAddr(), "POST /v1/traces HTTP/1.1\r\nHost:")
	if n, err := io.Copy(io.Discard, header); err != nil {
		t.Errorf("half a header: the connection is still open: %d bytes, %v", n, err)
	}
	body := connect(t, s.HTTPAddr(), postJSON+"Content-Length: 100\r\n\r\n{")
	r := body.answer(t)
	if st := statusOf(t, r); r.code != http.StatusRequestTimeout || st.GetMessage() != errSlow.Error() {
		t.Errorf("half a body: %d: %s", r.code, r.body)
	}
	preface := connect(t, s.GRPCAddr(), "PRI * HTTP")
	if _, err := io.Copy(io.Discard, preface); err != nil {
		t.Errorf("half a preface: %v", err)
	}
	for name, sent := range map[string][]byte{"no prefix": nil, "half a message": {0, 0, 0, 0, 9, 1}} {
		outcomes.Delete(GRPC)
		slow, sender := newPipe(t)
		sender.Write(sent)
		if g := rawCall(t, s.GRPCAddr().String(), "", slow); g.grpc != "4" {
			t.Errorf("%s: status %s", name, g.grpc)
		}
		if o, _ := outcomes.Load(GRPC); o != refusal.TimedOut {
			t.Errorf("%s: outcome %v", name, o)
		}
	}
	// Time between requests doesn't count.
	if _, err := exportRaw(t.Context(), dial(t, s.GRPCAddr().String()), requestOf(1, 1)); err != nil {
		t.Error(err)
	}
}

// Slow bodies make room for other requests when places or memory run short, and their senders are told to retry.
func TestSlowSendersMakeRoom(t *testing.T) {
	for name, test := range map[string]struct {
		opts  Options
		slow  int // bodies over each transport
		begin int // bytes that each sends at once
	}{
		"places": {Options{MaxRequests: 20}, 10, 10},
		"memory": {Options{MaxRequestBytes: 1 << 20, MaxInFlightBytes: 5 << 20}, 2, minPiece + 1}, // 1 MiB each
	} {
		t.Run(name, func(t *testing.T) {
			outcomes := make(chan refusal.Reason, 100)
			test.opts.Observe = func(e Event) { outcomes <- e.Refused }
			s := start(t, newDecoding(t), test.opts)
			const size = 1_000_000
			for range test.slow {
				head := fmt.Sprintf(postJSON+"Content-Length: %d\r\n\r\n", size)
				connect(t, s.HTTPAddr(), head+strings.Repeat(" ", test.begin))
				body, sender := newPipe(t)
				sender.Write(framed(0, make([]byte, size))[:5+test.begin])
				go func() {
					if r, err := tryCall(t, s.GRPCAddr().String(), "", body); err == nil {
						r.Body.Close()
					}
				}()
			}
			arrived := 2 * test.slow * min(1<<20, minPiece+test.begin-10)
			for s.Load().Requests < int64(2*test.slow) || s.Load().Bytes < int64(arrived) {
				time.Sleep(quick)
			}
			time.Sleep(slowAfter)
			conn := dial(t, s.GRPCAddr().String())
			for range test.slow {
				if _, err := exportRaw(t.Context(), conn, requestOf(1, 1)); err != nil {
					t.Error(err)
				}
			}
			yielded := 0
			for range test.slow + 1 {
				if r := <-outcomes; r == refusal.Overloaded {
					yielded++
				}
			}
			if yielded == 0 {
				t.Error("no slow body was cut off")
			}
		})
	}
}

// A call whose message hasn't even started makes room, too, and its sender is told to retry.
func TestSilentCallMakesRoom(t *testing.T) {
	outcomes := make(chan refusal.Reason, 2)
	s := start(t, newDecoding(t), Options{MaxRequests: 1, Observe: func(e Event) { outcomes <- e.Refused }})
	silent, _ := newPipe(t)
	status := make(chan string)
	go func() { status <- rawCall(t, s.GRPCAddr().String(), "", silent).grpc }()
	for s.Load().Requests == 0 {
		time.Sleep(quick)
	}
	time.Sleep(slowAfter)
	if _, err := exportRaw(t.Context(), dial(t, s.GRPCAddr().String()), requestOf(1, 1)); err != nil {
		t.Error(err)
	}
	if got := <-status; got != "14" {
		t.Errorf("status %s of the silent call, want 14", got)
	}
	if one, other := <-outcomes, <-outcomes; min(one, other) != refusal.None || max(one, other) != refusal.Overloaded {
		t.Errorf("outcomes %v and %v, want one accepted and one overloaded", one, other)
	}
}

// Bodies that have just started to arrive aren't cut off.
func TestNewBodiesKeepTheirPlaces(t *testing.T) {
	b := &budget{maxRequests: 1, maxBytes: 100, slow: time.Minute}
	p := b.enter(func() { t.Error("cut off") })
	if b.enter(func() {}) != nil || b.reserve(101) || !b.reserve(100) {
		t.Error("the limits were exceeded")
	}
	if !p.arrived() {
		t.Error("the body did not arrive")
	}
	p.leave()
	if n := b.inFlight(); n != 0 {
		t.Errorf("%d requests in flight", n)
	}
}

// A body that has arrived is never cut off, however long it takes to process.
func TestArrivedBodiesKeepTheirPlaces(t *testing.T) {
	b := &budget{maxRequests: 1, maxBytes: 100}
	p := b.enter(func() { t.Error("cut off") })
	p.arrived()
	if b.enter(func() {}) != nil {
		t.Error("the limit was exceeded")
	}
	p.leave()
	slow, cut := b.enter(func() {}), 0
	slow.cut = func() { cut++ }
	for range 2 {
		if b.enter(func() {}) == nil {
			t.Error("refused although a slow body could be cut off")
		}
	}
	if cut != 1 || slow.arrived() {
		t.Errorf("a slow body was cut off %d times, want once", cut)
	}
	slow.leave()
	if n := b.inFlight(); n != 1 {
		t.Errorf("%d requests in flight, want 1", n)
	}
}

// The time that the Intake takes doesn't count towards ReadTimeout.
func TestSlowIntake(t *testing.T) {
	h := newHeld()
	s := start(t, h, Options{ReadTimeout: 100 * time.Millisecond})
	answers := background(t, s, requestOf(1, 1))
	<-h.came
	<-h.came
	time.Sleep(300 * time.Millisecond)
	close(h.letGo)
	must(t, <-answers)
	must(t, <-answers)
}

// The server notices that a client disconnects while its body is read or taken.
func TestSenderGoesAway(t *testing.T) {
	h := newHeld()
	events := make(chan Event, 4)
	s := start(t, h, Options{Observe: func(e Event) { events <- e }})
	taken := connect(t, s.HTTPAddr(), postJSON+"Content-Length: 2\r\n\r\n{}")
	<-h.came
	taken.Close()
	if e := <-events; e.Refused != refusal.Canceled {
		t.Errorf("HTTP: %s", e.Refused)
	}
	conn := dial(t, s.GRPCAddr().String())
	go func() {
		<-h.came
		conn.Close()
	}()
	exportRaw(t.Context(), conn, nil)
	if e := <-events; e.Refused != refusal.Canceled {
		t.Errorf("gRPC: %s", e.Refused)
	}
}

// Endless headers are refused, and the server continues.
func TestManyHeaders(t *testing.T) {
	taken := newDecoding(t)
	s := start(t, taken, Options{})
	for n, want := range map[int]int{10: 200, maxHeaders + 1: 431} {
		var text strings.Builder
		text.WriteString(postJSON + "Content-Length: 2\r\n")
		for i := range n {
			fmt.Fprintf(&text, "H%d: x\r\n", i)
		}
		if r := connect(t, s.HTTPAddr(), text.String()+"\r\n{}").answer(t); r.code != want {
			t.Errorf("HTTP with %d headers: %d, want %d", n, r.code, want)
		}
	}
	endless := connect(t, s.HTTPAddr(), "POST /v1/traces HTTP/1.1\r\nHost: x\r\n")
	endless.wantClosed(t, []byte("H: x\r\n"), 100_000)
	conn := dial(t, s.GRPCAddr().String())
	for n, want := range map[int]codes.Code{10: codes.OK, maxHeaders + 1: codes.InvalidArgument} {
		header := metadata.MD{}
		for i := range n {
			header.Set(fmt.Sprint("h", i), "x")
		}
		if _, err := exportRaw(metadata.NewOutgoingContext(t.Context(), header), conn, nil); status.Code(err) != want {
			t.Errorf("gRPC with %d headers: %v, want %s", n, err, want)
		}
	}
	// The gRPC client would respect the settings of the server.
	c := connect(t, s.GRPCAddr(), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+string(http2Frame(4, 0, 0, nil)))
	field := append([]byte{0x40, 1, 'h', 127}, bytes.Repeat([]byte("x"), 127)...) // a literal one
	fields := bytes.Repeat(field, 120)
	c.Write(http2Frame(1, 0, 1, fields))
	c.wantClosed(t, http2Frame(9, 0, 1, fields), 1000)
	if _, err := exportRaw(t.Context(), conn, requestOf(1, 1)); err != nil || taken.taken() != 1 {
		t.Errorf("next request: %v, %d spans taken", err, taken.taken())
	}
}

// http2Frame returns a frame of HTTP/2.
func http2Frame(kind, flags, stream byte, payload []byte) []byte {
	n := len(payload)
	return append([]byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags, 0, 0, 0, stream}, payload...)
}

// The server closes a connection that sends pings without end.
func TestManyPings(t *testing.T) {
	s := start(t, newDecoding(t), Options{})
	c := connect(t, s.GRPCAddr(), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+string(http2Frame(4, 0, 0, nil)))
	c.wantClosed(t, http2Frame(6, 0, 0, make([]byte, 8)), 1000)
}

// The memory of the server stays below 600 MiB while many concurrent clients send arbitrary data, and the server still
// works afterwards.
func TestBombs(t *testing.T) {
	if testing.Short() || raceDetector() {
		t.Skip("sends a gigabyte, and the race detector takes several times the memory")
	}
	const size = 200 << 20
	zeros := make([]byte, size)
	server := startChild(t)
	bombs := map[string][]byte{"gzip": compressed("gzip", zeros), "zstd": compressed("zstd", zeros)}
	var refused, tooLarge atomic.Int64
	var senders sync.WaitGroup
	for range 16 {
		for encoding, bomb := range bombs {
			senders.Go(func() {
				header := http.Header{"Content-Type": {"application/x-protobuf"}, "Content-Encoding": {encoding}}
				r := send(t, server.http, http.MethodPost, tracesPath, header, bytes.NewReader(bomb))
				count(t, r.code, http.StatusTooManyRequests, http.StatusRequestEntityTooLarge, &refused, &tooLarge)
			})
			senders.Go(func() {
				r := rawCall(t, server.grpc, encoding, bytes.NewReader(framed(1, bomb)))
				count(t, r.grpc, "14", "8", &refused, &tooLarge)
			})
		}
		conn := dial(t, server.grpc)
		senders.Go(func() { // requests of an acceptable size
			_, err := exportRaw(t.Context(), conn, zeros[:60<<20])
			if code := status.Code(err); code != codes.OK && code != codes.Unavailable {
				t.Error(err)
			}
		})
	}
	senders.Wait()
	_, err := exportRaw(t.Context(), dial(t, server.grpc), requestOf(10, 10), grpc.UseCompressor("gzip"))
	if err != nil {
		t.Error(err)
	}
	if tooLarge.Load() == 0 {
		t.Errorf("no bomb was refused as too large; %d were refused for other reasons", refused.Load())
	}
	_, memory := server.end()
	t.Logf("%d MiB at most; %d bombs too large, %d refused", memory>>20, tooLarge.Load(), refused.Load())
	if memory > 600<<20 {
		t.Errorf("the server used %d MiB, want at most 600", memory>>20)
	}
}

// raceDetector reports whether the race detector is enabled.
func raceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// count adds 1 to ones if got is one, or to others if it is other. It fails the test for any other value.
func count[T comparable](t *testing.T, got, one, other T, ones, others *atomic.Int64) {
	switch got {
	case one:
		ones.Add(1)
	case other:
		others.Add(1)
	default:
		t.Errorf("unexpected answer %v", got)
	}
}
