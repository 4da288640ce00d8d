package objectives

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// gates returns the gates in effect.
func (a *Objectives) gates() contract.Gates {
	c, k := a.options.Settings().Gates, a.options.Edits.snapshot()
	g, set := k.Gates.over(c), configured(c)
	d := contract.Gates{
		Growth:     g.Growth,
		TimeNs:     g.Time.Nanoseconds(),
		LostNs:     g.Lost.Nanoseconds(),
		Failing:    g.Failing,
		Score:      g.Score,
		Configured: set,
		Edited: slices.DeleteFunc(k.Gates.names(),
			func(name contract.Gate) bool { return slices.Contains(set, name) }),
	}
	if k.GatesBy != "" {
		d.By, d.At = &k.GatesBy, &k.GatesAt
	}
	return d
}

// GetGates implements contract.StrictServerInterface.
func (a *Objectives) GetGates(
	context.Context, contract.GetGatesRequestObject,
) (contract.GetGatesResponseObject, error) {
	return contract.GetGates200JSONResponse(a.gates()), nil
}

// checkedGates returns the gates in r. It returns a refusal if c, the configuration, sets one of them to another value.
func checkedGates(r *contract.GatesRequest, c incident.Gates) (gates, error) {
	asked, values := requested(r), gatesOf(c)
	for _, name := range configured(c) {
		if value, set := asked[name]; set && value != values[name] {
			return nil, refusal.New(refusal.Conflict, "the configuration sets gates."+
				strings.TrimSuffix(string(name), "_ns"), "change it there, or remove it there first")
		}
		delete(asked, name)
	}
	return asked, nil
}

// SetGates implements contract.StrictServerInterface.
func (a *Objectives) SetGates(
	ctx context.Context, r contract.SetGatesRequestObject,
) (contract.SetGatesResponseObject, error) {
	asked, err := checkedGates(r.Body, a.options.Settings().Gates)
	if err != nil {
		return nil, err
	}
	err = a.change(ctx, func(k kept) (kept, error) {
		k.Gates, k.GatesBy, k.GatesAt = asked, access.Caller(ctx).Name, a.options.Clock().UTC()
		return k, nil
	})
	if err != nil {
		return nil, err
	}
	return contract.SetGates200JSONResponse(a.gates()), nil
}

// PreviewGates implements contract.StrictServerInterface.
func (a *Objectives) PreviewGates(
	ctx context.Context, r contract.PreviewGatesRequestObject,
) (contract.PreviewGatesResponseObject, error) {
	c := a.options.Settings().Gates
	asked, err := checkedGates(r.Body, c)
	if err != nil {
		return nil, err
	}
	present, next := a.options.Edits.snapshot().Gates.over(c), asked.over(c)
	hidden := make(map[uint64]bool)
	err = a.reader.Ask(ctx, func(c *engine.View) {
		all := c.Incidents.All()
		for i := range all {
			hidden[all[i].ID] = all[i].Passes(present) && !all[i].Passes(next)
		}
	})
	if err != nil {
		return nil, err
	}
	s, err := a.reader.Current(ctx)
	if err != nil {
		return nil, err
	}
	d := contract.PreviewGates200JSONResponse{Lower: []contract.Gate{}, Items: []contract.GatedIncident{}}
	for _, name := range gateNames {
		if gatesOf(next)[name] < gatesOf(present)[name] {
			d.Lower = append(d.Lower, name)
		}
	}
	for i := range s.Incidents {
		x := &s.Incidents[i]
		if !x.Listed {
			continue
		}
		if d.From == nil || x.Onset.Before(*d.From) {
			d.From = &x.Onset
		}
		d.Items = append(d.Items, contract.GatedIncident{
			ID:       x.ID,
			Severity: x.Severity,
			Service:  x.Service,
			Onset:    x.Onset,
			Ended:    x.Ended,
			Sentence: x.Sentence,
			Opens:    !hidden[x.Number],
		})
	}
	sorting.Slice(d.Items, func(x, y contract.GatedIncident) int {
		return cmp.Or(y.Onset.Compare(x.Onset), cmp.Compare(x.ID, y.ID))
	})
	return d, nil
}
