package explain

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetext"
	"github.com/sibyl-trace/sibyl/trace"
)

// served is a request of a stream with the data that a running service has about it.
type served struct {
	observation.Observation
	simulation critpath.Simulation
	epoch      int // the epoch that observes it, after it has ended
}

const testEpoch = 10 * time.Second

// stream returns requests of one type by start. Requests on host b are slow, and all are slower if more others are in
// service.
func stream(t testing.TB, table *trace.Table, n int, rate float64) []served {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	x, observer := critpath.NewExtractor(critpath.DefaultOptions()), &observation.Observer{}
	all := make([]served, n)
	start := trace.Nanos(1e18)
	var ends []trace.Nanos
	for i := range all {
		start += trace.Nanos(rng.ExpFloat64() / rate * 1e9)
		ends = slices.DeleteFunc(ends, func(end trace.Nanos) bool { return end <= start })
		host := string(rune('a' + rng.IntN(3)))
		db := 40 + 20*float64(len(ends)) + 10*rng.Float64()
		if host == "b" {
			db += 60
		}
		text := fmt.Sprintf("a shop GET server 0..%d\n  b shop db client 5..%d\n  c shop cache client 5..40\n",
			int(db)+10, int(db)+5)
		tr, err := tracetext.Parse(text, table)
		if err != nil {
			t.Fatal(err)
		}
		tr.ID = trace.ID{0: 1, 14: byte(i >> 8), 15: byte(i)}
		for k := range tr.Spans {
			s := &tr.Spans[k]
			s.Start, s.End = start+s.Start*1e6, start+s.End*1e6
			tr.Attrs = append(tr.Attrs,
				trace.Attr{Key: table.Symbol("host.name"), Text: table.Symbol(host), Span: int32(k)})
		}
		ends = append(ends, tr.Spans[0].End)
		p := x.Extract(tr)
		observer.Observe(p, 0, &all[i].Observation)
		all[i].Observation = *all[i].Clone()
		all[i].simulation.Capture(p, 0)
		all[i].epoch = int(tr.Spans[0].End.Add(time.Duration(rng.IntN(8))*time.Second).Sub(1e18) / testEpoch)
	}
	return all
}

func startsAndDurations(all []served) iter.Seq2[trace.Nanos, time.Duration] {
	return func(yield func(trace.Nanos, time.Duration) bool) {
		for i := range all {
			if !yield(all[i].Start, all[i].Duration) {
				return
			}
		}
	}
}

// observeLive samples a stream epoch by epoch, as a running service does, from epoch since on. It shuffles each epoch,
// and encodes and decodes the sample and the load after every epoch.
func observeLive(t testing.TB, all []served, since int, rng *rand.Rand) (*Sample, *RecentLoad) {
	t.Helper()
	s, l := NewSample(128, 1<<13), &RecentLoad{}
	all = slices.Clone(all)
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	slices.SortStableFunc(all, func(a, b served) int { return a.epoch - b.epoch })
	for epoch := 0; len(all) > 0; epoch++ {
		for ; len(all) > 0 && all[0].epoch == epoch; all = all[1:] {
			l.Observe(&all[0].Observation)
			if epoch >= since {
				s.Observe(&all[0].Observation, nil, &all[0].simulation)
			}
		}
		l.Close()
		s.Count(l)
		b := s.AppendBinary(nil)
		var err error
		if s, _, err = DecodeSample(b); err != nil || !bytes.Equal(s.AppendBinary(nil), b) {
			t.Fatalf("epoch %d: sample changed by encoding and decoding: %v", epoch, err)
		}
		b = l.AppendBinary(nil)
		if l, _, err = DecodeRecentLoad(b); err != nil || !bytes.Equal(l.AppendBinary(nil), b) {
			t.Fatalf("epoch %d: load changed by encoding and decoding: %v", epoch, err)
		}
	}
	return s, l
}

// A sample filled live, epoch by epoch, yields exactly the same findings as one filled from a file.
func TestLiveAndOfflineAgree(t *testing.T) {
	table := &trace.Table{}
	all := stream(t, table, 1500, 10)
	const since = coveredEpochs
	live, _ := observeLive(t, all, since, rand.New(rand.NewPCG(3, 4)))
	offline := NewSample(128, 1<<13)
	for i := range all {
		if all[i].epoch >= since {
			offline.Observe(&all[i].Observation, nil, nil)
		}
	}
	offline.Measure(NewLoad(startsAndDurations(all)))
	simulations := make(map[trace.ID]*critpath.Simulation)
	for i := range all {
		simulations[all[i].Trace] = &all[i].simulation
	}
	for _, x := range offline.ToSimulate() {
		offline.Simulate(x, simulations[x.Trace])
	}
	p := &detect.Problem{Level: group.LevelGroup, Edges: edgeShares(offline)}
	o := Options{Alpha: 0.01, Seed: 7}
	got, want := live.Explain(p, table, o), offline.Explain(p, table, o)
	if diff := cmp.Diff(want, got, cmpopts.EquateNaNs()); diff != "" {
		t.Error(diff)
	}
	variables := make(map[string]bool)
	for _, x := range got.Explanations {
		variables[x.Variable] = true
	}
	if !variables["host.name"] || !variables["concurrency"] {
		t.Errorf("explained by %v, want host.name and concurrency", got.Explanations)
	}
	if len(got.Contrasts) != 1 || got.Contrasts[0].Key != "host.name" || got.Contrasts[0].Value != "b" {
		t.Errorf("contrasts %v, want host.name = b", got.Contrasts)
	}
	if r := got.Recoveries; len(r) == 0 || r[0].Requests != maxSimulated || !(r[0].MeanPart > 0.1) {
		t.Errorf("recoveries %+v, want a large one from %d requests", r, maxSimulated)
	}
	if !(got.Joint > 0 && got.Joint <= 1) {
		t.Errorf("joint correlation %v, want (0, 1]", got.Joint)
	}
}

