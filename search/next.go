package search

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// Rules of investigations.
const (
	SilencePeriod = 30 * time.Minute // a tracepoint that explained nothing stays off for the same problem

	maxInvestigations = 64   // active at a time
	maxKept           = 1024 // with those that ended
	graceEpochs       = 2    // calls without the problem before it is gone
	idleEpochs        = 6    // calls without anything new before an investigation gives up
	enough            = 300  // requests, beyond which more do not help
	refutedShare      = 0.1  // of the leading operation's: what cannot carry more is switched off
	liveShare         = 0.15 // of the best region's: what carries less is not searched
	keptShare         = 0.8  // of the operations' share that located places must keep
	leastShare        = 0.1  // of all that is wrong, that the first of located places must carry
	standOut          = 3    // places at most that are located together
	explainedShare    = 0.5
	maxExplaining     = 4 // variables switched on for a located place
	explainEpochs     = 3
	certain           = 3  // −ln of the chance that all of the requests that a place was judged by were spared
	verifyRequests    = 60 // most that the places below an inner one are judged by before it is located
	wantedRequests    = 24 // of the group, with a tracepoint on, an epoch
)

// Next decides what is on until the next call. It returns the state to pass in then, and a decision for every change of the plan
// or of an investigation, in the order of the problems. It reads nothing but its arguments, keeps nothing of them that it
// changes, and gives equal results for equal arguments; the order of edges and of evidence within a problem is irrelevant.
func Next(in Input) (State, []Decision) {
	n := newStep(in)
	for i := range in.Problems {
		n.investigate(&in.Problems[i])
	}
	n.endMissing()
	n.compile()
	return n.state, n.finish()
}

// step is the state of one call of Next.
type step struct {
	Input
	state     State
	old       *Plan
	decisions []Decision
	seen      map[analysis.Hash]bool // problems
	onset     map[analysis.Hash]analysis.Onset
	forbidden map[trace.Symbol]bool
	broken    map[trace.Symbol]bool
	silent    map[Silence]bool // with Until 0
	strategy  string
	answer    Strategy
	costs     *costs
	leading   map[trace.Op]bool // operations that better-ranked problems' investigations are picking in
}

func newStep(in Input) *step {
	n := &step{
		Input: in, old: &in.State.Plan, seen: make(map[analysis.Hash]bool), onset: make(map[analysis.Hash]analysis.Onset),
		forbidden: make(map[trace.Symbol]bool), broken: make(map[trace.Symbol]bool), silent: make(map[Silence]bool),
		leading: make(map[trace.Op]bool),
	}
	n.strategy, n.answer = StrategyNamed(in.Strategy)
	n.costs = newCosts(in.Trees, in.Rates)
	n.state.Investigations = slices.Clone(in.State.Investigations)
	for _, w := range in.State.Wishes {
		if w.Until == 0 || w.Until > in.Now {
			n.state.Wishes = append(n.state.Wishes, w)
			n.forbidden[w.Tracepoint] = n.forbidden[w.Tracepoint] || w.Kind == Forbid
		}
	}
	for _, s := range in.State.Silences {
		if s.Until > in.Now {
			n.state.Silences = append(n.state.Silences, s)
			n.silent[Silence{Problem: s.Problem, Tracepoint: s.Tracepoint}] = true
		}
	}
	for _, tp := range in.Unavailable {
		n.broken[tp] = true
	}
	return n
}

// investigate advances the investigation of p by one step, opening it where there is none.
func (n *step) investigate(p *analysis.Problem) {
	if n.seen[p.ID] {
		return
	}
	n.seen[p.ID], n.onset[p.ID] = true, p.Onset
	v := n.state.Investigation(p.ID)
	if v == nil {
		if v = n.open(p); v == nil {
			return
		}
	}
	i := &inquiry{step: n, v: v, p: p, tree: n.Trees[p.RequestType]}
	if i.tree == nil {
		i.tree = new(cct.Tree)
	}
	i.run()
}

