package engine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Bounds of explaining problems while they are open.
const (
	sampledProblems = 64      // whose requests are sampled: at least those under investigation
	sampledRequests = 128     // of a problem
	simulatedSpans  = 1 << 13 // of the requests of a problem that are simulated
	firstLook       = 32      // requests at which a problem is first explained; then whenever their number has doubled
	explainedAtOnce = 4       // problems in an epoch
	explainedAlpha  = 0.02
)

// causes explains open problems from samples of their requests since they were opened, or since attributes were
// captured for them.
type causes struct {
	samples  map[analysis.Hash]*groupSample        // by group or request type
	loads    map[analysis.Hash]*explain.RecentLoad // by request type of the samples
	found    map[analysis.Hash]*found              // by problem
	closed   map[analysis.Hash]*found              // by problem that closed in the last epoch
	captures map[trace.Symbol]bool                 // tracepoints that capture attributes
}

// groupSample is a sample of the requests of a group or request type.
type groupSample struct {
	*explain.Sample
	requestType analysis.Hash
}

// found is the state of the explanation of one problem.
type found struct {
	in       *groupSample
	seen     uint64 // requests in the sample at the last look
	looks    int    // at this sample
	findings explain.Findings
}

func newCauses() *causes {
	return &causes{
		samples: make(map[analysis.Hash]*groupSample), loads: make(map[analysis.Hash]*explain.RecentLoad),
		found: make(map[analysis.Hash]*found), captures: make(map[trace.Symbol]bool),
	}
}

// announce sets the tracepoints that capture attributes.
func (c *causes) announce(catalogue []cct.Tracepoint) {
	clear(c.captures)
	for i := range catalogue {
		if catalogue[i].Kind == cct.VariablePoint {
			c.captures[catalogue[i].ID] = true
		}
	}
}

// arrive adds a request to the load of its type, if that is needed.
func (c *causes) arrive(requestType analysis.Hash, o *observation.Observation) {
	if l := c.loads[requestType]; l != nil {
		l.Observe(o)
	}
}

// observe samples a request of a group, for which the given tracepoints were enabled.
func (c *causes) observe(group analysis.Hash, o *observation.Observation, enabled []trace.Symbol, simulation *critpath.Simulation) {
	if s := c.samples[group]; s != nil {
		s.Observe(o, enabled, simulation)
	}
}

// endEpoch ends the epoch of the loads and brings the samples up to date.
func (c *causes) endEpoch() {
	for _, l := range c.loads {
		l.Close()
	}
	for _, s := range c.samples {
		s.Count(c.loads[s.requestType])
	}
}

// explain sets the explanations of the problems, which are ranked. It samples the requests of the first problems, those
// under investigation before all others, and explains a few of them at a time, located ones first.
func (c *causes) explain(problems []detect.Problem, state *search.State, table *trace.Table, seed uint64) {
	investigated := make(map[search.Subject]int) // status and 1
	for i := range state.Investigations {
		if v := &state.Investigations[i]; v.Status.Active() {
			investigated[v.Subject] = 1 + int(v.Status)
		}
	}
	status := func(p *detect.Problem) int { return investigated[search.OfProblem(p.ID)] } // 0: not under investigation
	open := make([]*detect.Problem, len(problems))
	for i := range problems {
		open[i] = &problems[i]
	}
	slices.SortStableFunc(open, func(a, b *detect.Problem) int { // a problem that is sampled stays so while ranks change
		return cmp.Or(cmp.Compare(min(1, status(b)), min(1, status(a))), cmp.Compare(b2i(c.samples[b.Group] != nil), b2i(c.samples[a.Group] != nil)))
	})
	open = open[:min(len(open), sampledProblems)]
	c.keep(problems, open)
	slices.SortStableFunc(open, func(a, b *detect.Problem) int { return cmp.Compare(status(b), status(a)) })
	looks := 0
	for _, p := range open {
		s, f := c.samples[p.Group], c.found[p.ID]
		if f.in != s {
			f.in, f.seen, f.looks = s, 0, 0
		}
		if s.Seen() >= max(firstLook, 2*f.seen) && looks < explainedAtOnce {
			looks++
			f.look(p, table, seed)
		}
	}
	for i := range problems {
		if f := c.found[problems[i].ID]; f != nil {
			problems[i].Explanations = f.findings.Explanations
		}
	}
}

