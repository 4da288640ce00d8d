package translate

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jaegertracing/jaeger-idl/model/v1"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/trace"
)

// JSON translates data to OTLP. data must be in one of the forms that package jaeger reads: {"data": [trace, …]}, a
// trace, or a list of traces.
func JSON(data []byte) (ptrace.Traces, error) {
	var traces []traceJSON
	if data = bytes.TrimSpace(data); bytes.HasPrefix(data, []byte("[")) {
		if err := json.Unmarshal(data, &traces); err != nil {
			return ptrace.Traces{}, fmt.Errorf("decode Jaeger JSON: %w", err)
		}
	} else {
		var one traceJSON
		if err := json.Unmarshal(data, &one); err != nil {
			return ptrace.Traces{}, fmt.Errorf("decode Jaeger JSON: %w", err)
		}
		traces = append(one.Data, one)
	}
	out := ptrace.NewTraces()
	for i := range traces {
		if traces[i].SpanID != "" {
			return ptrace.Traces{}, errBare
		}
		Spans(traces[i].spans()).ResourceSpans().MoveAndAppendTo(out.ResourceSpans())
	}
	return out, nil
}

var errBare = errors.New("a span outside a trace, as in Jaeger's storage: use the query API, which returns traces")

// traceJSON is a trace, or a response that contains traces.
type traceJSON struct {
	Data      []traceJSON            `json:"data"`
	Spans     []spanJSON             `json:"spans"`
	Processes map[string]processJSON `json:"processes"`
	SpanID    string                 `json:"spanID"` // set only for a span outside a trace
}

type spanJSON struct {
	TraceID       string          `json:"traceID"`
	SpanID        string          `json:"spanID"`
	ParentSpanID  string          `json:"parentSpanID"`
	OperationName string          `json:"operationName"`
	References    []referenceJSON `json:"references"`
	StartTime     json.RawMessage `json:"startTime"` // µs
	Duration      json.RawMessage `json:"duration"`  // µs
	Tags          []tagJSON       `json:"tags"`
	Logs          []logJSON       `json:"logs"`
	ProcessID     string          `json:"processID"`
	Process       json.RawMessage `json:"process"` // replaces processID in some exports
}

type referenceJSON struct {
	RefType string `json:"refType"`
	TraceID string `json:"traceID"`
	SpanID  string `json:"spanID"`
}

type processJSON struct {
	ServiceName string    `json:"serviceName"`
	Tags        []tagJSON `json:"tags"`
}

type logJSON struct {
	Timestamp json.RawMessage `json:"timestamp"` // µs
	Fields    []tagJSON       `json:"fields"`
}

type tagJSON struct {
	Key   string          `json:"key"`
	Type  string          `json:"type"`
	Value json.RawMessage `json:"value"`
}

func (t *traceJSON) spans() []model.Span {
	processes := make(map[string]*model.Process, len(t.Processes))
	for id, p := range t.Processes {
		processes[id] = p.model()
	}
	spans := make([]model.Span, len(t.Spans))
	for i := range t.Spans {
		s := &t.Spans[i]
		spans[i] = s.model()
		spans[i].Process = processes[s.ProcessID]
		var inline processJSON
		if bytes.HasPrefix(s.Process, []byte("{")) && json.Unmarshal(s.Process, &inline) == nil {
			spans[i].Process = inline.model()
		}
	}
	return spans
}

func (p *processJSON) model() *model.Process {
	return &model.Process{ServiceName: p.ServiceName, Tags: tags(p.Tags)}
}

func (s *spanJSON) model() model.Span {
	id, ok := parseTraceID(s.TraceID)
	spanID, _ := parseSpanID(s.SpanID)
	out := model.Span{
		TraceID: id, SpanID: spanID, OperationName: s.OperationName, StartTime: moment(s.StartTime), Tags: tags(s.Tags),
	}
	if us, ok := micros(s.Duration); ok {
		out.Duration = time.Duration(us) * time.Microsecond
	} else {
		out.StartTime = impossible
	}
	for _, r := range s.References {
		refID, refOK := parseTraceID(r.TraceID)
		if span, spanOK := parseSpanID(r.SpanID); ok && refOK && spanOK {
			kind := model.FollowsFrom
			if r.RefType == "CHILD_OF" {
				kind = model.ChildOf
			}
			out.References = append(out.References, model.SpanRef{TraceID: refID, SpanID: span, RefType: kind})
		}
	}
	if !refers(out.References, id) && s.ParentSpanID != "" {
		switch parent, ok := parseSpanID(s.ParentSpanID); {
		case !ok:
			out.SpanID = 0 // invalid: its parent is unknown
		case parent != 0:
			out.References = append(out.References, model.SpanRef{TraceID: id, SpanID: parent, RefType: model.ChildOf})
		}
	}
	for _, l := range s.Logs {
		out.Logs = append(out.Logs, model.Log{Timestamp: moment(l.Timestamp), Fields: tags(l.Fields)})
	}
	return out
}

