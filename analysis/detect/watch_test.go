package detect_test

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/internal/testkit/requests"
	"github.com/sibyl-trace/sibyl/trace"
)

// epoch is the time between two decisions.
const epoch = 10 * time.Second

// harness plays requests, described by short texts, against a Detector, epoch by epoch.
type harness struct {
	g       *group.Grouper // of d
	d       *detect.Detector
	options detect.WatchOptions
	now     trace.Nanos
	random  *rand.Rand
	number  uint64
	open    map[analysis.Hash]string // problems that are open
}

func newHarness() *harness {
	o := detect.DefaultWatchOptions()
	o.Silence = 30
	s := &harness{options: o, now: 1e18, random: rand.New(rand.NewPCG(1, 2)), open: make(map[analysis.Hash]string)}
	s.use(newGrouper(group.Options{}))
	return s
}

// use replaces the groups of the harness.
func (s *harness) use(g *group.Grouper) { s.g, s.d = g, detect.New(g) }

// traffic describes the requests of one group: "group=cached n=40 failed=2 every=3 a=10ms b=5ms".
type traffic struct {
	group  string
	n      int
	failed int // of n
	every  int // requests come once in this many epochs; 0 means in every one
	edges  []string
	means  []time.Duration
}

func parseTraffic(t *testing.T, line string) (r traffic) {
	for word := range strings.FieldsSeq(line) {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "group":
			r.group = value
		case "n":
			r.n, _ = strconv.Atoi(value)
		case "failed":
			r.failed, _ = strconv.Atoi(value)
		case "every":
			r.every, _ = strconv.Atoi(value)
		default:
			d, err := time.ParseDuration(value)
			if err != nil {
				t.Fatalf("%q: %v", word, err)
			}
			r.edges, r.means = append(r.edges, key), append(r.means, d)
		}
	}
	return r
}

// request returns a request of r: times are log-normal around their means with a CoV of 0.2.
func (s *harness) request(r traffic) *observation.Observation {
	const entry = trace.Op(1)
	s.number++
	root := trace.Context(0).Child(entry)
	o := &observation.Observation{
		Trace:    trace.ID{0: byte(s.number), 1: byte(s.number >> 8), 2: byte(s.number >> 16), 15: 1},
		Root:     1,
		Start:    s.now.Add(time.Duration(s.random.Int64N(int64(epoch)))),
		Entry:    entry,
		Skeleton: analysis.Hash{Hi: 1, Lo: uint64(nameOp(r.group))},
		Contexts: []observation.ContextCount{{Context: root, Op: entry, Count: 1}},
	}
	times := make(map[trace.Edge]observation.EdgeTime)
	for i, name := range r.edges {
		ctx := root.Child(nameOp(name))
		ns := int64(float64(r.means[i]) * math.Exp(0.2*s.random.NormFloat64()-0.02))
		e := trace.EdgeOf(ctx, 0, 0)
		times[e] = observation.EdgeTime{Edge: e, Context: ctx, Nanos: ns}
		o.Contexts = append(o.Contexts, observation.ContextCount{
			Context:   ctx,
			Parent:    root,
			Op:        nameOp(name),
			Count:     1,
			Exclusive: ns,
			Self:      ns,
			Total:     ns,
		})
		o.Duration += time.Duration(ns)
	}
	for _, e := range times {
		o.Edges = append(o.Edges, e)
	}
	requests.Sort(o)
	return o
}

// nameOp returns the operation whose number spells name, so that scripts can be read back.
func nameOp(name string) trace.Op {
	var op trace.Op
	for _, c := range []byte(name) {
		op = op<<8 | trace.Op(c)
	}
	return op
}

func opName(op trace.Op) string {
	var name []byte
	for ; op > 0; op >>= 8 {
		name = append([]byte{byte(op)}, name...)
	}
	return string(name)
}