// open starts an investigation; it returns nil if there are too many.
func (n *step) open(p *analysis.Problem) *Investigation {
	active := 0
	for i := range n.state.Investigations {
		if n.state.Investigations[i].Status.Active() {
			active++
		}
	}
	if active >= maxInvestigations || len(n.state.Investigations) >= maxKept {
		return nil
	}
	n.state.Investigations = append(n.state.Investigations, Investigation{
		Problem: p.ID, RequestType: p.RequestType, Group: p.Group, Entry: p.Entry, Opened: n.Now, Changed: n.Now, Strategy: n.strategy,
	})
	return &n.state.Investigations[len(n.state.Investigations)-1]
}

// endMissing ends the investigations of problems that closed, and forgets those that ended long ago.
func (n *step) endMissing() {
	kept := n.state.Investigations[:0]
	for _, v := range n.state.Investigations {
		if !n.seen[v.Problem] {
			v.Missed++
			if v.Missed >= graceEpochs && v.Status != Gone {
				n.decisions = append(n.decisions, n.gone(&v))
			}
			if v.Status == Gone && n.Now.Sub(v.Changed) > SilencePeriod {
				continue
			}
		}
		kept = append(kept, v)
	}
	n.state.Investigations = kept
}

func (n *step) gone(v *Investigation) Decision {
	d := Decision{At: n.Now, Investigation: v.Problem, Strategy: v.Strategy, From: v.Status, To: Gone, Reason: "the problem closed"}
	d.Suspects = slices.Clone(v.Suspects[:min(len(v.Suspects), maxSuspects)])
	for _, w := range v.Wants {
		d.Off = append(d.Off, Off{w.Tracepoint, WhyClosed})
	}
	v.Status, v.Changed, v.Wants, v.Reason = Gone, n.Now, nil, d.Reason
	return d
}

// inquiry is one step of one investigation.
type inquiry struct {
	*step
	v        *Investigation
	p        *analysis.Problem
	tree     *cct.Tree
	searched []*area
	rest     []*area
	question Question
	rejected []Rejected
	d        Decision
}

// run takes over the evidence, judges it, and decides what to switch off and on.
func (i *inquiry) run() {
	v := i.v
	v.Missed = 0
	v.Wants = slices.Clone(v.Wants)
	v.observe(i.p, i.old)
	i.searched, i.rest = areasOf(i.p, i.tree, i.Table)
	for _, a := range i.searched {
		a.weigh(v.Evidence, i.settled)
	}
	v.Suspects = suspects(i.searched, i.rest, i.opens)
	i.begin()
	if v.Status >= Located && i.changed() {
		i.reopen()
	}
	switch {
	case v.Status == Located:
		i.explain()
	case v.Status < Located:
		i.search()
	}
	v.Epochs++
	i.end()
}

// begin makes the decision's evidence.
func (i *inquiry) begin() {
	i.d = Decision{
		At: i.Now, Investigation: i.v.Problem, Strategy: i.strategy, From: i.v.Status,
		Group: GroupEvidence{i.p.Group, i.p.RequestType, i.p.Kind, i.p.Requests, i.p.Rate, finite(i.p.CoV)},
		Tree:  TreeEvidence{i.tree.Version, len(i.tree.Nodes), i.tree.Tracepoints}, Overhead: i.overhead(i.v.Problem),
	}
	for _, a := range i.searched {
		i.d.Matches = append(i.d.Matches, a.matches...)
	}
	if i.v.Lead == 0 && len(i.searched) > 0 {
		i.v.Lead, i.v.Score = i.searched[0].edges[0].Context, i.searched[0].score
	}
}

// end files the decision if anything changed.
func (i *inquiry) end() {
	i.d.To, i.d.Reason = i.v.Status, cmp.Or(i.d.Reason, i.v.Reason)
	if i.d.From == i.d.To && len(i.d.Picks) == 0 && len(i.d.Off) == 0 {
		return
	}
	i.d.Suspects = slices.Clone(i.v.Suspects[:min(len(i.v.Suspects), maxSuspects)])
	i.d.Rejected = i.rejected[:min(len(i.rejected), maxRejected)]
	i.decisions = append(i.decisions, i.d)
}

func (i *inquiry) set(s Status, reason string) {
	if i.v.Status != s {
		i.v.Status, i.v.Changed = s, i.Now
	}
	i.v.Reason = reason
}

