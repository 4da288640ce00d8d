package main

import (
	"context"
	"fmt"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/internal/simapp"
	"github.com/sibyl-trace/sibyl/internal/wire"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// announce tells the service what can be switched on, as agents would.
func (s *seeded) announce(ctx context.Context, apps []*simapp.App) error {
	f := &search.Feedback{}
	for _, app := range apps {
		at := make(map[string]int) // in f.Catalogues
		names := app.Table()
		for _, x := range app.Catalogue() {
			service := names.ServiceName(x.Op)
			if _, known := at[service]; !known {
				at[service] = len(f.Catalogues)
				f.Catalogues = append(f.Catalogues, search.Catalogue{Service: service})
			}
			c := &f.Catalogues[at[service]]
			c.Tracepoints = append(c.Tracepoints, tracepoint(names, &x))
		}
	}
	_, err := s.live.Change(ctx, engine.Change{Feedback: f})
	return err
}

func tracepoint(names *trace.Table, x *cct.Tracepoint) search.Announced {
	op, owner := names.Operation(x.Op), names.Operation(x.Owner)
	t := search.Announced{
		ID: names.Text(x.ID), Name: names.Text(op.Name), Span: op.Kind, Layer: x.Layer, Kind: x.Kind, Cost: x.Cost, Bytes: x.Bytes,
		Baseline: x.Baseline,
	}
	if x.Parent != 0 {
		t.Parent = names.Text(x.Parent)
	}
	if x.Owner != 0 {
		t.Owner, t.OwnerSpan = names.Text(owner.Name), owner.Kind
	}
	return t
}

// plan returns what should be on.
func (s *seeded) plan(ctx context.Context) (*simapp.Plan, error) {
	plan := &simapp.Plan{}
	return plan, s.live.Ask(ctx, func(c *engine.Core) {
		p := c.Plan()
		plan.Version = p.Version
		for i, a := range p.Arms {
			arm := simapp.Arm{Name: a.Name, Share: a.Share, On: make(map[trace.Symbol]bool)}
			for _, l := range p.Leases {
				if int(l.Arm) == i {
					arm.On[l.Tracepoint] = true
				}
			}
			plan.Arms = append(plan.Arms, arm)
		}
	})
}

// batch is how many traces are sent together.
const batch = 50

// send sends the requests of a stretch of time, with versions of the services.
func (s *seeded) send(ctx context.Context, app *simapp.App, from, to trace.Nanos, plan *simapp.Plan, rolledOut bool) error {
	var waiting []*trace.Trace
	flush := func() error {
		body, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(versioned(wire.OTLP(waiting, app.Table()), rolledOut))
		if err != nil {
			return err
		}
		waiting = waiting[:0]
		_, _, err = s.live.Take(ctx, body, journal.Protobuf)
		return err
	}
	for x := range app.Requests(from, to, plan) {
		kept := &trace.Trace{ID: x.ID}
		kept.Append(x)
		if waiting = append(waiting, kept); len(waiting) < batch {
			continue
		}
		if err := flush(); err != nil {
			return err
		}
	}
	return flush()
}

// versioned says which versions the services have; that of the service that requests come in by may have been rolled out since.
func versioned(traces ptrace.Traces, rolledOut bool) ptrace.Traces {
	for i, rs := range traces.ResourceSpans().All() {
		version := "2.7.0"
		if rolledOut && i == 0 {
			version = "2.8.0"
		}
		rs.Resource().Attributes().PutStr("service.version", version)
	}
	return traces
}

// bury leaves dead letters of a webhook that nobody answered.
func (s *seeded) bury(at trace.Nanos) error {
	outbox, err := s.store.OpenOutbox(store.DefaultOutboxLimits())
	if err != nil {
		return err
	}
	for i, event := range []string{"problem.opened", "problem.located"} {
		_, err := outbox.Put(at, []store.Message{{
			ID: fmt.Sprintf("seed-%d", i), Endpoint: "oncall", Event: event, Format: "sibyl", Problem: analysis.Hash{}, At: at, Body: []byte(`{"type":"` + event + `"}`),
		}})
		if err != nil {
			return err
		}
	}
	due, _, err := outbox.Take("oncall", at, 2)
	if err != nil {
		return err
	}
	for i := range due {
		if err := outbox.Bury(&due[i], "404 Not Found"); err != nil {
			return err
		}
	}
	return nil
}
