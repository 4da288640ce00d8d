package compare

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/history"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetest"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetext"
	"github.com/sibyl-trace/sibyl/trace"
)

// TestCompare runs the scripts of testdata. Their commands are
//
//	history [times=n]   adds n copies of a trace to the history
//	window [times=n]    adds n copies of a trace to the window, which is later than all of the history
//	compare             ranks the services, then discards all traces
//	reset               discards all traces
//
// A line of the ranking holds the service, its score, parts, soft evidence, operations and added calls. Parts that are
// 0 are omitted.
func TestCompare(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := newScript()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			times := 1
			d.MaybeScanArgs(t, "times", &times)
			switch d.Cmd {
			case "history", "window":
				if err := s.add(d.Input, times, d.Cmd == "window"); err != nil {
					d.Fatalf(t, "%v", err)
				}
				return ""
			case "compare":
				out := s.compare()
				s = newScript()
				return out
			case "reset":
				s = newScript()
				return ""
			}
			d.Fatalf(t, "unknown command %q", d.Cmd)
			return ""
		})
	})
}

type script struct {
	table *trace.Table
	rec   *Recording
	x     *critpath.Extractor
	n     int
}

func newScript() *script {
	table := &trace.Table{}
	return &script{table: table, rec: NewRecording(table), x: critpath.NewExtractor(critpath.DefaultOptions())}
}

// windowStart is the start of the window.
const windowStart trace.Nanos = 1e15

func (s *script) add(text string, times int, window bool) error {
	t, err := tracetext.Parse(text, s.table)
	if err != nil {
		return err
	}
	for range times {
		s.n++
		at := trace.Nanos(s.n) * 1e9
		if window {
			at += windowStart
		}
		moved := tracetest.Shift(t, at)
		moved.ID = trace.ID{7: byte(s.n >> 8), 8: byte(s.n)}
		s.rec.Add(s.x.Extract(moved), 0)
	}
	return nil
}

var scriptWindow = history.Interval{From: windowStart, To: 2 * windowStart}

func (s *script) compare() string {
	return printSuspects(compareWindow(s.rec, scriptWindow), s.table)
}

