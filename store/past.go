package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/trace"
)

// Windows of the past are ordered by day, then by group. A day can thus be deleted with one range deletion, and the
// windows of a group on a day can be read with one scan:
//
// 	keyPeriods day group number  the requests in a period of group.Period, with a histogram
// 	keyDays    day group         statistics of the periods of group.LongPeriod
//
// PackDays replaces the former by the latter.

// dayKey returns the key prefix under first of the UTC day that contains the time day.
func dayKey(first byte, day trace.Nanos) []byte {
	return binary.BigEndian.AppendUint32([]byte{first}, uint32(max(0, day)/trace.Nanos(group.Day)))
}

// pastKey returns the key under first of the group id on the day that contains the time day.
func pastKey(first byte, day trace.Nanos, id analysis.Hash) []byte {
	key := binary.BigEndian.AppendUint64(dayKey(first, day), id.Hi)
	return binary.BigEndian.AppendUint64(key, id.Lo)
}

const (
	pastKeySize   = 1 + 4 + 16
	periodKeySize = pastKeySize + 2
)

// periodKey returns the key of the group id in the period that starts at `from`.
func periodKey(from trace.Nanos, id analysis.Hash) []byte {
	return binary.BigEndian.AppendUint16(pastKey(keyPeriods, from, id), uint16(from%trace.Nanos(group.Day)/trace.Nanos(group.Period)))
}

// dayOf and groupOf return the day and the group of key. periodOf returns the start of its period.
func dayOf(key []byte) trace.Nanos {
	return trace.Nanos(binary.BigEndian.Uint32(key[1:])) * trace.Nanos(group.Day)
}

func groupOf(key []byte) analysis.Hash {
	return analysis.Hash{Hi: binary.BigEndian.Uint64(key[5:]), Lo: binary.BigEndian.Uint64(key[13:])}
}

func periodOf(key []byte) trace.Nanos {
	return dayOf(key) + trace.Nanos(binary.BigEndian.Uint16(key[pastKeySize:]))*trace.Nanos(group.Period)
}

// batchBytes is the size at which a batch of windows is committed.
const batchBytes = 1 << 20

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

// PutPeriod stores p and replaces what is stored for its groups in the same period. They are durable once the next
// checkpoint is.
func (s *Store) PutPeriod(p *Period) error {
	b := s.db.NewBatch()
	defer func() { _ = b.Close() }() // after the commit, this does nothing
	begin := 0
	for i, id := range p.groups {
		value := p.values[begin:p.ends[i]]
		begin = p.ends[i]
		if err := b.Set(periodKey(p.from, id), value, nil); err != nil {
			return err
		}
		if b.Len() < batchBytes {
			continue
		}
		if err := b.Commit(pebble.NoSync); err != nil {
			return fmt.Errorf("store windows: %w", err)
		}
		b.Reset()
	}
	if err := b.Commit(pebble.NoSync); err != nil {
		return fmt.Errorf("store windows: %w", err)
	}
	return nil
}

// Windows returns the windows of the group id that overlap [from, to), oldest first. They have their stored length or,
// if long is true, the length [group.LongPeriod].
func (s *Store) Windows(id analysis.Hash, from, to trace.Nanos, long bool) ([]group.Numbers, error) {
	var all []group.Numbers
	from = max(0, from)
	for day := from - from%trace.Nanos(group.Day); day < to; day = day.Add(group.Day) {
		of, err := s.day(id, day, long)
		if err != nil {
			return nil, fmt.Errorf("read windows: %w", err)
		}
		all = append(all, of...)
	}
	return slices.DeleteFunc(all, func(x group.Numbers) bool { return x.To <= from || x.From >= to }), nil
}

// day returns the windows of the group id on day, joined to long ones if long is true.
func (s *Store) day(id analysis.Hash, day trace.Nanos, long bool) ([]group.Numbers, error) {
	p := packer{long: long}
	first := pastKey(keyPeriods, day, id)
	err := s.between(first, append(slices.Clone(first), 255, 255), p.add)
	if p.end(); err != nil || len(p.all) > 0 {
		return p.all, err
	}
	value, err := s.get(pastKey(keyDays, day, id))
	if err != nil || value == nil {
		return nil, err
	}
	return group.DecodeDay(value, day)
}

// packer converts the stored periods of a group on one day to windows.
type packer struct {
	long bool // join periods to long ones instead of keeping their length
	from trace.Nanos
	past group.Past // requests of the window that starts at from
	all  []group.Numbers
}

