package group_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/testkit/requests"
	"github.com/sibyl-trace/sibyl/internal/testkit/transfergen"
	"github.com/sibyl-trace/sibyl/trace"
)

// sizeGrouper returns a Grouper with rules for all requests.
func sizeGrouper(rules group.Rules) *group.Grouper {
	table := &trace.Table{}
	table.Op(table.Symbol("shop"), table.Symbol("GET"), trace.Server)
	types := &group.RequestTypes{Rules: group.NewRuleSet(rules, table)}
	types.Freeze()
	return group.NewGrouper(types, table, group.Options{Sample: 256})
}

// The CoV of a summary is the CoV at equal size. Mean and quantiles refer to the durations.
func TestSizeSummary(t *testing.T) {
	o := requests.Network()
	o.Delayed = 0.1
	g := sizeGrouper(group.Rules{Size: requests.BodySize})
	all := transfergen.Generate(3, 2000, o)
	var mean float64
	for i, x := range all {
		mean += float64(x.Latency) / float64(len(all))
		g.Observe(requests.Sized(i, trace.Nanos(i), x))
	}
	g.EndEpoch(0)
	s := g.Summarize(g.Groups()[1])
	m := s.Size
	if m == nil || m.Requests != 256 || m.Segment != o.Segment {
		t.Fatalf("model %+v of packets of %d", m, o.Segment)
	}
	near := func(name string, got, want, tolerance float64) {
		if !(math.Abs(got-want) <= tolerance*want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	near("intercept", m.Base, float64(o.Base), 0.1)
	near("per byte", m.PerByte, float64(o.PerByte), 0.3)
	near("per packet", m.PerSegment, float64(o.PerSegment), 0.3)
	near("delayed", m.Delayed, 0.1, 0.35)
	near("mean", float64(s.Mean), mean, 1e-6)
	if !(m.BadLow < 0.1 && 0.1 < m.BadHigh) || m.TimedOut != 0 {
		t.Errorf("delayed in [%v, %v], %v timed out", m.BadLow, m.BadHigh, m.TimedOut)
	}
	if s.CoV != m.CoV || !(s.CoVLow < s.CoV && s.CoV < s.CoVHigh) || !(s.CoV < m.CoVTotal) {
		t.Errorf("CoV %v in [%v, %v] of %v", s.CoV, s.CoVLow, s.CoVHigh, m.CoVTotal)
	}
}

// Size models do not depend on the order of requests.
func TestSizesOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		transfers := transfergen.Generate(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(1, 400).Draw(t, "requests"),
			requests.Network())
		var all []*observation.Observation
		for i, x := range transfers {
			all = append(all, requests.Sized(i, trace.Nanos(i), x))
		}
		summarize := func(all []*observation.Observation) (s []group.Summary) {
			g := sizeGrouper(group.Rules{Size: requests.BodySize})
			for i, o := range all {
				g.Observe(o)
				if i%97 == 0 {
					g.EndEpoch(0)
				}
			}
			g.EndEpoch(0)
			for _, grp := range g.Groups() {
				s = append(s, g.Summarize(grp))
			}
			return s
		}
		want := summarize(all)
		diff := cmp.Diff(want, summarize(rapid.Permutation(all).Draw(t, "order")), cmpopts.EquateNaNs())
		if diff != "" {
			t.Error(diff)
		}
	})
}

// If fewer than half of the requests have a size, or too few in all, sizes are ignored.
func TestFewSizes(t *testing.T) {
	for _, c := range []struct{ n, with int }{{400, 150}, {30, 15}} {
		g := sizeGrouper(group.Rules{Size: requests.BodySize})
		for i, x := range transfergen.Generate(1, c.n, requests.Network()) {
			o := requests.Sized(i, trace.Nanos(i), x)
			if i >= c.with {
				o.Variables = nil
			}
			g.Observe(o)
		}
		g.EndEpoch(0)
		if s := g.Summarize(g.Groups()[0]); s.Size != nil {
			t.Errorf("%d of %d requests with a size: model %+v", c.with, c.n, s.Size)
		}
	}
}

// If there are several sizes, the size of the entry span counts, or else the largest on the baseline path.
func TestWhichSize(t *testing.T) {
	const none = -1
	type at struct {
		place  int // 0: the entry
		number float64
	}
	for name, c := range map[string]struct {
		sizes []at
		want  int
	}{
		"entry":     {[]at{{0, 10}, {1, 20}}, 10},
		"largest":   {[]at{{1, 20}, {2, 30}}, 30},
		"negative":  {[]at{{0, -1}, {1, 20}}, 20},
		"NaN":       {[]at{{0, math.NaN()}}, none},
		"too large": {[]at{{0, 1e300}}, none},
		"nowhere":   {nil, none},
		"switched":  {[]at{{3, 20}}, none},
	} {
		o := requests.Plain(1, 1, 1, time.Second)
		places := []trace.Context{o.Contexts[0].Context}
		for i := range trace.Op(3) {
			ctx := places[0].Child(100 + i)
			places = append(places, ctx)
			o.Contexts = append(o.Contexts,
				observation.ContextCount{Context: ctx, Parent: places[0], Op: 100 + i, Count: 1})
		}
		o.Contexts[3].Tracepoint = 7
		for _, x := range c.sizes {
			o.Variables = append(o.Variables, observation.Variable{
				Context: places[x.place],
				Key:     trace.SymbolOf([]byte(requests.BodySize)),
				Number:  x.number,
				Numeric: true,
			})
		}
		requests.Sort(o)
		g := sizeGrouper(group.Rules{Size: requests.BodySize})
		_, grp := g.Observe(o)
		got := none
		for _, transfer := range grp.Open.Transfers.All() {
			got = int(transfer.Bytes)
		}
		if got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestSizeRulesCheck(t *testing.T) {
	for _, bad := range []group.Rules{
		{Timeout: time.Second},
		{Size: requests.BodySize, Timeout: -1},
		{Types: []group.TypeRule{{Entry: "shop GET", Timeout: time.Second}}},
		{Types: []group.TypeRule{{Entry: "shop GET", Size: requests.BodySize, Timeout: -1}}},
	} {
		if bad.Check() == nil {
			t.Errorf("no error for %+v", bad)
		}
	}
	good := group.Rules{Size: requests.BodySize, Types: []group.TypeRule{{Entry: "shop GET", Timeout: time.Second}}}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
}

// BenchmarkFitSizes measures the cost of a size model of a full sample.
func BenchmarkFitSizes(b *testing.B) {
	var sizes, nanos []float64
	for _, x := range transfergen.Generate(1, 256, requests.Network()) {
		sizes, nanos = append(sizes, float64(x.Size)), append(nanos, float64(x.Latency))
	}
	for b.Loop() {
		if _, err := stats.FitSize(sizes, nanos, stats.DefaultSizeOptions()); err != nil {
			b.Fatal(err)
		}
	}
}
