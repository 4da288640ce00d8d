package report

import "github.com/sibyl-trace/sibyl/search"

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

// tracepoint returns the name of what k switches on.
func (n *names) tracepoint(k *search.Pick) string {
	if name := n.table.Text(k.Tracepoint); name != "" {
		return n.clean(name)
	}
	return n.op(k.Op)
}
