package engine

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Limits on explaining open problems.
const (
	sampledProblems = 64      // maximum number of problems with a sample; problems under investigation come first
	sampledRequests = 128     // sampled requests per problem
	simulatedSpans  = 1 << 13 // maximum number of sampled spans per problem that are kept for simulation
	// Requests sampled before the first explanation. The explanation is repeated each time the number has doubled.
	firstLook       = 32
	explainedAtOnce = 4 // maximum number of problems explained per epoch
	explainedAlpha  = 0.02
)

// causes explains open problems from a sample of their requests. A sample starts when the problem opens, and restarts
// when tracepoints start to capture attributes for it.
type causes struct {
	samples  map[analysis.Hash]*groupSample        // by group or request type
	loads    map[analysis.Hash]*explain.RecentLoad // by request type of a sample
	found    map[analysis.Hash]*found              // by problem
	closed   map[analysis.Hash]*found              // by problem that closed in the last epoch
	captures map[trace.Symbol]bool                 // tracepoints that capture attributes
}

// groupSample is a sample of the requests of a group or request type.
type groupSample struct {
	*explain.Sample
	requestType analysis.Hash
}

// found is the state of one problem's explanation.
type found struct {
	in       *groupSample
	seen     uint64 // number of requests added to the sample by the last look
	looks    int    // number of looks at the current sample
	findings explain.Findings
}

func newCauses() *causes {
	return &causes{
		samples: make(map[analysis.Hash]*groupSample), loads: make(map[analysis.Hash]*explain.RecentLoad),
		found: make(map[analysis.Hash]*found), captures: make(map[trace.Symbol]bool),
	}
}

// announce records the tracepoints that capture attributes.
func (c *causes) announce(catalogue iter.Seq[*cct.Tracepoint]) {
	clear(c.captures)
	for t := range catalogue {
		if t.Kind == cct.VariablePoint {
			c.captures[t.ID] = true
		}
	}
}

// arrive adds o to the load of its request type, if that load is tracked.
func (c *causes) arrive(requestType analysis.Hash, o *observation.Observation) {
	if l := c.loads[requestType]; l != nil {
		l.Observe(o)
	}
}

// observe adds o to the sample of group, if it has one. enabled lists the tracepoints that were enabled for o.
func (c *causes) observe(
	group analysis.Hash, o *observation.Observation, enabled []trace.Symbol, simulation *critpath.Simulation,
) {
	if s := c.samples[group]; s != nil {
		s.Observe(o, enabled, simulation)
	}
}

// endEpoch ends an epoch of the loads and adds them to the samples.
func (c *causes) endEpoch() {
	for _, l := range c.loads {
		l.Close()
	}
	for _, s := range c.samples {
		s.Count(c.loads[s.requestType])
	}
}

// explain updates the explanations of problems, which must be ranked. It samples requests of at most sampledProblems
// problems, those under investigation first, and explains at most explainedAtOnce of them per call, located ones first.
func (c *causes) explain(problems []detect.Problem, state *search.State, table *trace.Table, seed uint64) {
	investigated := make(map[search.Subject]int) // 1 + status
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
	sorting.SliceStable(open, func(a, b *detect.Problem) int { // problems that have a sample keep it when ranks change
		return cmp.Or(cmp.Compare(min(1, status(b)), min(1, status(a))),
			cmp.Compare(b2i(c.samples[b.Group] != nil), b2i(c.samples[a.Group] != nil)))
	})
	open = open[:min(len(open), sampledProblems)]
	c.keep(problems, open)
	sorting.SliceStable(open, func(a, b *detect.Problem) int { return cmp.Compare(status(b), status(a)) })
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

// keep starts samples for the problems in open and drops all other samples. It keeps the findings of all problems.
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

// keepLoads tracks the loads of the request types that are sampled, and drops all others.
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

// look explains p from its sample. The kth look at a sample has an error probability of explainedAlpha/k(k+1), so the
// error probability of all looks together is at most explainedAlpha.
func (f *found) look(p *detect.Problem, table *trace.Table, seed uint64) {
	f.seen = f.in.Seen()
	f.looks++
	f.findings = f.in.Explain(p, table,
		explain.Options{Alpha: explainedAlpha / float64(f.looks*(f.looks+1)), Seed: seed})
}

// restartSamples restarts the sample of each problem for which decisions start to capture attributes, because the
// requests sampled so far lack them.
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

// savedFound is the saved form of a found explanation.
type savedFound struct {
	Problem  analysis.Hash
	Present  bool // the explanation comes from the group's current sample
	Group    analysis.Hash
	Seen     uint64
	Looks    int
	Findings explain.Findings
}

// save adds the state of c to s.
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
		s.Found = append(s.Found, savedFound{
			Problem:  id,
			Present:  present,
			Group:    group,
			Seen:     f.seen,
			Looks:    f.looks,
			Findings: f.findings,
		})
	}
}

// restore is the inverse of save. Errors wrap [codec.ErrCorrupt].
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
