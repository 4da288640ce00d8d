package critpath_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetext"
	"github.com/sibyl-trace/sibyl/trace"
)

// TestPath runs the scripts of testdata/path. Their commands are
//
//	path [max_skew=ns] [async=ignore] [overlap=x] [tie=latest_start] [touching=strict] [see-through=service] [nodes]
//	observe [options of path] [root=number]
//
// with a trace as input. Both print the flags and counts of the trace. path then prints the sections of each root as
//
//	start..end span  before→after
//
// with refined sections indented. observe prints the observation of one root.
func TestPath(t *testing.T) {
	datadriven.Walk(t, "testdata/path", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			table := &trace.Table{}
			tr, err := tracetext.Parse(d.Input, table)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			p := critpath.NewExtractor(scriptOptions(t, d)).Extract(tr)
			out := printer{path: p, table: table, names: spanNames(d.Input)}
			out.summary()
			switch d.Cmd {
			case "path":
				out.paths(d.HasArg("nodes"))
			case "observe":
				root := 0
				d.MaybeScanArgs(t, "root", &root)
				out.observation(root)
			default:
				d.Fatalf(t, "unknown command %q", d.Cmd)
			}
			return out.String()
		})
	})
}

func scriptOptions(t *testing.T, d *datadriven.TestData) critpath.Options {
	o := critpath.DefaultOptions()
	var overlap string
	if d.MaybeScanArgs(t, "overlap", &overlap) {
		o.OverlapTolerance, _ = strconv.ParseFloat(overlap, 64)
	}
	o.IgnoreAsync = d.HasArg("async")
	o.LatestStart = d.HasArg("tie")
	o.StrictTouching = d.HasArg("touching")
	var proxy string
	if d.MaybeScanArgs(t, "see-through", &proxy) {
		o.SeeThrough = []trace.Symbol{trace.SymbolOf([]byte(proxy))}
	}
	return o
}

func spanNames(text string) map[trace.SpanID]string {
	names := make(map[trace.SpanID]string)
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 0 {
			id := tracetext.ID(f[0])
			names[id] = f[0]
			names[trace.SpanID(trace.Mix(uint64(id), 0x5e72766572))] = f[0] + "'"
		}
	}
	return names
}

// printer prints paths and observations as scripts expect them.
type printer struct {
	strings.Builder
	path  *critpath.Path
	table *trace.Table
	names map[trace.SpanID]string
}

func (w *printer) printf(format string, args ...any) { fmt.Fprintf(&w.Builder, format, args...) }

func (w *printer) summary() {
	p := w.path
	if p.Flags != 0 {
		w.printf("flags: %s\n", strings.Join(p.Flags.Names(), " "))
	}
	counts := strings.Fields(strings.Trim(fmt.Sprintf("%+v", p.Counts), "{}"))
	counts = slices.DeleteFunc(counts, func(c string) bool { return strings.HasSuffix(c, ":0") })
	if len(counts) > 0 {
		w.printf("counts: %s\n", strings.Join(counts, " "))
	}
	if len(p.Roots) == 0 {
		w.printf("no roots\n")
	}
}

func (w *printer) node(i int32) string {
	if i < 0 {
		return "·"
	}
	return w.names[w.path.Nodes[i].ID]
}

func (w *printer) paths(nodes bool) {
	for i := range w.path.Roots {
		r := &w.path.Roots[i]
		n := &w.path.Nodes[r.Node]
		w.printf("root %s %d..%d", w.node(r.Node), n.Start, n.End)
		if reason := w.path.Unusable(i); reason != "" {
			w.printf(" unusable=%s", reason)
		}
		if r.AsyncTail > 0 {
			w.printf(" async_tail=%d", r.AsyncTail.Nanoseconds())
		}
		if wait, ok := w.path.Wait(i); ok {
			w.printf(" wait=%d", wait.Time.Nanoseconds())
		}
		if gap, ok := w.path.Gap(i); ok {
			w.printf(" gap=%s hop=%s", w.node(r.Gap), cmp.Or(w.table.ServiceName(gap.Hop), "·"))
		}
		w.printf("\n")
		for j, s := range r.Sections {
			w.section("  ", &s)
			for _, s := range r.Refined {
				if int(s.Within) == j {
					w.section("      ", &s)
				}
			}
		}
		for _, o := range r.Overlaps {
			w.printf("  overlap %s %d\n", w.node(o.Node), o.By.Nanoseconds())
		}
	}
	if nodes {
		w.nodes()
	}
}

