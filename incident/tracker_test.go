package incident_test

import (
	stdcmp "cmp"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/trace"
)

const epoch = 10 * time.Second

// shop is an application with two requests a second: cart and search each answer one of them, called by the gateway.
// Each has four pods.
type shop struct {
	table   *trace.Table
	sites   *compare.Comparer
	tracker *incident.Tracker
	random  rand.PCG
	now     trace.Nanos
	next    uint64
	saves   bool   // whether the tracker is saved and restored at each epoch
	silent  string // a service that emits no spans
	// a worker takes a message after every third request to cart, in a trace of its own
	consumer bool
	timeouts bool                   // half of the requests to cart end after two seconds, without an answer
	gateway  map[string]trace.Nanos // additional work of the gateway, by the service that it calls
	failing  string                 // a service that fails a tenth of its requests, or most of them if it is rare
	rare     int                    // seconds between two requests to the service rare; 0: no requests
	routes   int                    // number of operations of rare; 0: one
	spacing  time.Duration          // between requests to a service
	epoch    time.Duration
	quiet    bool              // no request comes
	stopped  string            // a service that gets no requests
	pods     int               // number of the first pod of each service
	version  string            // of cart; empty: unknown
	extra    bool              // whether cart calls another service
	inner    []string          // names of INTERNAL spans of cart, each inside the one before
	nodes    bool              // whether pods name their node: the one with the same number
	names    map[string]string // new names of services
	prices   int               // number of calls from gateway to prices, one after the other, in requests to priced
	priced   string            // a service; empty: cart
}

func newShop() *shop {
	table := &trace.Table{}
	return &shop{
		table:   table,
		sites:   compare.NewComparer(history.NewSites(table)),
		tracker: incident.NewTracker(),
		random:  *rand.NewPCG(1, 2),
		now:     trace.Nanos(time.Hour),
		spacing: time.Second,
		epoch:   epoch,
	}
}

// play plays some time. The work of each service or pod takes the given factor longer.
func (s *shop) play(d time.Duration, slower map[string]float64) {
	x, rng := critpath.NewExtractor(critpath.DefaultOptions()), rand.New(&s.random)
	for end := s.now.Add(d); s.now < end; {
		tally := history.NewTally()
		for at := s.now; at < s.now.Add(s.epoch) && !s.quiet; at = at.Add(s.spacing) {
			services := []string{"cart", "search"}
			services = slices.DeleteFunc(services, func(name string) bool { return name == s.stopped })
			if s.rare > 0 && int(at/trace.Nanos(time.Second))%s.rare == 0 {
				services = append(services, "rare")
			}
			for _, service := range services {
				factor, pod := 1.0, service+"-"+strconv.Itoa(s.pods+rng.IntN(4))
				if f := max(slower[service], slower[pod]); f != 0 {
					factor = f
				}
				tally.Observe(x.Extract(s.request(at, service, pod, trace.Nanos(factor*(90e6+20e6*rng.Float64())))))
				if s.consumer && service == "cart" && s.next%3 == 0 {
					worker := s.table.Symbol("worker")
					id := trace.ID{0: byte(s.next), 1: byte(s.next >> 8), 2: byte(s.next >> 16), 3: 1}
					tally.Observe(x.Extract(&trace.Trace{ID: id, Spans: []trace.Span{{
						ID:      1,
						Op:      s.table.Op(worker, s.table.Symbol("process carts"), trace.Consumer),
						Service: worker,
						Kind:    trace.Consumer,
						Start:   at.Add(time.Second),
						End:     at.Add(1100 * time.Millisecond),
					}}}))
				}
			}
		}
		s.sites.Merge(tally)
		s.now = s.now.Add(s.epoch)
		s.sites.Age(s.now)
		s.tracker.Step(s.now, s.sites)
		if s.saves {
			s.tracker = incident.Restore(s.tracker.Save())
		}
	}
}

