// Package onetrace explains a single trace by its differences from normal traces. A [Profile] summarizes normal traces,
// and [Profile.Explain] ranks the calls of a trace that are slow, failed, missing or new, as [CallSuspect]s of an
// [Explanation]. Unlike package compare, which compares many traces with many others and uses the variation on both
// sides, this package can only use the variation of the normal traces.
//
// The package is pure, like package analysis, and uses critical paths only.
package onetrace

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Profile summarizes normal traces, so that [Profile.Explain] can explain single traces by their differences from them.
// It keeps samples of own times, and counts of failures and shapes, for each site. The memory of a site doesn't grow
// with the number of traces: a leaf takes up to 8 KiB, a site with many large shapes up to a few MiB. A Profile is not
// safe for concurrent use.
//
// The contents do not depend on the order of the traces, unless a site has more than maxSiteShapes shapes or a limit of
// [compare.Recording] is reached.
type Profile struct {
	rec    *compare.Recording // holds the calls of one trace only
	sites  []siteProfile
	traces int

	names      *compare.ResolvedNames
	namedSites int // number of sites that names takes into account
	pooled     map[history.SiteKey]*distribution
	byWide     map[history.SiteKey][]int32 // sites by each key that pools them
	answered   map[history.SiteKey][]int32 // sites of answered calls, by caller and operation

	// Scratch memory of measure, by call of the trace.
	nodes []int32 // node of its span
	below []callsOf
}

// callsOf holds the calls that a span makes, grouped by site. Group k holds the calls to sites[k]:
// calls[ends[k−1]:ends[k]].
type callsOf struct {
	calls []int32 // indices, in the order of the sites
	sites []int32 // ascending
	ends  []int32
}

// group returns the calls of group k.
func (c *callsOf) group(k int) []int32 {
	first := int32(0)
	if k > 0 {
		first = c.ends[k-1]
	}
	return c.calls[first:c.ends[k]]
}

// Limits on a profile.
const (
	// sampledTimes is the number of own times that a site keeps: enough for quartiles whose rank is accurate to 6 %.
	sampledTimes = 256
	// sampledShapeTimes is the number of own times that a shape keeps.
	sampledShapeTimes = 64
	// sampledCounts is the number of counts that a shape keeps for each site it calls.
	sampledCounts = 32
	// maxSiteShapes is the maximum number of shapes of a site. Calls with further shapes are counted together, as if
	// each had a shape of its own.
	maxSiteShapes = 64
	// maxShapeSites is the maximum number of sites of a shape, in case of hostile traces. A span that calls more sites
	// has no shape.
	maxShapeSites = 128
	// minShapeHistory is the minimum number of occurrences of a shape that is compared with its own distribution of
	// times. The quartiles of a rarer shape would be less certain than the quartiles of the whole site.
	minShapeHistory = 16
)

// siteProfile summarizes the calls of one site.
type siteProfile struct {
	calls, failed int
	own           distribution // own time of a call, ns
	duration      distribution // of requests with this primary root, ns
	callee        map[int32]int
	shapes        map[uint64]*shapeProfile // by hash
	others        int                      // calls with other shapes
}

// shapeProfile summarizes the calls at one site that called the same set of sites.
type shapeProfile struct {
	sites         []int32 // ascending
	calls         int
	own, duration distribution
	repeats       []distribution // by index of the site: the number of calls to it
}

// distribution is a sample of values with its quartiles.
type distribution struct {
	n             int // number of all values, including values outside the sample
	sample        stats.Sample[int64]
	valid         bool // whether median and limit belong to the current sample
	median, limit float64
}

func (d *distribution) add(key uint64, value int64, most int) {
	if d.n == 0 {
		d.sample = stats.NewSample[int64](most)
	}
	d.n++
	d.valid = !d.sample.Add(key, value) && d.valid
}

func (d *distribution) merge(o *distribution) {
	if o.n == 0 {
		return
	}
	if d.n == 0 {
		d.sample = stats.NewSample[int64](sampledTimes)
	}
	d.n += o.n
	d.sample.Merge(o.sample)
	d.valid = false
}

