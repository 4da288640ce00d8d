package compare

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetest"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetext"
	"github.com/sibyl-trace/sibyl/trace"
)

// sitesOf returns the history of traces, merged from a tally of every n of them.
func sitesOf(table *trace.Table, traces []*trace.Trace, n int) *history.Sites {
	h, x := history.NewSites(table), critpath.NewExtractor(critpath.DefaultOptions())
	for part := range slices.Chunk(traces, n) {
		t := history.NewTally()
		for _, tr := range part {
			t.Observe(x.Extract(tr))
		}
		h.Merge(t)
	}
	return h
}

// stretch moves the window of traces to whole slices: a minute for every minute of t, with the history before it.
func stretch(traces []*trace.Trace, window history.Interval) ([]*trace.Trace, history.Interval) {
	var before, within []*trace.Trace
	for _, t := range traces {
		switch start := t.Spans[0].Start; {
		case window.Contains(start):
			within = append(within, t)
		default:
			before = append(before, t)
		}
	}
	const span = int64(3 * time.Minute)
	spread := func(list []*trace.Trace, from, length int64) {
		for i, t := range list {
			by := trace.Nanos(from+length*int64(i)/int64(len(list))) - t.Spans[0].Start
			for k := range t.Spans {
				t.Spans[k].Start += by
				t.Spans[k].End += by
			}
		}
	}
	length := span * int64(len(before)) / int64(len(within)) / span * span
	spread(before, 0, length)
	spread(within, length, span)
	return append(before, within...), history.Interval{From: trace.Nanos(length), To: trace.Nanos(length + span)}
}

// TestSitesAgree compares the ranking by counts of slices with the exact one. Both find the faulty services of
// simulated applications about as often, and mostly agree on the first.
func TestSitesAgree(t *testing.T) {
	if testing.Short() {
		t.Skip("plays simulations")
	}
	const cases = 60
	exact, plain, steady, agree := 0, 0, 0, 0
	for seed := range uint64(cases) {
		e := newCase(seed, true, false, "cpu", "delay", "code", "exc")
		n := choose(e.rng, 50, 150, 300)
		traces, window := e.traces(n, n*10)
		traces, window = stretch(traces, window)
		first := func(suspects []Suspect) string { return e.table.Text(suspects[0].Service) }
		want := first(compareAll(e.table, traces, window))
		h := sitesOf(e.table, traces, 100)
		got := first(NewComparer(h).Compare(window, Plain).Suspects)
		if want == e.target() {
			exact++
		}
		if got == e.target() {
			plain++
		}
		if got == want {
			agree++
		}
		if first(NewComparer(h).Compare(window, Steady).Suspects) == e.target() {
			steady++
		}
	}
	t.Logf("of %d first: exact %d, plain %d, steady %d; agree on %d", cases, exact, plain, steady, agree)
	if plain < exact-3 || agree < cases*9/10 || steady < exact-8 {
		t.Error("the ranking by slices is worse than the exact one")
	}
}

// TestSitesOrder merges the same traces in another order, in other tallies and after a restart. The content is equal.
func TestSitesOrder(t *testing.T) {
	e := newCase(3, false, false, "delay")
	traces, window := stretch(e.traces(100, 500))
	a := sitesOf(e.table, traces, 600)
	shuffled := slices.Clone(traces)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled),
		func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	b := sitesOf(e.table, shuffled, 7)
	if !bytes.Equal(a.AppendBinary(nil), b.AppendBinary(nil)) {
		t.Error("the content depends on the order of the traces")
	}
	c, err := history.DecodeSites(a.AppendBinary(nil), e.table)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.AppendBinary(nil), c.AppendBinary(nil)) {
		t.Error("a restart changes the content")
	}
	want := printSuspects(NewComparer(a).Compare(window, Steady).Suspects, e.table)
	for name, h := range map[string]*history.Sites{"shuffled": b, "decoded": c} {
		if got := printSuspects(NewComparer(h).Compare(window, Steady).Suspects, e.table); got != want {
			t.Errorf("%s: got %s\nwant %s", name, got, want)
		}
	}
}

