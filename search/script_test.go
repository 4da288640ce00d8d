package search

import (
	"cmp"
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
	"github.com/sibyl-trace/sibyl/internal/testkit/treetext"
	"github.com/sibyl-trace/sibyl/trace"
)

// script runs the commands of a text file against one problem:
//
//	tree                a tree in the format of package cct; starts over
//	problem             the edges and evidence of the problem, see [script.problem]
//	greater             the problem stays, and another one with the same evidence is ranked after it
//	override KIND=TP    an override by ann: enable, pin or forbid, each also forced-
//	cooldown TP=TIME    a cooldown that ends after TIME
//	sample              a report of the stacks of slow requests, see [script.sample]
//	next                one call of Next, and its decisions: + on, - off; then the status and the first suspects
//	cooldowns, leases   of the state
//	contexts            the calling contexts of the suspects with tracepoints
type script struct {
	table trace.Table
	in    Input
	p     detect.Problem
	above []detect.Problem // greater problems
}

func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/next", func(t *testing.T, path string) {
		s := &script{}
		s.reset()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.run(t, d) })
	})
}

func (s *script) reset() {
	s.in = Input{
		Table: &s.table,
		Epoch: 10 * time.Second,
		Seed:  1,
		Trees: map[analysis.Hash]*cct.Tree{},
		Rates: map[analysis.Hash]float64{{Hi: 2}: 2},
	}
	s.p, s.above = detect.Problem{ID: analysis.Hash{Hi: 1}, RequestType: analysis.Hash{Hi: 2}, Rate: 2}, nil
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "tree":
		s.reset()
		tree, err := treetext.Parse(d.Input, &s.table)
		if err != nil {
			return err.Error()
		}
		s.in.Trees[s.p.RequestType] = tree
		return fmt.Sprintf("%d nodes\n", len(tree.Nodes))
	case "problem":
		s.problem(t, d.Input)
		return ""
	case "greater":
		s.above = append(s.above, s.p)
		s.p.ID.Lo++
		return ""
	case "sample":
		s.sample(t, d.Input)
		return ""
	case "override":
		s.override(d)
		return ""
	case "next":
		return s.next(t, d)
	case "cooldown":
		s.cooldown(t, d)
		return ""
	case "cooldowns":
		return s.cooldowns()
	case "leases":
		return s.leases()
	case "contexts":
		return s.contexts()
	}
	return "unknown command"
}

// problem reads the edges and the evidence, one per line. "edge A/B 0.9" is the score of the baseline operation B
// called from A; an edge of a slow problem also has "excess=ns±half". "seen A/B.c.d 0.9 0.05 n=20" is a share of 0.9
// ± 0.05 that 20 requests showed for d, called from c inside that operation. "explains A/B key 0.6" is the effect of
// a variable.
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
			e := group.EdgeShare{Edge: trace.ContextEdge(ctx), Context: ctx, Score: x}
			for _, option := range fields[3:] {
				if _, err := fmt.Sscanf(option, "excess=%f±%f", &e.Excess, &half); err == nil {
					s.p.Kind, e.ExcessLow, e.ExcessHigh = detect.KindSlow, e.Excess-half, e.Excess+half
				} else {
					e.After = treetext.Op(strings.TrimPrefix(option, "after="), &s.table)
				}
			}
			s.p.Edges = append(s.p.Edges, e)
			continue
		case "explains":
			fmt.Sscan(fields[3], &x)
			s.p.Explanations = append(s.p.Explanations,
				detect.Explanation{Variable: fields[2], Target: trace.ContextEdge(ctx), Effect: x})
			continue
		}
		fmt.Sscan(fields[3], &half)
		if _, err := fmt.Sscanf(fields[4], "n=%d", &n); err != nil {
			t.Fatal(err)
		}
		base, rest, _ := strings.Cut(path, ".")
		at := s.context(strings.Split(base, "/"))
		names := strings.Split(rest, ".")
		r := detect.RefinedShare{
			Within:    trace.ContextEdge(at),
			N:         n,
			Hits:      n,
			Share:     x,
			ShareLow:  x - half,
			ShareHigh: x + half,
		}
		for _, name := range names {
			r.Parent, r.Op, r.Tracepoint = at, treetext.Op(name, &s.table), s.table.Symbol(name)
			at = at.Child(r.Op)
		}
		r.Context = at
		if len(fields) > 5 {
			r.Arm = s.table.Symbol(strings.TrimPrefix(fields[5], "arm="))
		}
		s.p.Refined = append(s.p.Refined, r)
	}
}

// sample reads the sample of an operation: "A n=20" are 20 slow requests of A with 100 ns in all, and in the following
// lines "b 60 10" has 60 ns in b, 10 of them outside of the tracepoints below.
func (s *script) sample(t *testing.T, text string) {
	x := &Sample{At: s.in.Now, Time: 100}
	for line := range strings.Lines(text) {
		var name string
		var p PointTime
		if x.Op == 0 {
			if _, err := fmt.Sscanf(line, "%s n=%f", &name, &x.Requests); err != nil {
				t.Fatal(err)
			}
			x.Op = treetext.Op(name, &s.table)
			continue
		}
		if _, err := fmt.Sscan(line, &name, &p.Total, &p.Own); err != nil {
			t.Fatal(err)
		}
		p.Tracepoint = s.table.Symbol(name)
		x.Points = append(x.Points, p)
	}
	slices.SortFunc(x.Points, func(a, b PointTime) int { return cmp.Compare(a.Tracepoint, b.Tracepoint) })
	s.in.Samples = map[trace.Op]*Sample{x.Op: x}
}