// changed reports whether a finished investigation no longer fits: another place leads clearly.
func (i *inquiry) changed() bool {
	if len(i.searched) == 0 {
		return false
	}
	for _, e := range i.searched[0].edges {
		if e.Context == i.v.Lead {
			return i.v.Status == Gone
		}
	}
	return i.v.Status == Gone || i.searched[0].score > 1.5*i.scoreOf(i.v.Lead)
}

func (i *inquiry) scoreOf(ctx trace.Context) float64 {
	score := 0.0
	for k := range i.p.Edges {
		if i.p.Edges[k].Context == ctx {
			score += i.p.Edges[k].Score
		}
	}
	return score
}

// reopen starts over, without silence: the evidence changed.
func (i *inquiry) reopen() {
	i.set(Investigating, "the evidence changed")
	i.v.Lead, i.v.Score, i.v.Idle = i.searched[0].edges[0].Context, i.searched[0].score, 0
	i.state.Silences = slices.DeleteFunc(i.state.Silences, func(s Silence) bool { return s.Problem == i.v.Problem })
	for s := range i.silent {
		if s.Problem == i.v.Problem {
			delete(i.silent, s)
		}
	}
}

// search judges and, unless that ends the search, switches off and on.
func (i *inquiry) search() {
	if len(i.searched) == 0 {
		i.set(i.v.Status, "no edge carries the problem")
		return
	}
	if !slices.ContainsFunc(i.searched, func(a *area) bool { return len(a.roots) > 0 }) {
		i.d.Missing = i.missing()
		i.settle(Exhausted, "no context in the tree is near the one that carries most: explore that operation")
		return
	}
	i.regions()
	waiting := i.pending()
	i.switchOff(waiting)
	switch {
	case i.v.Starved > idleEpochs:
		i.conclude(i.standsOut(false), "nothing that is left to try fits the budget")
	case len(waiting) > 0:
		i.set(Investigating, "waiting for requests")
	case i.standsOut(true) && i.doubtful():
		i.set(Investigating, "waiting until it is certain that what carries most is slower than it was")
	case i.standsOut(true):
		if i.verify() {
			i.set(Investigating, "making sure of the place")
		} else {
			i.conclude(true, "")
		}
	case i.follows():
		i.set(Investigating, "a greater problem is searched in the same operation")
	case i.pick():
		i.v.Idle = 0
		i.set(Investigating, "searching what carries most")
	default:
		i.exhaust()
	}
	if i.v.Status == Investigating {
		i.leading[i.searched[0].op] = true
	}
}

// follows reports whether a better-ranked problem, of another request type or level, is searched in the operation that leads this one:
// one cause often opens several problems, and what is on shows something to all of them. It waits for patience decisions only.
func (i *inquiry) follows() bool {
	return i.leading[i.searched[0].op] && i.v.Epochs < patience
}

// settled reports whether what is known of tp will not get better by waiting.
func (i *inquiry) settled(tp trace.Symbol) bool {
	at := i.v.want(tp)
	return at < 0 || i.v.Epochs-i.v.Wants[at].Epoch > patience
}

// pending returns what is on and has not been seen by enough requests. Where those that were asked for turned out too few, it
// asks for four times as many.
func (i *inquiry) pending() map[trace.Symbol]bool {
	pending := make(map[trace.Symbol]bool)
	requests := requestsOf(i.v.Evidence)
	for k := range i.v.Wants {
		w := &i.v.Wants[k]
		wide := slices.ContainsFunc(i.searched, func(a *area) bool { return slices.Contains(a.wide, w.Tracepoint) })
		short := requests[w.Tracepoint] < max(minRequests, w.Need) && !i.settled(w.Tracepoint)
		if wide || short && i.v.Epochs > w.Epoch+1 {
			w.Arms = armsFor(4 * shareOf(w.Arms))
		}
		if wide || short {
			pending[w.Tracepoint] = true
		}
	}
	return pending
}

// requests returns how many requests tp was judged by.
func (v *Investigation) requests(tp trace.Symbol) uint64 { return requestsOf(v.Evidence)[tp] }

// standsOut reports whether places do, see outstanding.
func (i *inquiry) standsOut(over bool) bool { return i.outstanding(over) > 0 }

