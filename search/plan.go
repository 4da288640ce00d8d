package search

import (
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// Budget bounds what a plan may cost, in all, in the requests of any one type, and in any one service. A zero field is no bound.
type Budget struct {
	Tracepoints int     // switched on at the same time
	Bytes       float64 // of extra trace data, per second
	CPU         float64 // of the agents: CPU seconds per second
	RequestType Limit   // of each
	Service     Limit   // of each, all its agents together
}

// Limit bounds a part of what a plan costs. A zero field is no bound.
type Limit struct {
	Tracepoints int
	Bytes       float64
	CPU         float64
}

func (b *Budget) total() Limit { return Limit{b.Tracepoints, b.Bytes, b.CPU} }

// allows reports whether u is within the limit.
func (l Limit) allows(u Usage) bool {
	return (l.Tracepoints == 0 || u.Tracepoints <= l.Tracepoints) && (l.Bytes == 0 || u.Bytes <= l.Bytes) && (l.CPU == 0 || u.CPU <= l.CPU)
}

// Lease keeps one tracepoint on until it expires.
type Lease struct {
	Tracepoint trace.Symbol
	Arm        int32         // index in Plan.Arms
	Owner      analysis.Hash // the investigation; zero: a person
	Cause      string        // why, in words
	Since      trace.Nanos
	Expires    trace.Nanos
	Pinned     bool // a person's: outranks the search
}

// Arm is a random share of the requests that has a tracepoint set of its own.
type Arm struct {
	Name  trace.Symbol
	Share float64 // of all requests; the shares of a plan's arms add up to at most 1, the rest runs the baseline only
	// Everything says that all tracepoints are on, whatever the leases say: the arm explores. Its requests are slower than others
	// and fit for no statistics of durations.
	Everything bool
}

// Plan is the set of tracepoints that should be on. It is immutable once published.
type Plan struct {
	Version int64
	Arms    []Arm
	Leases  []Lease // ascending by (Arm, Tracepoint)
}

// explores returns the share of the requests that have everything on.
func (p *Plan) explores() float64 {
	for i := range p.Arms {
		if p.Arms[i].Everything {
			return p.Arms[i].Share
		}
	}
	return 0
}

// Input is everything that a decision is made from.
type Input struct {
	Now      trace.Nanos
	Problems []detect.Problem            // ranked
	Trees    map[analysis.Hash]*cct.Tree // by request type
	Rates    map[analysis.Hash]float64   // requests per second, by request type
	Table    *trace.Table                // names contexts that no tree has, to match them by edit distance; may be nil
	State    State                       // what the last call returned
	Budget   Budget
	Measured Usage      // what agents measured of State.Plan; zero: nothing
	Arms     []ArmTimes // how long requests took by arm of State.Plan, for every problem; may be empty
	// Pairs says, by problem, which edges vary together, the largest share first: what the strategy covariance goes by. May be nil.
	Pairs map[analysis.Hash][]detect.PairShare
	// Unavailable holds the tracepoints that agents cannot enable, or that did harm.
	Unavailable []trace.Symbol
	Strategy    string // one of Strategies; empty: adaptive
	Seed        uint64
	Epoch       time.Duration // how long until the next call
	// Explore is the share of the requests that have everything on, so that the tree learns places and what they take while all is
	// well; at most a tenth. 0: none. What people and investigations want on comes first where the budget does not allow for it.
	Explore float64
}
