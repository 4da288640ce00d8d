// Package objectives serves objectives and gates: those of the configuration, and those that people set, which it
// keeps in a file. A change is written first, then becomes a setting of the engine and thus a record of its journal.
package objectives

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// Options configure the handlers.
type Options struct {
	Edits    *Edits
	Settings func() engine.Settings      // those of the configuration
	Settle   func(context.Context) error // makes the engine use the current edits
	Clock    func() time.Time
}

// Objectives serves objectives and gates. It is safe for concurrent use.
type Objectives struct {
	reader     *epoch.Reader
	ticks      store.Ticks
	options    Options
	changing   sync.Mutex // held during a change
	previewing sync.Mutex // held during a preview of an objective
}

// New returns handlers. Previews read the requests in ticks.
func New(r *epoch.Reader, ticks store.Ticks, o Options) *Objectives {
	return &Objectives{reader: r, ticks: ticks, options: o}
}

// maxObjectives is the maximum number of objectives that people can add. The configuration can have more.
const maxObjectives = 200

// change stores what edit returns and makes the engine use it. If the engine can't, nothing changes.
func (a *Objectives) change(ctx context.Context, edit func(k kept) (kept, error)) error {
	a.changing.Lock()
	defer a.changing.Unlock()
	before := a.options.Edits.snapshot()
	after, err := edit(before)
	if err != nil {
		return err
	}
	if err := a.options.Edits.replace(after); err != nil {
		return err
	}
	// A caller who leaves must not leave file and engine with different objectives.
	if err := a.options.Settle(context.WithoutCancel(ctx)); err != nil {
		return errors.Join(err, a.options.Edits.replace(before))
	}
	return nil
}

// ListObjectives implements contract.StrictServerInterface.
func (a *Objectives) ListObjectives(
	ctx context.Context, _ contract.ListObjectivesRequestObject,
) (contract.ListObjectivesResponseObject, error) {
	s, err := a.reader.Current(ctx)
	if err != nil {
		return nil, err
	}
	list := contract.ListObjectives200JSONResponse{Items: []contract.Objective{}, Epoch: s.Epoch()}
	configured := a.options.Settings().Objectives
	for i := range configured {
		list.Items = append(list.Items, stateOf(s, &configured[i]))
	}
	k := a.options.Edits.snapshot()
	for i := range k.Objectives {
		list.Items = append(list.Items, shown(s, &k.Objectives[i], configured))
	}
	return list, nil
}

// shown converts x, which has no effect if one of configured limits the same requests.
func shown(s *epoch.Snapshot, x *edited, configured []incident.Objective) contract.Objective {
	o := goal(&x.Objective)
	replaced := limited(configured, &o)
	if replaced {
		s = &epoch.Snapshot{} // the state is that of the other objective
	}
	d := stateOf(s, &o)
	d.ID, d.By, d.At, d.Replaced = &x.ID, &x.By, &x.At, replaced
	return d
}

// stateOf returns o with its state in s. One that was set after the epoch of s has no requests yet.
func stateOf(s *epoch.Snapshot, o *incident.Objective) contract.Objective {
	fresh := incident.NewObjectives(&trace.Table{})
	fresh.Set([]incident.Objective{*o})
	d := epoch.ObjectiveOf(&fresh.Status()[0], nil)
	for _, x := range s.Objectives {
		if x.Entry == d.Entry && query.Value(x.BelowNs, 0) == query.Value(d.BelowNs, 0) {
			x.Name, x.Budget, x.Percentile = d.Name, d.Budget, d.Percentile
			return x
		}
	}
	return d
}

// checked returns r as an objective, or a refusal if r isn't valid.
func checked(r *contract.ObjectiveRequest) (incident.Objective, error) {
	r.Name, r.Entry = strings.TrimSpace(r.Name), strings.TrimSpace(r.Entry)
	o := goal(r)
	why := ""
	switch {
	case r.Entry == "":
		why = "entry: want a service and an operation, like shop GET /cart, or a service"
	case (r.BelowNs == 0) != (r.Percentile == 0):
		why = "a latency needs both below_ns and percentile"
	case !o.Valid():
		why = "want either a latency, below_ns and percentile, or errors"
	}
	if why != "" {
		return o, refusal.New(refusal.Invalid, why, "")
	}
	return o, nil
}

// put returns k with x in place of the objective with its ID, or at the end if there is none. It returns a refusal if
// another objective limits the same requests.
func (a *Objectives) put(k kept, x edited) (kept, error) {
	o := goal(&x.Objective)
	where := "the configuration"
	same := limited(a.options.Settings().Objectives, &o)
	for i := range k.Objectives {
		if other := goal(&k.Objectives[i].Objective); k.Objectives[i].ID != x.ID && other.SameRequests(&o) {
			where, same = "another objective", true
		}
	}
	if same {
		return k, refusal.New(refusal.Conflict, where+" already limits these requests",
			"change that one, or choose another duration")
	}
	k.Objectives = slices.Clone(k.Objectives)
	if i := k.find(x.ID); i >= 0 {
		k.Objectives[i] = x
		return k, nil
	}
	if len(k.Objectives) >= maxObjectives {
		return k, refusal.New(refusal.Conflict, fmt.Sprintf("there are %d objectives", maxObjectives), "delete some")
	}
	k.Last = x.ID
	k.Objectives = append(k.Objectives, x)
	return k, nil
}

// set stores r as the objective with the given ID, or as a new one if that is 0.
func (a *Objectives) set(
	ctx context.Context, id int64, r *contract.ObjectiveRequest,
) (d contract.Objective, err error) {
	if _, err := checked(r); err != nil {
		return d, err
	}
	s, err := a.reader.Current(ctx)
	if err != nil {
		return d, err
	}
	err = a.change(ctx, func(k kept) (kept, error) {
		x := edited{ID: id, By: access.Caller(ctx).Name, At: a.options.Clock().UTC(), Objective: *r}
		if id == 0 {
			x.ID = k.Last + 1
		} else if k.find(id) < 0 {
			return k, query.NotFound("objective")
		}
		d = shown(s, &x, nil)
		return a.put(k, x)
	})
	return d, err
}

// find returns the index of the objective with the given ID, or -1.
func (k *kept) find(id int64) int {
	return slices.IndexFunc(k.Objectives, func(e edited) bool { return e.ID == id })
}

// AddObjective implements contract.StrictServerInterface.
func (a *Objectives) AddObjective(
	ctx context.Context, r contract.AddObjectiveRequestObject,
) (contract.AddObjectiveResponseObject, error) {
	d, err := a.set(ctx, 0, r.Body)
	if err != nil {
		return nil, err
	}
	return contract.AddObjective201JSONResponse(d), nil
}

// SetObjective implements contract.StrictServerInterface.
func (a *Objectives) SetObjective(
	ctx context.Context, r contract.SetObjectiveRequestObject,
) (contract.SetObjectiveResponseObject, error) {
	d, err := a.set(ctx, r.Objective, r.Body)
	if err != nil {
		return nil, err
	}
	return contract.SetObjective200JSONResponse(d), nil
}

// DeleteObjective implements contract.StrictServerInterface.
func (a *Objectives) DeleteObjective(
	ctx context.Context, r contract.DeleteObjectiveRequestObject,
) (contract.DeleteObjectiveResponseObject, error) {
	err := a.change(ctx, func(k kept) (kept, error) {
		i := k.find(r.Objective)
		if i < 0 {
			return k, query.NotFound("objective")
		}
		k.Objectives = slices.Delete(slices.Clone(k.Objectives), i, i+1)
		return k, nil
	})
	return contract.DeleteObjective204Response{}, err
}
