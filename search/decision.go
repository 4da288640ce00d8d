package search

import (
	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/trace"
)

// Decision records a change of the plan or of an investigation's status, with the evidence for it. A decision with a
// zero Subject follows from overrides, reports of agents or the budget.
type Decision struct {
	At       trace.Nanos
	Plan     int64   // version of the plan that carries out the decision
	Subject  Subject // subject of the investigation; zero if there is none
	Strategy string
	From, To Status
	Reason   string

	Group    GroupEvidence
	Tree     TreeEvidence
	Matches  []Matched  // nodes of the tree that were searched, the leading one first
	Suspects []Suspect  // best first, at most maxSuspects
	Picks    []Pick     // switched on, best first
	Rejected []Rejected // candidates that were not switched on; at most maxRejected
	Off      []Off      // switched off
	Missing  []trace.Op // operations that carry part of the problem and have no tracepoints left
	Estimate Usage      // cost of the whole plan, after the decision
	Budget   Budget
	Overhead Overhead // time that instrumentation adds to the problem's requests; zero if unknown
}

// GroupEvidence holds a problem's statistics at the time of a decision.
type GroupEvidence struct {
	Group, RequestType analysis.Hash
	Kind               detect.ProblemKind
	Requests           uint64
	Rate, CoV          float64
}

// TreeEvidence identifies the tree that was searched.
type TreeEvidence struct {
	Version            uint64
	Nodes, Tracepoints int
}

// Matched is the result of looking up an edge in the tree.
type Matched struct {
	Context   trace.Context // context of the edge
	Score     float64
	Nodes     []trace.Context // full contexts of the matching nodes
	Distance  int             // edit distance; 0 for an exact match
	RunnersUp []RunnerUp
}

// RunnerUp is a context that an edge was not matched to.
type RunnerUp struct {
	Context  trace.Context
	Distance int
}

// Pick is a tracepoint to switch on.
type Pick struct {
	Tracepoint trace.Symbol
	Op         trace.Op
	Context    trace.Context // full calling context, or the first of several
	Region     int           // index of the region that it divides
	Score      float64       // expected share revealed per cost; comparable within a decision
	Need       uint64        // requests needed to judge it; 0 for as few as possible
	Whole      bool          // on for all requests, not only for those that a verdict needs
	Arms       uint32        // bit i: in Plan.Arms[i]; set by Next
	Cost       Usage         // estimated cost
	Reason     string
}

// Usage is the cost of tracepoints while they are on.
type Usage struct {
	Tracepoints int
	Hits        float64 // spans per second
	Bytes       float64 // bytes per second
	CPU         float64 // CPU seconds per second
}

func (u Usage) plus(v Usage) Usage {
	u.add(v)
	return u
}

func (u *Usage) add(v Usage) {
	u.Tracepoints += v.Tracepoints
	u.Hits += v.Hits
	u.Bytes += v.Bytes
	u.CPU += v.CPU
}

// Rejected is a candidate that was not switched on.
type Rejected struct {
	Tracepoint trace.Symbol
	Reason     string // one of the Why constants
}

// Off is a tracepoint that was switched off.
type Off struct {
	Tracepoint trace.Symbol
	Reason     string // one of the Why constants
}

// Reasons why a tracepoint was not switched on, or was switched off.
const (
	WhyLater       = "not needed yet"
	WhyBudget      = "over budget"
	WhyForbidden   = "forbidden by a person"
	WhyCooldown    = "cooling down after it explained nothing"
	WhyUnavailable = "the agent cannot enable it, or much of what it recorded is missing"
	WhyOffStack    = "slow requests spend hardly any time in it itself"
	WhyRare        = "a rare kind of wait"
	WhyRefuted     = "explains nothing"
	WhyNever       = "never executed"
	WhyRefined     = "known well enough"
	WhyExpired     = "lease ended"
	WhyClosed      = "the investigation ended"
	WhyOverrideEnd = "the override ended"
)

// Limits on the lists in a decision.
const (
	maxRejected = 16
	maxSuspects = 10
)
