package recorded

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/trace"
)

// Stream configures a continuous stream made of a case set: healthy traces, then the windows of all cases in the order
// of time, each followed by healthy traces.
type Stream struct {
	Learn   time.Duration // of healthy traces at the start
	Between time.Duration // of healthy traces after each window
}

// streamStart is the start of every stream.
const streamStart trace.Nanos = 1_700_000_000_000_000_000

const (
	// pause is the longest time without a healthy trace. Longer pauses, such as windows, are shortened to it.
	pause = 2 * time.Second
	// leastHealthy is the shortest extent of the healthy traces of a stream.
	leastHealthy = time.Minute
)

// ErrFewHealthy means that there are too few healthy traces for [Set.Notice].
var ErrFewHealthy = fmt.Errorf("the traces outside of all windows cover less than %v, too little to make a stream of",
	leastHealthy)

// Notice plays a stream made of the set through the engine, and scores the incidents. The set must have been read with
// KeepAll. It ignores options.Table, and returns [ErrFewHealthy] if it cannot make a stream.
func (s *Set) Notice(ctx context.Context, stream Stream, options backtest.Options) (*backtest.Score, error) {
	cases := slices.Clone(s.Cases)
	slices.SortStableFunc(cases, func(a, b Case) int { return cmp.Compare(a.Window.From, b.Window.From) })
	return s.play(ctx, stream, slices.Collect(slices.Chunk(cases, 1)), options)
}

// play plays a stream with the given windows through the engine. Each window has the traces of one or more cases.
func (s *Set) play(
	ctx context.Context, stream Stream, windows [][]Case, options backtest.Options,
) (*backtest.Score, error) {
	w, err := s.weave(stream, windows)
	if err != nil {
		return nil, err
	}
	options.Table = s.Table
	p := backtest.NewPlayer(w.cases, options)
	var moved trace.Trace
	for i := range w.traces {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		w.traces[i].move(&moved)
		p.Play(&moved)
	}
	return p.Finish().Score, nil
}

// woven is a stream under construction.
type woven struct {
	clock  trace.Nanos
	traces []movedTrace // in the order of their ends, once complete
	cases  []Case       // with windows in the time of the stream

	healthy []movedTrace // of the set, with gaps closed
	at      int          // index in healthy of the next trace
	offset  time.Duration
	turn    int // number of times that all healthy traces were used
}

// movedTrace is a trace in the time of the stream.
type movedTrace struct {
	of         *trace.Trace
	start, end trace.Nanos // in the stream
	shift      time.Duration
	turn       int
}

// weave returns the stream with the given windows.
func (s *Set) weave(stream Stream, windows [][]Case) (*woven, error) {
	all := make([]movedTrace, 0, len(s.all))
	for _, t := range s.all {
		from, to := backtest.Extent(t)
		all = append(all, movedTrace{of: t, start: from, end: to})
	}
	slices.SortFunc(all, func(a, b movedTrace) int {
		return cmp.Or(cmp.Compare(a.start, b.start), a.of.ID.Compare(b.of.ID))
	})
	w := &woven{clock: streamStart, healthy: outside(all, s.Windows())}
	if n := len(w.healthy); n == 0 || w.healthy[n-1].start.Sub(w.healthy[0].start) < leastHealthy {
		return nil, ErrFewHealthy
	}
	w.playHealthy(stream.Learn)
	for i, cases := range windows {
		if w.playWindow(all, cases, i) {
			w.playHealthy(stream.Between)
		}
	}
	slices.SortStableFunc(w.traces, func(a, b movedTrace) int { return cmp.Compare(a.end, b.end) })
	return w, nil
}

// outside returns the traces that start outside of all windows, with pauses shortened.
func outside(all []movedTrace, windows []history.Interval) (healthy []movedTrace) {
	var last trace.Nanos
	var cut time.Duration
	for _, t := range all {
		if slices.ContainsFunc(windows, func(w history.Interval) bool { return w.Contains(t.start) }) {
			continue
		}
		if gap := t.start.Sub(last); len(healthy) > 0 && gap > pause {
			cut += gap - pause
		}
		last = t.start
		t.shift = -cut
		t.start, t.end = t.start.Add(-cut), t.end.Add(-cut)
		healthy = append(healthy, t)
	}
	return healthy
}

// add adds t, delayed by `by`.
func (w *woven) add(t movedTrace, by time.Duration, turn int) {
	t.start, t.end, t.shift, t.turn = t.start.Add(by), t.end.Add(by), t.shift+by, turn
	w.traces = append(w.traces, t)
}

// playHealthy adds healthy traces for the given length of time. When they are used up, they are repeated with other
// IDs.
func (w *woven) playHealthy(length time.Duration) {
	first := w.healthy[0].start
	whole := w.healthy[len(w.healthy)-1].start.Sub(first) + 1
	for length > 0 {
		take := min(length, whole-w.offset)
		end := first.Add(w.offset + take)
		for ; w.at < len(w.healthy) && w.healthy[w.at].start < end; w.at++ {
			w.add(w.healthy[w.at], w.clock.Sub(first)-w.offset, w.turn)
		}
		w.clock, w.offset, length = w.clock.Add(take), w.offset+take, length-take
		if w.offset >= whole {
			w.at, w.offset, w.turn = 0, 0, w.turn+1
		}
	}
}

// playWindow adds the traces of the windows of some cases, laid over each other. It skips cases without traces and
// reports whether it added any trace. Each window gives its traces new IDs.
func (w *woven) playWindow(all []movedTrace, cases []Case, window int) bool {
	begin := w.clock
	for _, c := range cases {
		n := len(w.traces)
		for _, t := range all {
			if c.Window.Contains(t.start) {
				w.add(t, begin.Sub(c.Window.From), -1-window)
			}
		}
		if len(w.traces) > n {
			c.Window = history.Interval{From: begin, To: begin.Add(c.Window.To.Sub(c.Window.From))}
			w.cases, w.clock = append(w.cases, c), max(w.clock, c.Window.To)
		}
	}
	return w.clock > begin
}

// move sets out to the trace as it appears in the stream.
func (t *movedTrace) move(out *trace.Trace) {
	out.Reset()
	out.Append(t.of)
	out.ID = t.of.ID
	if t.turn != 0 {
		for _, half := range [][]byte{out.ID[:8], out.ID[8:]} {
			binary.BigEndian.PutUint64(half, trace.Mix(uint64(t.turn), binary.BigEndian.Uint64(half)))
		}
	}
	for i := range out.Spans {
		x := &out.Spans[i]
		x.Start, x.End = x.Start.Add(t.shift), x.End.Add(t.shift)
	}
}
