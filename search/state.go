package search

import (
	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/trace"
)

// State is what [Next] returns and takes back: it is a plain value without maps or NaN, fit for any encoding. Nothing that Next
// returned is changed later.
type State struct {
	Plan           Plan
	Investigations []Investigation // in the order in which they were opened
	Silences       []Silence       // ascending by (Problem, Tracepoint)
	Wishes         []Wish          // what people decided; the caller adds and removes
	Overrun        Overrun         // of the estimates, as last measured
}

// Investigation returns the investigation of a problem, or nil.
func (s *State) Investigation(problem analysis.Hash) *Investigation {
	for i := range s.Investigations {
		if s.Investigations[i].Problem == problem {
			return &s.Investigations[i]
		}
	}
	return nil
}

// Status is how far an investigation has come.
type Status uint8

// The states of an investigation.
const (
	Opened        Status = iota // nothing was switched on yet
	Investigating               // tracepoints are on, or would be if the budget allowed it
	Located                     // one place, or up to three together, stand out, and nothing below them is left to try
	Explained                   // and a variable or wait class accounts for at least half of it
	Exhausted                   // candidates ran out and no place stands out
	Gone                        // the problem closed by itself
)

var statusNames = [...]string{"opened", "investigating", "located", "explained", "exhausted", "gone"}

// String returns the lower-case name of s.
func (s Status) String() string { return statusNames[s] }

// Active reports whether an investigation in state s may switch tracepoints on.
func (s Status) Active() bool { return s <= Located }

// Investigation is the series of decisions for one problem.
type Investigation struct {
	Problem, RequestType, Group analysis.Hash
	Entry                       trace.Op
	Status                      Status
	Reason                      string // for the status
	Opened, Changed             trace.Nanos
	Epochs                      int // calls of Next since it was opened
	Missed                      int // calls in a row without the problem
	Idle                        int // calls in a row that neither picked nor waited for what was picked
	Starved                     int // calls in a row after which the budget left nothing of it on
	Strategy                    string
	Lead                        trace.Context // context of the leading edge when it was opened or reopened
	Score                       float64       // of the leading place then
	Verified                    trace.Context // place below which was looked twice
	Wants                       []Want        // what it wants on; ascending by Tracepoint
	Evidence                    []Evidence    // what it was shown; ascending by (Within, Tracepoint, Context, Batch)
	Tried                       []trace.Symbol
	Suspects                    []Suspect // best first
}

// Answer returns the operation of the place that was located; 0 if none was, or v is nil.
func (v *Investigation) Answer() trace.Op {
	if v == nil || v.Status != Located && v.Status != Explained || len(v.Suspects) == 0 {
		return 0
	}
	return v.Suspects[0].Op
}

// Ranking returns the places that may be the cause, best first: at the beginning the baseline edges, later the places within
// them, each with the share of what is wrong that nothing known below it carries. The slice is the investigation's own.
func (v *Investigation) Ranking() []Suspect { return v.Suspects }

// Want is a tracepoint that an investigation keeps on.
type Want struct {
	Tracepoint trace.Symbol
	Arms       uint32 // bit i: in Plan.Arms[i]
	Since      trace.Nanos
	Epoch      int     // of the investigation, when it was picked
	Value      float64 // share per cost that it was picked for: the least goes first when the budget falls
	Need       uint64  // requests that it should be judged by; 0: as few as possible
	Cause      string
}

// Evidence is what a tracepoint showed in one edge: a [detect.RefinedShare] without what the search does not use, kept after the
// tracepoint went off.
type Evidence struct {
	Within          trace.Edge
	Context, Parent trace.Context // as they appeared; Context 0: requests that had it on never executed it
	Op              trace.Op
	Tracepoint      trace.Symbol
	Batch           uint64  // hash of the set of tracepoints that was on
	N               uint64  // requests of the batch
	Share           float64 // of what is wrong in the edge
	Low, High       float64 // 95 % interval
	Mean            float64 // share of the edge's mean
}

// Suspect is a place that may be the cause.
type Suspect struct {
	Tracepoint trace.Symbol  // 0: baseline
	Op         trace.Op      // 0: what the tree does not know
	Context    trace.Context // full calling context, the most frequent one of several
	Share      float64       // of what is wrong: spent here, and not in places known below
	Low, High  float64       // 95 % interval
	Inclusive  float64       // with the places below
	Requests   uint64        // that it was judged by
	Open       int           // tracepoints below it that were not tried
}

// Silence keeps a tracepoint off for a problem that it does not explain.
type Silence struct {
	Problem    analysis.Hash
	Tracepoint trace.Symbol
	Until      trace.Nanos
}

// WishKind is what a person decided about a tracepoint.
type WishKind uint8

// The kinds of wish.
const (
	Enable WishKind = iota // on until the wish ends
	Pin                    // on, and never evicted for the search's sake
	Forbid                 // never on
)

var wishNames = [...]string{"enable", "pin", "forbid"}

// String returns the lower-case name of k.
func (k WishKind) String() string { return wishNames[k] }

// Wish is what a person decided about a tracepoint. It outranks the search.
type Wish struct {
	Tracepoint trace.Symbol
	Kind       WishKind
	Forced     bool        // on even beyond the budget
	Until      trace.Nanos // 0: until it is withdrawn
	By         string
}
