package search

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// drawnSearch is a search in a drawn world with a drawn budget and drawn overrides, checked step by step.
type drawnSearch struct {
	*world
	in Input
}

func drawSearch(t *rapid.T) *drawnSearch {
	seed, size := rapid.Uint64Range(0, 1000).Draw(t, "seed"), rapid.IntRange(5, 80).Draw(t, "size")
	g := &drawnSearch{world: newWorld(seed, size, 3)}
	g.in = Input{
		Strategy: named(rapid.SampledFrom(append(StrategyNames(), supplied.Name)).Draw(t, "strategy")),
		Seed:     3,
		Epoch:    epoch,
		Table:    &g.table,
		Budget: Budget{
			Tracepoints: rapid.IntRange(0, 12).Draw(t, "tracepoints"),
			Bytes:       rapid.Float64Range(0, 20_000).Draw(t, "bytes"),
			CPU:         rapid.Float64Range(0, 1e-3).Draw(t, "cpu"),
			Service:     drawLimit(t, "service"),
		},
	}
	for range rapid.IntRange(0, 3).Draw(t, "overrides") {
		g.in.State.Overrides = append(g.in.State.Overrides, Override{
			Tracepoint: g.anyTracepoint(t).tp,
			Kind:       OverrideKind(rapid.IntRange(0, 2).Draw(t, "kind")),
			By:         "someone",
			Forced:     rapid.Bool().Draw(t, "forced"),
		})
	}
	if rapid.Bool().Draw(t, "harm") {
		g.in.Unavailable = []trace.Symbol{g.anyTracepoint(t).tp}
	}
	return g
}

func drawLimit(t *rapid.T, of string) Limit {
	if rapid.Bool().Draw(t, "no limit of a "+of) {
		return Limit{}
	}
	return Limit{
		Tracepoints: rapid.IntRange(0, 6).Draw(t, of+": tracepoints"),
		Bytes:       rapid.Float64Range(0, 10_000).Draw(t, of+": bytes"),
	}
}

func (g *drawnSearch) anyTracepoint(t *rapid.T) codeNode {
	var list []codeNode
	for _, s := range g.nodes {
		if s.tp != 0 {
			list = append(list, s)
		}
	}
	return rapid.SampledFrom(list).Draw(t, "tracepoint")
}

// prepare plays an epoch and sets the next input.
func (g *drawnSearch) prepare() {
	g.run(&g.in.State.Plan)
	p := g.problem(&g.in.State.Plan)
	g.in.Now = g.now
	g.in.Problems = []Problem{ProblemOf(&p)}
	g.in.Trees = map[analysis.Hash]*cct.Tree{p.RequestType: g.tree()}
	g.in.Rates = map[analysis.Hash]float64{p.RequestType: g.rate}
}

func same(a, b any) string { return cmp.Diff(a, b, cmpopts.EquateNaNs(), cmpopts.EquateEmpty()) }

func TestPlansKeepTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawSearch(t)
		for range 6 {
			g.prepare()
			before := g.in.State
			st, decisions := Next(g.in)
			again, decided := Next(g.in)
			if diff := same(st, again) + same(decisions, decided); diff != "" {
				t.Fatalf("the same arguments, another answer:\n%s", diff)
			}
			g.checkBudget(t, &st)
			g.checkPicks(t, &before.Plan, decisions)
			g.checkOverrides(t, &st)
			g.in.State = st
		}
	})
}

func (g *drawnSearch) checkBudget(t *rapid.T, st *State) {
	costs := newCosts(g.in.Trees, g.in.Rates)
	costs.scale = st.Overrun
	forced := make(map[trace.Symbol]bool)
	for _, w := range st.Overrides {
		if w.Forced && w.Kind != Forbid {
			forced[w.Tracepoint] = true
		}
	}
	var sum Usage // without forced tracepoints
	services := make(map[trace.Symbol]Usage)
	spent := false
	for tp, mask := range st.Plan.masks() {
		if u := costs.of(tp, mask); !forced[tp] {
			sum.add(u)
			s := g.service(tp)
			services[s] = services[s].plus(u)
			spent = true
		}
	}
	if spent { // forced tracepoints count against the limits of others
		for tp := range forced {
			if mask := st.Plan.masks()[tp]; mask != 0 {
				sum.add(costs.of(tp, mask))
			}
		}
	}
	sum.Bytes, sum.CPU = sum.Bytes*(1-1e-9), sum.CPU*(1-1e-9) // summed in another order
	if !g.in.Budget.total().allows(sum) {
		t.Fatalf("plan %+v is over the budget %+v", sum, g.in.Budget)
	}
	for s, u := range services {
		u.Bytes *= 1 - 1e-9
		if !g.in.Budget.Service.allows(u) {
			t.Fatalf("%+v for service %x is over the budget %+v", u, s, g.in.Budget)
		}
	}
}

