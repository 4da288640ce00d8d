package group

import (
	"iter"
	"math"
	"math/bits"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/internal/codec"
	"github.com/sibyl-trace/sibyl/analysis/stats"
)

// Latencies counts durations in coarse bins, four per octave. The bins are precise enough for a histogram of the past.
// The zero value is empty. Counts are exact, so the order of merging doesn't matter.
type Latencies struct {
	first   uint8    // number of the first bin; 0 without counts
	counts  []uint64 // of the bins from first on; the first and the last count are positive
	longest int64    // ns, the longest duration
}

// latencyBins is the number of bins.
const latencyBins = 4 * 60

// latencyBin returns the number of the bin of ns. The first bin also holds all shorter durations, and the last bin all
// longer ones.
func latencyBin(ns int64) uint8 {
	octave := max(2, bits.Len64(uint64(max(0, ns)))-1)
	return uint8(min(latencyBins-1, 4*(octave-2)+int(max(4, ns>>(octave-2)))&3))
}

// latencyLow returns the shortest duration in bin, in ns.
func latencyLow(bin uint8) int64 { return int64(4+bin%4) << (bin / 4) }

// All yields the non-empty bins in ascending order, as ranges [low, high) in ns with their counts.
func (l *Latencies) All() iter.Seq2[[2]int64, uint64] {
	return func(yield func([2]int64, uint64) bool) {
		for i, n := range l.counts {
			bin := l.first + uint8(i)
			if n > 0 && !yield([2]int64{latencyLow(bin), latencyLow(bin + 1)}, n) {
				return
			}
		}
	}
}

// Add counts n durations of ns nanoseconds.
func (l *Latencies) Add(ns int64, n uint64) {
	l.add(latencyBin(ns), n)
	if n > 0 {
		l.longest = max(l.longest, ns)
	}
}

func (l *Latencies) add(bin uint8, n uint64) {
	switch last := l.first + uint8(len(l.counts)); {
	case n == 0:
		return
	case len(l.counts) == 0:
		l.first, l.counts = bin, append(l.counts, 0)
	case bin < l.first:
		l.counts = slices.Insert(l.counts, 0, make([]uint64, l.first-bin)...)
		l.first = bin
	case bin >= last:
		l.counts = append(l.counts, make([]uint64, bin-last+1)...)
	}
	l.counts[bin-l.first] += n
}

// AtLeast returns the number of durations of ns nanoseconds or more. It assumes that the durations in a bin are spread
// evenly, up to the longest duration.
func (l *Latencies) AtLeast(ns int64) (n uint64) {
	for bin, count := range l.All() {
		low, high := bin[0], min(bin[1], l.longest+1)
		switch {
		case low >= ns:
			n += count
		case high > ns:
			n += uint64(math.Round(float64(count) * float64(high-ns) / float64(high-low)))
		}
	}
	return n
}

// Equal reports whether l and o have the same counts and the same longest duration.
func (l Latencies) Equal(o Latencies) bool {
	return l.first == o.first && l.longest == o.longest && slices.Equal(l.counts, o.counts)
}

// merge adds the counts of o.
func (l *Latencies) merge(o *Latencies) {
	for i, n := range o.counts {
		l.add(o.first+uint8(i), n)
	}
	l.longest = max(l.longest, o.longest)
}

// set replaces the counts with the counts of s, at the upper limits of its bins or, if that is less, at its longest
// duration.
func (l *Latencies) set(s *stats.Sketch) {
	l.first, l.counts, l.longest = 0, l.counts[:0], 0
	for limit, n := range s.Bins() {
		l.Add(min(limit, s.Longest()), n)
	}
}

func writeLatencies(e *codec.Writer, l *Latencies) {
	if len(l.counts) == 0 {
		e.Uvarints(0, 0)
		return
	}
	e.Uvarints(uint64(l.first), uint64(len(l.counts)))
	e.Uvarints(l.counts...)
	e.Uvarints(uint64(l.longest))
}

func readLatencies(d *codec.Reader) (l Latencies) {
	first := d.Uvarint()
	for range d.Below(latencyBins + 1) {
		l.counts = append(l.counts, d.Uvarint())
	}
	n := len(l.counts)
	if d.Bad() || first+uint64(n) > latencyBins || n == 0 && first != 0 ||
		n > 0 && (l.counts[0] == 0 || l.counts[n-1] == 0) {
		d.Fail()
		return Latencies{}
	}
	l.first = uint8(first)
	if n > 0 {
		last := l.first + uint8(n) - 1
		l.longest = int64(d.Below(math.MaxInt64))
		d.Check(latencyBin(l.longest) == last)
	}
	return l
}