// TestDecodeSitesCorrupt cuts and flips saved histories. Decoding them returns an error or a history, and never panics.
func TestDecodeSitesCorrupt(t *testing.T) {
	e := newCase(5, true, false, "cpu")
	traces, window := stretch(e.traces(20, 60))
	saved := sitesOf(e.table, traces, 100).AppendBinary(nil)
	r := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		b := slices.Clone(saved)
		if r.IntN(2) == 0 {
			b = b[:r.IntN(len(b))]
			if _, err := history.DecodeSites(b, e.table); err == nil {
				t.Fatalf("no error for the first %d of %d bytes", len(b), len(saved))
			}
			continue
		}
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		if h, err := history.DecodeSites(b, e.table); err == nil {
			NewComparer(h).Compare(window, Plain)
			h.Age(window.To)
		}
	}
}

// TestSitesSteady slows requests down for a part of the window, and for all of it. Only the second is a steady change.
func TestSitesSteady(t *testing.T) {
	const normal, slow = int64(100 * time.Millisecond), int64(300 * time.Millisecond)
	window := history.Interval{From: trace.Nanos(30 * time.Minute), To: trace.Nanos(33 * time.Minute)}
	for _, c := range []struct {
		name                string
		from                time.Duration // requests are slow from here to the end of the window
		plain, steady, step float64
	}{
		{"burst", 32 * time.Minute, 2. / 3, 0, 0},
		{"whole window", 30 * time.Minute, 2, 2, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := &trace.Table{}
			h := history.NewSites(table)
			h.Merge(callsAt(table, 0, c.from, normal))
			h.Merge(callsAt(table, c.from, 33*time.Minute, slow))
			for judge, want := range map[Judge]float64{Plain: c.plain, Steady: c.steady} {
				r := NewComparer(h).Compare(window, judge)
				if got := r.Suspects[0].Score; math.Abs(got-want) > 1e-9 ||
					r.Requests != 180 || r.Duration != float64(normal) {
					t.Errorf("%+v: score %v of %d requests of %v ns, want %v", judge, got, r.Requests, r.Duration, want)
				}
			}
		})
	}
}

// TestSitesSkip excludes slow requests from the history, so that they do not become normal.
func TestSitesSkip(t *testing.T) {
	table := &trace.Table{}
	h := history.NewSites(table)
	const normal, slow = int64(100 * time.Millisecond), int64(300 * time.Millisecond)
	h.Merge(callsAt(table, 0, 30*time.Minute, normal))
	h.Merge(callsAt(table, 30*time.Minute, 4*time.Hour, slow))
	h.Skip(1, history.Interval{From: trace.Nanos(30 * time.Minute), To: trace.Nanos(3 * time.Hour)})
	h.Skip(2, history.Interval{From: trace.Nanos(3 * time.Hour), To: trace.Nanos(4 * time.Hour)})
	h.Age(trace.Nanos(4 * time.Hour))
	r := NewComparer(h).Compare(history.Interval{From: trace.Nanos(237 * time.Minute), To: trace.Nanos(4 * time.Hour)},
		Steady)
	if got := r.Suspects[0].Score; math.Abs(got-2) > 1e-9 {
		t.Errorf("score %v after hours of slow requests, want 2", got)
	}
}

// TestSitesBehind makes requests of a proxy without CLIENT spans fail before the service behind it has a span. The
// history charges that service, like [Normal.Compare].
func TestSitesBehind(t *testing.T) {
	table := &trace.Table{}
	parse := func(text string) *trace.Trace {
		tr, err := tracetext.Parse(text, table)
		if err != nil {
			t.Fatal(err)
		}
		return tr
	}
	healthy := parse("a proxy store server 0..100\n  b cart get server 10..90")
	failed := parse("a proxy store server 0..100 error")
	h, tally, x := history.NewSites(table), history.NewTally(), critpath.NewExtractor(critpath.DefaultOptions())
	for second := range 33 * 60 {
		tr := healthy
		if second >= 30*60 && second%2 == 0 {
			tr = failed
		}
		moved := tracetest.Shift(tr, trace.Nanos(second)*1e9)
		moved.ID = trace.ID{14: byte(second >> 8), 15: byte(second)}
		tally.Observe(x.Extract(moved))
	}
	h.Merge(tally)
	for _, judge := range []Judge{Plain, Steady} {
		r := NewComparer(h).Compare(history.Interval{
			From: trace.Nanos(30 * time.Minute),
			To:   trace.Nanos(33 * time.Minute),
		}, judge)
		if s := r.Suspects[0]; table.Text(s.Service) != "cart" || math.Abs(s.Unanswered-0.5) > 0.01 {
			t.Errorf("%+v: got %s", judge, printSuspects(r.Suspects, table))
		}
	}
}

