package cct

import (
	"bytes"
	"slices"
	"testing"

	"github.com/agnivade/levenshtein"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/trace"
)

// drawBuilder returns a builder of a few observations over few names, so that contexts often collide.
func drawBuilder(t *rapid.T) *Builder {
	b := &Builder{}
	for range rapid.IntRange(0, 5).Draw(t, "observations") {
		b.Observe(drawObservation(t))
	}
	return b
}

// drawEntries returns a catalogue with the same names as drawBuilder, some of them twice.
func drawEntries(t *rapid.T) []Tracepoint {
	var list []Tracepoint
	for range rapid.IntRange(0, 12).Draw(t, "entries") {
		list = append(list, Tracepoint{
			ID:       trace.Symbol(rapid.Uint64Range(1, 6).Draw(t, "id")),
			Op:       trace.Op(rapid.Uint64Range(1, 6).Draw(t, "op")),
			Parent:   trace.Symbol(rapid.Uint64Range(0, 6).Draw(t, "parent")),
			Owner:    trace.Op(rapid.Uint64Range(0, 9).Draw(t, "owner")),
			Kind:     TracepointKind(rapid.Uint8Range(0, 2).Draw(t, "kind")),
			Layer:    Layer(rapid.Uint8Range(0, 2).Draw(t, "layer")),
			Baseline: rapid.Bool().Draw(t, "baseline"),
		})
	}
	return list
}

// drawTree returns the tree of a drawn builder and catalogue.
func drawTree(t *rapid.T) *Tree {
	return drawBuilder(t).Build(NewCatalogue(drawEntries(t), nil), nil)
}

// drawObservation returns a request whose contexts form a tree. Operations above 6 are baseline; others have a
// tracepoint of the same number.
func drawObservation(t *rapid.T) Observation {
	o := Observation{Seen: trace.Nanos(rapid.Int64Range(0, 9).Draw(t, "seen"))}
	root := trace.Context(0).Child(9)
	o.Contexts = []ContextCount{{Context: root, Op: 9, Count: 1}}
	seen := map[trace.Context]bool{root: true}
	for range rapid.IntRange(0, 8).Draw(t, "contexts") {
		above := o.Contexts[rapid.IntRange(0, len(o.Contexts)-1).Draw(t, "above")].Context
		op := trace.Op(rapid.Uint64Range(1, 8).Draw(t, "op"))
		x := ContextCount{Context: above.Child(op), Parent: above, Op: op, Count: 1}
		if op <= 6 {
			x.Tracepoint = trace.Symbol(op)
			o.On = append(o.On, x.Tracepoint)
		}
		if !seen[x.Context] {
			seen[x.Context] = true
			o.Contexts = append(o.Contexts, x)
		}
	}
	slices.Sort(o.On)
	o.On = slices.Compact(o.On)
	return o
}

func merged(list ...*Builder) *Builder {
	var b Builder
	for _, x := range list {
		b.Merge(x)
	}
	return &b
}

func TestMergeIsAssociativeAndCommutative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := drawBuilder(t), drawBuilder(t), drawBuilder(t)
		want := merged(a, b, c).AppendBinary(nil)
		if got := merged(c, merged(b, a)).AppendBinary(nil); !bytes.Equal(got, want) {
			t.Fatal("merging depends on the order")
		}
		catalogue := NewCatalogue(drawEntries(t), nil)
		diff := cmp.Diff(merged(a, b, c).Build(catalogue, nil).Nodes, merged(c, b, a).Build(catalogue, nil).Nodes)
		if diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestOrderOfCatalogueIsIrrelevant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, list := drawBuilder(t), drawEntries(t)
		shuffled := rapid.Permutation(list).Draw(t, "order")
		diff := cmp.Diff(b.Build(NewCatalogue(list, nil), nil).Nodes, b.Build(NewCatalogue(shuffled, nil), nil).Nodes)
		if diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestTreeIsWellFormed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBuilder(t)
		b.Limit = rapid.IntRange(1, 30).Draw(t, "limit")
		tree := b.Build(NewCatalogue(drawEntries(t), nil), nil)
		if len(tree.Nodes) > b.Limit {
			t.Fatalf("%d nodes, limit %d", len(tree.Nodes), b.Limit)
		}
		for i := range tree.Nodes {
			checkNode(t, tree, int32(i))
		}
	})
}

func checkNode(t *rapid.T, tree *Tree, i int32) {
	n := &tree.Nodes[i]
	if n.End <= i || int(n.End) > len(tree.Nodes) || n.Parent >= i {
		t.Fatalf("node %d: parent %d, end %d", i, n.Parent, n.End)
	}
	if p := n.Parent; p >= 0 && (tree.Nodes[p].End < n.End || tree.Nodes[p].Depth+1 != n.Depth) {
		t.Fatalf("node %d is not within its parent", i)
	}
	if found := tree.Find(n.Context); tree.Nodes[found].Context != n.Context {
		t.Fatalf("node %d is not found by its context", i)
	}
	if !n.Baseline() && !slices.Contains(tree.At(n.Tracepoint), i) {
		t.Fatalf("node %d is not found by its tracepoint", i)
	}
	children := 0
	for c := range tree.Children(i) {
		children++
		if tree.Nodes[c].Parent != i {
			t.Fatalf("node %d is no child of %d", c, i)
		}
	}
	if (children == 0) != (n.End == i+1) {
		t.Fatalf("node %d: %d children", i, children)
	}
}

