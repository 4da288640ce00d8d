package live

import (
	"fmt"
	"runtime"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/trace"
)

// recordedTrace returns a trace as an OTLP request in protobuf, with all attributes of its spans, from the journal
// records that read returns; nil if the journal no longer has all of them.
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

// readRecord returns the request in a record, in protobuf; nil if the journal no longer has the record. It is stored in
// buf if there is room.
func readRecord(from *journal.Journal, seq uint64, buf []byte) ([]byte, error) {
	runtime.Gosched() // yield to the intake of requests
	r, err := from.Get(seq, buf)
	switch {
	case err != nil:
		return nil, nil //nolint:nilerr // the record was trimmed
	case r.Kind == journal.JSON:
		return protobufOf(r.Data)
	}
	return r.Data, nil
}

// protobufOf converts an export request that was decoded before, so its nesting is limited.
func protobufOf(json []byte) ([]byte, error) {
	traces, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(json)
	if err != nil {
		return nil, fmt.Errorf("convert a request from JSON: %w", err)
	}
	return (&ptrace.ProtoMarshaler{}).MarshalTraces(traces)
}

// RecordedTraces returns a function that reads traces from the journal: a trace as an OTLP request in protobuf, with all
// attributes of its spans, from the records with these numbers. It returns nil if the journal no longer has all of them.
// It keeps the records that it has read, since they have spans of many traces, and returns nil once they have more bytes
// than budget. The function is for one goroutine.
func (s *Service) RecordedTraces(budget int) func(id trace.ID, records []uint64) ([]byte, error) {
	known, size := make(map[uint64][]byte), 0
	return func(id trace.ID, records []uint64) ([]byte, error) {
		return recordedTrace(id, records, func(seq uint64) ([]byte, error) {
			data, read := known[seq]
			if read || size > budget {
				return data, nil
			}
			data, err := readRecord(s.options.Journal, seq, nil)
			known[seq], size = data, size+len(data)
			return data, err
		})
	}
}
