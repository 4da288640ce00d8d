package group

import (
	"math"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/internal/codec"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

const (
	// Tick is the length of the shortest windows.
	Tick = stats.Tick
	// Period is the length of the windows that outlive the history of a group: five minutes and twenty seconds, 270 a
	// day. It is a power of two times the tick of the history, so that no bucket of the history holds requests of two
	// periods until the second period has ended.
	Period = 32 * stats.Tick
	// LongPeriod is the length of the windows that are kept for longer, 90 a day.
	LongPeriod = 3 * Period
	// Day is the length of a day in UTC.
	Day = 24 * time.Hour
)

// PeriodOf returns the start of the period that the requests of an epoch belong to. epoch is the end of that epoch.
func PeriodOf(epoch trace.Nanos) trace.Nanos {
	last := trace.Nanos(lastOf(epoch))
	return last - last%trace.Nanos(Period)
}

// InPeriod sets p to the requests of the period that starts at from, without their edges. That period must be the
// period of the last epoch (see [PeriodOf]), because the history joins earlier periods.
func (group *Group) InPeriod(from trace.Nanos, p *Past) {
	*p = Past{Edges: p.Edges[:0], Latency: Latencies{counts: p.Latency.counts[:0]}}
	for b := range group.history.Buckets() {
		if b.From >= int64(from) {
			p.Merge(Past{Total: b.Value.Total, Failed: b.Value.Failed, Latency: b.Value.Latency})
		}
	}
}

// Numbers holds statistics of the requests of a group in [From, To), a window of its past.
type Numbers struct {
	From, To      trace.Nanos
	Count, Failed uint64
	Mean          float64 // ns
	CoV           float64 // NaN for fewer than two requests
	P50, P99      float64 // ns, interpolated in the bins of [Latencies]
}

// Numbers returns the statistics of p, whose requests arrived in [from, to). p must not be empty.
func (p *Past) Numbers(from, to trace.Nanos) Numbers {
	return Numbers{
		From:   from,
		To:     to,
		Count:  p.Total.N,
		Failed: p.Failed,
		Mean:   p.Total.Mean(),
		CoV:    p.Total.CoV(),
		P50:    p.Latency.Quantile(0.5),
		P99:    p.Latency.Quantile(0.99),
	}
}

// Quantile estimates the q-quantile in ns by interpolation in its bin, but at most the longest duration. It is NaN if l
// is empty.
func (l *Latencies) Quantile(q float64) float64 {
	total, high := 0., math.NaN()
	for _, n := range l.counts {
		total += float64(n)
	}
	left := q * total
	for bin, n := range l.All() {
		low := float64(bin[0])
		high = min(float64(bin[1]), max(low, float64(l.longest)))
		if left <= float64(n) {
			return low + (high-low)*left/float64(n)
		}
		left -= float64(n)
	}
	return high
}

// DecodePast returns the Past that [Past.AppendBinary] encoded. It rejects an empty Past. Errors wrap
// [codec.ErrCorrupt].
func DecodePast(b []byte) (Past, error) {
	p, rest, err := decodePast(b)
	if err == nil && (len(rest) > 0 || p.Total.N == 0) {
		return Past{}, codec.ErrCorrupt
	}
	return p, err
}

// longPeriods is the number of long periods of a day.
const longPeriods = uint64(Day / LongPeriod)

const numbersVersion = 1

// AppendDay appends the encoding of all, the statistics of the long periods of a day, to b. all must be in ascending
// order of time.
func AppendDay(b []byte, all []Numbers) []byte {
	w := codec.NewWriter(append(b, numbersVersion))
	w.Uvarints(uint64(len(all)))
	for i := range all {
		x := &all[i]
		w.Uvarints(uint64(x.From)%uint64(Day)/uint64(LongPeriod), x.Count, x.Failed)
		w.Uvarints(levelOf(x.Mean), levelOf(x.CoV*covUnit), levelOf(x.P50), levelOf(x.P99))
	}
	return w.B
}

// DecodeDay returns the statistics that AppendDay encoded for the day that starts at day. Times are accurate to 0.05 %.
// Errors wrap [codec.ErrCorrupt].
func DecodeDay(b []byte, day trace.Nanos) ([]Numbers, error) {
	r := codec.NewReader(b)
	r.Version(numbersVersion)
	var all []Numbers
	for range r.Below(longPeriods + 1) {
		from := day.Add(time.Duration(r.Below(longPeriods)) * LongPeriod)
		x := Numbers{From: from, To: from.Add(LongPeriod), Count: r.Uvarint(), Failed: r.Uvarint()}
		x.Mean, x.CoV = nanosOf(r.Below(levels)), nanosOf(r.Below(levels))/covUnit
		x.P50, x.P99 = nanosOf(r.Below(levels)), nanosOf(r.Below(levels))
		r.Check(x.Count > 0 && x.Failed <= x.Count && (len(all) == 0 || from > all[len(all)-1].From))
		if r.Bad() {
			return nil, codec.ErrCorrupt
		}
		all = append(all, x)
	}
	if r.Bad() || r.Len() > 0 {
		return nil, codec.ErrCorrupt
	}
	return all, nil
}

// Levels are times on a logarithmic scale, in steps of 0.07 %. 0 means unknown.
const (
	levels          = 1 << 16
	levelsPerOctave = 1024
	covUnit         = 1e6 // a CoV of 1 is stored as a millisecond
)

func levelOf(nanos float64) uint64 {
	if !(nanos >= 0) {
		return 0
	}
	return uint64(min(levels-1, 1+math.Round(levelsPerOctave*math.Log2(1+nanos))))
}

func nanosOf(level uint64) float64 {
	if level == 0 {
		return math.NaN()
	}
	return math.Exp2(float64(level-1)/levelsPerOctave) - 1
}
