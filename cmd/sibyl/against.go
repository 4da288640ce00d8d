package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/onetrace"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine/offline"
	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/internal/cli"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/report"
	"github.com/sibyl-trace/sibyl/report/waterfall"
	"github.com/sibyl-trace/sibyl/trace"
)

// explainer is the view of `trace --against`, which explains how traces differ from normal ones.
type explainer struct {
	profile *onetrace.Profile
	table   *trace.Table // names of the profile and of all traces explained
	merged  *trace.Table // table that was last merged into table
	json    bool
	drawn   bool // a waterfall follows the explanation
	drawing waterfall.Options
}

// explanation reads the normal traces and returns the view that compares other traces with them.
func (p *process) explanation(
	ctx context.Context, f *traceFlags, files []string, drawing waterfall.Options,
) (traceView, error) {
	if slices.Contains(f.against, file.Stdin) && slices.Contains(files, file.Stdin) {
		return nil, cli.Usagef("standard input, -, can hold either the traces or the normal ones of --against")
	}
	n := cli.NewNotices("sibyl", p.err)
	o := offline.DefaultOptions()
	o.Input, o.Path = f.input.Options(p.in, n), f.path.Options()
	profile, table, err := offline.ReadNormal(ctx, f.against, o)
	n.Close()
	if err != nil {
		return nil, fmt.Errorf("--against: %w", err)
	}
	x := &explainer{profile: profile, table: table, json: f.output.Value == "json", drawn: f.id != "", drawing: drawing}
	return x.show, nil
}

// show writes the explanation of the trace in path, and the waterfall if x.drawn is true.
func (x *explainer) show(out io.Writer, path *critpath.Path, table *trace.Table, first bool) error {
	if x.merged != table {
		x.table.Merge(table)
		x.merged = table
	}
	e := x.profile.Explain(path)
	if x.json {
		names := describe.New(x.table, describe.Verbatim)
		return report.ExplanationJSON(out, describe.NewTraceExplanation(names, path.Trace.ID, &e))
	}
	if !first {
		if _, err := io.WriteString(out, "\n"); err != nil {
			return err
		}
	}
	names := describe.New(x.table, terminal.Printable)
	explanation := describe.NewTraceExplanation(names, path.Trace.ID, &e)
	if err := report.ExplanationText(out, explanation, x.drawing.Style); err != nil {
		return err
	}
	if !x.drawn {
		return nil
	}
	return x.draw(out, path, e.Suspects)
}

// draw writes the waterfall of the trace in path, with the suspects marked by rank.
func (x *explainer) draw(out io.Writer, path *critpath.Path, suspects []onetrace.CallSuspect) error {
	x.drawing.Suspects = make(map[int32]int, len(suspects))
	for i := range slices.Backward(suspects) {
		x.drawing.Suspects[suspects[i].Node] = i + 1
	}
	legend := waterfall.SuspectsLegend + "   " + waterfall.Legend
	if _, err := fmt.Fprintf(out, "\n%s\n\n", x.drawing.Style.Paint(terminal.Dim, legend)); err != nil {
		return err
	}
	return waterfall.Text(out, path, x.table, x.drawing)
}
