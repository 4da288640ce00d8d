package live

import (
	"runtime"
	"sync"

	"github.com/klauspost/compress/s2"

	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/trace"
)

// wholeTraces holds in memory the traces of requests kept for comparisons, with all attributes. It drops the oldest
// traces to stay within its limit.
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

// add adds the trace with the given id, as a protobuf-encoded OTLP request, and drops the oldest traces if necessary.
// It ignores a trace that is already kept or takes more than 1/100 of the memory.
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

// get returns the trace with the given id as a protobuf-encoded OTLP request, or nil if the trace isn't kept.
func (w *wholeTraces) get(id trace.ID) ([]byte, error) {
	w.mu.Lock()
	packed := w.traces[id]
	w.mu.Unlock()
	if packed == nil {
		return nil, nil
	}
	return s2.Decode(nil, packed)
}

// WholeTrace returns the trace of a request returned by [engine.Kept.Of] as a protobuf-encoded OTLP request with all
// attributes, or nil if the trace isn't kept. It is safe for concurrent use.
func (s *Service) WholeTrace(id trace.ID) ([]byte, error) { return s.loop.exemplars.whole.get(id) }

// copyWhole copies the traces in t.newlyKept from the journal to k.whole. It drops the traces that are left when the
// deadline t.until passes. A record holds spans of many traces, so copyWhole caches the records that it reads.
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

// maxKnownRecords is the maximum total size, in bytes, of the records that copyWhole caches.
const maxKnownRecords = 16 << 20

// recordedTrace returns the trace with the given id as a protobuf-encoded OTLP request, with all attributes of its
// spans. It calls read for each element of records. It returns nil if records is empty, or if read returns nil because
// a record is no longer in the journal.
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

// readRecord returns the request in the record with number seq as protobuf, or nil if the record is no longer in the
// journal. It reads into buf if buf is large enough.
func readRecord(from Journal, seq uint64, buf []byte) ([]byte, error) {
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
