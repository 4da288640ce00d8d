package engine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/bench/sim"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// learned returns a world whose core has learned, from as little as possible.
func learned(fault sim.Fault) *world {
	options := engine.DefaultOptions()
	options.Learning = 20 * time.Second
	w := newWorld(small(2, fault), options)
	for !w.core.Learned() {
		w.play()
	}
	return w
}

// enable has a person enable a tracepoint: the next plan has it on in every arm.
func (w *world) enable(tracepoint trace.Symbol) {
	w.core.Apply(&engine.Change{Override: &search.Override{Tracepoint: tracepoint, Kind: search.Enable}})
	w.play()
}

// late ingests the requests of an epoch that ran under a plan, nil for none, and does not end the epoch.
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
	for _, g := range w.core.Grouper().Groups() {
		if t := w.core.Tree(g.ID); t != nil {
			all[g.ID] = t
		}
	}
	return all
}

// requestsWith returns how many requests had a tracepoint on that is in a tree, and whether it is.
func requestsWith(tracepoint trace.Symbol, t *cct.Tree) (requests uint64, found bool) {
	i := slices.IndexFunc(t.Nodes, func(n cct.Node) bool { return n.Tracepoint == tracepoint })
	if i < 0 {
		return 0, false
	}
	return t.Nodes[i].Requests, true
}

// A request that ran under an earlier plan counts as one with the tracepoints of that plan on.
func TestEarlierPlans(t *testing.T) {
	w := learned(sim.None)
	var points []trace.Symbol
	for _, p := range w.app.Catalogue() {
		if p.Kind == cct.SpanPoint && !p.Baseline && len(points) < 3 {
			points = append(points, p.ID)
		}
	}
	var plans []*sim.Plan // each has one tracepoint more on
	for _, p := range points {
		w.enable(p)
		plans = append(plans, planOf(w.core.Plan()))
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
				t.Errorf("plan %d of %d: %d of %d requests had tracepoint %d on, want %d", i+1, len(plans), on, requests, k+1, want)
			}
		}
	}
}

// Contexts leave the tree when they are too old, even if no other request comes.
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
		t.Error("the trees are gone")
	}
	for id, tree := range all {
		if len(tree.Nodes) != 0 {
			t.Errorf("the tree of %s still has %d nodes", id, len(tree.Nodes))
		}
	}
}

// The overhead of instrumentation is measured against requests with nothing on. Requests without a plan are left out.
func TestBareRequests(t *testing.T) {
	w := learned(sim.Lock)
	w.app.Inject(w.now)
	for len(w.core.ArmTimes()) == 0 { // until a problem is investigated
		if w.play(); w.now > start.Add(5*time.Minute) {
			t.Fatal("nothing is investigated")
		}
	}
	bare := func() (n uint64) {
		for _, x := range w.core.ArmTimes() {
			if x.On == 0 {
				n += x.N
			}
		}
		return n
	}
	before := bare()
	w.late(nil)
	if n := bare(); n != before {
		t.Errorf("%d requests without a plan count", n-before)
	}
	w.late(&sim.Plan{Version: w.core.Plan().Version})
	if n := bare(); n == before {
		t.Error("requests under a plan with nothing on do not count")
	}
}
