package server

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/notify/export"
	"github.com/sibyl-trace/sibyl/store"
)

// exporting sends the critical paths of exemplars of open problems to a tracing backend. It reads the exemplars from
// the store in the background.
type exporting struct {
	exporter *export.Exporter
	store    *store.Store
	path     critpath.Options
	failing  ingest.FailureRules // rules that decide which spans have failed
	log      *slog.Logger
	open     chan []exportable // open problems as of the last epoch; holds one list
}

// exportable identifies a problem and the group that the problem's exemplars belong to.
type exportable struct{ problem, group analysis.Hash }

// exportedProblems limits the problems whose exemplars are exported in an epoch, by rank.
const exportedProblems = 50

// epoch queues problems, which must be the open problems in order of rank. They replace the problems of an earlier
// epoch if these are still queued.
func (x *exporting) epoch(problems []detect.Problem) {
	var open []exportable
	for i := range problems[:min(len(problems), exportedProblems)] {
		open = append(open, exportable{problems[i].ID, problems[i].Group})
	}
	select {
	case <-x.open:
	default:
	}
	x.open <- open // doesn't block, because nobody else sends
}

// run exports queued problems until ctx is done.
func (x *exporting) run(ctx context.Context) {
	var sending sync.WaitGroup
	sending.Go(func() { x.exporter.Run(ctx) })
	defer sending.Wait()
	for {
		select {
		case open := <-x.open:
			for i := range open {
				if err := x.add(&open[i]); err != nil {
					x.log.WarnContext(ctx, "export: exemplars of a problem cannot be read",
						slog.String("problem", open[i].problem.String()), slog.Any("error", err))
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

// add queues the exemplars of the problem `of` that the exporter doesn't know yet.
func (x *exporting) add(of *exportable) error {
	exemplars, err := x.store.Exemplars.Of(of.group)
	if err != nil {
		return err
	}
	for e := range exemplars.All() {
		if x.exporter.Known(e.Trace) {
			continue
		}
		request, err := x.store.Traces.Get(e.Trace)
		if err != nil {
			return err
		}
		if request == nil {
			continue // being deleted
		}
		t, err := otlp.DecodeTrace(e.Trace, request, x.failing)
		if err != nil {
			return err
		}
		path := critpath.NewExtractor(x.path).Extract(t)
		isRoot := func(r critpath.Root) bool { return path.Nodes[r.Node].ID == e.Root }
		if i := slices.IndexFunc(path.Roots, isRoot); i >= 0 {
			x.exporter.Add(export.Of(path, i, of.problem.String()))
		}
	}
	return nil
}

// newExporting returns the exporting that o.config describes, or nil if no backend is configured.
func (o *outbound) newExporting(s *store.Store, path critpath.Options) (*exporting, error) {
	c := &o.config.Export
	if c.URL == "" {
		return nil, nil
	}
	failing, err := o.config.FailureRules()
	if err != nil {
		return nil, err
	}
	transport, err := newHeaderTransport(c)
	if err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	e, err := export.New(export.Options{URL: c.URL, Transport: transport, Log: o.log})
	if err != nil {
		return nil, err
	}
	return &exporting{
		exporter: e,
		store:    s,
		path:     path,
		failing:  failing,
		log:      o.log,
		open:     make(chan []exportable, 1),
	}, nil
}
