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
	Share    float64         // requests of Types as a share of all requests since the onset; 0: unknown
	Problems []analysis.Hash // in the order they joined, at most maxAffected
	Place    Place
	// Milestones are the events in its course, in the order they became known.
	Milestones []Milestone
	// AlertedSeverity is the severity when it opened or last reopened. Alerts about it keep this severity.
	AlertedSeverity Severity
}

// annotationLead is the longest time between an event and an incident that it may have caused.
const annotationLead = 30 * time.Minute

// Annotations returns the annotations of services that x shows as suspects, and those of no service, from half an hour
// before its onset until its end, in their order in all.
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

// SuspectChange returns the latest deploy or other change of the first suspect that may have caused x, or nil if there
// is none. It ignores changes after x last opened: they aren't the cause, but may be the fix.
func (x *Incident) SuspectChange(all []Annotation) *Annotation {
	for _, a := range slices.Backward(x.Annotations(all)) {
		if a.Kind != KindOther && a.Service == x.Suspects[0].Service && a.At <= x.LastOpened() {
			return &a
		}
	}
	return nil
}

// AffectedType is a request type that has been slower, or has failed more often, since the onset of an incident and
// runs through its first suspect.
type AffectedType struct {
	RequestType analysis.Hash
	Entry       trace.Op
	Requests    uint64 // since the onset, until requests are back to normal
	// time span of these requests; 0: saved by an older version, which didn't record it
	Span                time.Duration
	Mean, Usual         float64 // ns; mean of these requests, and of healthy requests before the onset
	P50, UsualP50       float64 // likewise the median, accurate to 10 %; 0: unknown
	P99, UsualP99       float64
	Failed, UsualFailed float64 // share of these requests, and of healthy requests before the onset
	// Long means that they usually take much longer than most requests, like streams.
	Long bool
}

// lost returns the total loss in ns since the onset: the added latency, and the usual duration of the additional failed
// requests.
func (x *AffectedType) lost() float64 {
	return float64(x.Requests) * (max(0, x.Mean-x.Usual) + max(0, x.Failed-x.UsualFailed)*x.Usual)
}

// Fails reports whether x loses more by failures than by added latency.
func (x *AffectedType) Fails() bool { return (x.Failed-x.UsualFailed)*x.Usual > max(0, x.Mean-x.Usual) }

// Thresholds below which an affected type is back to normal.
const (
	leastLeft = 0.25 // minimum ratio of the new requests' loss per request to the former one
	leastMore = 1.25 // minimum ratio of the total loss to the former total, for a loss that continues at a lower level
)

// goesOn reports whether the requests that x has in addition to `before` are still slow or failing. Healthy requests
// after the end must not dilute the size of an incident.
func (x *AffectedType) goesOn(before *AffectedType) bool {
	added, lost := float64(x.Requests-min(x.Requests, before.Requests)), x.lost()-before.lost()
	return lost > 0 &&
		(lost*float64(before.Requests) >= leastLeft*added*before.lost() || x.lost() >= leastMore*before.lost())
}

// maxAffected limits both the request types and the problems of an incident.
const maxAffected = 100
