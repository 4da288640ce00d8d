package cct

import (
	"cmp"
	"math"
	"slices"

	"github.com/agnivade/levenshtein"

	"github.com/sibyl-trace/sibyl/trace"
)

// Bounds of matching.
const (
	// maxCompared is how many operations of a context take part in a comparison: the last ones.
	maxCompared = 256
	// maxComparisons bounds the edit distances computed for one match; the most promising contexts are compared.
	maxComparisons = 4096
	// maxRunnersUp bounds the evidence.
	maxRunnersUp = 3
)

// Match says which nodes a calling context that was observed stands for.
type Match struct {
	// Nodes are all nodes whose context, with what was off left out, is nearest to the one observed; ascending. Empty: no
	// context is within half the length of the one observed, and nothing is guessed.
	Nodes   []int32
	Weights []float64 // of each node, by how often requests execute it; they add up to 1
	// Distance is the edit distance, in operations, of Nodes; 0: exact. Where Nodes is empty it is that of the first of
	// RunnersUp.
	Distance  int
	RunnersUp []RunnerUp // the next nearest contexts, nearest first
}

// RunnerUp is a context that was not matched.
type RunnerUp struct {
	Node     int32 // the first of the nodes with that context
	Distance int
}

// Match matches a calling context, root first, that was observed while only the tracepoints in on (ascending; nil: none) were
// enabled. Exact matches come first, else the nearest by edit distance over operations.
//
// It takes O(n) for n nodes, and a bounded number of edit distances where no context matches exactly.
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

// MatchContext is Match for a context that was observed on the baseline and is known only by its identity: there are exact
// matches or none.
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

// Project returns the context of every node as it appears while only the tracepoints in on (ascending) are enabled: that of
// the nearest node at or above it that is visible. With on empty it is the tree's own slice.
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

// minReference is how many healthy requests must have explored before they are a reference.
const minReference = 12

// References returns for every switchable context, as it appears while only the tracepoints in on (ascending) are enabled, what
// healthy requests that explored took there in the mean, with everything below. It is empty if too few explored.
func (t *Tree) References(on []trace.Symbol) map[trace.Context]Level {
	var explored uint64
	for i := range t.Roots() {
		explored = max(explored, t.Nodes[i].Reference.N)
	}
	if explored < minReference {
		return nil
	}
	projected := t.Project(on)
	levels := make(map[trace.Context]Level)
	for i := range t.Nodes {
		if n := &t.Nodes[i]; !n.Baseline() && t.visible(int32(i), on) {
			l, x := n.Reference.among(explored), levels[projected[i]]
			levels[projected[i]] = Level{x.Mean + l.Mean, math.Hypot(x.Error, l.Error)}
		}
	}
	return levels
}

// visible reports whether requests show node i while on is enabled.
func (t *Tree) visible(i int32, on []trace.Symbol) bool {
	n := &t.Nodes[i]
	if n.Baseline() {
		return true
	}
	_, found := slices.BinarySearch(on, n.Tracepoint)
	return found && n.Kind != VariablePoint
}

// weigh returns the weights of nodes by hits. Nodes that were never seen weigh as much as one hit.
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

// bounded is a distinct projected context with a lower bound of its distance.
type bounded struct {
	node  int32
	bound int
	exact int // the distance, once computed
}

// nearest finds the nearest contexts by edit distance:
//
//  1. One walk down the tree gives, for each distinct visible context, its length and how many of its operations the
//     observed one has: the longer length less what they can have in common is a lower bound of the distance.
//  2. Contexts are compared in the order of their bounds until no bound is below the distances found.
//  3. All nodes at the least distance are matches, if that is within half the observed length.
func (t *Tree) nearest(path []trace.Op, on []trace.Symbol, projected []trace.Context) Match {
	path = path[max(0, len(path)-maxCompared):]
	contexts := t.bounds(path, on, projected)
	slices.SortFunc(contexts, func(a, b bounded) int {
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

// bounds returns the distinct visible contexts with lower bounds of their distances to path.
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

// compare returns the contexts with their distances, nearest first: all that may be at the least distance, and those compared
// on the way. Bounds ascend.
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
	slices.SortStableFunc(compared, func(a, b bounded) int { return cmp.Compare(a.exact, b.exact) })
	return compared
}

// visiblePath returns the last operations of node i's context that are visible, root first, at most maxCompared.
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

// numbering gives operations consecutive runes that the edit distance tells apart, for one comparison.
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

// nextRune returns the rune after r that stands for itself: surrogates and U+FFFD all decode to the same.
func nextRune(r rune) rune {
	switch r + 1 {
	case 0xD800:
		return 0xE000
	case 0xFFFD:
		return 0xFFFE
	}
	return r + 1
}
