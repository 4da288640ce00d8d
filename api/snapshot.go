package api

import (
	"context"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// snapshot is what lists are served from: the state at the end of an epoch. It is immutable but for the caches of sorted lists.
type snapshot struct {
	ended    trace.Nanos // 0: no epoch did
	learned  bool
	progress float64
	length   time.Duration // of an epoch
	types    map[analysis.Hash]string
	problems []contract.Problem // ranked; without notes
	byID     map[string]int     // their indices
	groups   []groupRow
	tally    tally
	decided  []analysis.Hash // of problems, in their order

	mu     sync.Mutex // guards sorted
	sorted map[string]*list[analysis.Hash]
}

// tally counts what status and metrics tell.
type tally struct {
	groups, types, uninvestigated int
	on, wishes, investigations    int
	refused, evicted, unlearned   uint64
	unnamed, treeNodes, treeLost  int
	unranked                      uint64
	version                       int64
}

// groupRow is a group in a list.
type groupRow struct {
	id, requestType analysis.Hash
	level           group.Level
	count, failed   uint64
	mean, cov, rate float64
	since, seen     trace.Nanos
}

// snapshots holds the last snapshot.
type snapshots struct {
	last          atomic.Pointer[snapshot]
	ended, before atomic.Int64 // ends of the last epoch and of the one before it, as [API.Epoch] was told; 0: it was not
	wanted        atomic.Bool  // somebody read since the last one was made
}

// current returns a snapshot that is as of the last epoch; if that is just being made, of the one before.
func (a *API) current(ctx context.Context) (*snapshot, error) {
	s := &a.snapshot
	wanted := s.wanted.Swap(true)
	last := s.last.Load()
	if ended := s.ended.Load(); last != nil && ended != 0 {
		if at := int64(last.ended); at == ended || wanted && at == s.before.Load() { // the next one is being made
			return last, nil
		}
	}
	var made *snapshot
	err := a.ask(ctx, func(c *engine.Core) { made = a.refresh(c) })
	return made, err
}

// refresh returns the snapshot of the last epoch. It runs while nothing else uses the core.
func (a *API) refresh(c *engine.Core) *snapshot {
	last := a.snapshot.last.Load()
	if last != nil && last.ended == c.Ended() && last.learned == c.Learned() && last.tally.groups == c.Grouper().Len() {
		return last
	}
	made := newSnapshot(c, last)
	a.snapshot.last.Store(made)
	return made
}

func newSnapshot(c *engine.Core, last *snapshot) *snapshot {
	s := &snapshot{
		ended: c.Ended(), learned: c.Learned(), progress: c.Progress(), length: c.Options().Epoch,
		byID: make(map[string]int), sorted: make(map[string]*list[analysis.Hash]),
	}
	names := describe.New(c.Table(), describe.Verbatim)
	s.types = names.Types
	s.addGroups(c, names, last)
	s.addProblems(c, names)
	s.count(c)
	return s
}

func (s *snapshot) addGroups(c *engine.Core, names *describe.Names, last *snapshot) {
	g := c.Grouper()
	s.groups = make([]groupRow, 0, g.Len())
	for one := range g.Each() {
		total, failed := one.Kept()
		row := groupRow{
			id: one.ID, requestType: one.RequestType, level: one.Level, count: total.N, failed: failed,
			mean: math.NaN(), cov: total.CoV(), rate: one.Rate(), since: one.Since, seen: one.Seen,
		}
		if total.N > 0 {
			row.mean = total.Mean()
		}
		s.groups = append(s.groups, row)
		if one.Level != group.LevelRequestType {
			continue
		}
		s.tally.types++
		if name := last.nameOf(one.ID, s.learned); name != "" { // it is not cheap to find
			names.Call(one.ID, name)
			continue
		}
		names.Add(&group.Summary{
			ID: one.ID, Level: one.Level, RequestType: one.ID, Entry: one.Entry, Name: g.Types.Name(one.ID),
			Distinct: g.Types.Distinct(one.Entry, one.ID, typeNameOps),
		})
	}
}

// typeNameOps is how many operations tell request types with the same entry apart, in their names.
const typeNameOps = 3

// nameOf returns the name that a request type had; "" if none is known. While requests are learned from names may change.
func (s *snapshot) nameOf(requestType analysis.Hash, learned bool) string {
	if s == nil || !s.learned || !learned {
		return ""
	}
	return s.types[requestType]
}

func (s *snapshot) addProblems(c *engine.Core, names *describe.Names) {
	investigations := make(map[analysis.Hash]*search.Investigation)
	for i := range c.State().Investigations {
		v := &c.State().Investigations[i]
		investigations[v.Problem] = v
	}
	problems := c.Problems()
	s.problems = make([]contract.Problem, 0, len(problems))
	for i := range problems {
		p := &problems[i]
		v := investigations[p.ID]
		if v == nil {
			s.tally.uninvestigated++
		}
		s.byID[p.ID.String()] = i
		s.decided = append(s.decided, p.ID)
		s.problems = append(s.problems, problemOf(c, names, p, v, i+1))
	}
}

// problemOf returns what lists say about a problem.
func problemOf(c *engine.Core, names *describe.Names, p *detect.Problem, v *search.Investigation, rank int) contract.Problem {
	x := contract.Problem{
		ID: p.ID.String(), Rank: rank, Kind: contract.Kind(p.Kind.String()), Onset: contract.Onset(p.Onset.String()),
		Level: contract.Level(p.Level.String()), Group: p.Group.String(), RequestType: p.RequestType.String(),
		RequestTypeName: names.RequestType(p.RequestType, p.Entry), Requests: int64(p.Requests),
		Cov: interval(p.CoV, p.CoVLow, p.CoVHigh), MeanNs: p.Mean.Nanoseconds(), Rate: number(p.Rate), Impact: number(p.Impact),
		State: contract.StateNone, TrendNs: []float64{},
	}
	if p.Expected > 0 {
		x.ExpectedNs = new(p.Expected.Nanoseconds())
	}
	if g := c.Grouper().Group(p.Group); g != nil {
		for _, past := range g.Windows() {
			x.TrendNs = append(x.TrendNs, past.Total.Mean())
		}
		w := &g.Current
		if w.Total.N == 0 { // it was just begun anew
			w = &g.Reference
		}
		if w.Total.N > 0 {
			p50, p99 := w.Latency.Quantile(0.5), w.Latency.Quantile(0.99)
			x.P50Ns, x.P99Ns = new(int64(p50)), new(int64(p99))
			names.Judge(&group.Summary{ID: g.ID, Level: g.Level, P50: time.Duration(p50), P99: time.Duration(p99)})
		}
	}
	if v != nil {
		x.Since, x.State = instant(v.Opened), contract.State(v.Status.String())
	}
	x.Diagnosis = names.Diagnosis(p, v.Answer()).String()
	if e := describe.Leading(p); e != nil {
		x.Leading, x.Share = names.Edge(e), number(e.Score)
	}
	return x
}

// why says why a problem ranks where it does.
func why(p *contract.Problem) string {
	text := "changed: significantly worse than its own past"
	if p.Onset == contract.OnsetChronic {
		text = "chronic: high without a change, so after what changed"
	}
	switch p.Kind {
	case contract.KindVariable:
		text += "; among the variable by CoV " + units.Ratio(value(p.Cov.Value, math.NaN()))
	case contract.KindSlow:
		text += "; slow, after the variable, by excess"
	case contract.KindShifted:
		text += "; shifted, after the slow, by the size of the shift"
	}
	return text + "; impact " + describe.PerSecond(value(p.Impact, math.NaN())) + ", rank " + strconv.Itoa(p.Rank)
}

func (s *snapshot) count(c *engine.Core) {
	t := &s.tally
	t.groups = c.Grouper().Len()
	t.refused, t.evicted, t.unlearned = c.Grouper().Refused, c.Grouper().Evicted, c.Dropped()
	t.unnamed = c.Table().Refused()
	t.unranked = c.Spans().Beyond()
	state := c.State()
	t.wishes, t.version = len(state.Wishes), state.Plan.Version
	on := make(map[trace.Symbol]bool)
	for _, l := range state.Plan.Leases {
		on[l.Tracepoint] = true
	}
	t.on = len(on)
	for i := range state.Investigations {
		if state.Investigations[i].Status.Active() {
			t.investigations++
		}
	}
	for _, tree := range c.Trees() {
		t.treeNodes += len(tree.Nodes)
		t.treeLost += int(tree.Dropped)
	}
}

// in returns the groups, or problems, in an order that make fills in where it was not asked for yet.
func (s *snapshot) in(order string, entries func() []entry[analysis.Hash]) *list[analysis.Hash] {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.sorted[order]
	if l == nil {
		l = hashes()
		l.entries = entries()
		l.sort()
		s.sorted[order] = l
	}
	return l
}

// names returns names over a table that the caller may read now, which call request types as the snapshot does.
func (s *snapshot) names(c *engine.Core) *describe.Names {
	n := describe.New(c.Table(), describe.Verbatim)
	n.Types = s.types
	return n
}

// requestType returns the request type with the given identity or name, and whether there is one.
func (s *snapshot) requestType(text string) (analysis.Hash, bool) {
	if id, err := analysis.ParseHash(text); err == nil {
		_, ok := s.types[id]
		return id, ok
	}
	for id, name := range s.types {
		if name == text {
			return id, true
		}
	}
	return analysis.Hash{}, false
}

// wantedType returns the request type that a parameter names; zero if there is none. A request type that does not exist has nothing.
func (s *snapshot) wantedType(text *string) (id analysis.Hash, none bool) {
	if text == nil || *text == "" {
		return analysis.Hash{}, false
	}
	id, ok := s.requestType(*text)
	return id, !ok
}

// epoch returns when the epoch ended that is shown.
func (s *snapshot) epoch() *time.Time { return instant(s.ended) }