// masks returns, for each tracepoint, the arms that have it on.
func (p *Plan) masks() map[trace.Symbol]uint32 {
	masks := make(map[trace.Symbol]uint32)
	for _, l := range p.Leases {
		masks[l.Tracepoint] |= 1 << l.Arm
	}
	return masks
}

func (g *drawnSearch) service(tp trace.Symbol) trace.Symbol {
	for _, s := range g.nodes {
		if s.tp == tp {
			return g.table.Operation(s.op).Service
		}
	}
	return 0
}

func (g *drawnSearch) checkPicks(t *rapid.T, before *Plan, decisions []Decision) {
	for _, d := range decisions {
		for _, p := range d.Picks {
			isPick := func(o Off) bool { return o.Tracepoint == p.Tracepoint }
			if before.has(p.Tracepoint) && !slices.ContainsFunc(d.Off, isPick) {
				t.Fatalf("%x is on and picked again: %s", p.Tracepoint, p.Reason)
			}
			if p.Reason == "" || p.Arms == 0 {
				t.Fatalf("a pick without reason or arms: %+v", p)
			}
		}
	}
}

func (g *drawnSearch) checkOverrides(t *rapid.T, st *State) {
	for _, w := range st.Overrides {
		if w.Kind == Forbid && st.Plan.has(w.Tracepoint) {
			t.Fatalf("%x is forbidden and on", w.Tracepoint)
		}
		forbids := func(x Override) bool { return x.Kind == Forbid && x.Tracepoint == w.Tracepoint }
		off := slices.ContainsFunc(st.Overrides, forbids) || slices.Contains(g.in.Unavailable, w.Tracepoint)
		always := w.Forced || g.in.Budget == (Budget{})
		if w.Kind != Forbid && always && !off && !st.Plan.has(w.Tracepoint) {
			t.Fatalf("%x has an override and is off", w.Tracepoint)
		}
	}
	for _, tp := range g.in.Unavailable {
		if st.Plan.has(tp) {
			t.Fatalf("%x does harm and is on", tp)
		}
	}
}

// TestOverrunEvictsTheWorst checks that, if agents measure more than the budget, the least valuable tracepoints are
// evicted. A tracepoint that stays is worth at least as much as every evicted tracepoint that would have fitted.
func TestOverrunEvictsTheWorst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawSearch(t)
		g.in.State.Overrides, g.in.Unavailable = nil, nil
		g.in.Budget = Budget{Bytes: rapid.Float64Range(1, 20_000).Draw(t, "bytes")}
		factor := rapid.Float64Range(1, 10).Draw(t, "factor")
		for range 6 {
			g.prepare()
			costs := newCosts(g.in.Trees, g.in.Rates)
			g.in.Measured = Usage{}
			for tp, mask := range g.in.State.Plan.masks() {
				g.in.Measured.Bytes += factor * costs.of(tp, mask).Bytes
			}
			st, decisions := Next(g.in)
			g.checkBudget(t, &st)
			g.checkEvicted(t, &st, decisions)
			if g.in.Measured.Bytes > 0 && math.Abs(st.Overrun.Bytes-factor) > 1e-6*factor {
				t.Fatalf("overrun %g, want %g", st.Overrun.Bytes, factor)
			}
			g.in.State = st
		}
	})
}

