package detect_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/internal/testkit/requests"
	"github.com/sibyl-trace/sibyl/trace"
)

// TestChronic runs scripts. Each line of judge describes the traffic of one group, as in TestWatch; cov=F spreads it
// (bimodally: half of the requests take less, half more). more adds requests to the earlier ones and judges all of
// them. Options of both are cov=F (the threshold), objective=D, accept-mean=D and accept-cov=F.
func TestChronic(t *testing.T) {
	datadriven.Walk(t, "testdata/chronic", func(t *testing.T, path string) {
		var s *harness
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "judge":
				s = newHarness()
			case "more":
			default:
				d.Fatalf(t, "unknown command")
			}
			for line := range strings.Lines(d.Input) {
				spread := 0.0
				var kept []string
				for word := range strings.FieldsSeq(line) {
					if n, _ := fmt.Sscanf(word, "cov=%f", &spread); n == 0 {
						kept = append(kept, word)
					}
				}
				r := parseTraffic(t, strings.Join(kept, " "))
				for i := range r.n {
					varied := r
					varied.means = slices.Clone(r.means)
					varied.means[0] = time.Duration(float64(r.means[0]) * (1 + spread*float64(2*(i%2)-1)))
					s.g.Observe(s.request(varied))
				}
			}
			s.g.EndEpoch(0)
			return chronic(s, thresholds(t, d))
		})
	})
}

func thresholds(t *testing.T, d *datadriven.TestData) detect.Thresholds {
	th := detect.DefaultThresholds()
	th.CoV = 0.3
	var accepted group.AcceptedLevel
	for _, arg := range d.CmdArgs {
		switch value := arg.Vals[0]; arg.Key {
		case "cov":
			if _, err := fmt.Sscan(value, &th.CoV); err != nil {
				t.Fatal(err)
			}
		case "accept-cov":
			if _, err := fmt.Sscan(value, &accepted.CoV); err != nil {
				t.Fatal(err)
			}
		default:
			limit, err := time.ParseDuration(value)
			if err != nil {
				t.Fatal(err)
			}
			if arg.Key == "objective" {
				th.Objectives = map[trace.Op]time.Duration{1: limit}
			} else {
				accepted.Mean = limit
			}
		}
	}
	th.Accepted = map[trace.Op]group.AcceptedLevel{1: accepted}
	return th
}

func chronic(s *harness, th detect.Thresholds) string {
	var out bytes.Buffer
	for i, p := range s.d.Chronic(th, detect.ByImpact) {
		fmt.Fprintf(&out, "%d. %v %v", i+1, p.Level, p.Kind)
		grp := s.g.Group(p.Group)
		if p.Level == group.LevelGroup {
			fmt.Fprintf(&out, " %s", opName(trace.Op(grp.Skeleton.Lo)))
		} else {
			fmt.Fprintf(&out, ", %.0f %% of its variance between groups", 100*s.g.Summarize(grp).Between)
		}
		fmt.Fprintln(&out, leading(s.g, &p))
		check(&out, &p)
		if !(p.CoVLow <= p.CoV && p.CoV <= p.CoVHigh) || p.Onset != detect.Chronic {
			fmt.Fprintf(&out, "CoV %v in [%v, %v], %v\n", p.CoV, p.CoVLow, p.CoVHigh, p.Onset)
		}
	}
	if out.Len() == 0 {
		return "all is well\n"
	}
	return out.String()
}

// Only the first of very many problems have intervals, but all have shares.
func TestManyProblems(t *testing.T) {
	g := newGrouper(group.Options{})
	for i := range 600 * 20 {
		g.Observe(requests.Plain(i%600, 1, trace.Nanos(i+1), time.Duration(1e6+i%7*1e5)))
	}
	g.EndEpoch(0)
	problems := detect.New(g).Chronic(detect.Thresholds{CoV: 0.1, MinSamples: 10}, detect.ByImpact)
	if len(problems) < 550 {
		t.Fatalf("%d problems", len(problems))
	}
	for i, p := range problems {
		if e := p.Edges[0]; math.IsNaN(e.ShareVariance) || math.IsNaN(e.ShareLow) == (i < 500) || math.IsNaN(p.CoV) ||
			math.IsNaN(p.CoVLow) == (i < 500) {
			t.Fatalf("problem %d: share %v from %v, CoV %v from %v", i, e.ShareVariance, e.ShareLow, p.CoV, p.CoVLow)
		}
	}
}

// Rules set objectives and accepted levels.
func TestRulesExpect(t *testing.T) {
	for name, c := range map[string]struct {
		rule group.TypeRule
		want detect.ProblemKind
		none bool
	}{
		"nothing": {rule: group.TypeRule{Entry: "shop GET"}, want: detect.KindVariable},
		"objective": {
			rule: group.TypeRule{Entry: "shop GET", Objective: time.Millisecond, Accepted: group.AcceptedLevel{CoV: 9}},
			want: detect.KindSlow,
		},
		"accepted": {rule: group.TypeRule{Entry: "shop GET", Accepted: group.AcceptedLevel{CoV: 9}}, none: true},
		"accepted slow": {
			rule: group.TypeRule{
				Entry:     "shop GET",
				Objective: time.Millisecond,
				Accepted:  group.AcceptedLevel{CoV: 9, Mean: time.Second},
			},
			none: true,
		},
		"of another name": {
			rule: group.TypeRule{Entry: "shop PUT", Objective: time.Millisecond},
			want: detect.KindVariable,
		},
	} {
		w := requests.Shop()
		types := &group.RequestTypes{Rules: group.NewRuleSet(group.Rules{Types: []group.TypeRule{c.rule}}, w.Table)}
		types.Freeze()
		g := group.NewGrouper(types, w.Table, group.Options{})
		for _, o := range w.Requests {
			g.Observe(o)
		}
		g.EndEpoch(0)
		problems := detect.New(g).Chronic(detect.DefaultThresholds(), detect.ByImpact)
		if c.none != (len(problems) == 0) || !c.none && problems[0].Kind != c.want {
			t.Errorf("%s: %d problems, want %v: %+v", name, len(problems), c.want, problems)
		}
	}
}

func TestOrders(t *testing.T) {
	g := newGrouper(group.Options{})
	for i := range 40 * 100 {
		of := i % 40
		g.Observe(requests.Plain(of, 1, trace.Nanos(i+1), time.Duration((1+of*7%40)*1e6+(i/40)%7*of*3e5)))
	}
	g.EndEpoch(0)
	for order, figure := range map[detect.Order]func(p *detect.Problem) float64{
		detect.ByImpact:   func(p *detect.Problem) float64 { return p.Impact },
		detect.ByCoV:      func(p *detect.Problem) float64 { return p.CoV },
		detect.BySlowness: func(p *detect.Problem) float64 { return float64(p.Mean) },
	} {
		problems := detect.New(g).Chronic(detect.Thresholds{CoV: 0.1, MinSamples: 10}, order)
		if len(problems) < 20 {
			t.Fatalf("%d problems", len(problems))
		}
		for i := range problems[1:] {
			if a, b := figure(&problems[i]), figure(&problems[i+1]); a < b {
				t.Errorf("order %d: %v before %v", order, a, b)
			}
		}
	}
}
