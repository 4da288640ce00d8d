package incident

import (
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/baselinediff"
	"github.com/sibyl-trace/sibyl/trace"
)

// State is the saved form of a [Tracker].
type State struct {
	Incidents []SavedIncident
	Records   []SavedRecord // ascending by service
	Healthy   [2]float64
	Aged      trace.Nanos
	Judged    trace.Nanos // end of the first window that was judged; 0: none, or of an earlier version
	Pending   []SavedWindow
	Relearned []SavedTime // services that are learned anew, ascending
	Above     []SavedTime // services whose score is above its threshold, ascending
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
}

// SavedRecord holds the highest scores of a service in healthy windows.
type SavedRecord struct {
	Service  trace.Symbol
	Highest  [2]float64
	Failures [2]float64
}

// SavedTime is the time since when something is the case with a service.
type SavedTime struct {
	Service trace.Symbol
	Since   trace.Nanos
}

// SavedWindow holds the scores of a window that is not yet known to be healthy.
type SavedWindow struct {
	End      trace.Nanos
	Services []trace.Symbol
	Scores   []float64
	Failures []float64 // parts of Scores
}

// State returns the state of t. Equal trackers give equal states.
func (t *Tracker) State() State {
	s := State{Healthy: t.healthy, Aged: t.aged, Judged: t.judged}
	for _, x := range t.incidents {
		s.Incidents = append(s.Incidents, SavedIncident{x.Incident, x.service, x.score, x.waits, x.opaque, x.beyond, x.shared})
	}
	for _, service := range slices.Sorted(maps.Keys(t.records)) {
		r := t.records[service]
		s.Records = append(s.Records, SavedRecord{service, [2]float64{r[0].all, r[1].all}, [2]float64{r[0].failures, r[1].failures}})
	}
	for _, service := range slices.Sorted(maps.Keys(t.relearned)) {
		s.Relearned = append(s.Relearned, SavedTime{service, t.relearned[service]})
	}
	for _, w := range t.pending {
		saved := SavedWindow{End: w.end}
		for _, x := range w.scores {
			saved.Services, saved.Scores = append(saved.Services, x.service), append(saved.Scores, x.all)
			saved.Failures = append(saved.Failures, x.failures)
		}
		s.Pending = append(s.Pending, saved)
	}
	for _, service := range slices.Sorted(maps.Keys(t.above)) {
		s.Above = append(s.Above, SavedTime{service, t.above[service]})
	}
	return s
}

// Restore returns the tracker with a state. It ignores incidents without suspects, and scores without a service.
func Restore(s State) *Tracker {
	t := NewTracker()
	t.healthy, t.aged, t.judged = s.Healthy, s.Aged, s.Judged
	if t.judged == 0 && t.healthy != [2]float64{} {
		t.judged = t.aged // of an earlier version, which reviewed nothing after it had learned
	}
	for _, x := range s.Incidents {
		if len(x.Suspects) == 0 {
			continue
		}
		t.incidents = append(t.incidents, &tracked{Incident: x.Incident, charge: charge{x.Service, x.Score, x.Waits, x.Opaque, x.Beyond, x.Shared}})
	}
	for _, r := range s.Records {
		t.records[r.Service] = &record{{r.Highest[0], r.Failures[0]}, {r.Highest[1], r.Failures[1]}}
	}
	for _, r := range s.Relearned {
		t.relearned[r.Service] = r.Since
	}
	for _, saved := range s.Pending {
		w := window{end: saved.End}
		for i := range min(len(saved.Services), len(saved.Scores), len(saved.Failures)) {
			w.scores = append(w.scores, score{saved.Services[i], levels{saved.Scores[i], saved.Failures[i]}})
		}
		t.pending = append(t.pending, w)
	}
	for _, x := range s.Above {
		t.above[x.Service] = x.Since
	}
	return t
}
