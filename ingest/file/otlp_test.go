package file_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/trace"
)

// All formats of the same requests give the same spans, with attributes that the analysis doesn't use.
func TestEverythingIsRead(t *testing.T) {
	all := forms(requests(4))
	all["lines-envelope"] = append([]byte(`{"result":`+string(marshalJSON(requests(4)[0]))+"}\n"), all["lines"]...)
	for name, data := range all {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, zstandard(data), 0o600); err != nil {
			t.Fatal(err)
		}
		want := 24
		if name == "lines-envelope" {
			want += 6
		}
		n := 0
		summary, err := file.ReadOTLP(t.Context(), []string{path}, file.Options{Strict: true},
			func(traces ptrace.Traces) error {
				for _, rs := range traces.ResourceSpans().All() {
					for _, s := range rs.ScopeSpans().At(0).Spans().All() {
						if v, ok := s.Attributes().Get("text"); ok && v.Str() == "brackets }]\\ and \"quotes\"" {
							n++
						}
					}
				}
				return nil
			})
		if err != nil || n != want || summary.Spans != int64(n) || summary.Files != 1 {
			t.Errorf("%s: %d spans, %+v, %v, want %d", name, n, summary, err, want)
		}
	}
}

// A broken record is reported and doesn't affect others, except in strict mode; an error of take ends reading.
func TestEverythingBroken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "broken.jsonl")
	good := string(marshalJSON(requests(1)[0]))
	text := good + `
{"resourceSpans":[7]}
{"x":1}
{"resourceMetrics":[]}
[{"id":"x","traceId":"1"}]
` + good + "\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	reported := 0
	count := func(ptrace.Traces) error { return nil }
	summary, err := file.ReadOTLP(t.Context(), []string{path},
		file.Options{Report: func(file.InputError) { reported++ }}, count)
	if err != nil || reported != 3 || summary.Rejected[trace.Malformed].Records != 2 ||
		summary.Rejected[trace.BadSpanID].Spans != 1 || summary.Spans != 12 {
		t.Errorf("%d reports, %+v, %v", reported, summary, err)
	}
	if _, err = file.ReadOTLP(t.Context(), []string{path}, file.Options{Strict: true}, count); err == nil {
		t.Error("strict: no error")
	}
	enough := errors.New("enough")
	if _, err = file.ReadOTLP(t.Context(), []string{path}, file.Options{},
		func(ptrace.Traces) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("error of take: %v", err)
	}
	if _, err = file.ReadOTLP(t.Context(), []string{path + "-missing"}, file.Options{}, count); err == nil {
		t.Error("missing file: no error")
	}
}
