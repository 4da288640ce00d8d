package offline_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/engine/offline"
	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracegen"
	"github.com/sibyl-trace/sibyl/trace"
)

// The incident is a minute of the simulated application, starting at 14:13:20 UTC, with a slow function in its second
// half.
const (
	incidentFrom  = trace.Nanos(1_790_000_000_000_000_000)
	incidentOnset = incidentFrom + trace.Nanos(30*time.Second)
	incidentTo    = incidentOnset + trace.Nanos(30*time.Second)
)

// incident holds the traces as OTLP requests in JSON, one trace per request, and the faulty service.
type incident struct {
	before, after [][]byte
	service       string
}

var simulated = sync.OnceValue(func() *incident {
	app := sim.New(sim.Config{
		Seed:          23,
		Fault:         sim.Steady,
		Strength:      3,
		Tracepoints:   250,
		Services:      9,
		Rate:          10,
		Optional:      0.05,
		Caches:        -1,
		AllAttributes: true,
	})
	app.Inject(incidentOnset)
	x := &incident{service: app.Table().ServiceName(app.Target().Operations[0])}
	for t := range app.Requests(incidentFrom, incidentTo, nil) {
		doc, err := tracegen.JSON([]*trace.Trace{t}, app.Table())
		if err != nil {
			panic(err)
		}
		start := t.Spans[0].Start
		for i := range t.Spans {
			start = min(start, t.Spans[i].Start)
		}
		if start < incidentOnset {
			x.before = append(x.before, doc)
		} else {
			x.after = append(x.after, doc)
		}
	}
	return x
})

func (x *incident) all() [][]byte { return append(append([][]byte{}, x.before...), x.after...) }

