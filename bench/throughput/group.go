package throughput

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// Size of the input.
const (
	observationBytes  = 6 << 10 // of a request of 50 spans, approximately
	manyGroups        = 100_000
	edgesPerGroup     = 20
	groupsPerType     = 100
	requestsPerWindow = 32 // the size of a window's sample
	epochsPerGroup    = 10 // the number of windows in a group's history
)

// Group measures grouping: from traces to observations, from observations to statistics, and from encoded requests to
// statistics. It also measures the memory of many groups, and the times to judge them and to rank many problems.
func Group(ctx context.Context, o Options) (*Result, error) {
	o = o.withDefaults()
	result := &Result{Benchmark: "group", Input: "at least " + mebibytes(o.Bytes) + " of distinct traces of " +
		units.Plural(spansPerTrace, "span")}
	for _, step := range []func(context.Context, *Result) error{
		o.measureObserver, o.measureGrouper, o.measurePipeline, o.measureManyGroups,
	} {
		if err := step(ctx, result); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// measureObserver measures the extraction of critical paths together with their reduction to observations.
func (o Options) measureObserver(ctx context.Context, result *Result) error {
	var table trace.Table
	traces := requestTraces(o.Seed, &table, 200, spansPerTrace, o.Bytes)
	x := critpath.NewExtractor(critpath.DefaultOptions())
	var observer observation.Observer
	var into observation.Observation
	c, err := o.measure(ctx, func() error {
		for _, t := range traces {
			observer.Observe(x.Extract(t), 0, &into)
		}
		return nil
	})
	if err != nil {
		return err
	}
	result.add("trace to observation", c.rate(len(traces)*spansPerTrace, "spans_per_second", "spans"),
		c.each(len(traces), "ns_per_observation", "observation"),
		c.allocated(len(traces), "allocations_per_observation", "observation"))
	return nil
}

// measureGrouper measures the addition of observations to the statistics of groups.
func (o Options) measureGrouper(ctx context.Context, result *Result) error {
	var table trace.Table
	n := o.Bytes/observationBytes + 1
	traces := requestTraces(o.Seed, &table, 200, spansPerTrace, n*spansPerTrace*spanBytes)[:n]
	x := critpath.NewExtractor(critpath.DefaultOptions())
	types := &group.RequestTypes{}
	var observer observation.Observer
	observations := make([]*observation.Observation, len(traces))
	for i, t := range traces {
		var one observation.Observation
		observer.Observe(x.Extract(t), 0, &one)
		types.Learn(&one)
		observations[i] = one.Clone()
	}
	types.Freeze()
	g := group.NewGrouper(types, &table, group.Options{})
	c, err := o.measure(ctx, func() error {
		for _, one := range observations {
			g.Observe(one)
		}
		return nil
	})
	if err != nil {
		return err
	}
	result.add("observation to statistics", c.rate(n*spansPerTrace, "spans_per_second", "spans"),
		c.each(n, "ns_per_observation", "observation"),
		c.allocated(n, "allocations_per_observation", "observation"))
	return nil
}

// measurePipeline measures the pipeline from encoded requests to the statistics of groups.
func (o Options) measurePipeline(ctx context.Context, result *Result) error {
	in, err := o.requests("protobuf")
	if err != nil {
		return err
	}
	keys, err := ingest.NewKeys(wantedKeys...)
	if err != nil {
		return err
	}
	p := pipeline{
		table: &trace.Table{}, extractor: critpath.NewExtractor(critpath.DefaultOptions()),
		types: &group.RequestTypes{},
	}
	p.decoder = otlp.NewDecoder(p.table, keys)
	if err := p.run(in); err != nil { // learns the request types
		return err
	}
	p.types.Freeze()
	p.grouper = group.NewGrouper(p.types, p.table, group.Options{})
	c, err := o.measure(ctx, func() error { return p.run(in) })
	if err != nil {
		return err
	}
	result.add("bytes to statistics", c.rate(in.spans, "spans_per_second", "spans"),
		c.allocated(in.spans, "allocations_per_span", "span"))
	return nil
}

// pipeline turns encoded requests into statistics.
type pipeline struct {
	table     *trace.Table
	decoder   *otlp.Decoder
	extractor *critpath.Extractor
	observer  observation.Observer
	types     *group.RequestTypes
	grouper   *group.Grouper // nil while request types are learned
	batch     ingest.Batch
	one       observation.Observation
}

func (p *pipeline) run(in *requests) (err error) {
	open := assemble.NewOffline(assemble.Options{})
	for _, data := range in.data {
		p.batch.Reset()
		if err := p.decoder.Protobuf(data, &p.batch); err != nil {
			return err
		}
		if err := open.Add(&p.batch); err != nil {
			return err
		}
	}
	for t, err := range open.All() {
		if err != nil {
			return err
		}
		p.observer.Observe(p.extractor.Extract(t), 0, &p.one)
		if p.grouper == nil {
			p.types.Learn(&p.one)
		} else {
			p.grouper.Observe(&p.one)
		}
	}
	return open.Close()
}

// measureManyGroups measures the memory of many groups, and the time to judge them.
func (o Options) measureManyGroups(ctx context.Context, result *Result) error {
	groups := manyGroups
	if o.Small {
		groups = 10 * groupsPerType
	}
	before := heap()
	g, err := newFullGrouper(ctx, groups)
	if err != nil {
		return err
	}
	bytes := heap() - before
	begin := time.Now()
	found := detect.New(g).Chronic(detect.Thresholds{CoV: 0.15, MinSamples: requestsPerWindow}, detect.ByImpact)
	judged := time.Since(begin)
	if want := groups / 10; len(found) < want {
		return fmt.Errorf("%d problems in %d groups, want %d", len(found), groups, want)
	}
	result.add(units.Plural(groups, "group")+" of "+units.Plural(edgesPerGroup, "edge"),
		Value{"bytes", float64(bytes), mebibytes(bytes)},
		Value{"bytes_per_group", float64(bytes / groups), units.Count(bytes/groups) + " bytes/group"})
	result.add("judging all groups", Value{"ns", float64(judged), units.Duration(judged)})
	return nil
}

// heap returns the size of the live heap in bytes.
func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// newFullGrouper returns a grouper with n groups, each with a full history. One group in five varies enough to be a
// problem.
func newFullGrouper(ctx context.Context, n int) (*group.Grouper, error) {
	types := &group.RequestTypes{}
	types.Freeze()
	g := group.NewGrouper(types, &trace.Table{}, group.Options{Groups: n + n/groupsPerType + 1})
	for epoch := range epochsPerGroup {
		for i := range n {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			one := groupObservation(i)
			for k := range requestsPerWindow / 4 {
				setTimes(one, i, epoch*requestsPerWindow+k)
				g.Observe(one)
			}
		}
		age := 1000 >> epoch // in ticks; every window of the history has requests
		g.EndEpoch(trace.Nanos(1e15).Add(-time.Duration(age) * stats.Tick))
	}
	return g, nil
}

// groupObservation returns a request of group i. Its edges have contexts that no other group has.
func groupObservation(i int) *observation.Observation {
	o := &observation.Observation{
		Entry:    trace.OpOf(1, trace.Symbol(1+i/groupsPerType), trace.Server),
		Skeleton: analysis.Hash{Hi: 1, Lo: uint64(i)},
		Edges:    make([]observation.EdgeTime, edgesPerGroup),
	}
	root := trace.Context(0).Child(o.Entry)
	for k := range o.Edges {
		ctx := root.Child(trace.OpOf(2, trace.Symbol(1+k+(i%groupsPerType)/10*edgesPerGroup), trace.Internal))
		o.Edges[k] = observation.EdgeTime{Context: ctx, Edge: trace.EdgeOf(ctx, 0, 0)}
		o.Contexts = append(o.Contexts, observation.ContextCount{Context: ctx, Parent: root, Count: 1})
	}
	slices.SortFunc(o.Edges, func(a, b observation.EdgeTime) int { return cmp.Compare(a.Edge, b.Edge) })
	slices.SortFunc(o.Contexts, func(a, b observation.ContextCount) int { return cmp.Compare(a.Context, b.Context) })
	return o
}

// setTimes sets the identity and the times of request k of group i.
func setTimes(o *observation.Observation, i, k int) {
	h := trace.Mix(uint64(i)+1, uint64(k)+1)
	o.Trace = trace.ID{
		0: byte(h), 1: byte(h >> 8), 2: byte(h >> 16), 3: byte(h >> 24), 4: byte(h >> 32), 5: byte(h >> 40), 15: 1,
	}
	o.Root, o.Start, o.Duration = trace.SpanID(h), trace.Nanos(int64(i)*1000+int64(k)), 0
	for j := range o.Edges {
		e := &o.Edges[j]
		e.Nanos = 1_000_000 + int64(trace.Mix(h, uint64(j)+1)%50_000)
		if j == 0 && i%5 == 0 {
			e.Nanos += int64(h%40) * 1_000_000
		}
		o.Duration += time.Duration(e.Nanos)
	}
}