// usual returns the median and Tukey's upper fence. d must not be empty.
//
// The usual value is the median, and not a mean or a high quantile, because most calls take about that time, and
// because up to half of the traces may be faulty. Only values above the fence are unusual, so a site whose values are
// widely spread needs a larger excess. The fence depends only on the middle half. A 99th percentile would raise fewer
// false alarms, but if more than 1 % of the normal traces contain a fault, it is as high as the fault and hides it.
func (d *distribution) usual() (median, limit float64) {
	if !d.valid {
		values := make([]float64, 0, d.sample.Len())
		for _, x := range d.sample.All() {
			values = append(values, float64(x))
		}
		d.median, d.limit = compare.Fence(values)
		d.valid = true
	}
	return d.median, d.limit
}

// excess returns the part of x beyond the usual value, and the part beyond the limit. Both are 0 if x is not above the
// limit, or if the history is too short.
func (d *distribution) excess(x float64) (excess, beyond float64) {
	if d == nil || d.n < history.MinHistory {
		return 0, 0
	}
	median, limit := d.usual()
	if x <= limit {
		return 0, 0
	}
	return x - median, x - limit
}

// NewProfile returns an empty profile. table must contain the names of a trace before the trace is added or explained.
// The profile itself adds the steps.
func NewProfile(table *trace.Table) *Profile {
	return &Profile{
		rec: compare.NewRecording(table), pooled: make(map[history.SiteKey]*distribution),
		byWide: make(map[history.SiteKey][]int32), answered: make(map[history.SiteKey][]int32),
	}
}

// Traces returns the number of traces added.
func (f *Profile) Traces() int { return f.traces }

// Add adds a normal trace. It ignores the same traces as [compare.Recording.Add].
func (f *Profile) Add(p *critpath.Path) {
	calls := f.measure(p)
	if calls == nil {
		return
	}
	f.traces++
	clear(f.pooled)
	for i := range calls {
		if calls[i].Site != history.Overflow {
			f.addCall(i, f.key(p, i), f.failed(p, i))
		}
	}
	root := f.at(calls[0].Site)
	key, duration := f.key(p, 0), f.rec.Traces[0].Duration
	root.duration.add(key, duration, sampledTimes)
	if shape := root.shapes[shapeHash(f.below[0].sites)]; shape != nil {
		shape.duration.add(key, duration, sampledShapeTimes)
	}
}

// addCall adds call i. key is its key in samples.
func (f *Profile) addCall(i int, key uint64, failed bool) {
	c, below := &f.rec.Calls[i], &f.below[i]
	s := f.at(c.Site)
	s.calls++
	s.own.add(key, c.Own(), sampledTimes)
	if failed {
		s.failed++
	}
	if c.Callee != 0 {
		s.addCallee(c.Callee)
	}
	shape := s.shape(below.sites)
	if shape == nil {
		return
	}
	shape.calls++
	shape.own.add(key, c.Own(), sampledShapeTimes)
	for k := range shape.sites {
		shape.repeats[k].add(key, int64(len(below.group(k))), sampledCounts)
	}
}

// at returns the profile of a site, creating it if necessary. A site counts as known once it has calls.
func (f *Profile) at(site int32) *siteProfile {
	for int(site) >= len(f.sites) {
		if i := int32(len(f.sites)); i > 0 {
			at := &f.rec.Sites[i]
			for _, key := range at.Wider() {
				f.byWide[key] = append(f.byWide[key], i)
			}
			if !at.Border && !silent(at) {
				key := history.SiteKey{Parent: at.Parent, Op: at.Base}
				f.answered[key] = append(f.answered[key], i)
			}
		}
		f.sites = append(f.sites, siteProfile{})
	}
	return &f.sites[site]
}

// maxSiteCallees is the maximum number of callees of a site. A step has a single target, but attributes may name the
// same callee differently.
const maxSiteCallees = 16

