package search

import (
	"cmp"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Limits on evidence.
const (
	minRequests    = 8    // minimum number of requests with a tracepoint on to judge it
	enoughRequests = 300  // more do not change a verdict
	maxEvidence    = 8192 // maximum number of entries kept for an investigation
	// maxHalfWidth is the largest half width of a share's 95 % interval at which the share counts as known. A wider
	// interval may come from a sample that missed the few slow requests. After patience epochs or enoughRequests
	// requests, any width is accepted.
	maxHalfWidth = 0.3
	patience     = 8 // epochs after which more waiting is not expected to improve evidence
)

// observe merges the evidence in p, which was collected under the plan `applied`, into v.Evidence. Evidence is kept per
// batch, that is, for all requests with the same set of tracepoints on, because contexts look alike within a batch. If
// a context has several results in one batch, observe keeps the result from the most requests, even if p no longer
// contains it. Evidence from unproven tracepoints is dropped.
func (v *Investigation) observe(p *detect.Problem, applied *Plan, unproven map[trace.Symbol]bool) {
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
	merged = slices.DeleteFunc(merged, func(e Evidence) bool { return unproven[e.Tracepoint] })
	sorting.SliceStable(merged, func(a, b Evidence) int {
		return cmp.Or(compareEvidence(&a, &b), cmp.Compare(b.N, a.N), cmp.Compare(b.Share, a.Share))
	})
	merged = slices.CompactFunc(merged, func(a, b Evidence) bool { return compareEvidence(&a, &b) == 0 })
	v.Evidence = merged[:min(len(merged), maxEvidence)]
}

// batches returns the hash of each arm's set of tracepoints.
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
	return cmp.Or(cmp.Compare(a.Within, b.Within), cmp.Compare(a.Tracepoint, b.Tracepoint),
		cmp.Compare(a.Context, b.Context), cmp.Compare(a.Batch, b.Batch))
}

// evidenceOf reduces r to its share of p. It uses r.ShareMean if p is chronic slowness or r.Share isn't finite. If r
// has no valid interval, it estimates the interval from the number of requests.
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

// finite returns x, or 0 if x is NaN or infinite.
func finite(x float64) float64 {
	if isFinite(x) {
		return x
	}
	return 0
}

// implied returns shares of 0 for tracepoints that have been on for more than patience epochs but were judged by fewer
// than minRequests requests: apparently, the problem's requests never reach an agent that has these tracepoints.
func (v *Investigation) implied(p *detect.Problem) []Evidence {
	judged := requestsOf(v.Evidence)
	var list []Evidence
	for i := range v.Requested {
		r := &v.Requested[i]
		if v.Epochs-r.Epoch > patience && p.Requests >= minRequests && judged[r.Tracepoint] < minRequests {
			list = append(list, Evidence{Tracepoint: r.Tracepoint, Batch: 1, N: minRequests})
		}
	}
	return list
}

// weigh derives the shares of the scope's locations from evidence:
//
//  1. Evidence is mapped to locations by projection, that is, to the locations of its tracepoint whose path includes
//     everything that appeared above it.
//  2. A judged tracepoint's other locations have a share of 0, whether it appeared elsewhere in the scope or not at
//     all.
//  3. The own share of a known location is its share minus the shares of the known locations next below it.
//
// A location with a wide interval isn't known yet, unless its tracepoint is settled: waiting would not improve its
// evidence.
func (o *operationScope) weigh(evidence []Evidence, settled func(tp trace.Symbol) bool) {
	weights := make(map[trace.Edge]float64, len(o.edges))
	for _, e := range o.edges {
		weights[e.Edge] = e.Score / o.score
	}
	p := newProjection(o, evidence)
	judged := requestsOf(evidence)
	samples := make(map[sampleKey]sample)
	for i := range evidence {
		e := &evidence[i]
		if weight, within := weights[e.Within]; within && e.Context != 0 && judged[e.Tracepoint] >= minRequests {
			o.credit(samples, p.locations(e), e, weight)
		}
	}
	o.combine(samples, evidence)
	for i := 1; i < len(o.locations); i++ {
		l := &o.locations[i]
		if n := judged[l.tp]; n >= minRequests {
			l.known, l.requests = true, float64(n)
		}
		if l.known && l.half > maxHalfWidth && l.requests < enoughRequests && !settled(l.tp) {
			l.known = false
			o.uncertain = append(o.uncertain, l.tp)
		}
	}
	o.divide()
}

// requestsOf returns the number of requests that judged each tracepoint, over all batches.
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

// batchesOf returns the number of requests in each batch, per tracepoint.
func batchesOf(evidence []Evidence) map[batchKey]uint64 {
	most := make(map[batchKey]uint64)
	for i := range evidence {
		k := batchKey{evidence[i].Tracepoint, evidence[i].Batch}
		most[k] = max(most[k], evidence[i].N)
	}
	return most
}

// sampleKey identifies the sample of one location in one batch.
type sampleKey struct {
	location int32
	batch    uint64
}

// sample estimates a share. square is the squared half width of its 95 % interval.
type sample struct{ share, square float64 }

// credit divides e among the locations that it may come from, in proportion to how often they run, and adds the parts
// to their samples. It widens the intervals, because the whole share may come from any one of the locations.
func (o *operationScope) credit(samples map[sampleKey]sample, locations []int32, e *Evidence, weight float64) {
	hits := 0.0
	for _, i := range locations {
		hits += o.locations[i].hits
	}
	for _, i := range locations {
		part := 1 / float64(len(locations))
		if hits > 0 {
			part = o.locations[i].hits / hits
		}
		half := weight * ((e.High-e.Low)/2 + math.Abs(e.Share)*(1-part))
		o.locations[i].executed = true
		s := samples[sampleKey{i, e.Batch}]
		s.share += weight * part * e.Share
		s.square += half * half
		samples[sampleKey{i, e.Batch}] = s
	}
}

