package receiver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// fuzzLimit is small, so that fuzzing exceeds it, but larger than one piece of memory.
const fuzzLimit = 1 << 18

// fuzzed is a server that is called without a network. It records the last body that its Intake received.
type fuzzed struct {
	*Server
	got   []byte // nil if nothing was received
	event Event
}

func newFuzzed(t testing.TB) *fuzzed {
	f := &fuzzed{}
	to := newDecoding(t)
	s, err := New(intake(func(ctx context.Context, body []byte, format Format) (Rejected, error) {
		f.got = append([]byte{}, body...)
		return to.Take(ctx, body, format)
	}), Options{MaxRequestBytes: fuzzLimit, MaxInFlightBytes: 4 << 20, Observe: func(e Event) { f.event = e }})
	must(t, err)
	f.Server = s
	return f
}

// check checks the invariants of any request: the Intake received the decompressed body or nothing, accepted requests
// were taken, and no memory is held afterwards.
func (f *fuzzed) check(t *testing.T, enc encoding, body []byte) {
	t.Helper()
	if f.event.Refused == refusal.None && f.got == nil {
		t.Error("the server accepted a request that the Intake did not take")
	}
	if f.got != nil {
		want, err := uncompressedAtOnce(enc, body)
		if err != nil || !bytes.Equal(f.got, want) || len(f.got) > fuzzLimit {
			t.Errorf("the Intake received %d bytes, want %d (%v)", len(f.got), len(want), err)
		}
	}
	if load := f.Load(); load != (Load{}) {
		t.Errorf("load after the request: %+v", load)
	}
}

func uncompressedAtOnce(enc encoding, body []byte) ([]byte, error) {
	switch enc {
	case gzipped:
		r, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(r)
	case zstandard:
		d, err := zstd.NewReader(nil)
		if err != nil {
			return nil, err
		}
		defer d.Close()
		return d.DecodeAll(body, nil)
	}
	return body, nil
}

func FuzzHTTP(f *testing.F) {
	for _, encoding := range []string{"identity", "gzip", "zstd", "br"} {
		for _, contentType := range []string{
			"application/x-protobuf", "application/json; charset=utf-8", "text/plain",
		} {
			for _, body := range [][]byte{
				requestOf(2, 2),
				[]byte(`{"resourceSpans":[]}`),
				make([]byte, fuzzLimit),
				make([]byte, fuzzLimit+1),
				nil,
			} {
				head := "POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: " + contentType +
					"\r\nContent-Encoding: " + encoding
				f.Add(head, compressed(encoding, body), true)
				data := compressed(encoding, body)
				f.Add(head, data[:len(data)/2], false)
			}
		}
	}
	f.Add("GET /x HTTP/1.0", []byte(nil), false)
	s := newFuzzed(f)
	f.Fuzz(func(t *testing.T, head string, body []byte, announced bool) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head + "\r\n\r\n")))
		if err != nil {
			t.Skip()
		}
		r.Body, r.ContentLength = io.NopCloser(iotest.HalfReader(bytes.NewReader(body))), -1
		if announced {
			r.ContentLength = int64(len(body))
		}
		s.got = nil
		w := httptest.NewRecorder()
		s.handle(w, r)
		answer := readAnswer(t, w.Result())
		if answer.code != refuse(s.event.Refused, "").Code() {
			t.Errorf("status %d for %s", answer.code, s.event.Refused)
		}
		if answer.code != http.StatusOK {
			if st := statusOf(t, answer); st.GetMessage() == "" {
				t.Error("a refusal has no reason")
			}
		}
		s.check(t, encodingNames[strings.ToLower(r.Header.Get("Content-Encoding"))], body)
	})
}

func FuzzGRPC(f *testing.F) {
	for _, encoding := range []string{"", "gzip", "zstd", "snappy"} {
		for _, message := range [][]byte{requestOf(2, 2), make([]byte, fuzzLimit), make([]byte, fuzzLimit+1), nil} {
			data := framed(1, compressed(encoding, message))
			f.Add(encoding, data)
			f.Add(encoding, framed(0, message))
			f.Add(encoding, data[:len(data)/2])
			f.Add(encoding, append(data, data...))
		}
	}
	s := newFuzzed(f)
	f.Fuzz(func(t *testing.T, encoding string, sent []byte) {
		s.got, s.event = nil, Event{}
		ctx, err := cancelable(t.Context(), nil)
		must(t, err)
		call := &call{ctx: grpc.NewContextWithServerTransportStream(ctx, &sentStream{
			left: bytes.NewReader(sent), encoding: encoding,
		})}
		err = s.export(nil, call)
		if (err == nil) != (s.event.Refused == refusal.None) || (err == nil) != call.answered {
			t.Errorf("%s: %v, answered: %t", s.event.Refused, err, call.answered)
		}
		if s.got == nil {
			s.check(t, identity, nil)
			return
		}
		enc := identity
		if sent[0] == 1 {
			enc = encodingNames[encoding]
		}
		s.check(t, enc, sent[5:5+binary.BigEndian.Uint32(sent[1:])])
	})
}

// call is a gRPC call without a connection.
type call struct {
	grpc.ServerStream // nil
	ctx               context.Context
	answered          bool
}

func (c *call) Context() context.Context { return c.ctx }

func (c *call) SendMsg(any) error {
	c.answered = true
	return nil
}

// sentStream holds the data that a call sends after its header.
type sentStream struct {
	grpc.ServerTransportStream // nil
	left                       *bytes.Reader
	encoding                   string
}

func (s *sentStream) ReadMessageHeader(prefix []byte) error {
	_, err := io.ReadFull(s.left, prefix)
	return err
}

func (s *sentStream) Read(n int) (mem.BufferSlice, error) {
	data := make([]byte, n)
	if _, err := io.ReadFull(s.left, data); err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(data)}, nil
}

func (s *sentStream) RecvCompress() string { return s.encoding }
