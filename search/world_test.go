package search

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// world is a synthetic application of one request type in which one node, the culprit, is sometimes slow. It stands
// in for agents, traces and package analysis: it runs requests under a plan and returns the problem with its
// evidence.
type world struct {
	rng     *rand.Rand
	table   trace.Table
	nodes   []codeNode
	culprit int
	chance  float64 // probability that a request is slow in the culprit
	extra   float64 // ns
	rate    float64 // requests per second
	builder cct.Builder
	known   []cct.Tracepoint // announced by agents
	indexed *cct.Catalogue   // of known
	now     trace.Nanos
	hits    int
	on      map[trace.Symbol]bool // since the start

	requests []request
	shown    map[shownKey]*shown
	with     map[uint64][]int // requests by batch
}

// codeNode is an operation or function in its calling context. Parents come before their children.
type codeNode struct {
	parent     int
	op         trace.Op
	tp         trace.Symbol // 0 for the baseline
	unanchored bool
	hinted     bool
	layer      cct.Layer
	mean       float64
	sigma      float64
	chance     float64
	owner      int // baseline node
	baseline   trace.Context
}

type request struct {
	total float64
	edges []float64 // by node; for baseline nodes, the time in the operation and the functions inside
}

type shownKey struct {
	batch uint64
	owner int
	ctx   trace.Context
}

type shown struct {
	parent trace.Context
	node   int
	times  map[int]float64
}

const epoch = 10 * time.Second

// newWorld makes an application with about the given number of switchable tracepoints.
func newWorld(seed uint64, tracepoints int, rate float64) *world {
	w := &world{
		rng:   rand.New(rand.NewPCG(seed, 7)),
		rate:  rate,
		shown: make(map[shownKey]*shown),
		with:  make(map[uint64][]int),
		on:    make(map[trace.Symbol]bool),
	}
	w.baseline(-1, 0)
	inside := make(map[int]int)
	for switchable := 0; switchable < tracepoints; {
		parent := w.rng.IntN(len(w.nodes))
		if w.depth(parent) > 24 {
			continue
		}
		if owner := w.nodes[parent].owner; inside[owner] >= 30 {
			if w.nodes[parent].layer == cct.App && w.rng.IntN(10) == 0 {
				w.baseline(parent, len(w.nodes))
			}
			continue
		} else {
			inside[owner]++
		}
		if w.nodes[parent].layer == cct.App && w.rng.IntN(20) == 0 {
			w.baseline(parent, len(w.nodes))
			continue
		}
		if w.nodes[parent].layer == cct.App {
			w.function(parent)
			switchable++
		}
	}
	w.announce(w.catalogue())
	w.chooseCulprit()
	return w
}

func (w *world) depth(i int) int {
	d := 0
	for ; i >= 0; i = w.nodes[i].parent {
		d++
	}
	return d
}

func (w *world) baseline(parent, i int) {
	name := fmt.Sprintf("op%d", i)
	op := w.table.Op(w.table.Symbol(name), w.table.Symbol(name), trace.Server)
	s := codeNode{
		parent: parent,
		op:     op,
		mean:   1e6,
		sigma:  0.3,
		chance: 1,
		owner:  i,
	}
	above := trace.Context(0)
	if parent >= 0 {
		above = w.nodes[w.nodes[parent].owner].baseline
	}
	s.baseline = above.Child(s.op)
	w.table.AddContext(s.baseline, above, s.op)
	w.nodes = append(w.nodes, s)
}

func (w *world) function(parent int) {
	name := fmt.Sprintf("f%d", len(w.nodes))
	service := w.table.Operation(w.nodes[w.nodes[parent].owner].op).Service
	s := codeNode{
		parent: parent,
		op:     w.table.Op(service, w.table.Symbol(name), trace.Internal),
		tp:     w.table.Symbol(name),
		mean:   2e4 * math.Exp(4.3*w.rng.Float64()),
		sigma:  0.1 + 0.8*w.rng.Float64(),
		chance: 1,
		owner:  w.nodes[parent].owner,
		hinted: w.rng.IntN(10) > 0,
	}
	if w.rng.IntN(4) == 0 {
		s.chance = 0.1 + 0.85*w.rng.Float64()
	}
	if w.rng.IntN(8) == 0 {
		s.layer, s.unanchored = cct.Kernel, true
	}
	w.nodes = append(w.nodes, s)
}

