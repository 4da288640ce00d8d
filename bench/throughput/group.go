package throughput

import (
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

// Sizes of what grouping is measured on.
const (
	observationBytes = 6 << 10 // about, of a request of 50 spans
	manyGroups       = 100_000
	edgesOfGroup     = 20
	groupsOfType     = 100
	requestsOfWindow = 32 // as many as a window samples
	epochsOfGroup    = 10 // as many windows as are kept of the past
	manyProblems     = 10_000
)

// Group measures grouping: from paths to observations, from observations to statistics, the whole way from bytes to
// statistics, and how much memory many groups take and how long it takes to judge them.
func Group(ctx context.Context, o Options) (*Result, error) {
	o = o.withDefaults()
	result := &Result{Benchmark: "group", Input: "at least " + mebibytes(o.Bytes) + " of distinct traces of " + units.Plural(spansOfTrace, "span")}
	for _, step := range []func(context.Context, *Result) error{o.observing, o.grouping, o.pipeline, o.state} {
		if err := step(ctx, result); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// observing measures extraction and observation.
func (o Options) observing(ctx context.Context, result *Result) error {
	var table trace.Table
	traces := requestTraces(o.Seed, &table, 200, spansOfTrace, o.Bytes)
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
	result.add("trace to observation", c.rate(len(traces)*spansOfTrace, "spans_per_second", "spans"),
		c.each(len(traces), "ns_per_observation", "observation"), c.allocated(len(traces), "allocations_per_observation", "observation"))
	return nil
}

// grouping measures what an observation costs the groups.
func (o Options) grouping(ctx context.Context, result *Result) error {
	var table trace.Table
	n := o.Bytes/observationBytes + 1
	traces := requestTraces(o.Seed, &table, 200, spansOfTrace, n*spansOfTrace*spanBytes)[:n]
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
	result.add("observation to statistics", c.rate(n*spansOfTrace, "spans_per_second", "spans"), c.each(n, "ns_per_observation", "observation"),
		c.allocated(n, "allocations_per_observation", "observation"))
	return nil
}

// pipeline measures the whole way from the bytes of requests to the statistics of groups.
func (o Options) pipeline(ctx context.Context, result *Result) error {
	in, err := o.requests("protobuf")
	if err != nil {
		return err
	}
	keys, err := ingest.NewKeys(wantedKeys...)
	if err != nil {
		return err
	}
	p := pipeline{table: &trace.Table{}, extractor: critpath.NewExtractor(critpath.DefaultOptions()), types: &group.RequestTypes{}}
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
	result.add("bytes to statistics", c.rate(in.spans, "spans_per_second", "spans"), c.allocated(in.spans, "allocations_per_span", "span"))
	return nil
}

// pipeline is all that lies between bytes and statistics.
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

// state measures the memory that many groups take, and how long it takes to judge them all.
func (o Options) state(ctx context.Context, result *Result) error {
	groups, problems := manyGroups, manyProblems
	if o.Small {
		groups, problems = 10*groupsOfType, 100
	}
	before := heap()
	g, err := fill(ctx, groups)
	if err != nil {
		return err
	}
	bytes := heap() - before
	begin := time.Now()
	found := detect.New(g).Chronic(detect.Thresholds{CoV: 0.15, MinSamples: requestsOfWindow})
	judged := time.Since(begin)
	if len(found) < problems {
		return fmt.Errorf("%d problems in %d groups, want %d", len(found), groups, problems)
	}
	found = found[:problems]
	c, err := o.measure(ctx, func() error {
		detect.Rank(slices.Clone(found))
		return nil
	})
	if err != nil {
		return err
	}
	result.add(units.Plural(groups, "group")+" of "+units.Plural(edgesOfGroup, "edge"),
		Value{"bytes", float64(bytes), mebibytes(bytes)}, Value{"bytes_per_group", float64(bytes / groups), units.Count(bytes/groups) + " bytes/group"})
	result.add("all of them judged", Value{"ns", float64(judged), units.Duration(judged)})
	result.add(units.Plural(problems, "problem")+" ranked", c.each(1, "ns", "ranking"))
	return nil
}

// heap returns the bytes that are in use.
func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// fill returns a grouper with n groups, each with all that is kept of its past and two full windows, one in five of them variable.
func fill(ctx context.Context, n int) (*group.Grouper, error) {
	types := &group.RequestTypes{}
	types.Freeze()
	g := group.NewGrouper(types, &trace.Table{}, group.Options{Groups: n + n/groupsOfType + 1})
	for epoch := range epochsOfGroup {
		for i := range n {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			one := groupObservation(i)
			for k := range requestsOfWindow / 4 {
				vary(one, i, epoch*requestsOfWindow+k)
				g.Observe(one)
			}
		}
		age := 1000 >> epoch // in ticks: so that every window of the past has some
		g.Close(trace.Nanos(1e15).Add(-time.Duration(age) * stats.Tick))
	}
	return g, nil
}

// groupObservation returns a request of group i: 20 edges at places of their own.
func groupObservation(i int) *observation.Observation {
	o := &observation.Observation{
		Entry: trace.OpOf(1, trace.Symbol(1+i/groupsOfType), trace.Server), Skeleton: analysis.Hash{Hi: 1, Lo: uint64(i)},
		Edges: make([]observation.EdgeTime, edgesOfGroup),
	}
	root := trace.Context(0).Child(o.Entry)
	for k := range o.Edges {
		ctx := root.Child(trace.OpOf(2, trace.Symbol(1+k+(i%groupsOfType)/10*edgesOfGroup), trace.Internal))
		o.Edges[k] = observation.EdgeTime{Context: ctx, Edge: trace.EdgeOf(ctx, 0, 0)}
		o.Contexts = append(o.Contexts, observation.ContextCount{Context: ctx, Parent: root, Count: 1})
	}
	slices.SortFunc(o.Edges, func(a, b observation.EdgeTime) int { return compare(a.Edge, b.Edge) })
	slices.SortFunc(o.Contexts, func(a, b observation.ContextCount) int { return compare(a.Context, b.Context) })
	return o
}

func compare[T ~uint64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// vary gives the k-th request of group i its identity and times.
func vary(o *observation.Observation, i, k int) {
	h := trace.Mix(uint64(i)+1, uint64(k)+1)
	o.Trace = trace.ID{0: byte(h), 1: byte(h >> 8), 2: byte(h >> 16), 3: byte(h >> 24), 4: byte(h >> 32), 5: byte(h >> 40), 15: 1}
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
