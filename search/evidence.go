package search

import (
	"cmp"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/trace"
)

// Bounds of evidence.
const (
	minRequests = 8    // with a tracepoint on before it is judged
	maxEvidence = 8192 // entries kept for an investigation
	// widest is half the widest 95 % interval of a share of an operation that is judged by; the few requests that are slow
	// may be missing from what gave a wider one. After patience decisions, or enough requests, it is judged all the same.
	widest   = 0.3
	patience = 8
)

// observe takes over what the problem shows of tracepoints under the plan that applied. Evidence is kept apart by the set of
// tracepoints that was on (a batch of requests in which contexts appear alike); of one batch that of most requests stands.
// What is no longer shown is kept.
func (v *Investigation) observe(p *detect.Problem, applied *Plan) {
	batches := applied.batches()
	merged := slices.Clone(v.Evidence)
	for i := range p.Refined {
		if r := &p.Refined[i]; r.N > 0 && r.Tracepoint != 0 {
			e := evidenceOf(p, r)
			e.Batch = cmp.Or(batches[r.Arm], uint64(max(r.Arm, 1)))
			merged = append(merged, e)
		}
	}
	merged = append(merged, v.implied(p)...)
	slices.SortStableFunc(merged, func(a, b Evidence) int {
		return cmp.Or(compareEvidence(&a, &b), cmp.Compare(b.N, a.N), cmp.Compare(b.Share, a.Share))
	})
	merged = slices.CompactFunc(merged, func(a, b Evidence) bool { return compareEvidence(&a, &b) == 0 })
	v.Evidence = merged[:min(len(merged), maxEvidence)]
}

// batches returns for each arm the hash of the set of tracepoints that it has on.
func (p *Plan) batches() map[trace.Symbol]uint64 {
	sets := make([]uint64, len(p.Arms))
	for i := range p.Leases { // ascending by tracepoint within an arm
		l := &p.Leases[i]
		sets[l.Arm] = trace.Mix(sets[l.Arm], uint64(l.Tracepoint))
	}
	named := make(map[trace.Symbol]uint64, len(sets))
	for i, set := range sets {
		named[p.Arms[i].Name] = set
	}
	return named
}

func compareEvidence(a, b *Evidence) int {
	return cmp.Or(cmp.Compare(a.Within, b.Within), cmp.Compare(a.Tracepoint, b.Tracepoint), cmp.Compare(a.Context, b.Context),
		cmp.Compare(a.Batch, b.Batch))
}

// evidenceOf reduces r to what counts for p: the share of what is wrong, where that is steady slowness without a change the share
// of the mean.
func evidenceOf(p *detect.Problem, r *detect.RefinedShare) Evidence {
	e := Evidence{
		Within: r.Within, Context: r.Context, Parent: r.Parent, Op: r.Op, Tracepoint: r.Tracepoint, N: r.N,
		Share: r.Share, Low: r.ShareLow, High: r.ShareHigh, Mean: finite(r.ShareMean),
	}
	if r.Context == 0 {
		e.Share, e.Low, e.High = 0, 0, 0
	}
	if p.Kind != detect.KindVariable && p.Onset == detect.Chronic || !isFinite(e.Share) {
		e.Share, e.Low, e.High = e.Mean, math.NaN(), math.NaN()
	}
	if !isFinite(e.Low) || !isFinite(e.High) || e.Low > e.High {
		half := 0.6 / math.Sqrt(float64(r.N))
		e.Low, e.High = e.Share-half, e.Share+half
	}
	return e
}

func isFinite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

func finite(x float64) float64 {
	if isFinite(x) {
		return x
	}
	return 0
}

// implied returns zero shares for tracepoints that have been on for long and of which nothing came: no request of the
// problem reached an agent that has them.
func (v *Investigation) implied(p *detect.Problem) []Evidence {
	var list []Evidence
	for i := range v.Wants {
		w := &v.Wants[i]
		if v.Epochs-w.Epoch > patience && p.Requests >= minRequests && v.requests(w.Tracepoint) < minRequests {
			list = append(list, Evidence{Tracepoint: w.Tracepoint, Batch: 1, N: minRequests})
		}
	}
	return list
}

