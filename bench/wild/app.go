package wild

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// app is an installation at an instant: an application, its machines, and the way it is traced. Events and faults
// change it.
type app struct {
	rng       *rand.Rand
	style     style
	nodes     []*node
	services  []*service // callers before callees
	databases []*backend
	parties   []*backend // third parties
	queues    []*queue
	types     []*requestType
	devices   []time.Duration // offsets of the clocks of phones; empty without phones
	phone     *pod            // resource of all phones
	mobile    float64         // share of the requests that start on a phone

	traffic float64 // factor on the rates
	noise   float64 // logarithm of a second factor, which wanders
	wires   map[[2]*service]*effect
	address int // number of addresses given out
}

// style determines how an installation is traced and addressed. It does not change.
type style struct {
	addresses addressing
	domain    string  // of DNS names
	oldNames  bool    // of attributes, as before semantic conventions 1.23
	hostIs    string  // the value of host.name: pod or node
	podName   bool    // resources have k8s.pod.name
	podIP     bool    // resources have k8s.pod.ip
	instance  bool    // resources have service.instance.id
	zone      bool    // resources have cloud.availability_zone
	remote    bool    // spans carry the flag for remote parents
	exception bool    // failed spans have an exception event
	clientURL bool    // clients name the URL
	routed    bool    // CLIENT spans are named after the route, not just the method
	sampling  float64 // share of the requests that are recorded; rates count recorded requests
	wire      float64 // mean time of a message between two services in ns
}

// addressing is the form of the addresses that clients record.
type addressing uint8

const (
	byName addressing = iota
	byPodIP
	byVirtualIP
)

// node is a machine.
type node struct {
	name, zone string
	effect     *effect
}

// service is a service with its pods.
type service struct {
	name      string
	grpc      bool
	versioned bool // resources have service.version
	unseen    bool // exports no spans
	down      bool
	refuses   bool // while it is down: connections are refused at once instead of timing out
	mark      bool // calls while it is down are counted as touched
	version   int
	replicas  int // pods ever started
	virtual   string
	port      int
	pods      []*pod
	ops       []*operation
}

// pod is a process of a service, or a phone.
type pod struct {
	service *service
	name    string
	uid     string
	ip      string
	node    *node
	version string // "" if not recorded
	started trace.Nanos
	effect  *effect
}

// operation is a route or a method of a service, or the processing of messages of a queue.
type operation struct {
	service *service
	method  string // of HTTP
	route   string
	own     float64 // mean own time in ns
	cv      float64
	tail    float64 // share of the executions with ten times the own time
	lost    float64 // share of the executions that answer 404
	steps   []step
	later   []step // after the response
	effect  *effect
	size    float64 // expected number of spans
}

// name returns the name of the SERVER span.
func (o *operation) name() string {
	if o.service.grpc {
		return o.service.name + "." + o.route
	}
	return o.method + " " + o.route
}

// step is an action of an execution: one of the fields to, query, publish, inner and parallel is set.
type step struct {
	to       *operation
	query    *backend
	publish  *queue
	inner    string // name of an internal span around steps
	parallel bool   // steps run at the same time
	steps    []step

	name      string  // of the statement
	share     float64 // of the executions that do it
	times     int     // repetitions, one after the other
	tolerated bool    // a failure does not fail the caller
	retries   int
	timeout   time.Duration
	backoff   time.Duration
}

// backend is a database or a third party, which exports no spans.
type backend struct {
	system string // of a database; "" for a third party
	host   string
	ip     string
	port   int
	mean   float64 // duration of a call in ns
	cv     float64
	effect *effect
}

// queue is a destination of messages.
type queue struct {
	name     string
	system   string
	consumer *operation
	delivery delivery
	lag      float64 // mean time until a message is consumed in ns
	effect   *effect
}

// delivery is the shape of the spans of a consumer.
type delivery uint8

const (
	inTrace   delivery = iota // process span below the producer
	byLink                    // a separate trace with a link
	byReceive                 // receive span below the producer, and the process span below that, after its end
)

// requestType is a kind of traffic.
type requestType struct {
	op     *operation
	rate   float64 // recorded requests a second
	nature nature
}

// nature is the kind of traffic.
type nature uint8

const (
	request nature = iota
	stream
	poll
	probe // health checks
	batch
)

