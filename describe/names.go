// Package describe puts into words what is known about requests and problems: names of operations, places and request types, the sentence
// that says what is wrong, and critical paths as profiles that other tools open.
//
// It computes no statistics: what is said is said from the numbers that it is given. It is safe for concurrent use as long as nobody
// changes what it reads.
package describe

import (
	"strings"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/trace"
)

// OtherPlaces names the edges beyond the bound, which are kept together.
const OtherPlaces = "other"

// Names puts identities into words. It reads its table, and nothing else that changes.
type Names struct {
	Table     *trace.Table
	Clean     func(string) string      // applied to all text that came from traces
	Types     map[analysis.Hash]string // names of request types; Add adds to them
	taken     map[string]bool          // names of these
	summaries map[summaryKey]*group.Summary
}

type summaryKey struct {
	level group.Level
	id    analysis.Hash
}

// Verbatim leaves text as it came, for formats that escape it themselves.
func Verbatim(s string) string { return s }

// New returns names without any request type or summary. Clean is applied to all text that came from traces; [Verbatim] leaves it.
func New(table *trace.Table, clean func(string) string) *Names {
	return &Names{
		Table: table, Clean: clean,
		Types: make(map[analysis.Hash]string), taken: make(map[string]bool), summaries: make(map[summaryKey]*group.Summary),
	}
}

// Add makes s known: a request type by its name, which is unique among those that were added, and the statistics of s to sentences.
func (n *Names) Add(s *group.Summary) {
	n.Judge(s)
	if s.Level != group.LevelRequestType {
		return
	}
	name := n.typeName(s)
	if n.taken[name] {
		name += " #" + s.ID.String()[:8]
	}
	n.Call(s.ID, name)
}

// Judge makes the statistics of s known to sentences.
func (n *Names) Judge(s *group.Summary) { n.summaries[summaryKey{s.Level, s.ID}] = s }

// Call gives a request type a name.
func (n *Names) Call(requestType analysis.Hash, name string) {
	n.taken[name] = true
	n.Types[requestType] = name
}

// typeName returns the entry operation, with what tells it apart where several request types enter there.
func (n *Names) typeName(s *group.Summary) string {
	if s.Name != "" {
		return n.Clean(s.Name)
	}
	name := n.Op(s.Entry)
	if len(s.Distinct) == 0 {
		return name
	}
	const most = 3 // to keep names short; the first are the most telling
	var parts []string
	for _, op := range s.Distinct[:min(most, len(s.Distinct))] {
		if n.Table.Operation(op).Service == n.Table.Operation(s.Entry).Service {
			parts = append(parts, n.OpName(op))
		} else {
			parts = append(parts, n.Op(op))
		}
	}
	return name + " (" + strings.Join(parts, ", ") + ")"
}

// RequestType returns the name of the request type with the given identity; of one that was not added that of its entry.
func (n *Names) RequestType(id analysis.Hash, entry trace.Op) string {
	if name, ok := n.Types[id]; ok {
		return name
	}
	return n.Op(entry)
}

// Summary returns what is known about the requests that p is about; nil if it was not added.
func (n *Names) Summary(p *detect.Problem) *group.Summary {
	return n.summaries[summaryKey{p.Level, p.Group}]
}

// Op returns "service operation".
func (n *Names) Op(op trace.Op) string {
	return strings.TrimSpace(n.Service(op) + " " + n.OpName(op))
}

// Service returns the name of op's service.
func (n *Names) Service(op trace.Op) string { return n.Clean(n.Table.ServiceName(op)) }

// OpName returns op's name without its service.
func (n *Names) OpName(op trace.Op) string { return n.Clean(n.Table.OpName(op)) }

// Context returns the operations from the root down to c.
func (n *Names) Context(c trace.Context) []string {
	path := []string{} // not nil: JSON shows it as a list
	for _, op := range n.Table.Path(c) {
		path = append(path, n.Op(op))
	}
	return path
}

// Last returns the operation that c ends with; 0 for the empty context.
func (n *Names) Last(c trace.Context) trace.Op { return n.Table.Context(c).Op }

// Edge returns the short name of a place on the path: who spends time there, and where within its span.
func (n *Names) Edge(e *group.EdgeShare) string {
	if e.Edge == 0 {
		return OtherPlaces
	}
	if e.Callee != 0 {
		return n.wire(e)
	}
	name := n.Op(n.Last(e.Context))
	switch {
	case e.Before != 0 && e.After != 0:
		return name + ", between " + n.OpName(e.Before) + " and " + n.OpName(e.After)
	case e.Before != 0:
		return name + ", after " + n.OpName(e.Before)
	case e.After != 0:
		return name + ", before " + n.OpName(e.After)
	}
	return name
}

// wire returns the name of the time between a caller and its callee.
func (n *Names) wire(e *group.EdgeShare) string {
	name := n.Service(n.Last(e.Context)) + " → " + n.Op(e.Callee)
	if e.Before == e.Callee {
		return name + " (answer on the wire)"
	}
	return name + " (wire or queue)"
}

// Leading returns the edge that a problem is about; nil if it has none.
func Leading(p *detect.Problem) *group.EdgeShare {
	if len(p.Edges) == 0 {
		return nil
	}
	return &p.Edges[0]
}

// Variables that are no attributes, as analysis names them.
const (
	variableCount    = "count"
	variablePresent  = "present"
	variableErrors   = "errors"
	variableSkeleton = "skeleton"
)

// Bins says what the requests of a group have in common besides their path; "" if nothing.
func (n *Names) Bins(s *group.Summary) string {
	var parts []string
	for i := range s.Bins {
		b := &s.Bins[i]
		what, _ := n.Variable(&detect.Explanation{Variable: b.Variable, Value: b.Value, Where: b.Where})
		parts = append(parts, what)
	}
	return strings.Join(parts, ", ")
}

// Variable puts the variable of an explanation into words, with its value if one stands out, and its place.
func (n *Names) Variable(x *detect.Explanation) (what, where string) {
	at := n.Op(n.Last(x.Where))
	value := ""
	if x.Value != "" {
		value = " = " + n.Clean(x.Value)
	}
	switch {
	case x.Variable == variableSkeleton:
		return "the path that requests take", ""
	case x.Where == 0:
		return n.Clean(x.Variable) + value, ""
	case x.Variable == variableCount:
		return "calls of " + at + value, ""
	case x.Variable == variablePresent && x.Value == "false":
		return at + " is not called", ""
	case x.Variable == variablePresent:
		return at + " is called", ""
	case x.Variable == variableErrors:
		return "errors of " + at + value, ""
	}
	return n.Clean(x.Variable) + value, " at " + at
}
