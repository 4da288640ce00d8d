package offline_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/engine/offline"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/trace"
)

const corpus = "../../testdata/shop.otlp.jsonl.gz"

// spansOf returns the spans of a file of OTLP/JSON lines, each as a separate request.
func spansOf(t *testing.T, path string) (spans [][]byte) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	type scope struct {
		Scope json.RawMessage   `json:"scope,omitempty"`
		Spans []json.RawMessage `json:"spans"`
	}
	type resource struct {
		Resource   json.RawMessage `json:"resource,omitempty"`
		ScopeSpans []scope         `json:"scopeSpans"`
	}
	type request struct {
		ResourceSpans []resource `json:"resourceSpans"`
	}
	for d := json.NewDecoder(z); ; {
		var r request
		if err := d.Decode(&r); errors.Is(err, io.EOF) {
			return spans
		} else if err != nil {
			t.Fatal(err)
		}
		for _, rs := range r.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					one, err := json.Marshal(
						request{[]resource{{rs.Resource, []scope{{ss.Scope, []json.RawMessage{s}}}}}})
					if err != nil {
						t.Fatal(err)
					}
					spans = append(spans, one)
				}
			}
		}
	}
}

// write distributes spans over files, one request per line, and returns the paths.
func write(t *testing.T, spans [][]byte, files int) (paths []string) {
	t.Helper()
	dir := t.TempDir()
	for i := range files {
		var b bytes.Buffer
		for k := i; k < len(spans); k += files {
			b.Write(spans[k])
			b.WriteByte('\n')
		}
		path := filepath.Join(dir, fmt.Sprintf("part%d.jsonl", i))
		if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

func analyze(t *testing.T, paths []string, options offline.Options) *offline.Report {
	t.Helper()
	report, err := offline.Analyze(t.Context(), paths, options)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// The report is the same for any order of spans, any split into files and batches, any number of workers and any
// memory, and if every span is sent twice.
func TestReportDependsOnSpansOnly(t *testing.T) {
	want := analyze(t, []string{corpus}, offline.DefaultOptions())
	if want.Complete < 100 || len(want.Groups) < 4 {
		t.Fatalf("%d traces, %d groups: too little to compare", want.Complete, len(want.Groups))
	}
	spans := spansOf(t, corpus)
	random := rand.New(rand.NewPCG(1, 2))
	random.Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
	half := len(spans) / 2
	for name, c := range map[string]struct {
		paths   []string
		workers int
		memory  int64
		more    int
	}{
		"shuffled, one worker":              {write(t, spans, 1), 1, 0, 0},
		"many files, four workers":          {write(t, spans, 7), 4, 0, 0},
		"hardly any memory":                 {write(t, spans, 2), 2, 1, 0},
		"hardly any memory, as it came":     {[]string{corpus}, 1, 1, 0},
		"every other span twice, two files": {append(write(t, spans, 2), write(t, spans[:half], 1)...), 2, 0, half},
	} {
		options := offline.DefaultOptions()
		options.Input = file.Options{Workers: c.workers, Memory: c.memory, TempDir: t.TempDir()}
		got := analyze(t, c.paths, options)
		if got.Spans != want.Spans+c.more {
			t.Errorf("%s: %d spans, want %d and %d copies", name, got.Spans, want.Spans, c.more)
		}
		got.Spans = want.Spans
		if diff := diffReports(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// diffReports compares reports, including names.
func diffReports(want, got *offline.Report) string {
	names := func(r *offline.Report) (all []string) {
		name := func(op trace.Op) { all = append(all, r.Table.ServiceName(op)+" "+r.Table.OpName(op)) }
		for _, g := range r.Groups {
			name(g.Entry)
			for _, e := range g.Edges {
				name(e.Before)
				name(e.After)
				for _, op := range r.Table.Path(e.Context) {
					name(op)
				}
			}
		}
		return all
	}
	return cmp.Diff(names(want), names(got)) + cmp.Diff(want, got, cmpopts.EquateNaNs(),
		cmpopts.EquateEmpty(), cmpopts.IgnoreFields(offline.Report{}, "Table", "Coverage"))
}

// The shares of each group add up to 1, every edge has a name, and problems are in order.
func TestReport(t *testing.T) {
	options := offline.DefaultOptions()
	options.Input.Keys = ingest.AllKeys()
	r := analyze(t, []string{corpus}, options)
	for _, g := range r.Groups {
		mean, variance := 0.0, 0.0
		for _, e := range g.Edges {
			mean += e.ShareMean
			variance += e.ShareVariance
			if path := r.Table.Path(e.Context); len(path) == 0 || path[0] != g.Entry ||
				strings.Contains(r.Table.OpName(path[len(path)-1]), trace.Overflow) {
				t.Errorf("the path of an edge of %v is %v", g.ID, path)
			}
		}
		if off(mean) || g.Count > 1 && off(variance) {
			t.Errorf("group %v of %d: shares add up to %v and %v", g.ID, g.Count, mean, variance)
		}
	}
	unrelated := 0
	for i, p := range r.Problems {
		if unrelated += len(p.Findings.Unrelated); p.Findings.Joint < 0 || p.Findings.Joint > 1 {
			t.Errorf("problem %d: joint correlation %v, want 0 to 1", i, p.Findings.Joint)
		}
		if p.Onset != detect.Chronic || i > 0 && p.Kind < r.Problems[i-1].Kind {
			t.Errorf("problem %d is %v %v, out of order", i, p.Onset, p.Kind)
		}
		slow, typical, fast := p.Exemplars.Slow, p.Exemplars.Typical, p.Exemplars.Fast
		if len(slow) != 3 || len(typical) != 3 || len(fast) != 3 ||
			slow[0].Duration < slow[2].Duration || slow[2].Duration < typical[2].Duration ||
			typical[0].Duration < fast[2].Duration || slow[0].Duration < p.Mean {
			t.Errorf("problem %d: exemplars %v", i, p.Exemplars)
		}
	}
	if unrelated == 0 {
		t.Error("no attribute is unrelated to any problem")
	}
}

// If groups are split, the requests of the faulty host are a separate group, and every request is in a group.
func TestAnalyzeSplits(t *testing.T) {
	options := offline.DefaultOptions()
	options.Split, options.Input.Keys = true, ingest.AllKeys()
	counts := make(map[analysis.Hash]uint64)
	byHost := 0
	for _, g := range analyze(t, []string{corpus}, options).Groups {
		if g.Level == group.LevelGroup {
			counts[g.RequestType] -= g.Count
		} else {
			counts[g.ID] += g.Count
		}
		for _, b := range g.Bins {
			if b.Variable == "host.name" && b.Value == "search-d" {
				byHost++
			}
		}
	}
	for id, n := range counts {
		if n != 0 {
			t.Errorf("%d requests of type %v are in no group", int64(n), id)
		}
	}
	if byHost == 0 {
		t.Error("no group is split by the faulty host")
	}
}

// Requests are simulated for problems of all kinds of groups.
func TestRecoveries(t *testing.T) {
	for name, set := range map[string]func(*offline.Options){
		"by skeleton":  func(*offline.Options) {},
		"by split":     func(o *offline.Options) { o.Split = true },
		"by attribute": func(o *offline.Options) { o.Rules.GroupBy = []string{"host.name"} },
	} {
		options := offline.DefaultOptions()
		options.Input.Keys = ingest.AllKeys()
		set(&options)
		simulated := 0
		for i, p := range analyze(t, []string{corpus}, options).Problems {
			for _, r := range p.Findings.Recoveries {
				if simulated++; uint64(r.Requests) < min(p.Requests, 64) || !(r.MeanPart >= 0 && r.MeanPart <= 1) {
					t.Errorf("%s: problem %d: of %d requests %d were simulated, gaining %v of the mean",
						name, i, p.Requests, r.Requests, r.MeanPart)
				}
			}
		}
		if simulated == 0 {
			t.Errorf("%s: no request was simulated", name)
		}
	}
}

func off(sum float64) bool { return !(sum > 1-1e-9 && sum < 1+1e-9) }

func TestObjectives(t *testing.T) {
	options := offline.DefaultOptions()
	all := analyze(t, []string{corpus}, options)
	entry := all.Groups[0].Entry
	name := all.Table.ServiceName(entry) + " " + all.Table.OpName(entry)
	options.Objectives = map[string]time.Duration{name: 1}
	found := false
	for _, p := range analyze(t, []string{corpus}, options).Problems {
		found = found || p.Kind == detect.KindSlow && p.Entry == entry
	}
	if !found {
		t.Errorf("no problem for an objective of 1 ns for %q", name)
	}
	options.Objectives = map[string]time.Duration{"nobody knows": 1}
	if _, err := offline.Analyze(t.Context(), []string{corpus}, options); err == nil ||
		!strings.Contains(err.Error(), "nobody knows") {
		t.Errorf("objective of an unknown operation: error %v, want one with its name", err)
	}
}

// One trace from a clock that is 200 days wrong is left out and counted. It doesn't affect anything else, such as
// rates.
func TestMisdated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wrong.jsonl")
	line := `{"resourceSpans":[{` +
		`"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"wrong"}}]},` +
		`"scopeSpans":[{"spans":[{"traceId":"0102030405060708090a0b0c0d0e0f10","spanId":"0102030405060708",` +
		`"name":"GET","kind":2,"startTimeUnixNano":%d,"endTimeUnixNano":%d}]}]}]}`
	at := time.Now().Add(200 * 24 * time.Hour).UnixNano() // far from the corpus, no matter when that was recorded
	if err := os.WriteFile(path, fmt.Appendf(nil, line, at, at+1000), 0o600); err != nil {
		t.Fatal(err)
	}
	want, got := analyze(t, []string{corpus}, offline.DefaultOptions()),
		analyze(t, []string{corpus, path}, offline.DefaultOptions())
	if got.Rejected[trace.Misdated] != 1 || want.Rejected[trace.Misdated] != 0 || got.Traces != want.Traces+1 {
		t.Errorf("rejected %v of %d traces, want one more than %v of %d",
			got.Rejected, got.Traces, want.Rejected, want.Traces)
	}
	delete(got.Rejected, trace.Misdated)
	got.Traces, got.Spans = want.Traces, want.Spans
	if diff := diffReports(want, got); diff != "" {
		t.Errorf("the trace changes the report (-without +with):\n%s", diff)
	}
}

func TestAnalyzeErrors(t *testing.T) {
	if _, err := offline.Analyze(t.Context(), []string{"missing"}, offline.DefaultOptions()); !errors.Is(err,
		os.ErrNotExist) {
		t.Errorf("missing file: error %v, want %v", err, os.ErrNotExist)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if _, err := offline.Analyze(ctx, []string{corpus}, offline.DefaultOptions()); !errors.Is(err, enough) {
		t.Errorf("canceled context: error %v, want %v", err, enough)
	}
}

// Traces that start at time 0 are complete.
func TestTimesFromZero(t *testing.T) {
	var lines strings.Builder
	for i := range 200 {
		start := uint64(i) * uint64(time.Minute)
		fmt.Fprintf(&lines,
			`{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"z"}}]},`+
				`"scopeSpans":[{"spans":[{"traceId":"%032x","spanId":"%016x","name":"e%d","kind":2,`+
				`"startTimeUnixNano":"%d","endTimeUnixNano":"%d"}]}]}]}`+"\n",
			i+1, i+1, i%2, start, start+1e6)
	}
	path := filepath.Join(t.TempDir(), "zero.jsonl")
	if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := analyze(t, []string{path}, offline.DefaultOptions()); r.Complete != 200 {
		t.Errorf("%d complete traces, want 200", r.Complete)
	}
}