// outstanding returns how many places, three at most, together keep most of what the leading operations carry, are told apart from the
// next and, if the search is to be over, have nothing below them left to try. 0: none do.
func (i *inquiry) outstanding(over bool) int {
	total := 0.0
	for _, a := range i.searched {
		if a.score >= i.searched[0].score/2 {
			total += a.score
		}
	}
	sum := 0.0
	for k := range i.v.Suspects {
		s := &i.v.Suspects[k]
		sum += s.Share
		if k >= standOut || over && s.Open > 0 {
			return 0
		}
		if sum >= keptShare*total {
			if k+1 < len(i.v.Suspects) && s.Low <= i.v.Suspects[k+1].Share {
				return 0
			}
			return k + 1
		}
	}
	return 0
}

// doubtful reports whether the operation that leads may be no slower than it was: noise of another that is not, as often happens in the
// first epochs of a small change. It waits for so many decisions only.
func (i *inquiry) doubtful() bool {
	var excess, square float64
	for _, e := range i.searched[0].edges {
		if isFinite(e.ExcessLow) && isFinite(e.ExcessHigh) {
			excess += e.Excess
			square += (e.ExcessHigh - e.ExcessLow) * (e.ExcessHigh - e.ExcessLow) / 4
		}
	}
	return i.p.Kind != analysis.KindVariable && i.p.Onset == analysis.Changed && square > 0 && excess < math.Sqrt(square) && i.v.Epochs < 2*patience
}

// verify switches the places next below the best one on again that were judged by few requests, in which what is rare may have
// been missing, and those that stand out only together. It reports whether there are any.
func (i *inquiry) verify() bool {
	if i.v.Verified == i.v.Suspects[0].Context {
		return false
	}
	i.v.Verified = i.v.Suspects[0].Context
	any, below := false, i.verifyingNeeds()
	rivals := i.rivals()
	for _, a := range i.searched {
		for k := 1; k < len(a.classes); k++ {
			c, need := &a.classes[k], 0.0
			above := &a.classes[a.classes[max(c.parent, 0)].region]
			if above.tp == i.v.Suspects[0].Tracepoint && above.op == i.v.Suspects[0].Op {
				need = below
			}
			if slices.Contains(rivals, c.tp) {
				need = verifyRequests
			}
			if c.known && c.n < need {
				any = i.again(c, uint64(need)) || any
			}
		}
	}
	i.adopt()
	return any
}

// rivals returns the tracepoints of the places that only together keep most of what the leading operations carry: which of them comes
// first is to be judged by more requests than that it is one of them. None if one place is enough.
func (i *inquiry) rivals() []trace.Symbol {
	n := i.outstanding(false)
	if n < 2 {
		return nil
	}
	list := make([]trace.Symbol, n)
	for k := range list {
		list[k] = i.v.Suspects[k].Tracepoint
	}
	return list
}

// verifyingNeeds returns how many requests a place must be judged by so that what is slow is hardly missing from them: the
// rarer what is wrong is in the leading operation, the more.
func (i *inquiry) verifyingNeeds() float64 {
	need := 0.0
	for _, e := range i.searched[0].edges {
		if e.Affected > 0 { // it is known
			need = max(need, math.Ceil(certain/e.Affected))
		}
	}
	if need == 0 {
		return verifyRequests
	}
	return min(max(need, minRequests), verifyRequests)
}

// again has c judged by more requests: it stays on or, if it may be, is switched on. It reports whether it will be.
func (i *inquiry) again(c *class, need uint64) bool {
	if i.forbidden[c.tp] || i.broken[c.tp] {
		return false
	}
	if k := slices.IndexFunc(i.d.Off, func(o Off) bool { return o.Tracepoint == c.tp }); k >= 0 {
		i.d.Off = slices.Delete(i.d.Off, k, k+1)
		i.want(Pick{Tracepoint: c.tp, Score: i.v.Suspects[0].Share, Need: need, Arms: i.armsFor(float64(need)), Reason: whyVerify})
	}
	if at := i.v.want(c.tp); at >= 0 {
		i.v.Wants[at].Need, i.v.Wants[at].Epoch = need, i.v.Epochs
		return true
	}
	if !slices.ContainsFunc(i.d.Picks, func(p Pick) bool { return p.Tracepoint == c.tp }) {
		i.d.Picks = append(i.d.Picks, Pick{
			Tracepoint: c.tp, Op: c.op, Context: c.ctx, Score: i.v.Suspects[0].Share, Need: need, Arms: i.armsFor(float64(need)),
			Reason: whyVerify,
		})
	}
	return true
}

