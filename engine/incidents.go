package engine

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Incidents holds the incidents with the request types and problems that they affect.
type Incidents struct {
	table      *trace.Table
	objectives *incident.Objectives
	tracker    *incident.Tracker
	affected   map[uint64]*affected // by incident
}

// All returns the open incidents and the closed incidents that haven't been deleted yet, in the order they opened.
func (c *Incidents) All() []Incident {
	tracked := c.tracker.Incidents()
	all := make([]Incident, len(tracked))
	for i := range tracked {
		all[i] = Incident{Incident: tracked[i]}
		all[i].AlertedSeverity = all[i].Severity() // during the learning period
		if a := c.affected[tracked[i].ID]; a != nil {
			all[i].Share = a.Share
			all[i].Types, all[i].Problems = a.Types, a.Problems
			all[i].Place, all[i].Milestones = a.Place, a.Milestones
			all[i].AlertedSeverity = a.Alerted
		}
	}
	return all
}

// With returns the ID of the oldest open incident that contains problem; ok is false if there is no such incident.
func (c *Incidents) With(problem analysis.Hash) (id uint64, ok bool) {
	for _, x := range c.tracker.Incidents() {
		if a := c.affected[x.ID]; x.IsOpen() && a != nil && slices.Contains(a.Problems, problem) {
			return x.ID, true
		}
	}
	return 0, false
}

// ChangedCalls returns the services that have been making different calls for several minutes, ascending; see
// [incident.ChangedCalls].
func (c *Incidents) ChangedCalls() []incident.ChangedCalls { return c.tracker.ChangedCalls() }

// watch replaces the objectives and the gates.
func (c *Incidents) watch(o []incident.Objective, g incident.Gates) {
	c.objectives.Set(o)
	c.tracker.SetGates(g)
}

// problems returns the problems of the open incidents.
func (c *Incidents) problems() (all []analysis.Hash) {
	for _, x := range c.tracker.Incidents() {
		if a := c.affected[x.ID]; x.IsOpen() && a != nil {
			all = append(all, a.Problems...)
		}
	}
	return all
}

// leastRetention is the minimum time for which closed incidents are kept.
const leastRetention = 24 * time.Hour

// forget deletes the incidents that have been closed for longer than both age and leastRetention, or none of them if
// age is 0. In either case, it also deletes the oldest closed incidents beyond [incident.MaxClosed].
func (c *Incidents) forget(now trace.Nanos, age time.Duration) {
	before := trace.Nanos(math.MinInt64)
	if age > 0 {
		before = now.Add(-max(age, leastRetention))
	}
	c.tracker.Forget(before)
}

// missesObjective reports whether an objective missed by x applies to g, and g has had requests since the onset. Such
// requests are affected even if their mean is normal.
func (c *Incidents) missesObjective(g *group.Group, x *incident.Incident, since *group.Since) bool {
	for i := range x.Objectives {
		if c.objectives.Matches(&x.Objectives[i].Objective, g.Entry) {
			return since.Total.N > 0
		}
	}
	return false
}

// affected holds the request types and problems that an incident affects, its place and its milestones.
type affected struct {
	Types    []AffectedType
	since    map[analysis.Hash]*group.Since // all requests of Types since the onset
	Share    float64                        // see [Incident.Share]
	all      requestsSince                  // requests of all types
	Problems []analysis.Hash
	Place    Place
	Alerted  Severity // see [Incident.AlertedSeverity]

	Milestones []Milestone
}

// mostly reports whether requestType accounts for at least half of the total loss.
func (a *affected) mostly(requestType analysis.Hash) bool {
	own, all := 0.0, 0.0
	for i := range a.Types {
		x := &a.Types[i]
		all += x.lost()
		if x.RequestType == requestType {
			own = x.lost()
		}
	}
	return own >= all/2
}

// mayReturn is the time after the end of an incident for which its requests are remembered, in case it reopens. Only
// incidents that grow over hours can reopen later.
const mayReturn = 10 * time.Minute

