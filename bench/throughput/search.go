package throughput

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
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

// Size of the searched tree.
const (
	treeNodes    = 100_000
	treeBaseline = 200
	treeDepth    = 24 // of the deepest node
)

// Search measures decisions over a large calling-context tree, for each strategy.
func Search(ctx context.Context, o Options) (*Result, error) {
	o = o.withDefaults()
	nodes := treeNodes
	if o.Small {
		nodes = 2000
	}
	c := newSearchCase(o.Seed, nodes, treeBaseline)
	result := &Result{Benchmark: "search", Input: "a tree of " + units.Plural(len(c.tree.Nodes), "node") + ", " +
		units.Count(treeBaseline) + " of them baseline"}
	for _, strategy := range eval.Strategies() {
		if err := o.measureDecisions(ctx, result, strategy.Name, c, strategy); err != nil {
			return nil, err
		}
	}
	if err := o.measureDecisions(ctx, result, "adaptive, all nodes below one edge", newSearchCase(o.Seed, nodes, 1),
		search.Strategy{}); err != nil {
		return nil, err
	}
	build, err := o.measure(ctx, func() error {
		c.builder.Build(nil, &c.table)
		return nil
	})
	if err != nil {
		return nil, err
	}
	result.add("building the tree", build.each(1, "ns_per_build", "build"))
	return result, nil
}

// measureDecisions measures the first and the second decision about a problem.
func (o Options) measureDecisions(
	ctx context.Context, result *Result, name string, c *searchCase, strategy search.Strategy,
) error {
	in := search.Input{
		Now:      1,
		Problems: []search.Problem{search.ProblemOf(&c.problem)},
		Trees:    map[analysis.Hash]*cct.Tree{c.problem.RequestType: c.tree},
		Rates:    map[analysis.Hash]float64{c.problem.RequestType: c.problem.Rate},
		Table:    &c.table,
		Budget:   search.Budget{Tracepoints: 500},
		Strategy: strategy,
		Seed:     o.Seed,
		Epoch:    10 * time.Second,
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
	result.add(name, first.each(1, "ns_per_decision", "first decision"),
		second.each(1, "ns_per_next_decision", "next decision"),
		first.allocated(1, "allocations_per_decision", "decision"),
		Value{"picks", float64(picks), units.Plural(picks, "pick")})
	return nil
}

// searchCase is a calling-context tree with a problem.
type searchCase struct {
	table   trace.Table
	builder cct.Builder
	tree    *cct.Tree
	problem detect.Problem
}

// treeNode is a node of a tree under construction.
type treeNode struct {
	full     trace.Context
	baseline trace.Context // of the nearest baseline operation
	service  trace.Symbol
	depth    int
}

// newSearchCase returns a random tree with tracepoints below baseline operations, and a problem with half of the
// variance in its first edge.
func newSearchCase(seed uint64, nodes, baseline int) *searchCase {
	r := rand.New(rand.NewPCG(seed, 3))
	c := &searchCase{problem: detect.Problem{
		ID:          analysis.Hash{Hi: 1},
		RequestType: analysis.Hash{Hi: 2},
		Group:       analysis.Hash{Hi: 2},
		Requests:    5000,
		Rate:        50,
		Mean:        100 * time.Millisecond,
		CoV:         0.8,
		CoVLow:      0.7,
		CoVHigh:     0.9,
		Impact:      1e9,
	}}
	full := cct.Observation{Seen: 1}
	var all []treeNode
	for len(all) < nodes {
		var parent treeNode
		if len(all) > 0 {
			parent = all[r.IntN(len(all))]
		}
		if parent.depth >= treeDepth {
			continue
		}
		n, sighting := c.child(parent, len(all), len(all) < baseline)
		all = append(all, n)
		full.Contexts = append(full.Contexts, sighting)
		if sighting.Tracepoint != 0 {
			full.On = append(full.On, sighting.Tracepoint)
		}
	}
	slices.Sort(full.On)
	c.builder.Observe(full)
	c.tree = c.builder.Build(nil, &c.table)
	c.addEdges(all[:min(baseline, len(all))])
	return c
}

// child returns node i, a baseline operation or a tracepoint, below parent.
func (c *searchCase) child(parent treeNode, i int, baseline bool) (treeNode, cct.ContextCount) {
	name := c.table.Symbol(fmt.Sprintf("op-%d", i))
	n := treeNode{depth: parent.depth + 1, service: parent.service, baseline: parent.baseline}
	kind := trace.Internal
	if baseline {
		n.service, kind = c.table.Symbol(fmt.Sprintf("service-%d", i%40)), trace.Server
	}
	op := c.table.Op(n.service, name, kind)
	n.full = c.table.Child(parent.full, op)
	s := cct.ContextCount{Context: n.full, Parent: parent.full, Op: op, Count: 1}
	if baseline {
		n.baseline = c.table.Child(parent.baseline, op)
	} else {
		s.Tracepoint = name
	}
	return n, s
}

// addEdges adds an edge of the problem for each baseline operation, the root's first.
func (c *searchCase) addEdges(baseline []treeNode) {
	c.problem.Entry = c.table.Context(baseline[0].baseline).Op
	for i, n := range baseline {
		share := 0.5
		if i > 0 {
			share /= float64(len(baseline) - 1)
		}
		c.problem.Edges = append(c.problem.Edges, group.EdgeShare{
			Edge:          trace.ContextEdge(n.baseline),
			Context:       n.baseline,
			Mean:          1e8 * share,
			ShareMean:     share,
			ShareVariance: share,
			ShareLow:      share * 0.9,
			ShareHigh:     share * 1.1,
			Score:         share,
		})
	}
}
