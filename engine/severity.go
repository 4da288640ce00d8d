package engine

import (
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
	criticalScore = 0.5  // of the first suspect: half of their usual time, or half of the requests
	majorScore    = 0.1  // of the first suspect
	majorFailing  = 0.25 // of the requests of a type, beyond the usual share
)

// Severity returns the severity of x over its whole course.
func (x *Incident) Severity() Severity {
	score := 0.
	if len(x.Suspects) > 0 {
		score = float64(x.Suspects[0].Score)
	}
	failing := func(t AffectedType) bool { return t.Failed-t.UsualFailed >= majorFailing }
	switch {
	case score >= criticalScore || slices.ContainsFunc(x.Objectives, func(m incident.Missed) bool { return m.Fast() }):
		return Critical
	case score >= majorScore || len(x.Objectives) > 0 || slices.ContainsFunc(x.Types, failing):
		return Major
	}
	return Minor
}

// Impact is the mean loss of the affected request types of an incident in a second, since its onset.
type Impact struct {
	Lost   float64 // ns beyond the usual durations
	Failed float64 // failed requests beyond the usual number
}

// Impact returns the impact of x, which is observed until now.
func (x *Incident) Impact(now trace.Nanos) Impact {
	if x.Closed != 0 {
		now = x.End()
	}
	seconds := max(now.Sub(x.Onset), time.Second).Seconds()
	var i Impact
	for _, t := range x.Types {
		i.Lost += float64(t.Requests) * max(0, t.Mean-t.Usual) / seconds
		i.Failed += float64(t.Requests) * max(0, t.Failed-t.UsualFailed) / seconds
	}
	return i
}
