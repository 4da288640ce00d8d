package incident

import (
	"maps"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// SavedTracker is the saved form of a [Tracker].
type SavedTracker struct {
	Incidents []SavedIncident
	Records   []SavedRecord // ascending by service
	Healthy   []float64     // by age of records
	Requests  []float64     // in the healthy windows, by age
	Scales    []SavedScale
	Pending   []SavedWindow
	Relearned []SavedTime    // services that are being relearned, ascending
	Exceeded  []SavedTime    // services whose score is above its threshold, ascending
	Changed   []ChangedCalls // ascending by service

	AgeBegan    trace.Nanos
	FirstJudged trace.Nanos // end of the first window that was judged, or 0
	LastEpoch   trace.Nanos // end of the last epoch, or 0 before the first
}

// SavedScale is the saved form of a scale.
type SavedScale struct {
	Healthy []float64        // by age of records
	Records []SavedOperation // ascending by service and operation
	Pending []SavedGrowth
	Judged  trace.Nanos
	Wholes  trace.Nanos // time from which the growth of whole services has been recorded, or 0
}

// SavedOperation holds the highest growth of an operation in healthy windows. If Op is 0, it stands for the whole
// service.
type SavedOperation struct {
	Service  trace.Symbol
	Op       trace.Op
	Time     []float64 // by age of records
	Failures []float64
	Rise     []float64
	Added    []float64
}

// SavedGrowth holds the growth of operations in a pending window, which isn't known to be healthy yet.
type SavedGrowth struct {
	End        trace.Nanos
	Operations []SavedOperation // of a single age
}

// SavedIncident is an incident with the state that the tracker keeps for it.
type SavedIncident struct {
	Incident
	Service trace.Symbol
	Score   float64
	Waits   bool
	Opaque  bool
	Beyond  float64
	Shared  []compare.SharedPart

	Affected   []trace.Symbol // ascending
	Every      time.Duration  // time between windows that may have evidence; 0 for every epoch
	Grown      trace.Nanos    // end of the epoch when its evidence last grew
	Settled    float64        // the score at that time
	Plateau    float64
	Symptoms   uint8            // a bit set
	Before     *compare.Suspect // first suspect of the incident that it replaced, or nil
	Searched   trace.Nanos      // when we last searched for a cause, if unexplained
	SkipFrom   trace.Nanos      // start of the excluded calls since it last opened
	Acceptance *Acceptance      // made since the last epoch, or nil
}

// SavedRecord holds the highest levels of a service in healthy windows.
type SavedRecord struct {
	Service trace.Symbol
	Kinds   [][]SavedPeak // by kind of evidence, each in descending order
}

// SavedPeak is a high level in healthy windows.
type SavedPeak struct {
	Level    float64
	Requests uint64
	Last     trace.Nanos
}

// SavedTime is a service with the time when it was accepted or first exceeded its threshold.
type SavedTime struct {
	Service trace.Symbol
	Since   trace.Nanos
}

// SavedWindow holds the scores of a pending window, which isn't known to be healthy yet.
type SavedWindow struct {
	End      trace.Nanos
	Requests uint64
	Services []trace.Symbol
	Levels   [][]float64 // by service and kind of evidence
}

// Save returns the saved form of t. Equal trackers have equal saved forms.
func (t *Tracker) Save() SavedTracker {
	s := SavedTracker{Exceeded: savedTimes(t.exceeded), LastEpoch: t.lastEpoch}
	for _, service := range slices.Sorted(maps.Keys(t.changed)) {
		s.Changed = append(s.Changed, t.changed[service])
	}
	for _, x := range t.incidents {
		s.Incidents = append(s.Incidents, x.save())
	}
	t.baseline.save(&s)
	return s
}

// save sets the fields of s that hold the baseline.
func (b *baseline) save(s *SavedTracker) {
	s.Healthy, s.Requests = slices.Clone(b.healthy[:]), slices.Clone(b.requests[:])
	s.Relearned = savedTimes(b.relearned)
	s.AgeBegan, s.FirstJudged = b.ageBegan, b.firstJudged
	for i := range b.scales {
		s.Scales = append(s.Scales, b.scales[i].save())
	}
	for _, service := range slices.Sorted(maps.Keys(b.records)) {
		saved := SavedRecord{Service: service}
		for _, peaks := range b.records[service] {
			var kept []SavedPeak
			for _, p := range peaks {
				kept = append(kept, SavedPeak{p.level, p.requests, p.last})
			}
			saved.Kinds = append(saved.Kinds, kept)
		}
		s.Records = append(s.Records, saved)
	}
	for _, w := range b.pending {
		saved := SavedWindow{End: w.end, Requests: w.requests}
		for _, x := range w.scores {
			saved.Services, saved.Levels = append(saved.Services, x.service),
				append(saved.Levels, slices.Clone(x.levels[:]))
		}
		s.Pending = append(s.Pending, saved)
	}
}

func savedTimes(m map[trace.Symbol]trace.Nanos) (all []SavedTime) {
	for _, service := range slices.Sorted(maps.Keys(m)) {
		all = append(all, SavedTime{service, m[service]})
	}
	return all
}

func (x *tracked) save() SavedIncident {
	return SavedIncident{
		Incident:   x.Incident,
		Service:    x.service,
		Score:      x.score,
		Waits:      x.waits,
		Opaque:     x.opaque,
		Beyond:     x.beyond,
		Shared:     x.shared,
		Affected:   x.affected,
		Every:      x.every,
		Grown:      x.grown,
		Settled:    x.settled,
		Plateau:    x.plateau,
		Symptoms:   uint8(x.symptoms),
		Before:     x.before,
		Searched:   x.searched,
		SkipFrom:   x.skipFrom,
		Acceptance: x.acceptance,
	}
}

func (s *SavedIncident) restore() *tracked {
	return &tracked{
		Incident: s.Incident,
		evidence: evidence{
			service: s.Service, score: s.Score, waits: s.Waits, opaque: s.Opaque, beyond: s.Beyond, shared: s.Shared,
		},
		affected:   s.Affected,
		every:      s.Every,
		grown:      s.Grown,
		settled:    s.Settled,
		plateau:    s.Plateau,
		symptoms:   symptoms(s.Symptoms),
		before:     s.Before,
		searched:   s.Searched,
		skipFrom:   s.SkipFrom,
		acceptance: s.Acceptance,
	}
}

func (x *scale) save() SavedScale {
	s := SavedScale{Healthy: slices.Clone(x.healthy[:]), Judged: x.judged, Wholes: x.wholes}
	for _, o := range sorting.Sorted(maps.Keys(x.records), operation.compare) {
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
		s.Rise, s.Added = append(s.Rise, g.rise), append(s.Added, g.added)
	}
	return s
}

// restore sets x to a scale returned by save.
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

// record returns the growth in s by age.
func (s *SavedOperation) record() *operationRecord {
	r := &operationRecord{}
	for i := range min(len(r), len(s.Time), len(s.Failures), len(s.Rise), len(s.Added)) {
		r[i] = growth{s.Time[i], s.Failures[i], s.Rise[i], s.Added[i]}
	}
	return r
}

// Restore returns the tracker saved in s. It has [DefaultGates], because gates are not saved. Restore ignores incidents
// without suspects or history, and scores without a service.
func Restore(s SavedTracker) *Tracker {
	t := NewTracker()
	t.lastEpoch = s.LastEpoch
	for i := range s.Incidents {
		if x := &s.Incidents[i]; len(x.Suspects) > 0 && len(x.History) > 0 {
			t.incidents = append(t.incidents, x.restore())
		}
	}
	for _, c := range s.Changed {
		t.changed[c.Service] = c
	}
	for _, x := range s.Exceeded {
		t.exceeded[x.Service] = x.Since
	}
	t.baseline.restore(&s)
	return t
}

// restore sets b, which must be new, to the baseline that was saved in s.
func (b *baseline) restore(s *SavedTracker) {
	copy(b.healthy[:], s.Healthy)
	copy(b.requests[:], s.Requests)
	b.ageBegan, b.firstJudged = s.AgeBegan, s.FirstJudged
	for _, saved := range s.Records {
		r := &record{}
		for k := range min(len(r), len(saved.Kinds)) {
			for _, p := range saved.Kinds[k] {
				r[k] = append(r[k], peak{p.Level, p.Requests, p.Last})
			}
		}
		b.records[saved.Service] = r
	}
	for _, r := range s.Relearned {
		b.relearned[r.Service] = r.Since
	}
	for _, saved := range s.Pending {
		w := window{end: saved.End, requests: saved.Requests}
		for i := range min(len(saved.Services), len(saved.Levels)) {
			x := score{service: saved.Services[i]}
			copy(x.levels[:], saved.Levels[i])
			w.scores = append(w.scores, x)
		}
		b.pending = append(b.pending, w)
	}
	for i := range min(numScales, len(s.Scales)) {
		b.scales[i].restore(&s.Scales[i])
	}
}
