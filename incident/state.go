package incident

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/baselinediff"
	"github.com/sibyl-trace/sibyl/trace"
)

// State is the saved form of a [Tracker].
type State struct {
	Incidents []SavedIncident
	Records   []SavedRecord // ascending by service
	Healthy   []float64     // by age of records
	Requests  []float64     // in the healthy windows, by age
	Aged      trace.Nanos
	Judged    trace.Nanos // end of the first window that was judged; 0: none, or of an earlier version
	Stepped   trace.Nanos // end of the last epoch; 0: none, or of an earlier version
	Pending   []SavedWindow
	Relearned []SavedTime // services that are learned anew, ascending
	Above     []SavedTime // services whose score is above its threshold, ascending
	Scales    []SavedScale
}

// SavedScale is the knowledge of operations in healthy windows of one length.
type SavedScale struct {
	Healthy []float64        // by age of records
	Records []SavedOperation // ascending by service and operation
	Pending []SavedGrowth
	Judged  trace.Nanos
	Wholes  trace.Nanos // since when the growth of whole services has been taken; 0: not yet, as in earlier versions
}

// SavedOperation holds the highest growth of an operation in healthy windows. With Op 0 it is that of a whole service.
type SavedOperation struct {
	Service  trace.Symbol
	Op       trace.Op
	Time     []float64 // by age of records
	Failures []float64
	Rise     []float64
}

// SavedGrowth holds the growth of operations in a window that is not yet known to be healthy.
type SavedGrowth struct {
	End        trace.Nanos
	Operations []SavedOperation // of one age
}

// SavedIncident is an incident with what the tracker knows of it.
type SavedIncident struct {
	Incident
	Service trace.Symbol
	Score   float64
	Waits   bool
	Opaque  bool
	Beyond  float64
	Shared  []baselinediff.SharedPart

	Affected  []trace.Symbol // ascending
	Every     time.Duration  // between windows that may have evidence; 0: every epoch
	Looked    trace.Nanos    // of an unexplained one: the last time that a cause was looked for
	Level     float64        // the score since Steady
	Unhealthy trace.Nanos    // since when calls are skipped in its present opening; 0 in earlier versions
}

// SavedRecord holds the highest scores of a service in healthy windows.
type SavedRecord struct {
	Service  trace.Symbol
	Highest  []float64 // by age of records
	Failures []float64
	Chance   []float64
}

// SavedTime is the time since when something is the case with a service.
type SavedTime struct {
	Service trace.Symbol
	Since   trace.Nanos
}

// SavedWindow holds the scores of a window that is not yet known to be healthy.
type SavedWindow struct {
	End      trace.Nanos
	Requests uint64
	Services []trace.Symbol
	Scores   []float64
	Failures []float64 // parts of Scores
	Chance   []float64
}

// State returns the state of t. Equal trackers give equal states.
func (t *Tracker) State() State {
	s := State{Healthy: slices.Clone(t.healthy[:]), Requests: slices.Clone(t.requests[:]), Aged: t.aged, Judged: t.judged, Stepped: t.stepped}
	for i := range t.scales {
		s.Scales = append(s.Scales, t.scales[i].save())
	}
	for _, x := range t.incidents {
		s.Incidents = append(s.Incidents, SavedIncident{x.Incident, x.service, x.score, x.waits, x.opaque, x.beyond, x.shared, x.affected, x.every, x.looked, x.level, x.unhealthy})
	}
	for _, service := range slices.Sorted(maps.Keys(t.records)) {
		saved := SavedRecord{Service: service}
		for _, l := range t.records[service] {
			saved.Highest, saved.Failures = append(saved.Highest, l.all), append(saved.Failures, l.failures)
			saved.Chance = append(saved.Chance, l.chance)
		}
		s.Records = append(s.Records, saved)
	}
	for _, service := range slices.Sorted(maps.Keys(t.relearned)) {
		s.Relearned = append(s.Relearned, SavedTime{service, t.relearned[service]})
	}
	for _, w := range t.pending {
		saved := SavedWindow{End: w.end, Requests: w.requests}
		for _, x := range w.scores {
			saved.Services, saved.Scores = append(saved.Services, x.service), append(saved.Scores, x.all)
			saved.Failures, saved.Chance = append(saved.Failures, x.failures), append(saved.Chance, x.chance)
		}
		s.Pending = append(s.Pending, saved)
	}
	for _, service := range slices.Sorted(maps.Keys(t.above)) {
		s.Above = append(s.Above, SavedTime{service, t.above[service]})
	}
	return s
}