const whyVerify = "to be sure of the place"

// conclude ends the search: located if the best place stands out, unless that is a whole operation that no tracepoint divides,
// of which nothing was found out, or carries next to nothing. Else it is exhausted, for the given reason.
func (i *inquiry) conclude(located bool, reason string) {
	top := &i.v.Suspects[0]
	switch {
	case located && top.Share < leastShare:
		reason = fmt.Sprintf("what is wrong is spread over many places; the first carries %.1f %%", 100*top.Share)
	case located && !i.undivided():
		i.settle(Located, i.describe())
		return
	case located:
		reason = "no tracepoint divides the operation that carries most"
	}
	i.d.Missing = i.missing()
	i.settle(Exhausted, reason)
}

// undivided reports whether the best place is an operation in which nothing was looked at: there are no tracepoints, or none
// that may be switched on.
func (i *inquiry) undivided() bool {
	top := &i.v.Suspects[0]
	for _, a := range i.searched {
		if top.Tracepoint == 0 && a.op == top.Op {
			return !slices.ContainsFunc(a.classes[1:], func(c class) bool { return c.known })
		}
	}
	return top.Tracepoint == 0
}

func (i *inquiry) describe() string {
	top := &i.v.Suspects[0]
	if top.Open > 0 {
		return "one place carries " + part(top.Share) + " of what is wrong, and nothing below it fits the budget"
	}
	return "one place carries " + part(top.Share) + " of what is wrong, and nothing below it is left to try"
}

