package throughput

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/bench/eval"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Sizes of the searched tree.
const (
	nodesOfTree    = 100_000
	baselineOfTree = 200
	deepest        = 24
)

// Search measures a decision over a large calling-context tree, for each strategy.
func Search(ctx context.Context, o Options) (*Result, error) {
	o = o.withDefaults()
	nodes := nodesOfTree
	if o.Small {
		nodes = 2000
	}
	f := newForest(o.Seed, nodes, baselineOfTree)
	result := &Result{Benchmark: "search", Input: "a tree of " + units.Plural(len(f.tree.Nodes), "node") + ", of these " +
		units.Count(baselineOfTree) + " of the baseline"}
	for _, strategy := range eval.Strategies() {
		if err := o.deciding(ctx, result, strategy.Name, f, strategy); err != nil {
			return nil, err
		}
	}
	if err := o.deciding(ctx, result, "adaptive, all nodes below one edge", newForest(o.Seed, nodes, 1), search.Strategy{}); err != nil {
		return nil, err
	}
	c, err := o.measure(ctx, func() error {
		f.builder.Build(nil, &f.table)
		return nil
	})
	if err != nil {
		return nil, err
	}
	result.add("building the tree", c.each(1, "ns_per_build", "build"))
	return result, nil
}

// deciding measures the first and the second decision about a problem.
func (o Options) deciding(ctx context.Context, result *Result, name string, f *forest, strategy search.Strategy) error {
	in := search.Input{
		Now: 1, Problems: []detect.Problem{f.problem}, Trees: map[analysis.Hash]*cct.Tree{f.problem.RequestType: f.tree},
		Rates: map[analysis.Hash]float64{f.problem.RequestType: f.problem.Rate}, Table: &f.table,
		Budget: search.Budget{Tracepoints: 500}, Strategy: strategy, Seed: o.Seed, Epoch: 10 * time.Second,
	}
	var state search.State
	picks := 0
	first, err := o.measure(ctx, func() error {
		var decisions []search.Decision
		state, decisions = search.Next(in)
		picks = 0
		for i := range decisions {
			picks += len(decisions[i].Picks)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if picks == 0 && !o.Small {
		return fmt.Errorf("strategy %s picked nothing", name)
	}
	in.State, in.Now = state, in.Now.Add(in.Epoch)
	second, err := o.measure(ctx, func() error {
		search.Next(in)
		return nil
	})
	if err != nil {
		return err
	}
	result.add(name, first.each(1, "ns_per_decision", "first decision"), second.each(1, "ns_per_next_decision", "next decision"),
		first.allocated(1, "allocations_per_decision", "decision"), Value{"picks", float64(picks), units.Plural(picks, "pick")})
	return nil
}

// forest is a tree to search, with a problem.
type forest struct {
	table   trace.Table
	builder cct.Builder
	tree    *cct.Tree
	problem detect.Problem
}

// treeNode is a node of the tree to build.
type treeNode struct {
	full, baseline trace.Context
	service        trace.Symbol
	id             trace.Symbol
	depth          int
	on             bool // baseline
}

// newForest returns a random tree: baseline operations above, tracepoints below them; and a problem whose first edge
// carries half of the variance.
func newForest(seed uint64, nodes, baseline int) *forest {
	r := rand.New(rand.NewPCG(seed, 3))
	f := &forest{problem: detect.Problem{
		ID: analysis.Hash{Hi: 1}, RequestType: analysis.Hash{Hi: 2}, Group: analysis.Hash{Hi: 2}, Requests: 5000, Rate: 50,
		Mean: 100 * time.Millisecond, CoV: 0.8, CoVLow: 0.7, CoVHigh: 0.9, Impact: 1e9,
	}}
	full := cct.Observation{Seen: 1, Explore: true}
	var nodesSoFar []treeNode
	for len(nodesSoFar) < nodes {
		var above treeNode
		if len(nodesSoFar) > 0 {
			above = nodesSoFar[r.IntN(len(nodesSoFar))]
		}
		if above.depth >= deepest {
			continue
		}
		p, sighting := f.node(len(nodesSoFar), above, baseline)
		nodesSoFar = append(nodesSoFar, p)
		full.Contexts = append(full.Contexts, sighting)
	}
	f.builder.Observe(full)
	f.tree = f.builder.Build(nil, &f.table)
	f.edges(nodesSoFar[:min(baseline, len(nodesSoFar))])
	return f
}

// node makes node i below another: baseline operations first, then tracepoints.
func (f *forest) node(i int, above treeNode, baseline int) (treeNode, cct.ContextCount) {
	name := f.table.Symbol(fmt.Sprintf("op-%d", i))
	p := treeNode{depth: above.depth + 1, on: i < baseline, service: above.service, id: name, baseline: above.baseline}
	kind := trace.Internal
	if p.on {
		p.service, kind = f.table.Symbol(fmt.Sprintf("service-%d", i%40)), trace.Server
	}
	op := f.table.Op(p.service, name, kind)
	p.full = f.table.Child(above.full, op)
	s := cct.ContextCount{Context: p.full, Parent: above.full, Op: op, Count: 1, Nanos: 1000}
	if p.on {
		p.baseline = f.table.Child(above.baseline, op)
	} else {
		s.Tracepoint = name
	}
	return p, s
}

// edges gives the problem an edge for each baseline operation. That of the root leads.
func (f *forest) edges(nodesSoFar []treeNode) {
	f.problem.Entry = f.table.Context(nodesSoFar[0].baseline).Op
	for i, p := range nodesSoFar {
		share := 0.5
		if i > 0 {
			share /= float64(len(nodesSoFar) - 1)
		}
		f.problem.Edges = append(f.problem.Edges, group.EdgeShare{
			Edge: trace.ContextEdge(p.baseline), Context: p.baseline, Mean: 1e8 * share, ShareMean: share, ShareVariance: share,
			ShareLow: share * 0.9, ShareHigh: share * 1.1, Score: share,
		})
	}
}