var words = []string{
	"account", "address", "audit", "basket", "billing", "booking",
	"catalog", "checkout", "content", "coupon", "currency",
	"delivery", "discount", "export", "feed", "fraud", "geo", "identity", "image", "inventory", "invoice", "ledger",
	"loyalty", "mailer", "menu", "notify", "offer", "orders", "partner", "payment", "price", "product", "profile",
	"quote", "rating", "recommend", "refund", "report", "review", "route", "search", "session", "shipping", "stock",
	"supplier", "tax", "ticket", "user", "voucher", "wallet",
}

var verbs = []string{
	"list", "create", "update", "lookup", "confirm", "validate", "apply", "reserve", "release", "summary", "history",
	"details", "batch", "status", "merge", "score",
}

// newApp returns a random application. Recorded request rates are set by [app.limit].
func newApp(seed uint64) *app {
	a := &app{
		rng:     rand.New(rand.NewPCG(seed, 0x77696c64)),
		traffic: 1,
		wires:   make(map[[2]*service]*effect),
	}
	a.style = a.newStyle()
	for i := range 3 + a.rng.IntN(4) {
		zone := string(rune('a' + i%3))
		a.nodes = append(a.nodes, &node{name: fmt.Sprintf("node-%s%d", a.hex(3), i), zone: "zone-" + zone})
	}
	a.addServices(7 + a.rng.IntN(24))
	a.addParties()
	a.addOperations()
	a.addQueues()
	a.addTypes()
	a.addUntidiness()
	return a
}

func (a *app) chance(p float64) bool { return a.rng.Float64() < p }

func (a *app) between(low, high float64) float64 { return low + (high-low)*a.rng.Float64() }

func (a *app) hex(n int) string {
	const digits = "0123456789abcdef"
	b := make([]byte, n)
	for i := range b {
		b[i] = digits[a.rng.IntN(16)]
	}
	return string(b)
}

func (a *app) newStyle() style {
	s := style{
		domain:    []string{"", ".shop.svc.cluster.local", ".internal"}[a.rng.IntN(3)],
		oldNames:  a.chance(0.4),
		hostIs:    []string{"pod", "node"}[a.rng.IntN(2)],
		podName:   a.chance(0.7),
		podIP:     a.chance(0.4),
		instance:  a.chance(0.7),
		zone:      a.chance(0.4),
		remote:    a.chance(0.5),
		exception: a.chance(0.5),
		clientURL: a.chance(0.5),
		routed:    a.chance(0.3),
		sampling:  a.logUniform(0.01, 1),
		wire:      a.logUniform(0.1e6, 0.8e6),
	}
	if a.chance(0.4) {
		s.addresses = byPodIP + addressing(a.rng.IntN(2))
	}
	return s
}

func (a *app) newIP() string {
	a.address++
	return fmt.Sprintf("10.%d.%d.%d", 20+a.address%5, a.address/200, 2+a.address%200)
}

func (a *app) addServices(n int) {
	names := slices.Clone(words)
	a.rng.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
	suffix := []string{"", "-service", "-api"}[a.rng.IntN(3)]
	for i := range n {
		s := &service{
			name:      names[i] + suffix,
			grpc:      i > 0 && a.chance(0.35),
			versioned: a.chance(0.7),
			version:   1 + a.rng.IntN(9),
			virtual:   a.newIP(),
			port:      8080,
		}
		if i == 0 {
			s.name = []string{"gateway", "frontend", "web", "edge"}[a.rng.IntN(4)]
		}
		if s.grpc {
			s.port = 50051
		}
		for range 1 + a.rng.IntN(4) {
			s.pods = append(s.pods, a.newPod(s, 0))
		}
		a.services = append(a.services, s)
	}
}

// newPod returns a new pod of the current version of a service on a random node.
func (a *app) newPod(s *service, started trace.Nanos) *pod {
	s.replicas++
	p := &pod{
		service: s,
		name:    fmt.Sprintf("%s-%s-%s", s.name, a.hex(9), a.hex(5)),
		uid:     fmt.Sprintf("%s-%s-4%s-8%s-%s", a.hex(8), a.hex(4), a.hex(3), a.hex(3), a.hex(12)),
		ip:      a.newIP(),
		node:    a.nodes[a.rng.IntN(len(a.nodes))],
		started: started,
	}
	if s.versioned {
		p.version = fmt.Sprintf("1.%d.0", s.version)
	}
	return p
}

func (a *app) addParties() {
	for i := range a.rng.IntN(3) {
		a.parties = append(a.parties, &backend{
			host: fmt.Sprintf("api.%s.example", []string{"paymentco", "mapsrv", "taxcheck"}[i]),
			port: 443,
			mean: a.logUniform(20e6, 120e6),
			cv:   a.between(0.3, 0.7),
		})
	}
}