// weigh fills in what evidence says of the classes of a:
//
//  1. Evidence is mapped to classes by projection: those of its tracepoint whose path has everything that appeared above it.
//  2. Classes of a tracepoint that showed something elsewhere in the area, or nothing at all, carry nothing.
//  3. What a known class carries itself is its share less that of the known classes next below it.
//
// What settled says no is not known while its interval is wide.
func (a *area) weigh(evidence []Evidence, settled func(tp trace.Symbol) bool) {
	weights := make(map[trace.Edge]float64, len(a.edges))
	for _, e := range a.edges {
		weights[e.Edge] = e.Score / a.score
	}
	m := newMapping(a, evidence)
	judged := requestsOf(evidence)
	samples := make(map[sampleKey]sample)
	for i := range evidence {
		e := &evidence[i]
		if weight, within := weights[e.Within]; within && e.Context != 0 && judged[e.Tracepoint] >= minRequests {
			a.credit(samples, m.classes(e), e, weight)
		}
	}
	a.combine(samples, evidence)
	for i := 1; i < len(a.classes); i++ {
		c := &a.classes[i]
		if n := judged[c.tp]; n >= minRequests {
			c.known, c.n = true, float64(n)
		}
		if c.known && c.half > widest && c.n < enough && !settled(c.tp) {
			c.known = false
			a.wide = append(a.wide, c.tp)
		}
	}
	a.divide()
}

// requestsOf returns how many requests the tracepoints were judged by: those of all batches.
func requestsOf(evidence []Evidence) map[trace.Symbol]uint64 {
	n := make(map[trace.Symbol]uint64)
	for k, most := range batchesOf(evidence) {
		n[k.tp] += most
	}
	return n
}

type batchKey struct {
	tp    trace.Symbol
	batch uint64
}

// batchesOf returns how many requests each batch with a tracepoint on has.
func batchesOf(evidence []Evidence) map[batchKey]uint64 {
	most := make(map[batchKey]uint64)
	for i := range evidence {
		k := batchKey{evidence[i].Tracepoint, evidence[i].Batch}
		most[k] = max(most[k], evidence[i].N)
	}
	return most
}

// sampleKey names what one batch says of one class.
type sampleKey struct {
	class int32
	batch uint64
}

// sample is an estimate of a share: n requests, the square of half the interval.
type sample struct{ share, square float64 }

// credit adds e to the samples of the classes that it stands for, divided by how often they are executed. That it may be any
// one of them widens the interval.
func (a *area) credit(samples map[sampleKey]sample, classes []int32, e *Evidence, weight float64) {
	hits := 0.0
	for _, i := range classes {
		hits += a.classes[i].hits
	}
	for _, i := range classes {
		part := 1 / float64(len(classes))
		if hits > 0 {
			part = a.classes[i].hits / hits
		}
		half := weight * ((e.High-e.Low)/2 + math.Abs(e.Share)*(1-part))
		a.classes[i].shown = true
		s := samples[sampleKey{i, e.Batch}]
		s.share += weight * part * e.Share
		s.square += half * half
		samples[sampleKey{i, e.Batch}] = s
	}
}

// combine averages the samples of each class over the batches that had its tracepoint on, by requests. A batch without
// requests that got there says zero; one with a wide interval, whose share may be anything, counts less.
func (a *area) combine(samples map[sampleKey]sample, evidence []Evidence) {
	batches := make(map[trace.Symbol][]batchKey)
	most := batchesOf(evidence)
	for i := range evidence {
		k := batchKey{evidence[i].Tracepoint, evidence[i].Batch}
		if !slices.Contains(batches[k.tp], k) {
			batches[k.tp] = append(batches[k.tp], k)
		}
	}
	for i := 1; i < len(a.classes); i++ {
		c := &a.classes[i]
		if !c.shown {
			continue
		}
		var weights, share, square float64
		for _, k := range batches[c.tp] {
			s := samples[sampleKey{int32(i), k.batch}]
			weight := float64(most[k]) / (1 + s.square/(widest*widest))
			weights += weight
			share += weight * s.share
			square += weight * weight * s.square
		}
		c.share, c.half = share/weights, math.Sqrt(square)/weights
	}
}

// divide computes the regions of all classes and what the known ones carry themselves.
func (a *area) divide() {
	for i := range a.classes {
		c := &a.classes[i]
		if c.known {
			c.region, c.own, c.ownSD = int32(i), c.own+c.share, math.Hypot(c.ownSD, c.half/1.96)
		}
		if c.parent < 0 {
			continue
		}
		above := &a.classes[a.classes[c.parent].region]
		if c.known {
			above.own -= c.share
			above.ownSD = math.Hypot(above.ownSD, c.half/1.96)
		} else {
			c.region = a.classes[c.parent].region
			c.floating = c.loose && (c.parent == 0 || a.classes[c.parent].floating)
		}
	}
}

// mapping finds the classes that evidence stands for.
type mapping struct {
	area    *area
	byTP    map[trace.Symbol][]int32
	parents map[place]*Evidence
	done    map[place][]int32
}

// place is a context as it appeared within an edge in one batch.
type place struct {
	batch uint64
	edge  trace.Edge
	ctx   trace.Context
}

