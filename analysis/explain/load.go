package explain

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"sort"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Load is the number of requests in service over time. It is immutable and safe for concurrent use.
type Load struct{ starts, ends []trace.Nanos } // each ascending

// NewLoad returns the load caused by requests, given by their starts and durations. They should include all requests of
// a kind, not only a sample.
func NewLoad(requests iter.Seq2[trace.Nanos, time.Duration]) *Load {
	l := &Load{}
	for start, duration := range requests {
		l.starts = append(l.starts, start)
		l.ends = append(l.ends, start.Add(duration))
	}
	slices.Sort(l.starts)
	slices.Sort(l.ends)
	return l
}

// At returns the number of requests in service at t, including those that start at t but not those that end at t.
func (l *Load) At(t trace.Nanos) int {
	upTo := func(times []trace.Nanos) int {
		return sort.Search(len(times), func(i int) bool { return times[i] > t })
	}
	return upTo(l.starts) - upTo(l.ends)
}

// Limits on a [RecentLoad].
const (
	recentEpochs  = 6    // number of epochs kept, because requests are observed after they end, and out of order
	coveredEpochs = 2    // number of previous epochs that must be known to determine the load of an epoch
	epochRequests = 4096 // maximum number of requests kept per epoch; if there are more, they are a uniform sample
)

// RecentLoad is the recent load of one request type, in bounded memory. Requests are observed epoch by epoch, and the
// load depends only on the set of requests of each epoch, not on their order. RecentLoad is not safe for concurrent
// use.
type RecentLoad struct {
	open   []arrival // requests of the current epoch
	shift  uint8     // open contains the requests whose key starts with shift zero bits
	recent []epochLoad
	epochs int // number of ended epochs, at most coveredEpochs+1
}

// arrival is the part of an observed request that Close needs.
type arrival struct {
	key        uint64
	start, end trace.Nanos
}

// epochLoad is the load of the requests that were observed in one epoch.
type epochLoad struct {
	Load
	shift uint8 // see RecentLoad.shift; each request represents 1<<shift
}

// Observe adds o. It does not retain o.
func (l *RecentLoad) Observe(o *observation.Observation) {
	key := o.Key()
	if !isKept(key, l.shift) {
		return
	}
	l.open = append(l.open, arrival{key, o.Start, o.Start.Add(o.Duration)})
	for len(l.open) > epochRequests {
		l.shift++
		l.open = slices.DeleteFunc(l.open, func(a arrival) bool { return !isKept(a.key, l.shift) })
	}
}

// isKept reports whether the first shift bits of key are 0.
func isKept(key uint64, shift uint8) bool { return key>>(64-shift) == 0 }

// Close ends the current epoch.
func (l *RecentLoad) Close() {
	e := epochLoad{shift: l.shift}
	e.starts, e.ends = make([]trace.Nanos, len(l.open)), make([]trace.Nanos, len(l.open))
	for i, a := range l.open {
		e.starts[i], e.ends[i] = a.start, a.end
	}
	slices.Sort(e.starts)
	slices.Sort(e.ends)
	if len(l.recent) == recentEpochs {
		l.recent = slices.Delete(l.recent, 0, 1)
	}
	l.recent = append(l.recent, e)
	l.open, l.shift = l.open[:0], 0
	l.epochs = min(l.epochs+1, coveredEpochs+1)
}

// covers reports whether the load during the last epoch is known, because enough previous epochs were observed.
func (l *RecentLoad) covers() bool { return l.epochs > coveredEpochs }

// at returns the number of requests in service at t.
func (l *RecentLoad) at(t trace.Nanos) (n int64) {
	for i := range l.recent {
		n += l.recent[i].at(t)
	}
	return n
}

// last returns the number of requests of the last epoch that were in service at t.
func (l *RecentLoad) last(t trace.Nanos) int64 { return l.recent[len(l.recent)-1].at(t) }

// weight returns the number of requests that the request with the given key represents in the last epoch, or 0 if the
// request is not kept.
func (l *RecentLoad) weight(key uint64) int64 {
	if e := &l.recent[len(l.recent)-1]; isKept(key, e.shift) {
		return 1 << e.shift
	}
	return 0
}

// at returns the number of requests of the epoch in service at t.
func (e *epochLoad) at(t trace.Nanos) int64 { return int64(e.At(t)) << e.shift }

const recentLoadVersion = 1

// AppendBinary appends l to b.
func (l *RecentLoad) AppendBinary(b []byte) []byte {
	b = codec.AppendUvarints(append(b, recentLoadVersion), uint64(l.epochs), uint64(l.shift), uint64(len(l.open)))
	for _, a := range sorting.Sorted(slices.Values(l.open), arrival.compare) {
		b = codec.AppendWords(b, a.key, uint64(a.start), uint64(a.end))
	}
	b = codec.AppendUvarints(b, uint64(len(l.recent)))
	for i := range l.recent {
		e := &l.recent[i]
		b = codec.AppendUvarints(b, uint64(e.shift), uint64(len(e.starts)))
		for k := range e.starts {
			b = codec.AppendWords(b, uint64(e.starts[k]), uint64(e.ends[k]))
		}
	}
	return b
}

func (a arrival) compare(b arrival) int {
	return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
}

// DecodeRecentLoad decodes the output of [RecentLoad.AppendBinary] and returns the bytes after it. Errors wrap
// [codec.ErrCorrupt].
func DecodeRecentLoad(b []byte) (*RecentLoad, []byte, error) {
	d := codec.NewReader(b)
	d.Version(recentLoadVersion)
	l := &RecentLoad{epochs: int(d.Below(coveredEpochs + 2)), shift: uint8(d.Below(64))}
	for range d.Below(epochRequests + 1) {
		l.open = append(l.open, arrival{d.Word(), trace.Nanos(d.Word()), trace.Nanos(d.Word())})
	}
	d.Check(slices.IsSortedFunc(l.open, arrival.compare))
	for range d.Below(recentEpochs + 1) {
		e := epochLoad{shift: uint8(d.Below(64))}
		for range d.Below(epochRequests + 1) {
			e.starts, e.ends = append(e.starts, trace.Nanos(d.Word())), append(e.ends, trace.Nanos(d.Word()))
		}
		d.Check(slices.IsSorted(e.starts) && slices.IsSorted(e.ends))
		l.recent = append(l.recent, e)
	}
	d.Check(l.epochs == min(len(l.recent), coveredEpochs+1))
	if d.Bad() {
		return nil, nil, fmt.Errorf("%w: load", codec.ErrCorrupt)
	}
	return l, d.Rest(), nil
}
