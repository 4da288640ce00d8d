package search

import (
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// Budget limits the cost of a plan, in total and in each service. A zero field means no limit.
type Budget struct {
	Tracepoints int     // maximum number of tracepoints that are on at the same time
	Bytes       float64 // bytes of additional trace data per second
	CPU         float64 // CPU seconds of the agents per second
	Service     Limit   // limit for each service, all its agents together
}

// Limit limits part of the cost of a plan. A zero field means no limit.
type Limit struct {
	Tracepoints int
	Bytes       float64
	CPU         float64
}

func (b *Budget) total() Limit { return Limit{b.Tracepoints, b.Bytes, b.CPU} }

// allows reports whether u is within the limit.
func (l Limit) allows(u Usage) bool {
	return (l.Tracepoints == 0 || u.Tracepoints <= l.Tracepoints) && (l.Bytes == 0 || u.Bytes <= l.Bytes) &&
		(l.CPU == 0 || u.CPU <= l.CPU)
}

// Lease keeps one tracepoint on until it expires.
type Lease struct {
	Tracepoint trace.Symbol
	Arm        int32   // index in Plan.Arms
	Owner      Subject // subject of the investigation; zero for a person
	Cause      string  // for people
	Since      trace.Nanos
	Expires    trace.Nanos
	Pinned     bool // by a person; never evicted for an investigation
}

// Arm is a random share of the requests with its own set of tracepoints.
type Arm struct {
	Name  trace.Symbol
	Share float64 // share of all requests; shares add up to at most 1, and other requests run the baseline only
}

// Plan is the set of tracepoints that should be on. It is immutable once published.
type Plan struct {
	Version int64
	Arms    []Arm
	Leases  []Lease // ascending by (Arm, Tracepoint)
}

// has reports whether tp is on in any arm.
func (p *Plan) has(tp trace.Symbol) bool {
	for i := range p.Leases {
		if p.Leases[i].Tracepoint == tp {
			return true
		}
	}
	return false
}

// Problem is the input for the search of one subject: an open problem, or an incident presented as one problem.
type Problem struct {
	*detect.Problem
	Subject Subject
	Tree    *cct.Tree // tree of an incident, over several request types; nil to use the tree of the request type
	// Pairs are the pairs of edges that vary together, the largest share first. Only strategies with UsesPairs read
	// them.
	Pairs []detect.PairShare
}

// ProblemOf returns the input for the search of p, an open problem.
func ProblemOf(p *detect.Problem) Problem { return Problem{Problem: p, Subject: OfProblem(p.ID)} }

// Input holds the arguments of [Next].
type Input struct {
	Now         trace.Nanos
	Problems    []Problem                   // ranked
	Taken       map[Subject]bool            // open problems not in Problems because their incident is searched instead
	Trees       map[analysis.Hash]*cct.Tree // by request type
	Rates       map[analysis.Hash]float64   // requests per second, by request type
	Table       *trace.Table                // names contexts in no tree, to match them by edit distance; may be nil
	State       State                       // returned by the previous call
	Budget      Budget
	Measured    Usage          // usage of State.Plan measured by agents; zero if unknown
	Arms        []ArmTimes     // durations of requests by arm of State.Plan, for every problem; may be empty
	Unavailable []trace.Symbol // tracepoints that agents cannot enable, or no longer have
	// Unproven are the tracepoints in Unavailable whose agents missed records, so that the absence of evidence from
	// them proves nothing.
	Unproven []trace.Symbol
	// Returning are the tracepoints in Unproven that can soon be enabled again.
	Returning []trace.Symbol
	Samples   map[trace.Op]*Sample // samples of stacks of slow requests, by baseline operation
	Strategy  Strategy             // zero means the default strategy
	Seed      uint64
	Epoch     time.Duration // time until the next call
}
