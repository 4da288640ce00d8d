// Package backtest plays recorded traces through the engine of sibyl serve, on a clock driven by the traces, and
// returns the incidents that the service would have reported: files → traces in the order they ended →
// [assemble.Online] → [engine.Core], epoch by epoch → [Result]. If there are labels, it scores the incidents against
// them.
//
// A trace arrives as a whole when its last span ends, because a recording doesn't contain the delays of exporters. The
// result depends only on the set of spans and the options, unless a clock is fast: in that case, the package infers the
// arrival times of spans from their order in a file (see arrivals).
package backtest

import (
	"context"
	"errors"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/trace"
)

// Result holds the incidents that the service would have reported for a recording, and their score.
type Result struct {
	Table     *trace.Table // with all names used below
	Traces    int
	Misdated  int               // number of traces not played because their clocks were wrong; not in Traces
	Coverage  trace.Coverage    // how their spans were used
	From, To  trace.Nanos       // start of the first span and end of the last; 0 if there are no traces
	Learned   trace.Nanos       // time from which incidents are reported; 0 if the recording is too short
	Incidents []engine.Incident // in the order of opening, as of their end or the recording's end; never nil
	Types     []group.Summary   // the request types affected by incidents, for their names
	Score     *Score            // nil if there are no labels
}

// Files plays the traces of the files and directories in paths. It returns an error if a path can't be read, if there
// is no room for temporary files, if ctx ends, or if there are traces and labels but no label can be scored. Files
// ignores options.Table.
func Files(
	ctx context.Context, paths []string, labels []Label, input file.Options, options Options,
) (result *Result, err error) {
	if input.Memory <= 0 {
		input.Memory = assemble.DefaultMemory
	}
	input.Memory /= 2 // traces sorted by ID and traces sorted by time are in memory at the same time
	r := NewRecording(input.Memory, input.TempDir)
	input.Decoded = r.Decoded
	in, err := file.Read(ctx, paths, input)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close(), r.Close()) }()
	for t, err := range in.All() {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err == nil {
			err = r.Add(t)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := in.Close(); err != nil { // frees memory
		return nil, err
	}
	options.Table = in.Table
	if result, err = r.Play(ctx, labels, options); err != nil {
		return nil, err
	}
	in.Summary.Cover(&result.Coverage)
	return result, nil
}
