package onetrace

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cockroachdb/datadriven"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetest"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetext"
	"github.com/sibyl-trace/sibyl/trace"
)

// TestExplain runs the scripts of testdata. Their commands are
//
//	history [times=n]   adds n copies of a trace to the normal ones
//	explain             explains a trace by its difference from them
//	reset               discards all traces
func TestExplain(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := newScript()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			times := 1
			d.MaybeScanArgs(t, "times", &times)
			switch d.Cmd {
			case "history":
				if err := s.add(d.Input, times); err != nil {
					d.Fatalf(t, "%v", err)
				}
				return ""
			case "explain":
				out, err := s.explain(d.Input)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
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
	table   *trace.Table
	profile *Profile
	x       *critpath.Extractor
	n       int
}

func newScript() *script {
	table := &trace.Table{}
	return &script{table: table, profile: NewProfile(table), x: critpath.NewExtractor(critpath.DefaultOptions())}
}

func (s *script) add(text string, times int) error {
	t, err := tracetext.Parse(text, s.table)
	if err != nil {
		return err
	}
	for range times {
		s.n++
		moved := tracetest.Shift(t, trace.Nanos(s.n)*1e9)
		moved.ID = trace.ID{7: byte(s.n >> 8), 8: byte(s.n)}
		s.profile.Add(s.x.Extract(moved))
	}
	return nil
}

func (s *script) explain(text string) (string, error) {
	t, err := tracetext.Parse(text, s.table)
	if err != nil {
		return "", err
	}
	p := s.x.Extract(t)
	e := s.profile.Explain(p)
	return printExplanation(&e, p, s.table), nil
}

// printExplanation writes the excess, then a line for each suspect: service, operation, kind, reason, part, excess,
// score, number of calls if several, the span, and the missing calls.
func printExplanation(e *Explanation, p *critpath.Path, table *trace.Table) string {
	var b strings.Builder
	if e.Known() {
		fmt.Fprintf(&b, "%.4g instead of %.4g\n", e.Duration, e.Usual)
	} else {
		fmt.Fprintf(&b, "%.4g, unknown\n", e.Duration)
	}
	for _, s := range e.Suspects {
		fmt.Fprintf(&b, "%s %s %s: %s", table.Text(s.Service), table.OpName(s.Op), table.Operation(s.Op).Kind, s.Reason)
		if s.Part != "" {
			fmt.Fprintf(&b, " %s", s.Part)
		}
		if s.Unanswered {
			b.WriteString(" unanswered")
		}
		fmt.Fprintf(&b, " %.4g, score %.3g", s.Excess, s.Score)
		if s.Calls != 1 {
			fmt.Fprintf(&b, ", %d calls", s.Calls)
		}
		fmt.Fprintf(&b, ", at %s", strings.TrimLeft(p.Nodes[s.Node].ID.String(), "0"))
		if s.Caller != 0 {
			fmt.Fprintf(&b, ", not called by %s %s", table.ServiceName(s.Caller), table.OpName(s.Caller))
		}
		for _, op := range s.Missing {
			fmt.Fprintf(&b, ", lacks %s %s", table.ServiceName(op), table.OpName(op))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// tracedCall is a call of a random trace. Calls follow one another, so the own time of each is on the critical path.
type tracedCall struct {
	service, name int
	kind          string
	own           int
	calls         []*tracedCall
}

// drawCall draws a tree of calls. Siblings have different operations.
func drawCall(t *rapid.T, depth, name int) *tracedCall {
	c := &tracedCall{
		service: rapid.IntRange(0, 3).Draw(t, "service"), name: name, own: rapid.IntRange(10, 1000).Draw(t, "own"),
		kind: rapid.SampledFrom([]string{"server", "client", "internal"}).Draw(t, "kind"),
	}
	if depth > 0 {
		for i := range rapid.IntRange(0, 3).Draw(t, "calls") {
			c.calls = append(c.calls, drawCall(t, depth-1, 4*name+i+1))
		}
	}
	return c
}

// write writes the spans of c, starting at from, and returns its end.
func (c *tracedCall) write(b *strings.Builder, depth, from int) int {
	var below strings.Builder
	to := from + c.own/2
	for _, call := range c.calls {
		to = call.write(&below, depth+1, to)
	}
	to += c.own - c.own/2
	fmt.Fprintf(b, "%s%x s%d op%d %s %d..%d\n%s", strings.Repeat(" ", depth),
		c.name+1, c.service, c.name, c.kind, from, to, below.String())
	return to
}

func (c *tracedCall) text() string {
	var b strings.Builder
	c.write(&b, 0, 0)
	return b.String()
}

// leaves returns the calls without calls of their own.
func (c *tracedCall) leaves() []*tracedCall {
	if len(c.calls) == 0 {
		return []*tracedCall{c}
	}
	var all []*tracedCall
	for _, call := range c.calls {
		all = append(all, call.leaves()...)
	}
	return all
}

// learn returns a script with n normal traces.
func learn(t *rapid.T, n int, text func() string) *script {
	s := newScript()
	for range n {
		if err := s.add(text(), 1); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *script) explainTrace(t *rapid.T, text string) Explanation {
	tr, err := tracetext.Parse(text, s.table)
	if err != nil {
		t.Fatal(err)
	}
	return s.profile.Explain(s.x.Extract(tr))
}

// A normal trace has no excess and no suspect. Time added to the own time of a leaf is the excess of the trace, and of
// the first suspect at the operation of the leaf.
func TestExplainAddedTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root := drawCall(t, 3, 0)
		s := learn(t, rapid.IntRange(4, 30).Draw(t, "n"), root.text)
		if e := s.explainTrace(t, root.text()); e.Excess() != 0 || len(e.Suspects) > 0 {
			t.Errorf("a normal trace: excess %v, suspects %+v, want none", e.Excess(), e.Suspects)
		}
		leaf := rapid.SampledFrom(root.leaves()).Draw(t, "leaf")
		const added = 50_000
		leaf.own += added
		e := s.explainTrace(t, root.text())
		if e.Excess() != added || len(e.Suspects) == 0 {
			t.Fatalf("excess %v, suspects %+v, want %d and a suspect", e.Excess(), e.Suspects, added)
		}
		total := 0.0
		for _, x := range e.Suspects {
			total += x.Excess
			if x.Reason != Slow {
				t.Errorf("suspect %+v, want slow ones only", x)
			}
		}
		if math.Abs(total-added) > 1 {
			t.Errorf("the suspects have %v of %d ns", total, added)
		}
		want, first := fmt.Sprintf("op%d", leaf.name), &e.Suspects[0]
		if got := s.table.OpName(first.Op); got != want && first.Part == OwnPart || math.Abs(first.Excess-added) > 1 {
			t.Errorf("the first suspect is %s with %v ns, want %s with %d", got, first.Excess, want, added)
		}
	})
}

// If times vary, a trace with the median of each has neither excess nor suspects.
func TestExplainMedian(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root := drawCall(t, 2, 0)
		n := 2*rapid.IntRange(4, 20).Draw(t, "n") + 1
		step := 0
		s := learn(t, n, func() string {
			scaled := root.scaled(1 + float64(step)/10)
			step++
			return scaled.text()
		})
		e := s.explainTrace(t, root.scaled(1+float64(n/2)/10).text())
		if math.Abs(e.Excess()) > 1e-6*e.Usual || len(e.Suspects) > 0 {
			t.Errorf("excess %v of %v, suspects %+v, want none", e.Excess(), e.Usual, e.Suspects)
		}
	})
}

