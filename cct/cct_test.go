package cct

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/sibyl-trace/sibyl/trace"
)

// world runs one script: a builder, its tree, and the names.
type world struct {
	table   trace.Table
	builder Builder
	known   []Tracepoint // the catalogue
	tree    *Tree
}

func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var w world
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out, err := w.run(t, d)
			if err != nil {
				return fmt.Sprintf("error: %v\n", err)
			}
			return out
		})
	})
}

func (w *world) run(t *testing.T, d *datadriven.TestData) (string, error) {
	switch d.Cmd {
	case "reset":
		w.builder, w.known = Builder{}, nil
		if arg, ok := d.Arg("limit"); ok {
			fmt.Sscan(arg.Vals[0], &w.builder.Limit)
		}
		return "", nil
	case "announce":
		w.known = append(w.known, w.catalogue(d.Input)...)
		return "", nil
	case "observe":
		return "", w.observe(d)
	case "age":
		var now int64
		d.ScanArgs(t, "now", &now)
		w.builder.Age(trace.Nanos(now))
		return fmt.Sprintf("pruned %d\n", w.builder.Pruned()), nil
	case "build":
		w.tree = w.builder.Build(NewCatalogue(w.known, &w.table), &w.table)
		return w.tree.Text(&w.table) + w.looseText() + fmt.Sprintf("dropped %d\n", w.tree.Dropped), nil
	case "tree":
		tree, err := ParseText(d.Input, &w.table)
		w.tree = tree
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%d nodes, %d tracepoints\n", len(tree.Nodes), tree.Tracepoints), nil
	case "match":
		return w.match(d), nil
	}
	return "", fmt.Errorf("unknown command %s", d.Cmd)
}

// catalogue reads lines of: id [op=] [parent=] [owner=] [base] [kernel] [variable].
func (w *world) catalogue(text string) []Tracepoint {
	var list []Tracepoint
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		tp := Tracepoint{ID: w.table.Symbol(words[0]), Op: TextOp(words[0], &w.table)}
		for _, word := range words[1:] {
			key, value, _ := strings.Cut(word, "=")
			switch key {
			case "op":
				tp.Op = TextOp(value, &w.table)
			case "parent":
				tp.Parent = w.table.Symbol(value)
			case "owner":
				tp.Owner = TextOp(value, &w.table)
			case "base":
				tp.Baseline = true
			case "kernel":
				tp.Layer, tp.Kind = Kernel, ProbePoint
			case "variable":
				tp.Kind = VariablePoint
			}
		}
		list = append(list, tp)
	}
	return list
}

// observe reads indented lines: name [base] [xCOUNT]; which are on, and when, are arguments.
func (w *world) observe(d *datadriven.TestData) error {
	tree, err := ParseText(d.Input, &w.table)
	if err != nil {
		return err
	}
	o := Observation{Explore: d.HasArg("explore"), Seen: 1}
	if arg, ok := d.Arg("on"); ok {
		for _, name := range arg.Vals {
			o.On = append(o.On, w.table.Symbol(name))
		}
	}
	if arg, ok := d.Arg("seen"); ok {
		fmt.Sscan(arg.Vals[0], &o.Seen)
	}
	slices.Sort(o.On)
	o.Contexts = sightings(tree)
	w.builder.Observe(o)
	return nil
}

func sightings(tree *Tree) []Sighting {
	var list []Sighting
	for i := range tree.Nodes {
		n := &tree.Nodes[i]
		x := Sighting{Context: n.Context, Op: n.Op, Tracepoint: n.Tracepoint, Count: 1, Nanos: 1000}
		if n.Parent >= 0 {
			x.Parent = tree.Nodes[n.Parent].Context
		}
		list = append(list, x)
	}
	return list
}

func (w *world) match(d *datadriven.TestData) string {
	var path []trace.Op
	var on []trace.Symbol
	for _, arg := range d.CmdArgs {
		for _, v := range arg.Vals {
			if arg.Key == "path" {
				path = append(path, TextOp(v, &w.table))
			} else {
				on = append(on, w.table.Symbol(v))
			}
		}
	}
	slices.Sort(on)
	m := w.tree.Match(path, on)
	var b strings.Builder
	fmt.Fprintf(&b, "distance %d\n", m.Distance)
	for k, i := range m.Nodes {
		fmt.Fprintf(&b, "%s weight %.2f\n", w.pathText(i), m.Weights[k])
	}
	for _, r := range m.RunnersUp {
		fmt.Fprintf(&b, "not %s, distance %d\n", w.pathText(r.Node), r.Distance)
	}
	return b.String()
}

func (w *world) looseText() string {
	var b strings.Builder
	for p := range w.tree.Loose(w.table.Symbol("app")) {
		fmt.Fprintf(&b, "%s anywhere\n", w.table.Text(p.ID))
	}
	return b.String()
}

func (w *world) pathText(i int32) string {
	var names []string
	for _, op := range w.tree.Path(i) {
		names = append(names, w.table.OpName(op))
	}
	return strings.Join(names, "/")
}
