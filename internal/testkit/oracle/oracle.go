// Package oracle is an independent implementation of critical paths and observations, for tests that compare it with
// packages critpath and observation. It follows the definition line by line, recursively, with maps and pointers, and
// is slow. It shares only the types of records with those packages, and the hash that orders conflicting copies.
package oracle

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// span is a span of the trace without duplicates.
type span struct {
	depth int
	*trace.Span
	id      trace.SpanID
	index   int32
	parent  *span   // parent in the trace
	up      *span   // parent in the walks
	why     string  // reason why up is nil: "none", "missing", "detached", "broken"
	asked   *span   // up before settle
	lost    bool    // up differs from asked, because the span is outside asked
	shift   int64   // correction of the clock relative to the clock of up
	kids    []*span // spans whose up is this one
	joined  []*span
	offset  int64
	rawEnd  trace.Nanos // end with the offset, not clamped
	start   trace.Nanos
	end     trace.Nanos
	root    *span
	dropped bool
	async   bool
	ctx     trace.Context
	full    trace.Context
	callee  *span // the span that answers a CLIENT span
	gap     bool  // it called a hop whose spans are missing
}

// step returns the operation of s with its target, or 0 if s is nil.
func (s *span) step() trace.Op {
	if s == nil {
		return 0
	}
	return s.Op.To(s.target())
}

// target returns the operation that s calls, or 0 if it is unknown.
func (s *span) target() trace.Op {
	if s.callee == nil {
		return s.Peer
	}
	return s.callee.Op
}

func (s *span) baseline() bool { return s.Tracepoint == 0 }

// section is a section of a critical path.
type section struct {
	node, before, after *span
	start, end          trace.Nanos
	within              int
}

// root is a root with its critical path.
type root struct {
	span     *span
	sections []section
	refined  []section
	critical []*span
	overlaps []critpath.Overlap
	tail     time.Duration
}

// Result is the analysis of a trace.
type Result struct {
	options critpath.Options
	trace   *trace.Trace
	spans   []*span
	server  map[*span]*span // server halves of shared IDs, by client half
	byID    map[trace.SpanID]*span
	retries map[trace.SpanID][]*span // attempts that share an ID, including the first
	flags   critpath.Flags
	counts  critpath.Counts
	roots   []*root
	own     map[*span]bool // visited by the walk of its own root
	other   map[*span]bool // visited by the walk of another root
}

// Extract returns the critical paths of t.
func Extract(o critpath.Options, t *trace.Trace) *Result {
	w := &Result{
		options: o,
		trace:   t,
		server:  map[*span]*span{},
		byID:    map[trace.SpanID]*span{},
		retries: map[trace.SpanID][]*span{},
		own:     map[*span]bool{},
		other:   map[*span]bool{},
	}
	w.deduplicate()
	w.setParents()
	w.project()
	w.detachConsumers()
	w.breakCycles()
	w.correctSkew()
	w.settle()
	w.findRoots()
	w.answer()
	w.clamp()
	w.keepClocks()
	w.findGaps()
	w.setFlags()
	w.join()
	for _, r := range w.roots {
		w.walkRoot(r)
	}
	return w
}

// deduplicate drops identical copies and splits a CLIENT and a SERVER with the same ID. Of other spans with the same
// ID, it keeps the first.
func (w *Result) deduplicate() {
	extra := make([]uint64, len(w.trace.Spans))
	for _, a := range w.trace.Attrs {
		extra[a.Span] += analysis.HashOf(uint64(a.Key), uint64(a.Text), math.Float64bits(a.Number),
			map[bool]uint64{true: 1}[a.Numeric]).Lo
	}
	for _, j := range w.trace.Joins {
		extra[j.Span] += analysis.HashOf(uint64(j.Linked)).Lo
	}
	groups := map[trace.SpanID][]*span{}
	for i := range w.trace.Spans {
		s := &w.trace.Spans[i]
		same := func(o *span) bool { return *o.Span == *s && extra[o.index] == extra[i] }
		if slices.ContainsFunc(groups[s.ID], same) {
			w.counts.Duplicates++
			continue
		}
		groups[s.ID] = append(groups[s.ID], &span{Span: s, id: s.ID, index: int32(i)})
	}
	for id, g := range groups {
		slices.SortFunc(g, func(a, b *span) int {
			return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End),
				cmp.Compare(contentHash(a.Span, extra[a.index]), contentHash(b.Span, extra[b.index])))
		})
		first := g[0]
		var half *span
		c := slices.IndexFunc(g, func(s *span) bool { return s.Kind == trace.Client })
		if i := slices.IndexFunc(g, func(s *span) bool { return s.Kind == trace.Server }); c >= 0 && i >= 0 {
			first, half = g[c], g[i]
		}
		kept := []*span{first}
		if first.Kind == trace.Client {
			for _, s := range g {
				if last := kept[len(kept)-1]; s.Kind == trace.Client && s.Start > last.Start && s.Start >= last.End {
					kept = append(kept, s)
				}
			}
			w.retries[id] = kept
		}
		w.counts.Conflicts += len(g) - len(kept)
		w.keep(first)
		fresh := id
		rename := func(s *span) {
			for fresh = trace.SpanID(trace.Mix(uint64(fresh), otherID)); groups[fresh] != nil; {
				fresh = trace.SpanID(trace.Mix(uint64(fresh), otherID))
			}
			s.id = fresh
			w.spans = append(w.spans, s)
			w.flags |= critpath.FlagSharedID
		}
		for _, s := range kept[1:] {
			rename(s)
		}
		if half != nil {
			w.counts.Conflicts--
			rename(half)
			half.parent = w.attempt(first, half)
			w.server[half.parent] = half
		}
	}
}

