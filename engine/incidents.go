package engine

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/baselinediff"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/trace"
)

// Incident is an incident with what groups and problems show of it.
type Incident struct {
	incident.Incident
	Types    []AffectedType  // by falling lost time, at most maxAffected
	Problems []analysis.Hash // in the order in which they joined, at most maxAffected
	Place    Place
	// AlertedSeverity is the severity at the time when it opened, or opened again: alerts about it keep it.
	AlertedSeverity Severity
}

// deployLead is the time before the onset of an incident from which deploys of its suspects may be its cause.
const deployLead = 30 * time.Minute

// Deploys returns those of the suspects of x, among some deploys, that happened from half an hour before its onset
// until its end, in their order.
func (x *Incident) Deploys(all []Deploy) []Deploy {
	var found []Deploy
	for _, d := range all {
		if d.At >= x.Onset.Add(-deployLead) && (x.Closed == 0 || d.At <= x.Closed) &&
			slices.ContainsFunc(x.Shown(), func(s baselinediff.Suspect) bool { return s.Service == d.Service }) {
			found = append(found, d)
		}
	}
	return found
}

// SuspectDeploy returns the latest of x.Deploys of the first suspect that may have caused x; zero if there is none. One
// after the opening is not the cause but perhaps the remedy.
func (x *Incident) SuspectDeploy(all []Deploy) Deploy {
	for _, d := range slices.Backward(x.Deploys(all)) {
		if d.Service == x.Suspects[0].Service && d.At <= max(x.Opened, x.Reopened) {
			return d
		}
	}
	return Deploy{}
}

// AffectedType is a request type that is slower, or fails more often, since the onset of an incident, and that runs
// through its first suspect.
type AffectedType struct {
	RequestType         analysis.Hash
	Requests            uint64        // since the onset
	Span                time.Duration // in which these arrived; 0: of an earlier version, which did not keep it
	Mean, Usual         float64       // ns, since the onset and in healthy times
	P50, UsualP50       float64       // the same of the median, within a tenth; 0: unknown, saved by an older version
	P99, UsualP99       float64
	Failed, UsualFailed float64 // share of the requests, since the onset and in healthy times
}

// lost returns what x loses since the onset: time, and the usual time of failed requests, in ns.
func (x *AffectedType) lost() float64 {
	return float64(x.Requests) * (max(0, x.Mean-x.Usual) + max(0, x.Failed-x.UsualFailed)*x.Usual)
}

// Fails reports whether x loses more by failures than by time.
func (x *AffectedType) Fails() bool { return (x.Failed-x.UsualFailed)*x.Usual > max(0, x.Mean-x.Usual) }

// maxAffected bounds the request types, and the problems, of an incident.
const maxAffected = 100

// Incidents returns the open incidents and the remembered closed ones, in the order in which they were opened. The
// result is valid until the next epoch.
func (c *Core) Incidents() []Incident {
	tracked := c.incidents.Incidents()
	all := make([]Incident, len(tracked))
	for i := range tracked {
		all[i] = Incident{Incident: tracked[i]}
		all[i].AlertedSeverity = all[i].Severity() // while Sibyl learns
		if a := c.affected[tracked[i].ID]; a != nil {
			all[i].Types, all[i].Problems, all[i].Place, all[i].AlertedSeverity = a.Types, a.Problems, a.Place, a.Alerted
		}
	}
	return all
}

// accept accepts the behaviour since the onset of an open incident, and of its problems, as normal: see
// [incident.Tracker.Accept].
func (c *Core) accept(id uint64, by, text string) bool {
	accepted := c.incidents.Accept(id, by, text)
	if accepted {
		if a := c.affected[id]; a != nil {
			c.acceptProblems(c.Ended(), func(p *detect.Problem) bool { return slices.Contains(a.Problems, p.ID) })
		}
		for _, x := range c.incidents.Incidents() {
			if x.ID == id {
				c.objectives.Waive(x.Objectives)
			}
		}
		entry := fmt.Sprintf("accepts the behaviour since the onset of incident %016x as normal", id)
		if text != "" {
			entry += ": " + text
		}
		c.logEntry(by, entry)
	}
	return accepted
}

// leastRetention is the least time for which closed incidents are kept.
const leastRetention = 24 * time.Hour