// play plays epochs of the same traffic and returns the opened and closed problems as text.
func (s *harness) play(all []traffic, epochs int, learning bool) string {
	var out bytes.Buffer
	for i := range epochs {
		for _, r := range all {
			if i%max(1, r.every) > 0 {
				continue
			}
			for k := range r.n {
				one := s.request(r)
				one.Failed = k < r.failed
				s.g.Observe(one)
			}
		}
		s.now = s.now.Add(epoch)
		if learning {
			s.g.EndEpoch(s.now)
			continue
		}
		s.report(&out, i+1)
		s.d.Learn(s.now.Add(-5*time.Minute), s.options)
	}
	if learning {
		s.d.Learn(s.now, s.options)
	}
	if out.Len() == 0 {
		return fmt.Sprintf("%d open, %d watched\n", len(s.open), s.d.Watched())
	}
	return out.String()
}

func (s *harness) report(out *bytes.Buffer, number int) {
	still := make(map[analysis.Hash]string)
	for _, p := range s.d.Watch(s.now, s.options) {
		name := fmt.Sprintf("%v %v", p.Level, p.Kind)
		if p.Onset == detect.Chronic {
			name = "chronic " + name
		}
		if p.Level == group.LevelGroup {
			name += " " + opName(trace.Op(s.g.Group(p.Group).Skeleton.Lo))
		}
		still[p.ID] = name
		if s.open[p.ID] == "" {
			if p.Kind == detect.KindShifted {
				name += fmt.Sprintf(" by %.0f %%", 100*p.Shift)
			}
			fmt.Fprintf(out, "epoch %d: opened %s%s\n", number, name, leading(s.g, &p))
		}
		check(out, &p)
	}
	for _, id := range slices.SortedFunc(maps.Keys(s.open), analysis.Hash.Compare) {
		if still[id] == "" {
			fmt.Fprintf(out, "epoch %d: closed %s\n", number, s.open[id])
		}
	}
	s.open = still
}

// leading returns the name of the edge with most of the change.
func leading(g *group.Grouper, p *detect.Problem) string {
	for _, e := range p.Edges {
		if e.Score > 0.5 {
			return ", leading " + opName(g.Table.Context(e.Context).Op)
		}
	}
	return ", nothing leads"
}

// check writes the invariants that p violates to out.
func check(out *bytes.Buffer, p *detect.Problem) {
	sum := 0.0
	for _, e := range p.Edges {
		sum += e.ShareVariance
		if math.IsNaN(e.Score) || math.IsInf(e.Score, 0) {
			fmt.Fprintf(out, "score %v\n", e.Score)
		}
	}
	if math.Abs(sum-1) > 1e-9 {
		fmt.Fprintf(out, "shares add up to %v\n", sum)
	}
	// means are cut to ns
	if lost := p.Rate * max(0, float64(p.Mean-p.Expected)); p.Onset == detect.Changed &&
		math.Abs(p.Impact-lost) > 2*p.Rate {
		fmt.Fprintf(out, "impact %v, although the rate × the excess is %v\n", p.Impact, lost)
	}
}

// TestWatch runs scripts. Each line of learn and play describes the traffic of one group in every epoch or, with
// every=N, in one of N epochs, starting with the first. play prints the epochs when problems opened and closed.
// thresholds has the options of TestChronic.
func TestWatch(t *testing.T) {
	datadriven.Walk(t, "testdata/watch", func(t *testing.T, path string) {
		s := newHarness()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var epochs int
			var all []traffic
			for line := range strings.Lines(d.Input) {
				all = append(all, parseTraffic(t, line))
			}
			switch d.Cmd {
			case "learn", "play":
				d.ScanArgs(t, "epochs", &epochs)
				return s.play(all, epochs, d.Cmd == "learn")
			case "thresholds":
				s.options.Chronic = thresholds(t, d)
				return ""
			case "accept":
				for id := range s.open {
					s.d.Accept(s.g.Group(groupOf(s, id)).ID, s.now)
				}
				return ""
			}
			d.Fatalf(t, "unknown command")
			return ""
		})
	})
}

