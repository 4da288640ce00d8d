package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/trace"
)

// The requests of groups by tick of ten seconds, of the last hours, are ordered by minute, then by group. A value holds
// the ticks of a minute, ascending: number of the tick, length, requests.

// Tick identifies the requests of a group that began in a tick.
type Tick struct {
	Group analysis.Hash
	From  trace.Nanos // a multiple of [group.Tick]
}

// TickOf returns the beginning of the tick in which a request began.
func TickOf(start trace.Nanos) trace.Nanos { return start - start%trace.Nanos(group.Tick) }

func minuteKey(at trace.Nanos) []byte {
	return binary.BigEndian.AppendUint32([]byte{keyTicks}, uint32(max(0, at)/trace.Nanos(time.Minute)))
}

func tickKey(x Tick) []byte {
	key := binary.BigEndian.AppendUint64(minuteKey(x.From), x.Group.Hi)
	return binary.BigEndian.AppendUint64(key, x.Group.Lo)
}

// AddTicks adds requests to those that are stored. They are durable once the next checkpoint is.
func (s *Store) AddTicks(all map[Tick]*group.Past) error {
	order := make([]Tick, 0, len(all))
	for x := range all {
		order = append(order, x)
	}
	slices.SortFunc(order, func(a, b Tick) int {
		return cmp.Or(bytes.Compare(tickKey(a), tickKey(b)), cmp.Compare(a.From, b.From))
	})
	b := s.db.NewBatch()
	defer func() { _ = b.Close() }() // it is committed or discarded
	for begin := 0; begin < len(order); {
		key, end := tickKey(order[begin]), begin+1
		for end < len(order) && bytes.Equal(key, tickKey(order[end])) {
			end++
		}
		if err := s.addMinute(b, key, order[begin:end], all); err != nil {
			return fmt.Errorf("store latencies: %w", err)
		}
		if begin = end; b.Len() >= batchBytes {
			if err := b.Commit(pebble.NoSync); err != nil {
				return fmt.Errorf("store latencies: %w", err)
			}
			b.Reset()
		}
	}
	if err := b.Commit(pebble.NoSync); err != nil {
		return fmt.Errorf("store latencies: %w", err)
	}
	return nil
}

// addMinute adds the ticks of a group in a minute.
func (s *Store) addMinute(b *pebble.Batch, key []byte, ticks []Tick, all map[Tick]*group.Past) error {
	value, err := s.get(key)
	if err != nil {
		return err
	}
	present, err := decodeMinute(value, minuteOf(key))
	if err != nil {
		return err
	}
	for _, x := range ticks {
		i, found := slices.BinarySearchFunc(present, x.From, func(w group.PastWindow, at trace.Nanos) int { return cmp.Compare(w.From, at) })
		if !found {
			present = slices.Insert(present, i, group.PastWindow{From: x.From, To: x.From.Add(group.Tick)})
		}
		present[i].Merge(*all[x])
	}
	return b.Set(key, encodeMinute(present), nil)
}

func minuteOf(key []byte) trace.Nanos {
	return trace.Nanos(binary.BigEndian.Uint32(key[1:])) * trace.Nanos(time.Minute)
}

func encodeMinute(ticks []group.PastWindow) (b []byte) {
	for i := range ticks {
		w := &ticks[i]
		b = append(b, byte(w.From%trace.Nanos(time.Minute)/trace.Nanos(group.Tick)))
		b = codec.AppendSection(b, w.Past.AppendBinary)
	}
	return b
}

func decodeMinute(b []byte, minute trace.Nanos) (ticks []group.PastWindow, err error) {
	r := codec.NewReader(b)
	for r.Len() > 0 && !r.Bad() {
		from := minute.Add(time.Duration(r.Below(uint64(time.Minute/group.Tick))) * group.Tick)
		past, err := group.DecodePast(r.Section())
		r.Check(err == nil && (len(ticks) == 0 || from > ticks[len(ticks)-1].From))
		ticks = append(ticks, group.PastWindow{From: from, To: from.Add(group.Tick), Past: past})
	}
	if r.Bad() {
		return nil, fmt.Errorf("%w: latencies of a minute", codec.ErrCorrupt)
	}
	return ticks, nil
}

// Ticks returns the ticks of a group in [from, to) that have requests, oldest first.
func (s *Store) Ticks(id analysis.Hash, from, to trace.Nanos) (all []group.PastWindow, err error) {
	from = max(0, from)
	for minute := from - from%trace.Nanos(time.Minute); minute < to; minute = minute.Add(time.Minute) {
		value, err := s.get(tickKey(Tick{id, minute}))
		if err != nil {
			return nil, fmt.Errorf("read latencies: %w", err)
		}
		ticks, err := decodeMinute(value, minute)
		if err != nil {
			return nil, err
		}
		all = append(all, ticks...)
	}
	return slices.DeleteFunc(all, func(w group.PastWindow) bool { return w.From < from || w.From >= to }), nil
}

// DeleteTicksBefore deletes the ticks of the minutes that ended by a time.
func (s *Store) DeleteTicksBefore(before trace.Nanos) error {
	if err := s.db.DeleteRange([]byte{keyTicks}, minuteKey(before), pebble.NoSync); err != nil {
		return fmt.Errorf("delete latencies: %w", err)
	}
	return nil
}

// Periods returns the requests of a group in the periods of [group.Period] that overlap [from, to), oldest first, as
// far as they are not packed.
func (s *Store) Periods(id analysis.Hash, from, to trace.Nanos) (all []group.PastWindow, err error) {
	from = max(0, from)
	for day := from - from%trace.Nanos(group.Day); day < to; day = day.Add(group.Day) {
		first := pastKey(keyPeriods, day, id)
		err = errors.Join(err, s.between(first, append(slices.Clone(first), 255, 255), func(key, value []byte) error {
			if len(key) != periodKeySize {
				return fmt.Errorf("%w: key of a window of %d bytes", codec.ErrCorrupt, len(key))
			}
			at := periodOf(key)
			if at.Add(group.Period) <= from || at >= to {
				return nil
			}
			past, err := group.DecodePast(value)
			all = append(all, group.PastWindow{From: at, To: at.Add(group.Period), Past: past})
			return err
		}))
	}
	if err != nil {
		return nil, fmt.Errorf("read windows: %w", err)
	}
	return all, nil
}
