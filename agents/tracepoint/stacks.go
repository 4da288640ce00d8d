package tracepoint

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// Limits on following requests through tracepoints.
const (
	followedCalls  = 20_000          // calls of tracepoints per second, about 0.25 µs each: 0.5 % of a CPU
	followedFrames = 512             // frames of a request
	followedKept   = 512             // requests of an operation until the next report
	reportAge      = 5 * time.Second // minimum age of a report
)

// stacks measures the time that requests spend in each tracepoint that they run through, while Sibyl asks for it. It
// exports no spans. Unlike a sampling profiler, it sees every call, whether waiting or running, so a few seconds are
// enough.
type stacks struct {
	on   atomic.Bool  // read before the mutex is locked
	left atomic.Int64 // calls that may be followed until the next report

	mu       sync.Mutex // guards the fields below
	stop     *time.Timer
	started  time.Time // start of the measurement; requests that began before it lack calls
	since    time.Time // start of the current report
	finished map[operation][]*followed
}

// operation is the name and kind of a baseline span.
type operation struct {
	name string
	kind protocol.SpanKind
}

// SampleStacks makes r record the calling trees of requests for the duration d from now on; see [Registry.Stacks].
// Tracepoints cost more during that time.
func (r *Registry) SampleStacks(d time.Duration) {
	x := &r.stacks
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stop != nil {
		x.stop.Reset(d)
	} else {
		x.stop = time.AfterFunc(d, r.stopStacks)
	}
	if !x.on.Load() {
		x.started = time.Now()
		if x.finished == nil || time.Since(x.since) > time.Second { // otherwise, a report has just begun
			x.begin()
		}
		x.on.Store(true)
		r.activateAll()
	}
}

// stopStacks ends the measurement when its time is over.
func (r *Registry) stopStacks() {
	r.stacks.on.Store(false)
	r.activateAll()
}

// activateAll recomputes the activations of all tracepoints from the current state.
func (r *Registry) activateAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.points {
		p.active.Store(r.activation(p))
	}
}

// begin starts a report. The caller must hold x.mu.
func (x *stacks) begin() {
	now := time.Now()
	seconds := min(now.Sub(x.since).Seconds(), 10)
	x.left.Store(int64(max(1, seconds) * followedCalls))
	x.since, x.finished = now, make(map[operation][]*followed)
}

// Stacks returns the calling trees of the slow requests that have ended since Stacks last returned any, one tree per
// operation, most frequent operations first. It omits trees that don't fit into a status. It returns nil until r has
// measured for a few seconds.
func (r *Registry) Stacks() []protocol.Stacks {
	var list []protocol.Stacks
	for op, requests := range r.stacks.take() {
		list = append(list, r.merge(op, requests))
	}
	slices.SortFunc(list, func(a, b protocol.Stacks) int { // the first ones may be all that fit into a status
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Operation, b.Operation),
			cmp.Compare(a.SpanKind, b.SpanKind))
	})
	return protocol.LimitStacks(list)
}

// take returns the requests that have ended and begins a new report, or returns nil if the current report is younger
// than reportAge. The returned requests no longer change, so they can be merged while others end.
func (x *stacks) take() map[operation][]*followed {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.finished) == 0 || time.Since(x.since) < reportAge {
		return nil
	}
	finished := x.finished
	x.begin()
	return finished
}

// merge sorts requests and returns the calling tree of the slowest quarter. The other requests could hide the cause if
// only a few requests are slow.
func (r *Registry) merge(op operation, requests []*followed) protocol.Stacks {
	slices.SortFunc(requests, func(a, b *followed) int { return cmp.Compare(b.frames[0].spent, a.frames[0].spent) })
	slow := requests[:(len(requests)+3)/4]
	all := followed{frames: []frame{{}}}
	for _, q := range slow {
		at := make([]int32, len(q.frames))
		for i := range q.frames {
			f := &q.frames[i]
			if i > 0 {
				if at[i] = all.child(at[f.caller], f.point); at[i] < 0 {
					at[i] = at[f.caller] // no room: its time belongs to its caller
					continue
				}
			}
			all.frames[at[i]].spent += f.spent
		}
	}
	s := protocol.Stacks{Operation: op.name, SpanKind: op.kind, Requests: len(slow)}
	for i := range all.frames {
		f := &all.frames[i]
		own := f.spent
		for k := f.first; k > 0; k = all.frames[k].next {
			own -= all.frames[k].spent
		}
		own = min(max(0, own), protocol.MaxStackNanos) // calls at the same time add up to more than their caller
		x := protocol.Frame{Caller: int(f.caller), Nanos: int64(own)}
		if f.point != nil {
			x.ID = f.point.ID()
		}
		s.Frames = append(s.Frames, x)
	}
	return s
}

