package history

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/trace"
)

const (
	// longOctaves is the minimum ratio of the typical duration of long requests to the typical duration of most
	// requests, in octaves: 16 times. Long requests, such as streams, polls and batch jobs, count separately. Their
	// durations say nothing about others, and a few of them would make up most of the mean.
	longOctaves = 4
	// maxEntries bounds the entries. Requests of further entries count together, at the entry without operations.
	maxEntries = 4096
)

// entryKey identifies the requests that start with one operation and call another one first, or 0 if they call nothing.
// The first call tells streams from ordinary requests if a gateway gives both the same name.
type entryKey struct{ root, first trace.Op }

func (k entryKey) compare(o entryKey) int {
	return cmp.Or(cmp.Compare(k.root, o.root), cmp.Compare(k.first, o.first))
}

// entryOf returns the key of the requests that start with node root of p.
func entryOf(p *critpath.Path, root int32) entryKey {
	k := entryKey{root: p.Nodes[root].Step}
	for i, last := p.Children(root); i < last; i++ {
		if p.Span(i).Tracepoint == 0 { // tracepoints are not always on
			k.first = p.Nodes[i].Step
			break
		}
	}
	return k
}

// entry holds the requests of one key, with their durations.
type entry struct {
	Counts
	long bool // see longOctaves
}

// entry returns the entry of key, which it adds if needed, or the entry without operations if there are too many.
func (h *Sites) entry(key entryKey) *entry {
	e := h.entries[key]
	if e == nil && len(h.entries) >= maxEntries && key != (entryKey{}) {
		return h.entry(entryKey{})
	}
	if e == nil {
		e = &entry{}
		h.entries[key] = e
	}
	return e
}

// classify decides which entries are long, by the typical durations of the requests that were not skipped. It reports
// whether any entry became long or is no longer long.
func (h *Sites) classify() (changed bool) {
	var kinds []Logs
	typical, skipped := make(map[*entry]float64), h.skipped.all()
	for _, e := range h.entries {
		if k := h.notSkipped(e, skipped); k.Calls > 0 {
			kinds, typical[e] = append(kinds, k), k.Octaves()
		}
	}
	h.longFrom = LongFrom(kinds)
	for e, octaves := range typical {
		long := octaves >= h.longFrom
		changed = changed || long != e.long
		e.long = long
	}
	return changed
}

// notSkipped returns the durations of the requests of e outside of skipped.
func (h *Sites) notSkipped(e *entry, skipped Ranges) (sum Logs) {
	rest := e.Encoded()
	if len(skipped) == 0 { // the sums of requests in complete cells are known
		_, rest, sum.Calls = e.Split(h.folded)
		sum.sum = e.earlierLogs
	}
	h.unpacked = rest.Decode(h.unpacked[:0])
	for _, x := range h.unpacked {
		if !skipped.Contains(x.Slice) {
			sum.Calls += uint64(x.Calls)
			sum.sum += x.logs
		}
	}
	return sum
}

// sumUp sets h.total to the requests that are not long.
func (h *Sites) sumUp() {
	h.total = nil
	for _, e := range h.entries {
		if e.long {
			continue
		}
		h.unpacked = e.Unpack(h.unpacked)
		for _, x := range h.unpacked {
			h.total.Add(Cell{Slice: x.Slice, Calls: x.Calls, Nanos: x.Nanos})
		}
	}
}

// addRequests adds the requests of x to the entry of key and, unless they are long, to h.total.
func (h *Sites) addRequests(key entryKey, x Cell) {
	e := h.entry(key)
	if e.add(x); !e.long {
		h.total.Add(Cell{Slice: x.Slice, Calls: x.Calls, Nanos: x.Nanos})
	}
}

// ageEntries applies a to the entries, and deletes entries without requests.
func (h *Sites) ageEntries(a *aging) {
	for key, e := range h.entries {
		if e.age(a); e.empty() {
			delete(h.entries, key)
		}
	}
	if h.total = a.apply(h.total); h.classify() {
		h.sumUp()
	}
}

// Long reports whether the requests with calls at site `number` are long, and returns their typical duration in ns if
// they are. Their times are then measured by it, not by the duration of other requests.
func (h *Sites) Long(number int32) (nanos float64, long bool) {
	s := &h.series[number]
	within := Logs{s.requests, s.within}
	if s.requests == 0 || h.longFrom == 0 || within.Octaves() < h.longFrom {
		return 0, false
	}
	return within.Nanos(), true
}

// Typical returns the typical duration of the requests with calls at site `number`, or 0 without requests.
func (h *Sites) Typical(number int32) time.Duration {
	s := &h.series[number]
	if s.requests == 0 {
		return 0
	}
	within := Logs{s.requests, s.within}
	return time.Duration(within.Nanos())
}

// stillOpen is the number of typical durations that requests may go on for. We don't know requests until they end.
const stillOpen = 4

// StillOpen returns how long requests with calls at site `number` may go on, and so be unknown.
func (h *Sites) StillOpen(number int32) time.Duration { return stillOpen * h.Typical(number) }

func (h *Sites) appendEntries(b []byte) []byte {
	b = codec.AppendUvarints(b, uint64(len(h.entries)))
	for _, key := range slices.SortedFunc(maps.Keys(h.entries), entryKey.compare) {
		e := h.entries[key]
		b = codec.AppendWords(b, uint64(key.root), uint64(key.first))
		b = codec.AppendBools(b, e.long)
		b = e.appendTo(b, timed|logged)
	}
	return b
}

func (h *Sites) readEntries(r *codec.Reader) {
	for range r.Count(18) {
		key := entryKey{trace.Op(r.Word()), trace.Op(r.Word())}
		e := &entry{long: r.Bool()}
		e.pack(readCells(r, func(x *Cell) {
			x.Nanos = r.Varint()
			x.logs = int64(r.Below(1 << 63))
		}))
		h.entries[key] = e
	}
	h.sumUp()
}
