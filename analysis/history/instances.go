package history

import (
	"cmp"
	"maps"

	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// InstanceKey identifies the calls that are answered by the spans of a service with a given value of an attribute, one
// of InstanceKeys. Value 0 stands for all values beyond the limits.
type InstanceKey struct{ Service, Key, Value trace.Symbol }

func (k InstanceKey) compare(l InstanceKey) int {
	return cmp.Or(cmp.Compare(k.Service, l.Service), cmp.Compare(k.Key, l.Key), cmp.Compare(k.Value, l.Value))
}

// rest returns the key that stands for the values beyond the limits.
func (k InstanceKey) rest() InstanceKey { return InstanceKey{Service: k.Service, Key: k.Key} }

// InstanceSeries is the history of the calls with one value of an attribute.
type InstanceSeries struct {
	Counts // with the times of placeCell
	Errors Counts
}

const (
	// maxInstances is the maximum number of values over all services and attributes. They take about 12 MB.
	maxInstances = 4096
	// maxValues is the maximum number of values of an attribute per service.
	maxValues = 64
)

// Instances is the history of the values of InstanceKeys, by service.
type Instances struct {
	series map[InstanceKey]*InstanceSeries
	values map[InstanceKey]int // number of values, by keys with value 0
}

func newInstances() Instances {
	return Instances{series: make(map[InstanceKey]*InstanceSeries), values: make(map[InstanceKey]int)}
}

// admit returns the series of k, creating it if necessary. If a limit is reached, it returns the series of the values
// beyond the limits, or nil if there is no room for that one either.
func (h *Instances) admit(k InstanceKey) *InstanceSeries {
	if s := h.series[k]; s != nil {
		return s
	}
	rest := k.rest()
	if full := len(h.series) >= maxInstances; full || h.values[rest] >= maxValues && k != rest {
		if k == rest {
			return nil
		}
		return h.admit(rest)
	}
	s := &InstanceSeries{}
	h.put(k, s)
	return s
}

func (h *Instances) put(k InstanceKey, s *InstanceSeries) {
	h.series[k] = s
	if k.Value != 0 {
		h.values[k.rest()]++
	}
}

// merge adds the calls at the places of a tally, except calls in requests whose entry `long` accepts. Values are added
// in the order of their keys. Slices before folded are joined into minutes.
func (h *Instances) merge(t *Tally, folded Slice, long func(entryKey) bool) {
	of := make(map[InstanceKey]*InstanceSeries)
	for _, x := range t.places.list {
		for i, value := range x.values {
			if value != 0 {
				of[InstanceKey{x.service, InstanceKeys[i], value}] = nil
			}
		}
	}
	for _, k := range sorting.Sorted(maps.Keys(of), InstanceKey.compare) {
		of[k] = h.admit(k)
	}
	for at, s := range t.slices {
		if at < folded {
			at = at.minute()
		}
		add := func(number int32, c *placeCell) {
			x := &t.places.list[number]
			for i, value := range x.values {
				if into := of[InstanceKey{x.service, InstanceKeys[i], value}]; into != nil && *c != (placeCell{}) {
					into.merge(at, c)
				}
			}
		}
		for number := range s.places {
			add(int32(number), &s.places[number])
		}
		for key, c := range s.lasting {
			if !long(key.entryKey) {
				add(key.place, c)
			}
		}
	}
}

func (s *InstanceSeries) merge(at Slice, c *placeCell) {
	s.add(Cell{Slice: at, Calls: uint32(c.calls), Nanos: c.nanos})
	if c.errors > 0 {
		s.Errors.add(Cell{Slice: at, Calls: uint32(c.errors)})
	}
}

// age applies to each series the aging that `of` returns for its service, and deletes values without calls. If a limit
// is reached, it also deletes values without calls since slice `since`.
func (h *Instances) age(of func(service trace.Symbol) *aging, since Slice) {
	for k, s := range h.series {
		a := of(k.Service)
		s.age(a)
		s.Errors.age(a)
		h.deleteEmpty(k)
	}
	full, values := len(h.series) >= maxInstances, maps.Clone(h.values)
	for k, s := range h.series {
		if (full || values[k.rest()] >= maxValues) && s.Last() < since {
			h.replace(k, func(Cells) Cells { return nil })
		}
	}
}

// forget deletes the calls of service before slice `before`.
func (h *Instances) forget(service trace.Symbol, before Slice) {
	for k := range h.series {
		if k.Service == service {
			h.replace(k, func(all Cells) Cells { return all.Within(Range{before, maxSlice}) })
		}
	}
}

// replace replaces the cells of k with the result of kept, and deletes k if no calls are left.
func (h *Instances) replace(k InstanceKey, kept func(Cells) Cells) {
	s := h.series[k]
	s.Counts.pack(kept(s.Counts.Unpack(nil)))
	s.Errors.pack(kept(s.Errors.Unpack(nil)))
	h.deleteEmpty(k)
}

// deleteEmpty deletes k if it has no calls.
func (h *Instances) deleteEmpty(k InstanceKey) {
	if !h.series[k].empty() {
		return
	}
	delete(h.series, k)
	if rest := k.rest(); k != rest {
		if h.values[rest]--; h.values[rest] == 0 {
			delete(h.values, rest)
		}
	}
}

// Started reports whether any instance of service has its first kept calls in or after the slice of `since`. A new
// version, or a move to another host or zone, counts as well.
func (h *Instances) Started(service trace.Symbol, since trace.Nanos) bool {
	for k, s := range h.series {
		if k.Service == service && k.Value != 0 && s.First() >= SliceOf(since) {
			return true
		}
	}
	return false
}

// hostSlices is the maximum age, in slices, of calls that identify the host of a service: five minutes.
const hostSlices = 30

// OnlyHost returns the host that all instances of service ran on in the last five minutes. It returns 0 if there were
// several hosts or no calls, or if the spans name no host.
func (h *Instances) OnlyHost(service trace.Symbol, now trace.Nanos) (only trace.Symbol) {
	recent := Range{SliceOf(now) - hostSlices, SliceOf(now) + 1}
	for _, v := range h.Of(service, hostKey) {
		switch calls := v.Within(recent).Calls(); {
		case calls == 0:
		case only != 0 || v.Value == 0:
			return 0
		default:
			only = v.Value
		}
	}
	return only
}

// Instance is the history of the calls with one value, and its key.
type Instance struct {
	InstanceKey
	*InstanceSeries
}

// Of returns the histories of the values of an attribute of the spans of a service, ordered by value. Value 0 stands
// for all values beyond the limits.
func (h *Instances) Of(service, key trace.Symbol) []Instance {
	return h.sorted(func(k InstanceKey) bool { return k.Service == service && k.Key == key })
}

// All returns the histories of all values, ordered by service, attribute and value.
func (h *Instances) All() []Instance { return h.sorted(func(InstanceKey) bool { return true }) }

func (h *Instances) sorted(selects func(InstanceKey) bool) (all []Instance) {
	for k, s := range h.series {
		if selects(k) {
			all = append(all, Instance{k, s})
		}
	}
	sorting.Slice(all, func(a, b Instance) int { return a.compare(b.InstanceKey) })
	return all
}

// InstanceUse holds the number and the total time of the calls answered by spans with a given value of an attribute.
type InstanceUse struct {
	Key, Value trace.Symbol
	First      trace.Nanos // start of the slice of its first kept calls
	Last       trace.Nanos // end of the slice of its last calls
	Now        Usage
}

// Uses returns the use of each instance, host, zone and version of service in the interval now. It leaves out those
// without calls since the slice of `since`, and the values beyond the limits. The result is ordered by key, the most
// specific first, and value.
func (h *Instances) Uses(service trace.Symbol, now Interval, since trace.Nanos) []InstanceUse {
	w := now.Slices()
	var all []InstanceUse
	for _, key := range InstanceKeys {
		for _, s := range h.Of(service, key) {
			if s.Value == 0 || s.Last() < SliceOf(since) {
				continue
			}
			x := InstanceUse{
				Key:   key,
				Value: s.Value,
				First: s.First().Start(),
				Last:  (s.Last() + 1).Start(),
			}
			cells := s.Within(w)
			x.Now = Usage{Calls: cells.Calls(), Nanos: cells.Time(), Failed: s.Errors.Within(w).Calls()}
			all = append(all, x)
		}
	}
	return all
}

func (h *Instances) appendTo(b []byte) []byte {
	b = codec.AppendUvarints(b, uint64(len(h.series)))
	for _, k := range sorting.Sorted(maps.Keys(h.series), InstanceKey.compare) {
		s := h.series[k]
		b = codec.AppendWords(b, uint64(k.Service), uint64(k.Key), uint64(k.Value))
		b = s.Errors.appendTo(s.Counts.appendTo(b, timed), 0)
	}
	return b
}

func (h *Instances) read(r *codec.Reader) {
	n := r.Count(26)
	r.Check(n <= maxInstances)
	last := InstanceKey{}
	for range n {
		k := InstanceKey{trace.Symbol(r.Word()), trace.Symbol(r.Word()), trace.Symbol(r.Word())}
		r.Check(last.compare(k) < 0)
		s := &InstanceSeries{}
		s.pack(readCells(r, func(x *Cell) { x.Nanos = r.Varint() }))
		s.Errors.pack(readCells(r, nil))
		if r.Bad() {
			return
		}
		h.put(k, s)
		last = k
	}
}
