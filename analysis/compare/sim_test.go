package compare

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

// simApp is a random application of services in layers, with a fault in one of them while faulty is set. It is there to
// judge comparisons, so it isn't designed to suit them.
type simApp struct {
	rng      *rand.Rand
	table    *trace.Table
	clients  bool // remote calls have CLIENT spans
	shared   bool // services share databases, which attributes name; otherwise each service has its own, unnamed
	services []simService
	entries  []int // operations of the gateway
	ops      []simOp
	faulty   bool
	renamed  bool // most requests arrive at a new operation during the fault
	fault    simFault
	drift    []float64
	mix      []float64

	t    *trace.Trace
	next uint64
}

type simService struct {
	name  string
	layer int
	db    int
	ops   []int
}

type simOp struct {
	service  int
	name     string
	mu, sd   float64
	tail     float64
	parallel bool
	db       bool
	calls    []simCall
	weights  []float64 // shares of the own time before, between and after the calls
}

type simCall struct {
	op    int
	share float64
}

type simFault struct {
	kind     string
	service  int // or, of kind "db", the database
	factor   float64
	delay    float64
	fraction float64
}

func choose[T any](r *rand.Rand, among ...T) T { return among[r.IntN(len(among))] }

func newSimApp(seed uint64, clients, shared bool) *simApp {
	r := rand.New(rand.NewPCG(seed, 77))
	e := &simApp{rng: r, table: &trace.Table{}, clients: clients, shared: shared}
	for i := range 6 + r.IntN(20) {
		s := simService{name: fmt.Sprintf("s%d", i), db: i}
		if i > 0 {
			s.layer = 1 + r.IntN(4)
		}
		if shared {
			s.db = r.IntN(3)
		}
		for range choose(r, 1, 2, 3) {
			s.ops = append(s.ops, len(e.ops))
			e.ops = append(e.ops, simOp{
				service:  i,
				name:     fmt.Sprintf("op%d", len(s.ops)),
				mu:       math.Log(choose(r, .3, 1, 3, 10, 30) * 1e6),
				sd:       choose(r, .2, .5, 1),
				tail:     choose(r, 0, .005, .02),
				parallel: r.Float64() < .25,
				db:       r.Float64() < .4,
			})
		}
		e.services = append(e.services, s)
	}
	e.entries = e.services[0].ops
	for i := range e.ops {
		o := &e.ops[i]
		var below []int
		for k := range e.services {
			if e.services[k].layer > e.services[o.service].layer {
				below = append(below, k)
			}
		}
		n := choose(r, 0, 0, 1, 1, 2, 3)
		if o.service == 0 {
			n = 2 + r.IntN(5)
		}
		for range n {
			if len(below) > 0 {
				o.calls = append(o.calls,
					simCall{choose(r, e.services[choose(r, below...)].ops...), choose(r, 1, 1, 1, 1, .5)})
			}
		}
		sum := 0.0
		for range len(o.calls) + 1 {
			w := r.ExpFloat64()
			o.weights = append(o.weights, w)
			sum += w
		}
		for k := range o.weights {
			o.weights[k] /= sum
		}
	}
	return e
}

func (e *simApp) exp(mean float64) float64 { return e.rng.ExpFloat64() * mean }

func (e *simApp) lognormal(mu, sd float64) float64 { return math.Exp(mu + sd*e.rng.NormFloat64()) }

func (e *simApp) at(service int, kinds ...string) bool {
	if !e.faulty || e.fault.service != service {
		return false
	}
	return slices.Contains(kinds, e.fault.kind)
}

// request returns the trace of a request that starts at start.
func (e *simApp) request(id uint64, start trace.Nanos, entry int) *trace.Trace {
	e.t = &trace.Trace{}
	for i := range 8 {
		e.t.ID[i] = byte(id >> (8 * i))
	}
	e.t.ID[15] = 1
	e.next = 0
	e.serve(e.entries[entry%len(e.entries)], float64(start), 0)
	return e.t
}

