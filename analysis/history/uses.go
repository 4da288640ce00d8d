package history

import (
	"cmp"
	"time"

	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Uses is the use of all services and the calls between them, as counted by the history. Comparisons judge the same
// counts.
type Uses struct {
	Now      Interval      // the time of Use.Now, in whole slices
	From     trace.Nanos   // start of the first bin of series
	Bin      time.Duration // length of a bin
	Services []ServiceUse  // ascending by symbol
	Calls    []CallUse     // ascending by caller and callee
}

// Usage holds the number of calls, the number of failed calls, and the own time of the calls on the critical path in
// ns. If a service makes calls without CLIENT spans, traces don't show where its own time ends and the time on the wire
// starts, so the time next to such a call counts as both.
type Usage struct {
	Calls, Failed uint64
	Unanswered    uint64 // the calls, also in Calls, that no span answers although their attributes name a callee
	Nanos         int64
}

// Add adds v.
func (u *Usage) Add(v Usage) {
	u.Calls += v.Calls
	u.Failed += v.Failed
	u.Unanswered += v.Unanswered
	u.Nanos += v.Nanos
}

// Use is the usage in an interval and before it.
type Use struct {
	Now   Usage
	Usual Usage         // in the history before Now, without skipped times
	Known time.Duration // time that Usual covers; 0 without a history
	// Last is the end of the last slice with calls before the end of Now, or 0 if there were no calls.
	Last trace.Nanos
	// Open is the maximum time for which requests with these calls may have been running without our knowledge. See
	// [Series.StillOpen].
	Open time.Duration
	// Series holds the usage in each bin, or is nil if it was not requested. It includes the calls in skipped times.
	Series []Usage
}

// ServiceUse is the use of a service: the calls to it from other services or from outside, with the own time of all of
// its spans. If a service emits no spans, the time is the time on the wire of the calls to it.
type ServiceUse struct {
	Use
	Service    trace.Symbol
	Opaque     bool           // it emits no spans
	Operations []OperationUse // in decreasing order of their number of calls in Now, then ascending
}

// OperationUse is the use of an operation of a service that others call, with the own time of its spans alone.
type OperationUse struct {
	Use
	Op trace.Op // a step
}

// CallUse is the use of the calls between two services, with their time on the wire.
type CallUse struct {
	Use
	Caller, Callee trace.Symbol
}

// bins divides a time into parts of equal length. No minute of old, joined slices spans two bins.
type bins struct {
	from   Slice
	length Slice
	n      int
}

// leastBin is the length of the shortest bin. It is a minute, because older slices are joined into minutes.
const leastBin = SlicesPerMinute

func newBins(from, to Slice, most int) bins {
	length := leastBin
	for int((to-from)/length) > most {
		length += leastBin
	}
	b := bins{from: from - from%length, length: length}
	b.n = int((to - b.from + length - 1) / length)
	return b
}

// Uses returns the use of all services in interval now. The series start at `from` and end with the interval, in about
// `most` bins. Operations have series only if they belong to the service `detailed`. Uses takes time linear in the
// number of cells.
func (h *Sites) Uses(now Interval, from trace.Nanos, most int, detailed trace.Symbol) Uses {
	w := now.Slices()
	from = max(from, h.Requests.Since())
	r := &useReader{
		h:          h,
		now:        w,
		bins:       newBins(min(SliceOf(from), w.From), w.To, max(1, most)),
		detailed:   detailed,
		services:   make(map[int32]*ServiceUse),
		operations: make(map[Callee]*OperationUse),
		calls:      make(map[servicePair]*CallUse),
		known:      make(map[int32]knownTime),
	}
	r.callee, r.opaque = h.Callees(nil)
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
	h          *Sites
	callee     []Callee // by number of the site
	opaque     []bool   // by number of the service
	now        Range
	bins       bins
	detailed   trace.Symbol
	services   map[int32]*ServiceUse
	operations map[Callee]*OperationUse
	calls      map[servicePair]*CallUse
	known      map[int32]knownTime // by number of the service
	borders    []int32             // numbers of sites

	cells, failed Cells // scratch
}

// knownTime is the part of the history of a service that counts as its past.
type knownTime struct {
	skipped Ranges
	first   Slice // slice of its first calls
}

// read adds the calls at site `number`.
func (r *useReader) read(number int32) {
	s := &r.h.sites[number]
	own, called := r.serviceOf(s.Service), r.callee[number]
	if s.Client || s.Border {
		if called.Service == 0 || called.Service == s.Service {
			r.add(&own.Use, s.Service, number, false, false)
			return
		}
		pair := servicePair{s.Service, called.Service}
		c := r.calls[pair]
		if c == nil {
			c = &CallUse{Caller: r.h.Services.names[s.Service], Callee: r.h.Services.names[called.Service]}
			r.calls[pair] = c
		}
		r.add(&c.Use, s.Service, number, true, true)
		if s.Border {
			r.borders = append(r.borders, number)
		}
		if to := r.serviceOf(called.Service); to.Opaque {
			r.add(&to.Use, called.Service, number, true, true)
		}
		return
	}
	entry := r.enters(s)
	r.add(&own.Use, s.Service, number, entry, true)
	if !entry {
		return
	}
	key := Callee{s.Service, s.Op}
	o := r.operations[key]
	if o == nil {
		o = &OperationUse{Op: s.Op}
		r.operations[key] = o
	}
	r.add(&o.Use, s.Service, number, true, r.detailed == r.h.Services.names[s.Service])
}

// readBorder adds the time at border `number` to the calling service, and to the operation of that service that makes
// the calls.
func (r *useReader) readBorder(number int32) {
	s := &r.h.sites[number]
	r.add(&r.serviceOf(s.Service).Use, s.Service, number, false, true)
	if o := r.operations[Callee{s.Service, s.Parent}]; o != nil {
		r.add(&o.Use, s.Service, number, false, r.detailed == r.h.Services.names[s.Service])
	}
}

// enters reports whether the calls at s come from another service or from outside.
func (r *useReader) enters(s *Site) bool {
	kind := r.h.table.Operation(s.Base).Kind
	return s.Parent == 0 || kind == trace.Server || kind == trace.Consumer ||
		r.h.table.Operation(s.Parent).Service != r.h.Services.names[s.Service]
}

func (r *useReader) serviceOf(number int32) *ServiceUse {
	s := r.services[number]
	if s == nil {
		s = &ServiceUse{Service: r.h.Services.names[number], Opaque: r.opaque[number]}
		r.services[number] = s
	}
	return s
}

// add adds the calls at a site to a use of service: their time and, if counted is true, their number. It adds them to
// the series of the use if series is true.
func (r *useReader) add(to *Use, service, number int32, counted, series bool) {
	known := r.history(service)
	if series && to.Series == nil {
		to.Series = make([]Usage, r.bins.n)
	}
	put := func(at Slice, u Usage) {
		if series && at >= r.bins.from && at < r.now.To {
			to.Series[(at-r.bins.from)/r.bins.length].Add(u)
		}
		switch {
		case r.now.Contains(at):
			to.Now.Add(u)
		case at < r.now.From && !known.skipped.Contains(at):
			to.Usual.Add(u)
		}
	}
	if counted {
		to.Open = max(to.Open, r.h.series[number].StillOpen())
	}
	r.cells = r.h.series[number].Unpack(r.cells)
	for _, x := range r.cells {
		u := Usage{Nanos: x.Nanos}
		if counted {
			u.Calls = uint64(x.Calls)
			if r.h.targets[number].external {
				u.Unanswered = u.Calls
			}
			if x.Slice < r.now.To {
				to.Last = max(to.Last, r.end(x.Slice))
			}
		}
		put(x.Slice, u)
	}
	if !counted {
		return
	}
	for _, shape := range r.shapes(number) {
		if !shape.Failed {
			continue
		}
		r.failed = shape.Unpack(r.failed)
		for _, x := range r.failed {
			put(x.Slice, Usage{Failed: uint64(x.Calls)})
		}
	}
}

// end returns the end of the time that a cell covers, at most the end of Now.
func (r *useReader) end(at Slice) trace.Nanos {
	return min(at+r.lengthAt(at), r.now.To).Start()
}

// shapes returns the shapes of the calls at site `number`. A border has the shapes of its calls.
func (r *useReader) shapes(number int32) []ShapeSeries {
	s := &r.h.sites[number]
	if s.Border {
		number = r.h.numbers[SiteKey{Parent: s.Parent, Op: s.Op}]
	}
	return r.h.series[number].Shapes
}

// history returns the entry of service in r.known, adding it with the skipped times of service if necessary. The field
// first is set later, by [useReader.uses].
func (r *useReader) history(service int32) knownTime {
	k, found := r.known[service]
	if !found {
		k = knownTime{r.h.Skipped.Of(r.h.Services.names[service]).Before(r.now.From), maxSlice}
		r.known[service] = k
	}
	return k
}

// uses returns the uses that were read, and sets the time that the history of each covers.
func (r *useReader) uses() Uses {
	for i := 1; i < len(r.h.sites); i++ {
		if first := r.h.series[i].First(); first >= 0 {
			for _, service := range []int32{r.h.sites[i].Service, r.callee[i].Service} {
				if k, found := r.known[service]; found && first < k.first {
					k.first = first
					r.known[service] = k
				}
			}
		}
	}
	u := Uses{
		Now:  Interval{r.now.From.Start(), r.now.To.Start()},
		From: r.bins.from.Start(),
		Bin:  time.Duration(r.bins.length) * SliceLength,
	}
	lengths := make(map[int32]time.Duration, len(r.known))
	for service, k := range r.known {
		lengths[service] = r.covered(k)
	}
	for key, o := range r.operations {
		s := r.services[key.Service]
		o.Known = lengths[key.Service]
		s.Operations = append(s.Operations, *o)
	}
	for number, s := range r.services {
		s.Known = lengths[number]
		sorting.SliceStable(s.Operations, func(a, b OperationUse) int {
			return cmp.Or(cmp.Compare(b.Now.Calls, a.Now.Calls), cmp.Compare(a.Op, b.Op))
		})
		u.Services = append(u.Services, *s)
	}
	for pair, c := range r.calls {
		c.Known = lengths[pair.caller]
		u.Calls = append(u.Calls, *c)
	}
	sorting.SliceStable(u.Services, func(a, b ServiceUse) int { return cmp.Compare(a.Service, b.Service) })
	sorting.SliceStable(u.Calls, func(a, b CallUse) int {
		return cmp.Or(cmp.Compare(a.Caller, b.Caller), cmp.Compare(a.Callee, b.Callee))
	})
	return u
}

// covered returns the length of the history k: the total length of the slices with traces before the window, except
// skipped ones.
func (r *useReader) covered(k knownTime) (sum time.Duration) {
	for _, x := range r.h.Requests.total {
		if x.Slice >= r.now.From || x.Slice < k.first.minute() || k.skipped.Contains(x.Slice) {
			continue
		}
		sum += time.Duration(r.lengthAt(x.Slice)) * SliceLength
	}
	return sum
}

// lengthAt returns the number of slices that the cell at slice `at` covers. Cells of old slices cover a minute.
func (r *useReader) lengthAt(at Slice) Slice {
	if at < r.h.folded {
		return SlicesPerMinute
	}
	return 1
}
