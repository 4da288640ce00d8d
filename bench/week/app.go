package week

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// Sizes of the application.
const (
	gateways, middle, bottom = 4, 16, 20
	leastInstances           = 3
	mostInstances            = 6
)

// app is the application at an instant. Only the schedule and the clock change it.
type app struct {
	rng      *rand.Rand
	table    *trace.Table
	services []service
	ops      []operation
	types    []requestType
	until    []float64 // by request type: cumulative share of the requests
	batch    int       // operation of the nightly batch

	now   trace.Nanos // of the last call of advance
	load  float64
	keys  struct{ pod, version, method, route trace.Symbol }
	calls struct{ get, statement map[int]trace.Op } // by calling service
	spans uint64
}

// service is a service with its instances.
type service struct {
	name      trace.Symbol
	grows     float64 // growth of own times at the peak of the traffic
	drift     float64 // logarithm of the factor on own times
	instances [mostInstances]instance
	running   int
	database  trace.Op // external
	version   int
	slow      float64 // factor on own times, or 0
}

// instance is a process of a service.
type instance struct {
	pod     trace.Symbol
	version trace.Symbol
	started trace.Nanos
	number  int     // of its version
	slow    float64 // factor on own times, or 0
}

// operation is a route of a service.
type operation struct {
	service  int
	op       trace.Op
	internal trace.Op // the span that a structural deploy adds, or 0
	added    structure
	since    int // number of the version that added it
	calls    []call
	mean     float64 // own time in ns
	cv       float64
	query    float64 // mean duration of its statement in ns; 0 without a statement
	rate     float64 // calls per second at the peak of the traffic
	requests float64 // requests per second through it
	duration float64 // mean duration of these requests in ns

	slow  float64 // factor on own times, or 0
	fails float64 // probability of an error
}

// structure is the change that a deploy makes to an operation.
type structure uint8

const (
	unchanged structure = iota
	anotherSpan
	anotherStatement
)

// call is a call of an operation, in a share of the executions.
type call struct {
	to    int
	share float64
}

// requestType is a route of a gateway.
type requestType struct {
	op     int
	share  float64
	silent bool // receives no requests
}

// newApp returns the application of seed, with the given number of request types and peak rate in requests per second.
func newApp(seed uint64, types int, rate float64, table *trace.Table) *app {
	a := &app{rng: rand.New(rand.NewPCG(seed, 0)), table: table}
	a.keys.pod, a.keys.version = table.Symbol("k8s.pod.name"), table.Symbol("service.version")
	a.calls.get, a.calls.statement = make(map[int]trace.Op), make(map[int]trace.Op)
	for i := range gateways + middle + bottom {
		a.addService(i)
	}
	low := a.addOperations(gateways+middle, bottom, 5, nil)
	mid := a.addOperations(gateways, middle, 8, low)
	total := 0.0
	for i := range types {
		op := a.addOperation(i%gateways, fmt.Sprintf("GET /%s/%s", word(i/40), word(40+i%40)))
		a.ops[op].calls = a.someCalls(mid, 1+a.rng.IntN(3))
		share := math.Pow(float64(i+1), -0.7)
		a.types = append(a.types, requestType{op: op, share: share})
		total += share
	}
	sum := 0.0
	for i := range a.types {
		a.types[i].share /= total
		sum += a.types[i].share
		a.until = append(a.until, sum)
		a.count(a.types[i].op, a.types[i].share*rate, a.expected(a.types[i].op))
	}
	a.batch = a.addOperation(0, "POST /export/nightly")
	a.ops[a.batch].calls = []call{{mid[0], 1}}
	return a
}

// word returns a pronounceable name without digits.
func word(i int) string {
	const consonants, vowels = "bdfgklmnprstvz", "aeiou"
	name := make([]byte, 0, 6)
	for range 3 {
		name = append(name, consonants[i%len(consonants)])
		i = i/len(consonants)*7 + i*3 + 1
		name = append(name, vowels[i%len(vowels)])
		i = i/2 + 5*i%97
	}
	return string(name)
}

