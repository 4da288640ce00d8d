package describe

import (
	"strings"
	"testing"

	"github.com/sibyl-trace/sibyl/trace"
)

// Spans that are not judged are said with the largest reason and its remedy, of all spans and of single services;
// duplicates are no loss.
func TestUncovered(t *testing.T) {
	table := &trace.Table{}
	shop, ledger := table.Symbol("shop"), table.Symbol("ledger")
	for _, c := range []struct {
		name    string
		judged  map[trace.Symbol]int
		left    map[trace.Reason]int // of ledger
		saw, do string
	}{
		{"all judged", map[trace.Symbol]int{shop: 100, ledger: 100}, nil, "", ""},
		{"duplicates", map[trace.Symbol]int{shop: 50, ledger: 50}, map[trace.Reason]int{trace.Duplicate: 100}, "", ""},
		{"few of the spans", map[trace.Symbol]int{shop: 1000, ledger: 19}, map[trace.Reason]int{trace.Late: 1}, "", ""},
		{
			"many, mostly late",
			map[trace.Symbol]int{shop: 50, ledger: 20},
			map[trace.Reason]int{trace.Late: 20, trace.Conflict: 10},
			"70 % of the spans and 70 % of their time are judged, so faults of the others stay unseen: 20 % of the spans, with 20 % of the time, arrived after their trace was closed. Of ledger 40 %",
			"assembly.settle",
		},
		{
			"one service",
			map[trace.Symbol]int{shop: 10000, ledger: 20},
			map[trace.Reason]int{trace.Cut: 30},
			"Of ledger 40 % of the spans and 40 % of their time are judged; 60 % of the spans, with 60 % of the time, belong to traces that were closed early.", "assembly.max-age",
		},
		{"a service with few spans", map[trace.Symbol]int{shop: 1000}, map[trace.Reason]int{trace.Cut: 19}, "", ""},
	} {
		var all trace.Coverage
		for service, n := range c.judged {
			for range n {
				all.Judge(&trace.Span{Service: service, End: 10}, false)
			}
		}
		for reason, n := range c.left {
			for range n {
				all.Leave(&trace.Span{Service: ledger, End: 10}, reason)
			}
		}
		saw, do := New(table, Verbatim).Uncovered(&all)
		if !strings.HasPrefix(saw, c.saw) || (saw == "") != (c.saw == "") ||
			!strings.Contains(do, c.do) || (do == "") != (saw == "") {
			t.Errorf("%s: %q, %q; want %q, %q", c.name, saw, do, c.saw, c.do)
		}
	}
}

// Each reason for leaving out a span has a remedy.
func TestRemedies(t *testing.T) {
	for _, reason := range []trace.Reason{
		trace.Malformed, trace.BadTraceID, trace.BadSpanID, trace.BadTime,
		trace.TooLarge, trace.TooLong, trace.NoDuration,
		trace.Misdated, trace.Outside, trace.Conflict, trace.Late, trace.Cut,
	} {
		if r := remedies[reason]; r.left == "" || r.do == "" {
			t.Errorf("%s: %+v", reason, r)
		}
	}
}