// request returns a request to the gateway that a pod of a service answers after the given time.
func (s *shop) request(start trace.Nanos, service, pod string, work trace.Nanos) *trace.Trace {
	s.next++
	span := func(id, parent trace.SpanID, service, name string, kind trace.Kind, from, to trace.Nanos) trace.Span {
		symbol := s.table.Symbol(stdcmp.Or(s.names[service], service))
		return trace.Span{
			ID:      id,
			Parent:  parent,
			Op:      s.table.Op(symbol, s.table.Symbol(name), kind),
			Service: symbol,
			Kind:    kind,
			Start:   start + from,
			End:     start + to,
		}
	}
	route := "GET /" + service
	if service == "rare" && s.routes > 0 {
		route += strconv.Itoa(rand.New(&s.random).IntN(s.routes))
	}
	const wire = trace.Nanos(time.Millisecond)
	t := &trace.Trace{ID: trace.ID{0: byte(s.next), 1: byte(s.next >> 8), 2: byte(s.next >> 16)}, Spans: append(
		make([]trace.Span, 0, 4),
		span(1, 0, "gateway", route, trace.Server, 0, work+4*wire+s.gateway[service]),
		span(2, 1, "gateway", "GET", trace.Client, wire, work+3*wire),
	)}
	if service == s.silent {
		t.Spans[1].Peer = s.table.Op(s.table.Symbol(service), s.table.Symbol("GET"), trace.External)
		return t
	}
	if service == "cart" && s.timeouts && s.next%4 < 2 {
		const timeout = trace.Nanos(2 * time.Second)
		t.Spans[0].End, t.Spans[1].End = start+timeout+4*wire, start+timeout+3*wire
		t.Spans[1].Flags |= trace.Error
		t.Spans[1].Peer = s.table.Op(s.table.Symbol(service), s.table.Symbol("GET"), trace.External)
		return t
	}
	t.Spans = append(t.Spans, span(3, 2, service, route, trace.Server, 2*wire, work+2*wire))
	// Every second request is to the service.
	if service == s.failing && (s.next%20 < 2 || service == "rare" && s.next%4 > 0) {
		t.Spans[2].Flags |= trace.Error
	}
	t.Attrs = []trace.Attr{{Key: s.table.Symbol("k8s.pod.name"), Text: s.table.Symbol(pod), Span: 2}}
	if s.nodes {
		node := "node" + pod[strings.LastIndex(pod, "-"):]
		t.Attrs = append(t.Attrs, trace.Attr{Key: s.table.Symbol("k8s.node.name"), Text: s.table.Symbol(node), Span: 2})
	}
	if service == "cart" && s.version != "" {
		version := trace.Attr{Key: s.table.Symbol("service.version"), Text: s.table.Symbol(s.version), Span: 2}
		t.Attrs = append(t.Attrs, version)
	}
	if service == "cart" {
		length := work
		inner := s.inner
		if t.Spans[2].Flags&trace.Error != 0 {
			inner = inner[:max(0, len(inner)-1)] // it fails before the innermost one
		}
		for i, name := range inner {
			length = length * 3 / 4
			id := trace.SpanID(10 + i)
			parent := id - 1
			if i == 0 {
				parent = 3
			}
			t.Spans = append(t.Spans, span(id, parent, service, name, trace.Internal, 3*wire, 3*wire+length))
		}
	}
	if service == "cart" && s.extra {
		t.Spans = append(t.Spans, span(4, 3, service, "GET", trace.Client, 3*wire, 4*wire))
		t.Spans[len(t.Spans)-1].Peer = s.table.Op(s.table.Symbol("prices"), s.table.Symbol("GET"), trace.External)
	}
	for i := 0; service == stdcmp.Or(s.priced, "cart") && i < s.prices; i++ {
		id, from := trace.SpanID(100+2*i), work+4*wire+trace.Nanos(i)*5*wire
		t.Spans = append(t.Spans, span(id, 1, "gateway", "GET", trace.Client, from, from+5*wire),
			span(id+1, id, "prices", "GET /price", trace.Server, from, from+5*wire))
		t.Spans[0].End = start + from + 6*wire
	}
	return t
}

// summary describes each incident: its first suspect, its times relative to from, and whether it is open.
func (s *shop) summary(from trace.Nanos) (all []string) {
	for _, x := range s.tracker.Incidents() {
		text := s.table.Text(x.Suspects[0].Service) + " " + x.Opened().Sub(from).String()
		if x.Closed() != 0 {
			text += " to " + x.Closed().Sub(from).String()
		}
		all = append(all, text)
	}
	return all
}