func (w *printer) section(indent string, s *critpath.Section) {
	w.printf("%s%d..%d %s  %s→%s\n", indent, s.Start, s.End, w.node(s.Node), w.node(s.Before), w.node(s.After))
}

// nodes prints the nodes by name.
func (w *printer) nodes() {
	var lines []string
	for i := range w.path.Nodes {
		n := &w.path.Nodes[i]
		line := fmt.Sprintf("node %s %d..%d parent=%s", w.node(int32(i)), n.Start, n.End, w.node(n.Parent))
		if n.Root < 0 {
			line += " dropped"
		} else if len(w.path.Roots) > 1 {
			line += " root=" + w.node(w.path.Roots[n.Root].Node)
		}
		if n.Anchor != int32(i) {
			line += " anchor=" + w.node(n.Anchor)
		}
		if target := w.path.Target(int32(i)); target != 0 {
			line += " target=" + w.op(target)
		}
		lines = append(lines, line+"\n")
	}
	slices.Sort(lines)
	w.printf("%s", strings.Join(lines, ""))
}

func (w *printer) op(op trace.Op) string {
	if op == 0 {
		return "·"
	}
	if target := w.table.Target(op); target != 0 {
		return w.table.OpName(op) + ">" + cmp.Or(w.table.OpName(target), w.table.ServiceName(target))
	}
	return w.table.OpName(op)
}

// observation prints the observation of root number root, with names of operations instead of hashes.
func (w *printer) observation(root int) {
	if reason := w.path.Unusable(root); reason != "" {
		w.printf("unusable: %s\n", reason)
		return
	}
	var o observation.Observation
	var observer observation.Observer
	observer.Observe(w.path, root, &o)
	names := w.contexts(&o)
	w.printf("entry %s %d+%d plan=%d arm=%q failed=%v\n",
		w.op(o.Entry), o.Start, o.Duration.Nanoseconds(), o.Plan, w.table.Text(o.Arm), o.Failed)
	children := make([]string, len(o.Children))
	for i, op := range o.Children {
		children[i] = w.op(op)
	}
	slices.Sort(children)
	w.printf("children: %s\n", strings.Join(children, " "))
	var lines []string
	for _, c := range o.Contexts {
		line := fmt.Sprintf("context %s count=%d exclusive=%d self=%d total=%d",
			names[c.Context], c.Count, c.Exclusive, c.Self, c.Total)
		if c.Errors > 0 {
			line += fmt.Sprintf(" errors=%d", c.Errors)
		}
		if c.Tracepoint != 0 {
			line += " tp=" + w.table.Text(c.Tracepoint)
		}
		lines = append(lines, line)
	}
	within := make(map[trace.Edge]string)
	for _, e := range o.Edges {
		within[e.Edge] = w.edge(names, &e)
		lines = append(lines, fmt.Sprintf("edge %s %d", within[e.Edge], e.Nanos))
	}
	for _, e := range o.Refined {
		lines = append(lines, fmt.Sprintf("refined %s: %s %d", within[e.Within], w.edge(names, &e), e.Nanos))
	}
	for _, v := range o.Variables {
		value := w.table.Text(v.Text)
		if v.Numeric {
			value = fmt.Sprint(v.Number)
		}
		lines = append(lines, fmt.Sprintf("variable %s %s=%s", names[v.Context], w.table.Text(v.Key), value))
	}
	slices.Sort(lines)
	w.printf("%s\n", strings.Join(lines, "\n"))
}

func (w *printer) edge(names map[trace.Context]string, e *observation.EdgeTime) string {
	return fmt.Sprintf("%s[%s→%s]", names[e.Context], w.op(e.Before), w.op(e.After))
}

// contexts returns the names of contexts: their operations, joined by slashes.
func (w *printer) contexts(o *observation.Observation) map[trace.Context]string {
	names := make(map[trace.Context]string)
	for _, c := range o.Contexts {
		w.table.Step(c.Op, c.Target)
	}
	for range o.Contexts { // parents may come after children
		for _, c := range o.Contexts {
			names[c.Context] = strings.TrimPrefix(names[c.Parent]+"/"+w.op(c.Step()), "/")
		}
	}
	return names
}
