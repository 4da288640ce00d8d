package api

import (
	"cmp"
	"context"
	"math"
	"slices"
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
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// snapshot is the state at the end of an epoch, from which lists are served. It is immutable except for its cache of
// sorted lists and tables of services.
type snapshot struct {
	ended      trace.Nanos // end of the epoch; 0: no epoch has ended yet
	learned    bool
	watching   bool // see [engine.Progress.Watching]
	progress   float64
	left       time.Duration                   // see [engine.Progress.LearningLeft]
	unwatched  time.Duration                   // see [engine.Progress.WatchingLeft]
	silence    time.Duration                   // see [engine.Progress.SilenceLeft]
	operations time.Duration                   // see [engine.Progress.OperationsLeft]
	growth     time.Duration                   // see [engine.Progress.GrowthLeft]
	unequal    *[]contract.ProvisionalInstance // see [engine.Progress.Provisional]
	length     time.Duration                   // of an epoch
	types      map[analysis.Hash]string
	problems   []contract.Problem // ranked; without notes
	byID       map[string]int     // indices of problems
	incidents  []incidentRow      // open ones first, then those that opened last
	// incidentByID holds the indices of incidents, also of those that were merged into others, which are not listed.
	incidentByID map[string]int
	objectives   []contract.Objective
	groups       []groupRow
	tally        tally
	coverage     contract.Coverage             // recent
	outcomes     map[serviceOutcome]trace.Part // since the start
	identifying  identifying
	ids          []analysis.Hash // of problems, in their order

	few   atomic.Pointer[contract.FewCalls] // nil: not yet known
	fewAt trace.Nanos                       // end of the epoch of few

	mu            sync.Mutex // guards sorted and serviceTables
	sorted        map[string]*list[analysis.Hash]
	serviceTables map[serviceKey]*serviceTable // nil: none yet
}

// tally holds the counts of status and metrics.
type tally struct {
	groups, types, uninvestigated int
	on, overrides, investigations int
	openIncidents                 int
	refused, evicted, unlearned   uint64
	bare                          uint64 // calls without their target
	sites                         int
	uncounted                     uint64 // calls at sites for which there was no room
	joined, lost                  uint64 // see [history.Sites.Messages]
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

// snapshots holds the latest snapshot.
type snapshots struct {
	last          atomic.Pointer[snapshot]
	ended, before atomic.Int64 // ends of the last two epochs that [API.Epoch] reported; 0: none
	wanted        atomic.Bool  // the latest snapshot was read
}

// current returns the snapshot of the last epoch or, while that is being built, of the one before.
func (a *API) current(ctx context.Context) (*snapshot, error) {
	s := &a.snapshot
	wanted := s.wanted.Swap(true)
	last := s.last.Load()
	if ended := s.ended.Load(); last != nil && ended != 0 {
		if at := int64(last.ended); at == ended || wanted && at == s.before.Load() { // the next one is being built
			return last, nil
		}
	}
	var made *snapshot
	err := a.ask(ctx, func(c *engine.View) { made = a.refresh(c) })
	return made, err
}

// refresh returns the snapshot of the last epoch. Nothing else may use the core meanwhile.
func (a *API) refresh(c *engine.View) *snapshot {
	last := a.snapshot.last.Load()
	if last != nil && last.ended == c.Ended && last.learned == c.Progress.Learned() && last.tally.groups == c.Groups.Len() {
		return last
	}
	made := newSnapshot(c, last)
	counts := a.engine.Counts()
	made.coverage = coverageOf(describe.New(c.Table, describe.Verbatim), counts.RecentCoverage(c.Ended), counts.Coverage())
	made.outcomes = outcomesOf(c.Table, counts.Coverage())
	made.addNames(c.Table, last)
	made.keepFew(last)
	a.snapshot.last.Store(made)
	return made
}

func newSnapshot(c *engine.View, last *snapshot) *snapshot {
	s := &snapshot{
		ended:        c.Ended,
		learned:      c.Progress.Learned(),
		watching:     c.Progress.Watching(),
		progress:     c.Progress.Part(),
		left:         c.Progress.LearningLeft(),
		unwatched:    c.Progress.WatchingLeft(),
		silence:      c.Progress.SilenceLeft(),
		operations:   c.Progress.OperationsLeft(),
		growth:       c.Progress.GrowthLeft(),
		length:       c.Options.Epoch,
		byID:         make(map[string]int),
		incidentByID: make(map[string]int),
		sorted:       make(map[string]*list[analysis.Hash]),
	}
	names := describe.New(c.Table, describe.Verbatim)
	s.types = names.Types
	s.addGroups(c, names, last)
	s.addProblems(c, names)
	s.addIncidents(c, names)
	s.addObjectives(c)
	s.addProvisional(c, names)
	s.count(c)
	return s
}

// remaining returns the length of a time that has not passed yet, for the API.
func remaining(d time.Duration) *int64 {
	if d <= 0 {
		return nil
	}
	return new(d.Nanoseconds())
}

func (s *snapshot) addGroups(c *engine.View, names *describe.Names, last *snapshot) {
	g := c.Groups
	s.groups = make([]groupRow, 0, g.Len())
	for one := range g.Each() {
		total, failed := one.Retained()
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
		if name := last.nameOf(one.ID, s.learned); name != "" { // expensive to compute
			names.SetName(one.ID, name)
			continue
		}
		names.Add(new(c.TypeSummary(one)))
	}
}

// nameOf returns the name of a request type in s; "" if it has none or may change: names do while Sibyl is learning.
func (s *snapshot) nameOf(requestType analysis.Hash, learned bool) string {
	if s == nil || !s.learned || !learned {
		return ""
	}
	return s.types[requestType]
}

func (s *snapshot) addProblems(c *engine.View, names *describe.Names) {
	investigations := make(map[search.Subject]*search.Investigation)
	for i := range c.Searches.State().Investigations {
		v := &c.Searches.State().Investigations[i]
		investigations[v.Subject] = v
	}
	problems := c.Problems.Open()
	ranked := ranks(problems)
	s.problems = make([]contract.Problem, 0, len(problems))
	for i := range problems {
		p := &problems[i]
		v := investigations[search.OfProblem(p.ID)]
		x := problemOf(c, names, p, v, ranked[i])
		if id, within := c.Incidents.With(p.ID); within && c.Searches.Investigation(search.OfIncident(id)) != nil {
			x.Incident = new(hex16(id))
		} else if v == nil {
			s.tally.uninvestigated++
		}
		s.byID[x.ID] = i
		s.ids = append(s.ids, p.ID)
		s.problems = append(s.problems, x)
	}
}

// ranks returns the rank of each problem, from 1: changed ones before chronic ones, then by falling impact. People look
// first at the requests that lose most time. The order of detection breaks ties.
func ranks(problems []detect.Problem) []int {
	order := make([]int, len(problems))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := &problems[i], &problems[j]
		return cmp.Or(cmp.Compare(a.Onset, b.Onset), cmp.Compare(b.Impact, a.Impact))
	})
	ranks := make([]int, len(problems))
	for i, at := range order {
		ranks[at] = i + 1
	}
	return ranks
}

