package otlp

import (
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

// DecodeTrace returns the trace with the given id from request, a protobuf-encoded export request. It omits all
// attributes except those of the tracepoint protocol, because critical paths don't depend on other attributes. The
// rules in failing determine which spans failed. If request does not contain the trace, the result has no spans.
func DecodeTrace(id trace.ID, request []byte, failing ingest.FailureRules) (*trace.Trace, error) {
	return DecodeNamedTrace(id, request, &trace.Table{}, failing)
}

// DecodeNamedTrace is like DecodeTrace, but adds the names in the trace to the table names.
func DecodeNamedTrace(
	id trace.ID, request []byte, names *trace.Table, failing ingest.FailureRules,
) (*trace.Trace, error) {
	keys, err := ingest.NewKeys()
	if err != nil {
		return nil, err
	}
	return decodeTrace(id, request, names, keys.FailingBy(failing))
}

// DecodeWholeTrace is like DecodeNamedTrace, but keeps all attributes.
func DecodeWholeTrace(
	id trace.ID, request []byte, names *trace.Table, failing ingest.FailureRules,
) (*trace.Trace, error) {
	return decodeTrace(id, request, names, ingest.AllKeys().FailingBy(failing))
}

func decodeTrace(id trace.ID, request []byte, names *trace.Table, keys *ingest.Keys) (*trace.Trace, error) {
	var batch ingest.Batch
	if err := NewDecoder(names, keys).Protobuf(request, &batch); err != nil {
		return nil, err
	}
	t := &trace.Trace{ID: id}
	index := make([]int32, len(batch.Spans)) // index in t of each span of the batch, or −1 for another trace
	for i := range batch.Spans {
		index[i] = -1
		if batch.Traces[i] == id {
			index[i] = int32(len(t.Spans))
			t.Spans = append(t.Spans, batch.Spans[i])
		}
	}
	for _, a := range batch.Attrs {
		if a.Span = index[a.Span]; a.Span >= 0 {
			t.Attrs = append(t.Attrs, a)
		}
	}
	for _, j := range batch.Joins {
		if j.Span = index[j.Span]; j.Span >= 0 {
			t.Joins = append(t.Joins, j)
		}
	}
	return t, nil
}
