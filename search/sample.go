package search

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// Rules for stack samples.
const (
	sampledRequests = 8    // minimum number of slow requests in a sample
	offStack        = 0.03 // of the time of slow requests; a function that accounts for less is not tried
	sampleEpochs    = 3    // maximum number of calls of Next that wait for a sample
	sampleAge       = 30 * time.Second
	standingShare   = 0.8 // of a region's time on the stacks; the picks must account for at least this
	maxStanding     = 4   // maximum number of picks by sample at a time
)

// Sample holds the times that slow requests of a baseline operation spent in tracepoints. Each report halves the weight
// of the reports before it.
type Sample struct {
	Op       trace.Op
	At       trace.Nanos // time of the last report
	Requests float64
	Time     float64     // in nanoseconds
	Points   []PointTime // ascending by Tracepoint
}

// PointTime is the time spent in a tracepoint, in nanoseconds. Total includes the tracepoints that it calls; Own
// doesn't.
type PointTime struct {
	Tracepoint trace.Symbol
	Total, Own float64
}

// Add returns the sum of the report y and half of x. Both must be samples of the same operation. It drops tracepoints
// with a total of less than a nanosecond. It modifies neither x nor y.
func (x *Sample) Add(y *Sample) *Sample {
	sum := &Sample{Op: y.Op, At: y.At, Requests: x.Requests/2 + y.Requests, Time: x.Time/2 + y.Time}
	sum.Points = slices.Clone(y.Points)
	for _, p := range x.Points {
		at, found := sum.find(p.Tracepoint)
		if !found {
			sum.Points = slices.Insert(sum.Points, at, PointTime{Tracepoint: p.Tracepoint})
		}
		sum.Points[at].Total += p.Total / 2
		sum.Points[at].Own += p.Own / 2
	}
	sum.Points = slices.DeleteFunc(sum.Points, func(p PointTime) bool { return p.Total < 1 })
	return sum
}

// find returns the index of tp in x.Points, or where it would be.
func (x *Sample) find(tp trace.Symbol) (at int, found bool) {
	return slices.BinarySearchFunc(x.Points, tp, func(p PointTime, tp trace.Symbol) int {
		return cmp.Compare(p.Tracepoint, tp)
	})
}

// of returns the share of the requests' time spent in tp, with and without the tracepoints that it calls.
func (x *Sample) of(tp trace.Symbol) (total, own float64) {
	at, found := x.find(tp)
	if !found || x.Time == 0 {
		return 0, 0
	}
	return x.Points[at].Total / x.Time, x.Points[at].Own / x.Time
}

// sampleOf returns the sample of o. It returns nil if there is no sample, if it has too few requests, or if it is more
// than sampleAge older than the investigation, which opened at opened, so that its requests may have been healthy.
func (s *epochStep) sampleOf(o *operationScope, opened trace.Nanos) *Sample {
	x := s.in.Samples[o.op]
	if x == nil || x.At.Add(sampleAge) < opened || x.Requests < sampledRequests {
		return nil
	}
	return x
}

// sample weighs the functions of o by the time that slow requests spent in them. It does nothing if x is nil. Functions
// that account for less than offStack are not tried, and their time is added to the location above them.
//
// With a sample, functions say more than waits in the kernel do. A function can therefore be located before its waits
// are known, and rare kinds of waits are not tried.
func (o *operationScope) sample(x *Sample, table *trace.Table) {
	if x == nil {
		return
	}
	o.sampled = true
	for i := len(o.locations) - 1; i > 0; i-- { // the functions below come first
		l := &o.locations[i]
		switch {
		case l.layer == cct.Kernel:
			l.offStack = l.rare
		case l.layer == cct.App && l.kind == cct.SpanPoint:
			l.calls = isCall(table, l.op)
			_, own := x.of(l.tp)
			l.standing += own
			if l.offStack = l.standing < offStack; l.offStack {
				o.locations[l.parent].standing += l.standing
				l.standing = 0
			}
		}
	}
}

// awaitsSample reports whether the search should wait for the stacks of slow requests of its leading operation. It
// waits for at most sampleEpochs calls of [Next], and only if agents of the service have sampled stacks before.
func (s *investigationStep) awaitsSample() bool {
	lead, e := s.searched[0], s.epoch
	return s.v.Epochs < sampleEpochs && e.sampleOf(lead, s.v.Opened) == nil && e.sampled[e.serviceOf(lead.op)]
}

// serviceOf returns the service of op, or 0 if it is unknown.
func (s *epochStep) serviceOf(op trace.Op) trace.Symbol {
	if s.in.Table == nil || op == 0 {
		return 0
	}
	return s.in.Table.Operation(op).Service
}

// ask asks agents for stack samples of the services that the investigation searches.
func (s *investigationStep) ask() {
	for _, o := range s.searched {
		if service := s.epoch.serviceOf(o.op); service != 0 && !slices.Contains(s.epoch.state.Sampling, service) {
			s.epoch.state.Sampling = append(s.epoch.state.Sampling, service)
		}
	}
}

// standing returns picks of the functions of region r that account for most of the time of slow requests, or nil if
// there is no sample. It picks calls of other services only if there are no other functions, because most calls spend
// their time in the other service.
func (q *Question) standing(r int) []Pick {
	var list, calls []int
	for _, i := range q.spans(r) {
		switch c := &q.Candidates[i]; {
		case c.Standing == 0 || !c.Inside:
		case c.Calls:
			calls = append(calls, i)
		default:
			list = append(list, i)
		}
	}
	if len(list) == 0 {
		list = calls
	}
	rest := 0.0
	for _, i := range list {
		rest += q.Candidates[i].Standing
	}
	slices.SortStableFunc(list, func(a, b int) int {
		return cmp.Compare(q.Candidates[b].Standing, q.Candidates[a].Standing)
	})
	var picks []Pick
	rest *= standingShare
	for _, i := range list[:min(len(list), maxStanding)] {
		if rest <= 0 {
			break
		}
		rest -= q.Candidates[i].Standing
		score := math.Min(q.Candidates[i].Standing, 1) * q.Regions[r].Share
		picks = append(picks, q.Pick(i, score, "stands most on the stacks of slow requests"))
	}
	return picks
}

// waits returns the common waits in the kernel of the leading operation that may be switched on and are not known yet.
// They may explain a function that was located from samples of stacks.
func (s *investigationStep) waits() []trace.Symbol {
	var list []trace.Symbol
	lead := s.searched[0]
	for i := range lead.locations {
		l := &lead.locations[i]
		if lead.sampled && l.layer == cct.Kernel && !l.known && !l.offStack && s.excluded(l.tp) == "" &&
			!slices.Contains(list, l.tp) {
			list = append(list, l.tp)
		}
	}
	return list
}