// addDatabase adds a database for a service.
func (a *app) addDatabase(s *service) *backend {
	kind := a.rng.IntN(4)
	b := &backend{
		system: []string{"postgresql", "mysql", "redis", "mongodb"}[kind],
		port:   []int{5432, 3306, 6379, 27017}[kind],
		host:   s.name + "-db" + a.style.domain,
		ip:     a.newIP(),
		mean:   a.logUniform(0.8e6, 10e6),
		cv:     a.between(0.3, 0.8),
	}
	a.databases = append(a.databases, b)
	return b
}

// mostSpans is the largest expected number of spans below an operation.
const mostSpans = 45

// addOperations gives the services operations, callees first, and then adds calls to services that nobody calls.
func (a *app) addOperations() {
	called := make(map[*service]bool)
	for i := len(a.services) - 1; i >= 1; i-- {
		s := a.services[i]
		var database *backend
		switch {
		case a.chance(0.6):
			database = a.addDatabase(s)
		case len(a.databases) > 0 && a.chance(0.4): // shared with another service
			database = a.databases[a.rng.IntN(len(a.databases))]
		}
		for range 1 + a.rng.IntN(4) {
			o := a.newOperation(s)
			a.addSteps(o, i, database, called)
			s.ops = append(s.ops, o)
		}
	}
	for i := len(a.services) - 1; i >= 2; i-- {
		if s := a.services[i]; !called[s] {
			caller := a.services[1+a.rng.IntN(i-1)]
			o := caller.ops[a.rng.IntN(len(caller.ops))]
			o.steps = append(o.steps, a.call(s.ops[a.rng.IntN(len(s.ops))]))
			called[s] = true
		}
	}
}

func (a *app) newOperation(s *service) *operation {
	verb := verbs[a.rng.IntN(len(verbs))]
	o := &operation{
		service: s,
		method:  []string{"GET", "POST", "PUT"}[a.rng.IntN(3)],
		route:   fmt.Sprintf("/%s/%s", words[a.rng.IntN(len(words))], verb),
		own:     a.logUniform(1e6, 12e6),
		cv:      a.between(0.2, 0.8),
		size:    1,
	}
	if s.grpc {
		o.route = fmt.Sprintf("%s%d", verb, len(s.ops))
	}
	if a.chance(0.3) {
		o.tail = a.between(0.002, 0.02)
	}
	if a.chance(0.2) {
		o.lost = a.between(0.002, 0.03)
	}
	return o
}

// addSteps gives an operation of services[i] its steps.
func (a *app) addSteps(o *operation, i int, database *backend, called map[*service]bool) {
	if a.chance(0.3) {
		o.steps = append(o.steps, step{inner: "validate " + words[a.rng.IntN(len(words))], share: 1, times: 1})
	}
	if database != nil {
		for range 1 + a.rng.IntN(2) {
			o.steps = append(o.steps, a.query(database))
		}
	}
	if len(a.parties) > 0 && a.chance(0.08) {
		o.steps = append(o.steps, a.query(a.parties[a.rng.IntN(len(a.parties))]))
	}
	calls := a.calls(a.services[i+1:], []int{0, 1, 1, 2, 3}[a.rng.IntN(5)], called)
	if len(calls) > 1 && a.chance(0.35) {
		calls = []step{{parallel: true, steps: calls, share: 1, times: 1}}
	}
	if len(calls) > 0 && a.chance(0.25) {
		calls = []step{{inner: "load " + words[a.rng.IntN(len(words))], steps: calls, share: 1, times: 1}}
	}
	o.steps = append(o.steps, calls...)
	o.size = 1 + sizeOf(o.steps)
}

// sizeOf returns the expected number of spans of steps.
func sizeOf(steps []step) (n float64) {
	for i := range steps {
		s := &steps[i]
		each := sizeOf(s.steps)
		if !s.parallel {
			each++
		}
		if s.to != nil {
			each += s.to.size
		}
		n += s.share * float64(s.times) * each
	}
	return n
}

// calls returns at most n calls of random operations of the services in `of`, and marks these services in called. It
// leaves out operations with too many spans.
func (a *app) calls(of []*service, n int, called map[*service]bool) (steps []step) {
	room := float64(mostSpans)
	for range n {
		if len(of) == 0 {
			break
		}
		s := of[a.rng.IntN(len(of))]
		o := s.ops[a.rng.IntN(len(s.ops))]
		if o.size > room/2 {
			continue
		}
		room -= o.size
		called[s] = true
		steps = append(steps, a.call(o))
	}
	return steps
}

