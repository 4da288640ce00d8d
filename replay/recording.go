package replay

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// recording stores recorded spans in a temporary file, so that they can exceed the memory and arrive in any order. It
// uses about 150 bytes of memory per trace.
type recording struct {
	file   *os.File
	out    *bufio.Writer
	size   int64
	traces map[pcommon.TraceID]*recorded
	spans  int64
}

// recorded is a trace in a recording.
type recorded struct {
	id         pcommon.TraceID
	start, end uint64 // extent of the spans with valid times, in Unix nanoseconds; start > end without such spans
	pieces     []piece
}

// piece is the section of the file with one OTLP request, which contains spans of one trace.
type piece struct {
	at   int64
	size int32
}

// pieceSpans is the maximum number of spans in a piece. It is the usual size of an SDK's requests.
const pieceSpans = 512

// newRecording returns an empty recording in dir, or in the system's directory for temporary files if dir is empty.
func newRecording(dir string) (*recording, error) {
	f, err := os.CreateTemp(dir, "sibyl-replay-")
	if err != nil {
		return nil, fmt.Errorf("create a temporary file: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil { // deleted when the process ends
		return nil, errors.Join(fmt.Errorf("unlink a temporary file: %w", err), f.Close())
	}
	return &recording{file: f, out: bufio.NewWriterSize(f, 1<<20), traces: make(map[pcommon.TraceID]*recorded)}, nil
}

func (t *recording) close() error { return t.file.Close() }

// add stores the spans in traces, and leaves traces empty.
func (t *recording) add(traces ptrace.Traces) error {
	for _, part := range otlp.SplitByTrace(traces, pieceSpans) {
		r := t.traces[part.Trace]
		if r == nil {
			r = &recorded{id: part.Trace, start: math.MaxUint64}
			t.traces[part.Trace] = r
		}
		for s := range Spans(part.Traces) {
			t.spans++
			start, end := uint64(s.StartTimestamp()), uint64(s.EndTimestamp())
			if start > 0 && max(start, end) <= uint64(trace.MaxNanos) {
				r.start, r.end = min(r.start, start), max(r.end, start, end)
			}
		}
		data, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(part.Traces)
		if err != nil {
			return fmt.Errorf("encode spans of trace %s: %w", part.Trace, err)
		}
		if len(data) > math.MaxInt32 {
			return fmt.Errorf("spans of trace %s are too large", part.Trace)
		}
		if _, err := t.out.Write(data); err != nil {
			return fmt.Errorf("write a temporary file: %w", err)
		}
		r.pieces = append(r.pieces, piece{t.size, int32(len(data))})
		t.size += int64(len(data))
	}
	return nil
}

// finish returns the traces in the order of their ends, and the earliest start. It sets the start and the end of traces
// without valid times to the earliest start, so they come first.
func (t *recording) finish() (order []*recorded, first uint64, err error) {
	if err := t.out.Flush(); err != nil {
		return nil, 0, fmt.Errorf("write a temporary file: %w", err)
	}
	first = math.MaxUint64
	for _, r := range t.traces {
		order = append(order, r)
		first = min(first, r.start)
	}
	for _, r := range order {
		if r.start > r.end {
			r.start, r.end = first, first
		}
	}
	sorting.Slice(order, func(a, b *recorded) int {
		return cmp.Or(cmp.Compare(a.end, b.end), cmp.Compare(a.start, b.start), bytes.Compare(a.id[:], b.id[:]))
	})
	return order, first, nil
}

// read returns the spans in p.
func (t *recording) read(p piece) (ptrace.Traces, error) {
	data := make([]byte, p.size)
	if _, err := io.ReadFull(io.NewSectionReader(t.file, p.at, int64(p.size)), data); err != nil {
		return ptrace.Traces{}, fmt.Errorf("read a temporary file: %w", err)
	}
	traces, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(data)
	if err != nil {
		return traces, fmt.Errorf("decode recorded spans: %w", err)
	}
	return traces, nil
}