func (s *siteProfile) addCallee(number int32) {
	if s.callee == nil {
		s.callee = make(map[int32]int)
	}
	if _, ok := s.callee[number]; ok || len(s.callee) < maxSiteCallees {
		s.callee[number]++
	}
}

// shape returns the shape of calls to sites, creating it if necessary. If there are too many shapes or sites, it counts
// the call in s.others and returns nil.
func (s *siteProfile) shape(sites []int32) *shapeProfile {
	h := shapeHash(sites)
	x := s.shapes[h]
	switch {
	case x != nil:
		return x
	case len(s.shapes) >= maxSiteShapes || len(sites) > maxShapeSites:
		s.others++
		return nil
	case s.shapes == nil:
		s.shapes = make(map[uint64]*shapeProfile)
	}
	x = &shapeProfile{sites: slices.Clone(sites), repeats: make([]distribution, len(sites))}
	s.shapes[h] = x
	return x
}

func shapeHash(sites []int32) uint64 {
	h := uint64(1)
	for _, site := range sites {
		h = trace.Mix(h, uint64(site))
	}
	return h
}

// measure returns the calls of a trace, as [compare.Recording.Add] records them, and fills f.nodes and f.below. The
// result is valid until the next call. It is nil if the trace has no usable root.
func (f *Profile) measure(p *critpath.Path) []compare.Call {
	r := f.rec
	r.Calls, r.Traces = r.Calls[:0], r.Traces[:0]
	r.Add(p, 0)
	if len(r.Traces) == 0 || len(r.Calls) == 0 {
		return nil
	}
	f.nodes = scratch.Filled(f.nodes, len(r.Calls), -1)
	for node, i := range r.CallIndex {
		if i >= 0 {
			f.nodes[i] = int32(node)
		}
	}
	for i, node := range f.nodes {
		if node < 0 {
			f.nodes[i] = f.nodes[i-1] // a border follows its call
		}
	}
	f.linkCalls()
	return r.Calls
}

// linkCalls fills f.below.
func (f *Profile) linkCalls() {
	calls := f.rec.Calls
	f.below = slices.Grow(f.below[:0], len(calls))[:len(calls)]
	for i := range f.below {
		b := &f.below[i]
		b.calls, b.sites, b.ends = b.calls[:0], b.sites[:0], b.ends[:0]
	}
	for i := range calls {
		if up := calls[i].Parent; up >= 0 && calls[i].Site != history.Overflow {
			f.below[up].calls = append(f.below[up].calls, int32(i))
		}
	}
	for i := range f.below {
		b := &f.below[i]
		sorting.Slice(b.calls,
			func(k, l int32) int { return cmp.Or(cmp.Compare(calls[k].Site, calls[l].Site), cmp.Compare(k, l)) })
		for n, k := range b.calls {
			if n == 0 || calls[k].Site != b.sites[len(b.sites)-1] {
				b.sites, b.ends = append(b.sites, calls[k].Site), append(b.ends, 0)
			}
			b.ends[len(b.ends)-1] = int32(n + 1)
		}
	}
}

// key returns the key of call i in samples. The key does not depend on the order of the spans.
func (f *Profile) key(p *critpath.Path, i int) uint64 {
	key := trace.Mix(p.Trace.ID.Hash(), uint64(p.Nodes[f.nodes[i]].ID))
	if f.isBorder(i) {
		key = trace.Mix(key, 1)
	}
	return key
}

func (f *Profile) isBorder(i int) bool { return f.rec.Sites[f.rec.Calls[i].Site].Border }

// failed reports whether the span of call i has an error status.
func (f *Profile) failed(p *critpath.Path, i int) bool {
	return !f.isBorder(i) && p.Span(f.nodes[i]).Flags&trace.Error != 0
}

// known returns the profile of a site, or nil if no normal trace contains the site.
func (f *Profile) known(site int32) *siteProfile {
	if site != history.Overflow && int(site) < len(f.sites) && f.sites[site].calls > 0 {
		return &f.sites[site]
	}
	return nil
}

