package detect_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/testkit/requests"
	"github.com/sibyl-trace/sibyl/trace"
)

// Requests in these tests have an entry with one edge and, within that edge, f, which calls g.
const (
	entryOp = trace.Op(1)
	fOp     = trace.Op(2)
	gOp     = trace.Op(3)
	fPoint  = trace.Symbol(20)
	gPoint  = trace.Symbol(30)
	unused  = trace.Symbol(40)
)

var (
	entryContext = trace.Context(0).Child(entryOp)
	fContext     = entryContext.Child(fOp)
	gContext     = fContext.Child(gOp)
	onlyEdge     = trace.EdgeOf(entryContext, 0, 0)
)

// refinedRequest returns a request with the given own times in ns of the entry, of f and of g.
func refinedRequest(n uint64, self, f, g int64) *observation.Observation {
	o := &observation.Observation{
		Trace:    trace.ID{0: byte(n), 1: byte(n >> 8), 2: byte(n >> 16), 15: 1},
		Root:     1,
		Duration: time.Duration(self + f + g),
		Entry:    entryOp,
		Contexts: []observation.ContextCount{{Context: entryContext, Op: entryOp, Count: 1, Exclusive: self + f + g}},
		Edges:    []observation.EdgeTime{{Edge: onlyEdge, Context: entryContext, Nanos: self + f + g}},
		Refined:  []observation.EdgeTime{{Edge: onlyEdge, Context: entryContext, Within: onlyEdge, Nanos: self}},
	}
	add := func(ctx, parent trace.Context, op trace.Op, tp trace.Symbol, ns int64) {
		o.Contexts = append(o.Contexts, observation.ContextCount{
			Context:    ctx,
			Parent:     parent,
			Op:         op,
			Tracepoint: tp,
			Count:      2,
			Exclusive:  ns,
		})
		o.Refined = append(o.Refined,
			observation.EdgeTime{Edge: trace.EdgeOf(ctx, 0, 0), Context: ctx, Within: onlyEdge, Nanos: ns})
	}
	if f+g > 0 {
		add(fContext, entryContext, fOp, fPoint, f)
	}
	if g > 0 {
		add(gContext, fContext, gOp, gPoint, g)
	}
	requests.Sort(o)
	return o
}

// byContext returns the share of the context ctx.
func byContext(shares []detect.RefinedShare, ctx trace.Context) detect.RefinedShare {
	i := slices.IndexFunc(shares, func(s detect.RefinedShare) bool { return s.Context == ctx })
	if i < 0 {
		return detect.RefinedShare{}
	}
	return shares[i]
}

func TestRefinement(t *testing.T) {
	for _, coarse := range []bool{false, true} {
		r := detect.NewRefinement(7, []trace.Symbol{fPoint, gPoint, unused})
		random := rand.New(rand.NewPCG(1, 2))
		var f, g, edge stats.CoMoments
		var total stats.Moments
		const n = 400
		for i := range uint64(n) {
			x, y := random.Int64N(100), int64(0)
			if i%4 == 0 {
				y = 500 + random.Int64N(100)
			}
			o := refinedRequest(i, 1000, x, y)
			r.Observe(o, coarse)
			d := int64(o.Duration)
			total.Add(d)
			f.Add(x+y, d)
			g.Add(y, d)
			edge.Add(d, d)
		}
		shares := r.Shares()
		if r.Requests() != n || len(shares) != 3 {
			t.Fatalf("coarse %v: %d requests, %d shares", coarse, r.Requests(), len(shares))
		}
		if s := shares[0]; s.Tracepoint != unused || s.N != n || s.Context != 0 || s.Hits != 0 || s.Arm != 7 {
			t.Errorf("tracepoint without hits: %+v", s)
		}
		within := onlyEdge
		if coarse {
			within = trace.ContextEdge(entryContext)
		}
		for ctx, want := range map[trace.Context]stats.CoMoments{fContext: f, gContext: g} {
			s := byContext(shares, ctx)
			if s.Within != within || s.N != n || s.Mean != want.Moments(n).Mean() ||
				s.Share != want.Cov(total)/edge.Cov(total) {
				t.Errorf("coarse %v: %+v", coarse, s)
			}
			if !(s.ShareLow <= s.Share && s.Share <= s.ShareHigh) || s.ShareHigh-s.ShareLow > 0.2 || s.ShareMean <= 0 ||
				s.ShareMean > 1 {
				t.Errorf("coarse %v: share %v in [%v, %v], of the mean %v",
					coarse, s.Share, s.ShareLow, s.ShareHigh, s.ShareMean)
			}
		}
		if s := byContext(shares, fContext); s.Parent != entryContext || s.Tracepoint != fPoint ||
			math.Abs(s.Share-s.Self-byContext(shares, gContext).Share) > 1e-9 {
			t.Errorf("the share of f is not the sum of its own and that of g: %+v", s)
		}
		if s := byContext(shares, gContext); s.Hits != n/4*2 {
			t.Errorf("%d hits of g, want %d", s.Hits, n/4*2)
		}
	}
}

// Values that cannot be computed are NaN, never infinite.
func TestRefinementOfFewRequests(t *testing.T) {
	for n := range 4 {
		r := detect.NewRefinement(7, []trace.Symbol{fPoint})
		for i := range uint64(n) {
			r.Observe(refinedRequest(i, 10, 5, 0), false) // all alike
		}
		for _, s := range r.Shares() {
			for _, x := range []float64{s.Mean, s.Exclusive, s.Share, s.ShareLow, s.ShareHigh, s.Self, s.ShareMean} {
				if math.IsInf(x, 0) {
					t.Errorf("%d requests: %+v", n, s)
				}
			}
		}
	}
}

// The 95 % interval of a share contains the true share in at least 88 % of samples, with light and heavy tails.
func TestRefinementCoverage(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for _, sigma := range []float64{0.3, 0.8} {
		draw := func() (f, g int64) {
			log := func(mean float64) int64 { return int64(mean * math.Exp(sigma*random.NormFloat64())) }
			return log(1e6), log(2e6)
		}
		share := func(n int) detect.RefinedShare {
			r := detect.NewRefinement(1, []trace.Symbol{fPoint, gPoint})
			for range n {
				f, g := draw()
				r.Observe(refinedRequest(random.Uint64(), 1000, f, g), false)
			}
			return byContext(r.Shares(), gContext)
		}
		truth := share(200_000).Share
		const samples = 300
		covered := 0
		for range samples {
			if s := share(200); s.ShareLow <= truth && truth <= s.ShareHigh {
				covered++
			}
		}
		t.Logf("σ %v: %.1[3]f %% of intervals hold the share %.3[2]f", sigma, truth, 100*float64(covered)/samples)
		if covered < samples*88/100 {
			t.Errorf("σ %v: %d of %d intervals hold the share, want 88 %%", sigma, covered, samples)
		}
	}
}

func BenchmarkRefinementObserve(b *testing.B) {
	r := detect.NewRefinement(1, []trace.Symbol{fPoint, gPoint})
	o := refinedRequest(1, 1000, 100, 50)
	b.ReportAllocs()
	for b.Loop() {
		r.Observe(o, false)
	}
}
