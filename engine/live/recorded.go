package live

import (
	"fmt"
	"runtime"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/trace"
)

// recordedTraces reads traces from the journal. One goroutine uses it at a time.
type recordedTraces struct {
	journal *journal.Journal
	record  []byte // scratch
	read    int    // bytes of the records read so far
}

// maxReusedRecord limits the bytes of the scratch record that is kept.
const maxReusedRecord = 4 << 20

// trace returns a trace as an OTLP request in protobuf, with all attributes of its spans; nil if the journal no longer
// has all of its records.
func (r *recordedTraces) trace(id trace.ID, records []uint64) (request []byte, err error) {
	for _, seq := range records {
		runtime.Gosched() // yield to the intake of requests
		one, err := r.journal.Get(seq, r.record)
		if err != nil {
			return nil, nil //nolint:nilerr // the record was trimmed
		}
		r.read += len(one.Data)
		if cap(one.Data) <= maxReusedRecord {
			r.record = one.Data
		}
		if one.Kind == journal.JSON {
			if one.Data, err = protobufOf(one.Data); err != nil {
				return nil, err
			}
		}
		if request, err = otlp.AppendTrace(request, one.Data, id); err != nil {
			return nil, err
		}
	}
	return request, nil
}

// protobufOf converts an export request that was decoded before, so its nesting is limited.
func protobufOf(json []byte) ([]byte, error) {
	traces, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(json)
	if err != nil {
		return nil, fmt.Errorf("convert a request from JSON: %w", err)
	}
	return (&ptrace.ProtoMarshaler{}).MarshalTraces(traces)
}

// RecordedTraces returns a function that reads traces from the journal, for one goroutine: a trace as an OTLP request in
// protobuf, with all attributes of its spans, from the records with these numbers. It returns nil if the journal no
// longer has all of them, or once it has read as many bytes as budget from the journal.
func (s *Service) RecordedTraces(budget int) func(id trace.ID, records []uint64) ([]byte, error) {
	r := &recordedTraces{journal: s.options.Journal}
	return func(id trace.ID, records []uint64) ([]byte, error) {
		if r.read >= budget {
			return nil, nil
		}
		return r.trace(id, records)
	}
}