// problemOf returns a problem as lists show it.
func problemOf(c *engine.View, names *describe.Names, p *detect.Problem, v *search.Investigation, rank int) contract.Problem {
	d := names.Problem(p, v.Answer(), v.AnswerShare())
	x := contract.Problem{
		ID: d.ID, Rank: rank, Kind: contract.Kind(d.Kind), Onset: contract.Onset(d.Onset), Level: contract.Level(d.Level), Group: d.Group,
		RequestType: d.RequestTypeID, RequestTypeName: d.RequestType, Requests: int64(d.Requests), Cov: intervalOf(d.CoV, d.CoVLow, d.CoVHigh),
		MeanNs: p.Mean.Nanoseconds(), ExpectedNs: d.ExpectedNS, P50Ns: d.P50NS, P99Ns: d.P99NS, Rate: d.Rate.Pointer(), Impact: d.Impact.Pointer(), Since: instant(p.Opened),
		State: contract.StateNone, Diagnosis: d.Diagnosis, DiagnosisParts: diagnosisParts(names, d.Sentence), TrendNs: windowMeans(c, p.Group), ShareOf: wholes[p.Whole],
	}
	if v != nil && v.Status != search.Gone { // that of an incident may have replaced it
		x.State = contract.State(v.Status.String())
	}
	if e := describe.Leading(p); e != nil {
		x.Leading, x.Share = names.Edge(e), number(e.Score)
	}
	return x
}