// edgeShares returns the edges of the sampled requests, the one with the most time first. Their healthy mean is
// unknown.
func edgeShares(s *Sample) []group.EdgeShare {
	sums, contexts := make(map[trace.Edge]int64), make(map[trace.Edge]trace.Context)
	requests := s.Requests()
	for _, o := range requests {
		for _, e := range o.Edges {
			sums[e.Edge] += e.Nanos
			contexts[e.Edge] = e.Context
		}
	}
	var edges []group.EdgeShare
	for e, sum := range sums {
		mean := float64(sum) / float64(len(requests))
		edges = append(edges, group.EdgeShare{
			Edge:    e,
			Context: contexts[e],
			Mean:    mean,
			Score:   mean,
			Excess:  math.NaN(),
		})
	}
	slices.SortFunc(edges, func(a, b group.EdgeShare) int { return int(b.Mean - a.Mean) })
	return edges
}

// The order of the requests of an epoch does not matter.
func TestSampleOrder(t *testing.T) {
	table := &trace.Table{}
	all := stream(t, table, 600, 10)
	a, la := observeLive(t, all, 0, rand.New(rand.NewPCG(1, 1)))
	b, lb := observeLive(t, all, 0, rand.New(rand.NewPCG(2, 2)))
	if !bytes.Equal(a.AppendBinary(nil), b.AppendBinary(nil)) ||
		!bytes.Equal(la.AppendBinary(nil), lb.AppendBinary(nil)) {
		t.Error("the sample or the load depends on the order of the requests")
	}
}

// The load of the first requests is unknown, because earlier ones were not observed.
func TestUnknownLoad(t *testing.T) {
	all := stream(t, &trace.Table{}, 600, 10)
	s, _ := observeLive(t, all, 0, rand.New(rand.NewPCG(1, 1)))
	epochs := make(map[trace.ID]int)
	for i := range all {
		epochs[all[i].Trace] = all[i].epoch
	}
	concurrency := s.concurrency()
	for _, o := range s.Requests() {
		if x := concurrency(o); (x == x) != (epochs[o.Trace] >= coveredEpochs) {
			t.Errorf("concurrency %[2]v of a request of epoch %[1]d, want it known from epoch 2 on", epochs[o.Trace], x)
		}
	}
}

// A load beyond its bound is an unbiased estimate from a part of the requests.
func TestThinnedLoad(t *testing.T) {
	l := &RecentLoad{}
	const n = 40 * epochRequests
	for i := range n { // 10 are in service at any time
		o := &observation.Observation{
			Trace:    trace.ID{1, byte(i >> 16), byte(i >> 8), byte(i)},
			Start:    trace.Nanos(i * 10),
			Duration: 100,
		}
		l.Observe(o)
		if len(l.open) > epochRequests {
			t.Fatalf("%d requests kept, want at most %d", len(l.open), epochRequests)
		}
	}
	l.Close()
	sum := int64(0)
	for i := range 1000 {
		sum += l.at(trace.Nanos(n/2*10 + i*97))
	}
	if mean := float64(sum) / 1000; mean < 9 || mean > 11 {
		t.Errorf("%v requests in service, want about 10", mean)
	}
}

// If there are more simulations than the bounds permit, those with the smallest keys are kept, in any order of
// requests.
func TestSimulationBounds(t *testing.T) {
	all := stream(t, &trace.Table{}, 300, 10)
	const spans = 60 // three each
	var want []byte
	for seed := range uint64(3) {
		s := NewSample(128, spans)
		for _, i := range rand.New(rand.NewPCG(seed, 1)).Perm(len(all)) {
			s.Observe(&all[i].Observation, nil, &all[i].simulation)
		}
		n := 0
		for i, x := range s.ToSimulate() {
			if x.simulation != nil {
				n++
			}
			if (x.simulation != nil) != (i < spans/3) {
				t.Errorf("request %d: simulated %t, want %t", i, x.simulation != nil, i < spans/3)
			}
		}
		if n != spans/3 {
			t.Errorf("%d simulations, want %d", n, spans/3)
		}
		got := s.AppendBinary(nil)
		if want == nil {
			want = got
		}
		if !bytes.Equal(got, want) {
			t.Error("the sample depends on the order of the requests")
		}
	}
	large := NewSample(128, 2)
	large.Observe(&all[0].Observation, nil, &all[0].simulation)
	if x := large.ToSimulate()[0]; x.simulation != nil {
		t.Error("kept a simulation beyond the bound")
	}
}

func FuzzDecodeSample(f *testing.F) {
	s, l := observeLive(f, stream(f, &trace.Table{}, 100, 10), 0, rand.New(rand.NewPCG(1, 1)))
	f.Add(s.AppendBinary(nil), l.AppendBinary(nil))
	f.Fuzz(func(t *testing.T, sample, load []byte) {
		s, rest, err := DecodeSample(sample)
		if err != nil {
			if s != nil || rest != nil || !errors.Is(err, codec.ErrCorrupt) {
				t.Fatalf("DecodeSample() = %v, %v, %v, want nil, nil, ErrCorrupt", s, rest, err)
			}
			return
		}
		l, _, err := DecodeRecentLoad(load)
		if err != nil {
			if l != nil || !errors.Is(err, codec.ErrCorrupt) {
				t.Fatalf("DecodeRecentLoad() = %v, %v, want nil, ErrCorrupt", l, err)
			}
			return
		}
		l.Close()
		s.Count(l)
		s.AppendBinary(nil)
		l.AppendBinary(nil)
	})
}