// ownTimes returns the distribution of own times to compare with a call at site that makes calls to the sites in calls.
// It is the first of these distributions that has enough history: of the calls at the site with the same shape, of all
// calls at the site, of all calls of the step, under any caller, and, if the call is unanswered, of all calls of the
// operation, whatever they call. If all are too short, ownTimes returns the last one.
func (f *Profile) ownTimes(site int32, calls []int32, unanswered bool) *distribution {
	if s := f.known(site); s != nil {
		if x := s.shapes[shapeHash(calls)]; x != nil && x.calls >= minShapeHistory {
			return &x.own
		}
		if s.calls >= history.MinHistory {
			return &s.own
		}
	}
	keys := f.rec.Sites[site].Wider()
	if d := f.pool(keys[0]); d.n >= history.MinHistory || !unanswered || len(keys) == 1 {
		return d
	}
	return f.pool(keys[1])
}

// pool returns the distribution of own times over all sites that share key, and caches it.
func (f *Profile) pool(key history.SiteKey) *distribution {
	d := f.pooled[key]
	if d == nil {
		d = &distribution{}
		for _, i := range f.byWide[key] {
			d.merge(&f.sites[i].own)
		}
		f.pooled[key] = d
	}
	return d
}

// durations returns the distribution of the durations of similar requests: requests whose root is the same and makes
// the same calls or, if there are too few, all requests with the same root. It returns nil if there are no such
// requests. The calls matter because many applications have one root operation for all requests.
func (f *Profile) durations() *distribution {
	s := f.known(f.rec.Calls[0].Site)
	if s == nil {
		return nil
	}
	if x := s.shapes[shapeHash(f.below[0].sites)]; x != nil && x.duration.n >= history.MinHistory {
		return &x.duration
	}
	if s.duration.n > 0 {
		return &s.duration
	}
	return nil
}

// usualCallee returns the most frequent callee of the normal calls at a site. Its service is 0 if it is unknown.
func (f *Profile) usualCallee(site int32) history.Callee {
	s := f.known(site)
	if s == nil {
		return history.Callee{}
	}
	best, most := history.Callee{}, 0
	for number, n := range s.callee {
		if c := f.rec.Callees[number]; n > most || n == most && c.Compare(best) < 0 {
			best, most = c, n
		}
	}
	return f.resolved(best)
}

// resolved returns c with its service, if that is an address, replaced by the service at the address.
func (f *Profile) resolved(c history.Callee) history.Callee {
	c.Service = f.names.Service[c.Service]
	return c
}

// resolveNames brings f.names up to date.
func (f *Profile) resolveNames() {
	r := f.rec
	stale := f.names == nil || len(f.names.Service) != len(r.Names)
	for ; f.namedSites < len(r.Sites); f.namedSites++ {
		stale = stale || f.names.Opaque[r.Sites[f.namedSites].Service]
	}
	if stale {
		f.names = new(compare.ResolveNames(r))
	}
}

// silent reports whether no span answers the calls of s: its step has no target, or only attributes name the target.
func silent(s *history.Site) bool { return s.Op == s.Base || s.Peer != 0 }

// answeredSites returns the known sites of answered calls with the same caller and operation as a silent site, in
// descending order of their number of calls. With an answer, the unanswered call would have been at one of them.
func (f *Profile) answeredSites(site int32) []int32 {
	at := &f.rec.Sites[site]
	all := slices.DeleteFunc(slices.Clone(f.answered[history.SiteKey{
		Parent: at.Parent,
		Op:     at.Base,
	}]), func(i int32) bool { return f.known(i) == nil })
	sorting.Slice(all, func(a, b int32) int {
		return cmp.Or(cmp.Compare(f.sites[b].calls, f.sites[a].calls), f.rec.Sites[a].Compare(f.rec.Sites[b].SiteKey))
	})
	return all
}
