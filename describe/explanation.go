package describe

import (
	"math"

	"github.com/sibyl-trace/sibyl/analysis/onetrace"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// TraceExplanation presents the difference between one trace and normal traces.
type TraceExplanation struct {
	TraceID    string        `json:"trace_id"`
	ExcessNS   *int64        `json:"excess_ns"` // null if no normal trace has a request of this type
	DurationNS int64         `json:"duration_ns"`
	UsualNS    *int64        `json:"usual_ns"` // median duration of such requests; null if excess_ns is null
	Suspects   []CallSuspect `json:"suspects"` // ranked

	usualRange bool // whether such requests sometimes take this long
}

// CallSuspect presents a step that differs from normal traces; see [onetrace.CallSuspect].
type CallSuspect struct {
	CallStep

	ExcessNS   int64           `json:"excess_ns"`
	Reason     onetrace.Reason `json:"reason"`
	Part       onetrace.Part   `json:"part,omitempty"` // part of a slow step that takes longer
	Calls      int             `json:"calls"`
	SpanID     string          `json:"span_id"`              // call with most evidence; the caller if calls are missing
	Caller     *CallStep       `json:"caller,omitempty"`     // set if calls are missing
	Missing    []CallStep      `json:"missing,omitempty"`    // the calls that the caller usually makes
	Unanswered bool            `json:"unanswered,omitempty"` // the callee was called but has no span

	Node int32 `json:"-"` // node of the path
}

// CallStep presents a step of a trace.
type CallStep struct {
	Service   string  `json:"service"` // callee's service if that emits no spans and is itself a suspect
	Operation string  `json:"operation"`
	Kind      string  `json:"kind"`
	Target    *Target `json:"target,omitempty"` // operation that this one calls

	name   string
	opaque bool // the called service emits no spans, so the call's time includes the service's time
}

// NewTraceExplanation presents e, the explanation of the trace with the given id.
func NewTraceExplanation(n *Names, id trace.ID, e *onetrace.Explanation) *TraceExplanation {
	x := &TraceExplanation{
		TraceID:    id.String(),
		DurationNS: int64(e.Duration),
		Suspects:   make([]CallSuspect, 0, len(e.Suspects)),
	}
	if e.Known() {
		excess, usual := nearest(e.Excess()), nearest(e.Usual)
		x.ExcessNS, x.UsualNS = &excess, &usual
		x.usualRange = e.Duration <= e.Limit
	}
	for i := range e.Suspects {
		x.Suspects = append(x.Suspects, newCallSuspect(n, &e.Suspects[i]))
	}
	return x
}

func newCallSuspect(n *Names, s *onetrace.CallSuspect) CallSuspect {
	c := CallSuspect{
		CallStep:   newCallStep(n, s.Op),
		ExcessNS:   nearest(s.Excess),
		Reason:     s.Reason,
		Part:       s.Part,
		Calls:      s.Calls,
		SpanID:     s.Span.String(),
		Unanswered: s.Unanswered,
		Node:       s.Node,
	}
	if service := n.Text(s.Service); service != c.Service {
		c.name = n.NamedService(s.Service) + ", called by " + c.name
		c.Service, c.opaque = service, true
	}
	if s.Caller != 0 {
		c.Caller = new(newCallStep(n, s.Caller))
	}
	for _, op := range s.Missing {
		c.Missing = append(c.Missing, newCallStep(n, op))
	}
	return c
}

func nearest(ns float64) int64 { return int64(math.Round(ns)) }

func newCallStep(n *Names, op trace.Op) CallStep {
	return CallStep{
		Service:   n.Service(op),
		Operation: n.OpName(op),
		Kind:      n.Kind(op),
		Target:    newTarget(n, op),
		name:      n.Op(op),
		opaque:    n.External(op),
	}
}

// Phrase returns the name of the step and, if known, the part of the step that takes longer: "on the wire to cart GET
// /cart".
func (s *CallSuspect) Phrase() string {
	before, after := s.around()
	return before + s.name + after
}

// Text describes s in a clause: "640 ms more than usual in cart GET /items (own time)", "bank POST /pay does not
// answer".
func (s *CallSuspect) Text() string {
	if s.Reason == onetrace.Slow {
		return units.Nanos(float64(s.ExcessNS)) + " more than usual " + s.Phrase()
	}
	var text Sentence
	s.otherwise(&text)
	return text.String()
}

// around returns the text before and after the name of a step in a phrase.
func (s *CallSuspect) around() (before, after string) {
	switch s.Part {
	case onetrace.OwnPart:
		return "in ", " (own time)"
	case onetrace.InPart:
		if s.opaque {
			return "in ", ""
		}
		return "on the wire to ", ""
	case onetrace.OutPart:
		return "on the wire from ", ""
	case onetrace.CallsPart:
		return "in additional calls of ", ""
	}
	return "", ""
}

// Limits on the suspects and on the missing calls that a sentence names. Slow suspects and others are counted
// separately.
const (
	namedSuspects = 3
	namedMissing  = 3
)

// noticeable is the smallest relative difference between durations that a sentence calls longer or shorter.
const noticeable = 0.01

// Sentence describes x: the excess and its places, then the other reasons.
func (x *TraceExplanation) Sentence() Sentence {
	var s Sentence
	x.durations(&s)
	x.places(&s)
	s.Plain(".")
	named := 0
	for i := range x.Suspects {
		if c := &x.Suspects[i]; c.Reason != onetrace.Slow && named < namedSuspects {
			named++
			s.Plain(" ")
			c.otherwise(&s)
			s.Plain(".")
		}
	}
	return s
}

// shorter reports whether the request took noticeably less time than usual. ExcessNS must not be nil.
func (x *TraceExplanation) shorter() bool {
	return float64(*x.ExcessNS) < -noticeable*float64(*x.UsualNS)
}

// longer reports whether the request took longer than such requests usually do. It returns false if no normal trace has
// such a request.
func (x *TraceExplanation) longer() bool { return x.ExcessNS != nil && !x.usualRange && !x.shorter() }

// durations appends the comparison of the durations.
func (x *TraceExplanation) durations(s *Sentence) {
	duration := number(units.Nanos(float64(x.DurationNS)))
	if x.ExcessNS == nil {
		duration.Strong = true
		s.Say("This request took %s; no normal trace has a request of its type, so new calls are no evidence", duration)
		return
	}
	usual := number(units.Nanos(float64(*x.UsualNS)))
	switch difference := float64(*x.ExcessNS); {
	case x.shorter():
		s.Say("This request took %s less than such requests usually do (%s instead of %s)",
			figure(units.Nanos(-difference)), duration, usual)
	case x.usualRange:
		s.Say("This request took %s, within the usual range of such requests (median %s)", duration, usual)
	default:
		s.Say("This request took %s longer than such requests usually do (%s instead of %s)",
			figure(units.Nanos(difference)), duration, usual)
	}
}

// places appends the first slow suspects.
func (x *TraceExplanation) places(s *Sentence) {
	named := 0
	for i := range x.Suspects {
		c := &x.Suspects[i]
		if c.Reason != onetrace.Slow || named == namedSuspects {
			continue
		}
		named++
		separator, of, part := ", ", "", units.Nanos(float64(c.ExcessNS))
		if named == 1 {
			separator, of = "; ", " more than usual"
			if x.longer() && float64(c.ExcessNS) <= (1+noticeable)*float64(*x.ExcessNS) {
				of = " of it"
				if c.ExcessNS >= *x.ExcessNS { // other steps were a little faster
					part = "all"
				}
			}
		}
		before, after := c.around()
		s.Say(separator+"%s"+of+" "+before+"%s"+after, figure(part), Name(c.name))
	}
}

// otherwise appends a clause about a suspect that isn't slow.
func (s *CallSuspect) otherwise(to *Sentence) {
	if s.Caller != nil {
		s.lacks(to)
		return
	}
	call := Name(s.name)
	switch s.Reason {
	case onetrace.Failed:
		to.Say("%s fails, although such calls usually do not", call)
	case onetrace.New:
		to.Say("%s is called, although no normal trace calls it", call)
	case onetrace.Slow, onetrace.Missing:
		to.Say("%s does not answer", call)
	}
}

// lacks appends a clause about missing calls. Caller must not be nil.
func (s *CallSuspect) lacks(to *Sentence) {
	caller := Name(s.Caller.name)
	if len(s.Missing) == 0 {
		to.Say("%s makes none of the calls that usually follow", caller)
		return
	}
	to.Say("%s does not call ", caller)
	missing := make([]Phrase, 0, len(s.Missing))
	for i := range s.Missing {
		missing = append(missing, Name(s.Missing[i].name))
	}
	to.list(missing, namedMissing, "other")
	to.Plain(", although it usually does")
}
