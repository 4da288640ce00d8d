package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/trace"
)

// Windows of the past are ordered by day, then by group, so that one range deletion deletes a day, and one scan reads
// the windows of a group on a day:
//
// 	keyPeriods day group number  the requests in a period of group.Period, with a histogram
// 	keyDays    day group         statistics of the periods of group.LongPeriod
//
// Pack replaces periods with long ones.

// Past keeps the windows of groups.
type Past struct{ db database }

// dayKey returns the key prefix, with first as its first byte, of the UTC day that contains the time day.
func dayKey(first byte, day trace.Nanos) []byte {
	return binary.BigEndian.AppendUint32([]byte{first}, uint32(max(0, day)/trace.Nanos(group.Day)))
}

// pastKey returns the key, with first as its first byte, of the group with the given id on the UTC day that contains
// the time day.
func pastKey(first byte, day trace.Nanos, id analysis.Hash) []byte {
	return appendHash(dayKey(first, day), id)
}

const (
	pastKeySize   = 1 + 4 + hashSize
	periodKeySize = pastKeySize + 2
)

// periodKey returns the key of the group with the given id in the period that starts at `from`.
func periodKey(from trace.Nanos, id analysis.Hash) []byte {
	number := from % trace.Nanos(group.Day) / trace.Nanos(group.Period)
	return binary.BigEndian.AppendUint16(pastKey(keyPeriods, from, id), uint16(number))
}

// dayOf and groupOf return the day and the group of key. periodOf returns the start of its period.
func dayOf(key []byte) trace.Nanos {
	return trace.Nanos(binary.BigEndian.Uint32(key[1:])) * trace.Nanos(group.Day)
}

func groupOf(key []byte) analysis.Hash { return hashAt(key[1+4:]) }

func periodOf(key []byte) trace.Nanos {
	return dayOf(key) + trace.Nanos(binary.BigEndian.Uint16(key[pastKeySize:]))*trace.Nanos(group.Period)
}

// Period holds the encoded requests of groups in one period.
type Period struct {
	from   trace.Nanos
	groups []analysis.Hash
	ends   []int // by group: end of its value in values
	values []byte
}

// NewPeriod encodes all, the requests by group in the period that starts at `from`.
func NewPeriod(from trace.Nanos, all iter.Seq2[analysis.Hash, *group.Past]) *Period {
	p := &Period{from: from}
	for id, past := range all {
		p.values = past.AppendBinary(p.values)
		p.groups, p.ends = append(p.groups, id), append(p.ends, len(p.values))
	}
	return p
}

// Put stores period, replacing the stored requests of its groups in the same period. The period becomes durable with
// the next checkpoint.
func (p Past) Put(period *Period) error {
	err := p.db.commit(pebble.NoSync, func(b *pebble.Batch) error {
		begin := 0
		for i, id := range period.groups {
			value := period.values[begin:period.ends[i]]
			begin = period.ends[i]
			if err := b.Set(periodKey(period.from, id), value, nil); err != nil {
				return err
			}
			if err := commitLarge(b); err != nil {
				return err
			}
		}
		return nil
	})
	return during("store windows", err)
}

// Windows returns the windows of the group with the given id that overlap [from, to), oldest first. They have their
// stored length or, if long is true, the length [group.LongPeriod].
func (p Past) Windows(id analysis.Hash, from, to trace.Nanos, long bool) ([]group.Numbers, error) {
	var all []group.Numbers
	from = max(0, from)
	for day := from - from%trace.Nanos(group.Day); day < to; day = day.Add(group.Day) {
		of, err := p.day(id, day, long)
		if err != nil {
			return nil, fmt.Errorf("read windows: %w", err)
		}
		all = append(all, of...)
	}
	return slices.DeleteFunc(all, func(x group.Numbers) bool { return x.To <= from || x.From >= to }), nil
}

// day returns the windows of the group with the given id on day, joined into long windows if long is true.
func (p Past) day(id analysis.Hash, day trace.Nanos, long bool) ([]group.Numbers, error) {
	x := packer{long: long}
	err := p.eachPeriod(id, day, x.add)
	if x.end(); err != nil || len(x.all) > 0 {
		return x.all, err
	}
	value, err := p.db.get(pastKey(keyDays, day, id))
	if err != nil || value == nil {
		return nil, err
	}
	return group.DecodeDay(value, day)
}

// eachPeriod calls f for each period of the group with the given id on day.
func (p Past) eachPeriod(id analysis.Hash, day trace.Nanos, f func(key, value []byte) error) error {
	first := pastKey(keyPeriods, day, id)
	return p.db.between(first, append(slices.Clone(first), 255, 255), f)
}

