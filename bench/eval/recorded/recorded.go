// Package recorded measures how well faults are located in recorded traces with labels.
//
// A case set is a directory with the traces, TracesName, possibly compressed (.gz, .zst), and the labels, CasesName.
// Each case is a window of time in which a fault was active. The history of all cases is every trace that starts
// outside of all windows, before or after. Labels are used for scoring only: [compare.Normal.Compare] receives the
// window and nothing else.
//
// [Set.Localize] compares with all spans visible at all times. [Set.Notice] plays a stream made of the traces through
// the engine, which does not know the windows. [Set.Choose] lets the engine choose the instrumentation. It runs the
// traces against the engine, epoch by epoch, hides the spans of disabled tracepoints, and attaches their children to
// the nearest visible span above.
package recorded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/trace"
)

// Names of the files of a case set.
const (
	TracesName = "traces.otlp.jsonl"
	CasesName  = "cases.jsonl"
)

// compressions are the possible endings of TracesName, in the order of the attempts.
var compressions = []string{"", ".gz", ".zst"}

// Case is one labelled fault, with the window in which it was active.
type Case = backtest.Label

// Target is the location of a fault.
type Target = backtest.Target

// Set is a case set.
type Set struct {
	Cases   []Case
	Traces  *compare.Recording
	Table   *trace.Table // the names in Traces
	Summary file.Summary // of the input

	traces []*recordedTrace // complete traces, if Options.Keep was set
	all    []*trace.Trace   // if Options.KeepAll was set
}

// Options configures [Read].
type Options struct {
	Input file.Options
	Path  critpath.Options
	// Keep keeps the complete traces, for [Set.Choose]. KeepAll keeps all traces, for [Set.Notice]. Both take about 100
	// bytes per span.
	Keep, KeepAll bool
}

// Read reads the case set in dir. It returns an error if a file is missing or a case is malformed. It skips broken
// records among the traces and reports them through options.
func Read(ctx context.Context, dir string, options Options) (*Set, error) {
	cases, err := backtest.ReadLabels(ctx, filepath.Join(dir, CasesName), nil)
	if err != nil {
		return nil, err
	}
	path, err := tracesIn(dir)
	if err != nil {
		return nil, err
	}
	in, err := file.Read(ctx, []string{path}, options.Input)
	if err != nil {
		return nil, err
	}
	set := &Set{Cases: cases, Traces: compare.NewRecording(in.Table), Table: in.Table, Summary: in.Summary}
	return set, errors.Join(set.extract(ctx, in, &options), in.Close())
}

// extract adds all traces of the input.
func (s *Set) extract(ctx context.Context, in *file.Input, options *Options) error {
	extractor := critpath.NewExtractor(options.Path)
	for t, err := range in.All() {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for i := range t.Spans {
			t.Spans[i].Tracepoint = 0 // the recording has no tracepoints
		}
		if options.KeepAll {
			kept := &trace.Trace{ID: t.ID}
			kept.Append(t)
			s.all = append(s.all, kept)
		}
		p := extractor.Extract(t)
		s.Traces.Add(p, 0)
		if options.Keep && p.Complete() && len(p.Roots) > 0 {
			s.traces = append(s.traces, newRecordedTrace(p))
		}
	}
	return nil
}

// tracesIn returns the path of the file with the traces.
func tracesIn(dir string) (string, error) {
	for _, ending := range compressions {
		path := filepath.Join(dir, TracesName+ending)
		_, err := os.Stat(path)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("find traces: %w", err)
		}
	}
	return "", fmt.Errorf("%s has no %s, plain, .gz or .zst: %w", dir, TracesName, fs.ErrNotExist)
}

// Windows returns the windows of all cases.
func (s *Set) Windows() []history.Interval {
	windows := make([]history.Interval, 0, len(s.Cases))
	for i := range s.Cases {
		windows = append(windows, s.Cases[i].Window)
	}
	return windows
}

// Localize compares the window of every case with the history and scores the rankings.
func (s *Set) Localize() Report {
	normal := s.Traces.Outside(s.Windows()).Normal()
	report := Report{Cases: make([]Result, 0, len(s.Cases))}
	for i := range s.Cases {
		c := &s.Cases[i]
		var suspects []compare.Suspect
		reason := ""
		switch {
		case normal.Traces() == 0:
			reason = "no trace begins outside of all windows"
		default:
			if suspects = normal.Compare(s.Traces.Within(c.Window)); len(suspects) == 0 {
				reason = "no trace begins in the window"
			}
		}
		report.Cases = append(report.Cases, result(c, suspects, reason, s.Table))
	}
	report.summarize()
	return report
}