// combine averages the samples of each location over the batches that had its tracepoint on, weighted by requests. If
// the requests of a batch didn't run the location, its share in that batch counts as 0. A batch with a wide interval
// counts less, because its share is uncertain.
func (o *operationScope) combine(samples map[sampleKey]sample, evidence []Evidence) {
	batches := make(map[trace.Symbol][]batchKey)
	most := batchesOf(evidence)
	for i := range evidence {
		k := batchKey{evidence[i].Tracepoint, evidence[i].Batch}
		if !slices.Contains(batches[k.tp], k) {
			batches[k.tp] = append(batches[k.tp], k)
		}
	}
	for i := 1; i < len(o.locations); i++ {
		l := &o.locations[i]
		if !l.executed {
			continue
		}
		var weights, share, square float64
		for _, k := range batches[l.tp] {
			s := samples[sampleKey{int32(i), k.batch}]
			weight := float64(most[k]) / (1 + s.square/(maxHalfWidth*maxHalfWidth))
			weights += weight
			share += weight * s.share
			square += weight * weight * s.square
		}
		l.share, l.half = share/weights, math.Sqrt(square)/weights
	}
}

// divide sets the regions of all locations and the own shares of known locations.
func (o *operationScope) divide() {
	for i := range o.locations {
		l := &o.locations[i]
		if l.known {
			l.region, l.own, l.ownSD = int32(i), l.own+l.share, math.Hypot(l.ownSD, l.half/1.96)
		}
		if l.parent < 0 {
			continue
		}
		above := &o.locations[o.locations[l.parent].region]
		if l.known {
			above.own -= l.share
			above.ownSD = math.Hypot(above.ownSD, l.half/1.96)
		} else {
			l.region = o.locations[l.parent].region
			l.anyRegion = l.unanchored && (l.parent == 0 || o.locations[l.parent].anyRegion)
		}
	}
}

// projection maps evidence to the locations of a scope.
type projection struct {
	scope   *operationScope
	byTP    map[trace.Symbol][]int32
	parents map[appearance]*Evidence
	done    map[appearance][]int32
}

// appearance is a context as it appeared within an edge in one batch.
type appearance struct {
	batch uint64
	edge  trace.Edge
	ctx   trace.Context
}

func newProjection(o *operationScope, evidence []Evidence) *projection {
	p := &projection{
		scope:   o,
		byTP:    make(map[trace.Symbol][]int32),
		parents: make(map[appearance]*Evidence),
		done:    make(map[appearance][]int32),
	}
	shown := make(map[trace.Symbol]bool)
	for i := range evidence {
		e := &evidence[i]
		shown[e.Tracepoint] = true
		if e.Context != 0 {
			p.parents[appearance{e.Batch, e.Within, e.Context}] = e
		}
	}
	for i := 1; i < len(o.locations); i++ {
		if tp := o.locations[i].tp; shown[tp] {
			p.byTP[tp] = append(p.byTP[tp], int32(i))
		}
	}
	return p
}

// locations returns the locations that e may come from. If the tree contains no such location, it adds one to the
// scope.
func (p *projection) locations(e *Evidence) []int32 {
	key := appearance{e.Batch, e.Within, e.Context}
	if found, ok := p.done[key]; ok {
		return found
	}
	p.done[key] = []int32{0} // ends cycles of parents
	chain := p.chain(e)
	var found []int32
	for _, i := range p.byTP[e.Tracepoint] {
		if p.scope.contains(i, chain) {
			found = append(found, i)
		}
	}
	if len(found) == 0 {
		found = []int32{p.create(e)}
	}
	p.done[key] = found
	return found
}

// chain returns the tracepoints that appeared above e, nearest first.
func (p *projection) chain(e *Evidence) []trace.Symbol {
	var chain []trace.Symbol
	for range maxLocations {
		e = p.parents[appearance{e.Batch, e.Within, e.Parent}]
		if e == nil || len(chain) >= 256 {
			break
		}
		chain = append(chain, e.Tracepoint)
	}
	return chain
}

// contains reports whether the locations above location i include chain, in this order.
func (o *operationScope) contains(i int32, chain []trace.Symbol) bool {
	for p := o.locations[i].parent; p > 0 && len(chain) > 0; p = o.locations[p].parent {
		if o.locations[p].tp == chain[0] {
			chain = chain[1:]
		}
	}
	return len(chain) == 0
}

// create adds a location for e below its parent's location.
func (p *projection) create(e *Evidence) int32 {
	parent := int32(0)
	if above := p.parents[appearance{e.Batch, e.Within, e.Parent}]; above != nil {
		parent = p.locations(above)[0]
	}
	o := p.scope
	l := location{
		parent:      parent,
		op:          e.Op,
		tp:          e.Tracepoint,
		ctx:         o.locations[parent].ctx.Child(e.Op),
		node:        -1,
		priorWeight: 1,
		hits:        1,
		inside:      true,
	}
	for _, i := range p.byTP[e.Tracepoint] { // layer and kind depend on the tracepoint only
		l.layer, l.kind = o.locations[i].layer, o.locations[i].kind
	}
	i := o.append(l)
	p.byTP[e.Tracepoint] = append(p.byTP[e.Tracepoint], i)
	return i
}
