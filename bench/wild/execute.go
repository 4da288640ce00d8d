package wild

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// begin is the start of the traffic of every application.
const begin = trace.Nanos(1_780_300_800_000_000_000) // 1 June 2026, 8:00 UTC

// effect is the change that a fault makes to the executions at its place. Each field but strength, share and window
// applies if it is not zero.
type effect struct {
	strength float64     // added time in ns, factor or repetitions, depending on the fault; 0 only counts executions
	share    float64     // of the executions that it touches
	added    bool        // strength ns are added to each touched execution
	factor   bool        // own times are strength times longer
	span     string      // name of an internal span that holds the added latency
	repeated bool        // queries and calls are made 1+strength times
	fails    bool        // touched executions fail at once
	quiet    bool        // failures show only in codes of HTTP, not in the status of spans
	from, to trace.Nanos // of growth
	since    trace.Nanos // only pods that started later are touched
}

// size returns the strength at time at. If from and to are set, it grows from zero to its value between them.
func (e *effect) size(at trace.Nanos) float64 {
	if e.to == 0 {
		return e.strength
	}
	return e.strength * min(1, max(0, float64(at-e.from)/float64(e.to-e.from)))
}

// recorded is one trace as its spans were exported.
type recorded struct {
	id    trace.ID
	spans []span
}

// span is an exported span.
type span struct {
	id, parent uint64
	pod        *pod
	name       string
	kind       trace.Kind
	start, end trace.Nanos
	attrs      []attr
	failed     bool
	exception  string
	remote     bool // the parent is in another process
	linked     trace.ID
	link       uint64
	dropped    bool // its service exports no spans
}

// attr is an attribute, with a text or a number.
type attr struct {
	key, text string
	number    int64
}

// outcome is the result of an execution.
type outcome struct {
	code  int // of HTTP; 0 and 200 are successes
	quiet bool
}

func (o outcome) failed() bool { return o.code >= 500 }

// execution is a request in progress. Its traces have their spans in the order of their starts.
type execution struct {
	app      *app
	traces   []*recorded
	touched  bool
	failures int
	duration time.Duration // of the entry
	seen     map[any]bool  // places that the request passed; nil if not needed
}

// ref is a reference to a span.
type ref struct {
	trace *recorded
	index int
}

func (r ref) span() *span { return &r.trace.spans[r.index] }

// execute executes a request of type t that starts at time at.
func (a *app) execute(t *requestType, at trace.Nanos) *execution {
	x := &execution{app: a}
	x.run(t, at)
	return x
}

func (x *execution) run(t *requestType, at trace.Nanos) {
	w := x.newTrace()
	switch t.nature {
	case request:
	case stream, poll:
		x.long(t, w, at)
		return
	case batch:
		x.batch(t, w, at)
		return
	case probe:
		x.open(w, ref{}, pick(x, t.op.service), t.op.name(), trace.Server, at)
		w.spans[0].end = at.Add(time.Duration(x.app.logNormal(t.op.own, t.op.cv)))
		w.spans[0].attrs = x.serverAttrs(t.op, 200)
		return
	}
	if len(x.app.devices) > 0 && x.app.chance(x.app.mobile) {
		x.mobile(t, w, at)
	} else {
		end, _ := x.serve(t.op, pick(x, t.op.service), at, ref{}, w)
		x.duration = end.Sub(at)
	}
	x.drop()
}

// pick returns a random pod of s.
func pick(x *execution, s *service) *pod { return s.pods[x.app.rng.IntN(len(s.pods))] }

func (x *execution) newTrace() *recorded {
	const usual = 32
	w := &recorded{spans: make([]span, 0, usual)}
	binary.BigEndian.PutUint64(w.id[:8], x.app.rng.Uint64())
	binary.BigEndian.PutUint64(w.id[8:], x.app.rng.Uint64()|1)
	x.traces = append(x.traces, w)
	return w
}

// drop removes the spans of services without export, and empty traces.
func (x *execution) drop() {
	kept := x.traces[:0]
	for _, w := range x.traces {
		n := 0
		for i := range w.spans {
			if !w.spans[i].dropped {
				w.spans[n] = w.spans[i]
				n++
			}
		}
		if w.spans = w.spans[:n]; n > 0 {
			kept = append(kept, w)
		}
	}
	x.traces = kept
}

