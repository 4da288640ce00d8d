package cct

import (
	"cmp"
	"slices"

	"github.com/agnivade/levenshtein"

	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Limits on matching.
const (
	// maxCompared is the maximum number of operations of a context that are compared, counted from its end.
	maxCompared = 256
	// maxComparisons is the maximum number of edit distances computed per match. Contexts with small lower bounds on
	// their distances come first.
	maxComparisons = 4096
	// maxRunnersUp is the maximum length of Match.RunnersUp.
	maxRunnersUp = 3
)

// Match holds the nodes that match an observed calling context.
type Match struct {
	// Nodes holds all nodes whose context, without disabled tracepoints, is nearest to the observed context, ascending.
	// It is empty if no context is within a distance of half the length of the observed context.
	Nodes   []int32
	Weights []float64 // by node, proportional to hits; they add up to 1
	// Distance is the edit distance of Nodes in operations; 0 means an exact match. If Nodes is empty, it is the
	// distance of RunnersUp[0].
	Distance  int
	RunnersUp []RunnerUp // the next nearest contexts, nearest first
}

// RunnerUp is a context that is near the observed one but does not match it.
type RunnerUp struct {
	Node     int32 // the first of the nodes with that context
	Distance int
}

// Match returns the nodes that match a calling context observed while only the tracepoints in on (ascending) were
// enabled. path holds the operations of that context, root first. If no node matches exactly, it returns the nearest
// contexts by edit distance over operations.
//
// It takes O(n) time for n nodes, plus a bounded number of edit distances if no node matches exactly.
func (t *Tree) Match(path []trace.Op, on []trace.Symbol) Match {
	var ctx trace.Context
	for _, op := range path {
		ctx = ctx.Child(op)
	}
	projected := t.Project(on)
	var exact []int32
	for i, p := range projected {
		if p == ctx && t.visible(int32(i), on) {
			exact = append(exact, int32(i))
		}
	}
	if len(exact) > 0 {
		return Match{Nodes: exact, Weights: t.weigh(exact)}
	}
	return t.nearest(path, on, projected)
}

// MatchContext returns the exact matches of ctx, which must have been observed with all tracepoints disabled. Nodes is
// empty if there is no match.
func (t *Tree) MatchContext(ctx trace.Context) Match {
	at, _ := slices.BinarySearchFunc(t.byBaseline, ctx, func(i int32, ctx trace.Context) int {
		return cmp.Compare(t.baseline[i], ctx)
	})
	end := at
	for end < len(t.byBaseline) && t.baseline[t.byBaseline[end]] == ctx {
		end++
	}
	exact := t.byBaseline[at:end:end]
	return Match{Nodes: exact, Weights: t.weigh(exact)}
}

// Project returns the context of each node as it appears while only the tracepoints in on (ascending) are enabled: the
// context of the nearest visible node at or above it. If on is empty, the tree owns the result.
func (t *Tree) Project(on []trace.Symbol) []trace.Context {
	if len(on) == 0 {
		return t.baseline
	}
	projected := make([]trace.Context, len(t.Nodes))
	for i := range t.Nodes {
		n := &t.Nodes[i]
		if n.Parent >= 0 {
			projected[i] = projected[n.Parent]
		}
		if t.visible(int32(i), on) {
			projected[i] = projected[i].Child(n.Op)
		}
	}
	return projected
}

// visible reports whether node i appears in requests while only the tracepoints in `on` are enabled.
func (t *Tree) visible(i int32, on []trace.Symbol) bool {
	n := &t.Nodes[i]
	if n.Baseline() {
		return true
	}
	_, found := slices.BinarySearch(on, n.Tracepoint)
	return found && n.Kind != VariablePoint
}

// weigh returns the weights of nodes by hits. A node without hits weighs as much as a node with one hit.
func (t *Tree) weigh(nodes []int32) []float64 {
	if len(nodes) == 0 {
		return nil
	}
	weights, sum := make([]float64, len(nodes)), 0.0
	for k, i := range nodes {
		weights[k] = float64(max(t.Nodes[i].Hits, 1))
		sum += weights[k]
	}
	for k := range weights {
		weights[k] /= sum
	}
	return weights
}

// bounded is a distinct projected context with a lower bound on its distance.
type bounded struct {
	node  int32
	bound int
	exact int // the distance, once computed
}

// nearest finds the nearest contexts by edit distance:
//
//  1. Walk the tree once. For each distinct visible context, count its operations, and its operations that also occur
//     in the observed context. The greater length minus the number of operations in common is a lower bound on the
//     distance.
//  2. Compare contexts in the order of their bounds until the next bound exceeds the smallest distance found.
//  3. Return all nodes at the smallest distance, if it is within half the observed length.
func (t *Tree) nearest(path []trace.Op, on []trace.Symbol, projected []trace.Context) Match {
	path = path[max(0, len(path)-maxCompared):]
	contexts := t.bounds(path, on, projected)
	sorting.Slice(contexts, func(a, b bounded) int {
		return cmp.Or(cmp.Compare(a.bound, b.bound), cmp.Compare(a.node, b.node))
	})
	compared := t.compare(path, on, contexts)
	if len(compared) == 0 {
		return Match{}
	}
	m := Match{Distance: compared[0].exact}
	within := 2*m.Distance <= len(path)
	minima := make(map[trace.Context]bool)
	for _, c := range compared {
		switch {
		case within && c.exact == m.Distance:
			minima[projected[c.node]] = true
		case len(m.RunnersUp) < maxRunnersUp:
			m.RunnersUp = append(m.RunnersUp, RunnerUp{Node: c.node, Distance: c.exact})
		}
	}
	for i, p := range projected {
		if minima[p] && t.visible(int32(i), on) {
			m.Nodes = append(m.Nodes, int32(i))
		}
	}
	m.Weights = t.weigh(m.Nodes)
	return m
}

// bounds returns the distinct visible contexts with lower bounds on their distances to path.
func (t *Tree) bounds(path []trace.Op, on []trace.Symbol, projected []trace.Context) []bounded {
	wanted := make(map[trace.Op]bool, len(path))
	for _, op := range path {
		wanted[op] = true
	}
	type measure struct{ length, common int32 }
	measures := make([]measure, len(t.Nodes))
	seen := make(map[trace.Context]bool)
	var contexts []bounded
	for i := range t.Nodes {
		n := &t.Nodes[i]
		var m measure
		if n.Parent >= 0 {
			m = measures[n.Parent]
		}
		if t.visible(int32(i), on) {
			m.length++
			if wanted[n.Op] {
				m.common++
			}
			if !seen[projected[i]] {
				seen[projected[i]] = true
				length := min(int(m.length), maxCompared)
				bound := max(length, len(path)) - min(int(m.common), length, len(path))
				contexts = append(contexts, bounded{node: int32(i), bound: bound})
			}
		}
		measures[i] = m
	}
	return contexts
}

// compare computes the distances of contexts, which must be ascending by bound, until no further context can be at the
// smallest distance, or until it has computed maxComparisons distances. It returns the compared contexts, nearest
// first.
func (t *Tree) compare(path []trace.Op, on []trace.Symbol, contexts []bounded) []bounded {
	n := newNumbering()
	observed := n.text(path)
	least := maxCompared + 1
	var compared []bounded
	for _, c := range contexts {
		if c.bound > least || len(compared) == maxComparisons {
			break
		}
		c.exact = levenshtein.ComputeDistance(observed, n.text(t.visiblePath(c.node, on)))
		least = min(least, c.exact)
		compared = append(compared, c)
	}
	sorting.SliceStable(compared, func(a, b bounded) int { return cmp.Compare(a.exact, b.exact) })
	return compared
}

// visiblePath returns the last maxCompared visible operations of node i's context, root first.
func (t *Tree) visiblePath(i int32, on []trace.Symbol) []trace.Op {
	var path []trace.Op
	for ; i >= 0 && len(path) < maxCompared; i = t.Nodes[i].Parent {
		if t.visible(i, on) {
			path = append(path, t.Nodes[i].Op)
		}
	}
	slices.Reverse(path)
	return path
}

// numbering assigns consecutive runes to operations for one comparison, because the edit distance compares strings.
type numbering struct {
	runes map[trace.Op]rune
	next  rune
}

func newNumbering() *numbering { return &numbering{runes: make(map[trace.Op]rune), next: 'A'} }

func (n *numbering) text(path []trace.Op) string {
	text := make([]rune, len(path))
	for i, op := range path {
		r, ok := n.runes[op]
		if !ok {
			r = n.next
			n.runes[op] = r
			n.next = nextRune(r)
		}
		text[i] = r
	}
	return string(text)
}

// nextRune returns the next rune after r that survives encoding to UTF-8. It skips surrogates and U+FFFD.
func nextRune(r rune) rune {
	switch r + 1 {
	case 0xD800:
		return 0xE000
	case 0xFFFD:
		return 0xFFFE
	}
	return r + 1
}