// attempt returns the attempt that s belongs to, determined by the start of s. first is the first attempt of the call.
func (w *Result) attempt(first, s *span) *span {
	if first == nil {
		return nil
	}
	for _, a := range slices.Backward(w.retries[first.ID]) {
		if a.Start <= s.Start {
			return a
		}
	}
	return first
}

func (w *Result) keep(s *span) {
	w.byID[s.ID] = s
	w.spans = append(w.spans, s)
}

// setParents sets the parents of spans in the trace.
func (w *Result) setParents() {
	for _, s := range w.spans {
		p := w.attempt(w.byID[s.Parent], s)
		switch half := w.server[p]; {
		case s.parent != nil: // server half
		case s.Parent == 0:
			s.why = "none"
		case s.Parent == s.ID:
			s.parent = s
		case half != nil:
			s.parent = half
		case p != nil:
			s.parent = p
		default:
			s.why = "missing"
			w.counts.Orphans++
		}
	}
}

// project sets the field up of all spans. For a baseline span, it is the nearest baseline ancestor.
func (w *Result) project() {
	for _, s := range w.spans {
		s.up = s.parent
		if !s.baseline() {
			continue
		}
		for range w.spans {
			if s.up != nil && !s.up.baseline() {
				s.why = s.up.why
				s.up = s.up.parent
			}
		}
		if s.up != nil && !s.up.baseline() {
			s.up, s.why = nil, "broken"
		}
	}
}

// detachConsumers makes consumers of messages roots.
func (w *Result) detachConsumers() {
	for _, s := range w.spans {
		if s.Kind == trace.Consumer && s.up != nil && (s.up.Kind == trace.Producer || s.up.Service != s.Service) {
			s.up, s.why = nil, "detached"
			w.flags |= critpath.FlagDetached
		}
	}
}

// breakCycles breaks each cycle at its smallest span.
func (w *Result) breakCycles() {
	for _, s := range w.spans {
		smallest, p := s, s.up
		for range w.spans {
			if p == nil || p == s {
				break
			}
			if cmp.Or(cmp.Compare(p.Start, smallest.Start), cmp.Compare(p.id, smallest.id)) < 0 {
				smallest = p
			}
			p = p.up
		}
		if p == s && smallest == s {
			defer func() { s.up, s.why = nil, "broken" }() // after all cycles are found
			w.counts.Cycles++
		}
	}
}

// correctSkew sets the shifts of spans, which correct for their clocks, and places all spans.
func (w *Result) correctSkew() {
	type clock struct{ host, service trace.Symbol }
	of := func(s *span) clock {
		if s.Host != 0 {
			return clock{host: s.Host}
		}
		return clock{service: s.Service}
	}
	order := func(c clock) uint64 { // order of clocks, as in package critpath; it only decides the sign
		if c.host != 0 {
			return uint64(c.host)
		}
		return trace.Mix(uint64(c.service), 0x3c6ef372fe94f82b)
	}
	type clocks [2]clock
	between := func(s *span) (h clocks, sign int64) { // directions differ only in sign
		if order(of(s.up)) < order(of(s)) {
			return clocks{of(s.up), of(s)}, 1
		}
		return clocks{of(s), of(s.up)}, -1
	}
	shifts := map[clocks][]int64{}
	related := func(s *span) bool {
		return s.up != nil && s.baseline() && s.up.baseline() &&
			s.Kind == trace.Server && s.up.Kind == trace.Client && of(s) != of(s.up)
	}
	for _, s := range w.spans {
		if related(s) {
			h, sign := between(s)
			shifts[h] = append(shifts[h], sign*clockShift(s.up.Span, s.Span))
		}
	}
	median := map[clocks]int64{}
	for h, all := range shifts {
		slices.Sort(all)
		m := all[len(all)/2]
		if n := len(all); n%2 == 0 {
			two := all[n/2-1 : n/2+1]
			m = slices.MinFunc(two, func(a, b int64) int { return cmp.Compare(max(a, -a), max(b, -b)) })
			if two[0]+two[1] == 0 {
				m = 0
			}
		}
		median[h] = m
	}
	for _, s := range w.spans {
		if !related(s) {
			continue
		}
		h, sign := between(s)
		s.shift = within(s.Span, sign*median[h])
		moved, c := *s.Span, *s.up.Span
		moved.Start, moved.End, c.End = s.Start+trace.Nanos(s.shift),
			max(s.Start, s.End)+trace.Nanos(s.shift), max(c.Start, c.End)
		if disjoint(moved.Start, moved.End, c.Start, c.End) {
			s.shift = clockShift(s.up.Span, s.Span)
		} else if moved.End-moved.Start <= c.End-c.Start {
			s.shift += max(0, int64(c.Start-moved.Start)) + min(0, int64(c.End-moved.End))
		}
		if s.shift != 0 {
			w.flags |= critpath.FlagSkewCorrected
		}
	}
	w.offset()
}