func (x *execution) open(w *recorded, parent ref, p *pod, name string, kind trace.Kind, at trace.Nanos) ref {
	s := span{id: x.app.rng.Uint64() | 1, pod: p, name: name, kind: kind, start: at, end: at, dropped: p.service.unseen}
	if parent.trace == w {
		s.parent, s.remote = parent.span().id, parent.span().pod != p
	}
	w.spans = append(w.spans, s)
	return ref{w, len(w.spans) - 1}
}

// see records that the request passes a place. If the effect of the place touches this execution, it marks the
// execution and returns true.
func (x *execution) see(place any, e *effect) bool {
	if x.seen != nil {
		x.seen[place] = true
	}
	if e == nil || e.share < 1 && !x.app.chance(e.share) {
		return false
	}
	x.touched = true
	return true
}

// mobile executes a request from a phone, whose clock may be wrong.
func (x *execution) mobile(t *requestType, w *recorded, at trace.Nanos) {
	offset := x.app.devices[x.app.rng.IntN(len(x.app.devices))]
	radio := func() time.Duration { return time.Duration(x.app.logNormal(25e6, 0.6)) }
	root := x.open(w, ref{}, x.app.phone, t.op.method, trace.Client, at.Add(offset))
	arrived := at.Add(radio())
	end, out := x.serve(t.op, pick(x, t.op.service), arrived, root, w)
	x.duration = end.Sub(arrived)
	x.close(root, end.Add(radio()+offset), x.callAttrs(&step{to: t.op}, "shop.example", out.code), out)
}

// long executes a stream or a long poll: the span of the entry, with an event now and then.
func (x *execution) long(t *requestType, w *recorded, at trace.Nanos) {
	p := pick(x, t.op.service)
	lasts := time.Duration(min(x.app.logNormal(t.op.own, t.op.cv), 900e9))
	root := x.open(w, ref{}, p, t.op.name(), trace.Server, at)
	root.span().attrs = x.serverAttrs(t.op, 200)
	root.span().end = at.Add(lasts)
	for range min(8, int(lasts/(20*time.Second))) {
		e := x.open(w, root, p, "send event", trace.Internal, at.Add(time.Duration(x.app.rng.Float64()*float64(lasts))))
		e.span().end = min(e.span().start.Add(time.Millisecond), root.span().end)
	}
}

// batch executes a job that calls operations one after the other.
func (x *execution) batch(t *requestType, w *recorded, at trace.Nanos) {
	p := pick(x, t.op.service)
	root := x.open(w, ref{}, p, t.op.route, trace.Internal, at)
	now, _ := x.steps(t.op.steps, root, p, at, 0)
	x.close(root, now, nil, outcome{})
	x.drop()
}

// serve executes an operation that is called at time at, and returns its end and its outcome.
func (x *execution) serve(o *operation, p *pod, at trace.Nanos, parent ref, w *recorded) (trace.Nanos, outcome) {
	return x.process(o, p, x.open(w, parent, p, o.name(), trace.Server, at), at, true)
}

// process executes an operation in an open span.
func (x *execution) process(o *operation, p *pod, s ref, at trace.Nanos, server bool) (trace.Nanos, outcome) {
	now, own, again := at, o.own*warm(p, at), 0
	if x.app.chance(o.tail) {
		own *= 10
	}
	var out outcome
	for _, place := range []struct {
		at     any
		effect *effect
	}{{o, o.effect}, {p, p.effect}, {p.node, p.node.effect}} {
		e := place.effect
		if e != nil && p.started < e.since || !x.see(place.at, e) {
			continue
		}
		size := e.size(now)
		switch {
		case e.factor:
			own *= 1 + size
		case e.added:
			now = x.delay(e, size, s, p, now)
		case e.repeated:
			again = int(math.Round(size))
		case e.fails && size > 0:
			out = outcome{code: 503, quiet: e.quiet}
			x.failures++
		}
	}
	if out.failed() {
		now = now.Add(time.Duration(x.app.logNormal(own/4, o.cv)))
	} else if x.app.chance(o.lost) {
		out, now = outcome{code: 404}, now.Add(time.Duration(x.app.logNormal(own/2, o.cv)))
	} else {
		piece := x.app.logNormal(own, o.cv) / float64(len(o.steps)+1)
		steps := o.steps
		if again > 0 {
			steps = repeated(steps, again)
		}
		now, out = x.steps(steps, s, p, now.Add(time.Duration(piece)), piece)
	}
	var attrs []attr
	if server {
		attrs = x.serverAttrs(o, out.code)
	}
	x.close(s, now, attrs, out)
	if len(o.later) > 0 && !out.failed() {
		x.steps(o.later, s, p, now.Add(time.Duration(x.app.logNormal(5e6, 0.5))), 1e6)
	}
	return now, out
}