// follow updates the request types and problems of the open incidents at the end of an epoch. long reports whether
// requests with a median of nanos count as long.
func (c *Incidents) follow(now trace.Nanos, groups *group.Grouper, problems []detect.Problem,
	long func(nanos float64) bool,
) {
	tracked := c.tracker.Incidents()
	known := make(map[uint64]*affected, len(tracked))
	var open []*incident.Incident
	for i := range tracked {
		x := &tracked[i]
		a := c.affected[x.ID]
		opened := a == nil || x.LastOpened() == now
		if a == nil {
			a = &affected{since: make(map[analysis.Hash]*group.Since)}
		}
		known[x.ID] = a
		if !x.IsOpen() && now.Sub(x.Closed()) > mayReturn {
			clear(a.since)
			a.all = requestsSince{}
		}
		if x.IsOpen() && len(x.Suspects) > 0 {
			open = append(open, x)
			if opened {
				unlearn(groups, x)
			}
			c.affectTypes(x, a, groups, long)
			if opened {
				a.Alerted = (&Incident{Incident: *x, Types: a.Types}).Severity()
			}
		}
	}
	c.affected = known
	if len(open) == 0 {
		return
	}
	for i := range problems {
		p := &problems[i]
		if x := c.explains(open, p); x != nil {
			if a := known[x.ID]; len(a.Problems) < maxAffected && !slices.Contains(a.Problems, p.ID) {
				a.addProblem(p)
			}
		}
	}
}

// Thresholds for affected request types.
const (
	leastSlowdown = 1.05 // minimum ratio to the usual mean
	leastFailures = 0.02 // minimum increase of the share of failed requests
	leastAffected = 3    // minimum number of requests, or of failed requests, since the onset
	clearly       = 2.0  // minimum difference in standard errors; low, because the incident itself is certain
)

// longestUnnoticed is the maximum time from the return of an incident to its reopening.
const longestUnnoticed = 2 * incident.Window

// unlearn removes the requests since the start of x from the baselines, which have learned them as healthy. x must just
// have opened or reopened.
func unlearn(groups *group.Grouper, x *incident.Incident) {
	began := x.Onset
	if x.Reopened() != 0 {
		began = x.Reopened().Add(-longestUnnoticed)
	}
	for g := range groups.Each() {
		g.Unlearn(began)
	}
}

// unhealthy returns a function that reports whether requests of a type run through the first suspect of an open
// incident, or nil if no open incident has a suspect. Such requests are excluded from the baseline even if they hardly
// show the incident.
func (c *Incidents) unhealthy() func(requestType *group.Group) bool {
	var suspects []trace.Symbol
	for _, x := range c.tracker.Incidents() {
		if x.IsOpen() && len(x.Suspects) > 0 {
			suspects = append(suspects, x.Suspects[0].Service)
		}
	}
	if len(suspects) == 0 {
		return nil
	}
	known := make(map[*group.Group]bool)
	return func(requestType *group.Group) bool {
		through, found := known[requestType]
		if !found {
			through = slices.ContainsFunc(suspects,
				func(s trace.Symbol) bool { return passes(c.table, requestType, s) })
			known[requestType] = through
		}
		return through
	}
}

// affectTypes updates a.Types, the request types affected by x. It updates a type until its requests are back to
// normal. A type keeps the usual values that it had when it joined.
func (c *Incidents) affectTypes(x *incident.Incident, a *affected, groups *group.Grouper,
	long func(nanos float64) bool,
) {
	now, service, before := groups.Closed(), x.Suspects[0].Service, len(a.Types)
	a.all.count(groups, x.Onset, now)
	goesOn := false
	for g := range groups.Each() {
		if g.Level != group.LevelRequestType || g.Reference.Total.N == 0 {
			continue
		}
		i := slices.IndexFunc(a.Types[:before], func(t AffectedType) bool { return t.RequestType == g.ID })
		t := usualType(g)
		t.Long = long(t.UsualP50)
		since := a.since[g.ID]
		if i >= 0 {
			t = a.Types[i]
		}
		if since == nil {
			since = new(g.RequestsSince(x.Onset, now))
		} else {
			since.Extend(g, now)
		}
		t.measure(since)
		switch {
		case (!t.affected(since, &g.Reference) || !passes(c.table, g, service)) &&
			!c.missesObjective(g, x, since):
		case i < 0:
			a.Types = append(a.Types, t)
			a.since[g.ID], goesOn = since, true
		case t.goesOn(&a.Types[i]):
			a.Types[i] = t
			a.since[g.ID], goesOn = since, true
		}
	}
	own := uint64(0)
	for i := range a.Types {
		own += a.Types[i].Requests
	}
	if own > 0 && goesOn { // healthy requests after the fault don't make it smaller
		a.Share = float64(own) / float64(max(own, a.all.Requests))
	}
	sorting.Slice(a.Types, func(t, u AffectedType) int {
		return cmp.Or(cmp.Compare(u.lost(), t.lost()), t.RequestType.Compare(u.RequestType))
	})
	for i := range a.Types[min(len(a.Types), maxAffected):] {
		delete(a.since, a.Types[maxAffected+i].RequestType)
	}
	a.Types = a.Types[:min(len(a.Types), maxAffected)]
}