func printSuspects(suspects []Suspect, table *trace.Table) string {
	var b strings.Builder
	for _, s := range suspects {
		fmt.Fprintf(&b, "%s %.3g", table.Text(s.Service), s.Score)
		for _, part := range []struct {
			name  string
			value float64
		}{
			{"own", s.Own},
			{"added", s.Added},
			{"in", s.In},
			{"out", s.Out},
			{"errors", s.Errors},
			{"unanswered", s.Unanswered},
			{"shape", s.Shape},
			{"rest", s.Rest},
			{"soft", s.Soft},
		} {
			if part.value != 0 {
				fmt.Fprintf(&b, " %s=%.3g", part.name, part.value)
			}
		}
		if s.From != 0 {
			fmt.Fprintf(&b, " from=%s", table.Text(s.From))
		}
		for _, op := range s.Operations {
			fmt.Fprintf(&b, " [%s %.3g]", table.OpName(op.Op), op.Score)
		}
		for _, c := range s.AddedCalls {
			fmt.Fprintf(&b, " {%s → %s %.3g instead of %.3g, %.3g ns}",
				table.OpName(c.Caller), table.OpName(c.Op), c.Now, c.Before, c.Nanos)
		}
		b.WriteByte('\n')
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

func TestPieces(t *testing.T) {
	for _, c := range []struct{ history, window, want int }{
		{100, 100, 16}, {100, 1000, 16}, {100, 1, 100}, {100, 3, 33}, {5, 5, 5}, {1, 9, 1},
	} {
		p := piecesOf(c.history, c.window)
		if p.number != c.want {
			t.Errorf("history %d, window %d: %d pieces, want %d", c.history, c.window, p.number, c.want)
		}
		end := 0
		for i := range p.number {
			from, to := p.bounds(i)
			if from != end || to <= from {
				t.Errorf("%+v: piece %d is [%d, %d), want it to be non-empty and start at %d", p, i, from, to, end)
			}
			end = to
		}
		if end != c.history {
			t.Errorf("%+v ends at %d, want %d", p, end, c.history)
		}
	}
}

func TestFence(t *testing.T) {
	median, limit := Fence([]float64{4, 1, 3, 2, 5})
	if median != 3 || limit != 4+1.5*2 {
		t.Errorf("median %v, fence %v, want 3, 7", median, limit)
	}
}

// TestCompareEmpty compares an empty window, an empty history, or both.
func TestCompareEmpty(t *testing.T) {
	s := newScript()
	if got := s.compare(); got != "nothing\n" {
		t.Errorf("no traces: got %q, want no suspects", got)
	}
	const one = "a shop get server 0..100"
	if err := s.add(one, 3, false); err != nil {
		t.Fatal(err)
	}
	if got := s.compare(); got != "nothing\n" {
		t.Errorf("empty window: got %q, want no suspects", got)
	}
	s = newScript()
	if err := s.add(one, 3, true); err != nil {
		t.Fatal(err)
	}
	if got := s.compare(); got != "shop 0\n" {
		t.Errorf("no history: got %q, want shop without a score", got)
	}
}

// TestCompareOrder permutes the traces, and the spans within them.
func TestCompareOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		e := newCase(seed, rapid.Bool().Draw(t, "clients"),
			rapid.Bool().Draw(t, "shared"), "cpu", "delay", "code", "db", "more")
		traces, window := e.traces(30, 90)
		want := compareAll(e.table, traces, window)
		r := rand.New(rand.NewPCG(seed, 1))
		for i, tr := range traces {
			traces[i] = tracetest.Permute(tr, r.Perm(len(tr.Spans)))
		}
		r.Shuffle(len(traces), func(i, j int) { traces[i], traces[j] = traces[j], traces[i] })
		if diff := cmp.Diff(want, compareAll(e.table, traces, window)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// The callers of a service that is late for several of them may each account for its score. The one with the largest
// part counts, whatever the order of a map.
func TestFrom(t *testing.T) {
	s := Service{late: map[int]float64{1: 0.2, 2: 0.3, 3: 0.3, 4: 0.1, 5: 0}}
	s.Score = 0.15
	for range 50 {
		if got := s.from(); got != 2 {
			t.Fatalf("from %d, want 2", got)
		}
	}
}

func compareAll(table *trace.Table, traces []*trace.Trace, window history.Interval) []Suspect {
	rec := NewRecording(table)
	x := critpath.NewExtractor(critpath.DefaultOptions())
	for _, t := range traces {
		rec.Add(x.Extract(t), 0)
	}
	return compareWindow(rec, window)
}

// compareWindow compares a window with all traces outside of it.
func compareWindow(rec *Recording, window history.Interval) []Suspect {
	return rec.Outside([]history.Interval{window}).Normal().Compare(rec.Within(window))
}

// TestCompareSets compares two sets of traces. The ranking does not depend on the times between them.
func TestCompareSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := newCase(rapid.Uint64().Draw(t, "seed"), true, false, "cpu", "delay", "code", "exc")
		traces, window := e.traces(30, 90)
		shift := trace.Nanos(rapid.Int64Range(-1e12, 1e12).Draw(t, "shift"))
		const before, after Set = 3, 7
		rec := NewRecording(e.table)
		x := critpath.NewExtractor(critpath.DefaultOptions())
		for _, tr := range traces {
			if window.Contains(tr.Spans[0].Start) {
				rec.Add(x.Extract(tracetest.Shift(tr, shift)), after)
			} else {
				rec.Add(x.Extract(tr), before)
			}
		}
		history, changed := rec.Of(before), rec.Of(after)
		if history.Len() == 0 || history.Len()+changed.Len() != len(traces) {
			t.Fatalf("sets of %d and %d traces, want %d in total", history.Len(), changed.Len(), len(traces))
		}
		if diff := cmp.Diff(compareAll(e.table, traces, window), history.Normal().Compare(changed)); diff != "" {
			t.Fatalf("by time (-) and by set (+):\n%s", diff)
		}
	})
}

func TestExtent(t *testing.T) {
	s := newScript()
	if err := s.add("a shop get server 0..100", 3, false); err != nil {
		t.Fatal(err)
	}
	if first, last := s.rec.Within(history.Always()).Extent(); first != 1e9 || last != 3e9 {
		t.Errorf("from %d to %d, want 1e9 to 3e9", first, last)
	}
	if first, last := s.rec.Of(1).Extent(); first != 0 || last != 0 {
		t.Errorf("empty: from %d to %d, want 0 to 0", first, last)
	}
}

func TestRise(t *testing.T) {
	history := make([]int64, 64)
	for i := range history {
		history[i] = 100
	}
	for _, c := range []struct {
		history, window []int64
		want            float64
	}{
		{history, []int64{110, 130, 110, 130}, 20},
		{history, []int64{90, 90, 90, 90}, 0},
		{history, []int64{500, 500, 500}, math.NaN()},
		{history[:3], []int64{500, 500, 500, 500}, math.NaN()},
		{[]int64{100, 200, 300, 400}, []int64{550, 550, 550, 550}, 0}, // below the fence: 325 + 1.5·150
		{[]int64{100, 200, 300, 400}, []int64{560, 560, 560, 560}, 10},
		{append([]int64{1 << 20}, history...), []int64{200, 200, 200, 200}, 0}, // below the mean
	} {
		if got := Rise(c.history, c.window); got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("Rise(%v, %v) = %v, want %v", c.history, c.window, got, c.want)
		}
	}
}