func (x *scale) save() SavedScale {
	s := SavedScale{Healthy: slices.Clone(x.healthy[:]), Judged: x.judged, Wholes: x.wholes}
	for _, o := range slices.SortedFunc(maps.Keys(x.records), operation.compare) {
		s.Records = append(s.Records, savedOperation(o, x.records[o][:]...))
	}
	for _, w := range x.pending {
		saved := SavedGrowth{End: w.end}
		for _, g := range w.growth {
			saved.Operations = append(saved.Operations, savedOperation(g.operation, g.growth))
		}
		s.Pending = append(s.Pending, saved)
	}
	return s
}

func savedOperation(o operation, ages ...growth) SavedOperation {
	s := SavedOperation{Service: o.service, Op: o.op}
	for _, g := range ages {
		s.Time, s.Failures = append(s.Time, g.time), append(s.Failures, g.failures)
		s.Rise = append(s.Rise, g.rise)
	}
	return s
}

// restore sets x to a scale that save returned.
func (x *scale) restore(s *SavedScale) {
	copy(x.healthy[:], s.Healthy)
	x.judged, x.wholes = s.Judged, s.Wholes
	for i := range s.Records {
		o := &s.Records[i]
		x.records[operation{o.Service, o.Op}] = o.record()
	}
	for _, saved := range s.Pending {
		w := grownWindow{end: saved.End}
		for i := range saved.Operations {
			o := &saved.Operations[i]
			w.growth = append(w.growth, operationGrowth{operation{o.Service, o.Op}, o.record()[0]})
		}
		x.pending = append(x.pending, w)
	}
}

// record returns the growth by age.
func (s *SavedOperation) record() *operationRecord {
	r := &operationRecord{}
	for i := range min(len(r), len(s.Time), len(s.Failures)) {
		r[i] = growth{s.Time[i], s.Failures[i], at(s.Rise, i)}
		if len(s.Rise) == 0 { // of an earlier version, whose means of few calls rose more
			r[i].rise = math.Log2(1+s.Time[i]) * math.Sqrt(leastCalls)
		}
	}
	return r
}

// at returns an element; 0 if there is none, as in states of earlier versions.
func at(all []float64, i int) float64 {
	if i < len(all) {
		return all[i]
	}
	return 0
}

// Restore returns the tracker with a state. It ignores incidents without suspects, and scores without a service.
func Restore(s State) *Tracker {
	t := NewTracker()
	copy(t.healthy[:], s.Healthy)
	copy(t.requests[:], s.Requests)
	t.aged, t.judged, t.stepped = s.Aged, s.Judged, s.Stepped
	if t.judged == 0 && t.healthy != [ages]float64{} {
		t.judged = t.aged // of an earlier version, which reviewed nothing after it had learned
	}
	for _, x := range s.Incidents {
		if len(x.Suspects) == 0 {
			continue
		}
		if x.Steady == 0 { // of an earlier version
			x.Steady, x.Level = max(x.Opened, x.Reopened), x.Score
		}
		if x.Unhealthy == 0 { // of an earlier version
			x.Unhealthy = unhealthySince(x.Onset, max(x.Opened, x.Reopened))
		}
		t.incidents = append(t.incidents, &tracked{Incident: x.Incident, charge: charge{
			service: x.Service, score: x.Score, waits: x.Waits, opaque: x.Opaque, beyond: x.Beyond, shared: x.Shared,
		}, affected: x.Affected, every: x.Every, looked: x.Looked, level: x.Level, unhealthy: x.Unhealthy})
	}
	for _, saved := range s.Records {
		r := &record{}
		for i := range min(len(r), len(saved.Highest), len(saved.Failures)) {
			r[i] = levels{all: saved.Highest[i], failures: saved.Failures[i], chance: at(saved.Chance, i)}
		}
		t.records[saved.Service] = r
	}
	for _, r := range s.Relearned {
		t.relearned[r.Service] = r.Since
	}
	for _, saved := range s.Pending {
		w := window{end: saved.End, requests: saved.Requests}
		for i := range min(len(saved.Services), len(saved.Scores), len(saved.Failures)) {
			w.scores = append(w.scores, score{saved.Services[i], levels{saved.Scores[i], saved.Failures[i], at(saved.Chance, i)}})
		}
		t.pending = append(t.pending, w)
	}
	for i := range min(numScales, len(s.Scales)) {
		t.scales[i].restore(&s.Scales[i])
	}
	for _, x := range s.Above {
		t.above[x.Service] = x.Since
	}
	return t
}
