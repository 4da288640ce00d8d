package file

import (
	"bytes"
	"context"
	"encoding/json"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/ingest/jaeger/translate"
	"github.com/sibyl-trace/sibyl/trace"
)

// Everything reads all of paths as [Read] does, but keeps all that the spans hold: it calls take with what each record holds as OTLP, in the
// order of the input. Of the options, Keys, Workers, Memory and TempDir mean nothing here. It returns the errors of Read, and those of take.
//
// The collector's own decoder does it, which takes or refuses a record as a whole, and recurses as deep as values are nested: it is not for
// hostile input.
func Everything(ctx context.Context, paths []string, options Options, take func(ptrace.Traces) error) (Summary, error) {
	sources, err := list(paths)
	if err != nil {
		return Summary{}, err
	}
	r := &reading{options: options.withDefaults(), input: &Input{Summary: Summary{Broken: make(map[trace.Reason]Count)}}}
	for _, s := range sources {
		r.total.Add(s.size)
	}
	summary := &r.input.Summary
	for _, s := range sources {
		broken := func(reason trace.Reason, err error, line, offset int64) error {
			return r.count(Broken{Path: s.path, Line: line, Offset: offset, Reason: reason, Err: err})
		}
		record := func(data []byte, f format, line, offset int64) error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if r.options.Progress != nil {
				r.options.Progress(Progress{s.path, r.read.Load(), r.total.Load()})
			}
			if f == noTraces {
				return nil
			}
			traces, err := everything(data, f)
			if err != nil {
				return broken(trace.Malformed, err, line, offset)
			}
			summary.Records++
			summary.Spans += int64(traces.SpanCount())
			return take(traces)
		}
		if err := r.splitFile(ctx, s, record, broken); err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return *summary, err
		}
	}
	return *summary, nil
}

// everything returns all that a record holds.
func everything(data []byte, f format) (ptrace.Traces, error) {
	switch f {
	case otlpProtobuf:
		return (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(data)
	case jaegerJSON:
		return translate.JSON(data)
	case otlpResource:
		data = append(append([]byte(`{"resourceSpans":[`), data...), "]}"...)
	case otlpJSON:
		data = unwrapped(data)
	case unknown, noTraces:
		return ptrace.Traces{}, errNoTraces
	}
	return (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(data)
}

// unwrapped takes the envelope of Jaeger's API off a request, if it has one.
func unwrapped(data []byte) []byte {
	if bytes.HasPrefix(data, []byte(`{"resourceSpans"`)) {
		return data
	}
	var envelope struct{ Result json.RawMessage }
	if json.Unmarshal(data, &envelope) != nil || !bytes.HasPrefix(envelope.Result, []byte("{")) {
		return data
	}
	return envelope.Result
}
