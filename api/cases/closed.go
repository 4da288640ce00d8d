package cases

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/decisionlog"
	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// Limits on the problems that are stored because they closed in an epoch. The core waits while they are stored, so only
// the problems that ranked highest are stored, and even fewer with their evidence.
const (
	maxClosing         = 500
	maxClosingEvidence = 64
)

// StoreClosed stores the problems in before that are no longer open at the end of an epoch, because the core forgets
// them and, later, their names. It stores them again if a restart replays the journal. Only the goroutine that owns the
// core may call StoreClosed.
func (a *Cases) StoreClosed(c *engine.View, before []detect.Problem, ended trace.Nanos) {
	open := make(map[analysis.Hash]bool, len(c.Problems.Open()))
	for i := range c.Problems.Open() {
		open[c.Problems.Open()[i].ID] = true
	}
	var all []store.ClosedProblem
	var names renderer
	for i := range before {
		p := &before[i]
		if open[p.ID] || len(all) == maxClosing {
			continue
		}
		if all == nil {
			names = renderer{a.reader.Renderer(c)}
		}
		x, err := names.closed(p, i+1, ended, len(all) < maxClosingEvidence)
		if err != nil {
			a.options.Log.Error("a closed problem could not be encoded", slog.Any("error", err))
			continue
		}
		all = append(all, x)
	}
	if all == nil {
		return
	}
	if err := a.store.Closed.Put(all); err != nil {
		a.options.Log.Error("closed problems could not be stored", slog.Any("error", err))
	}
}

// closed returns the stored form of p. rank is the last rank of p, and ended is the end of the epoch that p closed in.
// The result contains the evidence for p only if evidence is set.
func (r renderer) closed(p *detect.Problem, rank int, ended trace.Nanos, evidence bool) (store.ClosedProblem, error) {
	var v *search.Investigation
	if found := r.Core.Searches.Investigation(search.OfProblem(p.ID)); found != nil {
		v = found
	}
	row := epoch.ProblemOf(r.Core, r.Names, p, v, rank)
	row.Closed = render.Instant(ended)
	x := store.ClosedProblem{At: ended, ID: p.ID}
	var err error
	if x.Row, err = json.Marshal(&row); err != nil || !evidence {
		return x, err
	}
	d := r.problemDetail(&row, p, v)
	next := r.nextOfClosed(nil)
	if r.Core.Progress.Silent() {
		next = describe.Say(
			"Check that the application still runs and sends traces: none arrived when the problem closed, " +
				"so nobody knows whether its cause is gone.")
	}
	r.setNext(d, next)
	x.Evidence, err = json.Marshal(d)
	return x, err
}

// closedProblem returns a problem as it was when it last closed, with decisions about it. It returns a refusal if the
// problem isn't kept.
func (a *Cases) closedProblem(
	ctx context.Context, id analysis.Hash, decisions []decisionlog.Logged,
) (*contract.GetProblem200JSONResponse, error) {
	kept, err := a.store.Closed.Get(id)
	if err != nil {
		return nil, err
	}
	if kept == nil {
		return nil, query.NotFound("problem")
	}
	d := &contract.GetProblem200JSONResponse{
		Edges:        []contract.Edge{},
		Refined:      []contract.Refined{},
		Explanations: []contract.Explanation{},
		Unrelated:    []contract.Unrelated{},
		Contrasts:    []contract.Contrast{},
		WhatIf:       []contract.Recovery{},
		Common:       []contract.CommonEdges{},
		Decisions:    []contract.Decision{},
		Missing:      []string{},
	}
	if len(kept.Evidence) > 0 {
		err = json.Unmarshal(kept.Evidence, d)
	} else {
		err = json.Unmarshal(kept.Row, &d.Problem)
	}
	if err != nil {
		return nil, fmt.Errorf("read closed problem %s: %w", id, err)
	}
	err = a.reader.Ask(ctx, func(c *engine.View) {
		names := renderer{a.reader.Renderer(c)}
		names.addDecisions(d, decisions)
		// Without an incident, the next step is the one from when it closed.
		if x := names.latestIncident(&d.Problem, id); x != nil || len(d.NextParts) == 0 {
			names.setNext(d, names.nextOfClosed(x))
		}
	})
	return d, err
}

// nextOfClosed returns the next step for a closed problem. If the problem was part of the incident x, it returns the
// next step for x, because x may still be open, or may have closed without anyone knowing whether the cause is gone. x
// may be nil.
func (r renderer) nextOfClosed(x *engine.Incident) describe.Sentence {
	switch {
	case x == nil:
		return describe.Say("Nothing to do: the problem has closed.")
	case x.IsOpen():
		return describe.Say("It has closed, but the incident that it was part of is still open. ").And(r.advice(x))
	}
	return describe.Say("It was part of an incident. ").And(r.advice(x))
}

// closing identifies one of the times that a problem closed.
type closing struct {
	at trace.Nanos
	id analysis.Hash
}

// String returns the ID of x in cursors.
func (x closing) String() string {
	return hex.EncodeToString(binary.BigEndian.AppendUint64(nil, uint64(x.at))) + x.id.String()
}

// errClosing is returned for a text that isn't a result of [closing.String].
var errClosing = errors.New("not the end of a problem")

func parseClosing(text string) (closing, error) {
	const digits = 16
	if len(text) < digits {
		return closing{}, errClosing
	}
	b, err := hex.DecodeString(text[:digits])
	id, err2 := analysis.ParseHash(text[digits:])
	if err = errors.Join(err, err2); err != nil {
		return closing{}, err
	}
	return closing{trace.Nanos(binary.BigEndian.Uint64(b)), id}, nil
}

// closedProblems returns the closed problems, most recently closed first, and a list of their indices for paging.
func (a *Cases) closedProblems() ([]contract.Problem, *query.List[closing], error) {
	kept, err := a.store.Closed.All()
	if err != nil {
		return nil, nil, err
	}
	all := make([]contract.Problem, len(kept))
	latest := func(a, b closing) int { return cmp.Or(cmp.Compare(b.at, a.at), a.id.Compare(b.id)) }
	order := query.NewList(latest, closing.String, parseClosing)
	for i := range kept {
		x := &kept[i]
		if err := json.Unmarshal(x.Row, &all[i]); err != nil {
			return nil, nil, fmt.Errorf("read closed problem %s: %w", x.ID, err)
		}
		order.Add(0, closing{x.At, x.ID}, int32(i))
	}
	order.Sort()
	return all, order, nil
}
