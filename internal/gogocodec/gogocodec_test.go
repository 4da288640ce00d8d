package gogocodec_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/jaegertracing/jaeger-idl/model/v1"
	"github.com/jaegertracing/jaeger-idl/proto-gen/api_v2"

	"github.com/sibyl-trace/sibyl/internal/gogocodec"
)

// A message with custom types survives a round trip. A value that isn't a message is an error.
func TestCodec(t *testing.T) {
	codec := gogocodec.New()
	sent := &api_v2.SpansResponseChunk{Spans: []model.Span{{
		TraceID:       model.NewTraceID(1, 2),
		SpanID:        model.NewSpanID(3),
		OperationName: "work",
		StartTime:     time.Unix(7, 0).UTC(),
		Duration:      time.Second,
	}}}
	data, err := codec.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	got := &api_v2.SpansResponseChunk{}
	if err := codec.Unmarshal(data, got); err != nil {
		t.Fatal(err)
	}
	if len(got.Spans) != 1 || !reflect.DeepEqual(got.Spans[0], sent.Spans[0]) {
		t.Errorf("%v, want %v", got.Spans, sent.Spans)
	}
	if _, err := codec.Marshal("text"); err == nil {
		t.Error("text was encoded")
	}
	if err := codec.Unmarshal(data, new(string)); err == nil {
		t.Error("text was decoded")
	}
}
