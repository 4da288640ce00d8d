package engine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/internal/testkit/simplan"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// learned returns a world after a short learning period.
func learned(fault sim.Fault) *world {
	options := engine.DefaultOptions()
	options.Learning = 20 * time.Second
	w := newWorld(small(2, fault), options)
	for !w.core.View().Progress.Learned() {
		w.play()
	}
	return w
}

// enable adds an override that enables tracepoint in every arm of the next plan.
func (w *world) enable(tracepoint trace.Symbol) {
	w.core.Apply(&engine.Change{Override: &search.Override{Tracepoint: tracepoint, Kind: search.Enable}})
	w.play()
}

// late ingests the requests of an epoch under plan, which may be nil, without ending the epoch.
func (w *world) late(plan *sim.Plan) {
	end := w.now.Add(w.epoch)
	for t := range w.app.Requests(w.now, end, plan) {
		w.core.Ingest(t)
	}
	w.now = end
}

// trees returns the trees of all request types.
func (w *world) trees() map[analysis.Hash]*cct.Tree {
	all := make(map[analysis.Hash]*cct.Tree)
	for _, g := range w.core.View().Groups.Groups() {
		if t := w.core.View().Trees.Of(g.ID); t != nil {
			all[g.ID] = t
		}
	}
	return all
}

// requestsWith returns the number of requests with tracepoint enabled, and whether t has the tracepoint.
func requestsWith(tracepoint trace.Symbol, t *cct.Tree) (requests uint64, found bool) {
	i := slices.IndexFunc(t.Nodes, func(n cct.Node) bool { return n.Tracepoint == tracepoint })
	if i < 0 {
		return 0, false
	}
	return t.Nodes[i].Requests, true
}

// A request under an earlier plan is counted with the tracepoints of that plan.
func TestEarlierPlans(t *testing.T) {
	w := learned(sim.None)
	var points []trace.Symbol
	for _, p := range w.app.Catalogue() {
		if p.Kind == cct.SpanPoint && !p.Baseline && len(points) < 3 {
			points = append(points, p.ID)
		}
	}
	var plans []*sim.Plan // each enables one more tracepoint
	for _, p := range points {
		w.enable(p)
		plans = append(plans, simplan.Of(w.core.View().Searches.Plan()))
	}
	for i, plan := range plans {
		before := w.trees()
		w.late(plan)
		after := w.trees()
		for k, p := range points {
			var requests, on, want uint64
			for id, tree := range after {
				was, _ := requestsWith(p, before[id])
				if is, found := requestsWith(p, tree); found {
					requests += tree.Requests - before[id].Requests
					on += is - was
				}
			}
			if k <= i {
				want = requests
			}
			if requests == 0 || on != want {
				t.Errorf("plan %d of %d: %d of %d requests had tracepoint %d on, want %d",
					i+1, len(plans), on, requests, k+1, want)
			}
		}
	}
}

// A service that had not applied the plan of a request provides no evidence about its own tracepoints.
func TestLateAgents(t *testing.T) {
	w := learned(sim.None)
	var point cct.Tracepoint
	for _, p := range w.app.Catalogue() {
		if p.Kind == cct.SpanPoint && !p.Baseline &&
			w.app.Table().Operation(p.Op).Service != w.app.Table().Operation(w.app.Entries()[0]).Service {
			point = p
			break
		}
	}
	w.enable(point.ID)
	plan := simplan.Of(w.core.View().Searches.Plan())
	for i := range plan.Arms {
		plan.Arms[i].On = nil
	}
	owner := w.app.Table().Operation(point.Op).Service
	for _, service := range []trace.Symbol{owner, 0} {
		before := w.trees()
		reached := uint64(0)
		end := w.now.Add(w.epoch)
		for r := range w.app.Requests(w.now, end, plan) {
			for i := range r.Attrs {
				a := &r.Attrs[i]
				if s := &r.Spans[a.Span]; s.Service == owner && s.Parent != 0 &&
					a.Key == trace.SymbolOf([]byte(trace.KeyPlan)) {
					reached++
					if service == owner {
						a.Number = 0
					}
				}
			}
			w.core.Ingest(r)
		}
		w.now = end
		var on, requests uint64
		for id, tree := range w.trees() {
			was, _ := requestsWith(point.ID, before[id])
			if is, found := requestsWith(point.ID, tree); found {
				on += is - was
				requests += tree.Requests - before[id].Requests
			}
		}
		if reached == 0 || requests == 0 {
			t.Fatalf("%d requests reached the service, %d the tree", reached, requests)
		}
		if service == 0 && on != requests || service == owner && on > requests-reached {
			t.Errorf("late service %d: %d of %d requests had the tracepoint on, and %d reached it",
				service, on, requests, reached)
		}
	}
}

// Old contexts are deleted from the tree even if no more requests arrive.
func TestTreesAge(t *testing.T) {
	w := learned(sim.None)
	w.play()
	for id, tree := range w.trees() {
		if len(tree.Nodes) == 0 {
			t.Errorf("the tree of %s is empty", id)
		}
	}
	w.core.Epoch(w.now.Add(cct.MaxAge + time.Hour))
	all := w.trees()
	if len(all) == 0 {
		t.Error("the trees were deleted")
	}
	for id, tree := range all {
		if len(tree.Nodes) != 0 {
			t.Errorf("the tree of %s still has %d nodes", id, len(tree.Nodes))
		}
	}
}

// The overhead of tracepoints is measured against requests that had no tracepoints under a plan. Requests without a
// plan don't count.
func TestBareRequests(t *testing.T) {
	w := learned(sim.Lock)
	w.app.Inject(w.now)
	for len(engine.ArmTimes(w.core)) == 0 { // until a problem is investigated
		if w.play(); w.now > start.Add(5*time.Minute) {
			t.Fatal("no investigation")
		}
	}
	bare := func() (n uint64) {
		for _, x := range engine.ArmTimes(w.core) {
			if x.On == 0 {
				n += x.N
			}
		}
		return n
	}
	before := bare()
	w.late(nil)
	if n := bare(); n != before {
		t.Errorf("%d requests without a plan are counted", n-before)
	}
	w.late(&sim.Plan{Version: w.core.View().Searches.Plan().Version})
	if n := bare(); n == before {
		t.Error("requests of a plan without tracepoints are not counted")
	}
}
