package detect

import (
	"cmp"
	"math"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// ProblemKind is the way that requests violate their expectation.
type ProblemKind uint8

// The kinds of problem.
const (
	KindVariable ProblemKind = iota // the CoV is high
	KindSlow                        // the mean is high
	KindShifted                     // the mix of groups of a request type changed: call flow, retries, errors
)

var problemKindNames = [...]string{"variable", "slow", "shifted"}

// String returns the lower-case name of k.
func (k ProblemKind) String() string { return problemKindNames[k] }

// Onset distinguishes new problems from lasting ones.
type Onset uint8

// The onsets, in their order of rank.
const (
	Changed Onset = iota // significantly above its own expectation
	Chronic              // high without a change
)

var onsetNames = [...]string{"changed", "chronic"}

// String returns the lower-case name of o.
func (o Onset) String() string { return onsetNames[o] }

// Whole is the quantity that a problem divides among places.
type Whole uint8

// The quantities that a problem can divide.
const (
	WholeSlowdown Whole = iota // the rise of the mean
	WholeVariance              // the rise of the variance, for a changed problem
	WholeMean
)

// Problem is a set of requests that violate their expectation, with the evidence. If there are very many problems, only
// the first ones have intervals from the sample; the intervals of the others are NaN.
type Problem struct {
	ID          analysis.Hash // stable over time: it depends only on kind, level and group
	Kind        ProblemKind
	Onset       Onset
	Level       group.Level
	Group       analysis.Hash // or the request type
	RequestType analysis.Hash
	Entry       trace.Op
	Opened      trace.Nanos // end of the epoch when it opened; 0 for a chronic problem

	Requests uint64           // judged requests
	Rate     float64          // requests per second
	Mean     time.Duration    // mean duration of the judged requests
	P50, P99 time.Duration    // quantiles of the judged requests, see [stats.Sketch]; 0 if unknown
	Size     *group.SizeModel // of the judged requests; CoV is then the CoV of its residuals; nil if not judged by size
	SizeKey  trace.Symbol     // of the attribute with the size; 0 without Size
	Expected time.Duration    // expected mean; 0 if unknown
	CoV      float64          // coefficient of variation, with its 95 % interval
	CoVLow   float64
	CoVHigh  float64
	Impact   float64 // added ns per second: rate × mean above Expected or, if that is unknown, above the median
	EValue   float64 // evidence for the change; 0 for a chronic problem
	// Shift is, for a shifted problem, the total variation distance between the recent mix and the expected mix, in [0,
	// 1]: the fraction of requests that would have to be in another group, or to fail, or to succeed. It is 0 for other
	// kinds.
	Shift float64
	// Failed and UsualFailed are, for a shifted problem, the fractions of requests that fail now and that are expected
	// to fail.
	Failed, UsualFailed float64

	Edges        []group.EdgeShare // all edges, the leading one first
	Whole        Whole             // the quantity that the scores of Edges and the shares of the investigation divide
	Refined      []RefinedShare    // measured by switched-on tracepoints; ascending by (Within, Context)
	Explanations []Explanation     // best first
}

// RefinedShare holds the measurements of one calling context within a baseline edge, over the requests whose plan had
// its tracepoint on. Times are inclusive: they cover the whole subtree of the context within the edge. A request that
// did not execute the context counts as 0. If no request reached the tracepoint, only Tracepoint, Arm and N are set.
type RefinedShare struct {
	Within     trace.Edge    // the baseline edge
	Context    trace.Context // full calling context under the plan in force
	Parent     trace.Context // the context above it under that plan
	Op         trace.Op
	Tracepoint trace.Symbol
	Arm        trace.Symbol // of the plan; each arm has its own RefinedShare
	N          uint64       // requests with the tracepoint on
	Hits       uint64       // spans in these requests
	Mean       float64      // inclusive ns per request
	Exclusive  float64      // ns per request outside of switched-on children
	Share      float64      // Cov(x,T)/Cov(e,T): share of the variance of the edge that lies in or below this context
	ShareLow   float64      // its 95 % interval
	ShareHigh  float64
	Self       float64 // the same for exclusive time
	ShareMean  float64 // E(x)/E(e)
}

// Explanation is a variable that explains part of a problem.
type Explanation struct {
	Variable string        // name of the attribute or of a derived variable (present, count, errors, concurrency)
	Value    string        // the value that stands out; empty for a numeric variable
	Where    trace.Context // context of the variable; 0 means the whole request
	Target   trace.Edge    // explained edge; 0 means the duration
	Effect   float64       // η² or squared correlation: the explained fraction of the variance
	Low      float64       // 95 % interval
	High     float64
	PValue   float64 // corrected for the number of variables tested
	Remains  float64 // fraction of the CoV that remains among requests with equal values
}

// Fails reports whether the change of a shifted problem is that clearly more requests fail.
func (p *Problem) Fails() bool {
	return p.Kind == KindShifted && p.Failed > leastRatio*p.UsualFailed && p.Failed-p.UsualFailed >= leastFailing
}

// Slower reports whether the requests of a changed problem take at least leastSlower times as long as expected. Those
// of a shifted problem may not.
func (p *Problem) Slower() bool {
	return p.Impact > 0 && float64(p.Mean) >= leastSlower*float64(p.Expected)
}

// leastSlower is the minimum ratio of the mean to the expectation at which requests count as slower.
const leastSlower = 1.05

// leastFailing is the minimum rise of the fraction of failed requests that a sentence mentions.
const leastFailing = 0.01

// EqualSize reports whether the problem concerns the variance at equal size.
func (p *Problem) EqualSize() bool { return p.Kind == KindVariable && p.Size != nil }

// Judged returns the duration of o as the problem judges it: adjusted to the usual size if p.EqualSize() and o has a
// size.
func (p *Problem) Judged(o *observation.Observation) time.Duration {
	if p.EqualSize() {
		if size, ok := group.SizeOf(p.SizeKey, o); ok {
			return time.Duration(p.Size.Adjusted(group.Transfer{Bytes: size, Nanos: int64(o.Duration)}))
		}
	}
	return o.Duration
}

// problemOf returns a problem of g with the fields that all kinds share, set from the judged window of g.
func problemOf(g *group.Group, kind ProblemKind, table *trace.Table) Problem {
	w, size := g.Judged(), g.JudgedSize()
	cov, key := w.Total.CoV(), trace.Symbol(0)
	if size != nil {
		cov, key = size.CoV, g.SizeKey()
	}
	p := Problem{
		ID:          problemID(kind, g),
		Kind:        kind,
		Onset:       Chronic,
		Level:       g.Level,
		Group:       g.ID,
		RequestType: g.RequestType,
		Entry:       g.Entry,
		Requests:    w.Total.N,
		Rate:        w.Rate(),
		Mean:        time.Duration(w.Total.Mean()),
		Size:        size,
		SizeKey:     key,
		CoV:         cov,
		CoVLow:      math.NaN(),
		CoVHigh:     math.NaN(),
		Edges:       g.ExactShares(table),
	}
	if w.Latency.Count() > 0 {
		p.P50, p.P99 = time.Duration(w.Latency.Quantile(0.5)), time.Duration(w.Latency.Quantile(0.99))
	}
	return p
}

// rankEdges scores each edge of p by its part of whole, or 0 if the part is unknown, and sorts the edges by descending
// score.
func (p *Problem) rankEdges(whole Whole, score func(*group.EdgeShare) float64) {
	p.Whole = whole
	order := make([]*group.EdgeShare, 0, len(p.Edges)) // shares are large to move
	for i := range p.Edges {
		e := &p.Edges[i]
		e.Score = score(e)
		if math.IsNaN(e.Score) || math.IsInf(e.Score, 0) {
			e.Score = 0
		}
		order = append(order, e)
	}
	sorting.Slice(order, func(a, b *group.EdgeShare) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Edge, b.Edge))
	})
	ranked := make([]group.EdgeShare, 0, len(order))
	for _, e := range order {
		ranked = append(ranked, *e)
	}
	p.Edges = ranked
}

// Order is an order of the problems with the same onset.
type Order uint8

// The orders of problems. The problem with the largest value comes first.
const (
	ByImpact   Order = iota // time lost per second
	ByCoV                   // coefficient of variation
	BySlowness              // mean duration
)

// figure returns the value of p that o compares.
func (o Order) figure(p *Problem) float64 {
	switch o {
	case ByCoV:
		return p.CoV
	case BySlowness:
		return float64(p.Mean)
	case ByImpact:
	}
	return p.Impact
}
