package epoch

import (
	"math"
	"sync"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Row returns the row of the group with the given ID, or nil if it isn't in s.
func (s *Snapshot) Row(id analysis.Hash) *GroupRow {
	for i := range s.Groups {
		if s.Groups[i].ID == id {
			return &s.Groups[i]
		}
	}
	return nil
}

// Snapshot is the state of the engine at the end of an epoch. Lists are served from snapshots. A Snapshot is immutable
// except for its cache of sorted lists.
type Snapshot struct {
	Ended      trace.Nanos // end of the epoch; 0 until the first epoch has ended
	Learned    bool
	Watching   bool // see [engine.Progress.Watching]
	Progress   float64
	Left       time.Duration                   // see [engine.Progress.LearningLeft]
	Unwatched  time.Duration                   // see [engine.Progress.WatchingLeft]
	Silence    time.Duration                   // see [engine.Progress.SilenceLeft]
	Operations time.Duration                   // see [engine.Progress.OperationsLeft]
	Growth     time.Duration                   // see [engine.Progress.GrowthLeft]
	Unequal    *[]contract.ProvisionalInstance // see [engine.Progress.Provisional]
	Length     time.Duration                   // of an epoch
	Types      map[analysis.Hash]string
	Problems   []contract.Problem // ranked; without notes
	ByID       map[string]int     // indices into Problems
	Incidents  []IncidentRow      // in the order of opening
	// IncidentByID holds indices into Incidents. It includes incidents merged into others, which aren't listed.
	IncidentByID map[string]int
	Objectives   []contract.Objective
	Groups       []GroupRow
	Tally        tally
	Coverage     contract.Coverage             // recent
	Outcomes     map[serviceOutcome]trace.Part // since the start
	Identifying  identifying
	IDs          []analysis.Hash // of Problems, in the same order

	mu     sync.Mutex // guards sorted
	sorted map[string]*query.List[analysis.Hash]
}

// tally holds counts for the status and the metrics.
type tally struct {
	Groups, Types, Uninvestigated int
	On, Overrides, Investigations int
	OpenIncidents                 int
	Refused, Evicted, Unlearned   uint64
	Bare                          uint64 // calls without a target
	Sites                         int
	Uncounted                     uint64 // calls at sites that there was no room for
	Joined, Lost                  uint64 // see [history.Messages.Joined]
	Unnamed, TreeNodes            int
	Contexts, TreeLost            int
	Unranked                      uint64
	Version                       int64
}

// GroupRow holds the figures of a group for lists.
type GroupRow struct {
	ID, RequestType analysis.Hash
	Level           group.Level
	Count, Failed   uint64
	Mean, Cov, Rate float64
	Since, Seen     trace.Nanos
}

func newSnapshot(c *engine.View, last *Snapshot) *Snapshot {
	s := &Snapshot{
		Ended:        c.Ended,
		Learned:      c.Progress.Learned(),
		Watching:     c.Progress.Watching(),
		Progress:     c.Progress.Part(),
		Left:         c.Progress.LearningLeft(),
		Unwatched:    c.Progress.WatchingLeft(),
		Silence:      c.Progress.SilenceLeft(),
		Operations:   c.Progress.OperationsLeft(),
		Growth:       c.Progress.GrowthLeft(),
		Length:       c.Options.Epoch,
		ByID:         make(map[string]int),
		IncidentByID: make(map[string]int),
		sorted:       make(map[string]*query.List[analysis.Hash]),
	}
	names := describe.New(c.Table, describe.Verbatim)
	s.Types = names.Types
	s.addGroups(c, names, last)
	s.addProblems(c, names)
	s.addIncidents(c, names)
	s.addObjectives(c)
	s.addProvisional(c, names)
	s.count(c)
	return s
}

func (s *Snapshot) addGroups(c *engine.View, names *describe.Names, last *Snapshot) {
	g := c.Groups
	s.Groups = make([]GroupRow, 0, g.Len())
	for one := range g.Each() {
		total, failed := one.Retained()
		row := GroupRow{
			ID: one.ID, RequestType: one.RequestType, Level: one.Level, Count: total.N, Failed: failed,
			Mean: math.NaN(), Cov: total.CoV(), Rate: one.Rate(), Since: one.Since, Seen: one.Seen,
		}
		if total.N > 0 {
			row.Mean = total.Mean()
		}
		s.Groups = append(s.Groups, row)
		if one.Level != group.LevelRequestType {
			continue
		}
		s.Tally.Types++
		if name := last.nameOf(one.ID, s.Learned); name != "" { // it's expensive to compute
			names.SetName(one.ID, name)
			continue
		}
		names.Add(new(c.TypeSummary(one)))
	}
}

// nameOf returns the name of a request type in s, or "" if it has no name or the name may change. Names can change
// during the learning period.
func (s *Snapshot) nameOf(requestType analysis.Hash, learned bool) string {
	if s == nil || !s.Learned || !learned {
		return ""
	}
	return s.Types[requestType]
}

func (s *Snapshot) addProblems(c *engine.View, names *describe.Names) {
	investigations := make(map[search.Subject]*search.Investigation)
	for i := range c.Searches.State().Investigations {
		v := &c.Searches.State().Investigations[i]
		investigations[v.Subject] = v
	}
	problems := c.Problems.Open()
	s.Problems = make([]contract.Problem, 0, len(problems))
	for i := range problems {
		p := &problems[i]
		v := investigations[search.OfProblem(p.ID)]
		x := ProblemOf(c, names, p, v, i+1)
		id, within := c.Incidents.With(p.ID)
		searched := p.Kind != detect.KindShifted || p.Slower() // else there is no search that the incident's replaces
		if within && (!searched || c.Searches.Investigation(search.OfIncident(id)) != nil) {
			x.Incident = new(render.Hex16(id))
		} else if v == nil {
			s.Tally.Uninvestigated++
		}
		s.ByID[x.ID] = i
		s.IDs = append(s.IDs, p.ID)
		s.Problems = append(s.Problems, x)
	}
}

// ProblemOf returns a problem as shown in lists.
func ProblemOf(
	c *engine.View, names *describe.Names, p *detect.Problem, v *search.Investigation, rank int,
) contract.Problem {
	d := describe.NewProblem(names, p, v.Answer(), v.AnswerShare())
	x := contract.Problem{
		ID:              d.ID,
		Rank:            rank,
		Kind:            contract.Kind(d.Kind),
		Onset:           contract.Onset(d.Onset),
		Level:           contract.Level(d.Level),
		Group:           d.Group,
		RequestType:     d.RequestTypeID,
		RequestTypeName: d.RequestType,
		Requests:        int64(d.Requests),
		Cov:             render.IntervalOf(d.CoV, d.CoVLow, d.CoVHigh),
		MeanNs:          p.Mean.Nanoseconds(),
		ExpectedNs:      d.ExpectedNS,
		P50Ns:           d.P50NS,
		P99Ns:           d.P99NS,
		Rate:            d.Rate.Pointer(),
		Impact:          d.Impact.Pointer(),
		Since:           render.Instant(p.Opened),
		State:           contract.StateNone,
		Diagnosis:       d.Diagnosis,
		DiagnosisParts:  render.Sentence(names, d.Sentence),
		TrendNs:         windowMeans(c, p.Group),
		ShareOf:         render.Wholes[p.Whole],
	}
	if v != nil && v.Status != search.Gone { // it may have been replaced by the investigation of an incident
		x.State = contract.State(v.Status.String())
	}
	if e := describe.Leading(p); e != nil && e.Score != 0 {
		x.Leading, x.Share = names.Edge(e), render.Number(e.Score)
	}
	return x
}

// windowMeans returns the mean duration in each of a group's windows, oldest first. The result isn't nil, even if the
// group is unknown.
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

func (s *Snapshot) count(c *engine.View) {
	t := &s.Tally
	t.Groups = c.Groups.Len()
	t.Refused, t.Evicted, t.Unlearned = c.Groups.Refused, c.Groups.Evicted, c.Progress.Dropped()
	t.Bare = c.Groups.Bare
	t.Sites, t.Uncounted = c.History.Len(), c.History.Refused()
	t.Joined, t.Lost = c.History.Messages.Joined()
	t.Unnamed = c.Table.Refused()
	t.Unranked = c.Spans.Dropped()
	state := c.Searches.State()
	t.Overrides, t.Version = len(state.Overrides), state.Plan.Version
	on := make(map[trace.Symbol]bool)
	for _, l := range state.Plan.Leases {
		on[l.Tracepoint] = true
	}
	t.On = len(on)
	for i := range state.Investigations {
		if state.Investigations[i].Status.Active() {
			t.Investigations++
		}
	}
	for _, tree := range c.Trees.All() {
		t.TreeNodes += len(tree.Nodes)
	}
	t.Contexts, t.TreeLost = c.Trees.Contexts(), c.Trees.Refused()
}

// Sorted returns the list of groups or problems in the given order. fill adds the items to an empty list. Sorted calls
// fill only for the first use of an order, because s caches the list.
func (s *Snapshot) Sorted(order string, fill func(*query.List[analysis.Hash])) *query.List[analysis.Hash] {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.sorted[order]
	if l == nil {
		l = query.NewHashList()
		fill(l)
		l.Sort()
		s.sorted[order] = l
	}
	return l
}

// Names returns the names in the table of c, with the request types of s. They may be used only while the core may be
// read.
func (s *Snapshot) Names(c *engine.View) *describe.Names {
	n := describe.New(c.Table, describe.Verbatim)
	n.Types = s.Types
	return n
}

// Renderer returns a renderer with the request types of s. It may be used only while the core may be read.
func (s *Snapshot) Renderer(c *engine.View) render.Renderer { return render.New(s.Names(c), c) }

// requestType returns the request type with the given ID or name, and whether it exists.
func (s *Snapshot) requestType(text string) (analysis.Hash, bool) {
	if id, err := analysis.ParseHash(text); err == nil {
		_, ok := s.Types[id]
		return id, ok
	}
	for id, name := range s.Types {
		if name == text {
			return id, true
		}
	}
	return analysis.Hash{}, false
}

// TypeParameter returns the request type with the ID or name in text, which is the value of a parameter, or zero if
// text is nil or empty. unknown is true if there is no such request type.
func (s *Snapshot) TypeParameter(text *string) (id analysis.Hash, unknown bool) {
	if text == nil || *text == "" {
		return analysis.Hash{}, false
	}
	id, ok := s.requestType(*text)
	return id, !ok
}

// Epoch returns the end of the epoch, or nil before the first epoch has ended.
func (s *Snapshot) Epoch() *time.Time { return render.Instant(s.Ended) }

// addProvisional adds to s the instances that have differed from their siblings since Sibyl started.
func (s *Snapshot) addProvisional(c *engine.View, names *describe.Names) {
	all := c.Progress.Provisional()
	if len(all) == 0 {
		return
	}
	var list []contract.ProvisionalInstance
	for i := range all {
		u := &all[i]
		text := describe.Unequal(names, u)
		list = append(list, contract.ProvisionalInstance{
			Service:        names.NamedService(u.Service),
			Attribute:      names.Text(u.Key),
			Value:          names.Text(u.Value),
			Siblings:       u.Siblings,
			Calls:          int64(u.Calls),
			MeanNs:         u.Nanos,
			SiblingsMeanNs: u.Usual,
			Failed:         u.Failed,
			SiblingsFailed: u.UsualFailed,
			Text:           text.String(),
			TextParts:      render.Sentence(names, text),
		})
	}
	s.Unequal = &list
}