// announce adds tracepoints that agents can switch on.
func (w *world) announce(list []cct.Tracepoint) {
	w.known = append(w.known, list...)
	w.indexed = cct.NewCatalogue(w.known, &w.table)
}

func (w *world) tree() *cct.Tree { return w.builder.Build(w.indexed, &w.table) }

func (w *world) catalogue() []cct.Tracepoint {
	var list []cct.Tracepoint
	for _, s := range w.nodes {
		if s.tp == 0 {
			list = append(list, cct.Tracepoint{ID: w.table.Symbol(w.table.OpName(s.op)), Op: s.op, Baseline: true})
			continue
		}
		tp := cct.Tracepoint{ID: s.tp, Op: s.op, Layer: s.layer}
		if !s.unanchored {
			tp.Owner = w.nodes[s.owner].op
			if s.hinted {
				tp.Parent = w.table.Symbol(w.table.OpName(w.nodes[s.parent].op))
			}
		}
		list = append(list, tp)
	}
	return list
}

// chooseCulprit chooses a culprit that many requests run.
func (w *world) chooseCulprit() {
	mean := 0.0
	reach := make([]float64, len(w.nodes))
	for i, s := range w.nodes {
		reach[i] = s.chance
		if s.parent >= 0 {
			reach[i] *= reach[s.parent]
		}
		mean += reach[i] * s.mean
	}
	for tries := 0; w.culprit == 0 || w.nodes[w.culprit].tp == 0 || reach[w.culprit] < 0.2 && tries < 1000; tries++ {
		w.culprit = w.rng.IntN(len(w.nodes))
	}
	w.chance = 0.1 + 0.4*w.rng.Float64()
	w.extra = mean * (0.3 + w.rng.Float64())
}

// run plays an epoch of requests under plan.
func (w *world) run(plan *Plan) {
	w.now = w.now.Add(epoch)
	n := int(w.rate*epoch.Seconds() + 0.5)
	for range n {
		w.request(plan)
	}
}

func (w *world) request(plan *Plan) {
	arm, u := int32(-1), w.rng.Float64()
	for k, a := range plan.Arms {
		if u < a.Share {
			arm = int32(k)
			break
		}
		u -= a.Share
	}
	on := make(map[trace.Symbol]bool)
	for _, l := range plan.Leases {
		if l.Arm == arm {
			on[l.Tracepoint] = true
			w.on[l.Tracepoint] = true
		}
	}
	number := len(w.requests)
	r := request{edges: make([]float64, len(w.nodes))}
	inclusive := make([]float64, len(w.nodes))
	executed := make([]bool, len(w.nodes))
	for i, s := range w.nodes {
		if s.parent >= 0 && !executed[s.parent] || w.rng.Float64() >= s.chance {
			continue
		}
		executed[i] = true
		x := s.mean * math.Exp(s.sigma*w.rng.NormFloat64())
		if i == w.culprit && w.rng.Float64() < w.chance {
			x += w.extra * math.Exp(0.3*w.rng.NormFloat64())
		}
		inclusive[i] = x
	}
	for i := len(w.nodes) - 1; i >= 0; i-- {
		if s := w.nodes[i]; s.tp != 0 {
			inclusive[s.parent] += inclusive[i]
		} else {
			r.edges[i] = inclusive[i]
			r.total += inclusive[i]
		}
	}
	w.requests = append(w.requests, r)
	batch := uint64(0)
	if arm >= 0 {
		batch = plan.batches()[plan.Arms[arm].Name]
		w.with[batch] = append(w.with[batch], number)
	}
	w.show(batch, number, executed, inclusive, on)
}

