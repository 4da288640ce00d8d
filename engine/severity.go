package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/trace"
)

// Severity ranks incidents by their impact.
type Severity uint8

// The severities in ascending order.
const (
	Minor Severity = iota
	Major
	Critical
)

// String returns the name of s in the API.
func (s Severity) String() string { return [...]string{"minor", "major", "critical"}[s] }

// Minimum values for severities above Minor.
const (
	// Score of the first suspect: requests take half as long again as usual, or half of them fail. It doesn't apply to
	// queues.
	criticalScore = 0.5
	majorScore    = 0.1  // score of the first suspect
	majorFailing  = 0.25 // failed fraction of a type's requests, above the usual fraction
)

// Grounds is a severity together with the value that determined it: Objective or Failing if one of them is set,
// otherwise the score of the first suspect.
type Grounds struct {
	Severity Severity
	// threshold that the score or the failed fraction reached or, for Minor, that the score didn't reach; 0 if
	// Objective is set
	Bound     float64
	Objective *incident.Missed // set if it determined the severity
	Failing   *AffectedType    // set if it determined the severity
}

// Severity returns the severity of x over its whole course.
func (x *Incident) Severity() Severity { return x.Grounds().Severity }

// Grounds returns the severity of x over its whole course, with the reason for it.
func (x *Incident) Grounds() Grounds {
	score := 0.
	if len(x.Suspects) > 0 {
		score = x.Suspects[0].Score
	}
	fast := slices.IndexFunc(x.Objectives, func(m incident.Missed) bool { return m.Fast() })
	failing := slices.IndexFunc(x.Types, func(t AffectedType) bool { return t.Failed-t.UsualFailed >= majorFailing })
	switch {
	case score >= criticalScore && x.Suspects[0].Queue() == nil: // waiting messages don't slow down any request
		return Grounds{Severity: Critical, Bound: criticalScore}
	case fast >= 0:
		return Grounds{Severity: Critical, Objective: &x.Objectives[fast]}
	case score >= majorScore:
		return Grounds{Severity: Major, Bound: majorScore}
	case len(x.Objectives) > 0:
		return Grounds{Severity: Major, Objective: &x.Objectives[0]}
	case failing >= 0:
		return Grounds{Severity: Major, Bound: majorFailing, Failing: &x.Types[failing]}
	}
	return Grounds{Severity: Minor, Bound: majorScore}
}

// Impact is the mean loss per second of an incident's affected request types since its onset.
type Impact struct {
	Lost   float64 // added latency in ns
	Failed float64 // failed requests above the usual number
}

// Impact returns the impact of x until now or, if x is closed, until its end.
func (x *Incident) Impact(now trace.Nanos) Impact {
	if !x.IsOpen() {
		now = x.End()
	}
	var i Impact
	for _, t := range x.Types {
		seconds := max(cmp.Or(t.Span, now.Sub(x.Onset)), time.Second).Seconds()
		i.Lost += float64(t.Requests) * max(0, t.Mean-t.Usual) / seconds
		i.Failed += float64(t.Requests) * max(0, t.Failed-t.UsualFailed) / seconds
	}
	return i
}
