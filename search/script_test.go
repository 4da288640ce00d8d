package search

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// script runs a text file of decisions.
type script struct {
	table trace.Table
	in    Input
	p     detect.Problem
}

func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/next", func(t *testing.T, path string) {
		s := &script{}
		s.reset()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.run(t, d) })
	})
}

func (s *script) reset() {
	s.in = Input{Table: &s.table, Epoch: 10 * time.Second, Seed: 1, Trees: map[analysis.Hash]*cct.Tree{}, Rates: map[analysis.Hash]float64{{Hi: 2}: 2}}
	s.p = detect.Problem{ID: analysis.Hash{Hi: 1}, RequestType: analysis.Hash{Hi: 2}, Rate: 2}
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "tree":
		s.reset()
		tree, err := cct.ParseText(d.Input, &s.table)
		if err != nil {
			return err.Error()
		}
		s.in.Trees[s.p.RequestType] = tree
		return fmt.Sprintf("%d nodes\n", len(tree.Nodes))
	case "problem":
		s.problem(t, d.Input)
		return ""
	case "wish":
		s.wish(d)
		return ""
	case "next":
		return s.next(t, d)
	case "silence":
		s.silence(t, d)
		return ""
	case "silences":
		return s.silences()
	case "leases":
		return s.leases()
	}
	return "unknown command"
}

// problem reads the edges and the evidence: "edge A/B score" and "seen A/B/c share±half n=20", the first path being that of a
// baseline operation, dots the paths within it: "seen A/B.c.d 0.9 0.05 n=20". An edge of a problem that is slow has an "excess=ns±half".
func (s *script) problem(t *testing.T, text string) {
	s.p.Edges, s.p.Refined, s.p.Explanations = nil, nil, nil
	for line := range strings.Lines(text) {
		var cmd, path string
		var x, half float64
		var n uint64
		fields := strings.Fields(line)
		cmd, path = fields[0], fields[1]
		fmt.Sscan(fields[2], &x)
		switch ctx := s.context(strings.Split(path, "/")); cmd {
		case "edge":
			e := group.EdgeShare{Edge: trace.WholeEdge(ctx), Context: ctx, Score: x}
			for _, option := range fields[3:] {
				if _, err := fmt.Sscanf(option, "excess=%f±%f", &e.Excess, &half); err == nil {
					s.p.Kind, e.ExcessLow, e.ExcessHigh = detect.KindSlow, e.Excess-half, e.Excess+half
				} else {
					e.After = cct.TextOp(strings.TrimPrefix(option, "after="), &s.table)
				}
			}
			s.p.Edges = append(s.p.Edges, e)
			continue
		case "explains":
			fmt.Sscan(fields[3], &x)
			s.p.Explanations = append(s.p.Explanations, detect.Explanation{Variable: fields[2], Target: trace.WholeEdge(ctx), Effect: x})
			continue
		}
		fmt.Sscan(fields[3], &half)
		if _, err := fmt.Sscanf(fields[4], "n=%d", &n); err != nil {
			t.Fatal(err)
		}
		base, rest, _ := strings.Cut(path, ".")
		at := s.context(strings.Split(base, "/"))
		names := strings.Split(rest, ".")
		r := detect.RefinedShare{Within: trace.WholeEdge(at), N: n, Hits: n, Share: x, ShareLow: x - half, ShareHigh: x + half}
		for _, name := range names {
			r.Parent, r.Op, r.Tracepoint = at, cct.TextOp(name, &s.table), s.table.Symbol(name)
			at = at.Child(r.Op)
		}
		r.Context = at
		s.p.Refined = append(s.p.Refined, r)
	}
}

func (s *script) context(names []string) trace.Context {
	var ctx trace.Context
	for _, name := range names {
		ctx = s.table.Child(ctx, cct.TextOp(name, &s.table))
	}
	return ctx
}

func (s *script) wish(d *datadriven.TestData) {
	for _, arg := range d.CmdArgs {
		name, forced := strings.CutPrefix(arg.Key, "forced-")
		kind := WishKind(slices.Index(wishNames[:], name))
		s.in.State.Wishes = append(s.in.State.Wishes, Wish{Tracepoint: s.table.Symbol(arg.Vals[0]), Kind: kind, Forced: forced, By: "ann"})
	}
}