func (p *packer) add(key, value []byte) error {
	if len(key) != periodKeySize {
		return fmt.Errorf("%w: key of a window of %d bytes", codec.ErrCorrupt, len(key))
	}
	past, err := group.DecodePast(value)
	if err != nil {
		return err
	}
	from := periodOf(key)
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

// PackDays joins the windows of all days that ended by the given time to windows of [group.LongPeriod]. Packing a day
// twice changes nothing.
func (s *Store) PackDays(ended trace.Nanos) error {
	for {
		day, ok, err := s.firstDay(keyPeriods)
		if err != nil || !ok || day.Add(group.Day) > ended {
			return err
		}
		if err := s.packDay(day); err != nil {
			return fmt.Errorf("pack windows: %w", err)
		}
	}
}

// firstDay returns the first day with windows under first. ok is false if there is none.
func (s *Store) firstDay(first byte) (day trace.Nanos, ok bool, err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{first}, UpperBound: []byte{first + 1}})
	if err != nil {
		return 0, false, err
	}
	if ok = it.First(); ok {
		day = dayOf(it.Key())
	}
	return day, ok, errors.Join(it.Error(), it.Close())
}

func (s *Store) packDay(day trace.Nanos) error {
	b := s.db.NewBatch()
	defer func() { _ = b.Close() }() // after the commit, this does nothing
	of, p := analysis.Hash{}, packer{long: true}
	flush := func() error {
		if p.end(); len(p.all) == 0 {
			return nil
		}
		err := b.Set(pastKey(keyDays, day, of), group.AppendDay(nil, p.all), nil)
		if p.all = p.all[:0]; err != nil || b.Len() < batchBytes {
			return err
		}
		err = b.Commit(pebble.NoSync)
		b.Reset()
		return err
	}
	err := s.between(dayKey(keyPeriods, day), dayKey(keyPeriods, day.Add(group.Day)), func(key, value []byte) error {
		if len(key) == periodKeySize && groupOf(key) != of {
			if err := flush(); err != nil {
				return err
			}
			of = groupOf(key)
		}
		return p.add(key, value)
	})
	if err := errors.Join(err, flush()); err != nil {
		return err
	}
	if err := b.DeleteRange(dayKey(keyPeriods, day), dayKey(keyPeriods, day.Add(group.Day)), nil); err != nil {
		return err
	}
	return b.Commit(pebble.NoSync)
}

// PastDay is a day with stored windows.
type PastDay struct {
	Day  trace.Nanos
	Size int64 // approximate bytes on disk
}

// PastDays returns the days with stored windows, oldest first.
func (s *Store) PastDays() ([]PastDay, error) {
	sizes := make(map[trace.Nanos]int64)
	for _, first := range []byte{keyPeriods, keyDays} {
		it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{first}, UpperBound: []byte{first + 1}})
		if err != nil {
			return nil, fmt.Errorf("read the days of windows: %w", err)
		}
		for ok := it.First(); ok; {
			day := dayOf(it.Key())
			next := dayKey(first, day.Add(group.Day))
			n, err := s.db.EstimateDiskUsage(dayKey(first, day), next)
			if err != nil {
				return nil, errors.Join(fmt.Errorf("read the days of windows: %w", err), it.Close())
			}
			sizes[day] += int64(n)
			ok = it.SeekGE(next)
		}
		if err := errors.Join(it.Error(), it.Close()); err != nil {
			return nil, fmt.Errorf("read the days of windows: %w", err)
		}
	}
	var days []PastDay
	for day, size := range sizes {
		days = append(days, PastDay{day, size})
	}
	slices.SortFunc(days, func(a, b PastDay) int { return int((a.Day - b.Day) / trace.Nanos(group.Day)) })
	return days, nil
}

// DeletePastBefore deletes the windows of all days that ended by the time at.
func (s *Store) DeletePastBefore(at trace.Nanos) error {
	b := s.db.NewBatch()
	defer func() { _ = b.Close() }() // after the commit, this does nothing
	for _, first := range []byte{keyPeriods, keyDays} {
		if err := b.DeleteRange(dayKey(first, 0), dayKey(first, at), nil); err != nil {
			return err
		}
	}
	if err := b.Commit(pebble.NoSync); err != nil {
		return fmt.Errorf("delete windows: %w", err)
	}
	return nil
}
