package search

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// Rules for samples of stacks.
const (
	sampledRequests = 8    // slow requests without which a sample proves nothing
	offStack        = 0.03 // of the time of slow requests; a tracepoint that stands for less is not tried
	sampleEpochs    = 3    // calls of Next that wait for a sample
	sampleAge       = 30 * time.Second
	standingShare   = 0.8 // of the time of a region; the picks must stand for as much of it
	maxStanding     = 4   // picks by sample at a time
)

// Sample holds the times that slow requests of a baseline operation spent in tracepoints. Later reports count more.
type Sample struct {
	Op       trace.Op
	At       trace.Nanos // of the last report
	Requests float64
	Time     float64     // in nanoseconds
	Points   []PointTime // ascending by Tracepoint
}

// PointTime is the time in a tracepoint in nanoseconds, with those that it calls and alone.
type PointTime struct {
	Tracepoint trace.Symbol
	Total, Own float64
}

// Add returns x with half its weight and the report y of the same operation, without the tracepoints that no longer
// take any time. It does not modify x.
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

// of returns the shares of the time that requests spent in tp.
func (x *Sample) of(tp trace.Symbol) (total, own float64) {
	at, found := x.find(tp)
	if !found || x.Time == 0 {
		return 0, 0
	}
	return x.Points[at].Total / x.Time, x.Points[at].Own / x.Time
}

// sampleOf returns the sample of o, or nil if it has too few requests, or is older than the investigation by more than
// sampleAge, so that the requests may have been healthy.
func (s *investigationStep) sampleOf(o *operationScope) *Sample {
	x := s.epoch.in.Samples[o.op]
	if x == nil || x.At.Add(sampleAge) < s.v.Opened || x.Requests < sampledRequests {
		return nil
	}
	return x
}

// sample weighs the functions of o by the time that slow requests spent in them, if agents have sampled it. A function
// stands for its own time and for that of the functions below it that stand for too little. Those are not tried.
//
// A function then says more than waits in the kernel, so these need not be known to locate it, and rare ones are not
// tried.
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
			if table != nil {
				kind := table.Operation(l.op).Kind
				l.calls = kind == trace.Client || kind == trace.Producer
			}
			_, own := x.of(l.tp)
			l.standing += own
			if l.offStack = l.standing < offStack; l.offStack {
				o.locations[l.parent].standing += l.standing
				l.standing = 0
			}
		}
	}
}

// awaitsSample reports whether the search should wait for the stacks of slow requests of its leading operation. It asks
// for them, and waits for a few calls at most, and only where agents have sampled stacks before.
func (s *investigationStep) awaitsSample() bool {
	lead := s.searched[0]
	return s.v.Epochs < sampleEpochs && s.sampleOf(lead) == nil && s.epoch.sampled[s.epoch.serviceOf(lead.op)]
}

// serviceOf returns the service of op, or 0 if it is unknown.
func (s *epochStep) serviceOf(op trace.Op) trace.Symbol {
	if s.in.Table == nil || op == 0 {
		return 0
	}
	return s.in.Table.Operation(op).Service
}

// ask asks for the stacks of the services that the investigation searches.
func (s *investigationStep) ask() {
	for _, o := range s.searched {
		if service := s.epoch.serviceOf(o.op); service != 0 && !slices.Contains(s.epoch.state.Sampling, service) {
			s.epoch.state.Sampling = append(s.epoch.state.Sampling, service)
		}
	}
}

// standing returns picks of the functions of region r that stand for most of the time of slow requests. It returns nil
// without a sample. Calls of other services come last, because the time of most passes there.
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

// waits returns the common waits in the kernel of the leading operation that may be switched on and are not known. They
// may explain a function that was located by samples.
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
