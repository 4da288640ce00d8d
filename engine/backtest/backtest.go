// Package backtest plays recorded traces through the engine of sibyl serve, on a clock driven by the traces, and
// returns the incidents that the service would have reported: files → traces in the order in which they ended →
// [assemble.Online] → [engine.Core], epoch by epoch → [Result]. With labels it scores the incidents.
//
// A trace arrives as a whole when its last span ends: a recording does not contain the delays of exporters. The result
// depends on the set of spans and the options only.
package backtest

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/trace"
)

// Result is the result of a backtest.
type Result struct {
	Table     *trace.Table // has the names of everything below
	Traces    int
	Misdated  int               // further traces, which were not played: their clocks were wrong
	From, To  trace.Nanos       // start of the first span, end of the last; 0 without a trace
	Learned   trace.Nanos       // end of the learning period; 0: the recording is too short
	Incidents []engine.Incident // in the order of opening, as of their end or that of the recording; not nil
	Types     []group.Summary   // names the request types that incidents affect
	Score     *Score            // nil without labels
}

// Files plays the traces of files and directories. It returns an error if a path cannot be read, if there is no room
// for temporary files, or if ctx ends. Options.Table is not used.
//
// Traces more than a year before or after the median one have a wrong clock. They are not played, since the clock of
// the engine would follow them.
func Files(ctx context.Context, paths []string, labels []Label, input file.Options, options Options) (result *Result, err error) {
	if input.Memory <= 0 {
		input.Memory = assemble.DefaultMemory
	}
	input.Memory /= 2 // traces by ID and by time are in memory together
	in, err := file.Read(ctx, paths, input)
	if err != nil {
		return nil, err
	}
	timeline := assemble.NewTimeline(assemble.Options{Memory: input.Memory, TempDir: input.TempDir})
	defer func() { err = errors.Join(err, in.Close(), timeline.Close()) }()
	ends := make(days)
	for t, err := range in.All() {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err == nil {
			_, end := Extent(t)
			ends.add(end)
			err = timeline.Add(end, t)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := in.Close(); err != nil { // frees memory
		return nil, err
	}
	options.Table = in.Table
	p, middle, misdated := NewPlayer(labels, options), ends.median(), 0
	for t, err := range timeline.All() {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, err
		}
		const year = 365 * 24 * time.Hour
		if _, end := Extent(t); end.Sub(middle).Abs() > year {
			misdated++
			continue
		}
		p.Play(t)
	}
	result = p.Finish()
	result.Misdated = misdated
	return result, nil
}

// days counts times by day.
type days map[trace.Nanos]int

const day = trace.Nanos(24 * time.Hour)

func (d days) add(at trace.Nanos) { d[at/day]++ }

// median returns the beginning of the day of the median time; 0 if there is none.
func (d days) median() trace.Nanos {
	all, passed := 0, 0
	for _, n := range d {
		all += n
	}
	for _, number := range slices.Sorted(maps.Keys(d)) {
		if passed += d[number]; 2*passed >= all {
			return number * day
		}
	}
	return 0
}

// Extent returns the start of the first span of t, and the end of the last.
func Extent(t *trace.Trace) (from, to trace.Nanos) {
	from = math.MaxInt64
	for i := range t.Spans {
		s := &t.Spans[i]
		from, to = min(from, s.Start), max(to, s.Start, s.End)
	}
	return from, to
}
