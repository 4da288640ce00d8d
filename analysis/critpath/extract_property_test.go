package critpath_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/internal/testkit/oracle"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetest"
	"github.com/sibyl-trace/sibyl/trace"
)

// partitionOptions generates options that keep sections from overlapping.
func partitionOptions(t *rapid.T) critpath.Options {
	o := optionsFrom(rapid.IntRange(0, 31).Draw(t, "options"))
	o.OverlapTolerance = 0
	return o
}

// observations returns the observation of each root with a duration, by the root's span ID.
func observations(p *critpath.Path) map[trace.SpanID]*observation.Observation {
	all := map[trace.SpanID]*observation.Observation{}
	var observer observation.Observer
	for i := range p.Roots {
		if p.Duration(&p.Roots[i]) > 0 {
			o := new(observation.Observation)
			observer.Observe(p, i, o)
			all[o.Root] = o
		}
	}
	return all
}

// Sections partition the interval of their root, and refined sections partition each section. No section is empty.
func TestPartition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := tracetest.Traces(tracetest.Everything).Draw(t, "trace")
		p := critpath.NewExtractor(partitionOptions(t)).Extract(tr)
		for i := range p.Roots {
			r := &p.Roots[i]
			n := &p.Nodes[r.Node]
			if n.Start < n.End {
				checkPartition(t, r.Sections, n.Start, n.End)
			} else if len(r.Sections) > 0 {
				t.Fatalf("an empty root has sections %v", r.Sections)
			}
			if len(r.Refined) == 0 {
				continue
			}
			for j, s := range r.Sections {
				elsewhere := func(s critpath.Section) bool { return s.Within != int32(j) }
				parts := slices.DeleteFunc(slices.Clone(r.Refined), elsewhere)
				checkPartition(t, parts, s.Start, s.End)
				for _, part := range parts {
					if p.Nodes[part.Node].Anchor != s.Node {
						t.Fatalf("part %v of section %v has anchor %d", part, s, p.Nodes[part.Node].Anchor)
					}
				}
			}
		}
	})
}

func checkPartition(t *rapid.T, sections []critpath.Section, start, end trace.Nanos) {
	at := start
	for _, s := range sections {
		if s.Start != at || s.End <= s.Start {
			t.Fatalf("section %v, want a start of %d and a later end", s, at)
		}
		at = s.End
	}
	if at != end {
		t.Fatalf("sections end at %d, want %d", at, end)
	}
}

// The edges, their parts and the exclusive times of an observation add up.
func TestSums(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := tracetest.Traces(tracetest.Everything).Draw(t, "trace")
		for _, o := range observations(critpath.NewExtractor(partitionOptions(t)).Extract(tr)) {
			sum := func(edges []observation.EdgeTime, within trace.Edge) (n int64) {
				for _, e := range edges {
					if e.Nanos <= 0 {
						t.Fatalf("edge %+v, want a positive time", e)
					}
					if e.Within == within {
						n += e.Nanos
					}
				}
				return n
			}
			if d := sum(o.Edges, 0); d != int64(o.Duration) {
				t.Fatalf("edges add up to %d, want %d", d, o.Duration)
			}
			exclusive := int64(0)
			for _, c := range o.Contexts {
				if c.Tracepoint == 0 {
					exclusive += c.Exclusive
				}
				if c.Self < 0 || c.Self > c.Total || c.Errors > c.Count {
					t.Fatalf("context %+v, want 0 <= self <= total and errors <= count", c)
				}
			}
			if exclusive != int64(o.Duration) {
				t.Fatalf("exclusive times add up to %d, want %d", exclusive, o.Duration)
			}
			for _, e := range o.Refined {
				i := slices.IndexFunc(o.Edges, func(f observation.EdgeTime) bool { return f.Edge == e.Within })
				if i < 0 || sum(o.Refined, e.Within) != o.Edges[i].Nanos {
					t.Fatalf("the parts of edge %x do not add up to it: %+v", e.Within, o)
				}
			}
			checkParents(t, o, len(tr.Joins) > 0)
		}
	})
}