// forgetIncidents deletes closed incidents that are too old or too many.
func (c *Core) forgetIncidents(now trace.Nanos) {
	before := trace.Nanos(math.MinInt64)
	if age := c.options.Retention; age > 0 {
		before = now.Add(-max(age, leastRetention))
	}
	c.incidents.Forget(before)
}

// Watching reports whether incidents are reported: the history of calls is long enough.
func (c *Core) Watching() bool { return incident.Ready(c.Ended(), c.sites) }

// WatchingLeft returns how long requests must go on until incidents are reported; 0 if they are.
func (c *Core) WatchingLeft() time.Duration { return incident.Left(c.Ended(), c.sites) }

// Sites returns the number of sites from whose calls incidents are raised, and the number of calls at sites for which
// there was no room.
func (c *Core) Sites() (n int, refused uint64) { return c.sites.Len(), c.sites.Refused() }

// History returns the history of calls from which incidents are raised, for reading.
func (c *Core) History() *baselinediff.Sites { return c.sites }

// affected lists the request types and problems of an incident, and has its place.
type affected struct {
	Types    []AffectedType
	Problems []analysis.Hash
	Place    Place
	Alerted  Severity // see [Incident.AlertedSeverity]
}

// mostly reports whether requests of one type lose at least half of what all affected requests lose.
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

// followIncidents renews the request types and the problems of the open incidents at the end of an epoch.
func (c *Core) followIncidents(now trace.Nanos) {
	tracked := c.incidents.Incidents()
	known := make(map[uint64]*affected, len(tracked))
	var open []*incident.Incident
	for i := range tracked {
		x := &tracked[i]
		a := c.affected[x.ID]
		opened := a == nil || max(x.Opened, x.Reopened) == now
		if a == nil {
			a = &affected{}
		}
		known[x.ID] = a
		if x.Closed == 0 && len(x.Suspects) > 0 {
			open = append(open, x)
			a.Types = c.affectedTypes(x, a.Types)
			if opened {
				a.Alerted = (&Incident{Incident: *x, Types: a.Types}).Severity()
			}
		}
	}
	c.affected = known
	if len(open) == 0 {
		return
	}
	for i := range c.problems {
		p := &c.problems[i]
		if x := c.explains(open, p); x != nil {
			if a := known[x.ID]; len(a.Problems) < maxAffected && !slices.Contains(a.Problems, p.ID) {
				a.Problems = append(a.Problems, p.ID)
			}
		}
	}
}

// Thresholds of affected request types.
const (
	leastSlowdown = 1.05 // times the usual mean
	leastFailures = 0.02 // share of the requests, beyond the usual
	leastAffected = 3    // failed requests
	clearly       = 2.0  // standard errors: the incident itself is certain
)

// affectedTypes returns the request types that x affects, each as of the time at which it had lost most. Their usual
// numbers stay as they were when they joined.
func (c *Core) affectedTypes(x *incident.Incident, before []AffectedType) []AffectedType {
	types := slices.Clone(before)
	service := x.Suspects[0].Service
	for g := range c.detector.Groups.Each() {
		if g.Level != group.LevelRequestType || g.Reference.Total.N == 0 {
			continue
		}
		a := AffectedType{
			RequestType: g.ID, Usual: g.Reference.Total.Mean(), UsualFailed: float64(g.Reference.Failed) / float64(g.Reference.Total.N),
			UsualP50: g.Reference.Latency.Quantile(0.5), UsualP99: g.Reference.Latency.Quantile(0.99),
		}
		i := slices.IndexFunc(before, func(b AffectedType) bool { return b.RequestType == g.ID })
		if i >= 0 {
			b := &before[i]
			a.Usual, a.UsualP50, a.UsualP99, a.UsualFailed = b.Usual, b.UsualP50, b.UsualP99, b.UsualFailed
		}
		switch {
		case (!c.affects(g, x.Onset, &a) || !c.passes(g, service)) && !c.missesObjective(g, x, &a):
		case i < 0:
			a.measureQuantiles(g, x.Onset)
			types = append(types, a)
		case a.lost() > types[i].lost():
			a.measureQuantiles(g, x.Onset)
			types[i] = a
		}
	}
	slices.SortFunc(types, func(a, b AffectedType) int {
		return cmp.Or(cmp.Compare(b.lost(), a.lost()), a.RequestType.Compare(b.RequestType))
	})
	return types[:min(len(types), maxAffected)]
}

