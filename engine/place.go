package engine

import (
	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Place is the place of an incident, as it was located: the numbers do not change with later requests.
type Place struct {
	Operation trace.Op // 0: none was located
	Share     float64  // of the added latency; 0: unknown, as for requests that only vary more
	At        trace.Nanos
	Of        search.Subject // whose investigation located it: the incident or one of its problems
	Reason    Reason
}

// Reason is the reason for which requests lose time at a place, as the kernel tells it. It is zero while it is unknown.
type Reason struct {
	Wait     trace.Op     // waits in the kernel that carry most of the added latency; 0: none
	Share    float64      // of the added latency, of those waits; 0: unknown
	Function trace.Op     // within which the waits were seen; 0: only the service is known
	Host     trace.Symbol // on which the service runs; 0: on several, or unknown
	Computes bool         // the threads wait for nothing in the kernel
}

// rememberPlaces sets the places of the open incidents whose investigations have located one. A place is forgotten if
// the first suspect becomes another service.
func (c *Core) rememberPlaces(now trace.Nanos) {
	tracked := c.cases.tracker.Incidents()
	for i := range tracked {
		x := &tracked[i]
		if a := c.cases.affected[x.ID]; a != nil && x.IsOpen() && len(x.Suspects) > 0 {
			a.Place = c.placeOf(x, a.Place, now)
			a.addPlace(now)
		}
	}
}

func (c *Core) placeOf(x *incident.Incident, place Place, now trace.Nanos) Place {
	v := c.Investigation(x.ID)
	if v.Answer() != 0 && v.Answer() != place.Operation {
		place = Place{Operation: v.Answer(), Share: c.lostAt(x, v), At: now, Of: v.Subject}
	} else if !c.searched(x, place.Operation) {
		return Place{}
	}
	if v.Answer() == place.Operation && v.Status == search.Explained && place.Reason == (Reason{}) {
		place.Reason = c.reasonOf(v, place.Share, now)
	}
	return place
}

// lostAt returns the share of the time lost in x, of all suspects, at the place that v located; 0 if it is unknown. The
// shares of v are of the time lost in the first suspect, of the slowdown of requests of one type, or of their variance.
func (c *Core) lostAt(x *incident.Incident, v *search.Investigation) float64 {
	whole := compare.LostShare(x.Suspects)
	p := c.Searched(v.Subject)
	if _, ofIncident := v.Subject.Incident(); ofIncident || p == nil {
		return v.AnswerShare() * whole
	}
	share := v.AnswerShare()
	if p.Whole == detect.WholeVariance {
		share = c.slowdownShare(p, v)
	}
	if share <= 0 {
		return 0
	}
	return share / max(share, c.slowdownIn(p, x.Suspects[0].Service)) * whole
}

// slowdownIn returns the share of the slowdown of p in a service, or while callers wait for it; 1 if the mean did not
// grow.
func (c *Core) slowdownIn(p *detect.Problem, service trace.Symbol) float64 {
	total, in := 0., 0.
	for i := range p.Edges {
		e := &p.Edges[i]
		if !(e.Excess > 0) { // perhaps NaN
			continue
		}
		total += e.Excess
		if touches(c.table, trace.EdgeInfo{Context: e.Context, Before: e.Before, After: e.After}, service) {
			in += e.Excess
		}
	}
	if total == 0 {
		return 1
	}
	return in / total
}

// ShareOf returns a share of the whole of v, an investigation of x, as a share of the time lost in x; 0 if it is
// unknown. That of the place which x remembers is the remembered one, so that all texts have the same.
func (x *Incident) ShareOf(v *search.Investigation, share float64) float64 {
	if located := v.AnswerShare(); x.Place.Operation != 0 && v.Answer() == x.Place.Operation && located > 0 {
		return share / located * x.Place.Share
	}
	return share * compare.LostShare(x.Suspects)
}

// slowdownShare returns the share of the slowdown at the place that v located for p, whose shares are of the variance:
// an incident is about added latency. Within an edge, both are divided alike. It is 0 if the mean did not grow.
func (c *Core) slowdownShare(p *detect.Problem, v *search.Investigation) float64 {
	within := make(map[trace.Edge]bool)
	for i := range v.Evidence {
		if e := &v.Evidence[i]; e.Tracepoint != 0 && e.Tracepoint == v.Place.Tracepoint && e.Context != 0 {
			within[e.Within] = true
		}
	}
	total, excess, score := 0., 0., 0.
	for i := range p.Edges {
		e := &p.Edges[i]
		if !(e.Excess > 0) { // perhaps NaN
			continue
		}
		total += e.Excess
		if within[e.Edge] || v.Place.Tracepoint == 0 && c.table.Context(e.Context).Op == v.Answer() {
			excess += e.Excess
			score += e.Score
		}
	}
	if excess <= 0 || score <= 0 {
		return 0
	}
	return excess / total * min(1, v.AnswerShare()/score)
}

// searched reports whether the search of an incident may locate an operation.
func (c *Core) searched(x *incident.Incident, op trace.Op) bool {
	if s := c.searches.of(x.ID); s != nil {
		return s.mayLocate(op, c.table)
	}
	return concerns(c.table, op, x.Suspects[0].Service)
}

// reasonOf returns the reason that the kernel tells for an explained place with a share of the added latency, 0 if it
// is unknown.
// Probes of other agents have names of their own.
func (c *Core) reasonOf(v *search.Investigation, share float64, now trace.Nanos) Reason {
	if detect.WaitClass(c.table, v.Wait.Op) == "" {
		return Reason{Computes: v.Computes}
	}
	r := Reason{Wait: v.Wait.Op, Function: v.Function, Host: c.sites.OnlyHost(c.table.Operation(v.Wait.Op).Service, now)}
	if located := v.AnswerShare(); located > 0 {
		r.Share = min(1, share*v.Wait.Share/located)
	}
	if r.Function == 0 && v.Answer() != v.Wait.Op {
		r.Function = v.Answer()
	}
	return r
}

// Searched returns a subject as the search saw it in the last epoch: an open incident or an open problem; nil if it was
// neither.
func (c *Core) Searched(subject search.Subject) *detect.Problem {
	for _, s := range c.searches.list {
		if s.subject() == subject {
			return &s.problem
		}
	}
	for i := range c.problems {
		if search.OfProblem(c.problems[i].ID) == subject {
			return &c.problems[i]
		}
	}
	return nil
}