// checkParents checks that contexts ascend, and that the parent of each is in the observation, too, unless there are
// joins.
func checkParents(t *rapid.T, o *observation.Observation, joins bool) {
	known := map[trace.Context]bool{0: true}
	for i, c := range o.Contexts {
		if i > 0 && c.Context <= o.Contexts[i-1].Context {
			t.Fatalf("context %x after %x, want ascending contexts", c.Context, o.Contexts[i-1].Context)
		}
		if c.Parent.Child(c.Step()) != c.Context {
			t.Fatalf("context %+v, want ID %x", c, c.Parent.Child(c.Step()))
		}
		known[c.Context] = true
	}
	for _, c := range o.Contexts {
		if !known[c.Parent] && !joins {
			t.Fatalf("the parent of context %+v is missing", c)
		}
	}
}

// The order of spans, attributes and joins does not matter, nor does their division into batches.
func TestPermutation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := tracetest.Traces(tracetest.Everything).Draw(t, "trace")
		order := make([]int, len(tr.Spans))
		for i := range order {
			order[i] = i
		}
		permuted := tracetest.Permute(tr, rapid.Permutation(order).Draw(t, "order"))
		permuted.Attrs = rapid.Permutation(permuted.Attrs).Draw(t, "attrs")
		o := optionsFrom(rapid.IntRange(0, 63).Draw(t, "options"))
		same(t, critpath.NewExtractor(o).Extract(tr), critpath.NewExtractor(o).Extract(permuted))
		split := rapid.IntRange(0, len(tr.Spans)).Draw(t, "split")
		batches := [2]trace.Trace{}
		for i := range tr.Spans {
			batch := &batches[0]
			if i < split {
				batch = &batches[1]
			}
			tracetest.Move(batch, tr, int32(i))
		}
		batches[0].ID = tr.ID
		batches[0].Append(&batches[1])
		same(t, critpath.NewExtractor(o).Extract(tr), critpath.NewExtractor(o).Extract(&batches[0]))
	})
}

func same(t *rapid.T, p, q *critpath.Path) {
	if diff := cmp.Diff(oracle.Describe(p), oracle.Describe(q), ignoreEmpty); diff != "" {
		t.Fatalf("%s%s", dump(q.Trace), diff)
	}
	if diff := cmp.Diff(observations(p), observations(q), ignoreEmpty); diff != "" {
		t.Fatalf("%s%s", dump(q.Trace), diff)
	}
}

// Shifting the times of spans shifts the sections.
func TestTimeShift(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := tracetest.Traces(tracetest.Everything).Draw(t, "trace")
		by := trace.Nanos(rapid.Int64Range(0, int64(trace.MaxNanos)-5000).Draw(t, "by"))
		o := optionsFrom(rapid.IntRange(0, 63).Draw(t, "options"))
		p := critpath.NewExtractor(o).Extract(tr)
		all := observations(p)
		for _, o := range all {
			o.Start += by
		}
		for i := range p.Roots {
			for _, list := range [][]critpath.Section{p.Roots[i].Sections, p.Roots[i].Refined} {
				for j := range list {
					list[j].Start += by
					list[j].End += by
				}
			}
		}
		for i := range p.Nodes {
			p.Nodes[i].Start += by
			p.Nodes[i].End += by
		}
		shifted := critpath.NewExtractor(o).Extract(tracetest.Shift(tr, by))
		if diff := cmp.Diff(oracle.Describe(p), oracle.Describe(shifted), ignoreEmpty); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(all, observations(shifted), ignoreEmpty); diff != "" {
			t.Fatal(diff)
		}
	})
}