// TestStopsExporting stops the spans of a service while its callees still send theirs. The service is then silent, and
// not a hop without spans. This holds whether its callers name it, by an address or not at all, and whether it makes
// one call or several. A hop that never sent spans stays a hop.
func TestStopsExporting(t *testing.T) {
	const (
		one     = "\n      d cart \"GET stock\" client 12..80\n        e stock get server 15..75"
		several = one + "\n      f cart \"GET price\" client 82..88\n        g price get server 83..87"
	)
	request := func(inner string) string {
		return "a shop buy server 0..100\n  b shop GET client 5..95\n    c cart get server 10..90" + inner
	}
	silent := func(text string) string {
		text = strings.Replace(text, "    c cart get server 10..90\n", "", 1)
		text = strings.ReplaceAll(text, "      d cart \"GET stock\" client 12..80\n        e", "    e parent=d")
		return strings.ReplaceAll(text, "      f cart \"GET price\" client 82..88\n        g", "    g parent=f")
	}
	hop := silent(request(one))
	for _, c := range []struct {
		about   string
		name    string        // of the callee in the attributes of the call
		address trace.Address // the same
		before  string
		want    string        // the silent service; empty means a hop
		moved   trace.Address // the address of calls without an answer; 0 means the same
	}{
		{"named", "cart", 0, request(one), "cart", 0},
		{"at an address of Kubernetes", "cart.default.svc:80", 0, request(one), "cart", 0},
		{"at an IP address", "{ip}:8080", 7, request(one), "cart", 0},
		{"at a new IP address", "{ip}:8080", 7, request(one), "cart", 8},
		{"named, at a new IP address", "cart", 7, request(one), "cart", 8},
		{"unnamed", "", 0, request(one), "cart", 0},
		{"several calls", "cart", 0, request(several), "cart", 0},
		{"at an IP address, several calls", "{ip}:8080", 7, request(several), "cart", 0},
		{"unnamed, several calls", "", 0, request(several), "cart", 0},
		{"a hop", "", 0, hop, "", 0},
		{"a hop with a name", "proxy", 0, hop, "", 0},
		{"a hop with the name of the service behind", "stock", 0, hop, "", 0},
		{"a hop at an IP address", "{ip}:8080", 7, hop, "", 0},
	} {
		table := &trace.Table{}
		parse := func(text string, address trace.Address) *trace.Trace {
			tr, err := tracetext.Parse(text, table)
			if err != nil {
				t.Fatal(c.about, err)
			}
			for i := range tr.Spans {
				if s := &tr.Spans[i]; s.Kind == trace.Client && table.Text(s.Service) == "shop" && c.name != "" {
					s.Peer, s.Address = table.Op(table.Symbol(c.name), 0, trace.External), address
				}
			}
			return tr
		}
		healthy, now := parse(c.before, c.address), parse(silent(c.before), cmp.Or(c.moved, c.address))
		h, x := history.NewSites(table), critpath.NewExtractor(critpath.DefaultOptions())
		const minutes = 33
		for minute := range minutes {
			tally := history.NewTally()
			for second := range 60 {
				tr := healthy
				if minute >= 30 {
					tr = now
				}
				moved := tracetest.Shift(tr, trace.Nanos(60*minute+second)*1e9)
				moved.ID = trace.ID{14: byte(minute), 15: byte(second)}
				tally.Observe(x.Extract(moved))
			}
			h.Merge(tally)
			h.Age(trace.Nanos(minute+1) * trace.Nanos(time.Minute))
		}
		r := NewComparer(h).Compare(history.Interval{
			From: trace.Nanos(30 * time.Minute),
			To:   trace.Nanos(minutes * time.Minute),
		}, Steady)
		first := &r.Suspects[0]
		lost := math.Abs(first.Unanswered-1) <= 0.01 && first.Unfailed
		if c.want == "" && first.Score > 0.01 || c.want != "" && (table.Text(first.Service) != c.want || !lost) {
			t.Errorf("%s: got %s", c.about, printSuspects(r.Suspects, table))
		}
	}
}

