package analysis

import (
	"time"

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

// Level is what a set of statistics is kept for.
type Level uint8

// The levels, from the coarse.
const (
	RequestTypeLevel Level = iota // all requests of a type; edges by context only
	GroupLevel                    // requests of one group
)

var levelNames = [...]string{"request_type", "group"}

// String returns the lower-case name of l.
func (l Level) String() string { return levelNames[l] }

// Problem is a set of requests that breaks its expectation, with the evidence. Of very many problems only the first ones have
// the intervals that come from the sample; the others' are NaN.
type Problem struct {
	ID          Hash // identity over time: the same for the same kind, level and group
	Kind        ProblemKind
	Onset       Onset
	Level       Level
	Group       Hash // of the group, or of the request type at that level
	RequestType Hash
	Entry       trace.Op

	Requests uint64        // requests that were judged
	Rate     float64       // requests per second
	Mean     time.Duration // mean duration of the requests judged
	Size     *SizeModel    // of the requests judged, whose CoV is then that of its residuals; nil: they are not judged by size
	SizeKey  trace.Symbol  // of the attribute that Size is about; 0 without one
	Expected time.Duration // mean that was expected; 0: nothing is known
	CoV      float64       // coefficient of variation, with its 95 % interval
	CoVLow   float64
	CoVHigh  float64
	Impact   float64 // rate × excess time: ns lost per second
	EValue   float64 // evidence for the change; 0 where none was tested
	// Shift is, of a shifted problem, the part of the requests, in [0, 1], that would have to be in another group, or to fail or
	// not to, for the mix to be the expected one (total variation distance). 0 for other kinds.
	Shift float64

	Edges        []EdgeShare    // all edges, the leading one first
	Refined      []RefinedShare // what switched-on tracepoints showed; ascending by (Within, Context)
	Explanations []Explanation  // best first
}

// EdgeShare is the part that one edge plays in a problem. Shares are fractions of the whole; those of all edges of a problem
// add up to 1. NaN stands for what cannot be computed (no variance, no reference).
type EdgeShare struct {
	Edge          trace.Edge // 0: all edges beyond the bound, together
	Context       trace.Context
	Before, After trace.Op
	Callee        trace.Op // see EdgeTime

	Mean          float64 // ns a request, requests without the edge counting 0
	ShareMean     float64 // E(e)/E(T)
	ShareVariance float64 // Cov(e,T)/Var(T)
	ShareLow      float64 // 95 % interval of ShareVariance
	ShareHigh     float64
	TailLift      float64 // ns: E(e | slowest 10 %) − E(e | rest)
	Excess        float64 // ns a request above the healthy reference, with its 95 % interval
	ExcessLow     float64
	ExcessHigh    float64
	// Affected estimates the fraction of the requests, in (0, 1], that bears the excess: 1 if every request bears the same. NaN
	// without a reference or where there is no excess.
	Affected float64
	Score    float64 // what leading is decided by, for the problem's kind: a share of what is wrong, 0–1 but for noise
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