// requestsSince counts the requests of all types since the onset of an incident. We count them epoch by epoch, as we do
// for affected types, because groups keep exact counts for the last few minutes only.
type requestsSince struct {
	Requests uint64
	Until    trace.Nanos // 0 before the first count
}

// count adds the requests between onset and now that s doesn't include yet.
func (s *requestsSince) count(groups *group.Grouper, onset, now trace.Nanos) {
	for g := range groups.Each() {
		if g.Level != group.LevelRequestType {
			continue
		}
		added := group.Since{Until: s.Until}
		if s.Until == 0 {
			added = g.RequestsSince(onset, now)
		} else {
			added.Extend(g, now)
		}
		s.Requests += added.Total.N
	}
	s.Until = now
}

// usualType returns an AffectedType for the request type g with only the usual values set.
func usualType(g *group.Group) AffectedType {
	usual := &g.Reference
	return AffectedType{
		RequestType: g.ID,
		Entry:       g.Entry,
		Usual:       usual.Total.Mean(),
		UsualFailed: float64(usual.Failed) / float64(usual.Total.N),
		UsualP50:    usual.Latency.Quantile(0.5),
		UsualP99:    usual.Latency.Quantile(0.99),
	}
}

// measure sets the fields of x that describe the requests since the onset. If there were none, it sets only Requests
// and Span.
func (x *AffectedType) measure(since *group.Since) {
	if x.Requests, x.Span = since.Total.N, since.Until.Sub(since.From); x.Requests == 0 {
		return
	}
	x.Mean, x.Failed = since.Total.Mean(), float64(since.Failed)/float64(x.Requests)
	x.P50, x.P99 = since.Latency.Quantile(0.5), since.Latency.Quantile(0.99)
}

// affected reports whether the requests since the onset are clearly slower than usual or clearly fail more often. x
// must have been measured from since.
func (x *AffectedType) affected(since *group.Since, usual *group.Window) bool {
	n := float64(since.Total.N)
	if n == 0 {
		return false
	}
	spread := math.Sqrt(since.Total.Variance()/n + usual.Total.Variance()/float64(usual.Total.N))
	if x.Mean >= leastSlowdown*x.Usual && x.Mean-x.Usual > clearly*spread && since.Total.N >= leastAffected &&
		(!x.Long || x.typicallySlower(since, usual)) {
		return true
	}
	spread = math.Sqrt(max(x.UsualFailed, 1/n) * (1 - min(x.UsualFailed, 1)) / n)
	return since.Failed >= leastAffected && x.Failed-x.UsualFailed > max(leastFailures, clearly*spread)
}

// Thresholds for affected types of long requests. A stream lasts for seconds or hours, as its client chooses. A few
// streams can therefore dominate the mean, and its standard error hardly reflects that.
const (
	leastLong     = 10  // minimum number of requests
	clearlyLonger = 3.0 // minimum difference between the medians in standard errors
)

