package offline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/engine/spool"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Comparison compares some traces, called the window, with others, called the baseline.
type Comparison struct {
	Table    *trace.Table   // with all names used below
	Traces   int            // number of traces read, including traces on neither side
	Coverage trace.Coverage // how the spans read were used
	Window   Side
	Baseline Side
	Around   bool              // the baseline has traces from before and after the window
	Mean     float64           // mean duration of a trace in the baseline in ns, the unit of the times in Suspects
	Suspects []compare.Suspect // ranked
	// Usual holds the highest score of each stretch of the baseline that is as long as the window, when compared with
	// the rest. It is empty if the baseline is too short.
	Usual        []float64
	RequestTypes []TypeChange // types in the window; slower types first, by added time
}

// Side describes the window or the baseline of a [Comparison].
type Side struct {
	// open ends are replaced by the start of the first trace or the instant after the start of the last one
	Interval history.Interval
	Open     bool // the range had no end
	Traces   int
}

// TypeChange compares the requests of one type.
type TypeChange struct {
	Type     group.Summary // type of the requests in the window; only Name, ID, Count, Failed and Mean are set
	Baseline uint64        // number of requests in the baseline
	Expected time.Duration // mean in the baseline; 0 if the baseline has no requests of this type
	// Rise is the increase of the mean beyond the variation of the baseline, in ns. It is 0 if the type isn't slower,
	// and NaN if there are too few requests to judge. See [compare.Rise].
	Rise float64
}

// Judged reports whether there are enough requests to compare.
func (t *TypeChange) Judged() bool { return !math.IsNaN(t.Rise) }

// Slower reports whether the requests take longer than the variation of the baseline can explain.
func (t *TypeChange) Slower() bool { return t.Rise > 0 }

// Minimum numbers of traces for a comparison.
const (
	// leastBaseline is the minimum number of traces in a baseline. It equals the number of pieces of a history that
	// package compare needs to judge its variation.
	leastBaseline = 16
	// enoughBaseline is the number of traces before a window that suffices as a baseline. If there are fewer, or fewer
	// than in the window, we add traces after the window. It equals the default number of requests that a group needs
	// to be judged.
	enoughBaseline = 50
)

// mostStretches is the maximum number of stretches of the baseline that are each compared with the rest of the
// baseline.
const mostStretches = 8

// The sets of traces in a recording.
const (
	beforeSet compare.Set = iota
	afterSet
)

// CompareWindow compares the traces that start in window with the traces that start in baseline. If baseline is nil,
// the baseline consists of the traces before the window and, if there are too few of them, also the traces after it. It
// uses only the fields Input, Path and Rules of options. As with [Analyze], the result depends only on the set of
// spans. It returns an error if the window has no traces or the baseline has fewer than 16, but an empty result if
// paths contain no traces at all.
func CompareWindow(
	ctx context.Context, paths []string, window TimeRange, baseline *TimeRange, options Options,
) (c *Comparison, err error) {
	x, err := newComparer(options)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, x.close()) }()
	if err := x.read(ctx, paths, beforeSet); err != nil {
		return nil, err
	}
	if x.result.Traces == 0 {
		return x.result, nil
	}
	if err := x.selectWindow(window, baseline); err != nil {
		return nil, err
	}
	return x.compare(ctx)
}

// CompareFiles compares the traces in the files `after`, the window, with the traces in the files `before`, the
// baseline. Their times may overlap, and they may have trace IDs in common. Options, result and errors are the same as
// for [CompareWindow].
func CompareFiles(ctx context.Context, before, after []string, options Options) (c *Comparison, err error) {
	x, err := newComparer(options)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, x.close()) }()
	if err := x.read(ctx, before, beforeSet); err != nil {
		return nil, err
	}
	if err := x.read(ctx, after, afterSet); err != nil {
		return nil, err
	}
	if x.result.Traces == 0 {
		return x.result, nil
	}
	if err := x.selectSets(); err != nil {
		return nil, err
	}
	return x.compare(ctx)
}

// choice reports whether a side of the comparison includes a trace or request of the given set with the given start.
type choice func(start trace.Nanos, set compare.Set) bool

func within(i history.Interval) choice {
	return func(start trace.Nanos, _ compare.Set) bool { return i.Contains(start) }
}

func of(want compare.Set) choice {
	return func(_ trace.Nanos, set compare.Set) bool { return set == want }
}

// comparer holds the state of one comparison.
type comparer struct {
	options          Options
	result           *Comparison
	recording        *compare.Recording
	types            *group.RequestTypes
	requests         [2]*spool.Spool // by set
	baseline, window choice
}

func newComparer(options Options) (*comparer, error) {
	if options.Path.OverlapTolerance > 0 {
		return nil, errOverlap
	}
	if err := options.Rules.Check(); err != nil {
		return nil, err
	}
	table := &trace.Table{}
	c := &comparer{
		options: options, result: &Comparison{Table: table}, recording: compare.NewRecording(table),
		types: &group.RequestTypes{Rules: group.NewRuleSet(options.Rules, table)},
	}
	for i := range c.requests {
		c.requests[i] = spool.New(options.Input.TempDir,
			int(cmp.Or(options.Input.Memory, assemble.DefaultMemory)/spoolShare))
	}
	return c, nil
}

