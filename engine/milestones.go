package engine

import (
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/trace"
)

// Milestone is a fact in the course of an incident, as it was when it happened: a problem opened, or a place was
// located.
type Milestone struct {
	At    trace.Nanos
	Place trace.Op // 0: a problem opened

	Problem     analysis.Hash // zero: a place was located
	RequestType analysis.Hash
	Group       analysis.Hash // zero: the problem is one of all requests of the type
	Entry       trace.Op
	Kind        detect.ProblemKind
}

// maxPlaces bounds the places in the course of an incident; there are at most maxAffected problems.
const maxPlaces = 20

// addProblem adds a problem of an incident. One that is chronic is older.
func (a *affected) addProblem(p *detect.Problem) {
	a.Problems = append(a.Problems, p.ID)
	if p.Onset == detect.Changed {
		m := Milestone{At: p.Opened, Problem: p.ID, RequestType: p.RequestType, Entry: p.Entry, Kind: p.Kind}
		if p.Level == group.LevelGroup {
			m.Group = p.Group
		}
		a.Milestones = append(a.Milestones, m)
	}
}

// addPlace adds the place that is located now, unless it is the one that was located last.
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