func (e *simApp) open(service int, name string, kind trace.Kind, parent trace.SpanID, start float64) int {
	e.next++
	s := trace.Span{ID: trace.SpanID(e.next), Parent: parent, Kind: kind, Start: trace.Nanos(start)}
	s.Service = e.table.Symbol(e.services[service].name)
	s.Op = e.table.Op(s.Service, e.table.Symbol(name), kind)
	e.t.Spans = append(e.t.Spans, s)
	return len(e.t.Spans) - 1
}

func (e *simApp) close(span int, end float64, failed bool) {
	e.t.Spans[span].End = trace.Nanos(end)
	if failed {
		e.t.Spans[span].Flags |= trace.Error
	}
}

func (e *simApp) serve(op int, start float64, parent trace.SpanID) (end float64, failed bool) {
	o := &e.ops[op]
	name := o.name
	if parent == 0 && e.faulty && e.renamed && e.rng.Float64() < .8 {
		name += "/v2"
	}
	span := e.open(o.service, name, trace.Server, parent, start)
	id := e.t.Spans[span].ID
	work := e.lognormal(o.mu, o.sd) * e.drift[o.service]
	if e.rng.Float64() < o.tail {
		work += e.exp(2e8)
	}
	if e.at(o.service, "cpu") && e.rng.Float64() < .6 {
		work = work*e.fault.factor + e.exp(e.fault.delay)
	}
	if e.at(o.service, "mem") && e.rng.Float64() < .1 {
		work += e.exp(5 * e.fault.delay)
	}
	t := start + work*o.weights[0]
	struck := e.at(o.service, "code", "exc", "retry") && e.rng.Float64() < e.fault.fraction
	switch {
	case struck && !e.at(o.service, "code"):
		failed = true
	case struck:
	default:
		t, failed = e.calls(o, id, t, work)
		for range e.queries(o) {
			t = e.query(o, id, t)
		}
	}
	e.close(span, t, failed)
	return t, failed
}

// queries returns the number of queries that an operation makes.
func (e *simApp) queries(o *simOp) int {
	switch {
	case !o.db:
		return 0
	case e.at(o.service, "more") && e.rng.Float64() < e.fault.fraction:
		return 5
	}
	return 1
}

func (e *simApp) calls(o *simOp, id trace.SpanID, t, work float64) (float64, bool) {
	last := t
	for i, c := range o.calls {
		if e.rng.Float64() >= c.share {
			continue
		}
		end, failed := e.call(o.service, c.op, t, id)
		if failed && e.fault.kind == "retry" && e.faulty { // every caller retries once
			end, failed = e.call(o.service, c.op, end, id)
		}
		last = max(last, end)
		if !o.parallel {
			t = end + work*o.weights[i+1]
			last = t
		}
		if failed {
			return last, true
		}
	}
	if o.parallel {
		return last + work*(1-o.weights[0]), false
	}
	return t, false
}

func (e *simApp) query(o *simOp, id trace.SpanID, t float64) float64 {
	span := e.open(o.service, "query", trace.Client, id, t)
	db := e.services[o.service].db
	d := e.lognormal(math.Log(1e6), .5)
	if e.at(o.service, "disk") {
		d += e.exp(e.fault.delay)
	}
	if e.faulty && e.fault.kind == "db" && e.fault.service == db {
		d += e.exp(e.fault.delay)
	}
	if e.shared {
		e.t.Spans[span].Peer = e.table.Op(e.table.Symbol(fmt.Sprintf("db%d", db)), 0, trace.External)
	}
	e.close(span, t+d, false)
	return t + d
}

func (e *simApp) call(from, op int, t float64, parent trace.SpanID) (float64, bool) {
	to := e.ops[op].service
	w := e.lognormal(math.Log(.5e6), .4)
	if e.rng.Float64() < .003 {
		w += 2e8 * e.rng.Float64()
	}
	if e.at(from, "delay") || e.at(to, "delay") {
		w += e.fault.delay
	}
	if (e.at(from, "loss") || e.at(to, "loss")) && e.rng.Float64() < .15 {
		w += choose(e.rng, 2e8, 2e8, 4e8, 1e9)
	}
	if (e.at(from, "cpu") || e.at(to, "cpu")) && e.rng.Float64() < .6 {
		w += e.exp(e.fault.delay) * .5
	}
	if !e.clients {
		end, failed := e.serve(op, t+.6*w, parent)
		return end + .4*w, failed
	}
	span := e.open(from, "call "+e.services[to].name+"/"+e.ops[op].name, trace.Client, parent, t)
	end, failed := e.serve(op, t+.6*w, e.t.Spans[span].ID)
	e.close(span, end+.4*w, failed)
	return end + .4*w, failed
}

