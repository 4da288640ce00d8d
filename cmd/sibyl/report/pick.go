package report

import (
	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/search"
)

// pick says which tracepoint to switch on, where, and why.
func (n *names) pick(k *search.Pick) sentence {
	var s sentence
	s.plain("switch on ")
	s.strong(n.tracepoint(k))
	if k.Context != 0 {
		s.plain(" at " + n.op(n.last(k.Context)))
	}
	if k.Reason != "" {
		s.plain(": " + n.clean(k.Reason))
	}
	return s
}

// next says what to do about a problem, first things first.
func (n *names) next(r *engine.ProblemReport) []sentence {
	var all []sentence
	for i := range r.Proposed {
		all = append(all, n.pick(&r.Proposed[i]))
	}
	if len(r.Missing) > 0 {
		var s sentence
		s.plain("add tracepoints within ")
		for i, op := range r.Missing {
			if i > 0 {
				s.plain(", ")
			}
			s.strong(n.op(op))
		}
		s.plain(": nothing below carries what is wrong, as far as is known")
		all = append(all, s)
	}
	if e := leading(&r.Problem); len(all) == 0 && e != nil && e.Edge != 0 {
		all = append(all, n.uncharted(e))
	}
	return all
}

// uncharted says where to add instrumentation when the search knows no tracepoint: an edge is time that no span explains.
func (n *names) uncharted(e *analysis.EdgeShare) sentence {
	var s sentence
	if e.Callee != 0 {
		s.plain("look at the connections and the queue of ")
		s.strong(n.op(e.Callee))
	} else {
		s.plain("add tracepoints inside ")
		s.strong(n.edge(e))
	}
	s.plain(": no span shows where the time goes there")
	return s
}

// tracepoint returns the name of what k switches on.
func (n *names) tracepoint(k *search.Pick) string {
	if name := n.table.Text(k.Tracepoint); name != "" {
		return n.clean(name)
	}
	return n.op(k.Op)
}
