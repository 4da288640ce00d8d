package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Recent requests of groups are counted by tick, which is ten seconds, and stored by minute, then by group. Older
// requests are counted by minute, and stored by hour, then by group:
//
// 	keyTicks   minute group  the ticks of a minute
// 	keyMinutes hour group    the minutes of an hour
//
// A value lists windows in ascending order, each as its number within the minute or hour, the length of its encoding,
// and its encoded requests. Pack replaces ticks with minutes.

// Ticks counts the recent requests of groups.
type Ticks struct{ db database }

// Tick identifies the requests of a group that started in a given tick.
type Tick struct {
	Group analysis.Hash
	From  trace.Nanos // a multiple of [group.Tick]
}

// TickOf returns the start of the tick that contains start, the start of a request.
func TickOf(start trace.Nanos) trace.Nanos { return start - start%trace.Nanos(group.Tick) }

func minuteKey(at trace.Nanos) []byte {
	return binary.BigEndian.AppendUint32([]byte{keyTicks}, uint32(max(0, at)/trace.Nanos(time.Minute)))
}

func tickKey(x Tick) []byte {
	return appendHash(minuteKey(x.From), x.Group)
}

// Add adds the requests in all to the stored requests. The requests become durable with the next checkpoint.
func (t Ticks) Add(all map[Tick]*group.Past) error {
	order := sorting.Sorted(maps.Keys(all), func(a, b Tick) int {
		return cmp.Or(bytes.Compare(tickKey(a), tickKey(b)), cmp.Compare(a.From, b.From))
	})
	err := t.db.commit(pebble.NoSync, func(b *pebble.Batch) error {
		for begin := 0; begin < len(order); {
			key, end := tickKey(order[begin]), begin+1
			for end < len(order) && bytes.Equal(key, tickKey(order[end])) {
				end++
			}
			if err := t.addMinute(b, key, order[begin:end], all); err != nil {
				return err
			}
			if err := commitLarge(b); err != nil {
				return err
			}
			begin = end
		}
		return nil
	})
	return during("store latencies", err)
}

// addMinute adds the requests of ticks, which must be of the same group and minute, to the value under key, and sets
// the new value in b.
func (t Ticks) addMinute(b *pebble.Batch, key []byte, ticks []Tick, all map[Tick]*group.Past) error {
	value, err := t.db.get(key)
	if err != nil {
		return err
	}
	present, err := decodeWindows(value, minuteOf(key), time.Minute, group.Tick)
	if err != nil {
		return err
	}
	for _, x := range ticks {
		present = addWindow(present, x.From, group.Tick, all[x])
	}
	return b.Set(key, encodeWindows(present, minuteOf(key)), nil)
}

// addWindow adds p to the window of the given length that starts at `from`, inserting the window if necessary. It
// returns the extended slice. windows must be in ascending order.
func addWindow(windows []group.PastWindow, from trace.Nanos, length time.Duration, p *group.Past) []group.PastWindow {
	i, found := slices.BinarySearchFunc(windows, from, func(w group.PastWindow, at trace.Nanos) int {
		return cmp.Compare(w.From, at)
	})
	if !found {
		windows = slices.Insert(windows, i, group.PastWindow{From: from, To: from.Add(length)})
	}
	windows[i].Merge(*p)
	return windows
}

func minuteOf(key []byte) trace.Nanos {
	return trace.Nanos(binary.BigEndian.Uint32(key[1:])) * trace.Nanos(time.Minute)
}

// encodeWindows encodes windows, which must have the same length and be within the minute or hour that starts at start.
func encodeWindows(windows []group.PastWindow, start trace.Nanos) (b []byte) {
	for i := range windows {
		w := &windows[i]
		b = append(b, byte(w.From.Sub(start)/w.To.Sub(w.From)))
		b = codec.AppendSection(b, w.Past.AppendBinary)
	}
	return b
}

// decodeWindows decodes windows of the given length within the span that starts at start.
func decodeWindows(b []byte, start trace.Nanos, span, length time.Duration) (windows []group.PastWindow, err error) {
	r := codec.NewReader(b)
	for r.Len() > 0 && !r.Bad() {
		from := start.Add(time.Duration(r.Below(uint64(span/length))) * length)
		past, err := group.DecodePast(r.Section())
		r.Check(err == nil && (len(windows) == 0 || from > windows[len(windows)-1].From))
		windows = append(windows, group.PastWindow{From: from, To: from.Add(length), Past: past})
	}
	if r.Bad() {
		return nil, fmt.Errorf("%w: latencies of %v", codec.ErrCorrupt, span)
	}
	return windows, nil
}

