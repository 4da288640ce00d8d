package observation

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/trace"
)

// Observer reduces paths to observations. It reuses its buffers: once they have grown, it allocates nothing. It is not
// safe for concurrent use. The zero Observer is ready to use.
type Observer struct {
	// Everywhere makes the Observer collect the attributes of all spans of a request, not only of those on its critical
	// path.
	Everywhere bool

	path *critpath.Path
	root *critpath.Root
	into *Observation

	keys    []key        // to sort
	scratch []key        // see sortKeys
	entry   []int32      // by node: index of its context in into.Contexts; valid for the root and its path only
	below   []int32      // by switched-on node: its first baseline child, or -1; valid only if path.HasTracepointSpans
	next    []int32      // by baseline node: the next child of its switched-on parent
	onPath  []bool       // by entry of into.Contexts: whether a baseline span on the path has this context
	refined []trace.Edge // see findRefined
	buckets []int32
	found   []located
}

// key is a hash to sort by, and the index of the hashed element.
type key struct {
	hash uint64
	i    int32
}

// The attributes of the tracepoint protocol, which are not variables.
var (
	keyTracepoint = trace.SymbolOf([]byte(trace.KeyTracepoint))
	keyPlan       = trace.SymbolOf([]byte(trace.KeyPlan))
	keyArm        = trace.SymbolOf([]byte(trace.KeyArm))
	keyJoin       = trace.SymbolOf([]byte(trace.KeyJoin))
)

// Observe stores the observation of root number root of p in into, reusing its slices. The root must be usable (see
// [critpath.Path.Unusable]). The observation shares no memory with p. Observe takes O(n log n) time for n nodes of the
// root and its path.
func (o *Observer) Observe(p *critpath.Path, root int, into *Observation) {
	o.path, o.root, o.into = p, &p.Roots[root], into
	n := &p.Nodes[o.root.Node]
	s := &p.Trace.Spans[n.Span]
	into.Trace, into.Root = p.Trace.ID, n.ID
	into.Start, into.Duration = n.Start, n.End.Sub(n.Start)
	into.Entry, into.Failed = n.Step, s.Flags&trace.Error != 0
	o.plan()
	o.behind()
	o.children()
	o.contexts()
	o.skeleton()
	into.Edges = o.edges(o.root.Sections, into.Edges[:0])
	o.exclusive()
	o.refine()
	o.variables()
	into.Shape = into.ComputeShape()
	o.path, o.root, o.into = nil, nil, nil
}

// plan reads the plan and the arm that applied to the request from the attributes of the root. If there are several
// values, it takes the largest.
func (o *Observer) plan() {
	o.into.Plan, o.into.Arm = -1, 0
	for _, i := range o.path.Attrs(o.root.Node) {
		a := &o.path.Trace.Attrs[i]
		switch {
		case a.Key == keyPlan && a.Numeric && a.Number >= 0 && a.Number < 1<<53:
			o.into.Plan = max(o.into.Plan, int64(a.Number))
		case a.Key == keyArm && !a.Numeric:
			o.into.Arm = max(o.into.Arm, a.Text)
		}
	}
}

// behind collects the services that have a span with a different plan than the root. Agents apply a plan one after
// another, and some take several seconds.
func (o *Observer) behind() {
	o.into.Behind = o.into.Behind[:0]
	if o.into.Plan <= 0 || o.into.Arm == 0 {
		return
	}
	p := o.path
	for i := o.root.First; i < o.root.Last; i++ {
		for _, k := range p.Attrs(i) {
			if a := &p.Trace.Attrs[k]; a.Key == keyPlan && a.Numeric && a.Number != float64(o.into.Plan) &&
				i != o.root.Node {
				o.into.Behind = append(o.into.Behind, p.Trace.Spans[p.Nodes[i].Span].Service)
			}
		}
	}
	slices.Sort(o.into.Behind)
	o.into.Behind = slices.Compact(o.into.Behind)
}

// children collects the distinct steps of the root's baseline children.
func (o *Observer) children() {
	p := o.path
	first, last := p.Children(o.root.Node)
	steps := o.into.Children[:0]
	for i := first; i < last; i++ {
		if p.Nodes[i].Anchor == i {
			steps = append(steps, p.Nodes[i].Step)
		}
	}
	slices.Sort(steps)
	o.into.Children = slices.Compact(steps)
}

