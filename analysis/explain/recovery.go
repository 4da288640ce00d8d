package explain

import (
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// Recovery is the time that requests would save if an edge were at its reference level.
type Recovery struct {
	Edge     trace.Edge
	Level    time.Duration  // reference level, per request
	Requests int            // number of simulated requests
	Mean     stats.Interval // savings in the mean duration, ns
	MeanPart float64        // fraction of the mean duration, 0–1
	P99      time.Duration  // savings in the 99th percentile
	P99Part  float64        // fraction of the 99th percentile, 0–1
}

// Recoveries simulates requests with each of several edges, one at a time, at its reference level, and summarizes the
// savings. A request does not change if the edge is already below its level. Recoveries is not safe for concurrent use.
type Recoveries struct {
	at     group.Level
	levels []observation.EdgeNanos
	before []float64
	after  [][]float64 // by edge
}

// NewRecoveries returns empty Recoveries for the edges in levels, which holds their reference levels. at determines
// whether they are edges of groups or of request types.
func NewRecoveries(at group.Level, levels []observation.EdgeNanos) *Recoveries {
	return &Recoveries{at: at, levels: slices.Clone(levels), after: make([][]float64, len(levels))}
}

// Add simulates o using s, the simulation captured from o. It does not retain its arguments.
func (r *Recoveries) Add(o *observation.Observation, s *critpath.Simulation) {
	r.before = append(r.before, float64(o.Duration))
	for i, l := range r.levels {
		nanos := edgeNanos(o, l.Edge, r.at)
		after := s.WhatIf(r.at == group.LevelRequestType, l.Edge, nanos, min(nanos, l.Nanos))
		r.after[i] = append(r.after[i], float64(after))
	}
}

// All returns the recovery of each edge, in the order of the levels. If there are no requests, floating-point fields
// are NaN and durations are 0.
func (r *Recoveries) All() []Recovery {
	out := make([]Recovery, len(r.levels))
	for i, l := range r.levels {
		out[i] = r.recovery(l, r.after[i])
	}
	return out
}

func (r *Recoveries) recovery(l observation.EdgeNanos, after []float64) Recovery {
	x := Recovery{Edge: l.Edge, Level: time.Duration(l.Nanos), Requests: len(r.before)}
	saved := stats.Table{Edges: 1, Total: r.before, Cells: make([]float64, len(after))}
	for i := range after {
		saved.Cells[i] = r.before[i] - after[i]
	}
	estimates, _ := saved.Estimates()
	x.Mean, x.MeanPart = estimates[0].Mean, estimates[0].MeanShare.Value
	before, with := stats.Quantile(slices.Clone(r.before), 0.99), stats.Quantile(slices.Clone(after), 0.99)
	x.P99Part = 1 - with/before
	if len(after) > 0 {
		x.P99 = time.Duration(before - with)
	}
	return x
}

// ReferenceLevels returns the reference levels of the edges of p, except the remainder. The level of an edge is its
// healthy mean or, if that is unknown, its median over the requests. Requests without the edge count as 0. Edges at or
// below their level are omitted.
func ReferenceLevels(p *detect.Problem, requests []*observation.Observation) []observation.EdgeNanos {
	var levels []observation.EdgeNanos
	for i := range p.Edges {
		e := &p.Edges[i]
		if e.Edge == 0 {
			continue
		}
		level := e.Mean - e.Excess
		if e.Excess != e.Excess {
			nanos := make([]float64, len(requests))
			for k, o := range requests {
				nanos[k] = float64(edgeNanos(o, e.Edge, p.Level))
			}
			level = stats.Median(nanos)
		}
		if level >= 0 && level < e.Mean {
			levels = append(levels, observation.EdgeNanos{Edge: e.Edge, Nanos: int64(level)})
		} else if level < 0 {
			levels = append(levels, observation.EdgeNanos{Edge: e.Edge})
		}
	}
	return levels
}