func (a *app) call(to *operation) step {
	s := step{
		to:        to,
		share:     1,
		times:     1,
		tolerated: a.chance(0.3),
		timeout:   time.Duration(a.between(2e9, 8e9)),
		backoff:   time.Duration(a.between(20e6, 100e6)),
	}
	if a.chance(0.25) {
		s.share = a.between(0.4, 0.9)
	}
	if a.chance(0.25) {
		s.retries = 1 + a.rng.IntN(2)
	}
	return s
}

func (a *app) query(b *backend) step {
	s := step{query: b, share: 1, times: 1, timeout: 10 * time.Second}
	table := words[a.rng.IntN(len(words))]
	switch b.system {
	case "":
		s.name = "POST"
	case "redis":
		s.name = []string{"GET", "HGETALL", "SET"}[a.rng.IntN(3)]
	case "mongodb":
		s.name = "find " + table
	default:
		s.name = []string{"SELECT ", "UPDATE ", "INSERT "}[a.rng.IntN(3)] + table
	}
	if b.system == "redis" && a.chance(0.3) {
		s.times = 2 + a.rng.IntN(3)
	}
	return s
}

// addQueues adds queues between services, in three of four applications.
func (a *app) addQueues() {
	if !a.chance(0.75) {
		return
	}
	system := []string{"kafka", "rabbitmq", "aws_sqs"}[a.rng.IntN(3)]
	mode := delivery(a.rng.IntN(3))
	for range 1 + a.rng.IntN(3) {
		at := 1 + a.rng.IntN(len(a.services)-2)
		producer, consumer := a.services[at], a.services[at+1+a.rng.IntN(len(a.services)-at-1)]
		name := words[a.rng.IntN(len(words))] + []string{".events", "-queue"}[a.rng.IntN(2)]
		if slices.ContainsFunc(a.queues, func(q *queue) bool { return q.name == name }) {
			continue
		}
		o := a.newOperation(consumer)
		o.route, o.lost = name, 0
		if len(consumer.ops) > 0 {
			if to := consumer.ops[0]; len(to.steps) > 0 && to.steps[0].query != nil {
				o.steps = append(o.steps, to.steps[0])
			}
		}
		q := &queue{name: name, system: system, consumer: o, delivery: mode, lag: a.logUniform(5e6, 200e6)}
		from := producer.ops[a.rng.IntN(len(producer.ops))]
		from.steps = append(from.steps, step{publish: q, share: 1, times: 1})
		a.queues = append(a.queues, q)
	}
}

// rareLow and rareHigh bound the share of the rare request type of each application.
const rareLow, rareHigh = 0.05, 0.08

// addTypes adds the request types, with rates that sum to 1. The shares follow Zipf's law, except for one rare type.
// Each type has its own entry in the first service.
func (a *app) addTypes() {
	n := 4 + a.rng.IntN(9)
	sum, shares := 0.0, make([]float64, n)
	for i := range shares {
		shares[i] = 1 / float64(i+1)
		sum += shares[i]
	}
	rare := a.between(rareLow, rareHigh)
	gateway := a.services[0]
	covered := make(map[*service]bool)
	for i := range n {
		o := a.newOperation(gateway)
		prefix := []string{"api", "v1", "shop"}[a.rng.IntN(3)]
		o.route = fmt.Sprintf("/%s/%s", prefix, words[(i*7+len(gateway.name))%len(words)])
		o.method = []string{"GET", "GET", "POST"}[a.rng.IntN(3)]
		o.steps = a.calls(a.services[1:], 1+a.rng.IntN(3), covered)
		if len(o.steps) == 0 {
			o.steps = []step{a.call(a.smallest())}
		}
		if len(o.steps) > 1 && a.chance(0.3) {
			o.steps = []step{{parallel: true, steps: o.steps, share: 1, times: 1}}
		}
		gateway.ops = append(gateway.ops, o)
		share := shares[i] / sum * (1 - rare)
		if i == n-1 { // the last one is the rare one
			share = rare
			for k := range n - 1 {
				a.types[k].rate /= 1 - shares[n-1]/sum
			}
		}
		a.types = append(a.types, &requestType{op: o, rate: share})
	}
	for _, s := range a.services[1:] {
		if !a.reached()[s] {
			o := a.types[a.rng.IntN(n)].op
			o.steps = append(o.steps, a.call(s.ops[a.rng.IntN(len(s.ops))]))
		}
	}
}

