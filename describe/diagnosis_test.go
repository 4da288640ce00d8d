package describe

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/trace"
)

// marked returns the text of a sentence, with each part that has evidence written as [text](kind).
func marked(s Sentence) string {
	var b strings.Builder
	parts := s.Parts()
	for len(parts) > 0 {
		n := 1 // parts of the same evidence
		for n < len(parts) && parts[n].Evidence == parts[0].Evidence {
			n++
		}
		text := parts[:n].String()
		if kind := parts[0].Evidence.Kind; kind != "" {
			text = "[" + text + "](" + string(kind) + ")"
		}
		b.WriteString(text)
		parts = parts[n:]
	}
	return b.String()
}

// The mix of shifted requests includes failures. Nothing about durations explains them.
func TestDiagnosisOfFailures(t *testing.T) {
	s := newShop()
	p := s.slow()
	p.Kind, p.Failed, p.UsualFailed = detect.KindShifted, 0.42, 0.001
	fail := "[42 %](call_flow) of the requests of shop GET / fail, usually 0.1 %"
	for mean, want := range map[time.Duration]string{
		p.Expected + p.Expected/50: fail + ".",
		p.Mean: fail + "; they take [35 ms](latency) on average, [2.3×](baseline) the expected [15 ms](baseline); " +
			"[95 %](edge) of the change is in [shop render page](edge).",
	} {
		p.Mean, p.Impact = mean, 1
		if diff := cmp.Diff(want, marked(Diagnosis(s.names(), p, 0, 0))); diff != "" {
			t.Errorf("%v: -want +got\n%s", mean, diff)
		}
	}
}

