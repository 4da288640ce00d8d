package baselinediff

import (
	"cmp"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// Uses is the use of all services and the calls between them, as the history counts it. Comparisons judge the same
// counts.
type Uses struct {
	Now      Interval      // the time of Use.Now, in whole slices
	From     trace.Nanos   // beginning of the first bin of series
	Bin      time.Duration // the length of a bin
	Services []ServiceUse  // ascending by symbol
	Calls    []CallUse     // ascending by caller and callee
}

// Usage counts calls, those that failed, and their own time on the critical path. Traces do not tell the own time of a
// span next to a call without a CLIENT span from the time of that call on the wire: it counts at both.
type Usage struct {
	Calls, Failed uint64
	Nanos         int64
}

func (u *Usage) add(v Usage) {
	u.Calls += v.Calls
	u.Failed += v.Failed
	u.Nanos += v.Nanos
}

// Use is a usage with its past.
type Use struct {
	Now   Usage
	Usual Usage         // in the history before Now, without skipped times
	Known time.Duration // the time that Usual covers; 0: there is no history
	// Series has a usage for each bin; nil: not asked for. Bins of skipped times have their calls, too.
	Series []Usage
}

// ServiceUse is the use of a service: calls to it by others, or from outside, with the own time of all of its spans. Of
// a service that emits no spans they are the calls that others make to it, with their time on the wire.
type ServiceUse struct {
	Use
	Service    trace.Symbol
	Opaque     bool           // it emits no spans
	Operations []OperationUse // by falling number of calls in Now, then ascending
}

// OperationUse is the use of an operation at which a service is called, with the own time of its span alone.
type OperationUse struct {
	Use
	Op trace.Op // a step
}

// CallUse is the calls between two services, with their time on the wire.
type CallUse struct {
	Use
	Caller, Callee trace.Symbol
}

// bins divide a time into parts of equal length. The minutes to which old slices are joined lie within one each.
type bins struct {
	from   slice
	length slice
	n      int
}

// leastBin is the shortest bin: older slices are joined to minutes.
const leastBin = slicesPerMinute

func newBins(from, to slice, most int) bins {
	length := leastBin
	for int((to-from)/length) > most {
		length += leastBin
	}
	b := bins{from: from - from%length, length: length}
	b.n = int((to - b.from + length - 1) / length)
	return b
}

// Uses returns the use of all services in an interval, with series from an instant until its end in at most a number of
// bins. Operations have series if they belong to the given service. It takes time linear in the number of cells.
func (h *Sites) Uses(now Interval, from trace.Nanos, most int, detailed trace.Symbol) Uses {
	w := sliceRange{sliceOf(now.From), sliceOf(now.To)}
	from = max(from, h.Since())
	r := &useReader{
		h: h, now: w, bins: newBins(min(sliceOf(from), w.from), w.to, max(1, most)), detailed: detailed,
		services: make(map[int32]*ServiceUse), operations: make(map[callee]*OperationUse), calls: make(map[servicePair]*CallUse), known: make(map[int32]knownTime),
	}
	r.graph = (&liveComparison{h: h, liveMemory: &liveMemory{}}).graph()
	for i := 1; i < len(h.sites); i++ {
		r.read(int32(i))
	}
	for _, number := range r.borders {
		r.readBorder(number)
	}
	return r.uses()
}

// useReader is the state of one call of Uses.
type useReader struct {
	graph
	h          *Sites
	now        sliceRange
	bins       bins
	detailed   trace.Symbol
	services   map[int32]*ServiceUse
	operations map[callee]*OperationUse
	calls      map[servicePair]*CallUse
	known      map[int32]knownTime // by number of the service
	borders    []int32             // numbers of sites

	cells, failed cells // scratch
}

// knownTime is the history of a service.
type knownTime struct {
	skipped ranges
	first   slice // of its calls
}

// read adds the calls at a site.
func (r *useReader) read(number int32) {
	s := &r.h.sites[number]
	own, called := r.serviceOf(s.service), r.callee[number]
	if s.client || s.border {
		if called.service == 0 || called.service == s.service {
			r.add(&own.Use, s.service, number, false, false)
			return
		}
		pair := servicePair{s.service, called.service}
		c := r.calls[pair]
		if c == nil {
			c = &CallUse{Caller: r.names[s.service], Callee: r.names[called.service]}
			r.calls[pair] = c
		}
		r.add(&c.Use, s.service, number, true, true)
		if s.border {
			r.borders = append(r.borders, number)
		}
		if to := r.serviceOf(called.service); to.Opaque {
			r.add(&to.Use, called.service, number, true, true)
		}
		return
	}
	entry := r.enters(s)
	r.add(&own.Use, s.service, number, entry, true)
	if !entry {
		return
	}
	key := callee{s.service, s.op}
	o := r.operations[key]
	if o == nil {
		o = &OperationUse{Op: s.op}
		r.operations[key] = o
	}
	r.add(&o.Use, s.service, number, true, r.detailed == r.names[s.service])
}

// readBorder adds the time at a border to the service that calls, and to the operation at which that is called.
func (r *useReader) readBorder(number int32) {
	s := &r.h.sites[number]
	r.add(&r.serviceOf(s.service).Use, s.service, number, false, true)
	if o := r.operations[callee{s.service, s.parent}]; o != nil {
		r.add(&o.Use, s.service, number, false, r.detailed == r.names[s.service])
	}
}

// enters reports whether the calls at a site come from other services, or from outside.
func (r *useReader) enters(s *site) bool {
	kind := r.table.Operation(s.base).Kind
	return s.parent == 0 || kind == trace.Server || kind == trace.Consumer || r.table.Operation(s.parent).Service != r.names[s.service]
}

func (r *useReader) serviceOf(number int32) *ServiceUse {
	s := r.services[number]
	if s == nil {
		s = &ServiceUse{Service: r.names[number], Opaque: r.opaque[number]}
		r.services[number] = s
	}
	return s
}

// add adds the calls at a site to a use of a service: their time, and their numbers if they count as calls.
func (r *useReader) add(to *Use, service, number int32, counted, series bool) {
	known := r.history(service)
	if series && to.Series == nil {
		to.Series = make([]Usage, r.bins.n)
	}
	put := func(at slice, u Usage) {
		if series && at >= r.bins.from && at < r.now.to {
			to.Series[(at-r.bins.from)/r.bins.length].add(u)
		}
		switch {
		case r.now.contains(at):
			to.Now.add(u)
		case at < r.now.from && !known.skipped.contains(at):
			to.Usual.add(u)
		}
	}
	r.cells = r.h.series[number].unpack(r.cells)
	for _, x := range r.cells {
		u := Usage{Nanos: x.nanos}
		if counted {
			u.Calls = uint64(x.calls)
		}
		put(x.slice, u)
	}
	if !counted {
		return
	}
	for _, shape := range r.shapes(number) {
		if !shape.failed {
			continue
		}
		r.failed = shape.unpack(r.failed)
		for _, x := range r.failed {
			put(x.slice, Usage{Failed: uint64(x.calls)})
		}
	}
}

// shapes returns the shapes of the calls at a site. Those of a border are those of the calls that it leads to.
func (r *useReader) shapes(number int32) []shapeSeries {
	s := &r.h.sites[number]
	if s.border {
		number = r.h.numbers[siteKey{parent: s.parent, op: s.op}]
	}
	return r.h.series[number].shapes
}

// history returns the history of a service.
func (r *useReader) history(service int32) knownTime {
	k, found := r.known[service]
	if !found {
		k = knownTime{r.h.skipped.of(r.names[service]).before(r.now.from), maxSlice}
		r.known[service] = k
	}
	return k
}

// uses returns the uses that were read, with the lengths of histories.
func (r *useReader) uses() Uses {
	for i := 1; i < len(r.h.sites); i++ {
		if first := r.h.series[i].first(); first >= 0 {
			for _, service := range []int32{r.h.sites[i].service, r.callee[i].service} {
				if k, found := r.known[service]; found && first < k.first {
					k.first = first
					r.known[service] = k
				}
			}
		}
	}
	u := Uses{
		Now:  Interval{trace.Nanos(r.now.from) * trace.Nanos(Slice), trace.Nanos(r.now.to) * trace.Nanos(Slice)},
		From: trace.Nanos(r.bins.from) * trace.Nanos(Slice), Bin: time.Duration(r.bins.length) * Slice,
	}
	lengths := make(map[int32]time.Duration, len(r.known))
	for service, k := range r.known {
		lengths[service] = r.covered(k)
	}
	for key, o := range r.operations {
		s := r.services[key.service]
		o.Known = lengths[key.service]
		s.Operations = append(s.Operations, *o)
	}
	for number, s := range r.services {
		s.Known = lengths[number]
		slices.SortFunc(s.Operations, func(a, b OperationUse) int {
			return cmp.Or(cmp.Compare(b.Now.Calls, a.Now.Calls), cmp.Compare(a.Op, b.Op))
		})
		u.Services = append(u.Services, *s)
	}
	for pair, c := range r.calls {
		c.Known = lengths[pair.caller]
		u.Calls = append(u.Calls, *c)
	}
	slices.SortFunc(u.Services, func(a, b ServiceUse) int { return cmp.Compare(a.Service, b.Service) })
	slices.SortFunc(u.Calls, func(a, b CallUse) int {
		return cmp.Or(cmp.Compare(a.Caller, b.Caller), cmp.Compare(a.Callee, b.Callee))
	})
	return u
}

// covered returns the length of a history: of the slices before the window in which there were traces.
func (r *useReader) covered(k knownTime) (sum time.Duration) {
	for _, x := range r.h.total {
		if x.slice >= r.now.from || x.slice < k.first.minute() || k.skipped.contains(x.slice) {
			continue
		}
		length := slice(1)
		if x.slice < r.h.folded {
			length = slicesPerMinute
		}
		sum += time.Duration(length) * Slice
	}
	return sum
}

// InstanceUse is the calls that spans with one value of an attribute answered, with the time that they account for.
type InstanceUse struct {
	Key, Value trace.Symbol
	First      trace.Nanos // beginning of the slice of its first kept calls
	Last       trace.Nanos // end of the slice of its last ones
	Now        Usage
}

// InstanceUses returns the values of the attributes that tell the instances, hosts, zones and versions of a service
// apart and that have calls since an instant, by key, the most specific first, and value. Values without room are not
// among them.
func (h *Sites) InstanceUses(service trace.Symbol, now Interval, since trace.Nanos) []InstanceUse {
	w := sliceRange{sliceOf(now.From), sliceOf(now.To)}
	var all []InstanceUse
	for _, key := range instanceKeys {
		for _, s := range h.instances.ofService(instanceKey{service: service, key: key}) {
			if s.value == 0 || s.last() < sliceOf(since) {
				continue
			}
			x := InstanceUse{Key: key, Value: s.value, First: trace.Nanos(s.first()) * trace.Nanos(Slice), Last: trace.Nanos(s.last()+1) * trace.Nanos(Slice)}
			cells := s.within(w)
			x.Now = Usage{Calls: cells.calls(), Nanos: cells.time(), Failed: s.errors.within(w).calls()}
			all = append(all, x)
		}
	}
	return all
}

// Since returns the beginning of the first slice of the history; 0 if it is empty.
func (h *Sites) Since() trace.Nanos {
	if len(h.total) == 0 {
		return 0
	}
	return trace.Nanos(h.total[0].slice) * trace.Nanos(Slice)
}