// Periods returns the requests of the group with the given id in the periods of [group.Period] that overlap [from, to),
// oldest first. It omits packed periods.
func (p Past) Periods(id analysis.Hash, from, to trace.Nanos) (all []group.PastWindow, err error) {
	from = max(0, from)
	for day := from - from%trace.Nanos(group.Day); day < to; day = day.Add(group.Day) {
		err = errors.Join(err, p.eachPeriod(id, day, func(key, value []byte) error {
			at, past, err := decodePeriod(key, value)
			if err == nil && at.Add(group.Period) > from && at < to {
				all = append(all, group.PastWindow{From: at, To: at.Add(group.Period), Past: past})
			}
			return err
		}))
	}
	if err != nil {
		return nil, fmt.Errorf("read windows: %w", err)
	}
	return all, nil
}

// decodePeriod returns the start of a stored period and its requests.
func decodePeriod(key, value []byte) (from trace.Nanos, past group.Past, err error) {
	if len(key) != periodKeySize {
		return 0, group.Past{}, fmt.Errorf("%w: key of a window of %d bytes", codec.ErrCorrupt, len(key))
	}
	past, err = group.DecodePast(value)
	return periodOf(key), past, err
}

// packer converts the stored periods of a group on one day into windows.
type packer struct {
	long bool // whether to join periods into long windows
	from trace.Nanos
	past group.Past // requests of the window that starts at `from`
	all  []group.Numbers
}

func (p *packer) add(key, value []byte) error {
	from, past, err := decodePeriod(key, value)
	if err != nil {
		return err
	}
	if p.long {
		from -= from % trace.Nanos(group.LongPeriod)
	}
	if from != p.from {
		p.end()
	}
	p.from = from
	p.past.Merge(past)
	return nil
}

// end adds the current window to all, unless it is empty.
func (p *packer) end() {
	if p.past.Total.N == 0 {
		return
	}
	length := group.Period
	if p.long {
		length = group.LongPeriod
	}
	p.all = append(p.all, p.past.Numbers(p.from, p.from.Add(length)))
	p.past = group.Past{}
}

// Pack joins the windows of all days that ended by the given time into windows of [group.LongPeriod]. Packing a day
// again changes nothing.
func (p Past) Pack(ended trace.Nanos) error {
	for {
		first, err := p.db.first([]byte{keyPeriods}, []byte{keyPeriods + 1})
		if err != nil || first == nil || dayOf(first).Add(group.Day) > ended {
			return err
		}
		if err := p.packDay(dayOf(first)); err != nil {
			return fmt.Errorf("pack windows: %w", err)
		}
	}
}

func (p Past) packDay(day trace.Nanos) error {
	from, to := dayKey(keyPeriods, day), dayKey(keyPeriods, day.Add(group.Day))
	return p.db.commit(pebble.NoSync, func(b *pebble.Batch) error {
		of, x := analysis.Hash{}, packer{long: true}
		flush := func() error {
			if x.end(); len(x.all) == 0 {
				return nil
			}
			if err := b.Set(pastKey(keyDays, day, of), group.AppendDay(nil, x.all), nil); err != nil {
				return err
			}
			x.all = x.all[:0]
			return commitLarge(b)
		}
		err := p.db.between(from, to, func(key, value []byte) error {
			if len(key) == periodKeySize && groupOf(key) != of {
				if err := flush(); err != nil {
					return err
				}
				of = groupOf(key)
			}
			return x.add(key, value)
		})
		if err := errors.Join(err, flush()); err != nil {
			return err
		}
		return b.DeleteRange(from, to, nil)
	})
}

// PastDay is a day with stored windows.
type PastDay struct {
	Day  trace.Nanos
	Size int64 // approximate size on disk in bytes
}

// Days returns the days with stored windows, oldest first.
func (p Past) Days() ([]PastDay, error) {
	sizes := make(map[trace.Nanos]int64)
	for _, first := range []byte{keyPeriods, keyDays} {
		if err := p.addSizes(first, sizes); err != nil {
			return nil, fmt.Errorf("read the days of windows: %w", err)
		}
	}
	var days []PastDay
	for _, day := range slices.Sorted(maps.Keys(sizes)) {
		days = append(days, PastDay{day, sizes[day]})
	}
	return days, nil
}

// addSizes adds the sizes of the windows under first to sizes, by day.
func (p Past) addSizes(first byte, sizes map[trace.Nanos]int64) error {
	for from := []byte{first}; ; {
		key, err := p.db.first(from, []byte{first + 1})
		if err != nil || key == nil {
			return err
		}
		day := dayOf(key)
		from = dayKey(first, day.Add(group.Day))
		n, err := p.db.EstimateDiskUsage(dayKey(first, day), from)
		if err != nil {
			return err
		}
		sizes[day] += int64(n)
	}
}

// DeleteBefore deletes the windows of all days that ended by time at.
func (p Past) DeleteBefore(at trace.Nanos) error {
	err := p.db.commit(pebble.NoSync, func(b *pebble.Batch) error {
		return errors.Join(
			b.DeleteRange(dayKey(keyPeriods, 0), dayKey(keyPeriods, at), nil),
			b.DeleteRange(dayKey(keyDays, 0), dayKey(keyDays, at), nil),
		)
	})
	return during("delete windows", err)
}