// Work that another process starts after a span ended, or that ended before it, is a request of its own. It changes
// nothing about the paths of the other roots.
func TestDetachedWork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := tracetest.Traces(tracetest.Shape{Joins: true}).Draw(t, "trace")
		o := partitionOptions(t)
		p := critpath.NewExtractor(o).Extract(tr)
		want := oracle.Describe(p)
		parent := tr.Spans[rapid.IntRange(0, len(tr.Spans)-1).Draw(t, "parent")]
		for parent.Tracepoint != 0 {
			parent = tr.Spans[parent.Parent-1]
		}
		delay := trace.Nanos(rapid.IntRange(0, 50).Draw(t, "delay"))
		work := trace.Span{ID: 777, Parent: parent.ID, Start: parent.End +
			delay, End: parent.End + delay + 9, Op: 5, Service: 99}
		wait := time.Duration(delay)
		if rapid.Bool().Draw(t, "before") {
			work.Start, work.End, wait = parent.Start-9, parent.Start, 0
		}
		more := *tr
		more.Spans = append(slices.Clone(tr.Spans), work)
		q := critpath.NewExtractor(o).Extract(&more)
		at := slices.IndexFunc(q.Roots, func(r critpath.Root) bool { return q.Nodes[r.Node].ID == work.ID })
		if at < 0 {
			t.Fatalf("%sthe work is no root", dump(&more))
		}
		r := &q.Roots[at]
		if r.Origin != critpath.Detached || q.Duration(r) != 9 {
			t.Fatalf("%sthe work is no detached root: %+v", dump(&more), r)
		}
		if w, ok := q.Wait(at); !ok || w.Time != wait || w.Caller != parent.Op || w.Own != work.Op {
			t.Fatalf("%swait %+v, want %v", dump(&more), w, wait)
		}
		got := oracle.Describe(q).Roots
		if diff := cmp.Diff(want.Roots, slices.Delete(got, at, at+1)); diff != "" {
			t.Fatalf("%s%s", dump(&more), diff)
		}
	})
}

// The error of one process's clock changes neither the time that is charged to each service, nor the duration.
func TestWrongClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const processes = 4
		hosts := rapid.Bool().Draw(t, "hosts")
		nanos := func(label string) trace.Nanos { return trace.Nanos(rapid.IntRange(1, 1000).Draw(t, label)) }
		tr := &trace.Trace{ID: trace.ID{1}}
		var call func(service trace.Symbol, start trace.Nanos, parent trace.SpanID) trace.Nanos
		call = func(service trace.Symbol, start trace.Nanos, parent trace.SpanID) trace.Nanos {
			s := trace.Span{
				ID: trace.SpanID(len(tr.Spans) + 1), Parent: parent,
				Start: start, Kind: trace.Server, Service: service, Op: trace.Op(service),
			}
			if hosts {
				s.Host = service
			}
			tr.Spans = append(tr.Spans, s)
			at := start + nanos("before")
			for range rapid.IntRange(0, 2).Draw(t, "calls") {
				if service == processes {
					break
				}
				c := s
				c.ID, c.Parent, c.Start, c.Kind, c.Op = trace.SpanID(len(tr.Spans)+1),
					s.ID, at, trace.Client, trace.Op(service+100)
				tr.Spans = append(tr.Spans, c)
				at = call(service+1, at+nanos("wire"), c.ID) + nanos("wire")
				tr.Spans[c.ID-1].End = at
				at += nanos("between")
			}
			tr.Spans[s.ID-1].End = at
			return at
		}
		call(1, trace.MaxNanos/2, 0)
		charged := func(tr *trace.Trace) map[trace.Symbol]trace.Nanos {
			p := critpath.NewExtractor(critpath.DefaultOptions()).Extract(tr)
			if len(p.Roots) != 1 || p.Flags&(critpath.FlagClamped|critpath.FlagMoved) != 0 {
				t.Fatalf("%sflags %v, %d roots", dump(tr), p.Flags.Names(), len(p.Roots))
			}
			all := make(map[trace.Symbol]trace.Nanos)
			for _, s := range p.Roots[0].Sections {
				all[p.Span(s.Node).Service] += s.End - s.Start
			}
			return all
		}
		want := charged(tr)
		wrong := trace.Symbol(rapid.IntRange(1, processes).Draw(t, "wrong"))
		by := trace.Nanos(rapid.Int64Range(-int64(trace.MaxNanos)/3, int64(trace.MaxNanos)/3).Draw(t, "by"))
		shifted := &trace.Trace{ID: tr.ID, Spans: slices.Clone(tr.Spans)}
		for i := range shifted.Spans {
			if s := &shifted.Spans[i]; s.Service == wrong {
				s.Start, s.End = s.Start+by, s.End+by
			}
		}
		if diff := cmp.Diff(want, charged(shifted)); diff != "" {
			t.Fatalf("%s%s", dump(shifted), diff)
		}
	})
}