func (c *comparer) close() error {
	var all []error
	for _, s := range c.requests {
		all = append(all, s.Close())
	}
	return errors.Join(all...)
}

// read adds the traces in the files and directories in paths to set.
func (c *comparer) read(ctx context.Context, paths []string, set compare.Set) (err error) {
	in, err := file.Read(ctx, paths, c.options.Input)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	c.result.Table.Merge(in.Table)
	extractor := critpath.NewExtractor(c.options.Path)
	var observer observation.Observer
	var o observation.Observation
	for t, err := range in.All() {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		c.result.Traces++
		p := extractor.Extract(t)
		p.Cover(&c.result.Coverage)
		c.recording.Add(p, set)
		for i := range p.Roots {
			if p.Unusable(i) != "" {
				continue
			}
			observer.Observe(p, i, &o)
			c.types.Learn(&o)
			if err := c.requests[set].Add(&o); err != nil {
				return err
			}
		}
	}
	in.Summary.Cover(&c.result.Coverage)
	return nil
}

var errNoRoot = errors.New("no trace of the input has a root span, so there is nothing to compare")

// selectWindow selects the two sides for [CompareWindow].
func (c *comparer) selectWindow(window TimeRange, baseline *TimeRange) error {
	all := c.recording.Within(history.Always())
	if all.Len() == 0 {
		return errNoRoot
	}
	first, last := all.Extent()
	w, err := window.resolve(first, last)
	if err != nil {
		return err
	}
	c.window = within(w)
	traces := c.recording.Select(c.window)
	switch {
	case traces.Len() > 0:
	case w.To <= first || w.From > last:
		return fmt.Errorf("the window %s lies outside of the traces, which begin between %s and %s (UTC): "+
			"choose a window between these times",
			window.text, dateTime(first), dateTime(last))
	default:
		return fmt.Errorf(
			"no trace begins in the window %s: choose a longer window; the traces begin between %s and %s (UTC)",
			window.text, dateTime(first), dateTime(last))
	}
	c.result.Window = side(traces, w, window.to.kind == open)
	if baseline != nil {
		return c.selectBaseline(*baseline, w, first, last)
	}
	before := history.Interval{From: first, To: w.From}
	c.baseline = within(before)
	earlier := c.recording.Select(c.baseline)
	c.result.Baseline = side(earlier, before, false)
	if earlier.Len() < max(enoughBaseline, traces.Len()) {
		c.baseline = func(start trace.Nanos, _ compare.Set) bool { return !w.Contains(start) }
		all := c.recording.Select(c.baseline)
		c.result.Around = 0 < earlier.Len() && earlier.Len() < all.Len()
		if all.Len() > earlier.Len() {
			from, to := all.Extent()
			c.result.Baseline = side(all, history.Interval{From: from, To: to + 1}, false)
		}
	}
	if c.result.Baseline.Traces < leastBaseline {
		return fmt.Errorf("too few traces to compare with begin outside of the window: %d, want at least %d; "+
			"choose a shorter window or add files with earlier traces",
			c.result.Baseline.Traces, leastBaseline)
	}
	return nil
}

// selectBaseline selects the baseline that the caller asked for. It must not overlap with w, the window.
func (c *comparer) selectBaseline(baseline TimeRange, w history.Interval, first, last trace.Nanos) error {
	b, err := baseline.resolve(first, last)
	if err != nil {
		return fmt.Errorf("baseline: %w", err)
	}
	if b.From < w.To && w.From < b.To {
		return fmt.Errorf("the baseline %s overlaps with the window: choose a baseline that ends before the window "+
			"starts, or starts after it ends", baseline.text)
	}
	c.baseline = within(b)
	earlier := c.recording.Select(c.baseline)
	if earlier.Len() < leastBaseline {
		return fmt.Errorf("too few traces to compare with begin in the baseline %[2]s: %[1]d, want at least %[3]d; "+
			"choose a longer baseline (the traces begin between %[4]s and %[5]s, UTC)",
			earlier.Len(), baseline.text, leastBaseline, dateTime(first), dateTime(last))
	}
	c.result.Baseline = side(earlier, b, baseline.to.kind == open)
	return nil
}

// selectSets selects the two sides for [CompareFiles].
func (c *comparer) selectSets() error {
	c.baseline, c.window = of(beforeSet), of(afterSet)
	before, after := c.recording.Of(beforeSet), c.recording.Of(afterSet)
	switch {
	case before.Len() < leastBaseline:
		return fmt.Errorf("the files before hold too few traces to compare with: %d, want at least %d; "+
			"add more of them", before.Len(), leastBaseline)
	case after.Len() == 0:
		return errors.New("the files after hold no trace that could be used: name files with traces")
	}
	c.result.Baseline, c.result.Window = side(before, history.Always(), true), side(after, history.Always(), true)
	return nil
}