// checkEvicted checks that evicted tracepoints don't fit next to tracepoints worth at least as much.
func (g *drawnSearch) checkEvicted(t *rapid.T, st *State, decisions []Decision) {
	costs := newCosts(g.in.Trees, g.in.Rates)
	costs.scale = st.Overrun
	requested := make(map[trace.Symbol]TracepointRequest)
	for _, v := range g.in.State.Investigations {
		for _, w := range v.Requested {
			requested[w.Tracepoint] = w
		}
	}
	for _, d := range decisions {
		for _, o := range d.Off {
			if o.Reason != WhyBudget {
				continue
			}
			out, better := requested[o.Tracepoint], costs.of(o.Tracepoint, requested[o.Tracepoint].Arms)
			for _, w := range st.Investigations[0].Requested {
				if w.Value >= out.Value {
					better.add(costs.of(w.Tracepoint, w.Arms))
				}
			}
			better.Bytes *= 1 + 1e-9
			if g.in.Budget.total().allows(better) {
				t.Fatalf("%x was evicted although it fits beside those worth more", o.Tracepoint)
			}
		}
	}
}

func TestOrderOfEvidenceIsIrrelevant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawSearch(t)
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0))
		for range 4 {
			g.prepare()
			st, decisions := Next(g.in)
			p := g.in.Problems[0]
			rng.Shuffle(len(p.Refined), func(i, j int) { p.Refined[i], p.Refined[j] = p.Refined[j], p.Refined[i] })
			rng.Shuffle(len(p.Edges), func(i, j int) { p.Edges[i], p.Edges[j] = p.Edges[j], p.Edges[i] })
			shuffled, decided := Next(g.in)
			if diff := same(st, shuffled) + same(decisions, decided); diff != "" {
				t.Fatal(diff)
			}
			g.in.State = st
		}
	})
}

func TestStateSurvivesARestart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawSearch(t)
		for range 4 {
			g.prepare()
			data, err := json.Marshal(g.in.State)
			if err != nil {
				t.Fatal(err)
			}
			st, _ := Next(g.in)
			g.in.State = State{}
			if err := json.Unmarshal(data, &g.in.State); err != nil {
				t.Fatal(err)
			}
			if again, _ := Next(g.in); same(st, again) != "" {
				t.Fatal(same(st, again))
			}
			g.in.State = st
		}
	})
}

func TestNextChangesNothingOfItsInput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawSearch(t)
		for range 4 {
			g.prepare()
			data, _ := json.Marshal(g.in.State)
			st, _ := Next(g.in)
			if after, _ := json.Marshal(g.in.State); string(after) != string(data) {
				t.Fatal("the state that was passed in changed")
			}
			g.in.State = st
		}
	})
}

// TestLeasesEnd checks that leases end unless they are renewed. Investigations end when their problem closes.
func TestLeasesEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawSearch(t)
		g.in.State.Overrides = nil
		for range 2 {
			g.prepare()
			g.in.State, _ = Next(g.in)
		}
		g.in.Problems = nil
		g.in.Now = g.in.Now.Add(epoch)
		st, _ := Next(g.in)
		for _, l := range st.Plan.Leases {
			if l.Expires > g.now.Add(LeaseTime) {
				t.Fatalf("the lease of %x was renewed without a problem", l.Tracepoint)
			}
		}
		g.in.State, g.in.Now = st, g.in.Now.Add(LeaseTime+time.Second)
		st, _ = Next(g.in)
		if len(st.Plan.Leases) > 0 || st.Investigations[0].Status != Gone {
			t.Fatalf("%d leases, %s", len(st.Plan.Leases), st.Investigations[0].Status)
		}
	})
}

// TestArmsNest checks that arms have at least 0.7 of the share asked for, and that of any two results, one contains the
// other.
func TestArmsNest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, y := rapid.Float64Range(0, 2).Draw(t, "x"), rapid.Float64Range(0, 2).Draw(t, "y")
		if a, b := armsFor(min(x, y)), armsFor(max(x, y)); a&^b != 0 {
			t.Fatalf("%05b is not in %05b", a, b)
		}
		if got := shareOf(armsFor(x)); got < 0.7*min(x, 1) {
			t.Fatalf("%g of the requests, want %g", got, x)
		}
	})
	if armsFor(math.Inf(1)) != allArms || armsFor(math.NaN()) != allArms {
		t.Fatal("an unknown rate takes all requests")
	}
}
