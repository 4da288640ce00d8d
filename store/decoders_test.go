package store

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/spool"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/testkit/requests"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// decoder is one decoder of saved state, with the checks of [FuzzDecoders].
type decoder struct {
	name  string
	seeds [][]byte
	check func(t *testing.T, b []byte) (decoded bool)
}

// newDecoder returns a decoder of values of type T, which encode appends and walk reads. exact means that each value
// has only one encoding that decode accepts.
func newDecoder[T any](
	name string, exact bool,
	decode func([]byte) (T, []byte, error), encode func([]byte, *T) []byte, walk func(*T), values ...T,
) decoder {
	d := decoder{name: name}
	for i := range values {
		d.seeds = append(d.seeds, encode(nil, &values[i]))
	}
	d.check = func(t *testing.T, b []byte) bool {
		t.Helper()
		v, rest, err := decode(b)
		if err != nil {
			if !errors.Is(err, codec.ErrCorrupt) || !reflect.ValueOf(&v).Elem().IsZero() || rest != nil {
				t.Fatalf("%s: error %v with %+v and %d bytes behind it", name, err, v, len(rest))
			}
			return false
		}
		if !bytes.HasSuffix(b, rest) {
			t.Fatalf("%s: the bytes behind the value are not those of the input", name)
		}
		encoded := encode(nil, &v)
		if read := b[:len(b)-len(rest)]; exact && !bytes.Equal(encoded, read) {
			t.Fatalf("%s: reads\n%x, writes\n%x", name, read, encoded)
		}
		again, rest, err := decode(encoded)
		if err != nil || len(rest) > 0 {
			t.Fatalf("%s: decoding again leaves %d bytes, error %v", name, len(rest), err)
		}
		if !bytes.Equal(encode(nil, &again), encoded) {
			t.Fatalf("%s: decoding again gives another value", name)
		}
		walk(&v)
		return true
	}
	return d
}

// whole adapts a decoder that consumes all bytes.
func whole[T any](decode func([]byte) (T, error)) func([]byte) (T, []byte, error) {
	return func(b []byte) (T, []byte, error) {
		v, err := decode(b)
		return v, nil, err
	}
}

// appender is implemented by values, or pointers to them, that encode themselves.
type appender interface{ AppendBinary([]byte) []byte }

func appendBinary[T appender](b []byte, v *T) []byte { return (*v).AppendBinary(b) }

// decoders returns all decoders of saved state, with seeds that the encoders wrote.
func decoders(t testing.TB) []decoder {
	all := append(statisticsDecoders(), analysisDecoders(t)...)
	all = append(all, coreDecoders(t)...)
	return append(all, storeDecoders()...)
}