// A p99 that hardly exceeds the median doesn't describe how widely durations vary.
func TestDiagnosisWithoutTail(t *testing.T) {
	s := newShop()
	p := s.variable()
	p.Edges, p.Explanations, p.P50, p.P99 = nil, nil, 100*time.Millisecond, 104*time.Millisecond
	n := s.names()
	want := "durations of shop POST /checkout vary by [82 %](latency) around their mean of [212 ms](latency)."
	if diff := cmp.Diff(want, marked(Diagnosis(n, p, 0, 0))); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestDiagnosis(t *testing.T) {
	const (
		inBank   = "; [83 % ± 4](edge) of the variance is in [payment → bank POST /charge (wire or queue)](edge)"
		variable = "p99 of shop POST /checkout is [14×](latency) its median ([1.42 s](latency) vs. [101 ms](latency))"
		slow     = "shop GET / takes [35 ms](latency) on average"
		expected = ", [2.3×](baseline) the expected [15 ms](baseline)"
	)
	for _, c := range []struct {
		name    string
		problem func(*shop) *detect.Problem
		change  func(*detect.Problem)
		want    string
	}{
		{
			"variable", (*shop).variable,
			func(*detect.Problem) {}, variable + inBank + "; mostly when [bank.route = fallback](variable).",
		},
		{
			"slow requests beyond the p99", (*shop).variable,
			func(p *detect.Problem) { p.CoV = 20; p.Explanations = nil },
			"a few requests of shop POST /checkout take far longer than its p99 of [1.42 s](latency) (CoV " +
				"[20](latency))" + inBank + ".",
		},
		{
			"without quantiles and edges", (*shop).variable,
			func(p *detect.Problem) { p.P50, p.P99, p.Edges, p.Explanations = 0, 0, nil, nil },
			"durations of shop POST /checkout vary by [82 %](latency) around their mean of [212 ms](latency).",
		},
		{
			"at equal size", (*shop).variable,
			func(p *detect.Problem) {
				p.Size, p.Edges, p.Explanations = &group.SizeModel{Delayed: 0.05, TimedOut: 0.02}, nil, nil
			},
			"[7 %](size) of the requests of shop POST /checkout take far longer than their size would suggest, " +
				"or time out (CoV at equal size [0.82](size)).",
		},
		{
			"size model without delays", (*shop).variable,
			func(p *detect.Problem) { p.Size, p.Explanations = &group.SizeModel{}, nil },
			variable + inBank + ".",
		},
		{
			"numeric cause", (*shop).variable, func(p *detect.Problem) { p.Explanations[0].Value = "" },
			variable + inBank + "; correlated with [bank.route](variable).",
		},
		{
			"the call flow is no cause", (*shop).variable,
			func(p *detect.Problem) { p.Explanations[0].Variable, p.Explanations[0].Value = "skeleton", "1f" },
			variable + inBank + ".",
		},
		{
			"missing call as cause", (*shop).variable,
			func(p *detect.Problem) { p.Explanations[0].Variable, p.Explanations[0].Value = "present", "false" },
			variable + inBank + "; mostly when [payment → bank POST /charge is not called](variable).",
		},
		{
			"errors as cause", (*shop).variable,
			func(p *detect.Problem) { p.Explanations[0].Variable, p.Explanations[0].Value = "errors", "" },
			variable + inBank + "; correlated with [errors of payment → bank POST /charge](variable).",
		},
		{
			"weak cause", (*shop).variable,
			func(p *detect.Problem) { p.Explanations[0].Effect = 0.05 }, variable + inBank + ".",
		},
		{
			"share above 1", (*shop).variable,
			func(p *detect.Problem) { p.Edges[0].Score = 1.13; p.Explanations = nil },
			variable + "; [all](edge) of the variance is in [payment → bank POST /charge (wire or queue)](edge).",
		},
		{
			"more variable than before", (*shop).variable,
			func(p *detect.Problem) { p.Onset, p.Edges[0].Score, p.Explanations = detect.Changed, 0.44, nil },
			variable + "; [44 %](edge) of the variance is in [payment → bank POST /charge (wire or queue)](edge).",
		},
		{
			"variable, ranked by the slowdown", (*shop).variable,
			func(p *detect.Problem) {
				p.Onset, p.Whole, p.Edges[0].Score, p.Explanations = detect.Changed, detect.WholeSlowdown, 0.44, nil
			},
			variable + "; [44 %](edge) of the slowdown is in [payment → bank POST /charge (wire or queue)](edge).",
		},
		{
			"share without interval", (*shop).variable,
			func(p *detect.Problem) { p.Edges[0].ShareLow = math.NaN(); p.Explanations = nil },
			variable + "; [83 %](edge) of the variance is in [payment → bank POST /charge (wire or queue)](edge).",
		},
		{
			"share that may be 0", (*shop).variable,
			func(p *detect.Problem) { p.Edges[0].ShareLow = -0.58; p.Explanations = nil }, variable + ".",
		},
		{
			"slow", (*shop).slow, func(*detect.Problem) {},
			slow + expected + "; [95 %](edge) of the slowdown is in [shop render page](edge).",
		},
		{
			"slow, without baseline and score", (*shop).slow,
			func(p *detect.Problem) { p.Expected = 0; p.Edges[0].Score = math.NaN() },
			slow + "; most of it in [shop render page](edge).",
		},
		{
			"slow, led by no edge", (*shop).slow,
			func(p *detect.Problem) { p.Edges[0].Score = -0.07 }, slow + expected + ".",
		},
		{
			"slow, led by the remainder", (*shop).slow, func(p *detect.Problem) { p.Edges[0].Edge = 0 },
			slow + expected + "; [95 %](edge) of the slowdown is in [other](edge).",
		},
		{
			"shifted", (*shop).slow, func(p *detect.Problem) { p.Kind = detect.KindShifted },
			"requests of shop GET / changed their [call flow](call_flow) and take [35 ms](latency) on average" +
				expected +
				"; [95 %](edge) of the change is in [shop render page](edge).",
		},
		{
			"shifted, hardly slower", (*shop).slow,
			func(p *detect.Problem) { p.Kind, p.Mean = detect.KindShifted, p.Expected+p.Expected/50 },
			"requests of shop GET / changed their [call flow](call_flow) and take [15.3 ms](latency) on average, " +
				"[1.0×](baseline) the expected [15 ms](baseline).",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newShop()
			p := c.problem(s)
			c.change(p)
			if diff := cmp.Diff(c.want, marked(Diagnosis(s.names(), p, 0, 0))); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// A diagnosis names the located operation with its share, and no other place.
func TestDiagnosisLocated(t *testing.T) {
	const plain = "shop GET / takes 35 ms on average, 2.3× the expected 15 ms; 96 % of the slowdown is in "
	s := newShop()
	for located, name := range map[trace.Op]string{s.bank: "bank POST /charge", s.rendered: "shop render page"} {
		got := Diagnosis(s.names(), s.slow(), located, 0.96)
		if want := plain + name + "."; got.String() != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
		places := 0
		for _, p := range got {
			switch p.Evidence {
			case Evidence{Kind: LocationEvidence, Operation: located}:
				places++
			default:
				if p.Evidence.Kind == LocationEvidence || p.Evidence.Kind == EdgeEvidence {
					t.Errorf("place %+v", p)
				}
			}
		}
		if places != 2 {
			t.Errorf("%d phrases lead to the place, want its share and its name", places)
		}
	}
}

// anyProblem draws a problem about the shop with numbers and names of all kinds.
func anyProblem(t *rapid.T, s *shop) *detect.Problem {
	number := rapid.OneOf(rapid.Float64Range(-1, 30), rapid.Just(math.NaN()))
	p := rapid.SampledFrom([]*detect.Problem{s.variable(), s.slow()}).Draw(t, "problem")
	p.Kind = rapid.SampledFrom([]detect.ProblemKind{detect.KindVariable, detect.KindSlow, detect.KindShifted}).Draw(t,
		"kind")
	p.CoV = number.Draw(t, "CoV")
	p.Mean = time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "mean"))
	p.Expected = time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "expected"))
	if rapid.Bool().Draw(t, "sized") {
		p.Size = &group.SizeModel{Delayed: rapid.Float64Range(0, 1).Draw(t, "delayed")}
	}
	for i := range p.Edges {
		e := &p.Edges[i]
		e.ShareVariance, e.Score, e.ShareLow = number.Draw(t, "share"), number.Draw(t, "score"), number.Draw(t, "low")
	}
	p.Edges = p.Edges[:rapid.IntRange(0, len(p.Edges)).Draw(t, "edges")]
	for i := range p.Explanations {
		x := &p.Explanations[i]
		x.Effect = number.Draw(t, "effect")
		x.Variable = rapid.OneOf(rapid.SampledFrom([]string{"count", "present", "errors", "skeleton", "concurrency"}),
			rapid.String()).Draw(t, "variable")
		x.Value = rapid.SampledFrom([]string{"", "false", "x; y [z](edge)"}).Draw(t, "value")
	}
	return p
}

