package critpath_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetest"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetext"
	"github.com/sibyl-trace/sibyl/trace"
)

// TestWhatIf runs the scripts of testdata/whatif:
//
//	whatif op=OPERATION to=NS [level=request_type]
//
// with a trace as input. Each edge of a span with that operation then takes NS nanoseconds.
func TestWhatIf(t *testing.T) {
	datadriven.Walk(t, "testdata/whatif", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			table := &trace.Table{}
			tr, err := tracetext.Parse(d.Input, table)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			var name, to, level string
			d.ScanArgs(t, "op", &name)
			d.ScanArgs(t, "to", &to)
			d.MaybeScanArgs(t, "level", &level)
			nanos, err := strconv.ParseInt(to, 10, 64)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			p := critpath.NewExtractor(critpath.DefaultOptions()).Extract(tr)
			edges := make(map[trace.Edge]string)
			for i := range p.Nodes {
				edges[trace.ContextEdge(p.Nodes[i].Full)] = table.OpName(p.Span(int32(i)).Op)
			}
			coarse := level == "request_type"
			var o observation.Observation
			new(observation.Observer).Observe(p, 0, &o)
			for _, e := range o.Edges {
				edges[e.Edge] = edges[trace.ContextEdge(e.Context)]
			}
			var b strings.Builder
			after := critpath.WhatIf(p, 0, coarse, func(e trace.Edge, had int64) int64 {
				if edges[e] != name {
					return had
				}
				fmt.Fprintf(&b, "%s %d→%d\n", edges[e], had, nanos)
				return nanos
			})
			fmt.Fprintf(&b, "root %d→%d\n", p.Duration(&p.Roots[0]).Nanoseconds(), after.Nanoseconds())
			return b.String()
		})
	})
}

// oracleReplay is a second implementation of WhatIf, written from the definition: recursive and quadratic.
type oracleReplay struct {
	path  *critpath.Path
	scale func(node, before, after int32, nanos int64) int64
}

func (r *oracleReplay) children(i int32) (all []int32) {
	for c := range r.path.Nodes {
		n := &r.path.Nodes[c]
		if n.Anchor == int32(c) && n.Root >= 0 && r.path.Caller(int32(c)) == i && n.Start < n.End {
			all = append(all, int32(c))
		}
	}
	return all
}

// last returns the child that ended last by cursor, or -1: the earliest of several, and then the one with the smallest
// ID.
func (r *oracleReplay) last(children []int32, cursor trace.Nanos) int32 {
	best := int32(-1)
	for _, c := range children {
		n := &r.path.Nodes[c]
		if n.End > cursor {
			continue
		}
		if best < 0 {
			best = c
			continue
		}
		m := &r.path.Nodes[best]
		if n.End > m.End || n.End == m.End && (n.Start < m.Start || n.Start == m.Start && n.ID < m.ID) {
			best = c
		}
	}
	return best
}

// at returns the new time, after the start of node i, of the event at cursor: the start of child after, or the end of i
// if after is -1.
func (r *oracleReplay) at(i int32, cursor trace.Nanos, after int32) int64 {
	children := r.children(i)
	before := r.last(children, cursor)
	was, latest := r.path.Nodes[i].Start, int64(0)
	if before >= 0 {
		was = r.path.Nodes[before].End
	}
	for _, c := range children {
		if n := &r.path.Nodes[c]; n.End <= cursor {
			latest = max(latest, r.at(i, n.Start, c)+r.duration(c))
		}
	}
	return latest + r.scale(i, before, after, int64(cursor-was))
}

func (r *oracleReplay) duration(i int32) int64 { return r.at(i, r.path.Nodes[i].End, -1) }

func drawPath(t *rapid.T, shape tracetest.Shape) (*critpath.Path, int) {
	p := critpath.NewExtractor(critpath.DefaultOptions()).Extract(tracetest.Traces(shape).Draw(t, "trace"))
	if len(p.Roots) == 0 {
		t.Skip("no root")
	}
	return p, rapid.IntRange(0, len(p.Roots)-1).Draw(t, "root")
}

// drawChanges returns new times for some edges of a root, up to percent of the current ones.
func drawChanges(t *rapid.T, p *critpath.Path, root, percent int) map[trace.Edge]int64 {
	changes := make(map[trace.Edge]int64)
	critpath.WhatIf(p, root, false, func(e trace.Edge, had int64) int64 {
		if rapid.Bool().Draw(t, "changed") {
			changes[e] = had * int64(rapid.IntRange(0, percent).Draw(t, "percent")) / 100
		}
		return had
	})
	return changes
}

func TestWhatIfOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, root := drawPath(t, tracetest.Shape{Skewed: true, Broken: true})
		changes := drawChanges(t, p, root, 200)
		totals := make(map[trace.Edge]int64)
		got := critpath.WhatIf(p, root, false, func(e trace.Edge, had int64) int64 {
			totals[e] = had
			if to, ok := changes[e]; ok {
				return to
			}
			return had
		})
		op := func(i int32) trace.Op {
			if i < 0 {
				return 0
			}
			return p.Nodes[i].Step
		}
		oracle := oracleReplay{path: p, scale: func(node, before, after int32, nanos int64) int64 {
			e := trace.EdgeOf(p.Nodes[node].Full, op(before), op(after))
			to, ok := changes[e]
			if !ok {
				return nanos
			}
			return (nanos*to + totals[e] - 1) / totals[e]
		}}
		if want := oracle.duration(p.Roots[root].Node); int64(got) != want {
			t.Fatalf("WhatIf() = %d, want %d\n%s", got, want, dump(p.Trace))
		}
	})
}

// Shorter edges never lengthen a request, and save no more than the reduction of their times. Unchanged edges change
// nothing.
func TestWhatIfProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, root := drawPath(t, tracetest.Everything)
		before := p.Duration(&p.Roots[root])
		coarse := rapid.Bool().Draw(t, "coarse")
		same := critpath.WhatIf(p, root, coarse, func(_ trace.Edge, had int64) int64 { return had })
		if same != before {
			t.Fatalf("%d→%d with unchanged edges\n%s", before, same, dump(p.Trace))
		}
		percent := int64(rapid.IntRange(0, 100).Draw(t, "percent"))
		var saved int64
		after := critpath.WhatIf(p, root, coarse, func(e trace.Edge, had int64) int64 {
			if uint64(e)>>7&1 == 0 {
				return had
			}
			saved += had - had*percent/100
			return had * percent / 100
		})
		if after > before || before-after > time.Duration(saved) {
			t.Fatalf("%d→%d with edges shortened by %d\n%s", before, after, saved, dump(p.Trace))
		}
		if nothing := critpath.WhatIf(p, root, coarse, func(trace.Edge, int64) int64 { return 0 }); nothing > after {
			t.Fatalf("%d with empty edges, %d with longer ones\n%s", nothing, after, dump(p.Trace))
		}
	})
}

func BenchmarkWhatIf(b *testing.B) {
	traces := benchTraces(16, 50, false)
	x := critpath.NewExtractor(critpath.DefaultOptions())
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		p := x.Extract(&traces[i%len(traces)])
		critpath.WhatIf(p, 0, false, func(e trace.Edge, had int64) int64 { return had / 2 })
		i++
	}
	reportSpans(b, 50)
}