// contexts counts the nodes of the root, and the nodes of other roots on its path, by calling context.
func (o *Observer) contexts() {
	p := o.path
	o.entry = scratch.Sized(o.entry, len(p.Nodes))
	o.linkBelow()
	o.keys = o.keys[:0]
	for i := o.root.First; i < o.root.Last; i++ {
		if p.Nodes[i].Root >= 0 {
			o.keys = append(o.keys, key{uint64(p.Nodes[i].Full), i})
		}
	}
	if len(p.Trace.Joins) > 0 {
		for _, i := range o.root.Critical {
			o.addJoined(i)
		}
		for i := range o.root.Refined {
			o.addJoined(o.root.Refined[i].Node)
		}
	}
	o.sortKeys()
	o.into.Contexts = o.into.Contexts[:0]
	for i, k := range o.keys {
		if i == 0 || k.hash != o.keys[i-1].hash {
			o.addContext(k.i)
		}
		if i > 0 && k == o.keys[i-1] {
			continue // several sections of the node have added it
		}
		o.count(k.i, &o.into.Contexts[len(o.into.Contexts)-1])
	}
}

// addJoined adds node i to o.keys if it belongs to another root.
func (o *Observer) addJoined(i int32) {
	if i < o.root.First || i >= o.root.Last {
		o.keys = append(o.keys, key{uint64(o.path.Nodes[i].Full), i})
	}
}

// addContext appends the context of node to into.Contexts, with all counts and times set to 0.
func (o *Observer) addContext(node int32) {
	i := len(o.into.Contexts)
	o.into.Contexts = slices.Grow(o.into.Contexts, 1)[:i+1]
	n := &o.path.Nodes[node]
	s, c := &o.path.Trace.Spans[n.Span], &o.into.Contexts[i]
	*c = ContextCount{}
	c.Context, c.Op, c.Target, c.Tracepoint = n.Full, s.Op, o.path.Target(node), s.Tracepoint
	if up := o.path.Caller(node); up >= 0 {
		c.Parent = o.path.Nodes[up].Full
	}
}

// count adds node i to c.
func (o *Observer) count(i int32, c *ContextCount) {
	n := &o.path.Nodes[i]
	s := &o.path.Trace.Spans[n.Span]
	o.entry[i] = int32(len(o.into.Contexts) - 1)
	c.Tracepoint = min(c.Tracepoint, s.Tracepoint) // 0 if the context is baseline in any span
	c.Count++
	c.Peer = max(c.Peer, s.Peer)
	if o.path.Unanswered(i) {
		c.Unanswered++
	}
	if s.Flags&trace.Error != 0 {
		c.Errors++
	}
	c.Total = saturated(c.Total, int64(n.End-n.Start))
	c.Self = saturated(c.Self, int64(n.End-n.Start)-o.covered(i, n))
}