// groupOf returns the group of the open problem with the given identity.
func groupOf(s *harness, problem analysis.Hash) analysis.Hash {
	for _, p := range s.d.Watch(s.now, s.options) {
		if p.ID == problem {
			return p.Group
		}
	}
	return analysis.Hash{}
}

// The shares of a problem add up, even with a limit below the number of edges and after some vanished. A group with a
// problem samples more requests and is not evicted.
func TestWatchedGroup(t *testing.T) {
	s := newHarness()
	s.use(newGrouper(group.Options{Edges: 3, Groups: 4}))
	was := []traffic{parseTraffic(t, "group=a n=60 e=5ms f=5ms g=5ms h=5ms i=5ms j=5ms")}
	is := []traffic{parseTraffic(t, "group=a n=60 h=10ms i=5ms j=5ms k=25ms l=5ms")}
	s.play(was, 30, true)
	if got := s.play(is, 10, false); !strings.Contains(got, "opened request_type slow") ||
		strings.Contains(got, "add up") {
		t.Fatal(got)
	}
	p := s.d.Watch(s.now, s.options)[0]
	grp := s.g.Group(p.Group)
	if n := grp.Current.Sample.Len(); n != group.DefaultLargeSample {
		t.Errorf("%d requests sampled, want %d", n, group.DefaultLargeSample)
	}
	if p.Edges[0].Score <= 0 || len(p.Edges) < 4 {
		t.Errorf("edges %+v", p.Edges)
	}
	for i := range 60 { // no requests of the group, but many others
		for k := range 3 {
			s.g.Observe(requests.Plain(100+3*i+k, 1, s.now, time.Millisecond))
		}
		s.now = s.now.Add(epoch)
		s.d.Watch(s.now, s.options)
		if i < 20 && s.g.Group(p.Group) == nil {
			t.Fatal("a group with a problem was evicted")
		}
	}
	if s.g.Evicted == 0 || s.g.Group(p.Group) != nil {
		t.Errorf("%d groups evicted, the one without requests is not among them", s.g.Evicted)
	}
}

// Edges that appear during a long problem make others lose their numbers. Renumbering includes the rows of the second
// window: once that is judged, each row has its times in the edges where the request spent them.
func TestEdgesAppearDuringAProblem(t *testing.T) {
	s := newHarness()
	s.use(newGrouper(group.Options{Edges: 3}))
	// so far apart that a time identifies its edge
	known := []traffic{parseTraffic(t, "group=g n=60 a=1us b=10us c=100us")}
	slow := []traffic{parseTraffic(t, "group=g n=60 a=1us b=10us c=1ms")}
	other := []traffic{parseTraffic(t, "group=g n=60 c=1ms d=10ms e=100ms f=1s")}
	means := make(map[string]time.Duration)
	for _, r := range []traffic{slow[0], other[0]} {
		for i, name := range r.edges {
			means[name] = r.means[i]
		}
	}
	s.play(known, 30, true)
	if got := s.play(slow, 5, false); !strings.Contains(got, "opened request_type slow") {
		t.Fatal(got)
	}
	s.now = s.now.Add(40 * time.Minute)
	s.play(slow, 2, false) // the second window starts at the end of the first of these epochs
	before := make(map[*group.Group][]trace.Edge)
	for grp := range s.g.Each() {
		before[grp] = slices.Clone(grp.Edges())
	}
	s.play(other, 1, false)
	s.now = s.now.Add(40 * time.Minute)
	s.play(nil, 1, false)
	for grp := range s.g.Each() {
		if n := grp.Current.Sample.Len(); n != 120 || slices.Equal(grp.Edges(), before[grp]) {
			t.Fatalf("level %v: %d rows, want 120; edges %v, want new ones among them", grp.Level, n, grp.Edges())
		}
		for _, row := range grp.Current.Sample.All() {
			for number, ns := range row.Edges() {
				name := opName(s.g.Table.Context(s.g.Table.EdgeInfo(grp.Edges()[number]).Context).Op)
				if mean := means[name].Nanoseconds(); ns < mean/3 || ns > mean*3 {
					t.Fatalf("level %v: %d ns in %s, want about %d", grp.Level, ns, name, mean)
				}
			}
		}
	}
}

