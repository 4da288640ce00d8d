package wire

import (
	"encoding/json"
	"strconv"

	"github.com/sibyl-trace/sibyl/trace"
)

// Jaeger returns traces as Jaeger's query API and user interface export them. Times are cut to microseconds, which is all that
// the format holds.
func Jaeger(traces []*trace.Trace, table *trace.Table) ([]byte, error) {
	w := jaegerWriter{table: table}
	doc := struct {
		Data []jaegerTrace `json:"data"`
	}{}
	for _, t := range traces {
		doc.Data = append(doc.Data, w.trace(t))
	}
	return json.Marshal(doc)
}

type jaegerTrace struct {
	TraceID   string                   `json:"traceID"`
	Spans     []jaegerSpan             `json:"spans"`
	Processes map[string]jaegerProcess `json:"processes"`
}

type jaegerSpan struct {
	TraceID    string            `json:"traceID"`
	SpanID     string            `json:"spanID"`
	Operation  string            `json:"operationName"`
	References []jaegerReference `json:"references"`
	Start      int64             `json:"startTime"` // µs
	Duration   int64             `json:"duration"`  // µs
	Tags       []jaegerTag       `json:"tags"`
	ProcessID  string            `json:"processID"`
}

type jaegerReference struct {
	RefType string `json:"refType"`
	TraceID string `json:"traceID"`
	SpanID  string `json:"spanID"`
}

type jaegerTag struct {
	Key   string `json:"key"`
	Type  string `json:"type"`
	Value any    `json:"value"`
}

type jaegerProcess struct {
	Service string      `json:"serviceName"`
	Tags    []jaegerTag `json:"tags"`
}

type jaegerWriter struct{ table *trace.Table }

func (w jaegerWriter) trace(t *trace.Trace) jaegerTrace {
	out := jaegerTrace{TraceID: t.ID.String(), Processes: make(map[string]jaegerProcess)}
	known := make(map[resource]string)
	for i := range t.Spans {
		s := &t.Spans[i]
		r := resource{s.Service, s.Host}
		if known[r] == "" {
			known[r] = "p" + strconv.Itoa(len(known)+1)
			out.Processes[known[r]] = w.process(r)
		}
		span := w.span(out.TraceID, s)
		span.ProcessID = known[r]
		out.Spans = append(out.Spans, span)
	}
	for _, a := range t.Attrs {
		tag := jaegerTag{w.table.Text(a.Key), "string", w.table.Text(a.Text)}
		if a.Numeric {
			tag.Type, tag.Value = "float64", a.Number
		}
		out.Spans[a.Span].Tags = append(out.Spans[a.Span].Tags, tag)
	}
	return out
}

func (w jaegerWriter) process(r resource) jaegerProcess {
	p := jaegerProcess{Service: w.table.Text(r.service), Tags: []jaegerTag{}}
	if r.host != 0 {
		p.Tags = append(p.Tags, jaegerTag{"host.name", "string", w.table.Text(r.host)})
	}
	return p
}

func (w jaegerWriter) span(id string, s *trace.Span) jaegerSpan {
	const micro = 1000
	start := int64(s.Start) / micro
	span := jaegerSpan{
		TraceID: id, SpanID: s.ID.String(), Operation: w.table.OpName(s.Op), References: []jaegerReference{},
		Start: start, Duration: int64(s.End)/micro - start, Tags: []jaegerTag{},
	}
	if s.Parent != 0 {
		span.References = append(span.References, jaegerReference{"CHILD_OF", id, s.Parent.String()})
	}
	if s.Kind != trace.Unspecified {
		span.Tags = append(span.Tags, jaegerTag{"span.kind", "string", s.Kind.String()})
	}
	if s.Flags&trace.Error != 0 {
		span.Tags = append(span.Tags, jaegerTag{"error", "bool", true})
	}
	if s.Tracepoint != 0 {
		span.Tags = append(span.Tags, jaegerTag{trace.KeyTracepoint, "string", w.table.Text(s.Tracepoint)})
	}
	return span
}