// TestUsualScores compares stretches of a history with one slow request in 40.
func TestUsualScores(t *testing.T) {
	s := newScript()
	for i := range 40 {
		text := "a shop get server 0..100"
		if i == 39 {
			text = "a shop get server 0..900"
		}
		if err := s.add(text, 1, false); err != nil {
			t.Fatal(err)
		}
	}
	all := s.rec.Within(history.Always())
	if got := all.UsualScores(11, 8); got != nil {
		t.Errorf("stretches of 11 of 40 traces: got %v, want none", got)
	}
	got := all.UsualScores(10, 8)
	if len(got) != 4 || got[0] != 0 || got[1] != 0 || got[2] != 0 || math.Abs(got[3]-0.8) > 1e-9 {
		t.Errorf("stretches of 10: got %v, want [0 0 0 0.8]", got)
	}
	if got := all.UsualScores(1, 8); len(got) != 8 || got[7] != 8 {
		t.Errorf("stretches of 1: got %v, want 8 scores, the last 8", got)
	}
}

// TestSameTraces compares traces with themselves. Nothing has changed, although one of 40 requests is slow.
func TestSameTraces(t *testing.T) {
	s := newScript()
	for _, window := range []bool{false, true} {
		for i := range 40 {
			text := "a shop get server 0..100"
			if i == 39 {
				text = "a shop get server 0..900"
			}
			if err := s.add(text, 1, window); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, x := range compareWindow(s.rec, scriptWindow) {
		if x.Score > 1e-9 {
			t.Errorf("score %v", x.Score)
		}
	}
}

// TestCompareUnusual compares malformed and unusual traces. Scores are finite and the parts add up.
func TestCompareUnusual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := &trace.Table{}
		rec := NewRecording(table)
		x := critpath.NewExtractor(critpath.DefaultOptions())
		for range rapid.IntRange(1, 40).Draw(t, "traces") {
			rec.Add(x.Extract(tracetest.Traces(tracetest.Everything).Draw(t, "trace")), 0)
		}
		from := trace.Nanos(rapid.IntRange(0, 200).Draw(t, "from"))
		window := history.Interval{From: from, To: from + trace.Nanos(rapid.IntRange(0, 200).Draw(t, "length"))}
		for _, s := range compareWindow(rec, window) {
			for _, v := range []float64{s.Score, s.Soft, s.Own, s.In, s.Out, s.Errors, s.Unanswered, s.Shape, s.Rest} {
				if !(v >= -1e-12 && v < 1e12) {
					t.Fatalf("score or part %v is negative or huge: %+v", v, s)
				}
			}
			if sum := s.Own + s.In + s.Out + s.Errors + s.Unanswered + s.Shape +
				s.Rest; sum < s.Score*(1-1e-9) || sum > s.Score*(1+1e-9) {
				t.Fatalf("parts add up to %v, want the score: %+v", sum, s)
			}
		}
	})
}

// noiselessApp is an application without noise: random calls, each with a constant own time.
type noiselessApp struct {
	table *trace.Table
	tree  []noiselessCall // the parent before its children
}

type noiselessCall struct {
	parent, service int
	own             trace.Nanos // before, between and after its calls
}

func drawNoiseless(t *rapid.T) noiselessApp {
	s := noiselessApp{table: &trace.Table{}, tree: []noiselessCall{{parent: -1, own: 100}}}
	for i := range rapid.IntRange(2, 8).Draw(t, "calls") {
		s.tree = append(s.tree, noiselessCall{
			parent: rapid.IntRange(0, i).Draw(t, "parent"), service: rapid.IntRange(1, 4).Draw(t, "service"),
			own: trace.Nanos(rapid.IntRange(10, 100).Draw(t, "own")),
		})
	}
	return s
}

