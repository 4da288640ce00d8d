package offline

import (
	"context"
	"iter"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// simulatedSpans is the maximum number of spans in the simulated requests of a problem.
const simulatedSpans = 1 << 17

// explain returns a report on each problem. The first Options.Explained reports have findings.
func (a *analyzer) explain(ctx context.Context, problems []detect.Problem) ([]Problem, error) {
	e := newExplainer(a, problems[:min(len(problems), a.options.Explained)])
	for o, err := range a.each(ctx) {
		if err != nil {
			return nil, err
		}
		e.observe(o)
	}
	if err := e.simulate(ctx); err != nil {
		return nil, err
	}
	reports := make([]Problem, len(problems))
	for i := range problems {
		reports[i].Problem, reports[i].Findings = problems[i], explain.NoFindings()
		if i < a.options.Explained {
			e.explain(&reports[i])
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	a.report.Common = e.series.common()
	return reports, nil
}

// explainer collects the samples that explanations are based on.
type explainer struct {
	analyzer  *analyzer
	samples   map[analysis.Hash]*explain.Sample // by group or request type
	exemplars map[analysis.Hash]*exemplars      // by group or request type
	loads     map[analysis.Hash]*arrivals       // by request type
	series    *seriesSet
}

// arrivals holds the times of the requests of one type, to compute their load.
type arrivals struct {
	starts    []trace.Nanos
	durations []time.Duration
	load      *explain.Load // built on first use
}

func (r *arrivals) all() iter.Seq2[trace.Nanos, time.Duration] {
	return func(yield func(trace.Nanos, time.Duration) bool) {
		for i, start := range r.starts {
			if !yield(start, r.durations[i]) {
				return
			}
		}
	}
}

func newExplainer(a *analyzer, problems []detect.Problem) *explainer {
	e := &explainer{
		analyzer:  a,
		samples:   make(map[analysis.Hash]*explain.Sample),
		exemplars: make(map[analysis.Hash]*exemplars),
		loads:     make(map[analysis.Hash]*arrivals),
		series:    newSeriesSet(a),
	}
	for i := range problems {
		e.samples[problems[i].Group] = explain.NewSample(sampleSize, simulatedSpans)
		e.exemplars[problems[i].Group] = newExemplars()
		e.loads[problems[i].RequestType] = &arrivals{}
	}
	return e
}

func (e *explainer) observe(o *observation.Observation) {
	requestType := e.analyzer.types.Of(o)
	e.series.observe(requestType, o)
	if load := e.loads[requestType]; load != nil {
		load.starts = append(load.starts, o.Start)
		load.durations = append(load.durations, o.Duration)
	}
	group, _ := e.analyzer.grouper.Keys.Of(requestType, o)
	for _, id := range [2]analysis.Hash{requestType, group} {
		if s := e.samples[id]; s != nil {
			e.exemplars[id].observe(o)
			s.Observe(o, nil, nil)
		}
	}
}

// requestID identifies a request by its trace and root.
type requestID struct {
	trace trace.ID
	root  trace.SpanID
}

// simulate adds simulations to the samples. It reads the traces from the input again to capture them.
func (e *explainer) simulate(ctx context.Context) error {
	type member struct {
		sample  *explain.Sample
		request *explain.Sampled
	}
	wanted := make(map[requestID][]member)
	for _, s := range e.samples {
		for _, x := range s.ToSimulate() {
			id := requestID{x.Trace, x.Root}
			wanted[id] = append(wanted[id], member{s, x})
		}
	}
	ids := make([]trace.ID, 0, len(wanted))
	for id := range wanted {
		ids = append(ids, id.trace)
	}
	extractor := critpath.NewExtractor(e.analyzer.options.Path)
	var simulation critpath.Simulation
	for t, err := range e.analyzer.input.Find(ids) {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p := extractor.Extract(t)
		for i := range p.Roots {
			members := wanted[requestID{t.ID, p.Nodes[p.Roots[i].Node].ID}]
			if len(members) == 0 {
				continue
			}
			simulation.Capture(p, i)
			for _, m := range members {
				m.sample.Simulate(m.request, &simulation)
			}
		}
	}
	return nil
}

// explain fills in the findings and exemplars of r.
func (e *explainer) explain(r *Problem) {
	sample, load := e.samples[r.Group], e.loads[r.RequestType]
	if load.load == nil {
		load.load = explain.NewLoad(load.all())
	}
	sample.Measure(load.load)
	r.Findings = sample.Explain(&r.Problem, e.analyzer.report.Table, explain.Options{})
	r.Problem.Explanations = r.Findings.Explanations
	r.Exemplars = e.exemplars[r.Group].all()
}

// seriesSet holds the mean times of the leading edges of the most frequent request types in successive windows.
type seriesSet struct {
	first   trace.Nanos
	width   time.Duration
	windows int
	series  []explain.EdgeSeries
	byType  map[analysis.Hash][]int // indices of series, by request type
}

func newSeriesSet(a *analyzer) *seriesSet {
	s := &seriesSet{byType: make(map[analysis.Hash][]int)}
	first, last := a.span()
	s.width = max(explain.SeriesWindow, last.Sub(first)/explain.SeriesWindows)
	s.first = first
	s.windows = int(last.Sub(first)/s.width) + 1
	types := 0
	for i := range a.report.Groups {
		g := &a.report.Groups[i]
		if g.Level != group.LevelRequestType || types == explain.SeriesTypes {
			continue
		}
		types++
		for _, e := range g.Edges[:min(len(g.Edges), explain.SeriesEdges)] {
			s.byType[g.ID] = append(s.byType[g.ID], len(s.series))
			s.series = append(s.series, explain.EdgeSeries{
				RequestType: g.ID, Edge: e.Edge, Means: make([]float64, s.windows), Counts: make([]uint64, s.windows),
			})
		}
	}
	return s
}

// span returns the starts of the first and the last request, or zeros if there are no requests.
func (a *analyzer) span() (first, last trace.Nanos) {
	some := false
	for _, g := range a.grouper.Groups() {
		if w := &g.Current; w.Total.N > 0 && (!some || w.First < first) {
			first, some = w.First, true
		}
		last = max(last, g.Current.Last)
	}
	return first, last
}

// observe adds the times of o to the sums in Means, which common divides by the number of requests. It must not be
// called after common.
func (s *seriesSet) observe(requestType analysis.Hash, o *observation.Observation) {
	at := int(o.Start.Sub(s.first) / s.width)
	for _, i := range s.byType[requestType] {
		x := &s.series[i]
		x.Counts[at]++
		if c := o.Context(trace.Context(x.Edge)); c != nil { // all edges here are whole contexts
			x.Means[at] += float64(c.Exclusive)
		}
	}
}

// common returns the edges of different request types that rise and fall together, or nil if there are fewer than two
// types. It must be called once.
func (s *seriesSet) common() []explain.CommonEdges {
	if len(s.byType) < 2 {
		return nil
	}
	for i := range s.series {
		x := &s.series[i]
		for at, n := range x.Counts {
			x.Means[at] /= float64(max(n, 1))
		}
	}
	return explain.CommonOf(s.series)
}