// show records the spans of a request as evidence and adds them to the tree.
func (w *world) show(batch uint64, number int, executed []bool, inclusive []float64, on map[trace.Symbol]bool) {
	ctx := make([]trace.Context, len(w.nodes))
	o := cct.Observation{Seen: w.now}
	for i, s := range w.nodes {
		above := trace.Context(0)
		if s.parent >= 0 {
			above = ctx[s.parent]
		}
		ctx[i] = above
		if !executed[i] || s.tp != 0 && !on[s.tp] {
			continue
		}
		ctx[i] = above.Child(s.op)
		o.Contexts = append(o.Contexts, cct.ContextCount{
			Context:    ctx[i],
			Parent:     above,
			Op:         s.op,
			Tracepoint: s.tp,
			Count:      1,
		})
		if s.tp == 0 {
			continue
		}
		w.hits++
		k := shownKey{batch, s.owner, ctx[i]}
		if w.shown[k] == nil {
			w.shown[k] = &shown{parent: above, node: i, times: make(map[int]float64)}
		}
		w.shown[k].times[number] = inclusive[i]
	}
	for tp := range on {
		o.On = append(o.On, tp)
	}
	slices.Sort(o.On)
	w.builder.Observe(o)
}

// affected returns the fraction of the requests that are slow in a baseline node. It is 0 unless the node contains the
// culprit.
func (w *world) affected(node int) float64 {
	if w.nodes[w.culprit].owner != node {
		return 0
	}
	reach := w.chance
	for i := w.culprit; i >= 0; i = w.nodes[i].parent {
		reach *= w.nodes[i].chance
	}
	return reach
}

// problem returns the problem as package analysis would.
func (w *world) problem(plan *Plan) detect.Problem {
	p := detect.Problem{
		ID:          analysis.Hash{Hi: 1},
		RequestType: analysis.Hash{Hi: 2},
		Entry:       w.nodes[0].op,
		Requests:    uint64(len(w.requests)),
		Rate:        w.rate,
	}
	var t []float64
	for _, r := range w.requests {
		t = append(t, r.total)
	}
	for i, s := range w.nodes {
		if s.tp != 0 {
			continue
		}
		var e []float64
		for _, r := range w.requests {
			e = append(e, r.edges[i])
		}
		share := covariance2(e, t) / covariance2(t, t)
		p.Edges = append(p.Edges, group.EdgeShare{
			Edge:          trace.ContextEdge(s.baseline),
			Context:       s.baseline,
			ShareVariance: share,
			Score:         share,
			Affected:      w.affected(i),
		})
	}
	for arm, batch := range plan.batches() {
		reached := make(map[trace.Symbol]bool)
		for k, x := range w.shown {
			if k.batch == batch {
				r := w.refined(k, x)
				r.Arm = arm
				reached[r.Tracepoint] = true
				p.Refined = append(p.Refined, r)
			}
		}
		for _, l := range plan.Leases {
			if plan.Arms[l.Arm].Name == arm && !reached[l.Tracepoint] {
				n := uint64(len(w.with[batch]))
				x := detect.RefinedShare{Tracepoint: l.Tracepoint, Arm: arm, N: n}
				p.Refined = append(p.Refined, x)
			}
		}
	}
	slices.SortFunc(p.Refined, func(a, b detect.RefinedShare) int {
		return cmp.Or(cmp.Compare(a.Within, b.Within), cmp.Compare(a.Context, b.Context))
	})
	return p
}

