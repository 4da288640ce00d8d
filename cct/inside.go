package cct

import "github.com/sibyl-trace/sibyl/trace"

// Inside returns the part of b inside the baseline steps in operations, regardless of their callers. Each step becomes
// a root, with the tracepoints below it down to the next baseline operation. Contexts that differ only above an
// operation become one, so that the results for several request types can be merged. The result shares no memory with
// b.
func (b *Builder) Inside(operations map[trace.Op]bool) *Builder {
	in := &Builder{Limit: b.Limit}
	inside := b.insideOf(operations)
	for ctx, place := range b.places { // in any order, because `in` has room for all
		at := inside(ctx)
		if at == 0 {
			continue
		}
		p := *place
		if p.tp == 0 {
			p.parent = 0
		} else {
			p.parent = inside(p.parent)
		}
		in.mergePlace(at, &p)
	}
	if len(in.places) == 0 {
		return in
	}
	in.requests = b.requests
	for h, from := range b.sets {
		to := in.set(h, from.on, 0)
		to.requests, to.seen = from.requests, from.seen
	}
	for tp, n := range b.before {
		in.addBefore(tp, n)
	}
	return in
}

// LearnInside adds results, from an investigation of operations, to the contexts of b. The contexts in results must be
// contexts of the builder returned by [Builder.Inside]. LearnInside reports whether b has any of them.
func (b *Builder) LearnInside(operations map[trace.Op]bool, results map[trace.Context]History) bool {
	learned := false
	inside := b.insideOf(operations)
	for ctx, p := range b.places {
		if h, found := results[inside(ctx)]; found {
			p.history.Merge(h)
			learned = true
		}
	}
	return learned
}

// insideOf returns a function that renames contexts to start at the nearest baseline operation. It returns 0 for a
// context whose nearest baseline operation is unknown or not in operations.
func (b *Builder) insideOf(operations map[trace.Op]bool) func(trace.Context) trace.Context {
	known := make(map[trace.Context]trace.Context, len(b.places))
	var rename func(ctx trace.Context, depth int) trace.Context
	rename = func(ctx trace.Context, depth int) trace.Context {
		if at, done := known[ctx]; done {
			return at
		}
		at := trace.Context(0)
		switch p := b.places[ctx]; {
		case p == nil || depth > maxDepth:
		case p.tp != 0:
			if above := rename(p.parent, depth+1); above != 0 {
				at = above.Child(p.op)
			}
		case operations[p.op]:
			at = at.Child(p.op)
		}
		known[ctx] = at
		return at
	}
	return func(ctx trace.Context) trace.Context { return rename(ctx, 0) }
}