// within returns ns, a shift of s, limited so that the times of s stay valid.
func within(s *trace.Span, ns int64) int64 {
	if ns < 0 {
		return max(ns, -int64(max(0, min(s.Start, s.End))))
	}
	return min(ns, int64(trace.MaxNanos-max(s.Start, s.End)))
}

// offset sets the children of all spans, and their offsets and intervals without clamping.
func (w *Result) offset() {
	for _, s := range w.spans {
		s.kids = nil
	}
	for _, s := range w.spans {
		if s.up != nil {
			s.up.kids = append(s.up.kids, s)
		}
	}
	var move func(s *span)
	move = func(s *span) {
		s.offset = 0
		if s.up != nil {
			sum := new(big.Int).Add(big.NewInt(s.up.offset), big.NewInt(s.shift))
			switch {
			case sum.IsInt64():
				s.offset = within(s.Span, sum.Int64())
			case sum.Sign() > 0:
				s.offset = within(s.Span, math.MaxInt64)
			default:
				s.offset = within(s.Span, math.MinInt64)
			}
		}
		s.start, s.end = s.Start+trace.Nanos(s.offset), max(s.Start, s.End)+trace.Nanos(s.offset)
		s.rawEnd = s.end
		for _, k := range s.kids {
			move(k)
		}
	}
	for _, s := range w.spans {
		if s.up == nil {
			move(s)
		}
	}
}

// settle gives baseline spans that lie outside their parents another parent, or none.
func (w *Result) settle() {
	for _, s := range w.spans {
		s.asked = s.up
	}
	var below func(p *span)
	below = func(p *span) {
		for _, s := range p.kids {
			if !s.baseline() {
				continue
			}
			if disjoint(s.start, s.end, p.start, p.end) {
				s.lost = true
				s.up = w.runningAbove(s, p)
			}
			if s.up == nil {
				s.why = "detached"
				w.flags |= critpath.FlagDetached
			} else {
				if s.lost {
					s.parent = s.up
					w.counts.Moved++
				}
				s.start, s.end = max(s.start, s.up.start), min(s.end, s.up.end)
			}
			below(s)
		}
	}
	for _, s := range slices.Clone(w.spans) {
		if s.asked == nil && s.baseline() {
			below(s)
		}
	}
	w.offset()
}

// runningAbove returns the nearest ancestor of p in the same process as s that overlaps s, or nil if no ancestor does.
func (w *Result) runningAbove(s, p *span) *span {
	sameProcess := func(a, b *span) bool {
		return a.Service == b.Service && (a.Kind != trace.Client || b.Kind != trace.Server)
	}
	running := p.start <= s.start && s.start < p.rawEnd
	if s.Kind == trace.Consumer || !sameProcess(p, s) && !running {
		return nil
	}
	for n := 0; n < 64 && p.up != nil && sameProcess(p.up, p); n++ {
		if p = p.up; !disjoint(s.start, s.end, p.start, p.end) {
			return p
		}
	}
	return nil
}

// disjoint reports whether two intervals have nothing in common. If the first is an instant, it has something in common
// with the second even if it only touches an end.
func disjoint(start, end, low, high trace.Nanos) bool {
	if start == end {
		return start < low || start > high
	}
	return end <= low || start >= high
}

func clockShift(c, s *trace.Span) int64 {
	client, server := max(0, int64(c.End-c.Start)), max(0, int64(s.End-s.Start))
	early := int64(c.Start - s.Start) // positive if the server starts before the client
	if server > client {
		if early <= 0 && -early < client {
			return 0
		}
		return early
	}
	if early <= 0 && -early+server <= client {
		return 0
	}
	return early + (client-server)/2
}

func (w *Result) findRoots() {
	for _, s := range w.spans {
		if s.up == nil && s.baseline() {
			w.roots = append(w.roots, &root{span: s})
		}
	}
	origin := map[string]int{"missing": 1, "detached": 2}
	slices.SortFunc(w.roots, func(a, b *root) int {
		return cmp.Or(cmp.Compare(origin[a.span.why], origin[b.span.why]), cmp.Compare(a.span.Start, b.span.Start),
			cmp.Compare(max(b.span.Start, b.span.End), max(a.span.Start, a.span.End)),
			cmp.Compare(a.span.id, b.span.id))
	})
}

