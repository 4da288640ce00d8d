package search

import (
	"maps"
	"slices"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// TestHistoryIsSmoothed checks that locations of past causes, their siblings and children have larger prior weights.
// Without history all prior weights are equal, and never 0.
func TestHistoryIsSmoothed(t *testing.T) {
	const entry, was, beside, below, far = 1, 2, 3, 4, 5
	root := trace.Context(0).Child(entry)
	weights := func(h cct.History) map[trace.Symbol]float64 {
		var b cct.Builder
		catalogue := cct.NewCatalogue([]cct.Tracepoint{
			{ID: entry, Op: entry, Baseline: true},
			{ID: was, Op: was, Owner: entry},
			{ID: beside, Op: beside, Owner: entry},
			{ID: below, Op: below, Owner: entry, Parent: was},
			{ID: far, Op: far, Owner: entry, Parent: beside},
		}, nil)
		b.Observe(cct.Observation{On: []trace.Symbol{was}, Contexts: []cct.ContextCount{
			{Context: root, Op: entry, Count: 1},
			{Context: root.Child(was), Parent: root, Op: was, Tracepoint: was, Count: 1},
		}})
		if h.N > 0 {
			b.Learn(root.Child(was), h)
		}
		p := detect.Problem{Edges: []group.EdgeShare{{Edge: trace.ContextEdge(root), Context: root, Score: 1}}}
		searched, _ := scopesOf(&p, b.Build(catalogue, nil), nil)
		m := make(map[trace.Symbol]float64)
		for _, c := range searched[0].locations[1:] {
			m[c.tp] = c.priorWeight
		}
		return m
	}
	if m := weights(cct.History{}); m[was] != 1 || m[beside] != 1 || m[below] != 1 || m[far] != 1 {
		t.Errorf("without history %v", m)
	}
	if m := weights(cct.HistoryOf(0.9, 0)); m[was] <= m[beside] || m[beside] <= m[far] || m[below] <= m[far] {
		t.Errorf("a cause: %v", m)
	}
	if m := weights(cct.HistoryOf(0, 0)); m[was] >= m[far] || m[beside] >= m[far] || m[was] <= 0 {
		t.Errorf("none: %v", m)
	}
}

// No function runs within a database statement, which emits no spans, but a thread may wait in the kernel there.
func TestCallsThatLeaveTheApplication(t *testing.T) {
	var table trace.Table
	service, name := table.Symbol("shop"), table.Symbol("SELECT")
	function, probe := table.Symbol("shop/Stock.reserve"), table.Symbol("shop/wait")
	call := table.Op(service, name, trace.Client)
	catalogue := cct.NewCatalogue([]cct.Tracepoint{
		{ID: function, Op: table.Op(service, function, trace.Internal), Layer: cct.App},
		{ID: probe, Op: table.Op(service, probe, trace.Internal), Layer: cct.Kernel, Kind: cct.ProbePoint},
	}, &table)
	for target, want := range map[trace.Op][]trace.Symbol{
		0: {function, probe},
		table.Op(table.Symbol("stock"), name, trace.Server):   {function, probe},
		table.Op(table.Symbol("mysql"), name, trace.External): {probe},
	} {
		step := table.Step(call, target)
		root := table.Child(0, step)
		var b cct.Builder
		b.Observe(cct.Observation{Contexts: []cct.ContextCount{{Context: root, Op: step, Count: 1}}})
		p := detect.Problem{Edges: []group.EdgeShare{{Edge: trace.ContextEdge(root), Context: root, Score: 1}}}
		searched, _ := scopesOf(&p, b.Build(catalogue, &table), &table)
		var got []trace.Symbol
		for _, l := range searched[0].locations[1:] {
			got = append(got, l.tp)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("a call of %q: locations %v, want %v", table.OpName(target), got, want)
		}
	}
}

// A tracepoint whose place is unknown lies below its caller, even if the caller's place is unknown or was seen. Cycles
// of callers and unknown callers change nothing.
func TestCallersOfUnplaced(t *testing.T) {
	var table trace.Table
	service := table.Symbol("shop")
	callers := map[string]string{
		"page": "", "cards": "page", "price": "cards", "ping": "pong", "pong": "ping", "lost": "gone",
		"seen": "", "below": "seen", "inner": "below",
	}
	for _, tp := range slices.Sorted(maps.Keys(callers)) {
		table.Symbol(tp)
	}
	var list []cct.Tracepoint
	for tp, caller := range callers {
		id := table.Symbol(tp)
		op := table.Op(service, id, trace.Internal)
		list = append(list, cct.Tracepoint{ID: id, Op: op, Parent: table.Symbol(caller)})
	}
	entry := table.Op(service, table.Symbol("GET"), trace.Server)
	seen := table.Op(service, table.Symbol("seen"), trace.Internal)
	root := table.Child(0, entry)
	var b cct.Builder
	b.Observe(cct.Observation{On: []trace.Symbol{table.Symbol("seen")}, Contexts: []cct.ContextCount{
		{Context: root, Op: entry, Count: 1},
		{Context: table.Child(root, seen), Parent: root, Op: seen, Tracepoint: table.Symbol("seen"), Count: 1},
	}})
	p := detect.Problem{Edges: []group.EdgeShare{{Edge: trace.ContextEdge(root), Context: root, Score: 1}}}
	searched, _ := scopesOf(&p, b.Build(cct.NewCatalogue(list, &table), &table), &table)
	got := make(map[string]string)
	for _, l := range searched[0].locations[1:] {
		got[table.Text(l.tp)] = table.Text(searched[0].locations[l.parent].tp)
	}
	want := maps.Clone(callers)
	want["pong"], want["lost"] = "", ""
	if !maps.Equal(got, want) {
		t.Errorf("callers %v, want %v", got, want)
	}
}