// TestIncident slows a service down for ten minutes. One incident opens within three minutes, and closes once the
// service has recovered for two. The time of the incident does not become usual, and a restart at each epoch changes
// nothing.
func TestIncident(t *testing.T) {
	var states [2]incident.SavedTracker
	for i := range states {
		s := newShop()
		s.saves = i == 1
		s.play(time.Hour, nil)
		if got := s.summary(0); got != nil {
			t.Fatalf("incidents in a healthy hour: %v", got)
		}
		fault := s.now
		s.play(10*time.Minute, map[string]float64{"cart": 3})
		if diff := cmp.Diff([]string{"cart 2m10s"}, s.summary(fault)); diff != "" {
			t.Errorf("in the fault (-want +got):\n%s", diff)
		}
		s.play(time.Hour, nil)
		if diff := cmp.Diff([]string{"cart 2m10s to 12m50s"}, s.summary(fault)); diff != "" {
			t.Errorf("after the fault (-want +got):\n%s", diff)
		}
		if end := s.tracker.Incidents()[0].End().Sub(fault); end < 10*time.Minute || end > 11*time.Minute {
			t.Errorf("the evidence ends %v after the fault began, want 10 to 11 minutes", end)
		}
		again := s.now
		s.play(10*time.Minute, map[string]float64{"cart": 3})
		if got := s.summary(again); len(got) != 2 || got[1] != "cart 2m10s" {
			t.Errorf("the same fault again: %v", got)
		}
		states[i] = s.tracker.Save()
	}
	if diff := cmp.Diff(states[0], states[1]); diff != "" {
		t.Errorf("restarts change the state (-without +with):\n%s", diff)
	}
}

// TestOnset slows a service down some time before the incident opens. The onset is the start of the change, within 20
// seconds.
func TestOnset(t *testing.T) {
	for _, slower := range []float64{1.5, 2, 3, 6} {
		s := newShop()
		s.play(time.Hour, nil)
		s.play(50*time.Second, nil) // the change doesn't start on a full minute
		began := s.now
		s.play(5*time.Minute, map[string]float64{"cart": slower})
		all := s.tracker.Incidents()
		if len(all) != 1 {
			t.Fatalf("%g times slower: %d incidents", slower, len(all))
		}
		if off := all[0].Onset.Sub(began); off.Abs() > 20*time.Second {
			t.Errorf("%g times slower: the onset is off by %v; the incident opened after %v",
				slower, off, all[0].Opened().Sub(began))
		}
	}
}

// TestOnsetOfOutage makes a service stop answering, so that calls to it are at sites without a history. The onset is
// the start of the outage, within 20 seconds.
func TestOnsetOfOutage(t *testing.T) {
	s := newShop()
	s.play(time.Hour+50*time.Second, nil)
	began := s.now
	s.silent = "cart"
	s.play(5*time.Minute, nil)
	all := s.tracker.Incidents()
	if len(all) != 1 {
		t.Fatalf("%d incidents", len(all))
	}
	if off := all[0].Onset.Sub(began); off.Abs() > 20*time.Second {
		t.Errorf("the onset is off by %v; the incident opened after %v", off, all[0].Opened().Sub(began))
	}
}

// TestOnsetOfTimeouts stops an instance, so that part of the calls to a service end after a timeout. The incident opens
// within a minute. The onset is the start of the change, within 20 seconds.
func TestOnsetOfTimeouts(t *testing.T) {
	s := newShop()
	s.play(time.Hour+50*time.Second, nil)
	began := s.now
	s.timeouts = true
	for len(s.tracker.Incidents()) == 0 {
		s.play(10*time.Second, nil)
	}
	x := s.tracker.Incidents()[0]
	if off := x.Onset.Sub(began); off.Abs() > 20*time.Second {
		t.Errorf("the onset is off by %v; the incident opened after %v", off, x.Opened().Sub(began))
	}
}

// TestOnsetOfAddedCalls makes a service call another one more often, or for the first time, so that no call takes
// longer than before. The onset is the start of the change, within 20 seconds, and not the time at which the incident
// opens.
func TestOnsetOfAddedCalls(t *testing.T) {
	for _, before := range []int{0, 1} {
		s := newShop()
		s.prices = before
		s.play(time.Hour+50*time.Second, nil)
		began := s.now
		s.prices = 21
		s.play(5*time.Minute, nil)
		all := s.tracker.Incidents()
		if len(all) != 1 {
			t.Fatalf("%d calls before: %d incidents", before, len(all))
		}
		if off := all[0].Onset.Sub(began); off.Abs() > 20*time.Second {
			t.Errorf("%d calls before: the onset is off by %v; the incident opened after %v",
				before, off, all[0].Opened().Sub(began))
		}
	}
}

