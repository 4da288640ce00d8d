package report

import (
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine/offline"
	"github.com/sibyl-trace/sibyl/search"
)

// pick says which tracepoint to switch on, where, and why.
func (n *names) pick(k *search.Pick) describe.Sentence {
	var s describe.Sentence
	s.Plain("switch on ")
	s.Strong(n.tracepoint(k))
	if k.Context != 0 {
		s.Plain(" at " + n.Op(n.Last(k.Context)))
	}
	if k.Reason != "" {
		s.Plain(": " + n.Clean(k.Reason))
	}
	return s
}

// next says what to do about a problem, first things first.
func (n *names) next(r *offline.Problem) []describe.Sentence {
	var all []describe.Sentence
	for i := range r.Proposed {
		all = append(all, n.pick(&r.Proposed[i]))
	}
	if len(r.Missing) > 0 {
		var s describe.Sentence
		s.Plain("add tracepoints within ")
		for i, op := range r.Missing {
			if i > 0 {
				s.Plain(", ")
			}
			s.Strong(n.Op(op))
		}
		s.Plain(": nothing below carries what is wrong, as far as is known")
		all = append(all, s)
	}
	if e := describe.Leading(&r.Problem); len(all) == 0 && e != nil && e.Edge != 0 {
		all = append(all, n.uncharted(e))
	}
	return all
}

// uncharted says where to add instrumentation when the search knows no tracepoint: an edge is time that no span explains.
func (n *names) uncharted(e *group.EdgeShare) describe.Sentence {
	var s describe.Sentence
	if e.Callee != 0 {
		s.Plain("look at the connections and the queue of ")
		s.Strong(n.Op(e.Callee))
	} else {
		s.Plain("add tracepoints inside ")
		s.Strong(n.Edge(e))
	}
	s.Plain(": no span shows where the time goes there")
	return s
}

// tracepoint returns the name of what k switches on.
func (n *names) tracepoint(k *search.Pick) string {
	if name := n.Table.Text(k.Tracepoint); name != "" {
		return n.Clean(name)
	}
	return n.Op(k.Op)
}
