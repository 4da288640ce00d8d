package history

import (
	"time"

	"github.com/sibyl-trace/sibyl/analysis/callgraph"
	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/trace"
)

// InstanceKeys are the attributes that distinguish the instances, hosts, zones and versions of a service, the most
// specific first.
var InstanceKeys = [...]trace.Symbol{
	trace.SymbolOf([]byte("service.instance.id")),
	trace.SymbolOf([]byte("k8s.pod.name")),
	trace.SymbolOf([]byte("host.name")),
	trace.SymbolOf([]byte("k8s.node.name")),
	trace.SymbolOf([]byte("cloud.availability_zone")),
	trace.SymbolOf([]byte("service.version")),
}

// MachineKeys are the instance keys that name an instance or a host. PlaceKeys are the instance keys that name a host,
// a node or a zone, which instances of several services may share.
var (
	MachineKeys = InstanceKeys[:hostIndex+1]
	PlaceKeys   = InstanceKeys[hostIndex : len(InstanceKeys)-1]
)

// instanceKeyTable is a hash table of InstanceKeys: each key is at the index given by its value modulo the length of
// the table.
var instanceKeyTable = func() (table [64]trace.Symbol) {
	for _, key := range InstanceKeys {
		table[key%64] = key
	}
	return table
}()

// hostIndex is the index of hostKey.
const hostIndex = 2

// hostKey and VersionKey are the InstanceKeys that name a host and a version.
var (
	hostKey    = InstanceKeys[hostIndex]
	VersionKey = InstanceKeys[len(InstanceKeys)-1]
)

// place is the service of a span and its values of InstanceKeys. A value of 0 means that the span lacks the attribute.
type place struct {
	service trace.Symbol
	values  [len(InstanceKeys)]trace.Symbol
}

// places numbers the places of spans from 1.
type places struct {
	numbers map[placeHash]int32
	list    []place // by number; number 0 stands for all places beyond maxPlaces

	hashes []uint64 // by span of the current trace: hash of its values, or 0
	recent [64]numberedPlace
}

// placeHash is the service of a place and the hash of its values.
type placeHash struct {
	service trace.Symbol
	values  uint64
}

type numberedPlace struct {
	placeHash
	number int32
}

// maxPlaces is the maximum number of places of a tally. A tally covers an epoch and has room for as many instances as
// [Sites].
const maxPlaces = maxInstances

func newPlaces() places { return places{numbers: make(map[placeHash]int32), list: make([]place, 1)} }

// read prepares r for trace t: it hashes the values of InstanceKeys of each span.
func (r *places) read(t *trace.Trace) {
	r.hashes = scratch.Filled(r.hashes, len(t.Spans), 0)
	for i := range t.Attrs {
		if a := &t.Attrs[i]; a.Key == instanceKeyTable[a.Key%64] && !a.Numeric {
			r.hashes[a.Span] += uint64(a.Text) * uint64(a.Key|1) // both are hashes
		}
	}
}

// of returns the number of the place of a span of the current trace, or 0 if there are too many places. Spans without
// any of the attributes have a place, too.
func (r *places) of(t *trace.Trace, span int32) int32 {
	key := placeHash{t.Spans[span].Service, r.hashes[span]}
	recent := &r.recent[(key.values^uint64(key.service))%uint64(len(r.recent))]
	if recent.placeHash != key {
		*recent = numberedPlace{key, r.number(key, t, span)}
	}
	return recent.number
}

func (r *places) number(key placeHash, t *trace.Trace, span int32) int32 {
	if number, ok := r.numbers[key]; ok {
		return number
	}
	if len(r.list) > maxPlaces {
		return 0
	}
	x := place{service: key.service}
	for i := range t.Attrs {
		a := &t.Attrs[i]
		if a.Span != span || a.Numeric {
			continue
		}
		for k, key := range InstanceKeys {
			if a.Key == key {
				x.values[k] = max(x.values[k], a.Text) // independent of the order of the attributes
			}
		}
	}
	number := int32(len(r.list))
	r.numbers[key] = number
	r.list = append(r.list, x)
	return number
}

// placeCell counts the calls that one place answered in a slice.
type placeCell struct {
	calls, errors uint64
	nanos         int64 // own time of all spans there, and time on the wire of the calls that it makes and answers
}

// lastingFrom is the duration from which requests are counted separately by place and entry. Only [Requests] knows
// whether the requests of an entry are long, and the times of long ones would outweigh all others. Shorter requests
// always count. The limit is a second because few requests last that long, so their cells take little memory.
const lastingFrom = time.Second

// lastingPlace is a place, given by its number, in the requests of one entry.
type lastingPlace struct {
	entryKey
	place int32
}

// place returns the cell of place `number` for the request being observed.
func (t *Tally) place(s *tallySlice, number int32) *placeCell {
	if t.lasting != (entryKey{}) {
		key := lastingPlace{t.lasting, number}
		c := s.lasting[key]
		if c == nil {
			if s.lasting == nil {
				s.lasting = make(map[lastingPlace]*placeCell)
			}
			c = &placeCell{}
			s.lasting[key] = c
		}
		return c
	}
	for int(number) >= len(s.places) {
		s.places = append(s.places, placeCell{})
	}
	return &s.places[number]
}

// observePlace counts node i, a span in slice `at`, at its place. Time on the wire also counts at the place at the
// other end of the call.
func (t *Tally) observePlace(at Slice, into *tallySlice, p *critpath.Path, i int32) {
	n, s, up := &p.Nodes[i], p.Span(i), p.Caller(i)
	own, border := t.reader.Nanos[i], t.reader.Borders[i]
	entered := up < 0 || s.Kind == trace.Server || s.Kind == trace.Consumer || p.Span(up).Service != s.Service
	if entered {
		t.observeDuration(at, p, i)
	}
	if len(p.Trace.Attrs) == 0 {
		return
	}
	if entered || own != 0 {
		c := t.place(into, t.places.of(p.Trace, n.Span))
		c.nanos += own + border
		if entered {
			c.calls++
		}
		if entered && s.Flags&trace.Error != 0 {
			c.errors++
		}
	}
	if callee := callgraph.Answering(p, i); own != 0 && callee >= 0 && p.Trace.Spans[callee].Service != s.Service {
		t.place(into, t.places.of(p.Trace, callee)).nanos += own
	}
	if border != 0 {
		t.place(into, t.places.of(p.Trace, p.Nodes[up].Span)).nanos += border
	}
}