// measureQuantiles sets the quantiles of the requests of g since an instant.
func (x *AffectedType) measureQuantiles(g *group.Group, since trace.Nanos) {
	counts := g.LatenciesSince(since)
	x.P50, x.P99 = counts.Quantile(0.5), counts.Quantile(0.99)
}

// affects fills in the requests of g since the onset, and reports whether they are clearly slower than usual, or fail
// clearly more often.
func (c *Core) affects(g *group.Group, onset trace.Nanos, a *AffectedType) bool {
	since := g.RetainedSince(onset, c.detector.Groups.Closed())
	total, failed := since.Total, since.Failed
	if total.N == 0 {
		return false
	}
	n := float64(total.N)
	a.Requests, a.Span, a.Mean, a.Failed = uint64(math.Round(since.Requests)), since.Span, total.Mean(), float64(failed)/n
	usual := g.Reference.Total
	spread := math.Sqrt(total.Variance()/n + usual.Variance()/float64(usual.N))
	if a.Mean >= leastSlowdown*a.Usual && a.Mean-a.Usual > clearly*spread && total.N >= leastAffected {
		return true
	}
	spread = math.Sqrt(max(a.UsualFailed, 1/n) * (1 - min(a.UsualFailed, 1)) / n)
	return failed >= leastAffected && a.Failed-a.UsualFailed > max(leastFailures, clearly*spread)
}

// passes reports whether requests of g spend time in a service, or waiting for it.
func (c *Core) passes(g *group.Group, service trace.Symbol) bool {
	for _, e := range g.Edges() {
		if c.touches(c.table.EdgeInfo(e), service) {
			return true
		}
	}
	return false
}

// touches reports whether an edge is time in a service, or time in which a caller waits for it.
func (c *Core) touches(e trace.EdgeInfo, service trace.Symbol) bool {
	places := c.placesOf(e)
	return slices.Contains(places[:], service)
}

// placesOf returns the services in which an edge is time, and those for which a caller waits in it; 0: none.
func (c *Core) placesOf(e trace.EdgeInfo) (places [6]trace.Symbol) {
	for i, step := range [...]trace.Op{c.table.Context(e.Context).Op, e.Before, e.After} {
		places[2*i], places[2*i+1] = c.servicesAt(step)
	}
	return places
}

// servicesAt returns the service in which a step runs, and the one that it calls; 0: none.
func (c *Core) servicesAt(step trace.Op) (runs, called trace.Symbol) {
	if step == 0 {
		return 0, 0
	}
	o := c.table.Operation(step)
	if o.Target != 0 {
		called = c.table.Operation(o.Target).Service
	}
	return o.Service, called
}

// concerns reports whether a step runs in a service or calls it.
func (c *Core) concerns(step trace.Op, service trace.Symbol) bool {
	runs, called := c.servicesAt(step)
	return service != 0 && (runs == service || called == service)
}

// leastExplained is the smallest part of a problem that must lie at a suspect for its incident to contain the problem.
const leastExplained = 0.3

// explains returns the open incident whose first suspect accounts for most of a problem; nil if none does.
func (c *Core) explains(open []*incident.Incident, p *detect.Problem) (best *incident.Incident) {
	all, parts := 0.0, make([]float64, len(open)) // parts: by incident
	for i := range p.Edges {
		e := &p.Edges[i]
		if e.Score <= 0 {
			continue
		}
		all += e.Score
		places := c.placesOf(trace.EdgeInfo{Context: e.Context, Before: e.Before, After: e.After})
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
	Problems []analysis.Hash
	Place    Place
	Alerted  Severity
}

// savedAffected returns the request types and problems of the incidents, in their order.
func (c *Core) savedAffected() []affectedState {
	var saved []affectedState
	for _, x := range c.incidents.Incidents() {
		if a := c.affected[x.ID]; a != nil && (len(a.Types)+len(a.Problems) > 0 || a.Place.Operation != 0 || a.Alerted != Minor) {
			saved = append(saved, affectedState{x.ID, a.Types, a.Problems, a.Place, a.Alerted})
		}
	}
	return saved
}

// restoreAffected is the inverse of savedAffected.
func (c *Core) restoreAffected(saved []affectedState) {
	c.affected = make(map[uint64]*affected, len(saved))
	for _, s := range saved {
		c.affected[s.Incident] = &affected{s.Types, s.Problems, s.Place, s.Alerted}
	}
}