// scaled returns c with other own times.
func (c *tracedCall) scaled(by float64) *tracedCall {
	x := *c
	x.own, x.calls = int(float64(c.own)*by), nil
	for _, call := range c.calls {
		x.calls = append(x.calls, call.scaled(by))
	}
	return &x
}

// The explanation does not depend on the order of the normal traces.
func TestExplainIgnoresOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var normal []*trace.Trace
		table := &trace.Table{}
		parse := func(id int, c *tracedCall) *trace.Trace {
			tr, err := tracetext.Parse(c.text(), table)
			if err != nil {
				t.Fatal(err)
			}
			tr.ID = trace.ID{7: byte(id >> 8), 8: byte(id), 9: 1}
			return tr
		}
		types := []*tracedCall{drawCall(t, 2, 0), drawCall(t, 2, 0), drawCall(t, 2, 0)}
		for i := range 60 {
			scale := rapid.Float64Range(1, 3).Draw(t, "scale")
			normal = append(normal, parse(i, types[i%len(types)].scaled(scale)))
		}
		odd := parse(1000, drawCall(t, 2, 0))
		x := critpath.NewExtractor(critpath.DefaultOptions())
		explained := func(order []*trace.Trace) string {
			f := NewProfile(table)
			for _, tr := range order {
				f.Add(x.Extract(tr))
			}
			p := x.Extract(odd)
			e := f.Explain(p)
			return printExplanation(&e, p, table)
		}
		want := explained(normal)
		if got := explained(rapid.Permutation(normal).Draw(t, "order")); got != want {
			t.Errorf("in another order:\n%s\nwant\n%s", got, want)
		}
	})
}