// followed is a request that is followed through the tracepoints of this service, from the start of a baseline span.
type followed struct {
	stacks *stacks
	began  time.Time

	mu     sync.Mutex // guards the fields below
	name   operation
	frames []frame // frames[0] is the baseline span; callers come before the frames that they call
	ended  bool
}

// frame stands for all calls of a tracepoint in the same calling context.
type frame struct {
	point       *Point
	caller      int32
	first, next int32 // the first frame that it calls, and the next frame with the same caller; 0 if none
	spent       time.Duration
}

// follow starts following a request that enters the baseline span of `point`. It returns the context for the request's
// calls and the followed request, or ctx and nil if the request is not followed.
func (x *stacks) follow(ctx context.Context, point *Point) (context.Context, *followed) {
	if point == nil || !x.on.Load() {
		return ctx, nil
	}
	q := &followed{
		stacks: x,
		began:  time.Now(),
		name:   operation{point.info.Operation, point.info.SpanKind},
		frames: []frame{{}},
	}
	return &followedContext{ctx, q, 0}, q
}

// rename sets the name of the operation.
func (q *followed) rename(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.name.name = name
}

// end ends the request. Calls that are still running are not part of it. If the measurement has been stopped since the
// request began, calls may be missing, so the request doesn't count. Further calls of end do nothing.
func (q *followed) end() {
	q.mu.Lock()
	ended := q.ended
	if !ended {
		q.ended = true
		q.frames[0].spent = time.Since(q.began)
	}
	name := operation{protocol.Printable(q.name.name, protocol.MaxText), q.name.kind}
	q.mu.Unlock()
	x := q.stacks
	x.mu.Lock()
	defer x.mu.Unlock()
	if ended || !x.on.Load() || q.began.Before(x.started) || name.name == "" {
		return
	}
	kept := x.finished[name]
	if kept == nil && len(x.finished) == protocol.MaxStacks || len(kept) == followedKept {
		return
	}
	x.finished[name] = append(kept, q)
}

// child returns the frame of p below caller, or -1 if there is no room for it. The caller of child must hold q.mu.
func (q *followed) child(caller int32, p *Point) int32 {
	last := int32(0)
	for k := q.frames[caller].first; k > 0; k = q.frames[k].next {
		if q.frames[k].point == p {
			return k
		}
		last = k
	}
	if len(q.frames) == followedFrames {
		return -1
	}
	at := int32(len(q.frames))
	q.frames = append(q.frames, frame{point: p, caller: caller})
	if last > 0 {
		q.frames[last].next = at
	} else {
		q.frames[caller].first = at
	}
	return at
}

// followedContext is the context of a frame of a followed request.
type followedContext struct {
	context.Context //nolint:containedctx // it is a context
	request         *followed
	frame           int32
}

// followedKey is the key of a followedContext.
type followedKey struct{}

// Value returns the context itself for followedKey, or the value of the wrapped context for other keys.
func (c *followedContext) Value(key any) any {
	if key == (followedKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// call records that the tracepoint p is called in ctx. The caller must call end when the tracepoint returns; further
// calls of end do nothing. call returns ctx and nil if the request is not followed.
func (x *stacks) call(ctx context.Context, p *Point) (_ context.Context, end func()) {
	if !x.on.Load() {
		return ctx, nil
	}
	if left := x.left.Add(-1); left <= 0 {
		if left == 0 { // stop until Sibyl asks again
			x.on.Store(false)
			go p.registry.activateAll() // not in the request: there may be many tracepoints
		}
		return ctx, nil
	}
	c, _ := ctx.Value(followedKey{}).(*followedContext)
	if c == nil {
		return ctx, nil
	}
	q := c.request
	q.mu.Lock()
	at := int32(-1)
	if !q.ended {
		at = q.child(c.frame, p)
	}
	q.mu.Unlock()
	if at < 0 {
		return ctx, nil
	}
	began := time.Now()
	return &followedContext{ctx, q, at}, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if !q.ended && !began.IsZero() {
			q.frames[at].spent += time.Since(began)
		}
		began = time.Time{}
	}
}