func (w *world) refined(k shownKey, x *shown) detect.RefinedShare {
	s := w.nodes[x.node]
	var xs, es, ts []float64
	for _, number := range w.with[k.batch] {
		r := &w.requests[number]
		xs, es, ts = append(xs, x.times[number]), append(es, r.edges[k.owner]), append(ts, r.total)
	}
	share, half := ratio(xs, es, ts)
	return detect.RefinedShare{
		Within:     trace.ContextEdge(w.nodes[k.owner].baseline),
		Context:    k.ctx,
		Parent:     x.parent,
		Op:         s.op,
		Tracepoint: s.tp,
		N:          uint64(len(xs)),
		Hits:       uint64(len(x.times)),
		Share:      share,
		ShareLow:   share - half,
		ShareHigh:  share + half,
	}
}

func covariance2(x, y []float64) float64 {
	mx, my, sum := mean(x), mean(y), 0.0
	for i := range x {
		sum += (x[i] - mx) * (y[i] - my)
	}
	return sum / float64(max(1, len(x)-1))
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(max(1, len(x)))
}

// ratio returns Cov(x,t)/Cov(e,t) and half its 95 % interval, by the delta method.
func ratio(x, e, t []float64) (share, half float64) {
	c := covariance2(e, t)
	if len(x) < 3 || c == 0 {
		return math.NaN(), math.NaN()
	}
	share = covariance2(x, t) / c
	mx, me, mt, sum := mean(x), mean(e), mean(t), 0.0
	for i := range x {
		d := ((x[i] - mx) - share*(e[i]-me)) * (t[i] - mt)
		sum += d * d
	}
	n := float64(len(x))
	return share, 1.96 * math.Sqrt(sum) / n / math.Abs(c)
}

// supplied is a strategy that a caller supplies. It picks candidates in an order that depends only on the seed.
var supplied = Strategy{Name: "supplied", Pick: func(q *Question) []Pick {
	var picks []Pick
	for _, i := range rand.New(rand.NewPCG(q.Seed, 1)).Perm(len(q.Candidates)) {
		if q.IsSpan(i) && len(picks) < PicksAtOnce {
			picks = append(picks, q.Pick(i, 1/float64(1+len(picks)), "picked by the caller"))
		}
	}
	return picks
}}

// named returns the published strategy of that name, or supplied.
func named(name string) Strategy {
	for _, s := range append(Strategies(), supplied) {
		if s.Name == name {
			return s
		}
	}
	panic("no strategy is called " + name)
}

// outcome is the result of a search.
type outcome struct {
	status  Status
	top     int // rank of the culprit among the suspects at the end, from 0; -1 if it isn't among them
	found   int // epochs until it ranked first
	epochs  int // until the search ended
	tried   int
	total   int
	hits    int
	largest int // tracepoints on at once
}

// play runs a search to its end, for at most the given epochs.
func (w *world) play(strategy string, epochs int, budget Budget) outcome {
	var st State
	o := outcome{top: -1, found: epochs, epochs: epochs}
	for _, s := range w.nodes {
		if s.tp != 0 {
			o.total++
		}
	}
	for range 3 {
		w.run(&st.Plan)
	}
	for k := range epochs {
		p := w.problem(&st.Plan)
		tree := w.tree()
		st, _ = Next(Input{
			Now:      w.now,
			Problems: []Problem{ProblemOf(&p)},
			Trees:    map[analysis.Hash]*cct.Tree{p.RequestType: tree},
			Rates:    map[analysis.Hash]float64{p.RequestType: w.rate},
			State:    st,
			Budget:   budget,
			Strategy: named(strategy),
			Seed:     1,
			Epoch:    epoch,
			Table:    &w.table,
		})
		v := st.Investigation(OfProblem(p.ID))
		o.top = w.rank(v.Suspects)
		if o.top == 0 {
			o.found = min(o.found, k)
		}
		o.status = v.Status
		o.largest = max(o.largest, len(v.Requested))
		if v.Status >= Located {
			o.epochs = k
			break
		}
		w.run(&st.Plan)
	}
	o.tried, o.hits = len(w.on), w.hits
	return o
}

func (w *world) rank(list []Suspect) int {
	return slices.IndexFunc(list, func(s Suspect) bool { return s.Tracepoint == w.nodes[w.culprit].tp })
}
