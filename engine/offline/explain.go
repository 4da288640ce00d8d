package offline

import (
	"context"
	"iter"
	"math"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// contrastKeys are the attributes that identify hosts and versions of a service; healthy ones are the reference for
// slow ones.
var contrastKeys = [...]string{"host.name", "k8s.pod.name", "service.instance.id", "service.version"}

// Bounds of the comparison of edges of different request types.
const (
	seriesOfType    = 5 // edges of a request type
	typesCompared   = 40
	windowsCompared = 360
	shortestWindow  = 10 * time.Second
)

// explain returns the problems, the first ones with their explanations.
func (a *analyzer) explain(ctx context.Context, problems []detect.Problem) ([]Problem, error) {
	e := newExplainer(a, problems[:min(len(problems), a.options.Explained)])
	for o, err := range a.each(ctx) {
		if err != nil {
			return nil, err
		}
		e.observe(o)
	}
	reports := make([]Problem, len(problems))
	for i := range problems {
		reports[i].Problem, reports[i].Joint = problems[i], math.NaN()
		if i < a.options.Explained {
			e.explain(&reports[i])
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	if err := e.simulations.run(ctx, a); err != nil {
		return nil, err
	}
	a.report.Common = e.series.common()
	return reports, nil
}

// explainer collects the samples that explanations rest on.
type explainer struct {
	*analyzer
	samples     map[analysis.Hash]*stats.Sample[*observation.Observation] // by group or request type
	exemplars   map[analysis.Hash]*exemplars                              // by group or request type
	loads       map[analysis.Hash]*arrivals                               // by request type
	series      *seriesSet
	simulations *simulations
}

// arrivals are the requests of one type.
type arrivals struct {
	starts    []trace.Nanos
	durations []time.Duration
	load      *explain.Load // built at the first use
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
		analyzer: a, samples: make(map[analysis.Hash]*stats.Sample[*observation.Observation]),
		exemplars: make(map[analysis.Hash]*exemplars), loads: make(map[analysis.Hash]*arrivals), series: newSeriesSet(a),
		simulations: newSimulations(),
	}
	for i := range problems {
		s := stats.NewSample[*observation.Observation](sampleSize)
		e.samples[problems[i].Group] = &s
		e.exemplars[problems[i].Group] = newExemplars()
		e.loads[problems[i].RequestType] = &arrivals{}
	}
	return e
}

func (e *explainer) observe(o *observation.Observation) {
	requestType := e.types.Of(o)
	e.series.observe(requestType, o)
	if load := e.loads[requestType]; load != nil {
		load.starts = append(load.starts, o.Start)
		load.durations = append(load.durations, o.Duration)
	}
	group, _ := e.grouper.Keys.Of(requestType, o)
	for _, id := range [2]analysis.Hash{requestType, group} {
		s := e.samples[id]
		if s == nil {
			continue
		}
		e.exemplars[id].observe(o)
		if s.Accepts(o.Key()) {
			s.Add(o.Key(), o.Clone())
		}
	}
}

// explain fills in the explanations of one problem.
func (e *explainer) explain(r *Problem) {
	p := &r.Problem
	var requests []*observation.Observation
	for _, o := range e.samples[p.Group].All() {
		requests = append(requests, o)
	}
	load := e.loads[p.RequestType]
	if load.load == nil {
		load.load = explain.NewLoad(load.all())
	}
	options := explain.Options{Concurrency: load.load.Concurrency}
	a := explain.Associate(p, requests, e.report.Table, options)
	p.Explanations, r.Joint, r.Unrelated = a.Explanations, a.Joint, a.Unrelated
	for _, key := range contrastKeys { // where the leading edge has them
		by := explain.ContrastBy{Key: trace.SymbolOf([]byte(key)), Context: p.Edges[0].Context}
		for _, c := range explain.Contrast(p, requests, by, e.report.Table, options) {
			r.Contrasts = append(r.Contrasts, NamedContrast{Key: key, Contrasted: c})
		}
	}
	e.simulations.add(r, requests)
	r.Exemplars = e.exemplars[p.Group].all()
}

// seriesSet holds the mean times, in successive windows, of the leading edges of the most frequent request types.
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
	s.width = max(shortestWindow, last.Sub(first)/windowsCompared)
	s.first = first
	s.windows = int(last.Sub(first)/s.width) + 1
	types := 0
	for i := range a.report.Groups {
		g := &a.report.Groups[i]
		if g.Level != group.LevelRequestType || types == typesCompared {
			continue
		}
		types++
		for _, e := range g.Edges[:min(len(g.Edges), seriesOfType)] {
			s.byType[g.ID] = append(s.byType[g.ID], len(s.series))
			s.series = append(s.series, explain.EdgeSeries{
				RequestType: g.ID, Edge: e.Edge, Means: make([]float64, s.windows), Counts: make([]uint64, s.windows),
			})
		}
	}
	return s
}

// span returns the starts of the first and the last request.
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

// observe adds up times; common divides them by the requests.
func (s *seriesSet) observe(requestType analysis.Hash, o *observation.Observation) {
	at := int(o.Start.Sub(s.first) / s.width)
	for _, i := range s.byType[requestType] {
		x := &s.series[i]
		x.Counts[at]++
		if c := o.Context(trace.Context(x.Edge)); c != nil { // a whole edge is its context
			x.Means[at] += float64(c.Exclusive)
		}
	}
}

// common returns the edges of different request types that rise and fall together.
func (s *seriesSet) common() []CommonEdges {
	if len(s.byType) < 2 {
		return nil
	}
	for i := range s.series {
		x := &s.series[i]
		for at, n := range x.Counts {
			x.Means[at] /= float64(max(n, 1))
		}
	}
	var all []CommonEdges
	for _, c := range explain.Common(s.series, explain.CommonOptions{}) {
		common := CommonEdges{Correlation: c.Correlation, PValue: c.PValue}
		for _, i := range c.Series {
			common.Edges = append(common.Edges, TypedEdge{RequestType: s.series[i].RequestType, Context: trace.Context(s.series[i].Edge)})
		}
		all = append(all, common)
	}
	return all
}
