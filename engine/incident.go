package engine

import (
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/trace"
)

// Incident is an incident with what groups and problems show of it.
type Incident struct {
	incident.Incident
	Types    []AffectedType  // by falling added latency, at most maxAffected
	Share    float64         // of all requests since the onset, of Types; 0: unknown
	Problems []analysis.Hash // in the order in which they joined, at most maxAffected
	Place    Place
	// Milestones are the facts in its course, in the order in which they became known.
	Milestones []Milestone
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
		if d.At >= x.Onset.Add(-deployLead) && (x.IsOpen() || d.At <= x.Closed()) &&
			slices.ContainsFunc(x.Shown(), func(s compare.Suspect) bool { return s.Service == d.Service }) {
			found = append(found, d)
		}
	}
	return found
}

// SuspectDeploy returns the latest of x.Deploys of the first suspect that may have caused x; zero if there is none. One
// after the opening is not the cause but perhaps the remedy.
func (x *Incident) SuspectDeploy(all []Deploy) Deploy {
	for _, d := range slices.Backward(x.Deploys(all)) {
		if d.Service == x.Suspects[0].Service && d.At <= x.LastOpened() {
			return d
		}
	}
	return Deploy{}
}

// AffectedType is a request type that is slower, or fails more often, since the onset of an incident, and that runs
// through its first suspect.
type AffectedType struct {
	RequestType         analysis.Hash
	Entry               trace.Op
	Requests            uint64        // since the onset, until requests were as usual again or now
	Span                time.Duration // in which these arrived; 0: of an earlier version, which did not keep it
	Mean, Usual         float64       // ns, of these requests and in healthy times before the onset
	P50, UsualP50       float64       // the same of the median, within a tenth; 0: unknown
	P99, UsualP99       float64
	Failed, UsualFailed float64 // share of these requests, and in healthy times before the onset
}

// lost returns what x loses since the onset: time, and the usual time of failed requests, in ns.
func (x *AffectedType) lost() float64 {
	return float64(x.Requests) * (max(0, x.Mean-x.Usual) + max(0, x.Failed-x.UsualFailed)*x.Usual)
}

// Fails reports whether x loses more by failures than by time.
func (x *AffectedType) Fails() bool { return (x.Failed-x.UsualFailed)*x.Usual > max(0, x.Mean-x.Usual) }

// Rules by which an affected type is as usual again.
const (
	leastLeft = 0.25 // of the former loss of a request, in the requests since then
	leastMore = 1.25 // times the former loss, with which it goes on at a lower level
)

// goesOn reports whether the requests of x that came after those of before still lose time. Healthy requests after the
// end do not dilute the size of an incident.
func (x *AffectedType) goesOn(before *AffectedType) bool {
	added, lost := float64(x.Requests-min(x.Requests, before.Requests)), x.lost()-before.lost()
	return lost > 0 &&
		(lost*float64(before.Requests) >= leastLeft*added*before.lost() || x.lost() >= leastMore*before.lost())
}

// maxAffected bounds the request types, and the problems, of an incident.
const maxAffected = 100