// TestScoresSinceOnset slows down a service that answers half of the requests. As soon as its incident opens, the score
// is the mean added latency of a request since the onset.
func TestScoresSinceOnset(t *testing.T) {
	s := newShop()
	s.play(time.Hour, nil)
	for len(s.tracker.Incidents()) == 0 && s.now < trace.Nanos(3*time.Hour) {
		s.play(epoch, map[string]float64{"cart": 3})
	}
	const longer = (3 - 1) * 100.0 / 2 / (100 + 4) // work takes 100 ms, the rest 4 ms
	x := s.tracker.Incidents()[0]
	if got := x.Suspects[0].Score; got < 0.9*longer || got > 1.05*longer {
		t.Errorf("score %.2f, want about %.2f", got, longer)
	}
	if want := 2 * int(x.Opened().Sub(x.Onset).Seconds()); x.Requests != want {
		t.Errorf("%d requests, want %d", x.Requests, want)
	}
}

// TestBurst slows a service down for 40 seconds, which isn't an incident.
func TestBurst(t *testing.T) {
	s := newShop()
	s.play(time.Hour, nil)
	s.play(40*time.Second, map[string]float64{"cart": 5})
	s.play(20*time.Minute, nil)
	if got := s.summary(0); got != nil {
		t.Errorf("incidents after a burst: %v", got)
	}
}

// TestTwoCauses slows down, at once, two services that do not call each other. Two incidents open, each with its own
// suspect.
func TestTwoCauses(t *testing.T) {
	s := newShop()
	s.play(time.Hour, nil)
	fault := s.now
	s.play(5*time.Minute, map[string]float64{"cart": 3, "search": 4})
	got := s.summary(fault)
	if len(got) != 2 || got[0][:4] == got[1][:4] {
		t.Errorf("incidents %v, want one of cart and one of search", got)
	}
}

// TestOrderOfSuspects slows two services and, a little, their caller. In each incident the suspects after the first are
// ordered by the scores that are shown.
func TestOrderOfSuspects(t *testing.T) {
	s := newShop()
	s.gateway = map[string]trace.Nanos{"cart": 5e6, "search": 5e6}
	s.play(time.Hour, nil)
	s.gateway = map[string]trace.Nanos{"cart": 9e6, "search": 9e6}
	compared := 0
	for range 30 {
		s.play(epoch, map[string]float64{"cart": 3, "search": 4})
		for _, x := range s.tracker.Incidents() {
			for i := 2; i < len(x.Suspects); i++ {
				if a, b := x.Suspects[i-1].Score, x.Suspects[i].Score; a < b {
					t.Fatalf("suspect %d has score %v, the one before %v", i+1, b, a)
				} else if b > 0 {
					compared++
				}
			}
		}
	}
	if compared == 0 {
		t.Error("no incident has two suspects besides the first one")
	}
}

// TestTwoNeighbours slows down cart most and also its caller, the gateway. The gateway has an incident of its own
// unless it is slower only where it calls cart, because there it may wait for cart without a span.
func TestTwoNeighbours(t *testing.T) {
	for _, c := range []struct {
		late string // the service whose caller is late
		want []string
	}{
		{"cart", []string{"cart"}},
		{"search", []string{"cart", "gateway"}},
	} {
		s := newShop()
		s.play(time.Hour, nil)
		fault := s.now
		s.gateway = map[string]trace.Nanos{c.late: 40e6}
		s.play(6*time.Minute, map[string]float64{"cart": 6})
		var got []string
		for _, x := range s.summary(fault) {
			got = append(got, strings.Fields(x)[0])
		}
		slices.Sort(got)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("gateway late in calls to %s (-want +got):\n%s", c.late, diff)
		}
	}
}

// TestLearnBeforeOnset alternates between faults and healthy times that are too short to prove a window healthy. The
// windows before each onset are learned.
func TestLearnBeforeOnset(t *testing.T) {
	s := newShop()
	s.play(time.Hour, nil)
	before := s.tracker.Save().Healthy[0]
	for range 5 {
		s.play(8*time.Minute, nil)
		s.play(4*time.Minute, map[string]float64{"cart": 4})
	}
	if learned := s.tracker.Save().Healthy[0] - before; learned < 5 {
		t.Errorf("%.1f healthy windows learned in 40 healthy minutes between faults", learned)
	}
}