func statisticsDecoders() []decoder {
	var moments stats.Moments
	var co stats.CoMoments
	var pairs stats.PairMoments
	var sketch stats.Sketch
	var ranks stats.Ranks
	sample := stats.NewSample[stats.Row](8)
	var series stats.Series[stats.Moments, *stats.Moments]
	for i := range int64(20) {
		ns := 1000 + i*i*i
		moments.Add(ns)
		co.Add(i, ns)
		pairs.Add([]int64{i, ns})
		sketch.Add(ns)
		ranks.Add(ns)
		row := stats.NewRow(ns, []int32{0, 3}, []int64{i, ns - i})
		row.Stamp(1e18)
		sample.Add(trace.Mix(uint64(i), 1), row)
		series.At(i * int64(time.Hour)).Add(ns)
	}
	reference := stats.NewReference(&sketch, []stats.Moments{moments, moments}, stats.DefaultTestOptions())
	var counts stats.Counts
	counts.Add(&reference, 1e6)
	var change stats.Change
	change.Step(&reference, counts)
	mixes := stats.NewMixReference([]uint64{50, 3}, 3, stats.DefaultTestOptions())
	var mix stats.Mix
	mix.Step(&mixes, []uint64{3, 9})

	decodeSample := func(b []byte) (stats.Sample[stats.Row], []byte, error) {
		return stats.DecodeSample(b, stats.DecodeRow)
	}
	appendSample := func(b []byte, s *stats.Sample[stats.Row]) []byte {
		return s.AppendBinary(b, func(b []byte, r stats.Row) []byte { return r.AppendBinary(b) })
	}
	decodeSeries := func(b []byte) (stats.Series[stats.Moments, *stats.Moments], []byte, error) {
		return stats.DecodeSeries[stats.Moments, *stats.Moments](b, stats.DecodeMoments)
	}
	appendSeries := func(b []byte, s *stats.Series[stats.Moments, *stats.Moments]) []byte {
		return s.AppendBinary(b, func(b []byte, m *stats.Moments) []byte { return m.AppendBinary(b) })
	}
	return []decoder{
		newDecoder("moments", true, stats.DecodeMoments, appendBinary, func(m *stats.Moments) { m.CoV() },
			stats.Moments{}, moments),
		newDecoder("co-moments", true, stats.DecodeCoMoments, appendBinary,
			func(c *stats.CoMoments) { c.Share(moments) }, stats.CoMoments{}, co),
		newDecoder("moments of pairs", true, stats.DecodePairMoments, appendBinary, walkPairMoments,
			stats.PairMoments{}, pairs),
		newDecoder("sketch", true, stats.DecodeSketch, appendPointer[stats.Sketch], walkSketch, stats.Sketch{}, sketch),
		newDecoder("ranks", true, stats.DecodeRanks, appendPointer[stats.Ranks], func(r *stats.Ranks) { r.Below(1e6) },
			stats.Ranks{}, ranks),
		newDecoder("row", true, stats.DecodeRow, appendBinary, walkRow, stats.NewRow(5, []int32{1, 7}, []int64{2, 3})),
		newDecoder("sample", true, decodeSample, appendSample, walkSample, stats.NewSample[stats.Row](3), sample),
		newDecoder("series", true, decodeSeries, appendSeries, func(s *stats.Series[stats.Moments, *stats.Moments]) {
			for b := range s.Buckets() {
				b.Value.Mean()
			}
			s.Advance(1e18)
		}, series),
		newDecoder("change", true, stats.DecodeChange, appendBinary,
			func(c *stats.Change) { c.Step(&reference, counts) }, stats.Change{}, change),
		newDecoder("reference", true, stats.DecodeReference, appendBinary, func(r *stats.Reference) {
			var n stats.Counts
			n.Add(r, 1e6)
			r.Allows(n)
		}, reference),
		newDecoder("mix", true, stats.DecodeMix, appendBinary, func(m *stats.Mix) { m.Shifted() }, stats.Mix{}, mix),
		newDecoder("reference of mixes", true, stats.DecodeMixReference, appendBinary, func(r *stats.MixReference) {
			n := make([]uint64, r.Groups())
			if r.Allows(n) {
				new(stats.Mix).Step(r, n)
			}
		}, mixes),
	}
}

// appendPointer is appendBinary for types whose pointer has the method.
func appendPointer[T any, P interface {
	*T
	appender
}](b []byte, v *T) []byte {
	return P(v).AppendBinary(b)
}

func walkPairMoments(p *stats.PairMoments) {
	for i := range p.Sums {
		p.Cov(i, 0)
	}
}

func walkSketch(s *stats.Sketch) {
	s.CoV()
	s.Quantile(0.5)
	s.UpperLimit(0.1)
	for range s.Bins() {
	}
}

func walkRow(r *stats.Row) {
	r.Arrival()
	r.Total()
	for range r.Edges() {
	}
}

func walkSample(s *stats.Sample[stats.Row]) {
	for _, r := range s.All() {
		walkRow(&r)
	}
	s.Rate()
	s.Resize(1)
}