// repeated returns steps whose first call or query is made n more times.
func repeated(steps []step, n int) []step {
	steps = append([]step(nil), steps...)
	for i := range steps {
		if steps[i].query != nil || steps[i].to != nil {
			steps[i].times += n
			break
		}
	}
	return steps
}

// warm returns the factor on own times of a young pod: its caches are cold for half a minute.
func warm(p *pod, at trace.Nanos) float64 {
	if p.started == 0 {
		return 1
	}
	return 1 + 0.4*math.Exp(-at.Sub(p.started).Seconds()/20)
}

// delay returns the time after a delay by e, which it records as an internal span if e has one.
func (x *execution) delay(e *effect, size float64, s ref, p *pod, now trace.Nanos) trace.Nanos {
	end := now
	if size > 0 {
		end = now.Add(time.Duration(x.app.logNormal(size, 0.3)))
	}
	if e.span != "" && size > 0 {
		inner := x.open(s.trace, s, p, e.span, trace.Internal, now)
		inner.span().end = end
	}
	return end
}

// steps executes steps one after the other, with own time of piece ns after each.
func (x *execution) steps(steps []step, s ref, p *pod, now trace.Nanos, piece float64) (trace.Nanos, outcome) {
	for i := range steps {
		st := &steps[i]
		if st.share < 1 && !x.app.chance(st.share) {
			continue
		}
		for range st.times {
			var out outcome
			now, out = x.step(st, s, p, now, piece)
			if out.failed() && !st.tolerated {
				return now, out
			}
		}
		now = now.Add(time.Duration(piece))
	}
	return now, outcome{}
}

func (x *execution) step(st *step, s ref, p *pod, now trace.Nanos, piece float64) (trace.Nanos, outcome) {
	switch {
	case st.to != nil:
		return x.call(st, s, p, now)
	case st.query != nil:
		return x.query(st, s, p, now), outcome{}
	case st.publish != nil:
		return x.publish(st.publish, s, p, now), outcome{}
	case st.parallel:
		return x.parallel(st.steps, s, p, now)
	}
	inner := x.open(s.trace, s, p, st.inner, trace.Internal, now)
	end, out := x.steps(st.steps, inner, p, now.Add(time.Duration(piece/2)), piece/4)
	x.close(inner, end, nil, out)
	return end, out
}

func (x *execution) parallel(steps []step, s ref, p *pod, now trace.Nanos) (end trace.Nanos, out outcome) {
	for i := range steps {
		done, o := x.steps(steps[i:i+1], s, p, now, 0)
		end = max(end, done)
		if o.failed() {
			out = o
		}
	}
	return max(end, now), out
}

// call calls an operation of another service. If the call fails and the caller retries, it calls again.
func (x *execution) call(st *step, s ref, p *pod, now trace.Nanos) (trace.Nanos, outcome) {
	for attempt := 0; ; attempt++ {
		end, out := x.attempt(st, s, p, now)
		if !out.failed() || attempt >= st.retries {
			return end, out
		}
		now = end.Add(st.backoff)
	}
}

func (x *execution) attempt(st *step, s ref, p *pod, now trace.Nanos) (trace.Nanos, outcome) {
	to := st.to.service
	at := pick(x, to)
	c := x.open(s.trace, s, p, x.clientName(st.to), trace.Client, now)
	if x.seen != nil {
		x.seen[to] = true
	}
	if to.down {
		x.touched = x.touched || to.mark
		x.failures++
		end, reason := now.Add(st.timeout), "timeout"
		if to.refuses {
			end, reason = now.Add(time.Duration(x.app.logNormal(1.5e6, 0.3))), "connection refused"
		}
		x.unanswered(c, end, st, at, reason)
		return end, outcome{code: 503}
	}
	wire := x.app.wires[[2]*service{p.service, to}]
	arrived := now.Add(x.wire())
	slow := x.see([2]*service{p.service, to}, wire)
	if slow {
		arrived = x.delay(wire, wire.size(now)/2, ref{}, nil, arrived)
	}
	end, out := x.serve(st.to, at, arrived, c, s.trace)
	end = end.Add(x.wire())
	if slow {
		end = x.delay(wire, wire.size(now)/2, ref{}, nil, end)
	}
	if limit := now.Add(st.timeout); end > limit {
		x.failures++
		x.unanswered(c, limit, st, at, "timeout")
		return limit, outcome{code: 504}
	}
	x.close(c, end, x.callAttrs(st, x.addressOf(at), out.code), out)
	return end, out
}

