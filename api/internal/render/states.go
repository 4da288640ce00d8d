package render

import (
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// States holds the states of tracepoints.
type States struct {
	on        map[trace.Symbol]bool
	overrides map[trace.Symbol]*search.Override
}

// NewStates returns the states of tracepoints according to the plan and the overrides of c.
func NewStates(c *engine.View) *States {
	s := &States{make(map[trace.Symbol]bool), make(map[trace.Symbol]*search.Override)}
	for _, l := range c.Searches.Plan().Leases {
		s.on[l.Tracepoint] = true
	}
	for i := range c.Searches.State().Overrides {
		w := &c.Searches.State().Overrides[i]
		s.overrides[w.Tracepoint] = w
	}
	return s
}

// Of returns the state of a tracepoint; 0 stands for the baseline.
func (s *States) Of(tp trace.Symbol) contract.TracepointState {
	w := s.overrides[tp]
	switch {
	case tp == 0:
		return contract.TracepointStateBaseline
	case w != nil && w.Kind == search.Forbid:
		return contract.TracepointStateForbidden
	case s.on[tp]:
		return contract.TracepointStateOn
	case w != nil:
		return contract.TracepointStatePending
	}
	return contract.TracepointStateOff
}
