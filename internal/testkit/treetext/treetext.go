// Package treetext parses and formats calling-context trees in a text form for tests: see [Parse].
package treetext

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// ErrSyntax is the error of [Parse] for invalid text.
var ErrSyntax = errors.New("treetext: syntax error")

// Parse parses a tree in the text form of tests, one node per line, indented below its parent:
//
//	checkout
//	  price hits=20/10 bytes=80
//	    tax tp=tax.lookup
//	  bank base
//	    send
//	  futex kernel
//	  helper unanchored
//
// Roots and nodes marked base belong to the baseline. Any other node has a tracepoint with the name of the node, unless
// tp= names another. to= names the target of a step. The words unanchored, runtime, kernel, variable and probe set the
// node's fields, as do hits=HITS/REQUESTS, bytes=BYTES, cost=DURATION, seen=NANOSECONDS and share=MEAN/N, a history of
// N investigations. Empty lines and lines that start with # are skipped.
//
// Parse adds names to table. Operations are of the service "app" and of kind internal (see [Op]). It returns an error
// wrapping [ErrSyntax] with the number of the line.
func Parse(text string, table *trace.Table) (*cct.Tree, error) {
	var nodes []cct.Node
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
		n := cct.Node{Parent: -1, Catalogued: true}
		if len(above) > 0 {
			n.Parent = above[len(above)-1]
		}
		if err := parseNode(&n, strings.Fields(line), table); err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrSyntax, k+1, err)
		}
		indents, above = append(indents, indent), append(above, int32(len(nodes)))
		nodes = append(nodes, n)
	}
	t := cct.NewTree(nodes)
	for i := range nodes {
		t.Requests = max(t.Requests, nodes[i].Requests)
	}
	return t, nil
}

// Op adds to table the operation that [Parse] assigns to name, and returns it.
func Op(name string, table *trace.Table) trace.Op {
	return table.Op(table.Symbol("app"), table.Symbol(name), trace.Internal)
}

func parseNode(n *cct.Node, words []string, table *trace.Table) error {
	n.Op, n.Service = Op(words[0], table), table.Symbol("app")
	if n.Parent >= 0 {
		n.Tracepoint = table.Symbol(words[0])
	}
	for _, w := range words[1:] {
		if err := parseProperty(n, w, table); err != nil {
			return fmt.Errorf("%q: %w", w, err)
		}
	}
	if n.Kind == cct.VariablePoint {
		n.Op = trace.Op(n.Tracepoint)
	}
	return nil
}

func parseProperty(n *cct.Node, word string, table *trace.Table) (err error) {
	key, value, _ := strings.Cut(word, "=")
	switch key {
	case "base":
		n.Tracepoint = 0
	case "unanchored":
		n.Unanchored = true
	case "runtime":
		n.Layer = cct.Runtime
	case "kernel":
		n.Layer, n.Kind = cct.Kernel, cct.ProbePoint
	case "variable":
		n.Kind = cct.VariablePoint
	case "probe":
		n.Kind = cct.ProbePoint
	case "to":
		n.Op = table.Step(n.Op, Op(value, table))
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

func parseHistory(text string) (cct.History, error) {
	mean, count, _ := strings.Cut(text, "/")
	share, err := strconv.ParseFloat(mean, 64)
	if err != nil {
		return cct.History{}, err
	}
	n, err := strconv.Atoi(count)
	if err != nil {
		return cct.History{}, err
	}
	var h cct.History
	for range n {
		h.Merge(cct.HistoryOf(share, share))
	}
	return h, nil
}

// Format formats t as text for [Parse]. It omits bytes, costs, times and histories.
func Format(t *cct.Tree, table *trace.Table) string {
	var b strings.Builder
	for i := range t.Nodes {
		n := &t.Nodes[i]
		name := table.OpName(n.Op)
		if n.Kind == cct.VariablePoint {
			name = table.Text(n.Tracepoint)
		}
		fmt.Fprintf(&b, "%s%s", strings.Repeat("  ", int(n.Depth)), name)
		appendProperties(&b, n, name, table)
		b.WriteByte('\n')
	}
	return b.String()
}

func appendProperties(b *strings.Builder, n *cct.Node, name string, table *trace.Table) {
	if target := table.Target(n.Op); target != 0 {
		b.WriteString(" to=" + table.OpName(target))
	}
	tp := table.Text(n.Tracepoint)
	switch {
	case n.Parent >= 0 && n.Baseline():
		b.WriteString(" base")
	case !n.Baseline() && tp != name:
		fmt.Fprintf(b, " tp=%s", tp)
	}
	if n.Unanchored {
		b.WriteString(" unanchored")
	}
	if n.Layer != cct.App {
		fmt.Fprintf(b, " %s", n.Layer)
	}
	if n.Kind == cct.VariablePoint {
		fmt.Fprintf(b, " %s", n.Kind)
	}
	if n.Hits > 0 || n.Requests > 0 && !n.Baseline() {
		fmt.Fprintf(b, " hits=%d/%d", n.Hits, n.Requests)
	}
}