func (s *script) next(t *testing.T, d *datadriven.TestData) string {
	s.in.Now = s.in.Now.Add(s.in.Epoch)
	s.in.Strategy = "hierarchical"
	d.MaybeScanArgs(t, "strategy", &s.in.Strategy)
	s.in.Budget = Budget{}
	d.MaybeScanArgs(t, "budget", &s.in.Budget.Tracepoints)
	d.MaybeScanArgs(t, "of-type", &s.in.Budget.RequestType.Tracepoints)
	d.MaybeScanArgs(t, "of-service", &s.in.Budget.Service.Tracepoints)
	s.in.Explore, s.in.Measured = 0, Usage{}
	d.MaybeScanArgs(t, "explore", &s.in.Explore)
	d.MaybeScanArgs(t, "bytes", &s.in.Budget.Bytes)
	d.MaybeScanArgs(t, "measured", &s.in.Measured.Bytes)
	var wait int64
	d.MaybeScanArgs(t, "wait", &wait)
	s.in.Now = s.in.Now.Add(time.Duration(wait) * time.Second)
	s.p.Requests += 20
	d.MaybeScanArgs(t, "rate", &s.p.Rate)
	s.in.Problems = []detect.Problem{s.p}
	if d.HasArg("gone") {
		s.in.Problems = nil
	}
	if d.HasArg("behind") { // a greater problem that shows the same
		greater := s.p
		greater.ID = analysis.Hash{Hi: 3}
		s.in.Problems = []detect.Problem{greater, s.p}
	}
	times := 1
	d.MaybeScanArgs(t, "times", &times)
	var decisions []Decision
	for range times {
		s.in.State, decisions = Next(s.in)
	}
	var b strings.Builder
	for i := range decisions {
		s.print(&b, &decisions[i])
	}
	for _, a := range s.in.State.Plan.Arms {
		if a.Everything {
			fmt.Fprintf(&b, "%g of the requests explore\n", a.Share)
		}
	}
	if v := s.in.State.Investigation(s.p.ID); v != nil {
		fmt.Fprintf(&b, "%s: %s\n", v.Status, v.Reason)
		for _, x := range v.Ranking()[:min(3, len(v.Ranking()))] {
			fmt.Fprintf(&b, "  %s %.2f [%.2f %.2f] open %d\n", s.table.OpName(x.Op), x.Share, x.Low, x.High, x.Open)
		}
	}
	return b.String()
}

// silence keeps tracepoints silent for the problem from now on: "silence b=20s".
func (s *script) silence(t *testing.T, d *datadriven.TestData) {
	for _, arg := range d.CmdArgs {
		period, err := time.ParseDuration(arg.Vals[0])
		if err != nil {
			t.Fatal(err)
		}
		s.in.State.Silences = append(s.in.State.Silences, Silence{s.p.ID, s.table.Symbol(arg.Key), s.in.Now.Add(period)})
	}
}

// silences returns a line for each tracepoint that is silent for the problem: for how long it will be.
func (s *script) silences() string {
	var b strings.Builder
	for _, x := range s.in.State.Silences {
		if x.Problem == s.p.ID {
			fmt.Fprintf(&b, "%s for %v\n", s.table.Text(x.Tracepoint), x.Until.Sub(s.in.Now))
		}
	}
	return b.String()
}

// leases returns the plan's leases, those of a tracepoint that began and expire together in one line with their arms.
func (s *script) leases() string {
	type term struct {
		tp             trace.Symbol
		since, expires trace.Nanos
	}
	var terms []term
	arms := make(map[term]string)
	for _, l := range s.in.State.Plan.Leases {
		x := term{l.Tracepoint, l.Since, l.Expires}
		if arms[x] == "" {
			terms = append(terms, x)
		}
		arms[x] += " " + ArmNames[l.Arm]
	}
	var b strings.Builder
	for _, x := range terms {
		fmt.Fprintf(&b, "%s: on for %v, expires in %v, arms%s\n", s.table.Text(x.tp), s.in.Now.Sub(x.since), x.expires.Sub(s.in.Now), arms[x])
	}
	return b.String()
}

func (s *script) print(b *strings.Builder, d *Decision) {
	for _, m := range d.Matches {
		if m.Distance > 0 || len(m.Nodes) != 1 {
			fmt.Fprintf(b, "matched %d places at distance %d\n", len(m.Nodes), m.Distance)
		}
	}
	for _, p := range d.Picks {
		fmt.Fprintf(b, "+ %s: %s\n", s.table.Text(p.Tracepoint), p.Reason)
	}
	for _, o := range d.Off {
		fmt.Fprintf(b, "- %s: %s\n", s.table.Text(o.Tracepoint), o.Reason)
	}
	for _, op := range d.Missing {
		fmt.Fprintf(b, "tracepoints are missing in %s\n", s.table.OpName(op))
	}
	for _, r := range d.Rejected {
		if r.Reason != WhyLater {
			fmt.Fprintf(b, "not %s: %s\n", s.table.Text(r.Tracepoint), r.Reason)
		}
	}
}