// request returns the trace of a request. Every span of the service slow takes longer by delay.
func (s *noiselessApp) request(n int, start trace.Nanos, slow int, delay trace.Nanos) *trace.Trace {
	t := &trace.Trace{ID: trace.ID{0: byte(n >> 8), 1: byte(n), 15: 1}}
	var visit func(i int, parent trace.SpanID, at trace.Nanos) trace.Nanos
	open := func(service int, name string, kind trace.Kind, parent trace.SpanID, at trace.Nanos) int {
		sym := s.table.Symbol(fmt.Sprintf("s%d", service))
		t.Spans = append(t.Spans, trace.Span{
			ID:      trace.SpanID(len(t.Spans) + 1),
			Parent:  parent,
			Start:   at,
			Kind:    kind,
			Service: sym,
			Op:      s.table.Op(sym, s.table.Symbol(name), kind),
		})
		return len(t.Spans) - 1
	}
	visit = func(i int, parent trace.SpanID, at trace.Nanos) trace.Nanos {
		c := s.tree[i]
		span := open(c.service, fmt.Sprintf("op%d", i), trace.Server, parent, at)
		at += c.own
		if c.service == slow {
			at += delay
		}
		for k := range s.tree {
			if s.tree[k].parent == i {
				client := open(c.service, fmt.Sprintf("call op%d", k), trace.Client, t.Spans[span].ID, at)
				at = visit(k, t.Spans[client].ID, at+5) + 5
				t.Spans[client].End = at
				at += c.own
			}
		}
		t.Spans[span].End = at
		return at
	}
	visit(0, 0, start)
	return t
}

// TestCompareNoiseless compares an application without noise with itself, and with a copy that has a slower service.
func TestCompareNoiseless(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawNoiseless(t)
		n := rapid.IntRange(4, 40).Draw(t, "history")
		delay := trace.Nanos(rapid.IntRange(1, 1000).Draw(t, "delay"))
		slow := s.tree[rapid.IntRange(0, len(s.tree)-1).Draw(t, "slow")].service
		var traces []*trace.Trace
		for i := range n {
			traces = append(traces, s.request(i, trace.Nanos(i)*1e6, -1, 0))
		}
		for i := range rapid.IntRange(1, 10).Draw(t, "window") {
			traces = append(traces, s.request(n+i, 1e9+trace.Nanos(i)*1e6, -1, 0),
				s.request(1000+i, 2e9+trace.Nanos(i)*1e6, slow, delay))
		}
		rec := NewRecording(s.table)
		x := critpath.NewExtractor(critpath.DefaultOptions())
		for _, tr := range traces {
			rec.Add(x.Extract(tr), 0)
		}
		same, slower := history.Interval{From: 1e9, To: 2e9}, history.Interval{From: 2e9, To: 3e9}
		h := rec.Outside([]history.Interval{same, slower}).Normal()
		for _, suspect := range h.Compare(rec.Within(same)) {
			if suspect.Score != 0 || suspect.Soft != 0 {
				t.Errorf("unchanged, but got %+v", suspect)
			}
		}
		spans := 0
		for _, c := range s.tree {
			if c.service == slow {
				spans++
			}
		}
		root := x.Extract(traces[0])
		want := float64(delay) * float64(spans) / float64(root.Duration(&root.Roots[0]))
		first := h.Compare(rec.Within(slower))[0]
		if got := s.table.Text(first.Service); got != fmt.Sprintf("s%d", slow) ||
			first.Own < want*0.999 || first.Own > want*1.001 || first.Score != first.Own {
			t.Errorf("first suspect is %s %+v, want s%d with Own and Score %v", got, first, slow, want)
		}
	})
}

// TestCompareAccuracy counts how often the faulty service of simulated applications is ranked first, or among the first
// three. The required counts are the measured ones, less two to three standard errors.
func TestCompareAccuracy(t *testing.T) {
	if testing.Short() {
		t.Skip("plays simulations")
	}
	all := []string{"cpu", "mem", "delay", "loss", "disk", "code", "exc"}
	for _, c := range []struct {
		name            string
		clients, shared bool
		renamed         bool
		kinds           []string
		first, inThree  int // of 60
	}{
		{"clients", true, false, false, all, 48, 56},
		{"no clients", false, false, false, all, 42, 52},
		{"shared databases", true, true, false, []string{"db"}, 26, 56},
		{"new callers", true, false, true, []string{"cpu", "delay", "loss"}, 48, 57},
		{"repeated", true, false, false, []string{"more"}, 34, 47},
	} {
		t.Run(c.name, func(t *testing.T) {
			first, inThree := 0, 0
			for seed := range uint64(60) {
				e := newCase(seed, c.clients, c.shared, c.kinds...)
				e.renamed = c.renamed
				n := choose(e.rng, 50, 150, 300)
				traces, window := e.traces(n, n*choose(e.rng, 1, 3))
				rank := slices.IndexFunc(compareAll(e.table, traces, window), func(s Suspect) bool {
					return e.table.Text(s.Service) == e.target()
				})
				if rank == 0 {
					first++
				}
				if 0 <= rank && rank < 3 {
					inThree++
				}
			}
			if t.Logf("first %d, in three %d", first, inThree); first < c.first || inThree < c.inThree {
				t.Errorf("first in %d, in three in %d of 60; want %d, %d", first, inThree, c.first, c.inThree)
			}
		})
	}
}