// traces simulates requests at a mean rate of one per second, with the fault in the middle. It returns their traces and
// the window of the fault.
func (e *simApp) traces(window, before int) ([]*trace.Trace, history.Interval) {
	var traces []*trace.Trace
	now := trace.Nanos(1_600_000_000_000_000_000)
	e.drift, e.mix = make([]float64, len(e.services)), make([]float64, len(e.entries))
	var w history.Interval
	for i := range before + window {
		if i%25 == 0 {
			for k := range e.drift {
				e.drift[k] = e.lognormal(0, .06)
			}
			for k := range e.mix {
				e.mix[k] = e.lognormal(0, .3)
			}
		}
		now += trace.Nanos(e.exp(1e9)) + 1
		if i == before/2 {
			w.From = now
		}
		if i == before/2+window {
			w.To = now
		}
		e.faulty = i >= before/2 && i < before/2+window
		traces = append(traces, e.request(uint64(i+1), now, e.entry()))
	}
	return traces, w
}

// target returns the name of the faulty service or database.
func (e *simApp) target() string {
	if e.fault.kind == "db" {
		return fmt.Sprintf("db%d", e.fault.service)
	}
	return e.services[e.fault.service].name
}

func (e *simApp) entry() int {
	sum := 0.0
	for _, m := range e.mix {
		sum += m
	}
	u := e.rng.Float64() * sum
	for i, m := range e.mix {
		if u -= m; u < 0 {
			return i
		}
	}
	return 0
}

// executed returns the number of spans of each service, and of queries of each database, over 60 requests.
func (e *simApp) executed() (services, dbs []int) {
	services, dbs = make([]int, len(e.services)), make([]int, len(e.services))
	e.drift = make([]float64, len(e.services))
	for i := range e.drift {
		e.drift[i] = 1
	}
	for i := range 60 {
		t := e.request(uint64(i), 1, i)
		for k := range t.Spans {
			for j := range e.services {
				if t.Spans[k].Service == e.table.Symbol(e.services[j].name) {
					services[j]++
					if t.Spans[k].Kind == trace.Client && e.table.OpName(t.Spans[k].Op) == "query" {
						dbs[e.services[j].db]++
					}
				}
			}
		}
	}
	return services, dbs
}

// newCase returns an application with a fault of one of the kinds, in a service that is executed.
func newCase(seed uint64, clients, shared bool, kinds ...string) *simApp {
	for ; ; seed += 100_003 {
		e := newSimApp(seed, clients, shared)
		services, dbs := e.executed()
		e.fault = simFault{
			kind: choose(e.rng, kinds...), factor: choose(e.rng, 1.5, 3), delay: choose(e.rng, 5e6, 30e6, 100e6),
			fraction: choose(e.rng, .1, .5, 1),
		}
		var fit []int
		for i := range e.services {
			ok := services[i] >= 3
			switch e.fault.kind {
			case "disk", "more":
				ok = ok && e.has(i, func(o *simOp) bool { return o.db })
			case "code":
				ok = ok && e.has(i, func(o *simOp) bool { return o.db || len(o.calls) > 0 })
			case "retry":
				ok = ok && i > 0
			case "db":
				ok = dbs[i] >= 3
			}
			if ok {
				fit = append(fit, i)
			}
		}
		if len(fit) > 0 {
			e.fault.service = choose(e.rng, fit...)
			return e
		}
	}
}

func (e *simApp) has(service int, match func(*simOp) bool) bool {
	for _, op := range e.services[service].ops {
		if match(&e.ops[op]) {
			return true
		}
	}
	return false
}
