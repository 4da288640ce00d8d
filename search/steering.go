package search

import (
	"cmp"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/trace"
)

// Steering is a person's decision about the search for one problem or incident. It takes precedence over the rules that
// start and end searches, but not over the budget.
type Steering struct {
	Subject Subject
	Ended   bool        // don't search the subject; if false, search it now, or again if its search is over
	Until   trace.Nanos // time from which the rules decide again
	By      string
	Reason  string // as given; may be empty
	Begun   bool   // Next has begun the search; set by Next
}

// Steering returns the decision about subject, or nil if the rules decide.
func (s *State) Steering(subject Subject) *Steering {
	for i := range s.Steered {
		if s.Steered[i].Subject == subject {
			return &s.Steered[i]
		}
	}
	return nil
}

// Wanted reports whether a person wants subject searched.
func (s *State) Wanted(subject Subject) bool {
	x := s.Steering(subject)
	return x != nil && !x.Ended
}

// ended ends the search for p if a person has decided so. It reports whether p must not be searched.
func (s *epochStep) ended(p *Problem) bool {
	x := s.state.Steering(p.Subject)
	if x == nil || !x.Ended {
		return false
	}
	if v := s.state.Investigation(p.Subject); v != nil && v.Status != Gone {
		s.decisions = append(s.decisions, s.end(v, x.reason("ended the search")))
	}
	return true
}

// restart starts the search for p over if it has ended and a person has since asked for another. A search that is under
// way goes on. restart reports whether a person wants p searched.
func (s *epochStep) restart(p *Problem) bool {
	if !s.state.Wanted(p.Subject) {
		return false
	}
	x := s.state.Steering(p.Subject)
	if x.Begun {
		return true
	}
	x.Begun = true
	v := s.state.Investigation(p.Subject)
	if v == nil || v.Status < Located {
		return true
	}
	if v.Status != Gone {
		s.decisions = append(s.decisions, s.end(v, x.reason("started the search again")))
	}
	*v = s.begin(p)
	s.excluded.endCooldowns(p.Subject)
	return true
}

// reason returns the reason for a decision: the person's name, the action `did`, and the person's own reason, if any.
func (x *Steering) reason(did string) string {
	text := cmp.Or(x.By, "a person") + " " + did
	if x.Reason != "" {
		text += ": " + x.Reason
	}
	return text
}

// begin returns a new investigation of p.
func (s *epochStep) begin(p *Problem) Investigation {
	return Investigation{
		Subject:     p.Subject,
		RequestType: p.RequestType,
		Group:       p.Group,
		Entry:       p.Entry,
		Opened:      s.in.Now,
		Changed:     s.in.Now,
		Strategy:    s.strategy.Name,
	}
}

// first reports whether p takes precedence over chronic problems: it is searched before them, and may displace one.
func (s *epochStep) first(p *Problem) bool {
	return p.Onset == detect.Changed || s.state.Wanted(p.Subject)
}
