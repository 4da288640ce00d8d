package engine

import (
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/trace"
)

// Milestone is an event in the course of an incident: a problem opened, or a place was located. A Milestone must not be
// changed once added.
type Milestone struct {
	At    trace.Nanos
	Place trace.Op // 0 if a problem opened

	Problem     analysis.Hash // zero if a place was located
	RequestType analysis.Hash
	Group       analysis.Hash // zero if the problem is about all requests of the type
	Entry       trace.Op
	Kind        detect.ProblemKind
	Fails       bool `cbor:",omitempty"` // the problem is that more requests fail
}

// maxPlaces limits the places among an incident's milestones. The number of problems is limited by maxAffected.
const maxPlaces = 20

// addProblem adds p to the incident, with a milestone unless p is chronic and thus started before the incident.
func (a *affected) addProblem(p *detect.Problem) {
	a.Problems = append(a.Problems, p.ID)
	if p.Onset == detect.Changed {
		m := Milestone{
			At:          p.Opened,
			Problem:     p.ID,
			RequestType: p.RequestType,
			Entry:       p.Entry,
			Kind:        p.Kind,
			Fails:       p.Fails(),
		}
		if p.Level == group.LevelGroup {
			m.Group = p.Group
		}
		a.Milestones = append(a.Milestones, m)
	}
}

// addPlace adds a.Place as a milestone at time now, unless it equals the latest place among the milestones, or
// maxPlaces have been added already.
func (a *affected) addPlace(now trace.Nanos) {
	places := 0
	for _, m := range slices.Backward(a.Milestones) {
		if m.Place == 0 {
			continue
		}
		if places++; places == 1 && m.Place == a.Place.Operation {
			return
		}
	}
	if a.Place.Operation != 0 && places < maxPlaces {
		a.Milestones = append(a.Milestones, Milestone{At: now, Place: a.Place.Operation})
	}
}