// keep starts samples for open problems and drops all other samples. It keeps the findings of all problems.
func (c *causes) keep(problems []detect.Problem, open []*detect.Problem) {
	samples, all := make(map[analysis.Hash]*groupSample), make(map[analysis.Hash]*found)
	for i := range problems {
		if f := c.found[problems[i].ID]; f != nil {
			all[problems[i].ID] = f
		}
	}
	for _, p := range open {
		if all[p.ID] == nil {
			all[p.ID] = &found{findings: explain.NoFindings()}
		}
		if samples[p.Group] = c.samples[p.Group]; samples[p.Group] == nil {
			samples[p.Group] = newGroupSample(p.RequestType)
		}
	}
	c.closed = maps.Clone(c.found)
	maps.DeleteFunc(c.closed, func(id analysis.Hash, _ *found) bool { return all[id] != nil })
	c.samples, c.found = samples, all
	c.keepLoads()
}

// keepLoads keeps the loads of the request types that are sampled.
func (c *causes) keepLoads() {
	sampled := make(map[analysis.Hash]bool, len(c.samples))
	for _, s := range c.samples {
		sampled[s.requestType] = true
		if c.loads[s.requestType] == nil {
			c.loads[s.requestType] = &explain.RecentLoad{}
		}
	}
	maps.DeleteFunc(c.loads, func(id analysis.Hash, _ *explain.RecentLoad) bool { return !sampled[id] })
}

func newGroupSample(requestType analysis.Hash) *groupSample {
	return &groupSample{explain.NewSample(sampledRequests, simulatedSpans), requestType}
}

// look explains p by the sample. The kth look at one sample has an error probability of alpha/k(k+1), all together
// alpha.
func (f *found) look(p *detect.Problem, table *trace.Table, seed uint64) {
	f.seen = f.in.Seen()
	f.looks++
	f.findings = f.in.Explain(p, table, explain.Options{Alpha: explainedAlpha / float64(f.looks*(f.looks+1)), Seed: seed})
}

// restartSamples starts new samples where the decisions enable captures of attributes, which earlier requests do not
// have.
func (c *causes) restartSamples(decisions []search.Decision) {
	for i := range decisions {
		d := &decisions[i]
		capturing := slices.ContainsFunc(d.Picks, func(p search.Pick) bool { return c.captures[p.Tracepoint] })
		if s := c.samples[d.Group.Group]; capturing && s != nil {
			c.samples[d.Group.Group] = newGroupSample(s.requestType)
		}
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// savedSample is the saved form of a groupSample.
type savedSample struct {
	Group       analysis.Hash
	RequestType analysis.Hash
	Sample      []byte
}

// savedFound is the saved form of what was found about a problem.
type savedFound struct {
	Problem  analysis.Hash
	Present  bool // it refers to the present sample of the group
	Group    analysis.Hash
	Seen     uint64
	Looks    int
	Findings explain.Findings
}

// save adds c to s.
func (c *causes) save(s *savedCore) {
	for _, id := range hashes(c.samples) {
		x := c.samples[id]
		s.Samples = append(s.Samples, savedSample{Group: id, RequestType: x.requestType, Sample: x.AppendBinary(nil)})
	}
	for _, id := range hashes(c.loads) {
		s.Loads = append(s.Loads, savedPart{id, c.loads[id].AppendBinary(nil)})
	}
	groups := make(map[*groupSample]analysis.Hash, len(c.samples))
	for id, sample := range c.samples {
		groups[sample] = id
	}
	for _, id := range hashes(c.found) {
		f := c.found[id]
		group, present := groups[f.in]
		s.Found = append(s.Found, savedFound{Problem: id, Present: present, Group: group, Seen: f.seen, Looks: f.looks, Findings: f.findings})
	}
}

// restore is the inverse of save. The error wraps [codec.ErrCorrupt].
func (c *causes) restore(s *savedCore) error {
	for i := range s.Samples {
		x := &s.Samples[i]
		sample, _, err := explain.DecodeSample(x.Sample)
		if err != nil {
			return err
		}
		c.samples[x.Group] = &groupSample{requestType: x.RequestType, Sample: sample}
	}
	for _, x := range s.Loads {
		l, _, err := explain.DecodeRecentLoad(x.Data)
		if err != nil {
			return err
		}
		c.loads[x.ID] = l
	}
	c.keepLoads()
	for i := range s.Found {
		x := &s.Found[i]
		f := &found{seen: x.Seen, looks: x.Looks, findings: x.Findings}
		if x.Present {
			f.in = c.samples[x.Group]
		}
		c.found[x.Problem] = f
	}
	return nil
}
