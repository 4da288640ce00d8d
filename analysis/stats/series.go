package stats

import (
	"fmt"
	"iter"
	"math/bits"
	"sort"
	"time"

	"github.com/sibyl-trace/sibyl/internal/codec"
)

// Merger is a statistic with an associative and commutative Merge. Merge must not change its argument, nor retain
// memory of it that a later Merge would change. The zero value of S is the empty statistic.
type Merger[S any] interface {
	*S
	Merge(S)
}

// The shape of a Series, in ticks. A boundary between two buckets expires once its age is twice the largest power of
// two that divides its tick. So there is one boundary for every power of two, and buckets are about as wide as they are
// old. The boundaries depend only on the present tick, so they are the same in all shards.
const (
	// The only boundary at ticks not divisible by 2^fineBits is the start of the present tick, which saves buckets.
	fineBits = 2
	// The widest buckets are 2^coarseBits ticks wide. Only the last two of their boundaries exist; older data is
	// dropped.
	coarseBits = 9
	// MaxBuckets is the largest number of buckets in a Series.
	MaxBuckets = 1 + (coarseBits - fineBits) + 2
	// Tick is the width of the finest bucket.
	Tick = 10 * time.Second
)

// boundary reports whether tick t is the start of a bucket. end is the tick after the present one.
func boundary(t, end int64) bool {
	age, level := end-t, bits.TrailingZeros64(uint64(t)) // 64 for t = 0
	switch {
	case age <= 0:
		return false
	case level < fineBits:
		return age == 1
	default:
		return age <= 2<<min(level, coarseBits)
	}
}

// Bucket is a statistic over the time [From, To), in ns since the Unix epoch.
type Bucket[S any] struct {
	From, To int64
	Value    S
}

// Series is a statistic over time in at most MaxBuckets buckets: the present tick of ten seconds, then ever wider
// buckets (40 s, 80 s, … 85 min), aligned to absolute time. Its buckets depend only on the set of values added and on
// the latest time, not on the order of adding. The zero value is empty.
type Series[S any, P Merger[S]] struct {
	end     int64       // tick after the present one; 0 if the series is empty
	buckets []stored[S] // ascending, without empty ones; each extends to the next boundary
}

type stored[S any] struct {
	start int64 // the tick of a boundary
	value S
}

// tickOf returns the tick of ns, which must not be negative.
func tickOf(ns int64) int64 { return ns / int64(Tick) }

// Advance moves the present to time ns if ns is later. It merges older buckets and drops data that is too old.
func (s *Series[S, P]) Advance(ns int64) {
	if end := tickOf(ns) + 1; end > s.end {
		s.advance(end)
	}
}

// advance moves s.end to end. It merges every bucket whose start is no longer a boundary into the previous one.
func (s *Series[S, P]) advance(end int64) {
	s.end = end
	kept := s.buckets[:0]
	for _, b := range s.buckets {
		start, ok := bucketStart(b.start, end)
		switch {
		case !ok:
		case len(kept) > 0 && kept[len(kept)-1].start == start:
			P(&kept[len(kept)-1].value).Merge(b.value)
		default:
			b.start = start
			kept = append(kept, b)
		}
	}
	clear(s.buckets[len(kept):])
	s.buckets = kept
}

// bucketStart returns the last boundary at or before tick t, or false if t is older than all boundaries. end is the
// tick after the present one.
func bucketStart(t, end int64) (int64, bool) {
	for !boundary(t, end) {
		if t <= 0 {
			return 0, false
		}
		// Earlier ticks of lower levels are too old as well, so the next candidate is divisible by a larger power of
		// two.
		t &= t - 1
	}
	return t, true
}

// At returns the statistic of the bucket at time ns, or nil if ns is too old or negative. The pointer is valid until
// the next call. At first advances the series to ns if ns is later than the present.
func (s *Series[S, P]) At(ns int64) *S {
	if ns < 0 {
		return nil
	}
	s.Advance(ns)
	start, ok := bucketStart(tickOf(ns), s.end)
	if !ok {
		return nil
	}
	i := sort.Search(len(s.buckets), func(i int) bool { return s.buckets[i].start >= start })
	if i == len(s.buckets) || s.buckets[i].start != start {
		s.buckets = append(s.buckets, stored[S]{})
		copy(s.buckets[i+1:], s.buckets[i:])
		s.buckets[i] = stored[S]{start: start}
	}
	return &s.buckets[i].value
}

// Buckets yields the non-empty buckets, oldest first. The values belong to the series.
func (s *Series[S, P]) Buckets() iter.Seq[Bucket[S]] {
	return func(yield func(Bucket[S]) bool) {
		for _, b := range s.buckets {
			if !yield(Bucket[S]{b.start * int64(Tick), s.next(b.start) * int64(Tick), b.value}) {
				return
			}
		}
	}
}

// next returns the boundary after tick t.
func (s *Series[S, P]) next(t int64) int64 {
	for u := t + 1; u < s.end; {
		if boundary(u, s.end) {
			return u
		}
		if u&(1<<fineBits-1) != 0 {
			u++
		} else {
			u += u & -u // the next tick of a higher level: lower levels in between are too old, like u
		}
	}
	return s.end
}

const seriesVersion = 1

// AppendBinary appends s to b. It uses appendValue to append each statistic.
func (s *Series[S, P]) AppendBinary(b []byte, appendValue func([]byte, *S) []byte) []byte {
	b = append(b, seriesVersion)
	b = codec.AppendUvarints(b, uint64(s.end))
	b = codec.AppendUvarints(b, uint64(len(s.buckets)))
	for i := range s.buckets {
		b = codec.AppendUvarints(b, uint64(s.end-s.buckets[i].start))
		b = appendValue(b, &s.buckets[i].value)
	}
	return b
}

// DecodeSeries decodes the output of AppendBinary and returns the bytes after it. decodeValue decodes a statistic and
// returns the bytes after it. Errors wrap [codec.ErrCorrupt].
func DecodeSeries[S any, P Merger[S]](
	b []byte, decodeValue func([]byte) (S, []byte, error),
) (Series[S, P], []byte, error) {
	d := codec.NewReader(b)
	d.Version(seriesVersion)
	s := Series[S, P]{end: int64(d.Below(1 << 40))}
	for range d.Below(MaxBuckets + 1) {
		start := s.end - int64(d.Below(uint64(s.end)+1))
		v := codec.Read(d, decodeValue)
		if d.Bad() || !boundary(start, s.end) || len(s.buckets) > 0 && start <= s.buckets[len(s.buckets)-1].start {
			d.Fail()
			break
		}
		s.buckets = append(s.buckets, stored[S]{start, v})
	}
	if d.Bad() {
		return Series[S, P]{}, nil, fmt.Errorf("%w: series", codec.ErrCorrupt)
	}
	return s, d.Rest(), nil
}
