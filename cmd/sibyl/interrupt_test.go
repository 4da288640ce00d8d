package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"testing"

	"github.com/sibyl-trace/sibyl/engine/offline"
	"github.com/sibyl-trace/sibyl/internal/cli"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/report"
)

// cancelling is a writer that cancels a context at the first write.
type cancelling struct {
	cancel context.CancelFunc
	seen   *bytes.Buffer
}

func (w cancelling) Write(p []byte) (int, error) {
	w.cancel()
	return w.seen.Write(p)
}

func TestTraceStopsWhenInterruptedWhileWriting(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	args := []string{"trace", "-o", "json", "../../testdata/shop.otlp.jsonl.gz"}
	code := run(ctx, args, func(string) string { return "" }, nil, cancelling{cancel, new(bytes.Buffer)}, io.Discard)
	if code != cli.ExitError {
		t.Errorf("exit code %d after an interrupt, want %d", code, cli.ExitError)
	}
}

// An interrupt while a report is written leaves invalid JSON. Other formats are written completely or not at all.
func TestAnalyzeStopsWhenInterruptedWhileWriting(t *testing.T) {
	for _, format := range []string{"json", "html", "folded", "table"} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var out bytes.Buffer
		args := []string{"analyze", "-o", format, "../../testdata/shop.otlp.jsonl.gz"}
		code := run(ctx, args, func(string) string { return "" }, nil, cancelling{cancel, &out}, io.Discard)
		switch {
		case format == "json" && (code != cli.ExitError || json.Valid(out.Bytes())):
			t.Errorf("exit code %d after an interrupt, and %d bytes of JSON", code, out.Len())
		case format != "json" && code != cli.ExitOK:
			t.Errorf("%s: exit code %d after the whole report was written", format, code)
		}
	}
}

// An interrupt before the first write leaves the output empty.
func TestAnalyzeInterruptedBeforeWriting(t *testing.T) {
	r, err := offline.Analyze(t.Context(), []string{"../../testdata/shop.otlp.jsonl.gz"}, offline.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, format := range []string{"json", "html", "pprof", "folded", "table"} {
		f := &analyzeFlags{output: cli.NewChoice(format)}
		var out bytes.Buffer
		if err := f.write(ctx, &out, r, report.Input{}, terminal.Style{}); err == nil || out.Len() > 0 {
			t.Errorf("%s: error %v, %d bytes", format, err, out.Len())
		}
	}
}
