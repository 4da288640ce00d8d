package search

import (
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// Budget bounds what a plan may cost. A zero field is no bound.
type Budget struct {
	Tracepoints int     // switched on at the same time
	Bytes       float64 // of extra trace data, per second
	CPU         float64 // of the agents: CPU seconds per second
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
}

// Plan is the set of tracepoints that should be on. It is immutable once published.
type Plan struct {
	Version int64
	Arms    []Arm
	Leases  []Lease // ascending by (Arm, Tracepoint)
}

// On reports whether requests of the named arm run with the tracepoint switched on under this plan.
func (p *Plan) On(arm, tracepoint trace.Symbol) bool {
	for i := range p.Leases {
		l := &p.Leases[i]
		if l.Tracepoint == tracepoint && p.Arms[l.Arm].Name == arm {
			return true
		}
	}
	return false
}

// Input is everything that a decision is made from.
type Input struct {
	Now      trace.Nanos
	Problems []analysis.Problem          // ranked
	Trees    map[analysis.Hash]*cct.Tree // by request type
	Rates    map[analysis.Hash]float64   // requests per second, by request type
	Table    *trace.Table                // names contexts that no tree has, to match them by edit distance; may be nil
	State    State                       // what the last call returned
	Budget   Budget
	Measured Usage // what agents measured of State.Plan; zero: nothing
	// Unavailable holds the tracepoints that agents cannot enable, or that did harm.
	Unavailable []trace.Symbol
	Strategy    string // one of Strategies; empty: adaptive
	Seed        uint64
	Epoch       time.Duration // how long until the next call
}
