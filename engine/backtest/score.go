package backtest

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Grace is the time after a labelled window during which its fault can still open an incident. The suspects are judged
// at the end of this time.
const Grace = time.Minute

// Score compares incidents with labels.
//
// An incident that opens in a labelled window or within [Grace] after it is credited to the window. If it opens in
// several windows, it is credited to the window whose service ranks highest among its suspects or, if the ranks are
// equal, to the window that started first. A window is raised by the first incident credited to it or, if there is
// none, by the first incident that opened in it. All other incidents are false, including repeated incidents in the
// same window.
type Score struct {
	Cases        []Case // in the order of the labels
	All          Sum
	False        []uint64 // IDs of the false incidents, in the order of opening
	HealthyHours float64  // time after Result.Learned outside the labelled windows and Grace
	ByFault      map[string]Sum
	// Outside holds the names of labels that aren't cases because no incident can open for them: they lie outside the
	// recording, or end more than Grace before Result.Learned.
	Outside []string
}

// MarshalJSON implements json.Marshaler.
func (s *Score) MarshalJSON() ([]byte, error) {
	cases, incidents := make([]jsonCase, 0, len(s.Cases)), make([]string, 0, len(s.False))
	for i := range s.Cases {
		c := jsonCase{Case: s.Cases[i]}
		if c.Raised {
			c.Incident = new(incidentID(s.Cases[i].Incident))
		}
		cases = append(cases, c)
	}
	for _, id := range s.False {
		incidents = append(incidents, incidentID(id))
	}
	return json.Marshal(struct {
		Cases          []jsonCase     `json:"cases"`
		Raised         float64        `json:"raised"`
		Top1           float64        `json:"top1"`
		Top3           float64        `json:"top3"`
		FalseIncidents int            `json:"false_incidents"`
		False          []string       `json:"false"`
		HealthyHours   float64        `json:"healthy_hours"`
		ByFault        map[string]Sum `json:"by_fault"`
		Outside        []string       `json:"outside"`
	}{
		cases, s.All.Raised, s.All.Top1, s.All.Top3, len(s.False), incidents, s.HealthyHours, s.ByFault,
		append([]string{}, s.Outside...),
	})
}

type jsonCase struct {
	Case
	Incident *string `json:"incident"` // nil if no incident was raised
}

// incidentID formats id as the API does.
func incidentID(id uint64) string { return fmt.Sprintf("%016x", id) }

// Case is the result for one label: whether and when an incident was raised for it, and where the labelled service
// ranks.
type Case struct {
	Name           string   `json:"name"`
	Fault          string   `json:"fault"`
	Raised         bool     `json:"raised"`
	SecondsToRaise *float64 `json:"seconds_to_raise"` // from the start of the window; nil if no incident was raised
	// RankService is the rank, starting at 1, of the labelled service among the suspects as of [Grace] after the
	// window, or as of the end of the incident if that is earlier. It is nil if the service isn't a suspect.
	RankService *int `json:"rank_service"`

	Service  string `json:"-"` // labelled
	Incident uint64 `json:"-"` // ID of the incident that was raised; 0 if there was none
}

// Sum summarizes cases. Raised, Top1 and Top3 are fractions of the cases, 0–1.
type Sum struct {
	Cases  int     `json:"cases"`
	Raised float64 `json:"raised"`
	Top1   float64 `json:"top1"` // fraction of cases whose labelled service is the first suspect
	Top3   float64 `json:"top3"` // fraction of cases whose labelled service is among the first three suspects
}

// scorer records incidents until their suspects are judged, and compares them with the labels.
type scorer struct {
	labels []Label
	table  *trace.Table
	// by label and incident ID: incidents that opened in the window, updated until the end of Grace
	judged []map[uint64]engine.Incident
}

func newScorer(labels []Label, table *trace.Table) *scorer {
	s := &scorer{labels: labels, table: table}
	for range labels {
		s.judged = append(s.judged, make(map[uint64]engine.Incident))
	}
	return s
}

// deadline returns the time at which the suspects are judged for a label with the given window.
func deadline(window history.Interval) trace.Nanos { return window.To.Add(Grace) }

// epoch records the incidents as of `at`, the end of an epoch.
func (s *scorer) epoch(at trace.Nanos, incidents map[uint64]engine.Incident) {
	for i := range s.labels {
		w := s.labels[i].Window
		if at < w.From || at > deadline(w) {
			continue
		}
		for id, x := range incidents {
			if w.From <= x.Opened() && x.Opened() <= deadline(w) {
				s.judged[i][id] = x
			}
		}
	}
}

