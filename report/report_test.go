package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/pprof/profile"

	"github.com/sibyl-trace/sibyl/engine/offline"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/trace"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// golden compares got with the golden file name, or rewrites the file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// written returns the output of write for r.
func written(t *testing.T, r *offline.Report, write func(io.Writer, *offline.Report) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func asTable(style terminal.Style, top int) func(io.Writer, *offline.Report) error {
	return func(w io.Writer, r *offline.Report) error {
		return Table(w, r, Input{Files: []string{"-"}}, style, top)
	}
}

func asPage(w io.Writer, r *offline.Report) error {
	return HTML(w, r, Input{Files: []string{"a.jsonl", "b c.json"}})
}

func asJSON(w io.Writer, r *offline.Report) error { return JSON(w, r, Input{Files: []string{"-"}}) }

func TestGolden(t *testing.T) {
	for name, write := range map[string]func(io.Writer, *offline.Report) error{
		"report.json":   asJSON,
		"report.folded": Folded,
		"report.html":   asPage,
		"report.txt":    asTable(terminal.Style{Width: 120}, 10),
		"narrow.txt":    asTable(terminal.Style{Width: 10}, 1),
	} {
		t.Run(name, func(t *testing.T) { golden(t, name, written(t, newSample(), write)) })
	}
	withIncidents := newSample()
	withIncidents.Incidents = newBacktest()
	withIncidents.Incidents.Score = nil
	withIncidents.Problems = withIncidents.Problems[:1]
	for name, r := range map[string]*offline.Report{
		"incidents.txt": withIncidents,
		"left-out.txt": {
			Table:    &trace.Table{},
			Traces:   2,
			Spans:    9,
			Rejected: map[trace.Reason]int{trace.NoDuration: 2},
			Coverage: notJudged(),
		},
	} {
		t.Run(name, func(t *testing.T) { golden(t, name, written(t, r, asTable(terminal.Style{Width: 80}, 10))) })
	}
}

// notJudged returns a coverage with excluded spans and a missing hop.
func notJudged() (c trace.Coverage) {
	c.Traces, c.Incomplete = 2, 2
	for range 3 {
		c.Judge(&trace.Span{End: 10}, true)
		c.Leave(&trace.Span{End: 5}, trace.Late)
	}
	c.LeaveSpans(3, trace.NoDuration)
	c.CountHop(trace.Hop{}, 0)
	return c
}

func TestColourOnlyAdds(t *testing.T) {
	plain := written(t, newSample(), asTable(terminal.Style{Width: 100}, 10))
	painted := written(t, newSample(), asTable(terminal.Style{Width: 100, Colour: true}, 10))
	for _, attribute := range []string{"0", terminal.Bold, terminal.Dim, terminal.Red, terminal.Yellow} {
		painted = strings.ReplaceAll(painted, "\x1b["+attribute+"m", "")
	}
	if diff := cmp.Diff(plain, painted); diff != "" {
		t.Errorf("without escapes (-plain +painted):\n%s", diff)
	}
}

func TestTableFits(t *testing.T) {
	for _, width := range []int{60, 80, 100, 140} {
		for line := range strings.Lines(written(t, newSample(), asTable(terminal.Style{Width: width}, 10))) {
			if strings.Contains(line, "sibyl trace --trace-id") { // not wrapped, so that it can be copied
				continue
			}
			if n := len([]rune(strings.TrimRight(line, "\n"))); n > width {
				t.Errorf("%d columns in a terminal of %d: %s", n, width, line)
			}
		}
	}
}

func TestJSONSharesAddUp(t *testing.T) {
	var doc struct {
		Groups []struct {
			Edges []struct {
				ShareVariance *float64 `json:"share_variance"`
				Operation     string
			}
		}
	}
	if err := json.Unmarshal([]byte(written(t, newSample(), asJSON)), &doc); err != nil {
		t.Fatal(err)
	}
	sum, other := 0., false
	for _, e := range doc.Groups[0].Edges {
		sum += *e.ShareVariance
		other = other || e.Operation == "other"
	}
	if math.Abs(sum-1) > 1e-9 || !other {
		t.Errorf("shares add up to %v, want 1; other among them: %v, want true", sum, other)
	}
	if doc.Groups[3].Edges[0].ShareVariance != nil {
		t.Error("NaN is not null")
	}
}

func TestPprof(t *testing.T) {
	p, err := profile.Parse(strings.NewReader(written(t, newSample(), Pprof)))
	if err != nil {
		t.Fatal(err)
	}
	requests, nanos, deepest := int64(0), int64(0), ""
	for _, s := range p.Sample {
		requests += s.Value[0]
		nanos += s.Value[1]
		if s.Value[1] == int64(96*ms)*1204 {
			for _, l := range s.Location {
				deepest += l.Line[0].Function.Name + "; "
			}
		}
	}
	if requests != 1204+3490+1 {
		t.Errorf("got %d requests, want %d", requests, 1204+3490+1)
	}
	if want := int64(212*ms)*1204 + int64(35*ms)*3490 + int64(5*ms); nanos != want {
		t.Errorf("%d ns, want the mean times the count of each type: %d", nanos, want)
	}
	const want = "payment → bank POST /charge (wire or queue); payment → bank POST /charge; payment Pay; " +
		"shop POST /checkout; "
	if deepest != want {
		t.Errorf("stack %q, want %q", deepest, want)
	}
}

func TestFoldedLinesAreWhole(t *testing.T) {
	for line := range strings.Lines(written(t, newSample(), Folded)) {
		if stack, value, ok := strings.Cut(line, " "); !ok || stack == "" || value == "" ||
			strings.ContainsRune(line, '\x1b') {
			t.Errorf("line %q", line)
		}
	}
}

// The page neither loads anything from the network nor runs code from traces.
func TestPageIsSelfContained(t *testing.T) {
	page := written(t, newSample(), asPage)
	for _, bad := range []string{"http:", "https:", "url(", "@import", "<img", "<link", "src=\"", "</script><"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	if n := strings.Count(page, "<script>"); n != 1 {
		t.Errorf("got %d scripts, want 1", n)
	}
}
