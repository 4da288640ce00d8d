package engine

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Bounds of explaining problems while they are open.
const (
	sampledProblems = 64  // whose requests are kept: as many as are investigated
	sampledRequests = 128 // of a problem
	firstLook       = 32  // requests that a problem had before it is explained; it is again when it had twice as many
	explainedAtOnce = 4   // problems an epoch
	explainedAlpha  = 0.02
)

// causes finds out what accounts for open problems, by a sample of the requests that they had since they were opened, or since
// attributes were captured for their sake.
type causes struct {
	samples  map[analysis.Hash]*requestSample // by group, or request type
	found    map[analysis.Hash]*found         // by problem
	captures map[trace.Symbol]bool            // tracepoints that capture attributes
}

// requestSample is a uniform sample of requests, each with the tracepoints that were on for it.
type requestSample struct {
	requests stats.Sample[planned]
	seen     uint64
}

type planned struct {
	*observation.Observation
	on []trace.Symbol // ascending
}

// found is what was found out about one problem.
type found struct {
	in           *requestSample
	seen         uint64 // requests by then, since the sample was begun
	looks        int    // at this sample
	explanations []detect.Explanation
}

func newCauses() *causes {
	return &causes{
		samples: make(map[analysis.Hash]*requestSample), found: make(map[analysis.Hash]*found),
		captures: make(map[trace.Symbol]bool),
	}
}

func (c *causes) announce(catalogue []cct.Tracepoint) {
	clear(c.captures)
	for i := range catalogue {
		if catalogue[i].Kind == cct.VariablePoint {
			c.captures[catalogue[i].ID] = true
		}
	}
}

// observe samples a request of a group, for which the given tracepoints were on.
func (c *causes) observe(group analysis.Hash, o *observation.Observation, on []trace.Symbol) {
	s := c.samples[group]
	if s == nil {
		return
	}
	s.seen++
	if key := o.Key(); s.requests.Accepts(key) {
		s.requests.Add(key, planned{o.Clone(), on})
	}
}

// explain fills in what accounts for the problems, ranked ones. It keeps samples of those under investigation, and looks at few of them
// at a time: at those that were located first.
func (c *causes) explain(problems []detect.Problem, state *search.State, table *trace.Table, seed uint64) {
	status := make(map[analysis.Hash]search.Status)
	for i := range state.Investigations {
		if v := &state.Investigations[i]; v.Status.Active() {
			status[v.Problem] = v.Status
		}
	}
	var open []*detect.Problem
	for i := range problems {
		if _, active := status[problems[i].ID]; active && len(open) < sampledProblems {
			open = append(open, &problems[i])
		}
	}
	c.keep(problems, open)
	slices.SortStableFunc(open, func(a, b *detect.Problem) int { return cmp.Compare(status[b.ID], status[a.ID]) })
	looks := 0
	for _, p := range open {
		s, f := c.samples[p.Group], c.found[p.ID]
		if f.in != s {
			f.in, f.seen, f.looks = s, 0, 0
		}
		if s.seen >= max(firstLook, 2*f.seen) && looks < explainedAtOnce {
			looks++
			f.look(p, table, seed)
		}
	}
	for i := range problems {
		if f := c.found[problems[i].ID]; f != nil {
			problems[i].Explanations = f.explanations
		}
	}
}

// keep begins to sample the requests of open problems, and forgets those of others; what was found about a problem is kept as long as there
// is the problem.
func (c *causes) keep(problems []detect.Problem, open []*detect.Problem) {
	samples, all := make(map[analysis.Hash]*requestSample), make(map[analysis.Hash]*found)
	for i := range problems {
		if f := c.found[problems[i].ID]; f != nil {
			all[problems[i].ID] = f
		}
	}
	for _, p := range open {
		if all[p.ID] == nil {
			all[p.ID] = &found{}
		}
		if samples[p.Group] = c.samples[p.Group]; samples[p.Group] == nil {
			samples[p.Group] = newRequestSample()
		}
	}
	c.samples, c.found = samples, all
}

func newRequestSample() *requestSample {
	return &requestSample{requests: stats.NewSample[planned](sampledRequests)}
}

// all returns the sampled requests and whether a tracepoint was on for one of them.
func (s *requestSample) all() (requests []*observation.Observation, isOn func(o *observation.Observation, tracepoint trace.Symbol) bool) {
	on := make(map[*observation.Observation][]trace.Symbol, s.requests.Len())
	for _, o := range s.requests.All() {
		requests = append(requests, o.Observation)
		on[o.Observation] = o.on
	}
	return requests, func(o *observation.Observation, tracepoint trace.Symbol) bool {
		_, is := slices.BinarySearch(on[o], tracepoint)
		return is
	}
}

// Sampled returns a uniform sample of the requests of a group since it has a problem under investigation; nil if it has none. The
// requests must not be changed.
func (c *Core) Sampled(group analysis.Hash) []*observation.Observation {
	s := c.causes.samples[group]
	if s == nil {
		return nil
	}
	requests, _ := s.all()
	return requests
}

// Frequencies compares the attributes of two disjoint sets of the sampled requests of a group, see [explain.Frequencies].
func (c *Core) Frequencies(group analysis.Hash, a, b []*observation.Observation) []explain.Frequency {
	s := c.causes.samples[group]
	if s == nil {
		return nil
	}
	_, isOn := s.all()
	return explain.Frequencies(a, b, c.table, explain.Options{On: isOn})
}

// look explains p by the sample. Of looks at one sample the k-th may err with a probability of alpha/k(k+1), all together with alpha.
func (f *found) look(p *detect.Problem, table *trace.Table, seed uint64) {
	f.seen = f.in.seen
	f.looks++
	requests, isOn := f.in.all()
	f.explanations = explain.Associate(p, requests, table, explain.Options{
		Alpha: explainedAlpha / float64(f.looks*(f.looks+1)), Seed: seed, On: isOn,
	}).Explanations
}

// follow begins anew where the decisions have attributes captured: requests before have no values of these.
func (c *causes) follow(decisions []search.Decision) {
	for i := range decisions {
		d := &decisions[i]
		capturing := slices.ContainsFunc(d.Picks, func(p search.Pick) bool { return c.captures[p.Tracepoint] })
		if group := d.Group.Group; capturing && c.samples[group] != nil {
			c.samples[group] = newRequestSample()
		}
	}
}
