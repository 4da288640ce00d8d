package engine

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Limits on the requests that are kept for comparisons. A kept request takes 2 to 4 kB.
const (
	mostNewlyKept = 512 // maximum number of requests added between two calls of take
	keptOfType    = 8   // average number of requests per type if there are as many types as allowed
	keptStratum   = 10 * time.Minute
	keptFor       = 3 * time.Hour
	mostOfStrata  = 64 // maximum number of requests of a type in a stratum
)

// Kept holds a stratified sample of recent requests of all request types. Each stratum of time has room for the same
// number of requests, so that any requests can be compared with any others, including requests from before a problem or
// of types without one. Kept isn't part of the saved state because no decision depends on it.
type Kept struct {
	table    *trace.Table
	problems *Problems
	types    map[analysis.Hash]map[trace.Nanos]*stats.Sample[keptRequest] // by request type and start of stratum
	most     int                                                          // approximate maximum over all types
	// maximum number of requests of a type in a stratum
	size  int
	added []Recorded
}

// Recorded identifies a trace and the journal records that contain its spans.
type Recorded struct {
	Trace   trace.ID
	Records []uint64
}

// keptRequest is a request without its contexts, to save memory.
type keptRequest struct {
	*observation.Observation
	group analysis.Hash // zero if it has no group
}

func newKept(table *trace.Table, problems *Problems, most int) *Kept {
	return &Kept{
		table:    table,
		problems: problems,
		most:     most,
		types:    make(map[analysis.Hash]map[trace.Nanos]*stats.Sample[keptRequest]),
		size:     mostOfStrata,
	}
}

// observe adds o, unless the sample rejects it or there are too many types. group may be nil.
func (k *Kept) observe(requestType, group *group.Group, o *observation.Observation) {
	strata := k.types[requestType.ID]
	if strata == nil {
		if len(k.types) >= k.most/keptOfType {
			return
		}
		strata = make(map[trace.Nanos]*stats.Sample[keptRequest])
		k.types[requestType.ID] = strata
	}
	from := o.Start - o.Start%trace.Nanos(keptStratum)
	s := strata[from]
	if s == nil {
		if len(strata) > int(keptFor/keptStratum)+1 { // start times from wrong clocks
			return
		}
		s = new(stats.NewSample[keptRequest](k.size))
		strata[from] = s
	}
	key := o.Key()
	if !s.Accepts(key) {
		return
	}
	x := keptRequest{Observation: &observation.Observation{
		Trace:     o.Trace,
		Root:      o.Root,
		Start:     o.Start,
		Duration:  o.Duration,
		Entry:     o.Entry,
		Failed:    o.Failed,
		Plan:      o.Plan,
		Arm:       o.Arm,
		Edges:     slices.Clone(o.Edges),
		Variables: slices.Clone(o.Variables),
		Skeleton:  o.Skeleton,
	}}
	if group != nil {
		x.group = group.ID
	}
	s.Add(key, x)
	if len(o.Records) > 0 && len(k.added) < mostNewlyKept {
		k.added = append(k.added, Recorded{o.Trace, slices.Clone(o.Records)})
	}
}

// take returns the traces of the requests added since the last call; see [Core.NewlyKept].
func (k *Kept) take() []Recorded {
	added := k.added
	k.added = nil
	return added
}

// endEpoch deletes old requests and unknown request types, and divides the room equally among the remaining types.
func (k *Kept) endEpoch(now trace.Nanos, known func(analysis.Hash) bool) {
	maps.DeleteFunc(k.types, func(id analysis.Hash, strata map[trace.Nanos]*stats.Sample[keptRequest]) bool {
		maps.DeleteFunc(strata, func(from trace.Nanos, _ *stats.Sample[keptRequest]) bool {
			return from.Add(keptStratum) < now.Add(-keptFor) || from > now.Add(keptStratum)
		})
		return len(strata) == 0 || !known(id)
	})
	size := min(mostOfStrata, max(1, k.most/max(1, len(k.types)*int(keptFor/keptStratum))))
	if size == k.size {
		return
	}
	k.size = size
	for _, strata := range k.types {
		for _, s := range strata {
			s.Resize(size)
		}
	}
}

// appendNames appends to b the names mentioned by the requests; see [trace.Table.Forget].
func (k *Kept) appendNames(b []byte) []byte {
	for _, strata := range k.types {
		for _, s := range strata {
			for _, x := range s.All() {
				b = codec.AppendWords(b, uint64(x.Entry))
				for i := range x.Edges {
					b = codec.AppendWords(b, uint64(x.Edges[i].Edge))
				}
				for i := range x.Variables {
					v := &x.Variables[i]
					b = codec.AppendWords(b, uint64(v.Context), uint64(v.Key), uint64(v.Text))
				}
			}
		}
	}
	return b
}

// Of returns requests of g, a group or request type, in pseudo-random order: the sample of g, if g has a problem, and
// the requests kept in the last few hours, which lack contexts.
func (k *Kept) Of(g *group.Group) []*observation.Observation {
	all := k.problems.Sampled(g.ID)
	seen := make(map[uint64]bool, len(all))
	for _, o := range all {
		seen[o.Key()] = true
	}
	strata := k.types[g.RequestType]
	for _, from := range slices.Sorted(maps.Keys(strata)) {
		for key, x := range strata[from].All() {
			if (g.Level == group.LevelRequestType || x.group == g.ID) && !seen[key] {
				all = append(all, x.Observation)
			}
		}
	}
	sorting.Slice(all, func(a, b *observation.Observation) int { return cmp.Compare(a.Key(), b.Key()) })
	return all
}

// Frequencies compares the attributes of a and b, disjoint sets of requests returned by Of; see [explain.Frequencies].
func (k *Kept) Frequencies(group analysis.Hash, a, b []*observation.Observation) []explain.Frequency {
	if s := k.problems.causes.samples[group]; s != nil {
		return s.Frequencies(a, b, k.table)
	}
	return explain.Frequencies(a, b, k.table, explain.Options{})
}
