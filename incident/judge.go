package incident

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

// finding is the comparison of a window with the history.
type finding struct {
	compare.Comparison
	window history.Interval
	every  time.Duration // time between two windows; 0 if every epoch has one
	weeks  int           // weeks between the window and the time it is compared with; 0 for the hours before
}

// youngOf returns the young operations of service that have evidence.
func (f *finding) youngOf(service trace.Symbol) []compare.YoungOperation {
	first, _ := slices.BinarySearchFunc(f.Young, service, func(o compare.YoungOperation, service trace.Symbol) int {
		return cmp.Compare(o.Service, service)
	})
	end := first
	for end < len(f.Young) && f.Young[end].Service == service {
		end++
	}
	return f.Young[first:end]
}

// evidence is the evidence against a service.
type evidence struct {
	service trace.Symbol
	score   float64
	waits   bool // the score is time spent in the service, which may include waits for another service
	// opaque means that the service emits no spans. Its score is the time that its callers wait, so the callers are
	// charged with the same time.
	opaque bool
	// beyond is the part of the score above its threshold, without unanswered calls. If it is 0 or less, only
	// unanswered calls raise an incident.
	beyond float64
	shared []compare.SharedPart
	from   *finding // nil if the evidence is from an earlier epoch

	symptoms symptoms // symptoms whose levels are above their thresholds
}

// evidenceOf returns the evidence against s, whose levels raise an incident. threshold is the threshold of the score of
// s.
func evidenceOf(s *compare.Suspect, threshold float64, from *finding) evidence {
	const nearlyAll = 0.95
	return evidence{
		service: s.Service, score: s.Score, waits: s.Own >= nearlyAll*s.Score, opaque: s.Opaque,
		beyond: s.Score - s.Unanswered - threshold, shared: s.Shared, from: from,
	}
}

// include adds the evidence of o, an operation that raises an incident on its own, because its typical time may show a
// change before anything else in the service does. A rare operation doesn't count as evidence apart from a neighbour,
// because it may be waiting for that neighbour.
func (e *evidence) include(o grownOperation) {
	if e.symptoms == 0 {
		e.symptoms = slower
		if g := growthOf(o.SuspectOperation); g.failures > 0 && max(g.time, g.rise, g.added) <= 0 {
			e.symptoms = fails
		}
	}
	e.score = max(e.score, o.Score)
	if !o.rare {
		e.beyond = max(e.beyond, o.Score)
	}
}

// apart reports whether e raises an incident even without the part that its service shares with neighbour.
func (e *evidence) apart(neighbour trace.Symbol) bool {
	for _, x := range e.shared {
		if x.Service == neighbour {
			return e.beyond > x.Score
		}
	}
	return e.beyond > 0
}

// keeping is the share of a threshold that keeps an incident open. It is below 1 because evidence near a threshold
// comes and goes.
const keeping = 0.5

// judgement is the outcome of judging windows that end now.
type judgement struct {
	raising []evidence     // above the thresholds, in the order of the suspects
	keeping []trace.Symbol // services whose open incidents stay open
}

func (j *judgement) add(k judgement) {
	j.raising, j.keeping = append(j.raising, k.raising...), append(j.keeping, k.keeping...)
}