// Memory is bounded for each site: a million calls take no more than some thousand.
func TestProfileBounded(t *testing.T) {
	s := newScript()
	const text = "a shop get server 0..100\n b shop query internal 10..90\n"
	tr, err := tracetext.Parse(text, s.table)
	if err != nil {
		t.Fatal(err)
	}
	p := s.x.Extract(tr)
	for i := range 20_000 {
		tr.ID = trace.ID{0: byte(i), 1: byte(i >> 8), 2: 1}
		s.profile.Add(p)
	}
	for i := range s.profile.sites {
		if d := &s.profile.sites[i].own; d.n > 0 && (d.n != 20_000 || d.sample.Len() != sampledTimes) {
			t.Errorf("site %d: %d of %d times kept, want %d of 20000", i, d.sample.Len(), d.n, sampledTimes)
		}
	}
}

// Any traces can be normal or explained.
func TestExplainHostile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := critpath.NewExtractor(critpath.DefaultOptions())
		f := NewProfile(&trace.Table{})
		all := rapid.SliceOfN(tracetest.Traces(tracetest.Everything), 1, 40).Draw(t, "traces")
		for _, tr := range all {
			f.Add(x.Extract(tr))
		}
		tr := tracetest.Traces(tracetest.Everything).Draw(t, "trace")
		p := x.Extract(tr)
		e := f.Explain(p)
		checkExplanation(t, &e, p)
	})
}

// checkExplanation checks the documented ranges.
func checkExplanation(t rapid.TB, e *Explanation, p *critpath.Path) {
	t.Helper()
	if !(e.Duration >= 0) || e.Known() == math.IsNaN(e.Excess()) {
		t.Errorf("duration %v, usual %v, excess %v", e.Duration, e.Usual, e.Excess())
	}
	for i, s := range e.Suspects {
		if !(s.Excess >= 0) || !(s.Score > 0) || math.IsInf(s.Score, 0) || s.Calls < 1 || p.Nodes[s.Node].ID != s.Span {
			t.Errorf("suspect %+v", s)
		}
		if i > 0 && s.Score > e.Suspects[i-1].Score {
			t.Errorf("suspect %d has a higher score than the one before", i)
		}
	}
}

// Explaining a trace of many spans, services and shapes takes about linear time.
func TestExplainLarge(t *testing.T) {
	const n = 5_000
	write := func(slow int) string {
		var b strings.Builder
		fmt.Fprintf(&b, "%x hub get server 0..%d\n", n*4, n*(100+slow))
		for i := range n {
			from := i * (100 + slow)
			fmt.Fprintf(&b, " %x hub get client %d..%d\n  %x s%x get server %d..%d\n",
				2*i+1, from, from+90+slow, 2*i+2, i, from+10+slow, from+80+slow)
		}
		return b.String()
	}
	s := newScript()
	if err := s.add(write(0), 5); err != nil {
		t.Fatal(err)
	}
	tr, err := tracetext.Parse(write(50), s.table)
	if err != nil {
		t.Fatal(err)
	}
	p := s.x.Extract(tr)
	e := s.profile.Explain(p)
	checkExplanation(t, &e, p)
	if e.Excess() != 50*n || len(e.Suspects) == 0 {
		t.Errorf("excess %v, %d suspects, want %d and some", e.Excess(), len(e.Suspects), 50*n)
	}
}
