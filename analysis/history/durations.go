package history

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/trace"
)

// Durations holds the durations of the spans that answer calls to services, by ticks of two minutes. It keeps all
// durations of the latest ticks, by service and instance, and only percentiles of earlier ticks, by service. They are
// for people to read; comparisons use own times. A trace counts in the tick that it starts in.
type Durations struct {
	latest map[tickKey]*stats.Ranks
	past   map[tickKey]Percentiles // of services
}

// Percentiles describes the durations of the spans of a service in a tick, in ns.
type Percentiles struct{ Median, P99 float64 }

// tickKey identifies the spans of an instance in a tick, given by its first slice. Value 0 stands for the whole
// service.
type tickKey struct {
	tick Slice
	InstanceKey
}

func (k tickKey) compare(l tickKey) int {
	return cmp.Or(cmp.Compare(k.tick, l.tick), k.InstanceKey.compare(l.InstanceKey))
}

// tickSlices is the length of a tick. It equals the length of the ticks of observation.RecentSpans, so that percentiles
// of operations, instances and services cover the same times.
const tickSlices = 2 * SlicesPerMinute

// latestTicks is the number of whole ticks whose durations are all kept.
const latestTicks = 5

func (s Slice) tick() Slice { return s - s%tickSlices }

func newDurations() Durations {
	return Durations{latest: make(map[tickKey]*stats.Ranks), past: make(map[tickKey]Percentiles)}
}

// tickPlace identifies the spans at a place in a tick. The place is given by its number.
type tickPlace struct {
	tick  Slice
	place int32
}

// observeDuration counts the duration of node i, which answers a call.
func (t *Tally) observeDuration(at Slice, p *critpath.Path, i int32) {
	key := tickPlace{at.tick(), t.places.of(p.Trace, p.Nodes[i].Span)}
	if key.place == 0 {
		return
	}
	r := t.durations[key]
	if r == nil {
		r = new(stats.Ranks)
		t.durations[key] = r
	}
	r.Add(min(max(0, int64(p.Span(i).Duration())), stats.MaxNanos-1))
}

// merge adds the durations of a tally at the services and instances that h knows. It ignores ticks that have been
// reduced to percentiles.
func (d *Durations) merge(t *Tally, h *Sites) {
	add := func(k tickKey, r *stats.Ranks) {
		into := d.latest[k]
		if into == nil {
			into = new(stats.Ranks)
			d.latest[k] = into
		}
		into.Merge(r)
	}
	for at, r := range t.durations {
		place := &t.places.list[at.place]
		whole := tickKey{at.tick, InstanceKey{Service: place.service}}
		if _, over := d.past[whole]; over || h.Services.Number(place.service) == 0 {
			continue
		}
		add(whole, r)
		for i, value := range place.values {
			k := InstanceKey{place.service, InstanceKeys[i], value}
			if value != 0 && h.Instances.series[k] != nil {
				add(tickKey{at.tick, k}, r)
			}
		}
	}
}

// age ends an epoch: it reduces durations outside the latest ticks to percentiles, and deletes durations that are too
// old or that come from wrong clocks.
func (d *Durations) age(now Slice) {
	plausible := Range{now - Slice(Span/SliceLength), now + Ahead}
	for k, r := range d.latest {
		switch {
		case !plausible.Contains(k.tick):
		case k.tick+tickSlices > now-latestTicks*tickSlices:
			continue
		case k.Value == 0:
			d.past[k] = Percentiles{r.Quantile(0.5), r.Quantile(0.99)}
		}
		delete(d.latest, k)
	}
	maps.DeleteFunc(d.past, func(k tickKey, _ Percentiles) bool { return !plausible.Contains(k.tick) })
}

// Latest returns the durations of the spans of an instance in the ten to twelve minutes before now, ignoring ticks that
// start before `from`. If k has only a service, it returns the durations at all of its instances.
func (d *Durations) Latest(k InstanceKey, from, now trace.Nanos) (all stats.Ranks) {
	last := SliceOf(now).tick()
	for tick := last - latestTicks*tickSlices; tick <= last; tick += tickSlices {
		if r := d.latest[tickKey{tick, k}]; r != nil && tick.Start() >= from {
			all.Merge(r)
		}
	}
	return all
}

// At returns the percentiles of the spans of a service in the tick that contains `at`, and reports whether there are
// any spans.
func (d *Durations) At(service trace.Symbol, at trace.Nanos) (Percentiles, bool) {
	k := tickKey{SliceOf(at).tick(), InstanceKey{Service: service}}
	if r := d.latest[k]; r != nil {
		return Percentiles{r.Quantile(0.5), r.Quantile(0.99)}, true
	}
	p, ok := d.past[k]
	return p, ok
}

func (d *Durations) appendTo(b []byte) []byte {
	b = codec.AppendUvarints(b, uint64(len(d.latest)))
	for _, k := range slices.SortedFunc(maps.Keys(d.latest), tickKey.compare) {
		b = d.latest[k].AppendBinary(k.appendTo(b))
	}
	b = codec.AppendUvarints(b, uint64(len(d.past)))
	for _, k := range slices.SortedFunc(maps.Keys(d.past), tickKey.compare) {
		b = codec.AppendFloats(k.appendTo(b), d.past[k].Median, d.past[k].P99)
	}
	return b
}

func (k tickKey) appendTo(b []byte) []byte {
	b = codec.AppendUvarints(b, uint64(k.tick))
	return codec.AppendWords(b, uint64(k.Service), uint64(k.Key), uint64(k.Value))
}

func (d *Durations) read(r *codec.Reader) {
	last := tickKey{tick: -1}
	next := func() tickKey {
		k := tickKey{
			readSlice(r), InstanceKey{trace.Symbol(r.Word()), trace.Symbol(r.Word()), trace.Symbol(r.Word())},
		}
		r.Check(last.compare(k) < 0)
		last = k
		return k
	}
	for range r.Count(28) {
		k, spans := next(), codec.Read(r, stats.DecodeRanks)
		d.latest[k] = &spans
	}
	last = tickKey{tick: -1}
	for range r.Count(41) {
		d.past[next()] = Percentiles{r.Finite(), r.Finite()}
	}
}
