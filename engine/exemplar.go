package engine

import (
	"time"

	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// Exemplars are requests of one problem for people to look at, and to compare. Nothing is inferred from them.
type Exemplars struct {
	Slow    []Exemplar // the slowest, slowest first
	Typical []Exemplar // around the median, fastest first
	Fast    []Exemplar // the fastest, fastest first
}

// Exemplar is a request to be looked at in its trace.
type Exemplar struct {
	Trace    trace.ID
	Duration time.Duration
}

// exemplarsShown is how many of each kind there are: enough to see what they have in common.
const exemplarsShown = 3

// exemplars collects the exemplars of one problem.
type exemplars struct {
	sample stats.Stratified[Exemplar]
}

func newExemplars() *exemplars { return &exemplars{stats.NewStratified[Exemplar](exemplarsShown)} }

func (e *exemplars) observe(o *observation.Observation) {
	e.sample.Add(o.Key(), o.Duration.Nanoseconds(), Exemplar{o.Trace, o.Duration})
}

func (e *exemplars) all() Exemplars {
	values := func(items []stats.Item[Exemplar]) (all []Exemplar) {
		for _, x := range items {
			all = append(all, x.Value)
		}
		return all
	}
	return Exemplars{values(e.sample.Slowest()), values(e.sample.Median()), values(e.sample.Fastest())}
}
