package report

import (
	"math"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/trace"
)

// TestDiagnosis says a problem of the sample in words, changed in one way each.
func TestDiagnosis(t *testing.T) {
	const (
		slow     = 0 // places in the sample's problems
		variable = 1
	)
	for _, c := range []struct {
		name    string
		problem int
		change  func(*detect.Problem)
		want    string
	}{
		{"variable", variable, func(*detect.Problem) {}, "p99 of shop POST /checkout is 14× its median (1.42 s against 101 ms); " +
			"83 % ± 4 of the variance is payment → bank POST /charge (wire or queue); most where bank.route = fallback."},
		{"beyond p99", variable, func(p *detect.Problem) { p.CoV = 20; p.Explanations = nil }, "few requests of shop POST /checkout " +
			"take far longer than its p99 of 1.42 s (CoV 20); 83 % ± 4 of the variance is payment → bank POST /charge (wire or queue)."},
		{
			"no summary", variable, func(p *detect.Problem) { p.Group = analysis.Hash{}; p.Edges = nil; p.Explanations = nil },
			"durations of shop POST /checkout vary by 82 % of their mean of 212 ms.",
		},
		{
			"size", variable,
			func(p *detect.Problem) {
				p.Size, p.Edges, p.Explanations = &group.SizeModel{Delayed: 0.05, TimedOut: 0.02}, nil, nil
			},
			"7 % of the requests of shop POST /checkout take far longer than their size lets expect, or time out (CoV at equal size 0.82).",
		},
		{"numbers", variable, func(p *detect.Problem) { p.Explanations[0].Value = "" }, "p99 of shop POST /checkout is 14× its median " +
			"(1.42 s against 101 ms); 83 % ± 4 of the variance is payment → bank POST /charge (wire or queue); it goes with bank.route."},
		{"paths", variable, func(p *detect.Problem) { p.Explanations[0].Variable, p.Explanations[0].Value = "skeleton", "1f" }, "p99 of shop POST /checkout " +
			"is 14× its median (1.42 s against 101 ms); 83 % ± 4 of the variance is payment → bank POST /charge (wire or queue); it goes with the path that " +
			"requests take."},
		{"weak cause", variable, func(p *detect.Problem) { p.Explanations[0].Effect = 0.05 }, "p99 of shop POST /checkout is 14× its median " +
			"(1.42 s against 101 ms); 83 % ± 4 of the variance is payment → bank POST /charge (wire or queue)."},
		{"slow", slow, func(*detect.Problem) {}, "shop GET / (render page, stock Reserve) takes 35 ms on average, 2.3× the expected 15 ms; " +
			"95 % of what is wrong is shop render page."},
		{"slow without a score", slow, func(p *detect.Problem) { p.Expected = 0; p.Edges[0].Score = math.NaN() }, "shop GET / (render page, " +
			"stock Reserve) takes 35 ms on average; most of it at shop render page."},
		{"nothing carries it", slow, func(p *detect.Problem) { p.Edges[0].Score = -0.07 }, "shop GET / (render page, stock Reserve) takes 35 ms on average, " +
			"2.3× the expected 15 ms."},
		{"shifted", slow, func(p *detect.Problem) { p.Kind = detect.KindShifted }, "requests of shop GET / (render page, stock Reserve) " +
			"take other paths than they did, and 35 ms on average, 2.3× the expected 15 ms; 95 % of what is wrong is shop render page."},
		{"more than all", variable, func(p *detect.Problem) { p.Edges[0].ShareVariance = 1.13; p.Explanations = nil }, "p99 of shop POST /checkout " +
			"is 14× its median (1.42 s against 101 ms); all of the variance is payment → bank POST /charge (wire or queue)."},
	} {
		r := newSample()
		p := &r.Problems[c.problem].Problem
		c.change(p)
		if got := newNames(r, describe.Verbatim).Diagnosis(p, 0).String(); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// TestLocated says what was located, unless that is what the sentence says anyway.
func TestLocated(t *testing.T) {
	r := newSample()
	p := &r.Problems[0].Problem
	leads := describe.Leading(p)
	op := r.Table.Op(r.Table.Symbol("shop"), r.Table.Symbol("cache.touch"), trace.Internal)
	const plain = "shop GET / (render page, stock Reserve) takes 35 ms on average, 2.3× the expected 15 ms; 95 % of what is wrong is shop render page"
	for located, want := range map[trace.Op]string{op: plain + "; located: shop cache.touch.", r.Table.Context(leads.Context).Op: plain + "."} {
		if got := newNames(r, describe.Verbatim).Diagnosis(p, located).String(); got != want {
			t.Errorf("located %v:\n got %s\nwant %s", located, got, want)
		}
	}
}
