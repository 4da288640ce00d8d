package live

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// witnesses selects traces that contain the place of a problem or an incident. A tracepoint is disabled as soon as it
// has located a place, and later traces lack its spans. So we keep traces with the leading suspect while the search is
// still running.
type witnesses struct {
	requested map[trace.Symbol]bool // tracepoints requested by investigations
	seen      map[witnessKey][]witness
	kept      map[search.Subject]keptWitnesses
}

type witnessKey struct {
	tracepoint  trace.Symbol
	requestType analysis.Hash
}

// witness is a request that ran a tracepoint, as an exemplar.
type witness struct {
	store.Exemplar
	at int64 // time in the spans of the tracepoint, in ns
}

// keptWitnesses holds the witnesses kept for one investigation.
type keptWitnesses struct {
	witnessKey
	least   int64 // shortest time at the tracepoint among the kept witnesses, or 0 if fewer than keptPerPlace are kept
	located bool
}

const (
	keptPerPlace = 2    // maximum number of witnesses kept for a place
	maxWitnessed = 4096 // maximum number of pairs of tracepoint and request type per epoch
)

func newWitnesses() *witnesses {
	return &witnesses{seen: make(map[witnessKey][]witness), kept: make(map[search.Subject]keptWitnesses)}
}

// observe adds r as a witness of each requested tracepoint that it ran.
func (w *witnesses) observe(requestType analysis.Hash, r *request) {
	if len(w.requested) == 0 {
		return
	}
	for i := range r.Contexts {
		if x := &r.Contexts[i]; x.Tracepoint != 0 && w.requested[x.Tracepoint] {
			w.add(witnessKey{x.Tracepoint, requestType}, witness{
				store.Exemplar{
					Trace:    r.Trace,
					Root:     r.Root,
					Start:    r.Start,
					Duration: r.Duration.Nanoseconds(),
					Records:  r.Records,
				},
				x.Total,
			})
		}
	}
}

// add adds x if it is among the keptPerPlace longest witnesses of key. If a request ran the tracepoint in several
// contexts, the longest time counts.
func (w *witnesses) add(key witnessKey, x witness) {
	all, known := w.seen[key]
	switch same := slices.IndexFunc(all, func(o witness) bool { return o.Trace == x.Trace && o.Root == x.Root }); {
	case same >= 0:
		all[same].at = max(all[same].at, x.at)
	case !known && len(w.seen) >= maxWitnessed, len(all) == keptPerPlace && all[len(all)-1].at >= x.at:
		return
	default:
		x.Records = slices.Clone(x.Records)
		all = append(all, x)
	}
	sorting.SliceStable(all, func(a, b witness) int { return cmp.Compare(b.at, a.at) })
	w.seen[key] = all[:min(len(all), keptPerPlace)]
}

// keeps ends an epoch and returns the witnesses to keep for investigations whose leading suspect is a tracepoint.
// Witnesses of a located place are not replaced.
func (w *witnesses) keeps(state *search.State) []keep {
	var all []keep
	w.requested = make(map[trace.Symbol]bool)
	before := w.kept
	w.kept = make(map[search.Subject]keptWitnesses, len(before))
	for i := range state.Investigations {
		v := &state.Investigations[i]
		for _, q := range v.Requested {
			w.requested[q.Tracepoint] = true
		}
		old := before[v.Subject]
		now, list := w.best(v, old)
		if now != (keptWitnesses{}) {
			w.kept[v.Subject] = now
		}
		if len(list) == 0 {
			continue
		}
		if old.witnessKey != now.witnessKey && !old.requestType.IsZero() && old.requestType != now.requestType {
			all = append(all, keep{of: v.Subject, group: old.requestType, replaced: true})
		}
		all = append(all, keep{of: v.Subject, group: now.requestType, replaced: true, located: list})
	}
	clear(w.seen)
	return all
}

// best returns the state of v's witnesses, and the witnesses that replace the old ones, or nil if the old ones stay.
func (w *witnesses) best(v *search.Investigation, old keptWitnesses) (keptWitnesses, []store.Exemplar) {
	located := v.Answer() != 0
	if located && old.located || len(v.Suspects) == 0 || v.Suspects[0].Tracepoint == 0 ||
		!located && !v.Status.Active() {
		return old, nil
	}
	best, list := w.longest(v)
	switch {
	case len(list) == 0, old.tracepoint == best.tracepoint && list[0].at <= old.least:
		old.located = located && old.tracepoint == v.Suspects[0].Tracepoint
		return old, nil
	}
	now := keptWitnesses{witnessKey: best, located: located}
	if len(list) == keptPerPlace {
		now.least = list[keptPerPlace-1].at
	}
	exemplars := make([]store.Exemplar, len(list))
	for i := range list {
		exemplars[i] = list[i].Exemplar
	}
	return now, exemplars
}

// longest returns this epoch's witnesses of v's leading suspect, from the request type with the longest witness.
func (w *witnesses) longest(v *search.Investigation) (best witnessKey, list []witness) {
	tracepoint := v.Suspects[0].Tracepoint
	if _, ofIncident := v.Subject.Incident(); !ofIncident {
		best = witnessKey{tracepoint, v.RequestType}
		return best, w.seen[best]
	}
	for key, all := range w.seen {
		if key.tracepoint != tracepoint {
			continue
		}
		if list == nil || all[0].at > list[0].at ||
			all[0].at == list[0].at && key.requestType.Compare(best.requestType) < 0 {
			best, list = key, all
		}
	}
	return best, list
}
