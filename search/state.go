package search

import (
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/trace"
)

// State is passed from one call of [Next] to the next. It is a plain value without maps or NaN, so any encoding works.
// Next never modifies a state that it has returned. Its JSON names are used in checkpoints.
type State struct {
	Plan           Plan
	Investigations []Investigation // in the order they were opened
	Cooldowns      []Cooldown      // ascending by (Subject, Tracepoint)
	Overrides      []Override      // added and removed by the caller
	Steered        []Steering      // added and removed by the caller; at most one per subject
	Overrun        Overrun         // as of the last measurement
	Sampling       []trace.Symbol  `cbor:",omitempty" json:",omitempty"` // services whose stacks are wanted, ascending
}

// Investigation returns the investigation of subject, or nil if there is none.
func (s *State) Investigation(subject Subject) *Investigation {
	for i := range s.Investigations {
		if s.Investigations[i].Subject == subject {
			return &s.Investigations[i]
		}
	}
	return nil
}

// Status is the stage that an investigation has reached.
type Status uint8

// The statuses of an investigation.
const (
	Opened        Status = iota // no tracepoint was switched on yet
	Investigating               // tracepoints are on, or would be if the budget allowed it
	Located                     // one to three locations stand out, and no candidate is left below them
	Explained                   // a variable or wait class accounts for at least half of a located problem
	Exhausted                   // no candidate is left, and no location stands out
	Gone                        // the problem or incident closed
)

var statusNames = [...]string{"opened", "investigating", "located", "explained", "exhausted", "gone"}

// String returns the lower-case name of s.
func (s Status) String() string { return statusNames[s] }

// Active reports whether an investigation in status s may switch tracepoints on.
func (s Status) Active() bool { return s <= Located }

// Investigation is the search for the cause of one problem, or for the place of one incident.
type Investigation struct {
	Subject            Subject
	RequestType, Group analysis.Hash // zero for an incident, which concerns several request types
	Entry              trace.Op
	Status             Status
	Reason             string // reason for the status
	Opened, Changed    trace.Nanos
	Epochs             int // number of calls of Next since the investigation was opened
	Missed             int // number of consecutive calls without the problem
	Idle               int // number of consecutive calls that neither picked a tracepoint nor waited for one
	BudgetStarved      int // number of consecutive calls that left all its tracepoints off because of the budget
	Strategy           string
	Lead               trace.Context       // context of the leading edge when it was opened or reopened
	Score              float64             // score of the leading operation at that time
	Verified           trace.Context       // location whose children were judged a second time
	Requested          []TracepointRequest // ascending by Tracepoint
	Evidence           []Evidence          // ascending by (Within, Tracepoint, Context, Batch)
	Tried              []trace.Symbol      // tracepoints ever requested, ascending
	Suspects           []Suspect           // best first
	Place              Suspect             // the first suspect when it was located; zero before that
	Wait               Suspect             // waits in the kernel that explain the place, with their share; may be zero
	Function           trace.Op            // function that contains the waits; 0 if only their service is known
	Computes           bool                // the place is known not to wait in the kernel
}

// Answer returns the operation of the located suspect, or 0 if v is nil or has located nothing.
func (v *Investigation) Answer() trace.Op {
	return v.place().Op
}

// place returns the located suspect with its share at the time it was located. Later shares would be wrong, because the
// tracepoints that revealed the suspect are off. place is zero if v is nil or has located nothing.
func (v *Investigation) place() Suspect {
	if v == nil || v.Status != Located && v.Status != Explained {
		return Suspect{}
	}
	return v.Place
}

// AnswerShare returns the share of the problem at the located suspect, at most 1, or 0 if v is nil or has located
// nothing.
func (v *Investigation) AnswerShare() float64 {
	return min(1, v.place().Share)
}

// TracepointRequest asks for a tracepoint to stay on for an investigation.
type TracepointRequest struct {
	Tracepoint trace.Symbol
	Arms       uint32 // bit i: in Plan.Arms[i]
	Since      trace.Nanos
	Epoch      int     // Investigation.Epochs when it was picked
	Value      float64 // share per cost when it was picked; the least valuable is dropped first if the budget shrinks
	Need       uint64  // requests needed to judge it; 0 for as few as possible
	Cause      string
}

// Evidence is the share of an edge at a tracepoint. It is a [detect.RefinedShare] reduced to the fields that the search
// uses, and it is kept after the tracepoint is switched off.
type Evidence struct {
	Within          trace.Edge
	Context, Parent trace.Context // as they appeared; Context is 0 if no request executed the tracepoint
	Op              trace.Op
	Tracepoint      trace.Symbol
	Batch           uint64  // hash of the set of tracepoints that was on
	N               uint64  // number of requests in the batch
	Share           float64 // share of the problem, within the edge
	Low, High       float64 // 95 % interval
	Mean            float64 // share of the edge's mean
}

// Suspect is a location that may be the cause.
type Suspect struct {
	Tracepoint trace.Symbol  // 0 for a baseline operation
	Op         trace.Op      // 0 if not in the tree
	Context    trace.Context // full calling context, the most frequent one of several
	Share      float64       // share of the problem that is spent here and not in known locations below
	Low, High  float64       // 95 % interval
	Inclusive  float64       // share with the locations below
	Requests   uint64        // number of requests that judged it
	Open       int           // number of untried candidates below it
}

// Cooldown keeps a tracepoint off for a subject that it did not explain.
type Cooldown struct {
	Subject    Subject
	Tracepoint trace.Symbol
	Until      trace.Nanos
}

// OverrideKind is the effect of an override on its tracepoint.
type OverrideKind uint8

// The kinds of override.
const (
	Enable OverrideKind = iota // on until the override ends
	Pin                        // on, and never evicted for an investigation
	Forbid                     // never on
)

var overrideNames = [...]string{"enable", "pin", "forbid"}

// String returns the lower-case name of k.
func (k OverrideKind) String() string { return overrideNames[k] }

// Override is a person's decision about a tracepoint. It takes precedence over investigations.
type Override struct {
	Tracepoint trace.Symbol
	Kind       OverrideKind
	Forced     bool        // on even beyond the budget
	Until      trace.Nanos // 0 means until withdrawn
	By         string
}

// requires reports whether an override keeps tp on, for all requests.
func (s *State) requires(tp trace.Symbol) bool {
	return slices.ContainsFunc(s.Overrides, func(o Override) bool { return o.Kind != Forbid && o.Tracepoint == tp })
}
