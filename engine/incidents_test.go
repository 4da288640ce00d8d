package engine_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// TestIncidents slows down one service of an application after 20 healthy minutes. An incident opens with that service
// as its first suspect. The request types that it affects run through the service and are slower or fail more often.
// All of this survives a restart.
func TestIncidents(t *testing.T) {
	w := newWorld(small(3, sim.CPU), engine.DefaultOptions())
	const healthy = 20 * time.Minute
	w.until(healthy)
	if got := w.core.View().Incidents.All(); len(got) > 0 {
		t.Errorf("%d incidents in healthy minutes", len(got))
	}
	w.app.Inject(w.now)
	var x engine.Incident
	for w.now < start.Add(healthy+15*time.Minute) && len(x.Types) == 0 {
		w.play()
		if all := w.core.View().Incidents.All(); len(all) > 0 {
			x = all[0]
		}
	}
	if len(x.Types) == 0 {
		t.Fatalf("no incident with a request type: %+v", w.core.View().Incidents.All())
	}
	table, service := w.app.Table(), x.Suspects[0].Service
	if got, want := table.Text(service), table.ServiceName(w.app.Target().Operations[0]); got != want {
		t.Errorf("first suspect %s, want %s", got, want)
	}
	last := math.Inf(1)
	for _, a := range x.Types {
		lost := float64(a.Requests) * (max(0, a.Mean-a.Usual) + max(0, a.Failed-a.UsualFailed)*a.Usual)
		if !(a.Mean > a.Usual || a.Failed > a.UsualFailed) || lost > last || a.Requests == 0 {
			t.Errorf("request type %s: %+v, after one that lost %g", a.RequestType, a, last)
		}
		last = lost
		through := false
		for _, n := range w.core.View().Trees.Of(a.RequestType).Nodes {
			op := table.Operation(n.Op)
			through = through || op.Service == service || table.Operation(op.Target).Service == service
		}
		if !through {
			t.Errorf("request type %s does not run through %s", a.RequestType, table.Text(service))
		}
	}
	restored := engine.NewCore(new(trace.Table), engine.DefaultOptions())
	if err := restored.Restore(w.core.AppendState(nil)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(w.core.View().Incidents.All(), restored.View().Incidents.All()); diff != "" {
		t.Errorf("after a restart (-before +after):\n%s", diff)
	}
}

// While an incident is open, usual values come from before its onset. This is true for live traffic, where it opens
// some time after its onset, and for a recorded past that arrives at once. It is also true for requests through the
// suspect that hardly show the incident, and after the incident.
func TestUsualIsBeforeOnset(t *testing.T) {
	const healthy, faulty, most = 30 * time.Minute, 3 * time.Minute, 40 * time.Minute
	rare := func(fault sim.Fault) sim.Config { // so rare that the first requests after the onset prove nothing
		config := small(3, fault)
		config.Rate = 2
		return config
	}
	usual := make(map[trace.Op]float64) // 99th percentiles of the entries without the fault
	w := newWorld(rare(sim.None), engine.DefaultOptions())
	for w.until(healthy + most); len(usual) == 0; {
		for g := range w.core.View().Groups.Each() {
			spans := w.core.View().Spans.Usual(g.Entry)
			usual[g.Entry] = spans.Quantile(0.99)
		}
	}
	for _, recorded := range []bool{false, true} {
		w := newWorld(rare(sim.CPU), engine.DefaultOptions())
		began := start.Add(healthy)
		w.app.Inject(began)
		if recorded {
			for tr := range w.app.Requests(start, began.Add(faulty), nil) {
				w.core.Ingest(tr)
			}
			w.now = began.Add(faulty)
			w.core.Epoch(w.now)
		} else {
			w.until(healthy)
		}
		through, table := 0, w.app.Table()
		for w.now < began.Add(most) {
			w.play()
			all := w.core.View().Incidents.All()
			if len(all) == 0 {
				continue
			}
			x := &all[0]
			if x.Closed() != 0 || x.Onset < began.Add(-time.Minute) || x.Onset > began.Add(time.Minute) {
				t.Fatalf("recorded %t: the onset is %v after that of the fault, closed at %v",
					recorded, x.Onset.Sub(began), x.Closed())
			}
			for _, a := range x.Types {
				if g := w.core.View().Groups.Group(a.RequestType); a.Usual != g.Reference.Total.Mean() {
					t.Fatalf("recorded %t: the usual mean is %v, that of the reference %v",
						recorded, a.Usual, g.Reference.Total.Mean())
				}
			}
			for g := range w.core.View().Groups.Each() {
				passes := slices.ContainsFunc(w.core.View().Trees.Of(g.RequestType).Nodes, func(n cct.Node) bool {
					return table.Operation(n.Op).Service == x.Suspects[0].Service
				})
				if !passes || !g.Expectation.Learned {
					continue
				}
				if through++; g.Reference.Last > x.Onset.Add(engine.DefaultOptions().Epoch) {
					t.Fatalf("recorded %t, %v after the onset: requests until %v after it are usual",
						recorded, w.now.Sub(x.Onset), g.Reference.Last.Sub(x.Onset))
				}
				spans := w.core.View().Spans.Usual(g.Entry)
				if p99 := spans.Quantile(0.99); spans.Count() < 100 || p99 > 1.2*usual[g.Entry] {
					t.Fatalf("recorded %t, %v after the onset: %d usual spans with a 99th percentile of %v, "+
						"without the fault %v", recorded, w.now.Sub(x.Onset), spans.Count(), p99, usual[g.Entry])
				}
			}
		}
		before := make(map[analysis.Hash]float64)
		for g := range w.core.View().Groups.Each() {
			before[g.ID] = g.Reference.Latency.Quantile(0.99)
		}
		w.app.Inject(math.MaxInt64)
		w.until(healthy + most + 30*time.Minute)
		if x := w.core.View().Incidents.All()[0]; x.Closed() == 0 {
			t.Fatalf("recorded %t: the incident is open half an hour after the fault", recorded)
		}
		for g := range w.core.View().Groups.Each() {
			if after := g.Reference.Latency.Quantile(0.99); g.Expectation.Learned && after > 1.2*before[g.ID] {
				t.Errorf("recorded %t: after the incident the usual 99th percentile is %v, before %v",
					recorded, after, before[g.ID])
			}
		}
		if through == 0 {
			t.Errorf("recorded %t: no requests through the suspect of an incident", recorded)
		}
	}
}

// The search of an incident locates the cause without a problem in any request type, and uses tracepoints of the first
// suspect only. A restart while tracepoints are on changes no decision.
func TestIncidentSearch(t *testing.T) {
	var logs [2][]string
	for i := range logs {
		logs[i] = searchIncident(t, i == 1)
	}
	if diff := cmp.Diff(logs[0], logs[1]); diff != "" {
		t.Errorf("decisions without and with a restart:\n%s", diff)
	}
}

// The place of a steady problem in the first suspect, located before the incident, isn't the place of the incident.
func TestIncidentSearchedAnew(t *testing.T) {
	options := engine.DefaultOptions()
	options.Watch.Chronic.CoV = 0.01
	w := newWorld(small(3, sim.CPU), options)
	w.until(20 * time.Minute)
	steady := make(map[trace.Symbol]bool) // services with located problems
	for _, p := range w.core.View().Problems.Open() {
		if op := w.core.View().Searches.Investigation(search.OfProblem(p.ID)).Answer(); op != 0 {
			steady[w.app.Table().Operation(op).Service] = true
		}
	}
	w.app.Inject(w.now)
	for len(w.core.View().Incidents.All()) == 0 {
		w.play()
	}
	x := w.core.View().Incidents.All()[0]
	if !steady[x.Suspects[0].Service] {
		t.Fatal("no steady problem was located in the first suspect")
	}
	if v := w.core.View().Searches.Investigation(search.OfIncident(x.ID)); v == nil || v.Opened < x.Onset {
		t.Errorf("the incident since %d has investigation %+v, want one that began later", x.Onset, v)
	}
}

// searchIncident plays until the search of an incident ends, and returns the decisions. If restart is set, it restarts
// the engine once while tracepoints are on.
func searchIncident(t *testing.T, restart bool) []string {
	t.Helper()
	options := engine.DefaultOptions()
	options.Watch.MinImpact = math.MaxFloat64 // no problem opens
	w := newWorld(small(3, sim.CPU), options)
	w.until(20 * time.Minute)
	w.app.Inject(w.now)
	for w.now < start.Add(50*time.Minute) {
		w.play()
		all := w.core.View().Incidents.All()
		if len(all) == 0 {
			continue
		}
		v := w.core.View().Searches.Investigation(search.OfIncident(all[0].ID))
		if v == nil {
			t.Fatal("an open incident without an investigation")
		}
		leases := w.core.View().Searches.Plan().Leases
		for _, l := range leases {
			if got, want := w.service(l.Tracepoint), all[0].Suspects[0].Service; got != want {
				t.Fatalf("a tracepoint of %s is on, want one of %s", w.app.Table().Text(got), w.app.Table().Text(want))
			}
		}
		if len(leases) > 0 && len(w.core.View().Searches.Entries(w.core.View().Groups)) == 0 {
			t.Fatal("no requests are under investigation while tracepoints are on")
		}
		if restart && len(leases) > 0 {
			restart = false
			w.restart(t, options)
		}
		if v.Status < search.Located {
			continue
		}
		if restart {
			t.Error("the search ended without tracepoints")
		}
		if !slices.Contains(w.app.Target().Operations, v.Answer()) {
			t.Errorf("%s %s: %s, want one of the operations %v",
				v.Status, w.app.Table().OpName(v.Answer()), v.Reason, w.app.Target().Operations)
		}
		return w.log
	}
	t.Fatal("the search did not end")
	return nil
}

// restart replaces the engine with a new one restored from its state.
func (w *world) restart(t *testing.T, options engine.Options) {
	t.Helper()
	restored := engine.NewCore(w.app.Table(), options)
	if err := restored.Restore(w.core.AppendState(nil)); err != nil {
		t.Fatal(err)
	}
	w.core = restored
}

// service returns the service that runs tracepoint.
func (w *world) service(tracepoint trace.Symbol) trace.Symbol {
	for _, p := range w.app.Catalogue() {
		if p.ID == tracepoint {
			return w.app.Table().Operation(p.Op).Service
		}
	}
	return 0
}

// placing ingests a request that places an order. A span of orders contains a span of a payment, and spends the time
// `after` itself once the payment is done. There is no span for the call.
func placing(core *engine.Core, table *trace.Table, at trace.Nanos, payment, after float64) {
	span := func(id, parent trace.SpanID, service, name string, from, to trace.Nanos) trace.Span {
		s := table.Symbol(service)
		return trace.Span{
			ID:      id,
			Parent:  parent,
			Op:      table.Op(s, table.Symbol(name), trace.Server),
			Service: s,
			Kind:    trace.Server,
			Start:   from,
			End:     to,
		}
	}
	noise := func(x uint64) float64 { return 0.95 + float64(trace.Mix(uint64(at), x)%100)/1000 }
	ms := func(x float64) trace.Nanos { return trace.Nanos(1e6 * x) }
	begun := at + ms(2*noise(1))
	answered := begun + ms(payment*noise(2))
	core.Ingest(&trace.Trace{
		ID: trace.ID{15: 1, 0: byte(at / 1e7), 1: byte(at / 1e9), 2: byte(at / 1e11), 3: byte(at / 1e13)},
		Spans: []trace.Span{
			span(1, 0, "orders", "POST /place", at, answered+ms(after*noise(3))),
			span(2, 1, "payment", "Charge", begun, answered),
		},
	})
}

// If callers have no spans for their calls, the time after a call may be their own. So if the callee is the first
// suspect, the callers are searched too.
func TestIncidentSearchOfCallers(t *testing.T) {
	table := &trace.Table{}
	options := engine.DefaultOptions()
	core := engine.NewCore(table, options)
	now := start
	play := func(d time.Duration, payment, after float64) {
		for end := now.Add(d); now < end; now = now.Add(options.Epoch) {
			for i := range 50 {
				placing(core, table, now+trace.Nanos(i)*2e8, payment, after)
			}
			core.Epoch(now.Add(options.Epoch))
		}
	}
	play(40*time.Minute, 100, 5)
	play(10*time.Minute, 115, 90)
	all := core.View().Incidents.All()
	if len(all) != 1 || table.Text(all[0].Suspects[0].Service) != "payment" {
		t.Fatalf("incidents %+v, want one with payment as first suspect", all)
	}
	p := core.View().Searches.Searched(search.OfIncident(all[0].ID))
	if p == nil || len(p.Edges) == 0 || table.OpName(table.Context(p.Edges[0].Context).Op) != "POST /place" ||
		p.Edges[0].Score < 0.8 {
		t.Fatalf("searched %+v, want the own time of the caller first", p)
	}
}

// The share of requests affected by an incident refers to all requests since its onset, however long ago that was. This
// includes requests of types that are new since then.
func TestShareOfRequests(t *testing.T) {
	table := &trace.Table{}
	options := engine.DefaultOptions()
	core := engine.NewCore(table, options)
	id := uint64(0)
	send := func(at trace.Nanos, route, service string, work time.Duration) {
		id++
		span := func(
			number, parent trace.SpanID, service, name string, kind trace.Kind, from, to trace.Nanos,
		) trace.Span {
			s := table.Symbol(service)
			return trace.Span{
				ID:      number,
				Parent:  parent,
				Op:      table.Op(s, table.Symbol(name), kind),
				Service: s,
				Kind:    kind,
				Start:   from,
				End:     to,
			}
		}
		const wire = trace.Nanos(time.Millisecond)
		end := at.Add(work)
		core.Ingest(&trace.Trace{
			ID: trace.ID{0: byte(id), 1: byte(id >> 8), 2: byte(id >> 16), 3: 1},
			Spans: []trace.Span{
				span(1, 0, "web", route, trace.Server, at, end+4*wire),
				span(2, 1, "web", "GET", trace.Client, at+wire, end+3*wire),
				span(3, 2, service, route, trace.Server, at+2*wire, end+2*wire),
			},
		})
	}
	const healthy = 20 * time.Minute
	rng := rand.New(rand.NewPCG(1, 2))
	var affected, all []trace.Nanos
	for now := start; now < start.Add(70*time.Minute); {
		for end := now.Add(options.Epoch); now < end; now = now.Add(time.Second / 5) {
			pay := 50 * time.Millisecond
			if now >= start.Add(healthy) {
				pay *= 8
			}
			varies := func(d time.Duration) time.Duration {
				return time.Duration((0.9 + 0.2*rng.Float64()) * float64(d))
			}
			switch k := rng.IntN(10); {
			case k == 0:
				send(now, "GET /pay", "payment", varies(pay))
				affected = append(affected, now)
			case k < 5 && now > start.Add(healthy+20*time.Minute):
				send(now, "GET /new", "news", varies(30*time.Millisecond))
			default:
				send(now, "GET /", "catalog", varies(30*time.Millisecond))
			}
			all = append(all, now)
		}
		core.Epoch(now)
		if now < start.Add(healthy+10*time.Minute) {
			continue
		}
		incidents := core.View().Incidents.All()
		if len(incidents) != 1 || len(incidents[0].Types) != 1 {
			t.Fatalf("after %v: %+v, want an incident with one type of requests", now.Sub(start), incidents)
		}
		x := &incidents[0]
		since := func(times []trace.Nanos) float64 {
			i, _ := slices.BinarySearch(times, x.Onset)
			return float64(len(times) - i)
		}
		if want := since(affected) / since(all); math.Abs(x.Share-want) > 0.05*want {
			t.Fatalf("%v after the onset: %.3f of the requests are affected, want %.3f",
				now.Sub(x.Onset), x.Share, want)
		}
		if now == start.Add(healthy+30*time.Minute) {
			restored := engine.NewCore(table, options)
			if err := restored.Restore(core.AppendState(nil)); err != nil {
				t.Fatal(err)
			}
			core = restored
		}
	}
	// Healthy requests after the fault don't make the share smaller.
	before := core.View().Incidents.All()[0].Share
	for now, end := start.Add(70*time.Minute), start.Add(72*time.Minute); now < end; {
		for next := now.Add(options.Epoch); now < next; now = now.Add(time.Second / 5) {
			if rng.IntN(10) == 0 {
				send(now, "GET /pay", "payment", 50*time.Millisecond)
			} else {
				send(now, "GET /", "catalog", 30*time.Millisecond)
			}
		}
		core.Epoch(now)
	}
	if x := &core.View().Incidents.All()[0]; math.Abs(x.Share-before) > 0.01*before {
		t.Errorf("after the fault, %.4f of the requests are affected, before its end %.4f", x.Share, before)
	}
}