func (a *app) addService(i int) {
	tier := "gateway"
	switch {
	case i >= gateways+middle:
		tier = "store"
	case i >= gateways:
		tier = "service"
	}
	name := fmt.Sprintf("%s-%c%c", tier, 'a'+i/5, 'p'+i%5)
	s := service{name: a.table.Symbol(name), grows: 0.1 + 0.3*a.rng.Float64(), running: leastInstances}
	for k := range s.instances {
		s.instances[k] = instance{
			pod: a.table.Symbol(fmt.Sprintf("%s-%x", name, a.rng.Uint32())), started: monday.Add(-time.Hour),
		}
	}
	a.services = append(a.services, s)
	a.setVersion(i)
	database := a.table.Symbol("postgresql " + name)
	a.services[i].database = a.table.Op(database, 0, trace.External)
	a.calls.get[i] = a.table.Op(s.name, a.table.Symbol("GET"), trace.Client)
	a.calls.statement[i] = a.table.Op(s.name, a.table.Symbol("SELECT"), trace.Client)
}

// setVersion gives the instances of a service its version.
func (a *app) setVersion(i int) {
	for k := range a.services[i].instances {
		a.services[i].instances[k].version = a.versionOf(i)
	}
}

func (a *app) versionOf(i int) trace.Symbol {
	return a.table.Symbol(fmt.Sprintf("1.%d.0", a.services[i].version))
}

// addOperations adds about each operations to each of n services, starting at first. They call some of others.
func (a *app) addOperations(first, n, each int, others []int) (added []int) {
	for s := range n {
		for k := range 1 + a.rng.IntN(2*each-1) {
			op := a.addOperation(first+s, fmt.Sprintf("GET /%s", word(first*7+s*31+k)))
			o := &a.ops[op]
			if len(others) > 0 {
				o.calls = a.someCalls(others, a.rng.IntN(3))
			} else {
				o.query = a.logUniform(0.5e6, 6e6)
			}
			added = append(added, op)
		}
	}
	return added
}

func (a *app) addOperation(service int, name string) int {
	a.ops = append(a.ops, operation{
		service: service, op: a.table.Op(a.services[service].name, a.table.Symbol(name), trace.Server),
		internal: a.table.Op(a.services[service].name, a.table.Symbol("validate"), trace.Internal),
		mean:     a.logUniform(0.5e6, 8e6), cv: 0.3 + 0.5*a.rng.Float64(),
	})
	return len(a.ops) - 1
}

// someCalls returns n calls of distinct operations. If there are several, the last one is made in 70 % of the
// executions.
func (a *app) someCalls(of []int, n int) (calls []call) {
	for _, i := range a.rng.Perm(len(of))[:n] {
		calls = append(calls, call{of[i], 1})
	}
	if n > 1 {
		calls[n-1].share = 0.7
	}
	return calls
}

func (a *app) logUniform(low, high float64) float64 {
	return low * math.Pow(high/low, a.rng.Float64())
}

// wire is the mean time between a call and its arrival, and between the answer and its arrival.
const wire = 250e3

// expected returns the mean duration of an operation in ns.
func (a *app) expected(op int) float64 {
	o := &a.ops[op]
	d := o.mean + o.query
	for _, c := range o.calls {
		d += c.share * (a.expected(c.to) + 2*wire)
	}
	return d
}

// count adds rate requests per second, with the given mean duration, to op and all operations that it calls.
func (a *app) count(op int, rate, duration float64) {
	o := &a.ops[op]
	o.duration = (o.duration*o.requests + duration*rate) / (o.requests + rate)
	o.requests += rate
	o.rate += rate
	for _, c := range o.calls {
		a.count(c.to, rate*c.share, duration)
	}
}

// advance changes traffic, drift and instances to their values at time at. It is called once a minute.
func (a *app) advance(at trace.Nanos) {
	const kept, spread = 0.983, 0.03 // of an hour's time constant
	a.now, a.load = at, load(at)
	for i := range a.services {
		s := &a.services[i]
		s.drift = kept*s.drift + math.Sqrt(1-kept*kept)*spread*a.rng.NormFloat64()
		want := leastInstances + int(math.Round(float64(mostInstances-leastInstances)*a.load))
		for ; s.running < want; s.running++ {
			s.instances[s.running].started = at
		}
		s.running = want
	}
}

// pick returns a random request type, or -1 if that type receives no requests now.
func (a *app) pick() int {
	i := min(sort.SearchFloat64s(a.until, a.rng.Float64()), len(a.types)-1)
	if a.types[i].silent {
		return -1
	}
	return i
}

