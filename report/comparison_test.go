package report

import (
	"bytes"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/engine/offline"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/trace"
)

// newComparison returns a hand-written comparison: calls of the bank are late, and payment fails.
func newComparison() *offline.Comparison {
	s := sample{Report: &offline.Report{Table: &trace.Table{}}}
	checkout, pay := s.op("shop", "POST /checkout", trace.Server), s.op("payment", "Pay", trace.Server)
	charge, index := s.op("payment", "POST /charge", trace.Client), s.op("shop", "GET /", trace.Server)
	refund := s.op("payment", "Refund", trace.Server)
	kind := func(lo uint64, entry trace.Op, count uint64) group.Summary {
		id := analysis.Hash{Lo: lo}
		return group.Summary{
			ID:          id,
			Level:       group.LevelRequestType,
			RequestType: id,
			Entry:       entry,
			Count:       count,
		}
	}
	slower, same, rare := kind(1, checkout, 51), kind(2, index, 340),
		kind(3, s.op("shop", "GET /a\x1b[31m", trace.Server), 2)
	slower.Mean, slower.Failed, same.Mean, rare.Mean = 412*ms, 6, 35*ms, 90*ms
	const midnight = trace.Nanos(1_790_035_200_000_000_000)
	return &offline.Comparison{
		Table:  s.Table,
		Traces: 5500,
		Mean:   23.1e6,
		Window: offline.Side{
			Interval: history.Interval{From: midnight + 9660e9, To: midnight + 11100e9},
			Traces:   393,
		},
		Baseline: offline.Side{Interval: history.Interval{From: midnight + 1e9, To: midnight + 12000e9}, Traces: 5012},
		Around:   true,
		Suspects: []compare.Suspect{
			{
				Service:    s.Table.Symbol("payment"),
				Score:      12.385,
				Own:        12.25,
				Out:        0.002,
				Errors:     0.12,
				Unanswered: 0.003,
				Shape:      0.01,
				Operations: []compare.SuspectOperation{
					{Op: pay, Score: 0.2},
					{Op: charge, Score: 0.18},
					{Op: refund, Score: 0.01},
					{Op: checkout, Score: 0.006},
					{Op: index, Score: 0.001},
				},
			},
			{
				Service:    s.Table.Symbol("bank"),
				Opaque:     true,
				Score:      0.86,
				In:         0.61,
				Rest:       0.25,
				Operations: []compare.SuspectOperation{{Op: charge, Score: 0.86}},
			},
			{Service: s.Table.Symbol("stock"), Score: 0.004, Own: 0.004},
			{Service: s.Table.Symbol("shop")},
		},
		Usual: []float64{0.01, 0.001, 0, 0.12},
		RequestTypes: []offline.TypeChange{
			{Type: slower, Baseline: 700, Expected: 199 * ms, Rise: 120e6},
			{Type: same, Baseline: 4300, Expected: 36 * ms},
			{Type: rare, Rise: math.NaN()},
		},
	}
}

var inWindow, ofFiles = Labels{
	Window:   "window",
	Baseline: "baseline",
}, Labels{Window: "after", Baseline: "before", Sets: true}

func comparisonText(t *testing.T, write func(w io.Writer) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestComparisonGolden(t *testing.T) {
	c := newComparison()
	for name, write := range map[string]func(w io.Writer) error{
		"comparison.txt": func(w io.Writer) error {
			return ComparisonTable(w, c, inWindow, terminal.Style{Width: 120}, 10)
		},
		"comparison.json": func(w io.Writer) error { return ComparisonJSON(w, c, inWindow) },
		"comparison-narrow.txt": func(w io.Writer) error {
			return ComparisonTable(w, c, ofFiles, terminal.Style{Width: 70}, 1)
		},
		"comparison-empty.txt": func(w io.Writer) error {
			return ComparisonTable(w, &offline.Comparison{Table: &trace.Table{}}, ofFiles, terminal.Style{Width: 80},
				10)
		},
		"comparison-empty.json": func(w io.Writer) error {
			return ComparisonJSON(w, &offline.Comparison{Table: &trace.Table{}}, ofFiles)
		},
	} {
		t.Run(name, func(t *testing.T) { golden(t, name, comparisonText(t, write)) })
	}
}

func TestComparisonFits(t *testing.T) {
	for _, width := range []int{60, 80, 100, 140} {
		text := comparisonText(t, func(w io.Writer) error {
			return ComparisonTable(w, newComparison(), inWindow, terminal.Style{Width: width}, 0)
		})
		for line := range strings.Lines(text) {
			if n := terminal.Width(strings.TrimRight(line, "\n")); n > width {
				t.Errorf("%d columns in a terminal of %d: %s", n, width, line)
			}
		}
	}
}

// If an operation scores more than its service, the legend explains this.
func TestComparisonExplainsOperations(t *testing.T) {
	c := newComparison()
	c.Suspects[0].Score = 0.15
	text := comparisonText(t,
		func(w io.Writer) error { return ComparisonTable(w, c, inWindow, terminal.Style{Width: 400}, 10) })
	const explained = "An operation may score more than its service"
	if !strings.Contains(text, explained) {
		t.Errorf("got %s, want it to explain the scores", text)
	}
	if text := comparisonText(t, func(w io.Writer) error {
		return ComparisonTable(w, newComparison(), inWindow, terminal.Style{Width: 400}, 10)
	}); strings.Contains(text, explained) {
		t.Errorf("got %s, want no explanation", text)
	}
}
