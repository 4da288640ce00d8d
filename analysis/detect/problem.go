package detect

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// ProblemKind is what breaks the expectation.
type ProblemKind uint8

// The kinds of problem, in the order in which they are ranked within an onset.
const (
	KindVariable ProblemKind = iota // the CoV is high
	KindSlow                        // the mean is high
	KindShifted                     // the mix of groups within a request type changed: structure, retries, errors
)

var problemKindNames = [...]string{"variable", "slow", "shifted"}

// String returns the lower-case name of k.
func (k ProblemKind) String() string { return problemKindNames[k] }

// Onset is whether a problem is new.
type Onset uint8

// The onsets, in the order in which they are ranked.
const (
	Changed Onset = iota // significantly above its own expectation
	Chronic              // high without a change
)

var onsetNames = [...]string{"changed", "chronic"}

// String returns the lower-case name of o.
func (o Onset) String() string { return onsetNames[o] }

// Problem is a set of requests that breaks its expectation, with the evidence. Of very many problems only the first ones have
// the intervals that come from the sample; the others' are NaN.
type Problem struct {
	ID          analysis.Hash // identity over time: the same for the same kind, level and group
	Kind        ProblemKind
	Onset       Onset
	Level       group.Level
	Group       analysis.Hash // of the group, or of the request type at that level
	RequestType analysis.Hash
	Entry       trace.Op

	Requests uint64           // requests that were judged
	Rate     float64          // requests per second
	Mean     time.Duration    // mean duration of the requests judged
	Size     *group.SizeModel // of the requests judged, whose CoV is then that of its residuals; nil: they are not judged by size
	SizeKey  trace.Symbol     // of the attribute that Size is about; 0 without one
	Expected time.Duration    // mean that was expected; 0: nothing is known
	CoV      float64          // coefficient of variation, with its 95 % interval
	CoVLow   float64
	CoVHigh  float64
	Impact   float64 // rate × excess time: ns lost per second
	EValue   float64 // evidence for the change; 0 where none was tested
	// Shift is, of a shifted problem, the part of the requests, in [0, 1], that would have to be in another group, or to fail or
	// not to, for the mix to be the expected one (total variation distance). 0 for other kinds.
	Shift float64

	Edges        []group.EdgeShare // all edges, the leading one first
	Refined      []RefinedShare    // what switched-on tracepoints showed; ascending by (Within, Context)
	Explanations []Explanation     // best first
}

// RefinedShare is what one calling context below a baseline edge showed over the requests whose plan had its tracepoint on.
// Its time is that of the whole subtree of the context within the edge (inclusive), 0 for a request that did not get there. A
// tracepoint that was on but never reached has Within and Context 0 and nothing but N.
type RefinedShare struct {
	Within     trace.Edge    // the baseline edge
	Context    trace.Context // full calling context under the plan that applied
	Parent     trace.Context // the context above it under that plan
	Op         trace.Op
	Tracepoint trace.Symbol
	Arm        trace.Symbol // of the plan; what differs by arm comes once for each
	N          uint64       // requests with the tracepoint on
	Hits       uint64       // spans seen in them
	Mean       float64      // inclusive ns a request
	Exclusive  float64      // ns a request not in switched-on children
	Share      float64      // Cov(x,T)/Cov(e,T): the part of the edge's variance that lies below this context
	ShareLow   float64      // its 95 % interval
	ShareHigh  float64
	Self       float64 // the same for the exclusive time
	ShareMean  float64 // E(x)/E(e)
	Excess     float64 // ns above the context's healthy reference; NaN without one
}

// Explanation is a variable that accounts for part of a problem.
type Explanation struct {
	Variable string        // name of the attribute, or of what was derived (present, count, errors, concurrency)
	Value    string        // the value that stands out; empty for a numeric variable
	Where    trace.Context // the place of the variable; 0: the whole request
	Target   trace.Edge    // what it explains; 0: the duration
	Effect   float64       // η² or squared correlation: the fraction of the variance that it accounts for
	Low      float64       // 95 % interval
	High     float64
	PValue   float64 // corrected for the number of variables tried
	Remains  float64 // fraction of the CoV that remains within equal values
}

// EqualSize reports whether the problem is about what varies at equal size.
func (p *Problem) EqualSize() bool { return p.Kind == KindVariable && p.Size != nil }

// Judged returns how long o took as far as the problem is about it: its duration or, where that is judged at equal size, what it would
// have been at the usual size.
func (p *Problem) Judged(o *observation.Observation) time.Duration {
	if p.EqualSize() {
		if size, ok := group.SizeOf(p.SizeKey, o); ok {
			return time.Duration(p.Size.Adjusted(group.Transfer{Bytes: size, Nanos: int64(o.Duration)}))
		}
	}
	return o.Duration
}

// problemOf returns what problems of every kind say about the window of group that is judged.
func problemOf(g *group.Group, kind ProblemKind, table *trace.Table) Problem {
	w, size := g.Judged(), g.JudgedSize()
	cov, key := w.Total.CoV(), trace.Symbol(0)
	if size != nil {
		cov, key = size.CoV, g.SizeKey()
	}
	return Problem{
		ID:   problemID(kind, g),
		Kind: kind, Onset: Chronic, Level: g.Level,
		Group: g.ID, RequestType: g.RequestType, Entry: g.Entry,
		Requests: w.Total.N, Rate: w.Rate(), Mean: time.Duration(w.Total.Mean()),
		Size: size, SizeKey: key, CoV: cov, CoVLow: math.NaN(), CoVHigh: math.NaN(),
		Edges: g.ExactShares(table),
	}
}

// lead scores edges, those of which nothing is known with 0, and orders them by falling score.
func lead(edges []group.EdgeShare, score func(*group.EdgeShare) float64) {
	for i := range edges {
		edges[i].Score = score(&edges[i])
		if math.IsNaN(edges[i].Score) || math.IsInf(edges[i].Score, 0) {
			edges[i].Score = 0
		}
	}
	slices.SortFunc(edges, func(a, b group.EdgeShare) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Edge, b.Edge))
	})
}

// Rank orders problems: changed before chronic; then variable by CoV, slow by excess, shifted by the size of the shift. What ties, or is not known,
// comes by identity.
func Rank(problems []Problem) {
	slices.SortFunc(problems, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(a.Onset, b.Onset),
			cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(severity(&b), severity(&a)),
			a.ID.Compare(b.ID))
	})
}

// severity is what problems of a kind are ranked by.
func severity(p *Problem) float64 {
	switch p.Kind {
	case KindVariable:
		return p.CoV
	case KindSlow:
		return float64(p.Mean - p.Expected)
	case KindShifted:
		return p.Shift
	}
	return 0
}