// request makes the trace of a request that starts at time at.
func (a *app) request(op int, at trace.Nanos, t *trace.Trace) {
	t.Reset()
	a.spans++
	for i := range 8 {
		t.ID[i], t.ID[8+i] = byte(trace.Mix(a.spans, 1)>>(8*i)), byte(trace.Mix(a.spans, 2)>>(8*i))
	}
	a.serve(op, at, 0, t)
}

func (a *app) open(t *trace.Trace, op trace.Op, service int, kind trace.Kind, at trace.Nanos, parent trace.SpanID) int {
	a.spans++
	t.Spans = append(t.Spans, trace.Span{
		ID:      trace.SpanID(trace.Mix(a.spans, 3) | 1),
		Parent:  parent,
		Start:   at,
		Op:      op,
		Service: a.services[service].name,
		Kind:    kind,
	})
	return len(t.Spans) - 1
}

// serve adds the spans of an execution of an operation that starts at time at. It returns the end and whether the
// execution failed.
func (a *app) serve(op int, at trace.Nanos, parent trace.SpanID, t *trace.Trace) (end trace.Nanos, failed bool) {
	o := &a.ops[op]
	s := &a.services[o.service]
	in := &s.instances[a.rng.IntN(s.running)]
	span := a.open(t, o.op, o.service, trace.Server, at, parent)
	id := t.Spans[span].ID
	t.Attrs = append(t.Attrs, trace.Attr{Key: a.keys.pod, Text: in.pod, Span: int32(span)},
		trace.Attr{Key: a.keys.version, Text: in.version, Span: int32(span)})
	slow := (1 + s.grows*a.load*a.load) * math.Exp(s.drift) * warm(in.started, at)
	for _, f := range []float64{o.slow, in.slow, s.slow} {
		if f > 0 {
			slow *= f
		}
	}
	own := a.logNormal(o.mean*slow, o.cv)
	pieces := trace.Nanos(len(o.calls) + 2)
	now := at.Add(time.Duration(own) / time.Duration(pieces))
	added := unchanged
	if in.number >= o.since {
		added = o.added
	}
	if added == anotherSpan {
		x := a.open(t, o.internal, o.service, trace.Internal, at, id)
		t.Spans[x].End = now
	}
	if added == anotherStatement {
		now = a.query(o, s, now, id, 0.3e6, t)
	}
	if o.query > 0 {
		now = a.query(o, s, now, id, o.query, t)
	}
	for _, c := range o.calls {
		if c.share < 1 && a.rng.Float64() >= c.share {
			continue
		}
		client := a.open(t, a.calls.get[o.service], o.service, trace.Client, now, id)
		answered, bad := a.serve(c.to, now.Add(a.wireTime()), t.Spans[client].ID, t)
		now = answered.Add(a.wireTime())
		t.Spans[client].End = now
		if bad {
			t.Spans[client].Flags |= trace.Error
			failed = true
		}
		now = now.Add(time.Duration(own) / time.Duration(pieces))
	}
	now = now.Add(time.Duration(own) / time.Duration(pieces))
	if failed || o.fails > 0 && a.rng.Float64() < o.fails {
		t.Spans[span].Flags |= trace.Error
		failed = true
	}
	t.Spans[span].End = now
	return now, failed
}

// query adds a statement, and returns its end.
func (a *app) query(
	o *operation, s *service, at trace.Nanos, parent trace.SpanID, mean float64, t *trace.Trace,
) trace.Nanos {
	if inBatch(at) && o.service == a.ops[a.readByBatch()].service {
		mean *= batchSlow
	}
	x := a.open(t, a.calls.statement[o.service], o.service, trace.Client, at, parent)
	t.Spans[x].Peer = s.database
	end := at.Add(time.Duration(a.logNormal(mean, 0.5)))
	t.Spans[x].End = end
	return end
}

// readByBatch returns an operation of the service whose database the batch reads.
func (a *app) readByBatch() int {
	for _, c := range a.ops[a.ops[a.batch].calls[0].to].calls {
		return c.to
	}
	return a.ops[a.batch].calls[0].to
}

func (a *app) wireTime() time.Duration { return time.Duration(a.logNormal(wire, 0.3)) }

// logNormal returns a random duration in ns with the given mean and coefficient of variation. One in 200 is ten times
// as long.
func (a *app) logNormal(mean, cv float64) float64 {
	v := math.Log1p(cv * cv)
	x := mean * math.Exp(math.Sqrt(v)*a.rng.NormFloat64()-v/2)
	if a.rng.IntN(200) == 0 {
		x *= 10
	}
	return x
}
