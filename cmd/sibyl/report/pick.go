package report

import "github.com/sibyl-trace/sibyl/search"

// pick says which tracepoint to switch on, where, and why.
func (n *names) pick(k *search.Pick) sentence {
	var s sentence
	s.plain("switch on ")
	s.strong(n.clean(n.table.Text(k.Tracepoint)))
	if k.Context != 0 {
		s.plain(" at " + n.op(n.last(k.Context)))
	}
	if k.Reason != "" {
		s.plain(": " + n.clean(k.Reason))
	}
	return s
}