// rank returns the rank, starting at 1, of the service of labels[label] among the suspects of the incident with the
// given id, or 0 if the service isn't a suspect.
func (s *scorer) rank(label int, id uint64) int {
	x := s.judged[label][id]
	if into, merged := s.judged[label][x.Into()]; merged {
		x = into // a person who opens x sees the incident that it was merged into
	}
	for i := range x.Suspects {
		if s.table.Text(x.Suspects[i].Service) == s.labels[label].Target.Service {
			return i + 1
		}
	}
	return 0
}

// score compares the incidents of r with the labels.
func (s *scorer) score(r *Result) *Score {
	score := &Score{
		Cases:        make([]Case, 0, len(s.labels)),
		ByFault:      make(map[string]Sum),
		HealthyHours: s.healthy(r).Hours(),
	}
	credited := s.credit(r.Incidents)
	raised := make(map[uint64]bool)
	for i := range s.labels {
		if r.Learned == 0 || deadline(s.labels[i].Window) < r.Learned {
			score.Outside = append(score.Outside, s.labels[i].Name)
			continue
		}
		c := s.answer(i, credited[i], r.Incidents)
		if c.Raised {
			raised[c.Incident] = true
		}
		score.Cases = append(score.Cases, c)
	}
	for i := range r.Incidents {
		if id := r.Incidents[i].ID; !raised[id] {
			score.False = append(score.False, id)
		}
	}
	score.summarize()
	return score
}

// credit returns, for each label, the ID of the first incident credited to it, or 0. incidents must be in the order of
// opening.
func (s *scorer) credit(incidents []engine.Incident) []uint64 {
	credited := make([]uint64, len(s.labels))
	for i := range incidents {
		id := incidents[i].ID
		best := -1
		for k := range s.labels {
			if _, opened := s.judged[k][id]; opened && (best < 0 || s.better(k, best, id)) {
				best = k
			}
		}
		if best >= 0 && credited[best] == 0 {
			credited[best] = id
		}
	}
	return credited
}

// better reports whether the incident with the given id is credited to label a rather than to label b.
func (s *scorer) better(a, b int, id uint64) bool {
	x, y := s.rank(a, id), s.rank(b, id)
	switch {
	case x == y:
		return s.labels[a].Window.From < s.labels[b].Window.From
	case x == 0 || y == 0:
		return y == 0
	}
	return x < y
}

// answer returns the case of labels[label]. credited is the ID of the incident credited to the label; if it is 0,
// answer uses the first of incidents that opened in the window.
func (s *scorer) answer(label int, credited uint64, incidents []engine.Incident) Case {
	l := &s.labels[label]
	c := Case{Name: l.Name, Fault: l.Fault, Service: l.Target.Service, Incident: credited}
	for i := range incidents {
		if _, opened := s.judged[label][incidents[i].ID]; opened && c.Incident == 0 {
			c.Incident = incidents[i].ID
		}
	}
	if c.Incident == 0 {
		return c
	}
	c.Raised = true
	raised := s.judged[label][c.Incident]
	c.SecondsToRaise = new(raised.Opened().Sub(l.Window.From).Seconds())
	if rank := s.rank(label, c.Incident); rank > 0 {
		c.RankService = new(rank)
	}
	return c
}

// healthy returns the total time after r.Learned that lies outside the labelled windows and [Grace].
func (s *scorer) healthy(r *Result) (sum time.Duration) {
	if r.Learned == 0 {
		return 0
	}
	windows := make([]history.Interval, 0, len(s.labels))
	for i := range s.labels {
		w := s.labels[i].Window
		windows = append(windows, history.Interval{From: w.From, To: deadline(w)})
	}
	sorting.Slice(windows, func(a, b history.Interval) int { return int(a.From - b.From) })
	at := r.Learned
	for _, w := range windows {
		sum += max(0, min(w.From, r.To).Sub(at))
		at = max(at, w.To)
	}
	return sum + max(0, r.To.Sub(at))
}

// summarize sets All and ByFault from the cases.
func (s *Score) summarize() {
	s.All = sumOf(s.Cases, func(*Case) bool { return true })
	for i := range s.Cases {
		fault := s.Cases[i].Fault
		if _, done := s.ByFault[fault]; !done {
			s.ByFault[fault] = sumOf(s.Cases, func(c *Case) bool { return c.Fault == fault })
		}
	}
}

func sumOf(cases []Case, of func(*Case) bool) (s Sum) {
	var raised, first, among float64
	for i := range cases {
		c := &cases[i]
		if !of(c) {
			continue
		}
		s.Cases++
		if c.Raised {
			raised++
		}
		if r := c.RankService; r != nil && *r == 1 {
			first++
		}
		if r := c.RankService; r != nil && *r <= 3 {
			among++
		}
	}
	n := max(1, float64(s.Cases))
	s.Raised, s.Top1, s.Top3 = raised/n, first/n, among/n
	return s
}