// clamp sets the intervals and contexts of all spans, top-down.
func (w *Result) clamp() {
	for _, s := range w.spans {
		switch {
		case s.End < s.Start:
			w.counts.Negative++
		case s.End == s.Start:
			w.counts.ZeroLength++
		}
	}
	for _, s := range w.spans {
		if s.up == nil {
			s.dropped = !s.baseline() // not below a root
			s.ctx, s.full = 0, trace.Context(0).Child(s.step())
			if s.baseline() {
				s.root = s
				s.ctx = s.full
			}
			w.clampBelow(s)
		}
	}
	for _, r := range w.roots {
		var tail func(s *span)
		tail = func(s *span) {
			if s.baseline() {
				r.tail = max(r.tail, s.rawEnd.Sub(r.span.end))
			}
			for _, k := range s.kids {
				tail(k)
			}
		}
		tail(r.span)
		if r.tail > 0 {
			w.flags |= critpath.FlagAsyncTail
		}
	}
}

func (w *Result) clampBelow(p *span) {
	for _, s := range p.kids {
		s.root = p.root
		s.ctx, s.full, s.depth = p.ctx, p.full, p.depth
		if s.depth+1 < critpath.MaxDepth {
			s.full, s.depth = p.full.Child(s.step()), s.depth+1
		}
		if s.baseline() {
			s.ctx = s.full
		}
		switch {
		case p.dropped || disjoint(s.start, s.end, p.start, p.end):
			s.dropped = true
			if p.root != nil {
				w.counts.Outside++
			}
		default:
			s.async = w.options.IgnoreAsync && s.end > p.end
			if s.start < p.start || s.end > p.end {
				w.counts.Clamped++
			}
			s.start, s.end = max(s.start, p.start), min(s.end, p.end)
		}
		w.clampBelow(s)
	}
}

// keepClocks moves each tree to the median clock of its spans.
func (w *Result) keepClocks() {
	for _, top := range w.spans {
		if top.up != nil {
			continue
		}
		tree := []*span{top}
		for i := 0; i < len(tree); i++ {
			tree = append(tree, tree[i].kids...)
		}
		votes := slices.DeleteFunc(slices.Clone(tree), func(s *span) bool { return !s.baseline() })
		if len(votes) == 0 {
			continue
		}
		slices.SortFunc(votes, func(a, b *span) int { return cmp.Compare(a.offset, b.offset) })
		low, high := votes[(len(votes)-1)/2].offset, votes[len(votes)/2].offset
		ahead := trace.Nanos(high)
		if math.Abs(float64(low)) > math.Abs(float64(high)) {
			ahead = trace.Nanos(low)
		}
		for _, s := range tree {
			ahead = min(max(ahead, s.end-trace.MaxNanos), s.start)
		}
		for _, s := range tree {
			s.start, s.end = s.start-ahead, s.end-ahead
		}
	}
}

// findGaps marks the calls of missing hops.
func (w *Result) findGaps() {
	var calls []*span
	for _, s := range w.spans {
		if s.Kind == trace.Client && s.baseline() && !s.dropped && s.callee == nil {
			calls = append(calls, s)
		}
	}
	for _, r := range w.roots {
		if r.span.why != "missing" || len(w.roots) == 1 {
			continue
		}
		others := slices.DeleteFunc(slices.Clone(calls), func(c *span) bool { return c.root == r.span })
		around := slices.DeleteFunc(slices.Clone(others),
			func(c *span) bool { return c.start > r.span.start || c.end < r.span.end })
		others = slices.DeleteFunc(others, func(c *span) bool {
			return c.root.why == "missing" || c.end-c.start < r.span.end-r.span.start
		})
		if len(around) == 0 && len(others) == 1 {
			around = others
		}
		if len(around) == 0 {
			continue
		}
		slices.SortFunc(around, tightest)
		between := func(o *root) bool {
			in := func(s, t *span) bool { return t.start <= s.start && s.end <= t.end }
			return o != r && o.span.why == "missing" && o.span != around[0].root && in(o.span, around[0]) &&
				in(r.span, o.span) && tightest(r.span, o.span) < 0
		}
		around[0].gap = around[0].gap || !slices.ContainsFunc(w.roots, between)
	}
}

// tightest orders spans by length, then by start, latest first, then by ID.
func tightest(a, b *span) int {
	return cmp.Or(cmp.Compare(a.end-a.start, b.end-b.start), cmp.Compare(b.start, a.start), cmp.Compare(a.id, b.id))
}

// answer finds the callee of every CLIENT span.
func (w *Result) answer() {
	for _, p := range w.spans {
		for _, s := range w.spans {
			child := w.below(s, p, func(s *span) *span { return s.up }) != nil
			if k := w.below(s, p, func(s *span) *span { return s.asked }); k != nil && k.lost && p.baseline() {
				child = true // child of the parent that it lost
			}
			if slices.Contains(w.options.SeeThrough, s.Service) {
				continue
			}
			answers := s.Kind == trace.Server || s.Kind != trace.Consumer && s.Service != p.Service
			if p.Kind != trace.Client || !child || !answers || p.baseline() && !s.baseline() {
				continue
			}
			if c := p.callee; c == nil || cmp.Or(cmp.Compare(s.Start, c.Start), cmp.Compare(s.id, c.id)) < 0 {
				p.callee = s
			}
		}
	}
}