// smallest returns the operation with the fewest spans behind the first service.
func (a *app) smallest() *operation {
	best := a.services[1].ops[0]
	for _, s := range a.services[1:] {
		for _, o := range s.ops {
			if o.size < best.size {
				best = o
			}
		}
	}
	return best
}

// reached returns the services that requests reach.
func (a *app) reached() map[*service]bool {
	seen := make(map[*service]bool)
	var follow func(steps []step)
	follow = func(steps []step) {
		for i := range steps {
			follow(steps[i].steps)
			if o := steps[i].to; o != nil {
				seen[o.service] = true
				follow(o.steps)
			}
		}
	}
	for _, t := range a.types {
		follow(t.op.steps)
	}
	return seen
}

// addUntidiness adds traffic that does not fit a tidy tree to some applications: work after the response, a hop without
// spans, phones, streams and polls. Each is drawn independently.
func (a *app) addUntidiness() {
	if a.chance(0.5) {
		for range 1 + a.rng.IntN(3) {
			s := a.services[a.rng.IntN(len(a.services))]
			o := s.ops[a.rng.IntN(len(s.ops))]
			o.later = []step{{inner: "send receipt", share: 1, times: 1, steps: a.someQuery()}}
		}
	}
	if hop := a.services[1+a.rng.IntN(len(a.services)-1)]; a.chance(0.25) && !a.consumes(hop) {
		hop.unseen = true
	}
	if a.chance(0.4) {
		a.addPhones()
	}
	gateway := a.services[0]
	if a.chance(0.4) {
		o := &operation{
			service: gateway,
			method:  "GET",
			route:   "/events/stream",
			own:     a.logUniform(20e9, 200e9),
			cv:      0.9,
		}
		a.types = append(a.types, &requestType{op: o, rate: a.between(0.003, 0.015), nature: stream})
	}
	if a.chance(0.25) {
		o := &operation{service: gateway, method: "GET", route: "/updates/poll", own: 30e9, cv: 0.01}
		a.types = append(a.types, &requestType{op: o, rate: a.between(0.005, 0.02), nature: poll})
	}
}

func (a *app) someQuery() []step {
	if len(a.databases) == 0 {
		return nil
	}
	return []step{a.query(a.databases[a.rng.IntN(len(a.databases))])}
}

// consumes reports whether a service consumes messages.
func (a *app) consumes(s *service) bool {
	return slices.ContainsFunc(a.queues, func(q *queue) bool { return q.consumer.service == s })
}

// addPhones adds phones. Most clocks are right within a fifth of a second. The others are between one second and two
// minutes ahead or behind.
func (a *app) addPhones() {
	a.mobile = a.between(0.2, 0.6)
	app := &service{name: "mobile-app"}
	a.phone = &pod{service: app, version: "5.1.0"}
	wrong := a.between(0.1, 0.4)
	for range 200 {
		offset := time.Duration(a.rng.NormFloat64() * 0.1e9)
		if a.chance(wrong) {
			offset = time.Duration(a.logUniform(1e9, 120e9))
			if a.chance(0.5) {
				offset = -offset
			}
		}
		a.devices = append(a.devices, offset)
	}
}

// limit sets the rate of recorded requests a second. It is log-uniform from 2 to 50, but reduced, though not below 1.5,
// so that there are at most about spans spans in the time in.
func (a *app) limit(spans float64, in time.Duration) {
	rate := a.logUniform(2, 50)
	rate = min(rate, max(1.5, spans/in.Seconds()/a.spansPerRequest()))
	for _, t := range a.types {
		t.rate *= rate
	}
}

// spansPerRequest returns the mean number of spans per request, averaged over all traffic.
func (a *app) spansPerRequest() float64 {
	spans, rate := 0, 0.0
	const runs = 500
	for range runs {
		x := a.execute(a.pick(), begin)
		for _, t := range x.traces {
			spans += len(t.spans)
		}
	}
	for _, t := range a.types {
		rate += t.rate
	}
	return max(1, float64(spans)/runs*rate)
}

// pick returns a random request type by rate.
func (a *app) pick() *requestType {
	at := a.rng.Float64() * a.rate()
	for _, t := range a.types {
		if at -= t.rate; at < 0 {
			return t
		}
	}
	return a.types[0]
}

// rate returns the sum of the rates.
func (a *app) rate() (sum float64) {
	for _, t := range a.types {
		sum += t.rate
	}
	return sum
}

// requests returns the rate of the requests, without streams, polls, probes and batches.
func (a *app) requests() (sum float64) {
	for _, t := range a.types {
		if t.nature == request {
			sum += t.rate
		}
	}
	return sum
}
