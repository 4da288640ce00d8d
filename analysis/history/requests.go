package history

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

const (
	// longOctaves is the minimum ratio of the typical duration of long requests to the typical duration of most
	// requests, in octaves: 16 times. Long requests, such as streams, polls and batch jobs, count separately. Their
	// durations say nothing about other requests, and a few of them would make up most of the mean.
	longOctaves = 4
	// maxEntries is the maximum number of entries. Requests that would need further entries are counted together, at
	// the entry with the zero key.
	maxEntries = 4096
)

// entryKey identifies the requests that start with operation root and whose first call is to operation `first`, or 0 if
// they make no calls. The first call distinguishes streams from ordinary requests if a gateway gives both the same
// name.
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

// Requests is the history of all requests, by entry. Methods that return times or counts ignore long requests; see
// longOctaves.
type Requests struct {
	entries  map[entryKey]*entry
	total    Cells   // the requests of all entries except the long ones, with their durations
	longFrom float64 // see [LongFrom]; 0 if not yet known

	unpacked Cells // scratch
}

// entry returns the entry of key, creating it if necessary, or the entry with the zero key if there are too many.
func (q *Requests) entry(key entryKey) *entry {
	e := q.entries[key]
	if e == nil && len(q.entries) >= maxEntries && key != (entryKey{}) {
		return q.entry(entryKey{})
	}
	if e == nil {
		e = &entry{}
		q.entries[key] = e
	}
	return e
}

// add adds the requests of x to the entry of key and, unless they are long, to the total.
func (q *Requests) add(key entryKey, x Cell) {
	e := q.entry(key)
	if e.add(x); !e.long {
		q.total.Add(Cell{Slice: x.Slice, Calls: x.Calls, Nanos: x.Nanos})
	}
}

// age applies a to the entries, and deletes entries without requests. skipped holds the times when calls of any service
// are skipped. Cells before folded cover minutes.
func (q *Requests) age(a *aging, skipped Ranges, folded Slice) {
	for key, e := range q.entries {
		if e.age(a); e.empty() {
			delete(q.entries, key)
		}
	}
	if q.total = a.apply(q.total); q.classify(skipped, folded) {
		q.sumUp()
	}
}

// classify decides which entries are long, by the typical durations of the requests that were not skipped. It reports
// whether any entry became long or is no longer long.
func (q *Requests) classify(skipped Ranges, folded Slice) (changed bool) {
	var kinds []Logs
	typical := make(map[*entry]float64)
	for _, e := range q.entries {
		if k := q.notSkipped(e, skipped, folded); k.Calls > 0 {
			kinds, typical[e] = append(kinds, k), k.Octaves()
		}
	}
	q.longFrom = LongFrom(kinds)
	for e, octaves := range typical {
		long := octaves >= q.longFrom
		changed = changed || long != e.long
		e.long = long
	}
	return changed
}

// isLong reports whether the requests of key are known to be long.
func (q *Requests) isLong(key entryKey) bool {
	e := q.entries[key]
	return e != nil && e.long
}

// notSkipped returns the sum of the logarithms of the durations of the requests of e outside of skipped.
func (q *Requests) notSkipped(e *entry, skipped Ranges, folded Slice) (sum Logs) {
	rest := e.Encoded()
	if len(skipped) == 0 { // the sums of requests in complete cells are known
		_, rest, sum.Calls = e.Split(folded)
		sum.sum = e.earlierLogs
	}
	q.unpacked = rest.Decode(q.unpacked[:0])
	for _, x := range q.unpacked {
		if !skipped.Contains(x.Slice) {
			sum.Calls += uint64(x.Calls)
			sum.sum += x.logs
		}
	}
	return sum
}

// sumUp sets q.total to the requests that are not long.
func (q *Requests) sumUp() {
	q.total = nil
	for _, e := range q.entries {
		if e.long {
			continue
		}
		q.unpacked = e.Unpack(q.unpacked)
		for _, x := range q.unpacked {
			q.total.Add(Cell{Slice: x.Slice, Calls: x.Calls, Nanos: x.Nanos})
		}
	}
}

// Long reports whether requests that typically take nanos are long.
func (q *Requests) Long(nanos float64) bool { return q.longFrom > 0 && octavesOf(nanos) >= q.longFrom }

// Total returns the counts and durations of the requests by slice.
func (q *Requests) Total() Cells { return q.total }

// Since returns the start of the first slice of the history, or 0 if it is empty.
func (q *Requests) Since() trace.Nanos {
	if len(q.total) == 0 {
		return 0
	}
	return q.total[0].Slice.Start()
}

// Latest returns the end of the latest slice with requests, at most now, or 0 if there are no requests.
func (q *Requests) Latest(now trace.Nanos) trace.Nanos {
	cells := q.total.Within(Range{0, SliceOf(now) + 1})
	if len(cells) == 0 {
		return 0
	}
	return min(now, (cells[len(cells)-1].Slice + 1).Start())
}

// Minutes returns the number of minutes with traces that started before the slice of `before`.
func (q *Requests) Minutes(before trace.Nanos) int {
	n, last := 0, Slice(-1)
	for _, c := range q.total.Within(Range{0, SliceOf(before)}) {
		if m := c.Slice.minute(); m != last {
			n, last = n+1, m
		}
	}
	return n
}

// Covered returns how long there have been traces without a gap of more than two minutes, up to now. It counts whole
// minutes, and leaves out the first one, because its traces may have started at its end.
func (q *Requests) Covered(now trace.Nanos) time.Duration {
	return time.Duration(max(0, SliceOf(now).minute()-q.CoveredSince(now)-SlicesPerMinute)) * SliceLength
}

// CoveredSince returns the start of the time up to now without a gap of more than two minutes between traces: the first
// slice of its first minute.
func (q *Requests) CoveredSince(now trace.Nanos) Slice {
	current := SliceOf(now).minute()
	first := current
	for _, c := range slices.Backward(q.total.Within(Range{0, current})) {
		if c.Slice.minute() < first-2*SlicesPerMinute {
			break
		}
		first = c.Slice.minute()
	}
	return first
}

// oldest returns the first slice that the history covers, so that it covers [Span] worth of minutes that have traces
// and are not skipped. It returns 0 if there are no more minutes than that.
func (q *Requests) oldest(skipped Ranges) Slice {
	left := int(Span / time.Minute)
	minute := Slice(-1)
	for _, c := range slices.Backward(q.total) {
		if m := c.Slice.minute(); m != minute && !skipped.Contains(c.Slice) {
			minute = m
			if left--; left < 0 {
				return m + SlicesPerMinute
			}
		}
	}
	return 0
}

func (q *Requests) appendTo(b []byte) []byte {
	b = codec.AppendUvarints(codec.AppendFloats(b, q.longFrom), uint64(len(q.entries)))
	for _, key := range sorting.Sorted(maps.Keys(q.entries), entryKey.compare) {
		e := q.entries[key]
		b = codec.AppendWords(b, uint64(key.root), uint64(key.first))
		b = codec.AppendBools(b, e.long)
		b = e.appendTo(b, timed|logged)
	}
	return b
}

func (q *Requests) read(r *codec.Reader) {
	q.longFrom = r.Finite()
	for range r.Count(18) {
		key := entryKey{trace.Op(r.Word()), trace.Op(r.Word())}
		e := &entry{long: r.Bool()}
		e.pack(readCells(r, func(x *Cell) { x.Nanos, x.logs = r.Varint(), int64(r.Below(1<<63)) }))
		q.entries[key] = e
	}
	q.sumUp()
}
