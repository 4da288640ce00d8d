package incident

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// contrast compares the requests that miss an objective with other recent requests, either by the time in each step of
// their critical paths or by the steps where their failures start. A few slow requests would not show in a mean over
// all requests.
type contrast struct {
	missed, others int64 // requests
	steps          map[trace.Op]*difference
	last           trace.Op // largest step if there are maxSteps of them
	halved         int64    // number of the half-life when all counts were last halved
}

// difference is the time at a step in ns, or the number of failures there, for both kinds of requests.
type difference struct{ missed, others int64 }

const (
	// halfLife is the age of requests that have half their weight in a contrast. It is long enough that at one request
	// per second, an objective that only just burns still has ten slow requests.
	halfLife = 10 * time.Minute
	// maxSteps is the maximum number of steps in a contrast. The steps with the smallest identities are kept, so that
	// the order of requests doesn't matter.
	maxSteps = 256
)

// Step is a step of the critical path of a request.
type Step struct {
	Op     trace.Op // with its target
	Nanos  int64    // own time on the critical path
	Failed bool     // a failure starts here
}

// add adds a request with its steps: the times of the steps if the objective is about latency, or else their failures.
// missed reports whether the request missed the objective.
func (c *contrast) add(steps []Step, latency, missed bool) {
	if missed {
		c.missed++
	} else {
		c.others++
	}
	for i := range steps {
		n := steps[i].Nanos
		if !latency {
			n = 0
			if steps[i].Failed && missed {
				n = 1
			}
		}
		if n == 0 {
			continue
		}
		d := c.at(steps[i].Op)
		switch {
		case d == nil:
		case missed:
			d.missed += n
		default:
			d.others += n
		}
	}
}

// at returns the difference at step, adding it if necessary, or nil if there is no room for it.
func (c *contrast) at(step trace.Op) *difference {
	d := c.steps[step]
	if d != nil {
		return d
	}
	if len(c.steps) == maxSteps {
		if step > c.last {
			return nil
		}
		delete(c.steps, c.last)
	}
	if c.steps == nil {
		c.steps = make(map[trace.Op]*difference)
	}
	d = &difference{}
	if c.steps[step] = d; len(c.steps) == maxSteps {
		c.last = slices.Max(slices.Collect(maps.Keys(c.steps)))
	}
	return d
}

// age halves all counts if a new half-life has started since the last call, and deletes steps whose counts are 0.
func (c *contrast) age(now trace.Nanos) {
	period := int64(now) / int64(halfLife)
	if period == c.halved {
		return
	}
	c.halved, c.missed, c.others = period, c.missed/2, c.others/2
	for op, d := range c.steps {
		if d.missed, d.others = d.missed/2, d.others/2; *d == (difference{}) {
			delete(c.steps, op)
		}
	}
}

// leastContrast is the smallest excess of a suspect: a twentieth of the duration of the other requests, or of the
// failures.
const leastContrast = 0.05

// suspects ranks the services where the requests that missed spend more time, or fail more often, than the others.
// share is the share of requests that miss. Scores are per request of the entry: the excess per missed request, in mean
// durations of the others, times share. duration is the mean duration of the others in ns, or 0 for failures. If there
// are no requests to compare, suspects returns nil and 0.
func (c *contrast) suspects(table *trace.Table, latency bool,
	share float64,
) (suspects []compare.Suspect, duration float64) {
	if c.missed == 0 || latency && c.others == 0 {
		return nil, 0
	}
	for _, d := range c.steps {
		duration += float64(d.others) / float64(max(1, c.others))
	}
	byService := make(map[trace.Symbol]*compare.Suspect)
	for _, op := range slices.Sorted(maps.Keys(c.steps)) {
		d, called := c.steps[op], table.Target(op)
		excess := float64(d.missed) / float64(c.missed)
		if latency {
			excess = (excess - float64(d.others)/float64(c.others)) / max(1, duration)
		}
		excess *= share
		o := table.Operation(op)
		if called != 0 && latency {
			o = table.Operation(called)
		}
		if o.Service == 0 {
			continue // its name has been deleted
		}
		s := byService[o.Service]
		if s == nil {
			s = &compare.Suspect{Service: o.Service, Opaque: o.Kind == trace.External, Calls: 1}
			byService[o.Service] = s
		}
		s.Score += excess
		switch {
		case !latency:
			s.Errors += excess
		case called != 0:
			s.In += excess
		default:
			s.Own += excess
		}
		if excess > 0 {
			s.Operations = append(s.Operations, compare.SuspectOperation{Op: op, Score: excess})
		}
	}
	for _, service := range slices.Sorted(maps.Keys(byService)) {
		if s := byService[service]; s.Score >= leastContrast*share {
			s.Own, s.In = max(0, s.Own), max(0, s.In)
			s.Score = s.Own + s.In + s.Errors
			sorting.SliceStable(s.Operations,
				func(a, b compare.SuspectOperation) int { return cmp.Compare(b.Score, a.Score) })
			suspects = append(suspects, *s)
		}
	}
	sorting.SliceStable(suspects, func(a, b compare.Suspect) int { return cmp.Compare(b.Score, a.Score) })
	return suspects, duration
}

// SavedContrast is the saved form of a contrast.
type SavedContrast struct {
	Missed, Others int64
	Halved         int64
	Steps          []SavedStep // ascending
}

// SavedStep is the time, or the number of failures, at a step.
type SavedStep struct {
	Op             trace.Op
	Missed, Others int64
}

func (c *contrast) save() SavedContrast {
	s := SavedContrast{Missed: c.missed, Others: c.others, Halved: c.halved}
	for _, op := range slices.Sorted(maps.Keys(c.steps)) {
		s.Steps = append(s.Steps, SavedStep{op, c.steps[op].missed, c.steps[op].others})
	}
	return s
}

func (c *contrast) restore(s *SavedContrast) {
	*c = contrast{missed: max(0, s.Missed), others: max(0, s.Others), halved: s.Halved}
	for _, x := range s.Steps {
		*c.at(x.Op) = difference{x.Missed, x.Others}
	}
}