// fileOf writes traces to a file and returns its path.
func fileOf(t testing.TB, traces [][]byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "traces.jsonl")
	if err := os.WriteFile(path, bytes.Join(traces, []byte("\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func timeRange(t testing.TB, text string) offline.TimeRange {
	t.Helper()
	r, err := offline.ParseTimeRange(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func compareWindow(t testing.TB, paths []string, window string, options offline.Options) *offline.Comparison {
	t.Helper()
	c, err := offline.CompareWindow(t.Context(), paths, timeRange(t, window), nil, options)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The faulty service is the first suspect, whether the window is a time, an offset, or a set of files.
func TestCompareFindsTheFault(t *testing.T) {
	x := simulated()
	all := fileOf(t, x.all())
	files, err := offline.CompareFiles(t.Context(), []string{fileOf(t, x.before)}, []string{fileOf(t, x.after)},
		offline.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*offline.Comparison{
		"files": files,
		"clock": compareWindow(t, []string{all}, "14:13:50..", offline.DefaultOptions()),
		"dates": compareWindow(t, []string{all}, "2026-09-21T14:13:50Z..2026-09-21T16:14:20+02:00",
			offline.DefaultOptions()),
		"offsets": compareWindow(t, []string{all}, "+29.9s..+2m", offline.DefaultOptions()),
	} {
		if got := c.Table.Text(c.Suspects[0].Service); got != x.service {
			t.Errorf("%s: the first suspect is %s, want %s", name, got, x.service)
		}
		if len(c.RequestTypes) == 0 || !c.RequestTypes[0].Slower() ||
			c.RequestTypes[0].Expected >= c.RequestTypes[0].Type.Mean {
			t.Errorf("%s: request types %+v, want the first to be slower", name, c.RequestTypes)
		}
		if c.Window.Traces+c.Baseline.Traces != len(x.before)+len(x.after) || c.Around {
			t.Errorf("%s: %d and %d traces, around %v, want all %d and none after",
				name, c.Window.Traces, c.Baseline.Traces, c.Around, len(x.before)+len(x.after))
		}
	}
}

// A comparison doesn't depend on the order of traces and files, the number of workers or the memory.
func TestCompareIgnoresOrder(t *testing.T) {
	x := simulated()
	want := compareWindow(t, []string{fileOf(t, x.all())}, "14:13:50..", offline.DefaultOptions())
	wantFiles, err := offline.CompareFiles(t.Context(), []string{fileOf(t, x.before)}, []string{fileOf(t, x.after)},
		offline.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	runs := 0
	rapid.Check(t, func(r *rapid.T) {
		if runs++; runs > 10 { // each takes a while
			return
		}
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 1))
		options := offline.DefaultOptions()
		options.Input = file.Options{
			Workers: rapid.IntRange(1, 4).Draw(r, "workers"),
			Memory:  rapid.Int64Range(0, 1).Draw(r, "memory"),
			TempDir: dir,
		}
		n := rapid.IntRange(1, 4).Draw(r, "files")
		scatter := func(name string, traces [][]byte) (paths []string) {
			traces = append([][]byte{}, traces...)
			random.Shuffle(len(traces), func(i, j int) { traces[i], traces[j] = traces[j], traces[i] })
			for i := range n {
				var part [][]byte
				for k := i; k < len(traces); k += n {
					part = append(part, traces[k])
				}
				path := filepath.Join(dir, fmt.Sprintf("%s%d.jsonl", name, i))
				if err := os.WriteFile(path, bytes.Join(part, []byte("\n")), 0o600); err != nil {
					r.Fatal(err)
				}
				paths = append(paths, path)
			}
			random.Shuffle(n, func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
			return paths
		}
		got := compareWindow(t, scatter("all", x.all()), "14:13:50..", options)
		if diff := diffComparisons(want, got); diff != "" {
			r.Fatalf("window: %s", diff)
		}
		got, err := offline.CompareFiles(t.Context(), scatter("before", x.before), scatter("after", x.after), options)
		if err != nil {
			r.Fatal(err)
		}
		if diff := diffComparisons(wantFiles, got); diff != "" {
			r.Fatalf("files: %s", diff)
		}
	})
}

func diffComparisons(want, got *offline.Comparison) string {
	return cmp.Diff(want, got, cmpopts.IgnoreFields(offline.Comparison{}, "Table"), cmpopts.EquateNaNs())
}

// If there are few traces before the window, the baseline includes traces after it.
func TestCompareBaseline(t *testing.T) {
	x := simulated()
	all := fileOf(t, x.all())
	total := len(x.before) + len(x.after)
	early := compareWindow(t, []string{all}, "+1s..+2s", offline.DefaultOptions())
	if !early.Around || early.Window.Traces+early.Baseline.Traces != total {
		t.Errorf("around %v, %d and %d traces, want all %d",
			early.Around, early.Window.Traces, early.Baseline.Traces, total)
	}
	first := compareWindow(t, []string{all}, "..+2s", offline.DefaultOptions())
	if first.Around || first.Baseline.Interval.From < incidentFrom+2e9 ||
		first.Window.Traces+first.Baseline.Traces != total {
		t.Errorf("around %v, baseline %+v, want all traces after the window", first.Around, first.Baseline)
	}
	baseline := timeRange(t, "+5s..+10s")
	named, err := offline.CompareWindow(t.Context(), []string{all}, timeRange(t, "+40s.."), &baseline,
		offline.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	if d := named.Baseline.Interval.To.Sub(named.Baseline.Interval.From); d != 5*time.Second ||
		named.Baseline.Traces < 20 || named.Baseline.Traces > 80 {
		t.Errorf("baseline of %v with %d traces, want 5 s with about 50", d, named.Baseline.Traces)
	}
}

func TestCompareErrors(t *testing.T) {
	x := simulated()
	all := fileOf(t, x.all())
	for _, c := range []struct{ window, baseline, want string }{
		{"15:00..15:10", "", "outside of the traces"},
		{"2020-01-01T00:00:00Z..2020-01-02T00:00:00Z", "", "outside of the traces"},
		{"14:13:50..14:13:50", "", "no trace begins in the window"},
		{"14:13:50..14:13:30", "", "write the earlier time first"},
		{"+0s..", "", "too few traces to compare with begin outside of the window: "},
		{"+30s..", "+10s..+10.1s", "choose a longer baseline"},
		{"+30s..", "..+31s", "overlaps with the window"},
		{"+30s..", "14:13:30..14:13:20", "baseline: 14:13:30..14:13:20: the range ends before it starts"},
	} {
		var baseline *offline.TimeRange
		if c.baseline != "" {
			b := timeRange(t, c.baseline)
			baseline = &b
		}
		_, err := offline.CompareWindow(t.Context(), []string{all}, timeRange(t, c.window), baseline,
			offline.DefaultOptions())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("window %s, baseline %q: got error %v, want one with %q", c.window, c.baseline, err, c.want)
		}
	}
	few := fileOf(t, x.before[:15])
	if _, err := offline.CompareFiles(t.Context(), []string{few}, []string{all}, offline.DefaultOptions()); err ==
		nil || !strings.Contains(err.Error(), "hold too few traces to compare with: 15, want") {
		t.Errorf("15 traces before: got error %v, want too few", err)
	}
	empty := fileOf(t, nil)
	if _, err := offline.CompareFiles(t.Context(), []string{all}, []string{empty}, offline.DefaultOptions()); err ==
		nil || !strings.Contains(err.Error(), "no trace that could be used") {
		t.Errorf("no trace after: got error %v, want none to use", err)
	}
	if c, err := offline.CompareFiles(t.Context(), []string{empty}, []string{empty}, offline.DefaultOptions()); err !=
		nil || c.Traces != 0 {
		t.Errorf("no trace: got %+v, %v, want an empty comparison", c, err)
	}
	if c := compareWindow(t, []string{empty}, "02:41..", offline.DefaultOptions()); c.Traces != 0 {
		t.Errorf("no trace: got %+v, want an empty comparison", c)
	}
	options := offline.DefaultOptions()
	options.Path.OverlapTolerance = 0.5
	if _, err := offline.CompareFiles(t.Context(), []string{all}, []string{all}, options); err == nil ||
		!strings.Contains(err.Error(), "overlap tolerance") {
		t.Errorf("overlap tolerance: got error %v, want one", err)
	}
}