// The parts of any diagnosis concatenate to its text, neighbouring parts differ in their kind or evidence, and the
// evidence exists.
func TestParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newShop()
		p := anyProblem(t, s)
		located := rapid.SampledFrom([]trace.Op{0, s.bank, s.rendered}).Draw(t, "located")
		sentence := Diagnosis(s.names(), p, located, 0.5)
		text, last := "", Phrase{}
		for i, part := range sentence.Parts() {
			if part.Text == "" || i > 0 && part.Evidence == last.Evidence && part.Kind == last.Kind {
				t.Fatalf("part %d %+v after %+v", i, part, last)
			}
			checkEvidence(t, p, part.Evidence, located)
			text, last = text+part.Text, part
		}
		if text != sentence.String() || !strings.HasSuffix(text, ".") {
			t.Fatalf("parts %q, sentence %q", text, sentence)
		}
	})
}

func checkEvidence(t *rapid.T, p *detect.Problem, e Evidence, located trace.Op) {
	switch e.Kind {
	case "", LatencyEvidence, SizeEvidence:
	case BaselineEvidence:
		if p.Expected <= 0 {
			t.Fatal("the baseline is unknown")
		}
	case EdgeEvidence:
		if e.Edge != p.Edges[0].Edge {
			t.Fatalf("edge %x is not the leading one", e.Edge)
		}
	case LocationEvidence:
		if e.Operation != located {
			t.Fatalf("operation %x was not located", e.Operation)
		}
	case VariableEvidence, CallFlowEvidence:
		if e.Explained && !(p.Explanations[e.Explanation].Effect >= minCause) {
			t.Fatalf("the effect of %+v is below %v", p.Explanations[e.Explanation], minCause)
		}
	default:
		t.Fatalf("unknown evidence %q", e.Kind)
	}
}

// Two groups of a type can have the same figures. The sentence distinguishes them from each other and from the type.
func TestDiagnosisOfGroup(t *testing.T) {
	s := newShop()
	p := s.slow()
	ofType := Diagnosis(s.names(), p, 0, 0).String()
	p.Level, p.Group = group.LevelGroup, analysis.Hash{Hi: 0x3f2a91c0 << 32}
	first := Diagnosis(s.names(), p, 0, 0).String()
	if got := strings.Replace(first, " (group 3f2a91c0)", "", 1); got == first || got != ofType {
		t.Errorf("the sentence of a group is %q, that of its type %q", first, ofType)
	}
	p.Group.Hi++
	p.Group.Hi <<= 1
	if second := Diagnosis(s.names(), p, 0, 0).String(); first == second {
		t.Errorf("two groups have the sentence %q", first)
	}
}

func TestPerSecond(t *testing.T) {
	for impact, want := range map[float64]string{2.12e8: "212 ms/s", 0: "none", -1: "none"} {
		if got := PerSecond(impact); got != want {
			t.Errorf("PerSecond(%v) = %q, want %q", impact, got, want)
		}
	}
	if got := PerSecond(math.NaN()); got != "unknown" {
		t.Errorf("PerSecond(NaN) = %q", got)
	}
}