// unanswered ends the span of a call to a pod without an answer.
func (x *execution) unanswered(c ref, end trace.Nanos, st *step, at *pod, reason string) {
	c.span().exception = reason
	attrs := append(x.callAttrs(st, x.addressOf(at), noResponse), attr{key: "error.type", text: reason})
	x.close(c, end, attrs, outcome{code: noResponse})
}

func (x *execution) wire() time.Duration {
	return time.Duration(x.app.logNormal(x.app.style.wire, 0.4))
}

func (x *execution) query(st *step, s ref, p *pod, now trace.Nanos) trace.Nanos {
	b := st.query
	c := x.open(s.trace, s, p, st.name, trace.Client, now)
	end := now.Add(time.Duration(x.app.logNormal(b.mean, b.cv)))
	if x.see(b, b.effect) {
		end = x.delay(b.effect, b.effect.size(now), ref{}, nil, end)
	}
	if x.seen != nil {
		x.seen[calledBy{b, p.service}] = true
	}
	x.close(c, end, x.backendAttrs(b), outcome{})
	return end
}

// calledBy is a backend and a service that calls it.
type calledBy struct {
	backend *backend
	caller  *service
}

// publish sends a message, which is consumed later.
func (x *execution) publish(q *queue, s ref, p *pod, now trace.Nanos) trace.Nanos {
	sent := now.Add(time.Duration(x.app.logNormal(1.5e6, 0.5)))
	c := x.open(s.trace, s, p, "send "+q.name, trace.Producer, now)
	x.close(c, sent, x.queueAttrs(q), outcome{})
	if q.consumer.service.down {
		return sent // consumed after the outage, at a time that is not simulated
	}
	lag := x.app.logNormal(q.lag, 0.6)
	if x.see(q, q.effect) && q.effect.strength > 0 {
		lag += x.app.logNormal(q.effect.size(now), 0.3)
	}
	at, to := sent.Add(time.Duration(lag)), pick(x, q.consumer.service)
	w, parent := s.trace, c
	switch q.delivery {
	case inTrace:
	case byLink:
		w = x.newTrace()
		parent = ref{w, 0}
	case byReceive:
		parent = x.open(w, c, to, "receive "+q.name, trace.Consumer, at)
		at = at.Add(time.Millisecond)
		x.close(parent, at, x.queueAttrs(q), outcome{})
		at = at.Add(time.Millisecond)
	}
	var r ref
	if q.delivery == byLink {
		r = x.open(w, ref{}, to, "process "+q.name, trace.Consumer, at)
		if x.app.chance(x.app.style.sampling) { // the consumer makes its own sampling decision
			r.span().linked, r.span().link = s.trace.id, c.span().id
		} else {
			binary.BigEndian.PutUint64(r.span().linked[8:], x.app.rng.Uint64())
			r.span().link = x.app.rng.Uint64() | 1
		}
	} else {
		r = x.open(w, parent, to, "process "+q.name, trace.Consumer, at)
	}
	r.span().attrs = x.queueAttrs(q)
	x.process(q.consumer, to, r, at, false)
	return sent
}

// close ends a span.
func (x *execution) close(r ref, end trace.Nanos, attrs []attr, out outcome) {
	s := r.span()
	s.end = end
	s.attrs = append(s.attrs, attrs...)
	s.failed = out.failed() && !out.quiet || s.kind == trace.Client && out.code >= 400 && !out.quiet
	if s.failed && x.app.style.exception && s.exception == "" {
		s.exception = fmt.Sprintf("request failed: %d", out.code)
	}
}

// logUniform returns a random number between low and high whose logarithm is uniform.
func (a *app) logUniform(low, high float64) float64 { return low * math.Pow(high/low, a.rng.Float64()) }

// logNormal returns a log-normal random number with the given mean and coefficient of variation.
func (a *app) logNormal(mean, cv float64) float64 {
	v := math.Log1p(cv * cv)
	return mean * math.Exp(math.Sqrt(v)*a.rng.NormFloat64()-v/2)
}
