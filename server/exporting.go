package server

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/notify/export"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// exporting tells a tracing backend of the critical paths of the exemplars of open problems. It reads them from the store, beside everything else.
type exporting struct {
	*export.Exporter
	store *store.Store
	path  critpath.Options
	log   *slog.Logger
	open  chan []exportable // as of the last epoch; holds one
}

// exportable is a problem, and where its exemplars are.
type exportable struct{ problem, group analysis.Hash }

// exportedProblems bounds the problems whose exemplars are looked at in an epoch: those that rank first.
const exportedProblems = 50

// epoch hands on the open problems, best first. What was handed on before and not looked at is forgotten.
func (x *exporting) epoch(problems []detect.Problem) {
	var open []exportable
	for i := range problems[:min(len(problems), exportedProblems)] {
		open = append(open, exportable{problems[i].ID, problems[i].Group})
	}
	select {
	case <-x.open:
	default:
	}
	x.open <- open // nobody else sends
}

// run tells of what epochs hand on until ctx is done.
func (x *exporting) run(ctx context.Context) {
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		x.Run(ctx)
	}()
	for again := true; again; {
		select {
		case open := <-x.open:
			for i := range open {
				if err := x.add(&open[i]); err != nil {
					x.log.WarnContext(ctx, "export: exemplars of a problem cannot be read", slog.String("problem", open[i].problem.String()), slog.Any("error", err))
				}
			}
		case <-ctx.Done():
			again = false
		}
	}
	<-sent
}

// add adds the exemplars of a problem that were not told of lately.
func (x *exporting) add(of *exportable) error {
	exemplars, err := x.store.Exemplars(of.group)
	if err != nil {
		return err
	}
	for e := range exemplars.All() {
		if x.Told(e.Trace) {
			continue
		}
		request, err := x.store.Trace(e.Trace)
		if err != nil {
			return err
		}
		if request == nil {
			continue // it is just being forgotten
		}
		t, err := decode(e.Trace, request)
		if err != nil {
			return err
		}
		path := critpath.NewExtractor(x.path).Extract(t)
		if i := slices.IndexFunc(path.Roots, func(r critpath.Root) bool { return path.Nodes[r.Node].ID == e.Root }); i >= 0 {
			x.Add(export.Of(path, i, of.problem.String()))
		}
	}
	return nil
}

// decode returns a trace of an export request, without what its critical path does not depend on.
func decode(id trace.ID, request []byte) (*trace.Trace, error) {
	keys, err := ingest.NewKeys()
	if err != nil {
		return nil, err
	}
	var b ingest.Batch
	if err := otlp.NewDecoder(&trace.Table{}, keys).Protobuf(request, &b); err != nil {
		return nil, err
	}
	t, to := &trace.Trace{ID: id}, make([]int32, len(b.Spans))
	for i := range b.Spans {
		to[i] = -1
		if b.Traces[i] == id {
			to[i] = int32(len(t.Spans))
			t.Spans = append(t.Spans, b.Spans[i])
		}
	}
	for _, j := range b.Joins {
		if j.Span = to[j.Span]; j.Span >= 0 {
			t.Joins = append(t.Joins, j)
		}
	}
	return t, nil
}

// newExporting returns nil if the configuration names no backend.
func (o *outward) newExporting(kept *store.Store, path critpath.Options) (*exporting, error) {
	c := &o.config.Export
	if c.OTLP == "" {
		return nil, nil
	}
	transport, err := newHeaded(c)
	if err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	e, err := export.New(export.Options{URL: c.OTLP, Transport: transport, Seed: uint64(time.Now().UnixNano()), Log: o.log})
	if err != nil {
		return nil, err
	}
	return &exporting{e, kept, path, o.log, make(chan []exportable, 1)}, nil
}
