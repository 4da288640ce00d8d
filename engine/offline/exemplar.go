package offline

import (
	"time"

	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// Exemplars are requests of one problem that people can view and compare. No result depends on them.
type Exemplars struct {
	Slow    []Exemplar // slowest first
	Typical []Exemplar // around the median, fastest first
	Fast    []Exemplar // fastest first
}

// Exemplar is a request whose trace is worth viewing.
type Exemplar struct {
	Trace    trace.ID
	Duration time.Duration
}

// exemplarsOfKind is the maximum number of exemplars of each kind.
const exemplarsOfKind = 3

// exemplars collects the exemplars of one problem.
type exemplars struct {
	sample stats.Stratified[Exemplar]
}

func newExemplars() *exemplars { return &exemplars{stats.NewStratified[Exemplar](exemplarsOfKind)} }

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