// The context of a node matches it exactly, with all tracepoints enabled or all disabled.
func TestMatchFindsEveryNode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := drawTree(t)
		if len(tree.Nodes) == 0 {
			return
		}
		i := int32(rapid.IntRange(0, len(tree.Nodes)-1).Draw(t, "node"))
		if tree.Nodes[i].Kind == VariablePoint {
			return
		}
		on := []trace.Symbol{1, 2, 3, 4, 5, 6}
		m := tree.Match(tree.visiblePath(i, on), on)
		if m.Distance != 0 || !slices.Contains(m.Nodes, i) {
			t.Fatalf("node %d: %+v", i, m)
		}
		if m := tree.MatchContext(tree.baseline[i]); len(m.Nodes) == 0 {
			t.Fatalf("node %d has no match on the baseline", i)
		}
	})
}

// Match finds the same nodes as an exhaustive search without bounds.
func TestMatchIsNearest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := drawTree(t)
		var path []trace.Op
		for range rapid.IntRange(1, 6).Draw(t, "length") {
			path = append(path, trace.Op(rapid.Uint64Range(1, 12).Draw(t, "op")))
		}
		on := []trace.Symbol{1, 2, 3}
		m := tree.Match(path, on)
		least, at := 1000, []int32(nil)
		for i := range tree.Nodes {
			if !tree.visible(int32(i), on) {
				continue
			}
			n := newNumbering()
			d := levenshtein.ComputeDistance(n.text(path), n.text(tree.visiblePath(int32(i), on)))
			if d < least {
				least, at = d, nil
			}
			if d == least {
				at = append(at, int32(i))
			}
		}
		if 2*least > len(path) {
			at = nil
		}
		if !slices.Equal(m.Nodes, at) {
			t.Fatalf("matched %v at %d, want %v at %d", m.Nodes, m.Distance, at, least)
		}
	})
}

func TestEncodingRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBuilder(t)
		data := b.AppendBinary(nil)
		c, err := Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(c.AppendBinary(nil), data) {
			t.Fatal("encoding differs after decoding")
		}
	})
}

func FuzzDecode(f *testing.F) {
	var b Builder
	b.Observe(Observation{Seen: 4, On: []trace.Symbol{1}, Contexts: []ContextCount{{Context: 8, Op: 9, Count: 1}}})
	f.Add(b.AppendBinary(nil))
	f.Add([]byte{formatVersion})
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := Decode(data)
		if (err == nil) == (b == nil) {
			t.Fatalf("builder %v, error %v", b, err)
		}
		if err != nil {
			return
		}
		b.Limit = 100
		b.Build(nil, nil)
		b.Limit = 0
		if again, err := Decode(b.AppendBinary(nil)); err != nil || again == nil {
			t.Fatalf("decoded once, but not again: %v", err)
		}
	})
}

// A numbering skips runes that all decode to U+FFFD.
func TestNumberingSkipsSurrogates(t *testing.T) {
	n := newNumbering()
	var path []trace.Op
	for i := range 70_000 {
		path = append(path, trace.Op(i+1))
	}
	seen := make(map[rune]bool)
	for _, r := range n.text(path) {
		if seen[r] || r == 0xFFFD {
			t.Fatalf("rune %x stands for two operations", r)
		}
		seen[r] = true
	}
}

// The part of a builder inside an operation is the builder of the parts of its requests. This also holds if the parts
// of several builders are merged. Results that the part learned reach the contexts that it came from.
func TestInsideCommutesWithObserve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		operations := map[trace.Op]bool{trace.Op(rapid.Uint64Range(7, 9).Draw(t, "operation")): true}
		var whole [2]Builder
		inside := make(map[trace.Context]uint64) // hits
		for range rapid.IntRange(0, 6).Draw(t, "requests") {
			o := drawObservation(t)
			whole[rapid.IntRange(0, 1).Draw(t, "builder")].Observe(o)
			for _, x := range o.Contexts {
				if at := insideOf(&o, x.Context, operations); at != 0 {
					inside[at]++
				}
			}
		}
		part := merged(whole[0].Inside(operations), whole[1].Inside(operations))
		hits := make(map[trace.Context]uint64)
		for ctx, p := range part.places {
			hits[ctx] = p.hits
		}
		if diff := cmp.Diff(inside, hits); diff != "" {
			t.Fatal(diff)
		}
		for _, n := range part.Build(nil, nil).Nodes {
			if n.Parent < 0 && !operations[n.Op] {
				t.Fatalf("operation %d is a root", n.Op)
			}
		}
		results := make(map[trace.Context]History)
		for ctx := range inside {
			results[ctx] = HistoryOf(0.5, 0.5)
		}
		whole[0].LearnInside(operations, results)
		for ctx, p := range whole[0].Inside(operations).places {
			if p.history.N == 0 {
				t.Fatalf("context %x learned nothing", ctx)
			}
		}
	})
}

// insideOf returns a context of o as it appears from the nearest baseline operation, or 0 if that is not in operations.
func insideOf(o *Observation, ctx trace.Context, operations map[trace.Op]bool) trace.Context {
	var path []trace.Op
	for {
		i := slices.IndexFunc(o.Contexts, func(x ContextCount) bool { return x.Context == ctx })
		x := &o.Contexts[i]
		path = append(path, x.Op)
		if x.Tracepoint == 0 {
			break
		}
		ctx = x.Parent
	}
	if !operations[path[len(path)-1]] {
		return 0
	}
	at := trace.Context(0)
	for _, op := range slices.Backward(path) {
		at = at.Child(op)
	}
	return at
}