func (s *script) context(names []string) trace.Context {
	var ctx trace.Context
	for _, name := range names {
		ctx = s.table.Child(ctx, treetext.Op(name, &s.table))
	}
	return ctx
}

func (s *script) override(d *datadriven.TestData) {
	for _, arg := range d.CmdArgs {
		name, forced := strings.CutPrefix(arg.Key, "forced-")
		kind := OverrideKind(slices.Index(overrideNames[:], name))
		s.in.State.Overrides = append(s.in.State.Overrides,
			Override{Tracepoint: s.table.Symbol(arg.Vals[0]), Kind: kind, Forced: forced, By: "ann"})
	}
}

func (s *script) next(t *testing.T, d *datadriven.TestData) string {
	s.in.Now = s.in.Now.Add(s.in.Epoch)
	strategy := "hierarchical"
	d.MaybeScanArgs(t, "strategy", &strategy)
	s.in.Strategy = named(strategy)
	s.in.Budget = Budget{}
	d.MaybeScanArgs(t, "budget", &s.in.Budget.Tracepoints)
	d.MaybeScanArgs(t, "of-service", &s.in.Budget.Service.Tracepoints)
	s.in.Measured = Usage{}
	d.MaybeScanArgs(t, "bytes", &s.in.Budget.Bytes)
	d.MaybeScanArgs(t, "measured", &s.in.Measured.Bytes)
	var wait int64
	d.MaybeScanArgs(t, "wait", &wait)
	s.in.Now = s.in.Now.Add(time.Duration(wait) * time.Second)
	requests := 20
	d.MaybeScanArgs(t, "requests", &requests)
	s.p.Requests += uint64(requests)
	d.MaybeScanArgs(t, "rate", &s.p.Rate)
	s.p.Onset = detect.Changed
	if d.HasArg("steady") {
		s.p.Onset = detect.Chronic
	}
	p := ProblemOf(&s.p)
	if d.HasArg("incident") {
		p.Tree = s.in.Trees[s.p.RequestType]
	}
	s.in.Problems = nil
	for i := range s.above {
		s.in.Problems = append(s.in.Problems, ProblemOf(&s.above[i]))
	}
	s.in.Problems = append(s.in.Problems, p)
	s.in.Returning = nil
	var returning string
	if d.MaybeScanArgs(t, "returning", &returning); returning != "" {
		s.in.Returning = []trace.Symbol{s.table.Symbol(returning)}
	}
	s.in.Unproven, s.in.Unavailable = s.in.Returning, s.in.Returning
	if d.HasArg("gone") {
		s.in.Problems = nil
	}
	if d.HasArg("behind") { // a greater problem with the same evidence
		greater := s.p
		greater.ID = analysis.Hash{Hi: 3}
		s.in.Problems = []Problem{ProblemOf(&greater), p}
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
	if v := s.in.State.Investigation(OfProblem(s.p.ID)); v != nil {
		fmt.Fprintf(&b, "%s: %s\n", v.Status, v.Reason)
		for _, x := range v.Suspects[:min(3, len(v.Suspects))] {
			fmt.Fprintf(&b, "  %s %.2f [%.2f %.2f] open %d\n", s.table.OpName(x.Op), x.Share, x.Low, x.High, x.Open)
		}
	}
	return b.String()
}

// cooldown adds cooldowns of tracepoints for the problem: "cooldown b=20s".
func (s *script) cooldown(t *testing.T, d *datadriven.TestData) {
	for _, arg := range d.CmdArgs {
		period, err := time.ParseDuration(arg.Vals[0])
		if err != nil {
			t.Fatal(err)
		}
		s.in.State.Cooldowns = append(s.in.State.Cooldowns,
			Cooldown{OfProblem(s.p.ID), s.table.Symbol(arg.Key), s.in.Now.Add(period)})
	}
}

// cooldowns returns a line for each tracepoint that cools down for the problem, with the remaining time.
func (s *script) cooldowns() string {
	var b strings.Builder
	for _, x := range s.in.State.Cooldowns {
		if x.Subject == OfProblem(s.p.ID) {
			fmt.Fprintf(&b, "%s for %v\n", s.table.Text(x.Tracepoint), x.Until.Sub(s.in.Now))
		}
	}
	return b.String()
}

// leases returns the leases of the plan. The leases of a tracepoint with the same start and end share a line.
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
		fmt.Fprintf(&b, "%s: on for %v, expires in %v, arms%s\n",
			s.table.Text(x.tp), s.in.Now.Sub(x.since), x.expires.Sub(s.in.Now), arms[x])
	}
	return b.String()
}

// contexts returns the calling context of each suspect with a tracepoint, best first.
func (s *script) contexts() string {
	var b strings.Builder
	tree := s.in.Trees[s.p.RequestType]
	for _, x := range s.in.State.Investigation(OfProblem(s.p.ID)).Suspects {
		if x.Tracepoint == 0 {
			continue
		}
		var names []string
		for k := tree.Find(x.Context); k >= 0; k = tree.Nodes[k].Parent {
			names = append(names, s.table.OpName(tree.Nodes[k].Op))
		}
		slices.Reverse(names)
		fmt.Fprintf(&b, "%s\n", strings.Join(names, "/"))
	}
	return b.String()
}

func (s *script) print(b *strings.Builder, d *Decision) {
	if d.From != d.To {
		fmt.Fprintf(b, "%s to %s\n", d.From, d.To)
	}
	for _, m := range d.Matches {
		if m.Distance > 0 || len(m.Nodes) != 1 {
			fmt.Fprintf(b, "matched %d locations at distance %d\n", len(m.Nodes), m.Distance)
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
