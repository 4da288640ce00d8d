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
func (r *Searches) rememberPlaces(now trace.Nanos, sites *compare.Comparer) {
	tracked := r.incidents.tracker.Incidents()
	for i := range tracked {
		x := &tracked[i]
		if a := r.incidents.affected[x.ID]; a != nil && x.IsOpen() && len(x.Suspects) > 0 {
			a.Place = r.placeOf(x, a.Place, now, sites)
			a.addPlace(now)
		}
	}
}

func (r *Searches) placeOf(x *incident.Incident, place Place, now trace.Nanos, sites *compare.Comparer) Place {
	v := r.Investigation(search.OfIncident(x.ID))
	if v.Answer() != 0 && v.Answer() != place.Operation {
		place = Place{Operation: v.Answer(), Share: r.lostAt(x, v), At: now, Of: v.Subject}
	} else if !r.searched(x, place.Operation) {
		return Place{}
	}
	if v.Answer() == place.Operation && v.Status == search.Explained && place.Reason == (Reason{}) {
		place.Reason = r.reasonOf(v, place.Share, now, sites)
	}
	return place
}

// lostAt returns the share of the time lost in x, of all suspects, at the place that v located; 0 if it is unknown. The
// shares of v are of the time lost in the first suspect, of the slowdown of requests of one type, or of their variance.
func (r *Searches) lostAt(x *incident.Incident, v *search.Investigation) float64 {
	whole := compare.LostShare(x.Suspects)
	p := r.Searched(v.Subject)
	if _, ofIncident := v.Subject.Incident(); ofIncident || p == nil {
		return v.AnswerShare() * whole
	}
	share := v.AnswerShare()
	if p.Whole == detect.WholeVariance {
		share = slowdownShare(r.table, p, v)
	}
	if share <= 0 {
		return 0
	}
	return share / max(share, slowdownIn(r.table, p, x.Suspects[0].Service)) * whole
}

// slowdownIn returns the share of the slowdown of p in a service, or while callers wait for it; 1 if the mean did not
// grow.
func slowdownIn(table *trace.Table, p *detect.Problem, service trace.Symbol) float64 {
	total, in := 0., 0.
	for i := range p.Edges {
		e := &p.Edges[i]
		if !(e.Excess > 0) { // perhaps NaN
			continue
		}
		total += e.Excess
		if touches(table, trace.EdgeInfo{Context: e.Context, Before: e.Before, After: e.After}, service) {
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
func slowdownShare(table *trace.Table, p *detect.Problem, v *search.Investigation) float64 {
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
		if within[e.Edge] || v.Place.Tracepoint == 0 && table.Context(e.Context).Op == v.Answer() {
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
func (r *Searches) searched(x *incident.Incident, op trace.Op) bool {
	if s := r.of(x.ID); s != nil {
		return s.mayLocate(op, r.table)
	}
	return concerns(r.table, op, x.Suspects[0].Service)
}

// reasonOf returns the reason that the kernel tells for an explained place with a share of the added latency, 0 if it
// is unknown. Probes of other agents have names of their own.
func (r *Searches) reasonOf(v *search.Investigation, share float64, now trace.Nanos, sites *compare.Comparer) Reason {
	if detect.WaitClass(r.table, v.Wait.Op) == "" {
		return Reason{Computes: v.Computes}
	}
	reason := Reason{Wait: v.Wait.Op, Function: v.Function, Host: sites.OnlyHost(r.table.Operation(v.Wait.Op).Service, now)}
	if located := v.AnswerShare(); located > 0 {
		reason.Share = min(1, share*v.Wait.Share/located)
	}
	if reason.Function == 0 && v.Answer() != v.Wait.Op {
		reason.Function = v.Answer()
	}
	return reason
}