// side returns the side with traces t, which must have been selected from i.
func side(t compare.Traces, i history.Interval, openEnd bool) Side {
	first, last := t.Extent()
	always := history.Always()
	if i.From == always.From {
		i.From = first
	}
	if i.To == always.To {
		i.To = last + 1
	}
	return Side{Interval: i, Open: openEnd, Traces: t.Len()}
}

// compare fills in and returns the result. Both sides must have been selected.
func (c *comparer) compare(ctx context.Context) (*Comparison, error) {
	history, window := c.recording.Select(c.baseline), c.recording.Select(c.window)
	normal := history.Normal()
	c.result.Mean = normal.Duration()
	c.result.Suspects = normal.Compare(window)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c.result.Usual = history.UsualScores(window.Len(), mostStretches)
	var err error
	c.result.RequestTypes, err = c.typeChanges(ctx)
	return c.result, err
}

// timed is the duration of a request, with the fields used to sort requests.
type timed struct {
	start    trace.Nanos
	duration time.Duration
	key      uint64
}

func (r timed) compare(s timed) int {
	return cmp.Or(cmp.Compare(r.start, s.start), cmp.Compare(r.key, s.key), cmp.Compare(r.duration, s.duration))
}

// typeRequests holds the requests of one type on both sides.
type typeRequests struct {
	entry            trace.Op // the smallest entry operation, because rules can join several entries into one type
	baseline, window []timed
	failed           uint64 // number of failed requests in the window
}

// typeChanges compares the requests of each type in the window with the baseline. It sorts slower types first.
func (c *comparer) typeChanges(ctx context.Context) ([]TypeChange, error) {
	c.types.Freeze()
	byType := make(map[analysis.Hash]*typeRequests)
	for i, requests := range c.requests {
		set := compare.Set(i)
		for o, err := range requests.All() {
			if err == nil {
				err = context.Cause(ctx)
			}
			if err != nil {
				return nil, err
			}
			c.assign(byType, o, set)
		}
	}
	var changes []TypeChange
	for id, r := range byType {
		if len(r.window) > 0 {
			changes = append(changes, c.typeChange(id, r))
		}
	}
	sorting.Slice(changes, func(a, b TypeChange) int {
		return cmp.Or(cmp.Compare(b.added(), a.added()), cmp.Compare(b.Type.Count, a.Type.Count),
			a.Type.ID.Compare(b.Type.ID))
	})
	return changes, nil
}

// added returns the total time that the requests of t take beyond the variation of the baseline, in ns.
func (t *TypeChange) added() float64 {
	if !t.Judged() {
		return 0
	}
	return t.Rise * float64(t.Type.Count)
}

// assign adds o, a request in set, to its side. It ignores a request on neither side.
func (c *comparer) assign(byType map[analysis.Hash]*typeRequests, o *observation.Observation, set compare.Set) {
	inWindow, inBaseline := c.window(o.Start, set), c.baseline(o.Start, set)
	if !inWindow && !inBaseline {
		return
	}
	id := c.types.Of(o)
	r := byType[id]
	if r == nil {
		r = &typeRequests{entry: o.Entry}
		byType[id] = r
	}
	r.entry = min(r.entry, o.Entry)
	request := timed{o.Start, o.Duration, o.Key()}
	if inBaseline {
		r.baseline = append(r.baseline, request)
		return
	}
	r.window = append(r.window, request)
	if o.Failed {
		r.failed++
	}
}

func (c *comparer) typeChange(id analysis.Hash, r *typeRequests) TypeChange {
	history, window := durations(r.baseline), durations(r.window)
	return TypeChange{
		Type: group.Summary{
			ID:          id,
			Level:       group.LevelRequestType,
			RequestType: id,
			Entry:       r.entry,
			Name:        c.types.Name(id),
			Distinct:    c.types.Distinct(r.entry, id, distinctOps),
			Count:       uint64(len(window)),
			Failed:      r.failed,
			Mean:        mean(window),
		},
		Baseline: uint64(len(history)), Expected: mean(history), Rise: compare.Rise(history, window),
	}
}

// distinctOps is the maximum number of operations in the part of a type's name that distinguishes it from others with
// the same entry.
const distinctOps = 3

// durations returns the durations of requests in ns, ordered by start. It sorts requests in place.
func durations(requests []timed) []int64 {
	sorting.Slice(requests, timed.compare)
	all := make([]int64, len(requests))
	for i, r := range requests {
		all[i] = r.duration.Nanoseconds()
	}
	return all
}

// mean returns the mean of durations, which are in ns, or 0 if durations is empty.
func mean(durations []int64) time.Duration {
	var sum float64
	for _, d := range durations {
		sum += float64(d)
	}
	return time.Duration(sum / float64(max(1, len(durations))))
}