// An hour of healthy requests becomes the reference and replaces the earlier one.
func TestReferenceIsRenewed(t *testing.T) {
	s := newHarness()
	s.options.Renew = 100
	healthy := []traffic{parseTraffic(t, "group=a n=30 e=5ms")}
	s.play(healthy, 30, true)
	s.play(healthy, 250, false)
	for _, grp := range s.g.Groups() {
		if n := grp.Reference.Total.N; n < (100-72)*30 || n > 200*30 {
			t.Errorf("the reference holds %d requests", n)
		}
	}
}

// The requests of an unhealthy request type are never learned, even if there is no evidence against them.
func TestUnhealthyIsNotLearned(t *testing.T) {
	healthy := []traffic{parseTraffic(t, "group=a n=30 e=5ms")}
	for _, unhealthy := range []bool{true, false} {
		s := newHarness()
		s.d.Unhealthy = func(*group.Group) bool { return unhealthy }
		s.play(healthy, 30, true)
		for _, grp := range s.g.Groups() {
			if grp.Expectation.Learned == unhealthy {
				t.Errorf("unhealthy %t: learned %t", unhealthy, grp.Expectation.Learned)
			}
		}
		s.d.Unhealthy = nil
		s.d.Learn(s.now, s.options)
		s.d.Unhealthy = func(*group.Group) bool { return unhealthy }
		s.play(healthy, 200, false)
		for _, grp := range s.g.Groups() {
			if n := grp.Reference.Total.N; n > 30*30 == unhealthy {
				t.Errorf("unhealthy %t: %d requests in the reference, at first 900", unhealthy, n)
			}
			if n := grp.Current.Total.N; n > 0 {
				t.Errorf("unhealthy %t: %d requests are judged although they are as usual", unhealthy, n)
			}
		}
	}
}

// However long a problem lasts, between half an hour and an hour of requests are judged.
func TestWindowIsLimited(t *testing.T) {
	s := newHarness()
	was, is := []traffic{parseTraffic(t, "group=a n=20 e=5ms")}, []traffic{parseTraffic(t, "group=a n=20 e=10ms")}
	s.play(was, 60, true)
	s.play(is, 10, false)
	if len(s.open) == 0 {
		t.Fatal("no problem")
	}
	for range 20 {
		s.play(is, 45, false) // 7.5 minutes
		for _, grp := range s.g.Groups() {
			span := s.now.Sub(grp.Current.First)
			if n := grp.Current.Total.N; span > time.Hour+epoch || n != uint64(span.Round(epoch)/epoch)*20 {
				t.Fatalf("%d requests are judged, of %v", n, span)
			}
		}
	}
	p := s.d.Watch(s.now, s.options)[0]
	if p.Requests < 30*6*20 {
		t.Errorf("%d requests are judged", p.Requests)
	}
}

// The requests of a healthy group become part of the reference, which then gives the rate.
func TestRateOfHealthyGroup(t *testing.T) {
	g, at := newGrouper(group.Options{}), trace.Nanos(0).Add(1000*time.Hour)
	d := detect.New(g)
	g.EndEpoch(at)
	for range 150 {
		for range 20 {
			o := requests.Random(1, 1)[0]
			o.Start = at.Add(time.Second)
			g.Observe(o)
		}
		at = at.Add(10 * time.Second)
		d.Watch(at, detect.DefaultWatchOptions())
		d.Learn(at, detect.DefaultWatchOptions())
	}
	for _, grp := range g.Groups() {
		if grp.Current.Total.N > 0 || grp.Rate() < 1.99 || grp.Rate() > 2.01 {
			t.Errorf("%d requests are judged, %g requests/s, want 2", grp.Current.Total.N, grp.Rate())
		}
	}
}