// below returns s if it is a child of p, or the child of p above s if all spans in between belong to transparent
// services. Otherwise it returns nil. up returns the parent of a span.
func (w *Result) below(s, p *span, up func(*span) *span) *span {
	for n := 0; s != nil && n <= 16; n++ {
		if up(s) == p || !p.baseline() && s.parent == p && (s.baseline() || s.why == "broken") {
			return s
		}
		if s = up(s); s == nil || !slices.Contains(w.options.SeeThrough, s.Service) {
			return nil
		}
	}
	return nil
}

// setFlags sets the flags of the trace.
func (w *Result) setFlags() {
	set := func(f critpath.Flags, on bool) {
		if on {
			w.flags |= f
		}
	}
	c := w.counts
	set(critpath.FlagDuplicates, c.Duplicates > 0)
	set(critpath.FlagConflicts, c.Conflicts > 0)
	set(critpath.FlagCycle, c.Cycles > 0)
	set(critpath.FlagClamped, c.Clamped > 0)
	set(critpath.FlagMoved, c.Moved > 0)
	set(critpath.FlagOutside, c.Outside > 0)
	set(critpath.FlagNegative, c.Negative > 0)
	set(critpath.FlagSeveralRoots, len(w.roots) > 1)
	var tops, orphans []*span
	none := 0
	for _, s := range w.spans {
		if s.parent == nil && s.Parent != 0 {
			orphans = append(orphans, s)
		}
		if s.up == nil && s.baseline() && s.why != "detached" {
			tops = append(tops, s)
			if s.why == "none" {
				none++
			}
		}
	}
	remote := len(orphans) == 1 && len(tops) == 1 && tops[0].why == "missing" &&
		(tops[0].Kind == trace.Server || tops[0].Kind == trace.Consumer ||
			(tops[0].Flags|orphans[0].Flags)&trace.RemoteParent != 0)
	set(critpath.FlagRemoteParent, remote)
	set(critpath.FlagIncomplete, len(orphans) > 0 && !remote)
	set(critpath.FlagNoRoot, len(w.roots) == 0 || none == 0 && !remote)
	for _, r := range w.roots {
		set(critpath.FlagTooLong, r.span.end.Sub(r.span.start) >= trace.MaxDuration)
	}
}

func (w *Result) join() {
	for _, j := range w.trace.Joins {
		i := slices.IndexFunc(w.spans, func(s *span) bool { return s.index == j.Span })
		to := w.byID[j.Linked]
		if i < 0 || to == nil || j.Message {
			continue
		}
		from := w.spans[i]
		if from.baseline() && to.baseline() && !from.dropped && !to.dropped && from != to && to.up != from {
			from.joined = append(from.joined, to)
		}
	}
}

func (w *Result) walkRoot(r *root) {
	w.walk(r, r.span, r.span.end, r.span.start)
	slices.Reverse(r.sections)
	taken := false
	for i := range slices.Backward(r.sections) {
		taken = w.refine(r, i) || taken
	}
	slices.Reverse(r.refined)
	if !taken {
		r.refined = nil
	}
}

// walk assigns the time from low to cursor to s and its children.
func (w *Result) walk(r *root, s *span, cursor, low trace.Nanos) {
	r.critical = append(r.critical, s)
	if s.root == r.span {
		w.own[s] = true
	} else {
		w.other[s] = true
	}
	var after *span
	for {
		var best *span
		consider := func(k *span) {
			taken := w.own[k] && k.root == r.span || w.other[k] && k.root != r.span
			if !taken && w.eligible(s, k, cursor, low, after != nil) && (best == nil || w.better(k, best)) {
				best = k
			}
		}
		for _, k := range s.kids {
			if k.baseline() && !k.async && !k.dropped {
				consider(k)
			}
		}
		for _, k := range s.joined {
			consider(k)
		}
		if best == nil {
			break
		}
		if best.end < cursor {
			r.sections = append(r.sections, section{s, best, after, best.end, cursor, -1})
		} else if best.end > cursor {
			r.overlaps = append(r.overlaps, critpath.Overlap{Node: s.index, By: best.end.Sub(cursor)})
		}
		w.walk(r, best, best.end, max(low, best.start))
		after, cursor = best, max(low, best.start)
	}
	if low < cursor {
		r.sections = append(r.sections, section{s, nil, after, low, cursor, -1})
	}
}

func (w *Result) eligible(s, k *span, cursor, low trace.Nanos, later bool) bool {
	limit := cursor
	if w.options.OverlapTolerance > 0 && s.baseline() && k.baseline() {
		limit += trace.Nanos(w.options.OverlapTolerance * float64(s.end-s.start))
	}
	inTime := k.end <= limit
	if w.options.StrictTouching && later {
		inTime = k.end < limit
	}
	return inTime && k.start < cursor && k.start < k.end && k.end > low
}