// hourKey returns the key prefix of the hour that contains at.
func hourKey(at trace.Nanos) []byte {
	return binary.BigEndian.AppendUint32([]byte{keyMinutes}, uint32(max(0, at)/trace.Nanos(time.Hour)))
}

func minutesKey(hour trace.Nanos, id analysis.Hash) []byte {
	return appendHash(hourKey(hour), id)
}

const tickKeySize = 1 + 4 + hashSize

// Windows returns the non-empty windows of the group with the given id that overlap [from, to), oldest first. Packed
// windows are minutes, the others are ticks.
func (t Ticks) Windows(id analysis.Hash, from, to trace.Nanos) (all []group.PastWindow, err error) {
	from = max(0, from)
	for hour := from - from%trace.Nanos(time.Hour); hour < to; hour = hour.Add(time.Hour) {
		if all, err = t.appendWindows(all, minutesKey(hour, id), hour, time.Hour, time.Minute); err != nil {
			return nil, err
		}
	}
	first, ok, err := t.first()
	if err != nil {
		return nil, fmt.Errorf("read latencies: %w", err)
	}
	packed := len(all)
	minute := max(first, from-from%trace.Nanos(time.Minute))
	for ; ok && minute < to; minute = minute.Add(time.Minute) {
		if all, err = t.appendWindows(all, tickKey(Tick{id, minute}), minute, time.Minute, group.Tick); err != nil {
			return nil, err
		}
	}
	if packed > 0 && len(all) > packed { // ticks may have been added to packed minutes
		sorting.SliceStable(all, func(a, b group.PastWindow) int { return cmp.Compare(a.From, b.From) })
	}
	return slices.DeleteFunc(all, func(w group.PastWindow) bool { return w.To <= from || w.From >= to }), nil
}

// appendWindows appends the windows stored under key to all.
func (t Ticks) appendWindows(
	all []group.PastWindow, key []byte, start trace.Nanos, span, length time.Duration,
) ([]group.PastWindow, error) {
	value, err := t.db.get(key)
	if err != nil {
		return nil, fmt.Errorf("read latencies: %w", err)
	}
	windows, err := decodeWindows(value, start, span, length)
	return append(all, windows...), err
}

// first returns the first minute with ticks. ok is false if there are no ticks.
func (t Ticks) first() (minute trace.Nanos, ok bool, err error) {
	key, err := t.db.first([]byte{keyTicks}, []byte{keyTicks + 1})
	if key == nil || err != nil {
		return 0, false, err
	}
	return minuteOf(key), true, nil
}

// Pack joins the ticks of all hours that ended by the given time into minutes.
func (t Ticks) Pack(ended trace.Nanos) error {
	for {
		minute, ok, err := t.first()
		if err != nil {
			return fmt.Errorf("pack latencies: %w", err)
		}
		hour := minute - minute%trace.Nanos(time.Hour)
		if !ok || hour.Add(time.Hour) > ended {
			return nil
		}
		if err := t.packHour(hour); err != nil {
			return fmt.Errorf("pack latencies: %w", err)
		}
	}
}

// packHour packs the ticks of hour in one batch, because a tick that was packed twice would count twice.
func (t Ticks) packHour(hour trace.Nanos) error {
	groups := make(map[analysis.Hash][]group.PastWindow)
	first, end := minuteKey(hour), minuteKey(hour.Add(time.Hour))
	err := t.db.between(first, end, func(key, value []byte) error {
		if len(key) != tickKeySize {
			return fmt.Errorf("%w: key of a minute of %d bytes", codec.ErrCorrupt, len(key))
		}
		minute, id := minuteOf(key), groupOf(key)
		ticks, err := decodeWindows(value, minute, time.Minute, group.Tick)
		if err != nil {
			return err
		}
		if _, begun := groups[id]; !begun {
			groups[id], err = t.appendWindows(nil, minutesKey(hour, id), hour, time.Hour, time.Minute)
			if err != nil {
				return err
			}
		}
		for i := range ticks {
			groups[id] = addWindow(groups[id], minute, time.Minute, &ticks[i].Past)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return t.db.commit(pebble.NoSync, func(b *pebble.Batch) error {
		for id, minutes := range groups {
			if err := b.Set(minutesKey(hour, id), encodeWindows(minutes, hour), nil); err != nil {
				return err
			}
		}
		return b.DeleteRange(first, end, nil)
	})
}

// DeleteBefore deletes the ticks of all minutes, and the packed minutes of all hours, that ended by the given time.
func (t Ticks) DeleteBefore(before trace.Nanos) error {
	return during("delete latencies", errors.Join(
		t.db.DeleteRange([]byte{keyTicks}, minuteKey(before), pebble.NoSync),
		t.db.DeleteRange([]byte{keyMinutes}, hourKey(before), pebble.NoSync),
	))
}
