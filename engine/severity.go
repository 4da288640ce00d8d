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

// The severities, the lowest first.
const (
	Minor Severity = iota
	Major
	Critical
)

// String returns the name of a severity in the API.
func (s Severity) String() string { return [...]string{"minor", "major", "critical"}[s] }

// Bounds of the severities.
const (
	criticalScore = 0.5  // of the first suspect: half of their usual time, or half of the requests; unless messages wait
	majorScore    = 0.1  // of the first suspect
	majorFailing  = 0.25 // of the requests of a type, beyond the usual share
)

// Grounds are a severity with the figure that gives it: one of Objective and Failing, else the score of the first
// suspect.
type Grounds struct {
	Severity  Severity
	Bound     float64          // that the score or the share of failures reaches; of Minor, that the score does not
	Objective *incident.Missed // nil: another figure
	Failing   *AffectedType    // nil: another figure
}

// Severity returns the severity of x over its whole course.
func (x *Incident) Severity() Severity { return x.Grounds().Severity }

// Grounds returns the severity of x over its whole course, and why.
func (x *Incident) Grounds() Grounds {
	score := 0.
	if len(x.Suspects) > 0 {
		score = x.Suspects[0].Score
	}
	fast := slices.IndexFunc(x.Objectives, func(m incident.Missed) bool { return m.Fast() })
	failing := slices.IndexFunc(x.Types, func(t AffectedType) bool { return t.Failed-t.UsualFailed >= majorFailing })
	switch {
	case score >= criticalScore && x.Suspects[0].Queue() == nil: // the time of messages is nothing that requests lose
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

// Impact is the mean loss of the affected request types of an incident in a second, since its onset.
type Impact struct {
	Lost   float64 // ns beyond the usual durations
	Failed float64 // failed requests beyond the usual number
}

// Impact returns the impact of x, which is observed until now.
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