func newMapping(a *area, evidence []Evidence) *mapping {
	m := &mapping{
		area: a, byTP: make(map[trace.Symbol][]int32), parents: make(map[place]*Evidence), done: make(map[place][]int32),
	}
	wanted := make(map[trace.Symbol]bool)
	for i := range evidence {
		e := &evidence[i]
		wanted[e.Tracepoint] = true
		if e.Context != 0 {
			m.parents[place{e.Batch, e.Within, e.Context}] = e
		}
	}
	for i := 1; i < len(a.classes); i++ {
		if tp := a.classes[i].tp; wanted[tp] {
			m.byTP[tp] = append(m.byTP[tp], int32(i))
		}
	}
	return m
}

// classes returns the classes that e stands for, adding one where the tree does not know it yet.
func (m *mapping) classes(e *Evidence) []int32 {
	key := place{e.Batch, e.Within, e.Context}
	if found, ok := m.done[key]; ok {
		return found
	}
	m.done[key] = []int32{0} // ends cycles of parents
	chain := m.chain(e)
	var found []int32
	for _, i := range m.byTP[e.Tracepoint] {
		if m.area.contains(i, chain) {
			found = append(found, i)
		}
	}
	if len(found) == 0 {
		found = []int32{m.create(e)}
	}
	m.done[key] = found
	return found
}

// chain returns the tracepoints that appeared above e, nearest first.
func (m *mapping) chain(e *Evidence) []trace.Symbol {
	var chain []trace.Symbol
	for range maxClasses {
		e = m.parents[place{e.Batch, e.Within, e.Parent}]
		if e == nil || len(chain) >= 256 {
			break
		}
		chain = append(chain, e.Tracepoint)
	}
	return chain
}

// contains reports whether the classes above class i include chain, in this order.
func (a *area) contains(i int32, chain []trace.Symbol) bool {
	for p := a.classes[i].parent; p > 0 && len(chain) > 0; p = a.classes[p].parent {
		if a.classes[p].tp == chain[0] {
			chain = chain[1:]
		}
	}
	return len(chain) == 0
}

// create adds a class for e below that of its parent.
func (m *mapping) create(e *Evidence) int32 {
	parent := int32(0)
	if above := m.parents[place{e.Batch, e.Within, e.Parent}]; above != nil {
		parent = m.classes(above)[0]
	}
	a := m.area
	c := class{parent: parent, op: e.Op, tp: e.Tracepoint, ctx: a.classes[parent].ctx.Child(e.Op), node: -1, mass: 1, hits: 1, inside: true}
	for _, i := range m.byTP[e.Tracepoint] { // it looks like the same tracepoint elsewhere
		c.layer, c.kind = a.classes[i].layer, a.classes[i].kind
	}
	i := a.append(c)
	m.byTP[e.Tracepoint] = append(m.byTP[e.Tracepoint], i)
	return i
}

// suspects returns the places that may be the cause, best first: known classes by what they carry themselves, summed over
// the contexts of one tracepoint or operation, and the operations that are not searched.
func suspects(searched, rest []*area, opens func(*area) []int) []Suspect {
	type key struct {
		op trace.Op
		tp trace.Symbol
	}
	at := make(map[key]int)
	var list []Suspect
	add := func(s Suspect) {
		k := key{s.Op, s.Tracepoint}
		i, ok := at[k]
		if !ok {
			at[k] = len(list)
			list = append(list, s)
			return
		}
		list[i].merge(s)
	}
	for _, a := range searched {
		open := opens(a)
		for i := range a.classes {
			if c := &a.classes[i]; c.known && (c.share != 0 || i == 0) {
				add(a.suspect(int32(i), open[i]))
			}
		}
	}
	for _, a := range rest {
		add(Suspect{Op: a.op, Context: a.edges[0].Context, Share: a.score, Low: a.score, High: a.score, Inclusive: a.score})
	}
	slices.SortStableFunc(list, func(a, b Suspect) int { return cmp.Compare(b.Share, a.Share) })
	return list
}

func (a *area) suspect(i int32, open int) Suspect {
	c := &a.classes[i]
	half := 1.96 * c.ownSD
	return Suspect{
		Tracepoint: c.tp, Op: c.op, Context: c.ctx, Share: a.score * c.own, Low: a.score * (c.own - half),
		High: a.score * (c.own + half), Inclusive: a.score * c.share, Requests: uint64(c.n), Open: open,
	}
}

// merge adds t, the same place in other contexts, to s. The context stays that of the larger share.
func (s *Suspect) merge(t Suspect) {
	if t.Share > s.Share {
		s.Context = t.Context
	}
	half := math.Hypot(s.High-s.Share, t.High-t.Share)
	s.Share += t.Share
	s.Low, s.High = s.Share-half, s.Share+half
	s.Inclusive += t.Inclusive
	s.Requests = max(s.Requests, t.Requests)
	s.Open += t.Open
}