// wholes are the quantities that shares of problems are of.
var wholes = [...]contract.ProblemShareOf{
	detect.WholeSlowdown: contract.ProblemShareOfSlowdown, detect.WholeVariance: contract.ProblemShareOfVariance, detect.WholeMean: contract.ProblemShareOfMean,
}

// windowMeans returns the means of the windows of a group, oldest first; not nil.
func windowMeans(c *engine.View, id analysis.Hash) []float64 {
	means := []float64{}
	g := c.Groups.Group(id)
	if g == nil {
		return means
	}
	for _, past := range g.Windows() {
		means = append(means, past.Total.Mean())
	}
	return means
}

// diagnosisParts returns the parts of a diagnosis with references to their evidence.
func diagnosisParts(names *describe.Names, s describe.Sentence) []contract.DiagnosisPart {
	parts := s.Parts()
	all := make([]contract.DiagnosisPart, 0, len(parts))
	for _, p := range parts {
		all = append(all, contract.DiagnosisPart{Text: p.Text, Evidence: diagnosisEvidence(names, p.Evidence)})
	}
	return all
}

func diagnosisEvidence(names *describe.Names, e describe.Evidence) *contract.DiagnosisEvidence {
	if e.Kind == "" {
		return nil
	}
	x := &contract.DiagnosisEvidence{Kind: contract.EvidenceKind(e.Kind)}
	switch {
	case e.Kind == describe.EdgeEvidence:
		x.Edge = new(edgeID(e.Edge))
	case e.Kind == describe.LocationEvidence:
		x.Operation = new(names.Op(e.Operation))
	case e.Explained:
		x.Explanation = &e.Explanation
	}
	return x
}

// why explains the rank of a problem.
func why(p *contract.Problem) string {
	text := "changed: significantly worse than its own history"
	if p.Onset == contract.OnsetChronic {
		text = "chronic: high without a change, ranked after problems that changed"
	}
	return text + "; by impact, " + describe.PerSecond(value(p.Impact, math.NaN())) + ", rank " + strconv.Itoa(p.Rank)
}

func (s *snapshot) count(c *engine.View) {
	t := &s.tally
	t.groups = c.Groups.Len()
	t.refused, t.evicted, t.unlearned = c.Groups.Refused, c.Groups.Evicted, c.Progress.Dropped()
	t.bare = c.Groups.Bare
	t.sites, t.uncounted = c.History.Len(), c.History.Refused()
	t.joined, t.lost = c.History.Messages()
	t.unnamed = c.Table.Refused()
	t.unranked = c.Spans.Dropped()
	state := c.Searches.State()
	t.overrides, t.version = len(state.Overrides), state.Plan.Version
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
	for _, tree := range c.Trees.All() {
		t.treeNodes += len(tree.Nodes)
		t.treeLost += int(tree.Dropped)
	}
}

// in returns the groups or problems in an order. On its first use the list is built from entries.
func (s *snapshot) in(order string, entries func() []entry[analysis.Hash]) *list[analysis.Hash] {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.sorted[order]
	if l == nil {
		l = newHashList()
		l.entries = entries()
		l.sort()
		s.sorted[order] = l
	}
	return l
}

// names returns names with the request types of s, over the table of c. The caller must be allowed to read c now.
func (s *snapshot) names(c *engine.View) *describe.Names {
	n := describe.New(c.Table, describe.Verbatim)
	n.Types = s.types
	return n
}

// requestType returns the request type with the given identity or name, and whether it exists.
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

// typeParameter returns the request type that a parameter names; zero if the parameter is empty. It reports unknown if
// there is no such request type.
func (s *snapshot) typeParameter(text *string) (id analysis.Hash, unknown bool) {
	if text == nil || *text == "" {
		return analysis.Hash{}, false
	}
	id, ok := s.requestType(*text)
	return id, !ok
}

// epoch returns the end of the epoch; nil if none ended yet.
func (s *snapshot) epoch() *time.Time { return instant(s.ended) }