// typicallySlower reports whether the median of the requests since the onset is clearly above the usual median, on a
// logarithmic scale.
func (x *AffectedType) typicallySlower(since *group.Since, usual *group.Window) bool {
	if min(since.Total.N, usual.Total.N) < leastLong {
		return false
	}
	variance := func(quantile func(q float64) float64, n uint64) float64 {
		const error = 0.93 // standard error of the median of n normal values, times √n, in interquartile ranges
		spread := error * math.Log(quantile(0.75)/max(1, quantile(0.25)))
		return spread * spread / float64(n)
	}
	now, before := variance(since.Latency.Quantile, since.Total.N), variance(usual.Latency.Quantile, usual.Total.N)
	longer := math.Log(x.P50 / max(1, x.UsualP50))
	return longer > max(math.Log(leastSlowdown), clearlyLonger*math.Sqrt(now+before))
}

// leastExplained is the share of a problem that a suspect must exceed for the suspect's incident to contain the
// problem.
const leastExplained = 0.3

// explains returns the incident in open whose first suspect accounts for the largest share of p, or nil if no share
// exceeds leastExplained. No place accounts for failures: they belong to the incident because of which requests of
// their type fail.
func (c *Incidents) explains(open []*incident.Incident, p *detect.Problem) (best *incident.Incident) {
	if p.Fails() && !p.Slower() {
		i := slices.IndexFunc(open, func(x *incident.Incident) bool {
			return slices.ContainsFunc(c.affected[x.ID].Types, func(t AffectedType) bool {
				return t.RequestType == p.RequestType && t.Failed > t.UsualFailed
			})
		})
		if i < 0 {
			return nil
		}
		return open[i]
	}
	all, parts := 0.0, make([]float64, len(open)) // by incident
	for i := range p.Edges {
		e := &p.Edges[i]
		if e.Score <= 0 {
			continue
		}
		all += e.Score
		places := placesOf(c.table, trace.EdgeInfo{Context: e.Context, Before: e.Before, After: e.After})
		for k, x := range open {
			if slices.Contains(places[:], x.Suspects[0].Service) {
				parts[k] += e.Score
			}
		}
	}
	most := leastExplained
	for k, part := range parts {
		if all > 0 && part/all > most {
			best, most = open[k], part/all
		}
	}
	return best
}

// affectedState is the saved form of affected.
type affectedState struct {
	Incident uint64
	Types    []AffectedType
	Share    float64
	All      requestsSince
	Problems []analysis.Hash
	Place    Place
	Alerted  Severity
	Since    [][]byte // encoded [group.Since] of each of Types

	Milestones []Milestone
}

// save implements section.
func (c *Incidents) save(s *savedCore) {
	s.Incidents, s.Objectives = c.tracker.Save(), c.objectives.State()
	for _, x := range c.tracker.Incidents() {
		if a := c.affected[x.ID]; a != nil &&
			(len(a.Types)+len(a.Problems) > 0 || a.Place.Operation != 0 || a.Alerted != Minor) {
			state := affectedState{
				Incident:   x.ID,
				Types:      a.Types,
				Share:      a.Share,
				All:        a.all,
				Problems:   a.Problems,
				Place:      a.Place,
				Alerted:    a.Alerted,
				Milestones: a.Milestones,
			}
			for i := range a.Types {
				var since []byte
				if x := a.since[a.Types[i].RequestType]; x != nil {
					since = x.AppendBinary(nil)
				}
				state.Since = append(state.Since, since)
			}
			s.Affected = append(s.Affected, state)
		}
	}
}

// restore implements section.
func (c *Incidents) restore(saved *savedCore) error {
	c.tracker = incident.Restore(saved.Incidents)
	c.objectives.Restore(&saved.Objectives)
	c.affected = make(map[uint64]*affected, len(saved.Affected))
	for i := range saved.Affected {
		s := &saved.Affected[i]
		a := &affected{
			Types:      s.Types,
			Share:      s.Share,
			all:        s.All,
			Problems:   s.Problems,
			Place:      s.Place,
			Alerted:    s.Alerted,
			Milestones: s.Milestones,
			since:      make(map[analysis.Hash]*group.Since),
		}
		for k := range s.Since[:min(len(s.Since), len(s.Types))] {
			if len(s.Since[k]) == 0 {
				continue
			}
			since, err := group.DecodeSince(s.Since[k])
			if err != nil {
				return err
			}
			a.since[s.Types[k].RequestType] = &since
		}
		c.affected[s.Incident] = a
	}
	return nil
}