func analysisDecoders(t testing.TB) []decoder {
	const now = trace.Nanos(1_700_000_000_000_000_000)
	seeds := requests.Random(1, 200)
	table := &trace.Table{}
	table.Symbol("shop")
	table.AddContext(seeds[0].Contexts[0].Context, 0, seeds[0].Contexts[0].Op)
	var packer observation.Packer
	var spans observation.RecentSpans
	x := &trace.Trace{ID: trace.ID{1}, Spans: []trace.Span{{ID: 1, Op: 5, Start: 1000, End: 2000}}}
	path := critpath.NewExtractor(critpath.DefaultOptions()).Extract(x)
	spans.Observe(path, now)
	allHealthy := func(trace.Op, trace.Nanos, trace.Nanos) bool { return true }
	spans.Rotate(now, allHealthy)
	types := &group.RequestTypes{}
	grouper := group.NewGrouper(types, table, group.Options{})
	refinement := detect.NewRefinement(7, []trace.Symbol{1, 2})
	for _, o := range seeds {
		o.Children = []trace.Op{o.Entry + 1}
		packer.Append(nil, o)
		types.Learn(o)
		refinement.Observe(o, false)
	}
	// Freeze changes the entries that a copy would share.
	learning, _, err := group.DecodeRequestTypes(types.AppendBinary(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	types.Freeze()
	for _, o := range seeds {
		grouper.Observe(o)
	}
	detector := detect.New(grouper)
	grouper.EndEpoch(now)
	detector.Learn(now, detect.DefaultWatchOptions())
	pairs := detect.NewPairs(&detect.Problem{
		Level: group.LevelGroup,
		Edges: []group.EdgeShare{{Edge: seeds[0].Edges[0].Edge}, {Edge: seeds[0].Edges[1].Edge}},
	})
	for _, o := range seeds {
		pairs.Observe(o, false)
	}

	decodeTypes := func(b []byte) (*group.RequestTypes, []byte, error) { return group.DecodeRequestTypes(b, nil) }
	decodeDetector := func(b []byte) (*detect.Detector, []byte, error) {
		return detect.Decode(b, types, table, group.Options{})
	}
	decodeTable := func(b []byte) (*trace.Table, []byte, error) { return trace.DecodeTable(b, 1000) }
	appendObservation := func(b []byte, o **observation.Observation) []byte {
		return observation.AppendObservation(b, *o)
	}
	var simulation critpath.Simulation
	simulation.Capture(path, 0)
	sample, load := explain.NewSample(8, 100), &explain.RecentLoad{}
	kept := spool.New("", math.MaxInt)
	for i, o := range seeds[:20] {
		load.Observe(o)
		sample.Observe(o, []trace.Symbol{1}, &simulation)
		if err := kept.Add(o); err != nil {
			t.Fatal(err)
		}
		if i%10 == 9 {
			load.Close()
			sample.Count(load)
		}
	}

	decodeSpans := func(b []byte) (observation.RecentSpans, []byte, error) {
		return observation.DecodeRecentSpans(b, 0)
	}

	return []decoder{
		newDecoder("table", true, decodeTable, appendBinary, walkTable, &trace.Table{}, table),
		newDecoder("observation", true, observation.DecodeObservation, appendObservation, walkObservation,
			seeds[:2]...),
		newDecoder("packer", true, observation.DecodePacker, appendBinary, func(p **observation.Packer) {
			(*p).Append(nil, seeds[0])
		}, &observation.Packer{}, &packer),
		newDecoder("recent spans", true, decodeSpans, appendPointer[observation.RecentSpans],
			func(r *observation.RecentSpans) {
				r.Latest(5, 0)
				r.Usual(5)
				r.Dropped()
				r.Rotate(now, allHealthy)
			}, observation.RecentSpans{}, spans),
		newDecoder("request types", true, decodeTypes, appendBinary, func(r **group.RequestTypes) {
			(*r).Learn(seeds[0])
			(*r).Freeze()
			(*r).Distinct(seeds[0].Entry, (*r).Of(seeds[0]), 3)
		}, &group.RequestTypes{}, learning, types),
		newDecoder("size model", true, group.DecodeSizeModel,
			func(b []byte, m **group.SizeModel) []byte { return group.AppendSizeModel(b, *m) },
			func(m **group.SizeModel) {
				if *m != nil {
					(*m).Adjusted(group.Transfer{Bytes: 1000, Nanos: 1000})
				}
			}, nil, &group.SizeModel{SizeModel: stats.SizeModel{Base: 1, Segment: 1460}, Requests: 7}),
		newDecoder("detector", true, decodeDetector, appendBinary,
			func(d **detect.Detector) { walkDetector(*d, now) }, detect.New(grouper), detector),
		newDecoder("refinement", true, detect.DecodeRefinement, appendBinary, func(r **detect.Refinement) {
			(*r).Observe(seeds[0], true)
			(*r).Shares()
			(*r).Durations()
		}, refinement),
		newDecoder("pairs", true, detect.DecodePairs, appendBinary, func(p **detect.Pairs) {
			(*p).Observe(seeds[0], true)
			(*p).Shares()
		}, pairs),
		newDecoder("simulation", true, critpath.DecodeSimulation, appendBinary, func(s **critpath.Simulation) {
			(*s).WhatIf(false, 1, 5, 3)
			(*s).WhatIf(true, 1, 5, 3)
		}, &critpath.Simulation{}, &simulation),
		newDecoder("sampled requests", true, explain.DecodeSample, appendBinary, func(s **explain.Sample) {
			(*s).Count(load)
			(*s).Requests()
		}, explain.NewSample(8, 100), sample),
		newDecoder("load", true, explain.DecodeRecentLoad, appendBinary, func(l **explain.RecentLoad) {
			(*l).Observe(seeds[0])
			(*l).Close()
		}, &explain.RecentLoad{}, load),
		newDecoder("spool", true, whole(spool.Decode), appendBinary, func(s **spool.Spool) {
			for o, err := range (*s).All() {
				if err != nil {
					panic(err) // Decode checks all observations
				}
				walkObservation(&o)
			}
		}, spool.New("", math.MaxInt), kept),
	}
}

func walkTable(t **trace.Table) {
	(*t).Symbol("new")
	(*t).Path(7)
	(*t).OpName(7)
	new(trace.Table).Merge(*t)
}

// walkObservation adds an observation to all statistics.
func walkObservation(o **observation.Observation) {
	types := &group.RequestTypes{}
	types.Learn(*o)
	types.Freeze()
	g := group.NewGrouper(types, &trace.Table{}, group.Options{})
	g.Observe(*o)
	detect.NewRefinement(1, []trace.Symbol{1}).Observe(*o, false)
	var spread stats.Sketch
	spread.Add(int64((*o).Duration))
	(*o).Clone()
	(*o).Key()
	(*o).EachVariable([]trace.Symbol{1}, func(*observation.Variable) {})
}

func walkDetector(d *detect.Detector, now trace.Nanos) {
	d.Groups.Observe(requests.Plain(1, 1, now, time.Millisecond))
	for _, p := range d.Watch(now, detect.DefaultWatchOptions()) {
		_ = p.Kind.String() + p.Level.String() + p.Onset.String()
	}
	d.Learn(now, detect.DefaultWatchOptions())
	for _, g := range d.Groups.Groups() {
		d.Groups.Summarize(g)
		g.Windows()
		g.Shares(d.Groups.Table)
	}
}

// coreDecoders returns the decoders of package engine and, for the trees in a core, of package cct.
func coreDecoders(t testing.TB) []decoder {
	options := engine.DefaultOptions()
	options.Learning, options.Strategy = 20*time.Second, "covariance"
	options.Watch.Chronic.CoV, options.Watch.MinSamples = 0.1, 10 // so that problems are open
	app := sim.New(sim.Config{Seed: 3, Tracepoints: 50, Rate: 10})
	core := engine.NewCore(app.Table(), options)
	now := trace.Nanos(1_700_000_000_000_000_000)
	core.Announce(now, app.Catalogue())
	for _, tp := range app.Catalogue() {
		core.Apply(&engine.Change{Override: &search.Override{Tracepoint: tp.ID, Kind: search.Pin}})
	}
	var states [][]byte
	for epoch := range 12 {
		end := now.Add(options.Epoch)
		for x := range app.Requests(now, end, simulated(core.View().Searches.Plan())) {
			core.Ingest(x)
		}
		now = end
		core.Epoch(now)
		if epoch == 0 || epoch == 11 {
			states = append(states, core.AppendState(nil))
		}
	}
	if len(core.View().Problems.Open()) == 0 || len(core.View().Searches.State().Investigations) == 0 ||
		len(core.View().Searches.Plan().Leases) == 0 {
		t.Fatalf("%d problems, %d investigations, %d leases: want some of each", len(core.View().Problems.Open()),
			len(core.View().Searches.State().Investigations), len(core.View().Searches.Plan().Leases))
	}
	decodeCore := whole(func(b []byte) (*engine.Core, error) {
		c := engine.NewCore(&trace.Table{}, options)
		err := c.Restore(b)
		if _, unknown := errors.AsType[*engine.UnknownStrategyError](err); unknown {
			err = codec.ErrCorrupt
		}
		if err != nil {
			return nil, err
		}
		return c, nil
	})
	cores := newDecoder("core", false, decodeCore,
		func(b []byte, c **engine.Core) []byte { return (*c).AppendState(b) }, func(c **engine.Core) {
			walkCore(*c, now)
		})
	cores.seeds = states

	random := rand.New(rand.NewPCG(1, 1))
	var tree cct.Builder
	for i := range 30 {
		o := requests.Edged(random, 1, i)
		seen := cct.Observation{Seen: now, On: []trace.Symbol{trace.Symbol(1 + i%3)}}
		for k := range o.Contexts {
			c := &o.Contexts[k]
			seen.Contexts = append(seen.Contexts, cct.ContextCount{
				Context: c.Context, Parent: c.Parent, Op: c.Op, Count: c.Count,
			})
		}
		tree.Observe(seen)
	}
	settings := options.Settings()
	return []decoder{
		cores,
		newDecoder("tree", true, whole(cct.Decode), appendBinary, walkTree, &cct.Builder{}, &tree),
		newDecoder("state of the search", false, whole(engine.DecodeSearchState), engine.AppendSearchState, walkState,
			search.State{}, *core.View().Searches.State()),
		newDecoder("change", false, whole(engine.DecodeChange),
			func(b []byte, x *engine.Change) []byte { return x.Append(b) }, func(x *engine.Change) {
				engine.NewCore(&trace.Table{}, options).Apply(x)
			}, engine.Change{Settings: &settings}, engine.Change{Withdraw: 7, By: "someone"},
			engine.Change{Override: &search.Override{Tracepoint: 7, Kind: search.Pin}},
			engine.Change{Feedback: &search.Feedback{
				Catalogues: []search.Catalogue{{
					Service: "shop", Tracepoints: []search.Announced{{ID: "a", Layer: cct.Kernel}},
				}},
				Unavailable: []search.Unavailable{{ID: "a", For: time.Minute}},
				Costs:       []search.Cost{{ID: "a"}},
				Measured:    &search.Measured{CPU: 1},
			}}),
	}
}

// simulated converts p to a plan for the simulator.
func simulated(p *search.Plan) *sim.Plan {
	plan := &sim.Plan{Version: p.Version}
	for i, a := range p.Arms {
		on := make(map[trace.Symbol]bool)
		for _, l := range p.Leases {
			if int(l.Arm) == i {
				on[l.Tracepoint] = true
			}
		}
		plan.Arms = append(plan.Arms, sim.Arm{Name: a.Name, Share: a.Share, On: on})
	}
	return plan
}

func walkCore(c *engine.Core, now trace.Nanos) {
	for _, p := range c.View().Problems.Open() {
		_ = p.Kind.String() + p.Level.String() + p.Onset.String()
	}
	walkState(c.View().Searches.State())
	for _, g := range c.View().Groups.Groups() {
		c.View().Groups.Summarize(g)
		c.View().Trees.Of(g.RequestType)
		c.View().Problems.Sampled(g.ID)
	}
	c.Epoch(now)
}

func walkTree(b **cct.Builder) {
	(*b).Limit = 100
	tree := (*b).Build(nil, nil)
	for i := range tree.Nodes {
		tree.Path(int32(i))
	}
	(*b).Age(1e18, cct.MaxAge)
}

func walkState(s *search.State) {
	for i := range s.Investigations {
		_ = s.Investigations[i].Status.String()
	}
	for _, o := range s.Overrides {
		_ = o.Kind.String()
	}
	for _, l := range s.Plan.Leases {
		_ = s.Plan.Arms[l.Arm]
	}
}

func storeDecoders() []decoder {
	decisions := []search.Decision{{Reason: "a", Subject: search.OfProblem(analysis.Hash{Hi: 1})}}
	exemplars := Exemplars{Slow: []Exemplar{{Trace: trace.ID{1}, Duration: 5, Records: []uint64{7, 8}}}}
	message := Message{
		Number: 7, ID: "x", Subject: search.OfProblem(analysis.Hash{Hi: 1, Lo: 1 << 63}), Body: []byte{0, 1, 2},
	}
	closed := closedKey(5, 1)
	return []decoder{
		newDecoder("decisions", false, whole(decodeValue[[]search.Decision]),
			func(_ []byte, v *[]search.Decision) []byte { return appendValue(*v) },
			func(*[]search.Decision) {}, nil, decisions),
		newDecoder("exemplars", false, whole(decodeExemplars),
			func(_ []byte, v **Exemplars) []byte { return appendValue(*v) }, func(v **Exemplars) {
				for range (*v).All() {
				}
			}, &Exemplars{}, &exemplars),
		newDecoder("message", false, whole(decodeMessage),
			func(_ []byte, m *Message) []byte { return encodeMessage(m) }, func(*Message) {}, Message{}, message),
		newDecoder("head", true, whole(decodeHead), func(b []byte, h *head) []byte { return h.append(b) },
			func(*head) {}, head{}, head{1, 2, 3, 4, 5}),
		newDecoder("closed traces", true, whole(func(b []byte) (Closed, error) { return decodeClosed(closed, b) }),
			func(b []byte, c *Closed) []byte { return codec.AppendWords(b, c.Hashes...) },
			func(*Closed) {}, Closed{Hashes: []uint64{1, 1 << 60}}),
	}
}

// FuzzDecoders passes bytes to one of the decoders of saved state. A decoder returns either a value or an error that
// wraps [codec.ErrCorrupt]. A value that it returns has a canonical encoding and is safe to use.
func FuzzDecoders(f *testing.F) {
	all := decoders(f)
	for i, d := range all {
		for _, seed := range d.seeds {
			f.Add(byte(i), seed)
		}
	}
	f.Fuzz(func(t *testing.T, which byte, b []byte) {
		if int(which) < len(all) {
			all[which].check(t, b)
		}
	})
}

// Seeds decode. They and their prefixes pass the checks of FuzzDecoders.
func TestDecoders(t *testing.T) {
	for _, d := range decoders(t) {
		t.Run(d.name, func(t *testing.T) {
			for _, seed := range d.seeds {
				if !d.check(t, seed) {
					t.Error("a seed does not decode")
				}
				for n := 0; n < len(seed); n += 1 + len(seed)/50 {
					d.check(t, seed[:n])
				}
			}
		})
	}
}
