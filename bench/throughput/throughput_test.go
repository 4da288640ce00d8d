package throughput

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/trace"
)

// TestBenchmarks runs each benchmark with little input and checks that the result has its figures.
func TestBenchmarks(t *testing.T) {
	o := Options{Bytes: 1 << 18, Time: time.Nanosecond, Seed: 1, Small: true}
	for name, c := range map[string]struct {
		run  func(context.Context, Options) (*Result, error)
		keys string
	}{
		"path":   {Path, "spans_per_second ns_per_trace allocations_per_trace"},
		"decode": {Decode, "spans_per_second bytes_per_second allocations_per_span ratio ratio_with_keys"},
		"group": {
			Group, "spans_per_second ns_per_observation allocations_per_observation bytes bytes_per_group ns",
		},
		"open":       {Open, "wire_bytes_per_span"},
		"search":     {Search, "ns_per_decision ns_per_next_decision allocations_per_decision picks ns_per_build"},
		"size-model": {SizeModel, "accuracy precision_delayed recall_delayed ns_per_fit"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := c.run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if r.Benchmark != name || r.Input == "" {
				t.Errorf("benchmark %q, input %q; want name %q and an input", r.Benchmark, r.Input, name)
			}
			checkOutput(t, r, strings.Fields(c.keys))
		})
	}
}

// checkOutput checks that r's JSON has each figure, that no figure is negative, and that its table has each row.
func checkOutput(t *testing.T, r *Result, keys []string) {
	t.Helper()
	var out bytes.Buffer
	if err := r.JSON(&out); err != nil {
		t.Fatal(err)
	}
	var doc struct{ Results []map[string]any }
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		found := false
		for _, row := range doc.Results {
			x, ok := row[key].(float64)
			found = found || ok && x >= 0
		}
		if !found {
			t.Errorf("no %s in %s", key, out.String())
		}
	}
	out.Reset()
	if err := r.Table(&out); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != len(r.Rows)+1 {
		t.Errorf("table has %d lines, want a title and %d rows", n, len(r.Rows))
	}
}

// TestBenchmarksStop: a cancelled benchmark returns the cause.
func TestBenchmarksStop(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Path(ctx, Options{Bytes: 1 << 16, Small: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
}

// TestTraces: generated traces are distinct, well-formed, and at least as many as requested.
func TestTraces(t *testing.T) {
	var table trace.Table
	traces := requestTraces(1, &table, 10, spansPerTrace, 1<<20)
	if bytes := len(traces) * spansPerTrace * spanBytes; bytes < 1<<20 {
		t.Errorf("%d bytes of traces, want at least %d", bytes, 1<<20)
	}
	seen := make(map[trace.ID]bool)
	for _, tr := range append(traces, wide(100), deep(100)) {
		p := critpath.NewExtractor(critpath.DefaultOptions()).Extract(tr)
		if odd := p.Flags &^ (critpath.FlagSkewCorrected | critpath.FlagNoRoot); odd != 0 || len(p.Roots) != 1 {
			t.Fatalf("flags %v, %d roots; want a well-formed trace with one root", p.Flags.Names(), len(p.Roots))
		}
		if seen[tr.ID] && !tr.ID.IsZero() {
			t.Fatalf("trace ID %v appears twice", tr.ID)
		}
		seen[tr.ID] = true
	}
}
