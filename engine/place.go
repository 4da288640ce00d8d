package engine

import (
	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Place is the place of an incident, as of the time it was located. Later requests don't change its numbers.
type Place struct {
	Operation trace.Op // 0 before a place is located
	Share     float64  // share of the added latency; 0 if unknown, e.g. if only the variance has grown
	At        trace.Nanos
	Of        search.Subject // subject whose investigation located it: the incident or one of its problems
	Reason    Reason
}

// Reason explains why requests are slower at a place, as seen by the kernel. The zero value means unknown.
type Reason struct {
	Wait     trace.Op     // kernel waits that account for most of the added latency; 0 if unknown
	Share    float64      // share of the added latency in those waits; 0 if unknown
	Function trace.Op     // function that the waits were seen in; 0 if only the service is known
	Host     trace.Symbol // host that the service runs on; 0 for several hosts or if unknown
	Computes bool         // threads run on the CPU instead of waiting in the kernel
}

// rememberPlaces sets the places of open incidents that an investigation has located. It clears a place that the search
// of its incident can no longer locate, because another service has become the first suspect.
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

// lostAt returns the share of x's added latency, over all suspects, that lies at the place located by v, or 0 if it is
// unknown. It converts v's shares, which are relative to only a part of the added latency: the first suspect's, the
// slowdown of one request type, or the variance of that type's durations.
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

// slowdownIn returns the share of p's slowdown that lies in service or in its callers' waits for it, or 1 if no edge's
// mean has grown.
func slowdownIn(table *trace.Table, p *detect.Problem, service trace.Symbol) float64 {
	total, in := 0., 0.
	for i := range p.Edges {
		e := &p.Edges[i]
		if !(e.Excess > 0) { // may be NaN
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

// ShareOf converts share, a share in v, to a share of x's added latency; 0 means unknown. v must be an investigation of
// x. If v located x.Place, it scales by the share stored there so that all texts agree.
func (x *Incident) ShareOf(v *search.Investigation, share float64) float64 {
	if located := v.AnswerShare(); x.Place.Operation != 0 && v.Answer() == x.Place.Operation && located > 0 {
		return share / located * x.Place.Share
	}
	return share * compare.LostShare(x.Suspects)
}

// slowdownShare returns the share of p's slowdown at the place located by v. The shares in v refer to the variance, but
// incidents are about added latency. slowdownShare assumes that the slowdown within an edge is distributed like the
// variance. It returns 0 if the mean hasn't grown there.
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
		if !(e.Excess > 0) { // may be NaN
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

// searched reports whether a search of x can locate op.
func (r *Searches) searched(x *incident.Incident, op trace.Op) bool {
	if s := r.of(x.ID); s != nil {
		return s.mayLocate(op, r.table)
	}
	return concerns(r.table, op, x.Suspects[0].Service)
}

// reasonOf returns the kernel's reason for the slowdown at the place that v explained. share is the place's share of
// the added latency, or 0 if unknown. If v.Wait isn't a kernel wait but, say, another agent's probe, only Computes is
// set.
func (r *Searches) reasonOf(v *search.Investigation, share float64, now trace.Nanos, sites *compare.Comparer) Reason {
	if detect.WaitClass(r.table, v.Wait.Op) == "" {
		return Reason{Computes: v.Computes}
	}
	reason := Reason{
		Wait:     v.Wait.Op,
		Function: v.Function,
		Host:     sites.Instances.OnlyHost(r.table.Operation(v.Wait.Op).Service, now),
	}
	if located := v.AnswerShare(); located > 0 {
		reason.Share = min(1, share*v.Wait.Share/located)
	}
	if reason.Function == 0 && v.Answer() != v.Wait.Op {
		reason.Function = v.Answer()
	}
	return reason
}
