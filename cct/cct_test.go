package cct_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/internal/testkit/treetext"
	"github.com/sibyl-trace/sibyl/trace"
)

// script is the state of one script: a builder, its tree, and a table of names.
type script struct {
	table     trace.Table
	builder   cct.Builder
	catalogue []cct.Tracepoint
	tree      *cct.Tree
}

// TestScripts runs the scripts of testdata. Their commands are
//
//	reset [limit=nodes]                             discard the builder and the catalogue
//	announce                                        add the tracepoints in the input to the catalogue
//	observe [on=(tracepoints)] [seen=ns]  add a request with the contexts in the input, a tree
//	age now=ns                                      forget old contexts; print their number
//	build                                           print the tree and the tracepoints without a place
//	tree                                            parse a tree
//	match path=(operations) [on=(tracepoints)]      print the nodes that match a context
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var s script
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out, err := s.run(t, d)
			if err != nil {
				return fmt.Sprintf("error: %v\n", err)
			}
			return out
		})
	})
}

func (s *script) run(t *testing.T, d *datadriven.TestData) (string, error) {
	switch d.Cmd {
	case "reset":
		s.builder, s.catalogue = cct.Builder{}, nil
		if arg, ok := d.Arg("limit"); ok {
			fmt.Sscan(arg.Vals[0], &s.builder.Limit)
		}
		return "", nil
	case "announce":
		s.catalogue = append(s.catalogue, s.tracepoints(d.Input)...)
		return "", nil
	case "observe":
		return "", s.observe(d)
	case "age":
		var now int64
		d.ScanArgs(t, "now", &now)
		s.builder.Age(trace.Nanos(now), cct.MaxAge)
		return fmt.Sprintf("pruned %d\n", s.builder.Pruned()), nil
	case "build":
		s.tree = s.builder.Build(cct.NewCatalogue(s.catalogue, &s.table), &s.table)
		return treetext.Format(s.tree, &s.table) + s.unplacedText() + fmt.Sprintf("dropped %d\n", s.tree.Dropped), nil
	case "tree":
		tree, err := treetext.Parse(d.Input, &s.table)
		s.tree = tree
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%d nodes, %d tracepoints\n", len(tree.Nodes), tree.Tracepoints), nil
	case "match":
		return s.match(d), nil
	}
	return "", fmt.Errorf("unknown command %s", d.Cmd)
}

// tracepoints parses lines of: id [op=] [parent=] [owner=] [base] [kernel] [variable].
func (s *script) tracepoints(text string) []cct.Tracepoint {
	var list []cct.Tracepoint
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		tp := cct.Tracepoint{ID: s.table.Symbol(words[0]), Op: treetext.Op(words[0], &s.table)}
		for _, word := range words[1:] {
			key, value, _ := strings.Cut(word, "=")
			switch key {
			case "op":
				tp.Op = treetext.Op(value, &s.table)
			case "parent":
				tp.Parent = s.table.Symbol(value)
			case "owner":
				tp.Owner = treetext.Op(value, &s.table)
			case "base":
				tp.Baseline = true
			case "kernel":
				tp.Layer, tp.Kind = cct.Kernel, cct.ProbePoint
			case "variable":
				tp.Kind = cct.VariablePoint
			}
		}
		list = append(list, tp)
	}
	return list
}

// observe adds a request with the contexts in the input, a tree; its arguments are on=(tracepoints) and seen.
func (s *script) observe(d *datadriven.TestData) error {
	tree, err := treetext.Parse(d.Input, &s.table)
	if err != nil {
		return err
	}
	o := cct.Observation{Seen: 1}
	if arg, ok := d.Arg("on"); ok {
		for _, name := range arg.Vals {
			o.On = append(o.On, s.table.Symbol(name))
		}
	}
	if arg, ok := d.Arg("seen"); ok {
		fmt.Sscan(arg.Vals[0], &o.Seen)
	}
	slices.Sort(o.On)
	o.Contexts = contextsOf(tree)
	s.builder.Observe(o)
	return nil
}

func contextsOf(tree *cct.Tree) []cct.ContextCount {
	var list []cct.ContextCount
	for i := range tree.Nodes {
		n := &tree.Nodes[i]
		x := cct.ContextCount{Context: n.Context, Op: n.Op, Tracepoint: n.Tracepoint, Count: 1}
		if n.Parent >= 0 {
			x.Parent = tree.Nodes[n.Parent].Context
		}
		list = append(list, x)
	}
	return list
}

func (s *script) match(d *datadriven.TestData) string {
	var path []trace.Op
	var on []trace.Symbol
	for _, arg := range d.CmdArgs {
		for _, v := range arg.Vals {
			if arg.Key == "path" {
				path = append(path, treetext.Op(v, &s.table))
			} else {
				on = append(on, s.table.Symbol(v))
			}
		}
	}
	slices.Sort(on)
	m := s.tree.Match(path, on)
	var b strings.Builder
	fmt.Fprintf(&b, "distance %d\n", m.Distance)
	for k, i := range m.Nodes {
		fmt.Fprintf(&b, "%s weight %.2f\n", s.pathText(i), m.Weights[k])
	}
	for _, r := range m.RunnersUp {
		fmt.Fprintf(&b, "not %s, distance %d\n", s.pathText(r.Node), r.Distance)
	}
	return b.String()
}

func (s *script) unplacedText() string {
	var b strings.Builder
	for p := range s.tree.Unplaced(s.table.Symbol("app")) {
		fmt.Fprintf(&b, "%s unplaced\n", s.table.Text(p.ID))
	}
	return b.String()
}

func (s *script) pathText(i int32) string {
	var names []string
	for _, op := range s.tree.Path(i) {
		names = append(names, s.table.OpName(op))
	}
	return strings.Join(names, "/")
}
