package explain

import (
	"math"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// Findings are the explanations of one problem, derived from one [Sample].
type Findings struct {
	Requests     int // number of sampled requests
	Explanations []detect.Explanation
	Joint        float64             // see [Association]; NaN if unknown
	Unrelated    []UnrelatedVariable // see [Association]
	Contrasts    []KeyedContrast     // by key, as in [ContrastKeys], then by descending excess
	Recoveries   []Recovery          // of the leading edges, in their order
}

// NoFindings returns the Findings of a problem without a sample.
func NoFindings() Findings { return Findings{Joint: math.NaN()} }

// ContrastKeys returns the attributes that identify hosts and versions of a service.
func ContrastKeys() []string {
	return []string{"host.name", "k8s.pod.name", "service.instance.id", "service.version"}
}

// KeyedContrast is a value of the attribute Key whose requests are slower than the requests with other values.
type KeyedContrast struct {
	Key string
	Contrasted
}

// maxRecoveries is the maximum number of edges whose recovery is simulated.
const maxRecoveries = 5

// Explain returns the explanations of p, whose requests are sampled in s:
//
//  1. [Associate] finds the variables that are associated with the durations.
//  2. [Contrast] compares hosts and versions in the context of the leading edge: healthy ones are the reference.
//  3. [Recoveries] simulates the requests with each of the leading edges at its reference level.
//
// Explain uses only the options Alpha and Seed; the sample provides the others.
func (s *Sample) Explain(p *detect.Problem, table *trace.Table, o Options) Findings {
	o = Options{Alpha: o.Alpha, Seed: o.Seed, Concurrency: s.concurrency(), On: s.enabled()}
	requests := s.Requests()
	a := Associate(p, requests, table, o)
	f := Findings{
		Requests:     len(requests),
		Explanations: a.Explanations,
		Joint:        a.Joint,
		Unrelated:    a.Unrelated,
		Contrasts:    contrasts(p, requests, table, o),
	}
	if levels := ReferenceLevels(p, requests); len(levels) > 0 {
		f.Recoveries = s.recoveries(p, levels[:min(len(levels), maxRecoveries)])
	}
	return f
}

// contrasts compares hosts and versions in the context of the leading edge of p.
func contrasts(p *detect.Problem, requests []*observation.Observation, table *trace.Table, o Options) []KeyedContrast {
	if len(p.Edges) == 0 {
		return nil
	}
	var all []KeyedContrast
	for _, key := range ContrastKeys() {
		by := ContrastBy{Key: trace.SymbolOf([]byte(key)), Context: p.Edges[0].Context}
		for _, c := range Contrast(p, requests, by, table, o) {
			all = append(all, KeyedContrast{key, c})
		}
	}
	return all
}