func (w *Result) better(a, b *span) bool {
	if a.end != b.end {
		return a.end > b.end
	}
	if a.start != b.start {
		return (a.start < b.start) != w.options.LatestStart
	}
	return a.id < b.id
}

// refine walks the spans of tracepoints within a section and reports whether there are any.
func (w *Result) refine(r *root, number int) bool {
	sec := r.sections[number]
	var open []*span // active when sec.after started, innermost first
	if sec.after != nil && sec.after.up == sec.node {
		a := sec.after.parent
		for a != sec.node && a.dropped && a.up != nil {
			a = a.parent
		}
		if !a.dropped {
			for ; a != sec.node; a = a.parent {
				if a.start < sec.end && a.end > sec.end {
					open = append(open, a)
				}
			}
		}
	}
	cursor := sec.end
	// own appends the own time of s from its critical child, if any, to the cursor.
	own := func(s, before, after *span, from trace.Nanos) {
		if from <= sec.start && s.start < sec.start || s == sec.node && before == nil {
			from, before = sec.start, sec.before
		}
		if from < cursor {
			r.refined = append(r.refined, section{s, before, after, from, cursor, number})
			cursor = from
		}
	}
	taken := len(open) > 0
	var walk func(s, after *span)
	walk = func(s, after *span) {
		for cursor > sec.start {
			var best *span
			for _, k := range s.kids {
				if !k.baseline() && !k.async && !k.dropped && w.eligible(s, k, cursor, sec.start, after != nil) &&
					(best == nil || w.better(k, best)) {
					best = k
				}
			}
			if best == nil {
				own(s, nil, after, max(s.start, sec.start))
				return
			}
			if best.end < cursor {
				r.refined = append(r.refined, section{s, best, after, best.end, cursor, number})
				cursor = best.end
			}
			taken = true
			walk(best, nil)
			after = best
		}
	}
	after := sec.after
	for _, s := range append(open, sec.node) {
		walk(s, after)
		after = s
	}
	return taken
}

// Observe returns the observation of the root with index number.
func (w *Result) Observe(number int) *observation.Observation {
	r := w.roots[number]
	root := r.span
	o := &observation.Observation{
		Trace: w.trace.ID, Root: root.id, Start: root.start, Duration: root.end.Sub(root.start), Entry: root.step(),
		Failed: root.Flags&trace.Error != 0, Plan: -1,
	}
	for _, a := range w.trace.Attrs {
		if a.Span == root.index && a.Key == keyPlan && a.Numeric {
			o.Plan = max(o.Plan, int64(a.Number))
		}
		if a.Span == root.index && a.Key == keyArm && !a.Numeric {
			o.Arm = max(o.Arm, a.Text)
		}
	}
	w.observeBehind(r, o)
	ops := map[trace.Op]bool{}
	for _, k := range root.kids {
		if k.baseline() && !k.dropped {
			ops[k.step()] = true
		}
	}
	o.Children = slices.Sorted(maps.Keys(ops))
	w.observeContexts(r, o)
	w.observeEdges(r, o)
	w.observeVariables(r, o)
	set := map[trace.Context]bool{}
	for _, s := range r.critical {
		set[s.ctx] = true
	}
	var h analysis.Hash
	for c := range set {
		h.Hi += trace.Mix(uint64(c), 1)
		h.Lo += trace.Mix(skeletonLow, uint64(c))
	}
	o.Path = observation.PathSums{Hi: h.Hi, Lo: h.Lo, N: uint64(len(set))}
	o.Skeleton = analysis.HashOf(h.Hi, h.Lo, uint64(len(set)))
	return o
}

// observeBehind sets o.Behind to the services below r that name a plan other than the root's. It does nothing unless
// the root has a plan and an arm.
func (w *Result) observeBehind(r *root, o *observation.Observation) {
	if o.Plan <= 0 || o.Arm == 0 {
		return
	}
	behind := map[trace.Symbol]bool{}
	for _, s := range w.spans {
		for _, a := range w.trace.Attrs {
			if s.root == r.span && s != r.span && a.Span == s.index &&
				a.Key == keyPlan && a.Numeric && a.Number != float64(o.Plan) {
				behind[s.Service] = true
			}
		}
	}
	o.Behind = slices.Sorted(maps.Keys(behind))
}

