package history

import (
	"cmp"

	"github.com/sibyl-trace/sibyl/trace"
)

// SiteKey identifies a site: a step and its caller. The caller is part of the key because the same operation may do
// different work for different callers. The whole calling context is not, because there may be too many contexts for
// each to have enough history.
type SiteKey struct {
	Parent, Op trace.Op // steps; Parent is 0 for a root
	Border     bool     // the site holds the borders of Op, see compare.Recording.border
}

// anyCaller returns the key that all sites of the same step share.
func (k SiteKey) anyCaller() SiteKey {
	return SiteKey{Op: k.Op, Border: k.Border, Parent: ^trace.Op(0)}
}

// Compare orders keys by operation, then by caller; borders come last.
func (k SiteKey) Compare(l SiteKey) int {
	if c := cmp.Or(cmp.Compare(k.Op, l.Op), cmp.Compare(k.Parent, l.Parent)); c != 0 || k.Border == l.Border {
		return c
	}
	if l.Border {
		return -1
	}
	return 1
}

// Site is a position of spans in the call graph.
type Site struct {
	SiteKey
	Base    trace.Op // operation of the step
	Service int32    // number of the service
	Client  bool     // whether its spans are CLIENT spans or borders
	Queue   bool     // whether its calls are messages that waited in a queue, Base, for the service
	Inner   bool     // whether its spans count in the local times of another site, see [Series]
	Peer    int32    // number of the callee named by the attributes of calls without an answer, or 0
}

// Wider returns the keys under which a site is pooled with others: the same step under any caller and, if the step has
// a target, the same operation with any target. The second key holds the history of unanswered calls.
func (s *Site) Wider() []SiteKey {
	keys := []SiteKey{s.anyCaller()}
	if s.Base != s.Op {
		base := keys[0]
		base.Op = s.Base
		keys = append(keys, base)
	}
	return keys
}

// Callee is the target of a CLIENT span.
type Callee struct {
	Service int32    // number of the service
	Op      trace.Op // 0 if only the name of the service is known, from an attribute of the CLIENT span
}

// Compare orders callees by operation and service.
func (c Callee) Compare(d Callee) int {
	return cmp.Or(cmp.Compare(c.Op, d.Op), cmp.Compare(c.Service, d.Service))
}

// Overflow is the number of the site, or shape, that stands for all sites and shapes beyond the limits on a recording
// or a history. It is not compared.
const Overflow = 0
