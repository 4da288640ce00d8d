package report

import (
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine/offline"
	"github.com/sibyl-trace/sibyl/search"
)

// pick returns a sentence that proposes to enable the tracepoint of k, with its place and the reason.
func (n *names) pick(k *search.Pick) describe.Sentence {
	var s describe.Sentence
	s.Plain("enable ")
	s.Strong(n.tracepoint(k))
	if k.Context != 0 {
		s.Plain(" at " + n.Op(n.Last(k.Context)))
	}
	if k.Reason != "" {
		s.Plain(": " + n.Clean(k.Reason))
	}
	return s
}

// next returns the next steps for r, most important first.
func (n *names) next(r *offline.Problem) []describe.Sentence {
	var all []describe.Sentence
	if s := describe.CompareValue(n.Names, &r.Problem); s != nil {
		all = append(all, s)
	}
	explained := len(all)
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
		s.Plain(": the known tracepoints do not explain their part of the problem")
		all = append(all, s)
	}
	if e := describe.Leading(&r.Problem); len(all) == explained && e != nil && e.Edge != 0 {
		all = append(all, n.unexplained(e))
	}
	return all
}

// unexplained returns a sentence that proposes a check or instrumentation at e, which has no known tracepoint below it.
func (n *names) unexplained(e *group.EdgeShare) describe.Sentence {
	var s describe.Sentence
	last := n.Last(e.Context)
	if n.Queued(last) {
		s.Plain("check the threads or workers of ")
		s.Strong(n.Service(last))
		s.Plain(", its CPU limit and its number of requests: they wait before it takes them up")
		return s
	}
	if target := n.Table.Target(last); target != 0 {
		if n.External(target) {
			s.Plain("check ")
		} else {
			s.Plain("check the connections and the queue of ")
		}
		s.Strong(n.Op(target))
	} else {
		s.Plain("add tracepoints inside ")
		s.Strong(n.Edge(e))
	}
	s.Plain(": no span shows where the time goes there")
	return s
}

// tracepoint returns the name of the tracepoint of k, or of its operation if the tracepoint has no name.
func (n *names) tracepoint(k *search.Pick) string {
	if name := n.Table.Text(k.Tracepoint); name != "" {
		return n.Clean(name)
	}
	return n.Op(k.Op)
}
