package cct

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// ErrSyntax is returned for text that [ParseText] does not understand.
var ErrSyntax = errors.New("calling-context tree text: syntax error")

// ParseText reads a tree in the text form that tests use, one node a line, indented below its parent:
//
//	checkout
//	  price hits=20/10 bytes=80
//	    tax tp=tax.lookup
//	  bank base
//	    send
//	  futex kernel
//	  helper floating
//
// Roots, and nodes marked base, are baseline; the others have a tracepoint named like them or as tp= says. What may follow:
// floating, runtime, kernel, variable, probe; hits=HITS/REQUESTS, bytes=, cost=, seen= (ns), share=MEAN/N for a history of N investigations.
// Names are entered in table; operations are of the service "app" and of kind internal. It returns an error wrapping
// [ErrSyntax] that says the line.
func ParseText(text string, table *trace.Table) (*Tree, error) {
	var nodes []Node
	var above []int32
	var indents []int
	for k, line := range strings.Split(text, "\n") {
		if trimmed := strings.TrimSpace(line); trimmed == "" || trimmed[0] == '#' {
			continue
		}
		indent := len(line) - len(strings.TrimLeft(line, " "))
		for len(indents) > 0 && indents[len(indents)-1] >= indent {
			indents, above = indents[:len(indents)-1], above[:len(above)-1]
		}
		n := Node{Parent: -1, Catalogued: true}
		if len(above) > 0 {
			n.Parent = above[len(above)-1]
		}
		if err := parseNode(&n, strings.Fields(line), table); err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrSyntax, k+1, err)
		}
		indents, above = append(indents, indent), append(above, int32(len(nodes)))
		nodes = append(nodes, n)
	}
	t := newTree(nodes)
	for i := range nodes {
		t.Requests = max(t.Requests, nodes[i].Requests)
	}
	return t, nil
}

// TextOp returns the operation that [ParseText] gives to a name.
func TextOp(name string, table *trace.Table) trace.Op {
	return table.Op(table.Symbol("app"), table.Symbol(name), trace.Internal)
}

func parseNode(n *Node, words []string, table *trace.Table) error {
	n.Op, n.Service = TextOp(words[0], table), table.Symbol("app")
	if n.Parent >= 0 {
		n.Tracepoint = table.Symbol(words[0])
	}
	for _, w := range words[1:] {
		if err := parseProperty(n, w, table); err != nil {
			return fmt.Errorf("%q: %w", w, err)
		}
	}
	if n.Kind == VariablePoint {
		n.Op = trace.Op(n.Tracepoint)
	}
	return nil
}

func parseProperty(n *Node, word string, table *trace.Table) (err error) {
	key, value, _ := strings.Cut(word, "=")
	switch key {
	case "base":
		n.Tracepoint = 0
	case "floating":
		n.Floating = true
	case "runtime":
		n.Layer = Runtime
	case "kernel":
		n.Layer, n.Kind = Kernel, ProbePoint
	case "variable":
		n.Kind = VariablePoint
	case "probe":
		n.Kind = ProbePoint
	case "tp":
		n.Tracepoint = table.Symbol(value)
	case "hits":
		_, err = fmt.Sscanf(value, "%d/%d", &n.Hits, &n.Requests)
	case "bytes":
		_, err = fmt.Sscanf(value, "%d", &n.Bytes)
	case "seen":
		_, err = fmt.Sscanf(value, "%d", &n.Seen)
	case "cost":
		n.Cost, err = time.ParseDuration(value)
	case "share":
		n.History, err = parseHistory(value)
	default:
		err = errors.New("unknown word")
	}
	return err
}

func parseHistory(text string) (History, error) {
	mean, count, _ := strings.Cut(text, "/")
	share, err := strconv.ParseFloat(mean, 64)
	if err != nil {
		return History{}, err
	}
	n, err := strconv.Atoi(count)
	if err != nil {
		return History{}, err
	}
	var h History
	for range n {
		h.Merge(HistoryOf(share, share))
	}
	return h, nil
}

// Text returns t in the form that [ParseText] reads, without costs and histories.
func (t *Tree) Text(table *trace.Table) string {
	var b strings.Builder
	for i := range t.Nodes {
		n := &t.Nodes[i]
		name := table.OpName(n.Op)
		if n.Kind == VariablePoint {
			name = table.Text(n.Tracepoint)
		}
		fmt.Fprintf(&b, "%s%s", strings.Repeat("  ", int(n.Depth)), name)
		n.appendProperties(&b, name, table)
		b.WriteByte('\n')
	}
	return b.String()
}

func (n *Node) appendProperties(b *strings.Builder, name string, table *trace.Table) {
	tp := table.Text(n.Tracepoint)
	switch {
	case n.Parent >= 0 && n.Baseline():
		b.WriteString(" base")
	case !n.Baseline() && tp != name:
		fmt.Fprintf(b, " tp=%s", tp)
	}
	if n.Floating {
		b.WriteString(" floating")
	}
	if n.Layer != App {
		fmt.Fprintf(b, " %s", n.Layer)
	}
	if n.Kind == VariablePoint {
		fmt.Fprintf(b, " %s", n.Kind)
	}
	if n.Hits > 0 || n.Requests > 0 && !n.Baseline() {
		fmt.Fprintf(b, " hits=%d/%d", n.Hits, n.Requests)
	}
}
