package live

import (
	"runtime"
	"sync"

	"github.com/klauspost/compress/s2"

	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/trace"
)

// wholeTraces keeps the traces of requests kept for comparisons in memory, with all attributes. If there are too many,
// it drops the oldest.
type wholeTraces struct {
	mu     sync.Mutex          // guards all fields
	traces map[trace.ID][]byte // compressed OTLP requests in protobuf
	order  []trace.ID          // oldest first
	size   int                 // bytes in traces
	most   int
}

func newWholeTraces(most int) *wholeTraces {
	return &wholeTraces{traces: make(map[trace.ID][]byte), most: most}
}

// add adds the trace id, given as an OTLP request in protobuf, and drops the oldest ones if necessary. It ignores a
// trace that is kept already or takes more than 1/100 of the memory.
func (w *wholeTraces) add(id trace.ID, request []byte) {
	packed := s2.Encode(nil, request)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.traces[id] != nil || len(packed) > w.most/100 {
		return
	}
	w.traces[id], w.order, w.size = packed, append(w.order, id), w.size+len(packed)
	for w.size > w.most {
		oldest := w.order[0]
		w.size -= len(w.traces[oldest])
		delete(w.traces, oldest)
		w.order = w.order[1:]
	}
}

// get returns the trace id as an OTLP request in protobuf, or nil if it isn't kept.
func (w *wholeTraces) get(id trace.ID) ([]byte, error) {
	w.mu.Lock()
	packed := w.traces[id]
	w.mu.Unlock()
	if packed == nil {
		return nil, nil
	}
	return s2.Decode(nil, packed)
}

// WholeTrace returns the trace of a request returned by [engine.Kept.Of], as an OTLP request in protobuf with all
// attributes, or nil if the trace isn't kept.
func (s *Service) WholeTrace(id trace.ID) ([]byte, error) { return s.loop.exemplars.whole.get(id) }

// copyWhole copies the traces of t.newlyKept from the journal to k.whole, and leaves out the rest after the deadline of
// t. Records contain spans of many traces, so it caches the records it has read.
func (k *exemplarStore) copyWhole(t task) error {
	known, size := make(map[uint64][]byte), 0
	read := func(seq uint64) ([]byte, error) {
		data, found := known[seq]
		if found {
			return data, nil
		}
		data, err := readRecord(k.options.Journal, seq, nil)
		if size += len(data); size < maxKnownRecords {
			known[seq] = data
		}
		return data, err
	}
	for _, r := range t.newlyKept {
		if k.options.Clock().After(t.until) {
			return nil
		}
		request, err := recordedTrace(r.Trace, r.Records, read)
		if err != nil {
			return err
		}
		if len(request) > 0 {
			k.whole.add(r.Trace, request)
		}
	}
	return nil
}

// maxKnownRecords limits the size in bytes of the records that copyWhole caches.
const maxKnownRecords = 16 << 20

// recordedTrace returns the trace id as an OTLP request in protobuf, with all attributes of its spans. It reads records
// with read. It returns nil if records is empty or the journal no longer has all of them.
func recordedTrace(id trace.ID, records []uint64, read func(seq uint64) ([]byte, error)) (request []byte, err error) {
	for _, seq := range records {
		data, err := read(seq)
		if data == nil || err != nil {
			return nil, err
		}
		if request, err = otlp.AppendTrace(request, data, id); err != nil {
			return nil, err
		}
	}
	return request, nil
}

// readRecord returns the request in record seq, in protobuf, or nil if the journal no longer has the record. It reads
// into buf if that is large enough.
func readRecord(from *journal.Journal, seq uint64, buf []byte) ([]byte, error) {
	runtime.Gosched() // yield to the intake of requests
	r, err := from.Get(seq, buf)
	switch {
	case err != nil:
		return nil, nil //nolint:nilerr // the record was trimmed
	case r.Kind == journal.JSON:
		return otlp.FromJSON(r.Data)
	}
	return r.Data, nil
}