// judge judges the services in f, the window of an epoch. exceeded holds the time when each service first exceeded its
// threshold, because uncertain growth raises an incident only if it persists.
func (t *Tracker) judge(now trace.Nanos, f *finding,
	comparer *compare.Comparer,
) (j judgement, exceeded map[trace.Symbol]trace.Nanos) {
	exceeded = make(map[trace.Symbol]trace.Nanos)
	ratio := t.baseline.ratio(comparer.Services.Len())
	for i := range f.Suspects {
		s := &f.Suspects[i]
		if s.Score == 0 && len(s.Operations) == 0 && s.Whole.Rise == 0 &&
			len(f.youngOf(s.Service)) == 0 || t.baseline.isRelearned(s.Service) {
			continue
		}
		grown := t.baseline.grown(now, fine, s, f, 1, comparer)
		unusual := t.baseline.unusual(s, f.Requests, ratio, 1)
		since, known := t.exceeded[s.Service]
		if grown.SuspectOperation == nil && !unusual {
			open := t.incidents.openOf(s.Service) != nil
			if !open && !known || !t.baseline.nearThreshold(now, s, f, comparer) {
				continue
			}
			if known {
				exceeded[s.Service] = since
			}
			if open {
				j.keeping = append(j.keeping, s.Service)
			}
			continue
		}
		if !known {
			since = now
		}
		exceeded[s.Service] = since
		if now.Sub(since) < grown.confirm && !unusual {
			continue
		}
		e := evidenceOf(s, t.baseline.threshold(s, lost, f.Requests, ratio), f)
		e.symptoms = symptomsOf(s,
			func(k kind, level float64) bool { return level >= t.baseline.threshold(s, k, f.Requests, ratio) })
		if grown.SuspectOperation != nil {
			e.include(grown)
		}
		j.raising = append(j.raising, e)
	}
	return j, exceeded
}

// ratio returns the multiple of its record that the score of a service must reach, given the number of services. See
// ratioFor.
func (b *baseline) ratio(services int) float64 { return ratioFor(services, fine, b.healthy[:]) }

// ratioFor returns the multiple of its record that a score must reach in a window of scale `of`, given the number of
// scores. healthy holds the number of healthy windows, without overlap, by age.
//
// The highest scores of healthy windows fall off exponentially: the record of n windows is about θ·ln n, and one window
// exceeds r times the record with probability n^−r. Let N be the number of windows of all scores in a week. With r =
// ln(N) ⁄ ln(n), we expect one of them to exceed r times its record. After a day, both numbers count windows that are
// as good as independent. Until then, scores vary with the application rather than by chance.
func ratioFor(scores, of int, healthy []float64) float64 {
	const week = 7 * 24 * time.Hour
	length, independent, n := lengths[of].window, 1.0, sum(healthy)
	if n*length.Hours() > 24 {
		independent = lengths[of].independent
	}
	return max(1.25,
		math.Log(independent*float64(week/length)*float64(max(1, scores))/falseRate)/math.Log(max(2, independent*n)))
}

func sum(all []float64) (s float64) {
	for _, x := range all {
		s += x
	}
	return s
}

// quietest is the fraction of the traffic so far that may be usual at a time of day that we haven't seen yet.
const quietest = 0.1

// threshold returns the level of kind k that s must reach to raise an incident in a window with the given number of
// requests. ratio is the result of baseline.ratio. With fewer requests than usual, chance makes levels higher, even for
// services whose level is usually 0.
func (b *baseline) threshold(s *compare.Suspect, k kind, requests uint64, ratio float64) float64 {
	usual := sum(b.requests[:]) / max(1, sum(b.healthy[:]))
	if !b.dayIsKnown() {
		usual *= quietest
	}
	fewer := max(1, usual/float64(max(1, requests)))
	least := max(b.gates.Score, ratio*leastRecord) * math.Sqrt(fewer)
	return max(least, b.records[s.Service].usual(k, requests, sum(b.healthy[:]), ratio))
}

// unusual reports whether any evidence against s, except flow, reaches share times its threshold.
func (b *baseline) unusual(s *compare.Suspect, requests uint64, ratio, share float64) bool {
	for k, level := range levelsOf(s) {
		if k := kind(k); k != flow && level > 0 && level >= share*b.threshold(s, k, requests, ratio) {
			return true
		}
	}
	return false
}

// nearThreshold reports whether the evidence against s in f keeps an incident open.
func (b *baseline) nearThreshold(now trace.Nanos, s *compare.Suspect, f *finding, comparer *compare.Comparer) bool {
	kept := b.grown(now, fine, s, f, keeping, comparer)
	return kept.SuspectOperation != nil || b.unusual(s, f.Requests, b.ratio(comparer.Services.Len()), keeping)
}

// aboveRecord returns the part of the score of s above the record of its service, or 0 if the record is higher.
func (b *baseline) aboveRecord(s *compare.Suspect) float64 {
	return max(0, s.Score-b.records[s.Service].highest(lost))
}