// saturated returns a+b for a, b ≥ 0, but at most the largest int64, so that sums over many unfinished spans don't wrap
// around.
func saturated(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// cover measures the union of intervals, which must be added in descending order of their ends.
type cover struct {
	from  trace.Nanos // earliest start of the intervals added so far
	nanos int64
}

func (c *cover) add(start, end trace.Nanos) {
	if end = min(end, c.from); start < end {
		c.nanos += int64(end - start)
		c.from = start
	}
}

// covered returns the part of the time of node i, in ns, that its children cover. If i is a baseline node, only
// baseline children count.
func (o *Observer) covered(i int32, n *critpath.Node) int64 {
	nodes := o.path.Nodes
	k, last := o.path.Children(i)
	c := cover{from: n.End}
	if n.Anchor == i {
		for ; k < last; k++ {
			if m := &nodes[k]; m.Anchor == k {
				c.add(m.Start, m.End)
			}
		}
		return c.nanos
	}
	b := int32(-1)
	if o.root.First <= i && i < o.root.Last {
		b = o.below[i]
	}
	for k < last || b >= 0 {
		var m *critpath.Node
		if b < 0 || k < last && nodes[k].End > nodes[b].End {
			m = &nodes[k]
			k++
		} else {
			m = &nodes[b]
			b = o.next[b]
		}
		c.add(max(m.Start, n.Start), m.End)
	}
	return c.nanos
}

// linkBelow lists, for each switched-on node of the root, its baseline children in descending order of their ends.
func (o *Observer) linkBelow() {
	p := o.path
	if !p.HasTracepointSpans() {
		return
	}
	o.below = scratch.Sized(o.below, len(p.Nodes))
	o.next = scratch.Sized(o.next, len(p.Nodes))
	for i := o.root.First; i < o.root.Last; i++ {
		o.below[i] = -1
	}
	for i := o.root.Last - 1; i > o.root.First; i-- { // siblings are sorted by descending end, and so are the lists
		if n := &p.Nodes[i]; n.Root >= 0 && n.Parent != p.Caller(i) {
			o.next[i] = o.below[n.Parent]
			o.below[n.Parent] = i
		}
	}
}

// skeletonLow makes the two halves of a skeleton independent.
const skeletonLow = 0xd6e8feb86659fd93

// skeleton hashes the set of distinct baseline contexts on the path.
func (o *Observer) skeleton() {
	contexts := o.into.Contexts
	o.onPath = scratch.Sized(o.onPath, len(contexts))
	clear(o.onPath)
	o.into.Path = PathSums{}
	for _, i := range o.root.Critical {
		if e := o.entry[i]; !o.onPath[e] {
			o.onPath[e] = true
			o.into.Path.add(contexts[e].Context)
		}
	}
	o.into.Skeleton = o.into.Path.Skeleton()
}

// edges appends the edges of sections to into, in ascending order.
func (o *Observer) edges(sections []critpath.Section, into []EdgeTime) []EdgeTime {
	o.keys = o.keys[:0]
	for i := range sections {
		s := &sections[i]
		o.keys = append(o.keys, key{uint64(o.edgeOf(s)), int32(i)})
	}
	o.sortKeys()
	for i, k := range o.keys {
		s := &sections[k.i]
		if i == 0 || k.hash != o.keys[i-1].hash {
			into = append(into, o.edge(trace.Edge(k.hash), s))
		}
		into[len(into)-1].Nanos += int64(s.End - s.Start)
	}
	return into
}

func (o *Observer) edgeOf(s *critpath.Section) trace.Edge {
	return trace.EdgeOf(o.path.Nodes[s.Node].Full, o.step(s.Before), o.step(s.After))
}

func (o *Observer) edge(e trace.Edge, s *critpath.Section) EdgeTime {
	return EdgeTime{Edge: e, Context: o.path.Nodes[s.Node].Full, Before: o.step(s.Before), After: o.step(s.After)}
}

// step returns the step of node i, or 0 if i is -1.
func (o *Observer) step(i int32) trace.Op {
	if i < 0 {
		return 0
	}
	return o.path.Nodes[i].Step
}

// exclusive adds the time on the path over baseline spans to the contexts.
func (o *Observer) exclusive() {
	contexts := o.into.Contexts
	for i := range o.root.Sections {
		s := &o.root.Sections[i]
		contexts[o.entry[s.Node]].Exclusive += int64(s.End - s.Start)
	}
	for _, v := range o.root.Overlaps {
		contexts[o.entry[v.Node]].Exclusive -= int64(v.By)
	}
}

// refine adds the refined edges, and adds the time on the refined path to the contexts of switched-on spans.
func (o *Observer) refine() {
	o.into.Refined = o.into.Refined[:0]
	if len(o.root.Refined) == 0 {
		return
	}
	o.findRefined()
	refined := o.into.Refined
	for i := range o.root.Refined {
		s := &o.root.Refined[i]
		// A context that is baseline in one span counts as baseline.
		if c := &o.into.Contexts[o.entry[s.Node]]; c.Tracepoint != 0 {
			c.Exclusive += int64(s.End - s.Start)
		}
		within := o.edgeOf(&o.root.Sections[s.Within])
		if _, ok := slices.BinarySearch(o.refined, within); ok {
			e := o.edge(o.edgeOf(s), s)
			e.Within, e.Nanos = within, int64(s.End-s.Start)
			refined = append(refined, e)
		}
	}
	o.into.Refined = compactEdges(refined)
}

// findRefined fills o.refined with the baseline edges that switched-on spans refine, ascending.
func (o *Observer) findRefined() {
	o.refined = o.refined[:0]
	for i := range o.root.Refined {
		s := &o.root.Refined[i]
		if o.path.Nodes[s.Node].Anchor != s.Node {
			o.refined = append(o.refined, o.edgeOf(&o.root.Sections[s.Within]))
		}
	}
	slices.Sort(o.refined)
	o.refined = slices.Compact(o.refined)
}

// compactEdges sorts edges by (Within, Edge) and merges equal edges, in place.
func compactEdges(edges []EdgeTime) []EdgeTime {
	slices.SortFunc(edges, func(a, b EdgeTime) int { return a.compare(&b) })
	out := edges[:0]
	for _, e := range edges {
		if n := len(out); n > 0 && out[n-1].Within == e.Within && out[n-1].Edge == e.Edge {
			out[n-1].Nanos += e.Nanos
		} else {
			out = append(out, e)
		}
	}
	return out
}

// variables collects the attributes of the spans on the path and, if o.Everywhere is set, of all other spans of the
// root.
func (o *Observer) variables() {
	p := o.path
	o.into.Variables = o.into.Variables[:0]
	if len(p.Trace.Attrs) == 0 {
		return
	}
	o.found = o.found[:0]
	if o.Everywhere {
		for i := o.root.First; i < o.root.Last; i++ {
			o.find(i)
		}
	}
	for _, i := range o.root.Critical {
		o.find(i)
	}
	for i := range o.root.Refined {
		if n := o.root.Refined[i].Node; p.Nodes[n].Anchor != n {
			o.find(n)
		}
	}
	o.keys = o.keys[:0]
	for i := range o.found {
		o.keys = append(o.keys, key{uint64(o.found[i].Context), int32(i)})
	}
	o.sortKeys()
	for keys := o.keys; len(keys) > 0; {
		same := 1
		for same < len(keys) && keys[same].hash == keys[0].hash {
			same++
		}
		slices.SortFunc(keys[:same], func(a, b key) int { return o.found[a.i].compare(&o.found[b.i]) })
		for i, k := range keys[:same] {
			if v := &o.found[k.i].Variable; i == 0 || v.Key != o.found[keys[i-1].i].Key {
				o.into.Variables = append(o.into.Variables, *v)
			}
		}
		keys = keys[same:]
	}
}

// located is a variable with the start and the ID of the span that it comes from.
type located struct {
	Variable
	start trace.Nanos
	id    trace.SpanID
}

// compare orders variables of the same context by key, then by preference: the earliest span comes first, and several
// values of one span are in a fixed order.
func (v *located) compare(w *located) int {
	if v.Key != w.Key { // the usual case
		return cmp.Compare(v.Key, w.Key)
	}
	return cmp.Or(cmp.Compare(v.start, w.start), cmp.Compare(v.id, w.id), cmp.Compare(v.Text, w.Text),
		cmp.Compare(math.Float64bits(v.Number), math.Float64bits(w.Number)))
}

func (o *Observer) find(node int32) {
	n := &o.path.Nodes[node]
	for _, i := range o.path.Attrs(node) {
		a := &o.path.Trace.Attrs[i]
		switch a.Key {
		case keyTracepoint, keyPlan, keyArm, keyJoin:
		default:
			v := Variable{Context: n.Full, Key: a.Key, Text: a.Text, Number: a.Number, Numeric: a.Numeric}
			o.found = append(o.found, located{v, n.Start, n.ID})
		}
	}
}

// fewKeys is the largest number of keys that we sort by insertion, which is faster for short lists.
const fewKeys = 16

// sortKeys sorts o.keys by hash, then by index. Hashes are uniform, so one pass of a bucket sort over their leading
// bits moves each key close to its final position.
func (o *Observer) sortKeys() {
	n := len(o.keys)
	if n <= fewKeys {
		sortFew(o.keys)
		return
	}
	width := min(bits.Len(uint(n)), 16)
	shift := 64 - width
	o.buckets = scratch.Sized(o.buckets, 1<<width)
	clear(o.buckets)
	for i := range o.keys {
		o.buckets[o.keys[i].hash>>shift]++
	}
	sum := int32(0)
	for i, count := range o.buckets {
		o.buckets[i] = sum
		sum += count
	}
	o.scratch = scratch.Sized(o.scratch, n)
	for _, k := range o.keys {
		b := &o.buckets[k.hash>>shift]
		o.scratch[*b] = k
		*b++
	}
	o.keys, o.scratch = o.scratch, o.keys
	start := int32(0)
	for _, end := range o.buckets {
		if end-start > 1 {
			sortFew(o.keys[start:end])
		}
		start = end
	}
}

// sortFew sorts keys by hash, then by index. It is fast if there are few keys.
func sortFew(keys []key) {
	if len(keys) > fewKeys {
		slices.SortFunc(keys, func(a, b key) int { return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.i, b.i)) })
		return
	}
	for i := 1; i < len(keys); i++ {
		k, j := keys[i], i
		for ; j > 0 && (k.hash < keys[j-1].hash || k.hash == keys[j-1].hash && k.i < keys[j-1].i); j-- {
			keys[j] = keys[j-1]
		}
		keys[j] = k
	}
}
