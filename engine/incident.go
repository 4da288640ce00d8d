package engine

import (
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/trace"
)

// Incident is an incident together with the request types and problems that it affects.
type Incident struct {
	incident.Incident
	Types    []AffectedType  // in decreasing order of loss, at most maxAffected
	Share    float64         // requests of Types as a fraction of all requests since the onset; 0 if unknown
	Problems []analysis.Hash // in the order they joined, at most maxAffected
	Place    Place
	// Milestones are the events in the course of the incident, in the order they became known.
	Milestones []Milestone
	// AlertedSeverity is the severity when the incident opened or last reopened. All alerts about it carry this
	// severity.
	AlertedSeverity Severity
}

// annotationLead is the maximum time from an event to the onset of an incident that it may have caused.
const annotationLead = 30 * time.Minute

// Annotations returns the annotations in all from annotationLead before the onset of x until its end, in the same
// order. It includes only those about a suspect that x shows and those about all services.
func (x *Incident) Annotations(all []Annotation) []Annotation {
	var found []Annotation
	for i := range all {
		a := &all[i]
		if max(a.At, a.End) >= x.Onset.Add(-annotationLead) && (x.IsOpen() || a.At <= x.Closed()) && (a.Service == 0 ||
			slices.ContainsFunc(x.Shown(), func(s compare.Suspect) bool { return s.Service == a.Service })) {
			found = append(found, *a)
		}
	}
	return found
}

// SuspectChange returns the latest deploy or other change to the first suspect that may have caused x, or nil. It
// ignores changes after x last opened: they aren't the cause, but may be the fix.
func (x *Incident) SuspectChange(all []Annotation) *Annotation {
	for _, a := range slices.Backward(x.Annotations(all)) {
		if a.Kind != KindOther && a.Service == x.Suspects[0].Service && a.At <= x.LastOpened() {
			return &a
		}
	}
	return nil
}

// AffectedType is a request type that runs through the first suspect of an incident, and has been slower, or has failed
// more often, since the onset of the incident.
type AffectedType struct {
	RequestType analysis.Hash
	Entry       trace.Op
	Requests    uint64 // number of requests from the onset until requests are back to normal
	// time covered by Requests; 0 if saved by an older version, which didn't record it
	Span                time.Duration
	Mean, Usual         float64 // mean duration in ns of these requests, and of healthy requests before the onset
	P50, UsualP50       float64 // the same for the medians, accurate to 10 %; 0 if unknown
	P99, UsualP99       float64
	Failed, UsualFailed float64 // failed fraction of these requests, and of healthy requests before the onset
	// Long means that requests of this type usually take much longer than most requests, as streams do.
	Long bool
}

// lost returns the total loss since the onset, in ns: the added latency plus the usual duration of each excess failed
// request.
func (x *AffectedType) lost() float64 {
	return float64(x.Requests) * (max(0, x.Mean-x.Usual) + max(0, x.Failed-x.UsualFailed)*x.Usual)
}

// Fails reports whether x loses more to failures than to added latency.
func (x *AffectedType) Fails() bool { return (x.Failed-x.UsualFailed)*x.Usual > max(0, x.Mean-x.Usual) }

// Thresholds below which an affected type is back to normal.
const (
	leastLeft = 0.25 // minimum ratio of the new requests' loss per request to the previous one
	leastMore = 1.25 // minimum ratio of the total loss to the previous total, if the loss continues at a lower level
)

// goesOn reports whether the requests that x counts in addition to `before` are still slow or failing. If they aren't,
// they must not be added, because healthy requests after the end would dilute the incident.
func (x *AffectedType) goesOn(before *AffectedType) bool {
	added, lost := float64(x.Requests-min(x.Requests, before.Requests)), x.lost()-before.lost()
	return lost > 0 &&
		(lost*float64(before.Requests) >= leastLeft*added*before.lost() || x.lost() >= leastMore*before.lost())
}

// maxAffected is the maximum number of request types, and of problems, of an incident.
const maxAffected = 100