// TestFailedShare makes calls fail that have no span of the callee. They are an operation of their own, all of whose
// calls fail; their share is of all calls to the callee.
func TestFailedShare(t *testing.T) {
	for _, c := range []struct {
		every     int // of how many calls one fails in the window
		low, high float64
	}{{20, 0.03, 0.06}, {2, 0.4, 0.6}, {1, 1, 1}} {
		table := &trace.Table{}
		parse := func(text string) *trace.Trace {
			tr, err := tracetext.Parse(text, table)
			if err != nil {
				t.Fatal(err)
			}
			for i := range tr.Spans {
				if s := &tr.Spans[i]; s.Kind == trace.Client {
					s.Peer = table.Op(table.Symbol("cart"), 0, trace.External)
				}
			}
			return tr
		}
		healthy := parse("a shop buy server 0..100\n  b shop GET client 5..95\n    c cart get server 10..90")
		lost := parse("a shop buy server 0..100\n  b shop GET client 5..95")
		failed := parse("a shop buy server 0..100\n  b shop GET client 5..95 error")
		h, x := history.NewSites(table), critpath.NewExtractor(critpath.DefaultOptions())
		for minute := range 33 {
			tally := history.NewTally()
			for second := range 60 {
				tr := healthy
				switch {
				case second%c.every == 0 && minute >= 30:
					tr = failed
				case second%c.every == 0 && second%2 == 0:
					tr = lost
				}
				moved := tracetest.Shift(tr, trace.Nanos(60*minute+second)*1e9)
				moved.ID = trace.ID{14: byte(minute), 15: byte(second)}
				tally.Observe(x.Extract(moved))
			}
			h.Merge(tally)
			h.Age(trace.Nanos(minute+1) * trace.Nanos(time.Minute))
		}
		r := NewComparer(h).Compare(history.Interval{
			From: trace.Nanos(30 * time.Minute),
			To:   trace.Nanos(33 * time.Minute),
		}, Steady)
		var failing []float64
		for _, o := range r.Suspects[0].Operations {
			if o.Failed > 0 {
				failing = append(failing, o.FailedShare())
			}
		}
		if len(failing) != 1 || failing[0] < c.low || failing[0] > c.high {
			t.Errorf("one of %d fails: shares %v, want %v to %v", c.every, failing, c.low, c.high)
		}
	}
}

// TestHopsBesideCalls mixes calls that pass a proxy without spans with others: to services that call each other, and to
// several at one address. No call is mistaken for one whose answer was lost, whatever the order of the tallies.
func TestHopsBesideCalls(t *testing.T) {
	const (
		toCart = "a shop buy server 0..100\n  b shop GET client 5..95%s\n    c parent=x cart get server 10..90\n" +
			"      d cart \"GET stock\" client 12..80\n        e stock get server 15..75"
		toStock = "a shop buy server 0..100\n  b shop GET client 5..95%s\n    e parent=y stock get server 15..75"
	)
	for name, address := range map[string]trace.Address{"unnamed": 0, "at one IP address": 7} {
		table := &trace.Table{}
		var traces []*trace.Trace
		for _, text := range []string{toCart, toStock} {
			tr, err := tracetext.Parse(fmt.Sprintf(text, ""), table)
			if err != nil {
				t.Fatal(err)
			}
			for i := range tr.Spans {
				if s := &tr.Spans[i]; address != 0 && s.Kind == trace.Client && table.Text(s.Service) == "shop" {
					s.Peer, s.Address = table.Op(table.Symbol("{ip}:8080"), 0, trace.External), address
				}
			}
			traces = append(traces, tr)
		}
		var states [2][]byte
		for order := range states {
			h, x := history.NewSites(table), critpath.NewExtractor(critpath.DefaultOptions())
			for minute := range 10 {
				var tallies [2]*history.Tally
				for k := range tallies {
					tallies[k] = history.NewTally()
					for second := range 60 {
						if minute%3 > 0 || second%20 > 0 || k == 0 { // few of one kind, and at times as many
							moved := tracetest.Shift(traces[k], trace.Nanos(60*minute+second)*1e9)
							moved.ID = trace.ID{13: byte(k), 14: byte(minute), 15: byte(second)}
							tallies[k].Observe(x.Extract(moved))
						}
					}
				}
				h.Merge(tallies[order])
				h.Merge(tallies[1-order])
				h.Age(trace.Nanos(minute+1) * trace.Nanos(time.Minute))
			}
			states[order] = h.AppendBinary(nil)
			uses := h.Uses(history.Interval{From: 0, To: trace.Nanos(10 * time.Minute)}, 0, 1, 0)
			for _, c := range uses.Calls {
				if c.Now.Unanswered > 0 {
					t.Errorf("%s: %d of %d calls of %s to %s without an answer", name, c.Now.Unanswered, c.Now.Calls,
						table.Text(c.Caller), table.Text(c.Callee))
				}
			}
		}
		if !bytes.Equal(states[0], states[1]) {
			t.Errorf("%s: the state depends on the order of the tallies", name)
		}
	}
}