// refers reports whether any of refs refers to a span of the trace with the given id.
func refers(refs []model.SpanRef, id model.TraceID) bool {
	for _, r := range refs {
		if r.TraceID == id {
			return true
		}
	}
	return false
}

func tags(all []tagJSON) []model.KeyValue {
	out := make([]model.KeyValue, 0, len(all))
	for _, t := range all {
		if v, ok := t.model(); ok {
			out = append(out, v)
		}
	}
	return out
}

// model returns t with a value of its declared type, or of its JSON type if no type is declared. It returns false if
// the value isn't a scalar or doesn't match the type.
func (t *tagJSON) model() (model.KeyValue, bool) {
	var value any
	d := json.NewDecoder(bytes.NewReader(t.Value))
	d.UseNumber()
	if d.Decode(&value) != nil {
		return model.KeyValue{}, false
	}
	switch v := value.(type) {
	case bool:
		return model.Bool(t.Key, v), true
	case json.Number:
		return number(t.Key, v.String(), t.Type == "float64")
	case string:
		switch t.Type {
		case "int64", "float64": // some exports write large numbers as strings
			return number(t.Key, v, t.Type == "float64")
		case "binary":
			raw, err := base64.StdEncoding.DecodeString(v)
			return model.Binary(t.Key, raw), err == nil
		}
		return model.String(t.Key, v), true
	}
	return model.KeyValue{}, false
}

func number(key, text string, float bool) (model.KeyValue, bool) {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil && !float {
		return model.Int64(key, i), true
	}
	f, err := strconv.ParseFloat(text, 64)
	return model.Float64(key, f), err == nil
}

// impossible stands for an invalid time. Span decoders reject it.
var impossible = time.Unix(1<<60, 0)

// micros parses raw, a number of microseconds or a string that contains one. It returns 0 and true if raw is empty, and
// false if the number is invalid or out of range.
func micros(raw json.RawMessage) (int64, bool) {
	if len(raw) == 0 {
		return 0, true
	}
	text := strings.Trim(string(raw), `"`)
	v, err := strconv.ParseFloat(text, 64)
	return int64(v), err == nil && math.Abs(v) <= float64(trace.MaxNanos/1000)
}

func moment(raw json.RawMessage) time.Time {
	if us, ok := micros(raw); ok && us >= 0 {
		return time.UnixMicro(us)
	}
	return impossible
}

// parseTraceID parses up to 32 hexadecimal digits. It returns the zero ID and false for any other text.
func parseTraceID(text string) (id model.TraceID, ok bool) {
	if len(text) > 32 {
		return id, false
	}
	high := ""
	if cut := len(text) - 16; cut > 0 {
		high, text = text[:cut], text[cut:]
	}
	h, okHigh := parseHex(high)
	l, okLow := parseHex(text)
	if !okHigh || !okLow {
		return id, false
	}
	return model.TraceID{High: h, Low: l}, true
}

// parseSpanID parses up to 32 hexadecimal digits with at most 64 significant bits. It returns 0 and false for any other
// text.
func parseSpanID(text string) (model.SpanID, bool) {
	id, ok := parseTraceID(text)
	if id.High != 0 || !ok {
		return 0, false
	}
	return model.SpanID(id.Low), true
}

// parseHex parses up to 16 hexadecimal digits. Empty text counts as 0. parseHex returns false for any other text.
func parseHex(text string) (uint64, bool) {
	if text == "" {
		return 0, true
	}
	v, err := strconv.ParseUint(text, 16, 64)
	return v, err == nil
}