func (w *Result) observeContexts(r *root, o *observation.Observation) {
	counted := map[*span]bool{}
	for _, s := range w.spans {
		counted[s] = s.root == r.span && !s.dropped
	}
	exclusive := map[trace.Context]int64{}
	for _, s := range r.sections {
		exclusive[s.node.full] += int64(s.end - s.start)
	}
	for _, v := range r.overlaps {
		i := slices.IndexFunc(w.spans, func(s *span) bool { return s.index == v.Node })
		exclusive[w.spans[i].full] -= int64(v.By)
	}
	refined := map[trace.Context]int64{}
	for _, s := range r.refined {
		if !s.node.baseline() {
			refined[s.node.full] += int64(s.end - s.start)
			counted[s.node] = true
		}
	}
	for _, s := range r.critical {
		counted[s] = true
	}
	all := map[trace.Context]*observation.ContextCount{}
	for _, s := range w.spans {
		if !counted[s] {
			continue
		}
		c := all[s.full]
		if c == nil {
			c = &observation.ContextCount{
				Context:    s.full,
				Op:         s.Op,
				Target:     s.target(),
				Tracepoint: s.Tracepoint,
				Exclusive:  exclusive[s.full],
			}
			if s.up != nil {
				c.Parent = s.up.full
			}
			all[s.full] = c
		}
		c.Tracepoint = min(c.Tracepoint, s.Tracepoint)
		c.Count++
		c.Peer = max(c.Peer, s.Peer)
		if s.Kind == trace.Client && s.callee == nil && s.baseline() && !s.gap {
			c.Unanswered++
		}
		if s.Flags&trace.Error != 0 {
			c.Errors++
		}
		c.Total += int64(s.end - s.start)
		c.Self += w.self(r, s)
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		if all[id].Tracepoint != 0 {
			all[id].Exclusive += refined[id]
		}
		o.Contexts = append(o.Contexts, *all[id])
	}
}

// self returns the time of s that isn't covered by a child. It counts nanosecond by nanosecond.
func (w *Result) self(r *root, s *span) int64 {
	var n int64
	for t := s.start; t < s.end; t++ {
		covered := false
		for _, k := range w.spans {
			child := k.up == s && k.baseline()
			if !s.baseline() {
				child = k.parent == s && k.up != nil && (!k.baseline() || s.root == r.span)
			}
			covered = covered || child && !k.dropped && k.start <= t && t < k.end
		}
		if !covered {
			n++
		}
	}
	return n
}

func (w *Result) edge(s *section) observation.EdgeTime {
	e := observation.EdgeTime{
		Context: s.node.full,
		Before:  s.before.step(),
		After:   s.after.step(),
		Nanos:   int64(s.end - s.start),
	}
	e.Edge = trace.EdgeOf(e.Context, e.Before, e.After)
	return e
}

func (w *Result) observeEdges(r *root, o *observation.Observation) {
	type place struct{ within, edge trace.Edge }
	add := func(to map[place]observation.EdgeTime, e observation.EdgeTime) {
		k := place{e.Within, e.Edge}
		if old, ok := to[k]; ok {
			e.Nanos += old.Nanos
		}
		to[k] = e
	}
	sorted := func(m map[place]observation.EdgeTime) []observation.EdgeTime {
		return slices.SortedFunc(maps.Values(m), func(a, b observation.EdgeTime) int {
			return cmp.Or(cmp.Compare(a.Within, b.Within), cmp.Compare(a.Edge, b.Edge))
		})
	}
	edges, refined, touched := map[place]observation.EdgeTime{}, map[place]observation.EdgeTime{}, map[trace.Edge]bool{}
	for i := range r.sections {
		add(edges, w.edge(&r.sections[i]))
	}
	for _, s := range r.refined {
		if !s.node.baseline() {
			touched[w.edge(&r.sections[s.within]).Edge] = true
		}
	}
	for i := range r.refined {
		e := w.edge(&r.refined[i])
		e.Within = w.edge(&r.sections[r.refined[i].within]).Edge
		if touched[e.Within] {
			add(refined, e)
		}
	}
	o.Edges, o.Refined = sorted(edges), sorted(refined)
}

func (w *Result) observeVariables(r *root, o *observation.Observation) {
	on := map[*span]bool{}
	for _, s := range r.critical {
		on[s] = true
	}
	for _, s := range r.refined {
		on[s.node] = true
	}
	type place struct {
		ctx trace.Context
		key trace.Symbol
	}
	best := map[place]located{}
	for s := range on {
		for _, a := range w.trace.Attrs {
			if a.Span != s.index || slices.Contains([]trace.Symbol{keyTracepoint, keyPlan, keyArm, keyJoin}, a.Key) {
				continue
			}
			x := observation.Variable{
				Context: s.full,
				Key:     a.Key,
				Text:    a.Text,
				Number:  a.Number,
				Numeric: a.Numeric,
			}
			v, at := located{x, s.start, s.id}, place{s.full, a.Key}
			if b, ok := best[at]; !ok || v.compare(b) < 0 {
				best[at] = v
			}
		}
	}
	for _, v := range slices.SortedFunc(maps.Values(best), located.compare) {
		o.Variables = append(o.Variables, v.Variable)
	}
}

// Description is a textual form of a path, independent of the order of nodes. Spans are identified by their IDs.
type Description struct {
	Flags  []string
	Counts critpath.Counts
	Roots  []string
	Nodes  []string
}