// part writes a share, which noise may estimate as more than all.
func part(share float64) string {
	if share >= 0.995 {
		return "all"
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

// exhaust handles the end of candidates: what is on is watched by more requests until one place stands out or nothing more
// is to be learned.
func (i *inquiry) exhaust() {
	v := i.v
	v.Idle++
	top := &v.Suspects[0]
	next := 0.0
	if len(v.Suspects) > 1 {
		next = v.Suspects[1].Share
	}
	over := v.Idle > idleEpochs || top.Requests >= enough || top.Tracepoint == 0 || len(i.rejectedFor(WhyBudget)) > 0
	switch {
	case top.Low > next && top.Share >= i.searched[0].score/2 && top.Open == 0:
		i.conclude(true, "")
	case over:
		i.conclude(top.Share > 1.5*next && top.Open == 0, "no candidates are left, and no place stands out")
	default:
		i.set(Investigating, "no candidates are left; watching the best")
		i.watch()
	}
}

func (i *inquiry) rejectedFor(reason string) []Rejected {
	var list []Rejected
	for _, r := range i.rejected {
		if r.Reason == reason {
			list = append(list, r)
		}
	}
	return list
}

// missing returns the operations that carry something themselves that no tracepoint divides.
func (i *inquiry) missing() []trace.Op {
	var ops []trace.Op
	for _, s := range i.v.Suspects[:min(len(i.v.Suspects), standOut)] {
		if s.Op != 0 && s.Share > 0 {
			ops = append(ops, s.Op)
		}
	}
	return ops
}

// watch switches the best suspects on for more requests.
func (i *inquiry) watch() {
	for k := range i.v.Suspects[:min(len(i.v.Suspects), 2)] {
		s := &i.v.Suspects[k]
		if s.Tracepoint == 0 || i.refuses(s.Tracepoint) != "" {
			continue
		}
		at := i.v.want(s.Tracepoint)
		if at < 0 {
			i.d.Picks = append(i.d.Picks, Pick{Tracepoint: s.Tracepoint, Op: s.Op, Context: s.Context, Score: s.Share, Whole: true, Arms: allArms, Reason: "to tell the best places apart"})
		} else {
			i.v.Wants[at].Arms = allArms
		}
	}
	i.adopt()
}

// settle ends the search and switches off what it had on.
func (i *inquiry) settle(s Status, reason string) {
	i.set(s, reason)
	for _, w := range i.v.Wants {
		i.d.Off = append(i.d.Off, Off{w.Tracepoint, WhyClosed})
	}
	i.v.Wants, i.v.Idle = nil, 0
}

// explain looks for what explains a located place: its layer, or a variable.
func (i *inquiry) explain() {
	v := i.v
	if why := i.explanation(); why != "" {
		i.settle(Explained, why)
		return
	}
	if v.Idle++; v.Idle > explainEpochs {
		if len(v.Wants) > 0 {
			i.settle(Located, v.Reason)
		}
		v.Idle = explainEpochs + 1
		return
	}
	if v.Idle > 1 {
		return
	}
	for _, tp := range i.variables() {
		i.d.Picks = append(i.d.Picks, Pick{Tracepoint: tp, Context: v.Suspects[0].Context, Score: v.Suspects[0].Share, Arms: allArms, Whole: true, Reason: "its values may explain the place"})
	}
	i.adopt()
}

// explanation says what accounts for at least half of what the leading operation carries: the wait class that was located, or a
// variable that explains the durations or an edge of the operation. Empty: nothing does.
func (i *inquiry) explanation() string {
	if len(i.searched) == 0 {
		return ""
	}
	lead, top := i.searched[0], &i.v.Suspects[0]
	if top.Share >= explainedShare*lead.score && slices.ContainsFunc(lead.classes, func(c class) bool {
		return c.tp != 0 && c.tp == top.Tracepoint && c.layer == cct.Kernel
	}) {
		return fmt.Sprintf("a kind of waiting accounts for %.0f %%", 100*top.Share)
	}
	for _, e := range i.p.Explanations {
		within := e.Target == 0 || slices.ContainsFunc(lead.edges, func(x *analysis.EdgeShare) bool { return x.Edge == e.Target })
		if within && e.Effect >= explainedShare && e.PValue <= 0.05 {
			return fmt.Sprintf("%s accounts for %.0f %%", e.Variable, 100*e.Effect)
		}
	}
	return ""
}

// variables returns the captures at the located place and above it that are off, nearest first.
func (i *inquiry) variables() []trace.Symbol {
	var list []trace.Symbol
	for k := i.tree.Find(i.v.Suspects[0].Context); k >= 0; k = i.tree.Nodes[k].Parent {
		for c := range i.tree.Children(k) {
			n := &i.tree.Nodes[c]
			if n.Kind == cct.VariablePoint && len(list) < maxExplaining && i.refuses(n.Tracepoint) == "" && i.v.want(n.Tracepoint) < 0 {
				list = append(list, n.Tracepoint)
			}
		}
	}
	return list
}

func (v *Investigation) want(tp trace.Symbol) int {
	at, found := slices.BinarySearchFunc(v.Wants, tp, compareWant)
	if !found {
		return -1
	}
	return at
}

// refuses returns why tp may not be switched on for this problem; empty: it may.
func (i *inquiry) refuses(tp trace.Symbol) string {
	switch {
	case i.forbidden[tp]:
		return WhyForbidden
	case i.broken[tp]:
		return WhyUnavailable
	case i.silent[Silence{Problem: i.v.Problem, Tracepoint: tp}]:
		return WhySilent
	}
	return ""
}

// opens returns for each class of a how many tracepoints in its region could still be tried. What may be executed anywhere may be
// below any function that carries something itself.
func (i *inquiry) opens(a *area) []int {
	counts, floating := make([]int, len(a.classes)), 0
	for k := range a.classes {
		x := &a.classes[k]
		switch {
		case x.known || x.kind == cct.VariablePoint || i.refuses(x.tp) != "":
		case x.floating:
			floating++
		default:
			counts[x.region]++
		}
	}
	least := liveShare * a.classes[a.best()].own
	for k := range a.classes {
		if c := &a.classes[k]; c.known && c.layer == cct.App && c.own >= least {
			counts[k] += floating
		}
	}
	return counts
}

// best returns the known class that carries most itself, of those that may call what nobody places: the functions. A thread that
// waits in the kernel executes nothing meanwhile, and what runtimes call they announce.
func (a *area) best() int32 {
	best := int32(0)
	for k := range a.classes {
		if c := &a.classes[k]; c.known && c.layer == cct.App && c.own > a.classes[best].own {
			best = int32(k)
		}
	}
	return best
}

// pick asks the strategy and takes what it answers. It reports whether anything was switched on.
func (i *inquiry) pick() bool {
	if len(i.question.Candidates) == 0 {
		return false
	}
	taken := make(map[trace.Symbol]bool)
	for _, p := range i.answer(&i.question) {
		if taken[p.Tracepoint] || i.v.want(p.Tracepoint) >= 0 {
			continue
		}
		taken[p.Tracepoint] = true
		p.Arms = allArms
		if !p.Whole {
			p.Arms = i.armsFor(wantedRequests)
		}
		i.d.Picks = append(i.d.Picks, p)
	}
	i.adopt()
	for k := 0; k < len(i.question.Candidates) && len(i.rejected) < maxRejected; k++ {
		if tp := i.question.Candidates[k].Tracepoint; !taken[tp] {
			taken[tp] = true
			i.rejected = append(i.rejected, Rejected{tp, WhyLater})
		}
	}
	return len(i.d.Picks) > 0
}

// armsFor returns arms that have the given number of the problem's requests in an epoch.
func (i *inquiry) armsFor(requests float64) uint32 {
	return armsFor(requests / (i.p.Rate * i.Epoch.Seconds()))
}

// adopt makes the picks wants.
func (i *inquiry) adopt() {
	for k := range i.d.Picks {
		i.d.Picks[k].Cost = i.costs.of(i.d.Picks[k].Tracepoint, i.d.Picks[k].Arms)
		i.want(i.d.Picks[k])
	}
}

// want keeps what p names on from now on.
func (i *inquiry) want(p Pick) {
	at, found := slices.BinarySearchFunc(i.v.Wants, p.Tracepoint, compareWant)
	if found {
		return
	}
	w := Want{Tracepoint: p.Tracepoint, Arms: p.Arms, Since: i.Now, Epoch: i.v.Epochs, Cause: p.Reason, Need: p.Need}
	w.Value = p.Score / (1 + i.costs.of(p.Tracepoint, p.Arms).Hits)
	i.v.Wants = slices.Insert(i.v.Wants, at, w)
	if at, found := slices.BinarySearch(i.v.Tried, p.Tracepoint); !found {
		i.v.Tried = slices.Insert(slices.Clone(i.v.Tried), at, p.Tracepoint)
	}
}

func compareWant(w Want, tp trace.Symbol) int { return cmp.Compare(w.Tracepoint, tp) }

// switchOff ends what is known well enough: what explains nothing (and stays silent for a while), what was never executed, and,
// for frugal strategies, everything but the places that are being divided.
func (i *inquiry) switchOff(waiting map[trace.Symbol]bool) {
	carried := i.carried()
	dividing := make(map[trace.Symbol]bool)
	for k := range i.question.Regions {
		dividing[i.question.Regions[k].Tracepoint] = true
	}
	var kept []Want
	for _, w := range i.v.Wants {
		c, shown := carried[w.Tracepoint]
		reason := ""
		switch {
		case waiting[w.Tracepoint]:
		case !shown:
			reason = WhyNever
		case c.high < refutedShare*i.searched[0].score:
			reason = WhyRefuted
		case !dividing[w.Tracepoint] && (i.strategy == DefaultStrategy || c.own < refutedShare*i.searched[0].score):
			reason = WhyRefined
		}
		if reason == "" {
			kept = append(kept, w)
			continue
		}
		i.d.Off = append(i.d.Off, Off{w.Tracepoint, reason})
		if reason != WhyRefined {
			i.silence(w.Tracepoint)
		}
	}
	i.v.Wants = kept
}

func (i *inquiry) silence(tp trace.Symbol) {
	s := Silence{Problem: i.v.Problem, Tracepoint: tp}
	if !i.silent[s] {
		i.silent[s] = true
		s.Until = i.Now.Add(SilencePeriod)
		i.state.Silences = append(i.state.Silences, s)
	}
}

// carries is what a tracepoint is known to carry, over all areas and contexts, as a share of what is wrong.
type carries struct{ high, own float64 }

// carried returns what the tracepoints carry that were executed.
func (i *inquiry) carried() map[trace.Symbol]carries {
	all := make(map[trace.Symbol]carries)
	for _, a := range i.searched {
		for k := 1; k < len(a.classes); k++ {
			c := &a.classes[k]
			if !c.known || !c.shown {
				continue
			}
			x := all[c.tp]
			x.high += a.score * (c.share + c.half)
			x.own += a.score * c.own
			all[c.tp] = x
		}
	}
	return all
}

// regions makes the question for the strategy: the regions that may carry the problem, best first, with their candidates.
func (i *inquiry) regions() {
	type spot struct {
		a *area
		c int32
	}
	var spots []spot
	most, size := 0.0, 0
	for _, a := range i.searched {
		size += len(a.classes)
		for k := range a.classes {
			if a.classes[k].known {
				spots = append(spots, spot{a, int32(k)})
				most = max(most, a.score*a.classes[k].own)
			}
		}
	}
	share := func(s spot) float64 { return s.a.score * s.a.classes[s.c].own }
	slices.SortStableFunc(spots, func(x, y spot) int { return cmp.Compare(share(y), share(x)) })
	q := &i.question
	*q = Question{
		Problem: i.p, Tree: i.tree, Budget: i.Budget, Requests: finite(i.p.Rate) * i.Epoch.Seconds(), Pairs: i.Pairs[i.p.ID],
		Seed: trace.Mix(i.Seed, trace.Mix(i.v.Problem.Lo, uint64(i.v.Epochs))),
	}
	for _, w := range i.v.Wants {
		q.Enabled = append(q.Enabled, w.Tracepoint)
	}
	q.Candidates = make([]Candidate, 0, size)
	for _, s := range spots {
		c := &s.a.classes[s.c]
		sd := s.a.score * c.ownSD
		if share(s) < liveShare*most || share(s)+1.96*sd < refutedShare*i.searched[0].score {
			continue
		}
		r := Region{Tracepoint: c.tp, Op: c.op, Share: share(s), SD: sd, From: len(q.Candidates), Edges: s.a.edges}
		q.Regions = append(q.Regions, r)
		i.candidates(s.a, s.c)
		q.Regions[len(q.Regions)-1].To = len(q.Candidates)
	}
}

// candidates appends those of the region of class c, in pre-order, and to the best region those that may be executed anywhere.
func (i *inquiry) candidates(a *area, c int32) {
	best := a.best() == c
	i.below(a, c, func(x *class) bool { return !x.floating || best && c == 0 }, -1, 1)
	if best && c != 0 {
		i.below(a, 0, func(x *class) bool { return x.floating }, -1, 1)
	}
}

// below appends the candidates among the unknown classes below class c that are wanted.
func (i *inquiry) below(a *area, c int32, wanted func(*class) bool, parent, depth int) {
	for _, kid := range a.classes[c].kids {
		x := &a.classes[kid]
		if x.known || !wanted(x) {
			continue
		}
		at := i.candidate(x, parent, depth)
		if at < 0 {
			i.below(a, kid, wanted, parent, depth)
			continue
		}
		i.below(a, kid, wanted, at, depth+1)
		i.question.Candidates[at].End = len(i.question.Candidates)
	}
}

// candidate appends x, unless it may not be switched on, and returns its index, or -1.
func (i *inquiry) candidate(x *class, parent, depth int) int {
	q := &i.question
	if why := i.refuses(x.tp); why != "" {
		i.rejected = append(i.rejected, Rejected{x.tp, why})
		return -1
	}
	q.Candidates = append(q.Candidates, Candidate{
		Tracepoint: x.tp, Op: x.op, Context: x.ctx, Node: x.node, Region: len(q.Regions) - 1, Parent: parent, End: len(q.Candidates) + 1, Depth: depth,
		Layer: x.layer, Kind: x.kind, Mass: x.mass, Hits: x.hits, Inside: x.inside, Loose: x.floating,
	})
	return len(q.Candidates) - 1
}

// armsFor returns arms that together have about the given share of the requests, at least 0.7 of it. They are the first ones
// of a plan, so that of any two answers one contains the other: what is on for few requests is on together with what is on for
// many.
func armsFor(share float64) uint32 {
	for k := range armSizes {
		mask := uint32(1)<<(k+1) - 1
		if shareOf(mask) >= 0.7*share {
			return mask
		}
	}
	return allArms
}
