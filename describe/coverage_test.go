package describe

import (
	"slices"
	"strings"
	"testing"

	"github.com/sibyl-trace/sibyl/trace"
)

// The most frequent reason and its remedy are named for spans that aren't judged, both in total and for single
// services. Duplicates don't count as lost.
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
			"70 % of the spans and 70 % of their time are judged, so faults of the others stay unseen: " +
				"20 % of the spans, with 20 % of the time, arrived after their trace was closed. Of ledger 40 %",
			"assembly.timeout",
		},
		{
			"one service",
			map[trace.Symbol]int{shop: 10000, ledger: 20},
			map[trace.Reason]int{trace.Cut: 30},
			"Of ledger 40 % of the spans and 40 % of their time are judged; 60 % of the spans, with 60 % of the " +
				"time, belong to traces that were closed early.", "assembly.timeout",
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
		saw, do := Uncovered(New(table, Verbatim), &all)
		if !strings.HasPrefix(saw, c.saw) || (saw == "") != (c.saw == "") ||
			!strings.Contains(do, c.do) || (do == "") != (saw == "") {
			t.Errorf("%s: %q, %q; want %q, %q", c.name, saw, do, c.saw, c.do)
		}
	}
}

// A span that was never ended doesn't determine the share of the time that is judged.
func TestLongSpan(t *testing.T) {
	table := &trace.Table{}
	var c trace.Coverage
	for range 1000 {
		c.Judge(&trace.Span{Service: table.Symbol("shop"), End: 1e9}, false)
	}
	c.Leave(&trace.Span{Service: table.Symbol("shop"), End: 50 * 3600e9}, trace.TooLong)
	n, total := New(table, Verbatim), c.Total()
	if spans, time := total.Shares(); spans < 0.99 || time != 1 {
		t.Errorf("%g of the spans and %g of the time are judged", spans, time)
	}
	if saw, _ := Uncovered(n, &c); saw != "" {
		t.Errorf("got the warning %q", saw)
	}
	const want = "shares of the time leave out 1 span of an hour or more, with 2 days 2 h in all"
	if texts := Coverage(n, &c); !slices.Contains(texts, want) {
		t.Errorf("got %q, want %q", texts, want)
	}
}

// Unreadable records are reported, with a warning if there are many.
func TestUnreadRecords(t *testing.T) {
	for _, x := range []struct {
		read, malformed int64
		text, saw       string
	}{
		{read: 100},
		{
			read:      997,
			malformed: 2,
			text:      "3 of 1,000 records of the input could not be read, and are left out: 2 malformed, 1 too large",
		},
		{
			read:      17,
			malformed: 2,
			text:      "3 of 20 records of the input could not be read, and are left out: 2 malformed, 1 too large",
			saw:       "15 % of the records of the input could not be read.",
		},
	} {
		c := trace.Coverage{Records: x.read}
		if x.text != "" {
			c.LeaveRecords(x.malformed, trace.Malformed)
			c.LeaveRecords(1, trace.TooLarge)
		}
		n := New(&trace.Table{}, Verbatim)
		if got := strings.Join(Coverage(n, &c), "; "); got != x.text {
			t.Errorf("got %q, want %q", got, x.text)
		}
		if saw, do := Uncovered(n, &c); saw != x.saw || (do == "") != (saw == "") {
			t.Errorf("got the warning %q with the remedy %q, want %q", saw, do, x.saw)
		}
	}
}

// Each reason for leaving out a span has a remedy, except for copies.
func TestRemedies(t *testing.T) {
	for _, reason := range trace.LeftOut {
		if r := remedies[reason]; reason != trace.Duplicate && (r.left == "" || r.do == "") {
			t.Errorf("%s: %+v", reason, r)
		}
	}
}