// Removing tracepoint spans changes neither the duration, nor the skeleton, nor the time of any edge.
func TestRemoveTracepointSpans(t *testing.T) {
	for name, shape := range map[string]tracetest.Shape{
		"plain": {Spans: 20}, "skewed": {Spans: 20, Skewed: true, Joins: true},
		"broken": {Spans: 20, Broken: true, Distinct: true, Skewed: true, Joins: true},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				tr := tracetest.Traces(shape).Draw(t, "trace")
				off := rapid.SliceOfN(rapid.Bool(), len(tr.Spans), len(tr.Spans)).Draw(t, "off")
				o := optionsFrom(rapid.IntRange(0, 63).Draw(t, "options"))
				without := tracetest.Without(tr, func(i int) bool { return off[i] })
				want := observations(critpath.NewExtractor(o).Extract(without))
				got := observations(critpath.NewExtractor(o).Extract(tr))
				for _, all := range []map[trace.SpanID]*observation.Observation{want, got} {
					for _, o := range all {
						o.Contexts, o.Refined, o.Variables = nil, nil, nil
					}
				}
				if diff := cmp.Diff(want, got, ignoreEmpty); diff != "" {
					t.Fatalf("%swithout\n%s%s", dump(tr), dump(without), diff)
				}
			})
		})
	}
}

// Extract and Observe allocate nothing once their buffers have grown.
func TestAllocations(t *testing.T) {
	var traces []*trace.Trace
	for i := range 200 {
		traces = append(traces, tracetest.Traces(tracetest.Everything).Example(i))
	}
	many := benchTraces(20, 50, true)
	for i := range many {
		traces = append(traces, &many[i])
	}
	x := critpath.NewExtractor(critpath.DefaultOptions())
	var observer observation.Observer
	var into observation.Observation
	run := func() {
		for _, tr := range traces {
			p := x.Extract(tr)
			for i := range p.Roots {
				if p.Duration(&p.Roots[i]) > 0 {
					observer.Observe(p, i, &into)
				}
			}
		}
	}
	run()
	if n := testing.AllocsPerRun(5, run); n > 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// Times at the ends of the valid range do not overflow.
func TestExtremeTimes(t *testing.T) {
	tr := &trace.Trace{Spans: []trace.Span{
		{ID: 1, End: trace.MaxNanos, Kind: trace.Client, Host: 1, Op: 1},
		{ID: 2, Parent: 1, Start: trace.MaxNanos, End: trace.MaxNanos, Kind: trace.Server, Host: 2, Op: 2},
		{ID: 3, Parent: 2, Start: trace.MaxNanos - 1, End: trace.MaxNanos, Kind: trace.Client, Host: 2, Op: 3},
		{ID: 4, Parent: 3, Start: 0, End: 2, Kind: trace.Server, Host: 1, Op: 4},
	}}
	p := critpath.NewExtractor(critpath.DefaultOptions()).Extract(tr)
	for i := range p.Nodes {
		if n := &p.Nodes[i]; n.Root >= 0 && (n.Start > n.End || n.Start < 0 || n.End > trace.MaxNanos) {
			t.Errorf("node %d is %d..%d, want times in [0, MaxNanos]", i, n.Start, n.End)
		}
	}
	if p.Flags&critpath.FlagTooLong == 0 || p.Unusable(0) != trace.TooLong {
		t.Errorf("flags %v, unusable %q, want too_long", p.Flags.Names(), p.Unusable(0))
	}
}

// A tracepoint has no vote on the clock of a tree. If it had, two of three spans here would have the caller's clock.
func TestTracepointKeepsClock(t *testing.T) {
	tr := &trace.Trace{Spans: []trace.Span{
		{ID: 1, Start: 100, End: 200, Kind: trace.Client, Host: 1, Op: 1},
		{ID: 2, Parent: 1, Start: 0, End: 100, Kind: trace.Server, Host: 2, Op: 2},
		{ID: 3, Parent: 1, Start: 110, End: 120, Host: 1, Op: 3, Tracepoint: 1},
	}}
	with := critpath.NewExtractor(critpath.DefaultOptions()).Extract(tr).Nodes[0].Start
	without := tracetest.Without(tr, func(i int) bool { return i == 2 })
	if want := critpath.NewExtractor(critpath.DefaultOptions()).Extract(without).Nodes[0].Start; with != want {
		t.Errorf("the root starts at %d with a tracepoint, at %d without", with, want)
	}
}