// TestFailuresOfVaryingService makes a service fail whose times vary so much that the failures alone are small compared
// with its record.
func TestFailuresOfVaryingService(t *testing.T) {
	s := newShop()
	for i := range 15 {
		s.play(10*time.Minute, nil)
		s.play(4*time.Minute, map[string]float64{"cart": 1.1 + 0.04*float64(i)})
	}
	if got := s.summary(0); got != nil {
		t.Fatalf("incidents while times vary: %v", got)
	}
	const lost, failing = 0, 4 // kinds of evidence
	if r := s.tracker.Save().Records[0]; s.table.Text(r.Service) != "cart" ||
		3*r.Kinds[lost][0].Level < 0.05 || len(r.Kinds[failing]) > 0 {
		t.Fatalf("record %+v, want one of cart that hides failures of 5 %% of the requests", r)
	}
	fault := s.now
	s.failing = "cart"
	s.play(6*time.Minute, nil)
	if diff := cmp.Diff([]string{"cart 2m20s"}, s.summary(fault)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFailuresOfRareService makes a service fail that few requests call. Most of these requests fail, but few of all
// requests.
func TestFailuresOfRareService(t *testing.T) {
	s := newShop()
	s.rare = 12
	s.play(time.Hour, nil)
	fault := s.now
	s.failing = "rare"
	s.play(5*time.Minute, nil)
	if diff := cmp.Diff([]string{"rare 2m30s"}, s.summary(fault)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if score := s.tracker.Incidents()[0].Suspects[0].Score; score > 0.05 {
		t.Errorf("the score is %.3f, want one that raises nothing among all requests", score)
	}
}

// TestPast judges the first window when an hour of history becomes known at once. The windows of that hour count as
// healthy, except the windows of a fault.
func TestPast(t *testing.T) {
	for _, c := range []struct {
		name   string
		faulty map[string]float64
		least  float64 // healthy windows
		most   float64
	}{
		{"healthy", nil, 15, 18},
		{"with a fault", map[string]float64{"cart": 30}, 12, 16},
	} {
		s := newShop()
		s.play(30*time.Minute, nil)
		s.play(5*time.Minute, c.faulty)
		s.play(25*time.Minute, nil)
		s.tracker = incident.NewTracker()
		s.play(epoch, nil)
		state := s.tracker.Save()
		if got := state.Healthy[0]; got < c.least || got > c.most {
			t.Errorf("%s: %.1f healthy windows, want %.0f to %.0f", c.name, got, c.least, c.most)
		}
		for _, r := range state.Records {
			for k, peaks := range r.Kinds {
				if len(peaks) > 0 && peaks[0].Level > 0.05 {
					t.Errorf("%s: the record of %s for kind %d is %.3f",
						c.name, s.table.Text(r.Service), k, peaks[0].Level)
				}
			}
		}
	}
}

// TestPastInPieces receives half an hour of history over several epochs, in one of two cases the latest minutes first.
// Its windows count as healthy once the whole history is there, and each counts once.
func TestPastInPieces(t *testing.T) {
	for _, c := range []struct {
		name  string
		order []int // of three pieces of ten minutes
	}{{"oldest first", []int{0, 1, 2}}, {"latest first", []int{2, 1, 0}}} {
		s := newShop()
		begin := s.now
		s.now = begin.Add(30 * time.Minute)
		for _, piece := range c.order {
			tally, x := history.NewTally(), critpath.NewExtractor(critpath.DefaultOptions())
			from := begin.Add(time.Duration(piece) * 10 * time.Minute)
			for at := from; at < from.Add(10*time.Minute); at = at.Add(time.Second) {
				work := trace.Nanos(90e6 + 20e6*rand.New(&s.random).Float64())
				tally.Observe(x.Extract(s.request(at, "cart", "cart-0", work)))
			}
			s.sites.Merge(tally)
			s.play(epoch, nil)
		}
		s.play(2*time.Minute, nil)
		if got := s.tracker.Save().Healthy[0]; got < 5 || got > 8 {
			t.Errorf("%s: %.1f healthy windows, want 5 to 8", c.name, got)
		}
	}
}

// TestPod slows down one of four pods. The incident names the pod.
func TestPod(t *testing.T) {
	s := newShop()
	s.play(time.Hour, nil)
	s.play(10*time.Minute, map[string]float64{"cart-2": 6})
	all := s.tracker.Incidents()
	if len(all) != 1 || len(all[0].Suspects[0].Instances) != 1 {
		t.Fatalf("incidents %+v, want one with one pod", all)
	}
	suspect := all[0].Suspects[0]
	pod := suspect.Instances[0]
	if s.table.Text(suspect.Service) != "cart" || s.table.Text(pod.Value) != "cart-2" || pod.Part < 0.9 || pod.Of != 4 {
		t.Errorf("%s on %s (%+v), want cart on cart-2", s.table.Text(suspect.Service), s.table.Text(pod.Value), pod)
	}
}

// TestColdStart makes a service slow after its first minutes. Without a history, no incident opens.
func TestColdStart(t *testing.T) {
	s := newShop()
	s.play(5*time.Minute, nil)
	s.play(5*time.Minute, map[string]float64{"cart": 3})
	if got := s.summary(0); got != nil {
		t.Errorf("incidents without a history: %v", got)
	}
}

// An accepted incident closes, and the same level raises nothing, neither while its service is learned again nor later.
// A further slowdown does.
func TestAccept(t *testing.T) {
	for _, saves := range []bool{false, true} {
		s := newShop()
		s.saves = saves
		s.play(time.Hour, nil)
		fault := s.now
		slow := map[string]float64{"cart": 3}
		s.play(5*time.Minute, slow)
		x := s.tracker.Incidents()[0]
		if s.tracker.Accept(x.ID+1, "ada", "") || !s.tracker.Accept(x.ID, "ada", "more items") {
			t.Error("an unknown incident was accepted, or the open one was not")
		}
		s.play(10*time.Second, slow)
		x = s.tracker.Incidents()[0]
		accepted := incident.Transition{
			At:    s.now,
			State: incident.Accepted,
			Why:   incident.ByPerson,
			By:    "ada",
			Text:  "more items",
		}
		if x.Last() != accepted || s.tracker.Accept(x.ID, "ada", "") {
			t.Errorf("after the next epoch: %+v", x)
		}
		for _, r := range s.tracker.Save().Records {
			if s.table.Text(r.Service) == "cart" {
				t.Errorf("records of cart: %v", r.Kinds)
			}
		}
		s.play(2*time.Hour, slow)
		if diff := cmp.Diff([]string{"cart 2m10s to 5m10s"}, s.summary(fault)); diff != "" {
			t.Errorf("two hours at the accepted level (-want +got):\n%s", diff)
		}
		s.play(10*time.Minute, map[string]float64{"cart": 6})
		if got := s.summary(fault); len(got) != 2 {
			t.Errorf("twice as slow as the accepted level: %v", got)
		}
	}
}

// Accepting an incident is proposed once, after a day without growth or an end.
func TestProposal(t *testing.T) {
	s := newShop()
	s.saves, s.spacing = true, 2*time.Second
	s.play(time.Hour, nil)
	proposed := func() trace.Nanos { return s.tracker.Incidents()[0].Proposed() }
	slow := map[string]float64{"cart": 3}
	s.play(incident.Day-time.Hour, slow)
	grown := s.now
	slow["cart"] = 6
	s.play(5*time.Hour, slow)
	if proposed() != 0 {
		t.Fatalf("proposed at %v, %v after it grew", proposed(), proposed().Sub(grown))
	}
	s.play(20*time.Hour, slow)
	at := proposed()
	if after := at.Sub(grown); after < incident.Day || after > incident.Day+30*time.Minute {
		t.Errorf("proposed %v after it grew, want a day", after)
	}
	s.play(3*time.Hour, slow)
	if x := s.tracker.Incidents(); len(x) != 1 || proposed() != at || !x[0].IsSteady() {
		t.Errorf("later: %+v", x)
	}
}

// An incident that returns soon after its end reopens.
func TestReopen(t *testing.T) {
	s := newShop()
	s.play(time.Hour, nil)
	slow := map[string]float64{"cart": 3}
	s.play(5*time.Minute, slow)
	for s.tracker.Incidents()[0].Closed() == 0 {
		s.play(10*time.Second, nil)
	}
	closed := s.now
	s.play(3*time.Minute, slow)
	all := s.tracker.Incidents()
	if len(all) != 1 || all[0].Closed() != 0 || all[0].Reopened() <= closed {
		t.Errorf("after it closed at %v: %+v", closed, all)
	}
}

// Forget deletes old incidents, and the oldest beyond the bound; open ones stay.
func TestForget(t *testing.T) {
	var state incident.SavedTracker
	const n = incident.MaxClosed + 10
	for i := range trace.Nanos(n) {
		x := incident.Incident{
			ID: uint64(i + 1), Suspects: []compare.Suspect{{}}, History: []incident.Transition{{At: i + 1}},
		}
		if i != 3 {
			x.Enter(incident.Transition{At: i + 2, State: incident.Closed, Why: incident.Recovered})
		}
		state.Incidents = append(state.Incidents, incident.SavedIncident{Incident: x})
	}
	tracker := incident.Restore(state)
	tracker.Forget(0)
	if all := tracker.Incidents(); len(all) != incident.MaxClosed+1 || all[0].ID != 4 || all[1].ID != 11 {
		t.Errorf("%d incidents, the first %d and %d", len(all), all[0].ID, all[1].ID)
	}
	tracker.Forget(n)
	if all := tracker.Incidents(); len(all) != 3 || all[0].ID != 4 || all[2].ID != n {
		t.Errorf("incidents %+v", all)
	}
}

// An incident that was reported before it is merged into another one stays in the list, closed, with the ID of the
// other.
func TestMerge(t *testing.T) {
	s := newShop()
	s.play(time.Hour, nil)
	slow := map[string]float64{"cart": 3}
	s.play(5*time.Minute, slow)
	state := s.tracker.Save()
	gateway := s.table.Symbol("gateway")
	state.Incidents = append(state.Incidents, incident.SavedIncident{
		Incident: incident.Incident{
			ID:       7,
			Onset:    s.now.Add(-2 * epoch),
			Seen:     s.now,
			History:  []incident.Transition{{At: s.now.Add(-epoch)}},
			Suspects: []compare.Suspect{{Service: gateway}},
		},
		Service: gateway, Score: 0.001,
	})
	s.tracker = incident.Restore(state)
	s.play(epoch, slow)
	all := s.tracker.Incidents()
	if len(all) != 2 || all[0].Closed() != 0 || all[1].Into() != all[0].ID || all[1].Closed() != s.now {
		t.Errorf("incidents %+v", all)
	}
}

// TestWaitingWithoutSpan slows cart down. search waits for some of its work, and no span shows it. There is one
// incident, of cart, although search alone would raise another.
func TestWaitingWithoutSpan(t *testing.T) {
	for name, slower := range map[string]map[string]float64{
		"cart":   {"cart": 40, "search": 3},
		"search": {"search": 3},
	} {
		s := newShop()
		s.play(time.Hour, nil)
		fault := s.now
		s.play(5*time.Minute, slower)
		if got := s.summary(fault); len(got) != 1 || !strings.HasPrefix(got[0], name) {
			t.Errorf("incidents %v, want one of %s", got, name)
		}
	}
}

// TestFirstMinutes starts with minutes when everything varies. They don't become a record that masks a later fault.
func TestFirstMinutes(t *testing.T) {
	s := newShop()
	for i := range 6 {
		s.play(time.Minute, map[string]float64{"cart": float64(1 + 4*(i%2))})
	}
	s.play(2*time.Hour, nil)
	fault := s.now
	s.play(5*time.Minute, map[string]float64{"cart": 2})
	if got := s.summary(fault); len(got) != 1 {
		t.Errorf("incidents %v, want one", got)
	}
}

// TestWrongClocks receives requests from hosts with wrong clocks, before all others and during an incident. They end
// neither the time until windows can be judged, nor the history, nor the incident.
func TestWrongClocks(t *testing.T) {
	s := newShop()
	s.now = trace.Nanos(50 * 365 * 24 * time.Hour)
	receive := func(times ...trace.Nanos) {
		tally, x := history.NewTally(), critpath.NewExtractor(critpath.DefaultOptions())
		for _, at := range times {
			tally.Observe(x.Extract(s.request(at, "cart", "cart-0", 100e6)))
		}
		s.sites.Merge(tally)
	}
	const year = 365 * 24 * time.Hour
	wrong := []trace.Nanos{0, trace.Nanos(5 * time.Second), s.now.Add(-year), s.now.Add(year)}
	for i := range trace.Nanos(200) {
		wrong = append(wrong, s.now.Add(24*time.Hour)+i*trace.Nanos(time.Minute))
	}
	receive(wrong...)
	s.play(6*time.Minute, nil)
	if incident.Ready(s.now, s.sites.Sites) {
		t.Errorf("the first window can be judged after six minutes")
	}
	s.play(time.Hour, nil)
	fault := s.now
	s.play(4*time.Minute, map[string]float64{"cart": 3})
	receive(wrong...)
	s.play(4*time.Minute, map[string]float64{"cart": 3})
	if diff := cmp.Diff([]string{"cart 2m10s"}, s.summary(fault)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The time left until incidents are reported is right to a minute while traces arrive, and stands still without them.
func TestLeft(t *testing.T) {
	s := newShop()
	first := incident.Left(s.now, s.sites.Sites)
	var told []time.Duration // by minute
	for incident.Left(s.now, s.sites.Sites) > 0 {
		told = append(told, incident.Left(s.now, s.sites.Sites))
		if len(told) == 4 {
			s.now = s.now.Add(time.Hour)
			if left := incident.Left(s.now, s.sites.Sites); left != told[3] {
				t.Errorf("%v left after an hour without traces, want %v", left, told[3])
			}
		}
		s.play(time.Minute, nil)
	}
	for i, left := range told {
		if took := time.Duration(len(told)-i) * time.Minute; (left - took).Abs() > time.Minute {
			t.Errorf("%v left, but it took %v", left, took)
		}
	}
	if len(told) < 5 || first != told[0] {
		t.Errorf("left by minute: %v, before that %v", told, first)
	}
}

// TestSilentService slows a service down that emits no spans. Its time is also the gateway's, but there is one
// incident.
func TestSilentService(t *testing.T) {
	s := newShop()
	s.silent = "cart"
	s.play(time.Hour, nil)
	fault := s.now
	s.play(10*time.Minute, map[string]float64{"cart": 3})
	if got := s.summary(fault); len(got) != 1 {
		t.Errorf("incidents %v, want one", got)
	}
}

// TestScoreFollows plays a fault that becomes weaker. The score is the mean since the onset, not the mean over the time
// with the most evidence, and the time after the recovery doesn't lower it.
func TestScoreFollows(t *testing.T) {
	s := newShop()
	s.play(2*time.Hour, nil)
	s.play(5*time.Minute, map[string]float64{"cart": 4})
	first := s.tracker.Incidents()[0]
	s.play(15*time.Minute, map[string]float64{"cart": 2})
	x := s.tracker.Incidents()[0]
	if now, before := x.Suspects[0].Score, first.Suspects[0].Score; now > 0.7*before || x.Requests < 2*first.Requests {
		t.Errorf("a score of %.2f over %d requests, and of %.2f over %d in the first minutes: "+
			"it does not follow the fault", now, x.Requests, before, first.Requests)
	}
	s.play(15*time.Minute, nil)
	closed := s.tracker.Incidents()[0]
	if closed.Closed() == 0 || closed.Suspects[0].Score < 0.85*x.Suspects[0].Score {
		t.Errorf("closed at %d with a score of %.2f, before the recovery %.2f",
			closed.Closed(), closed.Suspects[0].Score, x.Suspects[0].Score)
	}
}

// TestAddedCalls makes the gateway call a fast service 21 times instead of once (N+1), although no call takes longer.
// The gateway is the first suspect within three minutes, and its new calls are named. A restart at each epoch changes
// nothing.
func TestAddedCalls(t *testing.T) {
	for _, saves := range []bool{false, true} {
		s := newShop()
		s.saves, s.prices = saves, 1
		s.play(time.Hour, nil)
		from := s.now
		s.prices = 21
		s.play(10*time.Minute, nil)
		incidents := s.tracker.Incidents()
		if len(incidents) != 1 || incidents[0].Opened().Sub(from) > 3*time.Minute {
			t.Fatalf("incidents %v, want one within three minutes", s.summary(from))
		}
		x := &incidents[0].Suspects[0]
		if name := s.table.Text(x.Service); name != "gateway" || len(x.AddedCalls) != 1 || x.Added <= 0 {
			t.Fatalf("first suspect %s, added %v by %v, want the gateway with one added call",
				name, x.Added, x.AddedCalls)
		}
		c := x.AddedCalls[0]
		got := []any{s.table.OpName(c.Op), s.table.OpName(c.Caller), c.Before, c.Now, c.Nanos}
		if diff := cmp.Diff([]any{"GET /price", "GET /cart", 1., 21., 100e6}, got); diff != "" {
			t.Errorf("added call (-want +got):\n%s", diff)
		}
	}
}

// TestAddedCallsInFewRequests makes the gateway call a fast service 16 times instead of once, in one of 33 requests.
// These take two thirds longer, and all requests together 2 %, which is too little for an incident.
func TestAddedCallsInFewRequests(t *testing.T) {
	s := newShop()
	s.spacing, s.rare, s.priced, s.prices = time.Second/2, 16, "rare", 1
	s.play(time.Hour, nil)
	from := s.now
	s.prices = 16
	s.play(10*time.Minute, nil)
	s.prices = 1
	s.play(10*time.Minute, nil)
	if diff := cmp.Diff([]string{"gateway 3m0s to 12m30s"}, s.summary(from)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFastAdditions deploys versions of a service that emit one more span, or make one more fast call. They raise
// nothing.
func TestFastAdditions(t *testing.T) {
	for name, deploy := range map[string]func(s *shop){
		"internal span": func(s *shop) { s.inner = []string{"validate"} },
		"call":          func(s *shop) { s.extra = true },
		"another call":  func(s *shop) { s.prices = 1 },
	} {
		s := newShop()
		s.play(time.Hour, nil)
		deploy(s)
		s.play(30*time.Minute, nil)
		if got := s.summary(0); got != nil {
			t.Errorf("%s: incidents %v, want none", name, got)
		}
	}
}