func id(p *critpath.Path, i int32) string {
	if i < 0 {
		return "-"
	}
	return fmt.Sprint(uint64(p.Nodes[i].ID))
}

// Describe describes a path of package critpath.
func Describe(p *critpath.Path) Description {
	d := Description{Flags: p.Flags.Names(), Counts: p.Counts}
	for i := range p.Roots {
		r := &p.Roots[i]
		var b strings.Builder
		fmt.Fprintf(&b, "root %s tail %d", id(p, r.Node), r.AsyncTail)
		for _, list := range [][]critpath.Section{r.Sections, r.Refined} {
			b.WriteString("\n sections")
			for _, s := range list {
				fmt.Fprintf(&b, " %s[%s %s]%d..%d(%d)",
					id(p, s.Node), id(p, s.Before), id(p, s.After), s.Start, s.End, s.Within)
			}
		}
		b.WriteString("\n critical")
		for _, n := range r.Critical {
			b.WriteString(" " + id(p, n))
		}
		for _, v := range r.Overlaps {
			fmt.Fprintf(&b, " overlap %s %d", id(p, v.Node), v.By)
		}
		d.Roots = append(d.Roots, b.String())
	}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		root := "-"
		if n.Root >= 0 {
			root = id(p, p.Roots[n.Root].Node)
		}
		d.Nodes = append(d.Nodes,
			fmt.Sprintf("%d parent %s anchor %s root %s %d..%d %x %x target %x address %d", uint64(n.ID),
				id(p, n.Parent), id(p, n.Anchor), root, n.Start, n.End, uint64(n.Context),
				uint64(n.Full), uint64(p.Target(int32(i))), p.Span(int32(i)).Address))
	}
	slices.Sort(d.Nodes)
	return d
}

func (s *span) String() string {
	if s == nil {
		return "-"
	}
	return fmt.Sprint(uint64(s.id))
}

// Describe describes the paths of w.
func (w *Result) Describe() Description {
	d := Description{Flags: w.flags.Names(), Counts: w.counts}
	byIndex := map[int32]*span{}
	for _, s := range w.spans {
		byIndex[s.index] = s
	}
	for _, r := range w.roots {
		var b strings.Builder
		fmt.Fprintf(&b, "root %s tail %d", r.span, r.tail)
		for _, list := range [][]section{r.sections, r.refined} {
			b.WriteString("\n sections")
			for _, s := range list {
				fmt.Fprintf(&b, " %s[%s %s]%d..%d(%d)", s.node, s.before, s.after, s.start, s.end, s.within)
			}
		}
		b.WriteString("\n critical")
		for _, s := range r.critical {
			b.WriteString(" " + s.String())
		}
		for _, v := range r.overlaps {
			fmt.Fprintf(&b, " overlap %s %d", byIndex[v.Node], v.By)
		}
		d.Roots = append(d.Roots, b.String())
	}
	for _, s := range w.spans {
		parent, root, anchor := s.parent, s.root, s
		if s.up == nil {
			parent = nil
		}
		if s.dropped {
			root = nil
		}
		for anchor != nil && !anchor.baseline() {
			anchor = anchor.up
		}
		d.Nodes = append(d.Nodes,
			fmt.Sprintf("%d parent %s anchor %s root %s %d..%d %x %x target %x address %d", uint64(s.id), parent,
				anchor, root, s.start, s.end, uint64(s.ctx), uint64(s.full), uint64(s.target()), s.Address))
	}
	slices.Sort(d.Nodes)
	return d
}

// Constants copied from packages critpath and observation.
const (
	otherID     = 0x5e72766572
	skeletonLow = 0xd6e8feb86659fd93
)

// contentHash is package critpath's hash for ordering conflicting copies.
func contentHash(s *trace.Span, extra uint64) uint64 {
	return analysis.HashOf(uint64(s.Parent), uint64(s.Op), uint64(s.Service),
		uint64(s.Host), uint64(s.Tracepoint), uint64(s.Peer), uint64(s.Address),
		uint64(s.Kind), uint64(s.Flags), extra).Lo
}

// Attributes of the protocol, which are not variables.
var (
	keyTracepoint = trace.SymbolOf([]byte(trace.KeyTracepoint))
	keyPlan       = trace.SymbolOf([]byte(trace.KeyPlan))
	keyArm        = trace.SymbolOf([]byte(trace.KeyArm))
	keyJoin       = trace.SymbolOf([]byte(trace.KeyJoin))
)

// located is a variable and the span that carries it.
type located struct {
	observation.Variable
	start trace.Nanos
	id    trace.SpanID
}

// compare orders variables by context and key, then by preference: the earliest span first, and the values of a span in
// a fixed order.
func (v located) compare(w located) int {
	return cmp.Or(cmp.Compare(v.Context, w.Context), cmp.Compare(v.Key, w.Key), cmp.Compare(v.start, w.start),
		cmp.Compare(v.id, w.id), cmp.Compare(v.Text, w.Text),
		cmp.Compare(math.Float64bits(v.Number), math.Float64bits(w.Number)))
}
