package report

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/onetrace"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/trace"
)

// newExplanation returns the explanation of a trace with many suspects, some with long names.
func newExplanation() *describe.TraceExplanation {
	table := &trace.Table{}
	op := func(service, name string, kind trace.Kind) trace.Op {
		return table.Op(table.Symbol(service), table.Symbol(name), kind)
	}
	payment, bank := table.Symbol("payment"), table.Symbol("bank")
	e := onetrace.Explanation{Duration: 1.2e9, Usual: 388e6, Limit: 500e6, Suspects: []onetrace.CallSuspect{
		{
			Service: payment,
			Op:      op("payment", "Pay", trace.Server),
			Reason:  onetrace.Slow,
			Part:    onetrace.OwnPart,
			Excess:  640e6,
			Calls:   1,
		},
		{Service: bank, Op: op("bank", "POST /charge", trace.Server), Reason: onetrace.Failed, Calls: 3},
		{
			Service:    bank,
			Op:         op("bank", "SELECT \x1b[31m accounts", trace.Client),
			Reason:     onetrace.Missing,
			Unanswered: true,
			Calls:      1,
		},
	}}
	for i := range 9 {
		name := fmt.Sprintf("GET /a/very/long/path/that/no/narrow/terminal/shows/in/whole/%d", i)
		e.Suspects = append(e.Suspects, onetrace.CallSuspect{
			Service: payment,
			Op:      op("payment", name, trace.Client),
			Reason:  onetrace.Slow,
			Part:    onetrace.CallsPart,
			Excess:  9e6,
			Calls:   12,
		})
	}
	return describe.NewTraceExplanation(describe.New(table, terminal.Printable), trace.ID{15: 1}, &e)
}

func TestExplanationGolden(t *testing.T) {
	x := newExplanation()
	text := comparisonText(t, func(w io.Writer) error { return ExplanationText(w, x, terminal.Style{Width: 100}) })
	golden(t, "explanation.txt", text)
	for _, width := range []int{60, 80, 140} {
		text := comparisonText(t,
			func(w io.Writer) error { return ExplanationText(w, x, terminal.Style{Width: width}) })
		for line := range strings.Lines(text) {
			if n := terminal.Width(strings.TrimRight(line, "\n")); n > width {
				t.Errorf("%d columns in a terminal of %d: %s", n, width, line)
			}
		}
	}
	doc := comparisonText(t, func(w io.Writer) error { return ExplanationJSON(w, x) })
	if strings.Count(doc, "\n") != 1 ||
		!strings.HasPrefix(doc, `{"trace_id":"00000000000000000000000000000001","excess_ns":812000000,`) {
		t.Errorf("got %s, want one line", doc)
	}
}
