package backtest

import (
	"context"
	"fmt"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/trace"
)

// Recording sorts recorded traces by the time they ended and plays them. Its memory is bounded; the excess goes to
// temporary files. Pass Decoded to the reader of the files. Once all files have been read, call Add for each trace,
// then Play at most once, then Close.
//
// Traces far from the others have a wrong clock ([assemble.Calendar]). They aren't played because the engine's clock
// would follow them.
type Recording struct {
	clocks   arrivals
	timeline *assemble.Timeline
	calendar assemble.Calendar
}

// NewRecording returns an empty Recording that keeps at most memory bytes of traces in memory and the rest in temporary
// files in dir.
func NewRecording(memory int64, dir string) *Recording {
	return &Recording{
		timeline: assemble.NewTimeline(assemble.Options{Memory: memory, TempDir: dir}),
		calendar: make(assemble.Calendar),
	}
}

// Decoded infers the arrival times of the spans in b, a batch from the file named path, from their order. Use it as
// [file.Options.Decoded].
func (r *Recording) Decoded(path string, b *ingest.Batch) { r.clocks.add(path, b) }

// Add adds a copy of t. It returns an error only if it can't write traces to disk; r is then unusable.
func (r *Recording) Add(t *trace.Trace) error {
	if len(r.calendar) == 0 {
		r.clocks.end() // all files have been read
	}
	from, to := r.clocks.extent(t)
	r.calendar.Add(from, to)
	return r.timeline.Add(to, t)
}

// Recorded returns the time between the first and the last trace, ignoring traces with a wrong clock.
func (r *Recording) Recorded() time.Duration {
	from, to := r.calendar.Recorded()
	return to.Sub(from)
}

// Play plays the traces, with the names in options.Table. It returns an error if a temporary file can't be read, if ctx
// ends, or if there are traces and labels but no label can be scored.
func (r *Recording) Play(ctx context.Context, labels []Label, options Options) (*Result, error) {
	if len(r.calendar) == 0 {
		return &Result{Table: options.Table}, nil
	}
	var recorded history.Interval
	recorded.From, recorded.To = r.calendar.Recorded()
	within, outside, err := during(labels, recorded)
	if err != nil {
		return nil, err
	}
	p, misdated := NewPlayer(within, options), 0
	for t, err := range r.timeline.All() {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, err
		}
		from, to := r.clocks.extent(t)
		if to < recorded.From || to > recorded.To {
			misdated++
			for i := range t.Spans {
				p.result.Coverage.Leave(&t.Spans[i], trace.Misdated)
			}
			continue
		}
		p.play(t, from, to)
	}
	result := p.Finish()
	result.Misdated = misdated
	if result.Score == nil {
		return result, nil
	}
	if len(result.Score.Cases) == 0 && len(labels) > 0 {
		return nil, fmt.Errorf("no known fault lies in the time in which incidents are reported: "+
			"they need nine minutes of history, and the traces begin at %s UTC", date(result.From))
	}
	result.Score.Outside = append(outside, result.Score.Outside...)
	return result, nil
}

// Close frees memory and disk space. It may be called more than once.
func (r *Recording) Close() error { return r.timeline.Close() }
