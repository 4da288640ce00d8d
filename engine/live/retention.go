package live

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// cleanup says what is to be forgotten so that what is kept stays within its bounds.
type cleanup struct {
	bytes  int64                  // that what is kept may take; 0: no bound
	before trace.Nanos            // exemplars of requests before are forgotten; 0: none
	open   map[analysis.Hash]bool // problems that are open, their groups and request types: what is about them is evidence
}

// roomEvery is how often exemplars that are too old are looked for: each time all are looked at.
const roomEvery = 10 * time.Minute

// retention returns what is to be forgotten at a time, when a checkpoint was taken.
func (g *grouper) retention(now trace.Nanos) *cleanup {
	r := g.retained.Load()
	x := &cleanup{bytes: r.Bytes}
	if r.Age > 0 && now.Sub(g.trimmed) >= roomEvery {
		g.trimmed, x.before = now, now.Add(-r.Age)
	}
	if x.bytes > 0 {
		x.open = evidence(g.core)
	}
	return x
}

// evidence returns what the open problems go by.
func evidence(core *engine.Core) map[analysis.Hash]bool {
	all := make(map[analysis.Hash]bool)
	for i := range core.Problems() {
		p := &core.Problems()[i]
		all[p.ID], all[p.Group], all[p.RequestType] = true, true, true
	}
	return all
}

// keptExemplar is an exemplar and the group that it is kept of.
type keptExemplar struct {
	store.Exemplar
	group analysis.Hash
}

// headroom is the part of the bound, one in so much, that is made free when it is reached: so that it is not reached again at once.
const headroom = 10

// makeRoom forgets what is too old, and where what is kept takes more than it may, the oldest decisions and exemplars: evidence of open problems
// last. What a checkpoint holds is never forgotten. If that alone takes more, all else goes.
func (k *exemplarStore) makeRoom(ctx context.Context, r *cleanup, refs map[trace.ID]int) error {
	if r.before > 0 {
		if err := k.forgetAged(r.before, refs); err != nil {
			return err
		}
	}
	over, err := k.over(r.bytes)
	if over <= 0 || err != nil {
		return err
	}
	if err := k.options.Store.Compact(ctx); err != nil { // some of it may be gone already
		return err
	}
	if over, err = k.over(r.bytes); over <= 0 || err != nil {
		return err
	}
	for x, err := range k.oldest(r.open) {
		if err != nil {
			return err
		}
		freed, err := k.forget(x, refs)
		if err != nil {
			return err
		}
		if over -= freed; over <= -r.bytes/headroom {
			break
		}
	}
	return k.options.Store.Compact(ctx)
}

// over returns by how many bytes what is kept is beyond a bound; 0 for no bound.
func (k *exemplarStore) over(most int64) (int64, error) {
	if most == 0 {
		return 0, nil
	}
	takes, err := k.options.Store.EstimateSize()
	return takes - most, err
}

// all returns the exemplars of all groups, oldest first.
func (k *exemplarStore) all() (all []keptExemplar, err error) {
	err = k.options.Store.EachExemplars(func(group analysis.Hash, e *store.Exemplars) error {
		for x := range e.All() {
			all = append(all, keptExemplar{*x, group})
		}
		return nil
	})
	slices.SortFunc(all, func(a, b keptExemplar) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), a.group.Compare(b.group), slices.Compare(a.Trace[:], b.Trace[:]))
	})
	return all, err
}

// forgetAged forgets exemplars of requests that began before a time.
func (k *exemplarStore) forgetAged(before trace.Nanos, refs map[trace.ID]int) error {
	all, err := k.all()
	for i := range all {
		if err != nil || all[i].Start >= before {
			break
		}
		_, err = k.forgetExemplar(&all[i], refs)
	}
	return err
}

// leftover is something of the past that is kept: an exemplar, or the decisions of an epoch.
type leftover struct {
	exemplar *keptExemplar
	decided  *store.Epoch
}

// about reports whether x is about anything in open.
func (x leftover) about(open map[analysis.Hash]bool) bool {
	if x.exemplar != nil {
		return open[x.exemplar.group]
	}
	return slices.ContainsFunc(x.decided.Problems, func(p analysis.Hash) bool { return open[p] })
}

// oldest yields decisions and exemplars, oldest first: first those that are not about what is open, then the others. An error is the last thing that
// is yielded.
func (k *exemplarStore) oldest(open map[analysis.Hash]bool) iter.Seq2[leftover, error] {
	return func(yield func(leftover, error) bool) {
		exemplars, err := k.all()
		if err != nil {
			yield(leftover{}, err)
			return
		}
		var evidence []leftover
		offer := func(x leftover) bool {
			if x.about(open) {
				evidence = append(evidence, x)
				return true
			}
			return yield(x, nil)
		}
		next := 0
		before := func(t trace.Nanos) bool {
			for ; next < len(exemplars) && exemplars[next].Start < t; next++ {
				if !offer(leftover{exemplar: &exemplars[next]}) {
					return false
				}
			}
			return true
		}
		for d, err := range k.options.Store.Epochs() {
			if err != nil {
				yield(leftover{}, err)
				return
			}
			if !before(d.At) || !offer(leftover{decided: &d}) {
				return
			}
		}
		if !before(trace.MaxNanos) {
			return
		}
		for _, x := range evidence {
			if !yield(x, nil) {
				return
			}
		}
	}
}

// forget forgets something, and returns how many bytes that frees.
func (k *exemplarStore) forget(x leftover, refs map[trace.ID]int) (freed int64, err error) {
	if x.exemplar != nil {
		return k.forgetExemplar(x.exemplar, refs)
	}
	k.counts.Forgotten.Decisions.Add(1)
	return x.decided.Size, k.options.Store.DeleteDecisions(x.decided.At)
}

// forgetExemplar forgets an exemplar, and returns how many bytes that frees: none while its trace is kept for another group.
func (k *exemplarStore) forgetExemplar(e *keptExemplar, refs map[trace.ID]int) (freed int64, err error) {
	kept, err := k.options.Store.Exemplars(e.group)
	if err != nil {
		return 0, err
	}
	gone := 0
	for _, list := range []*[]store.Exemplar{&kept.Slow, &kept.Typical, &kept.Fast} {
		*list = slices.DeleteFunc(*list, func(x store.Exemplar) bool {
			if x.Trace != e.Trace {
				return false
			}
			gone++
			return true
		})
	}
	if gone == 0 {
		return 0, nil // in two lists, and forgotten with the first
	}
	k.counts.Forgotten.Exemplars.Add(1)
	if err := k.options.Store.PutExemplars(e.group, kept); err != nil {
		return 0, err
	}
	if refs[e.Trace] -= gone; refs[e.Trace] > 0 {
		return 0, nil
	}
	delete(refs, e.Trace)
	size, err := k.options.Store.TraceSize(e.Trace)
	return size, errors.Join(err, k.options.Store.DeleteTrace(e.Trace))
}

// logRoom tells what could not be forgotten.
func (k *exemplarStore) logRoom(ctx context.Context, err error) {
	if err != nil {
		k.options.Log.ErrorContext(ctx, "what is kept may take more than it should", slog.Any("error", err))
	}
}
