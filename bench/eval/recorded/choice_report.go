package recorded

import (
	"github.com/sibyl-trace/sibyl/bench/eval"
)

// ChoiceReport is the result of [Set.Choose], by strategy.
type ChoiceReport struct {
	Baseline    Baseline `json:"baseline"`
	Tracepoints int      `json:"tracepoints"` // outside the baseline
	History     int      `json:"history"`     // traces outside of all windows
	// FalseAlarms is the number of problems raised in ControlSlices slices of the history, over all cases. The
	// histories of the cases are mostly the same traces.
	FalseAlarms   int                     `json:"false_alarms"`
	ControlSlices int                     `json:"control_slices"`
	Strategies    map[string]*ChoiceScore `json:"strategies"` // NoStrategy among them
}

// ChoiceScore is the result of one strategy.
type ChoiceScore struct {
	ChoiceSum
	ByFault map[string]ChoiceSum `json:"by_fault"`
	Cases   []ChoiceResult       `json:"cases"`
}

// ChoiceSum sums up cases. Fractions are over all cases of the sum.
type ChoiceSum struct {
	Count int `json:"count"`
	// Top1 and Top3 are the fractions of cases whose labelled operation is the first suspect, or one of the first
	// three. Visible is the fraction of cases whose labelled operation was ever visible, which says little on its own.
	Top1    float64 `json:"top1"`
	Top3    float64 `json:"top3"`
	Visible float64 `json:"visible"`
	Raised  float64 `json:"raised"` // fraction with a problem
	// RaisedFirst and Top1First are the same fractions, but count only problems raised before the window's traces were
	// repeated.
	RaisedFirst float64 `json:"raised_unrepeated"`
	Top1First   float64 `json:"top1_unrepeated"`
	// Medians over the cases with a problem: the fraction of executed tracepoints that were ever enabled, slices of the
	// window until the answer, and extra spans per 1 000 requests.
	EnabledMedian  eval.Rate `json:"enabled_median"`
	SlicesMedian   eval.Rate `json:"slices_median"`
	SpanHitsMedian eval.Rate `json:"span_hits_median"`
}

// ChoiceResult is the answer to one case.
type ChoiceResult struct {
	Name     string `json:"name"`
	Fault    string `json:"fault"`
	Traces   int    `json:"traces"`        // in the window
	Recorded int    `json:"window_slices"` // slices of the window before its traces are repeated
	// Raised is the slice of the window, from 1, whose end raised the first problem; nil without a problem.
	Raised   *int `json:"raised"`
	Repeated bool `json:"repeated"` // whether the window's traces had been repeated by then
	// Status belongs to the investigation with the answer; empty without an investigation.
	Status string `json:"status,omitempty"`
	Rank   *int   `json:"rank"` // of the first suspect with the label, from 1; nil if no suspect has it
	// Visible: the labelled operation was enabled at some time, or belongs to the baseline.
	Visible  bool          `json:"visible"`
	Suspects []string      `json:"suspects"`  // services that the incident names, in order; empty without an incident
	Ranking  []ChoiceEntry `json:"ranking"`   // the first suspects of the investigation; not nil
	Slices   int           `json:"slices"`    // executed slices of the window
	Executed int           `json:"executed"`  // tracepoints that requests of the window executed, enabled or not
	Enabled  int           `json:"enabled"`   // of these, ever enabled
	Requests int           `json:"requests"`  // in the window
	SpanHits int           `json:"span_hits"` // spans of enabled tracepoints

	Target Target `json:"-"`
}

// ChoiceEntry is a suspect.
type ChoiceEntry struct {
	Service   string `json:"service"`
	Operation string `json:"operation"`
	Kind      string `json:"kind"`
	// Callee is the service that a CLIENT calls, if visible: its own time is spent on the way there.
	Callee   string  `json:"callee,omitempty"`
	Baseline bool    `json:"baseline"`
	Share    float64 `json:"share"` // of the problem
}

// summarize sets the sums.
func (s *ChoiceScore) summarize() {
	s.ChoiceSum = sumOf(s.Cases, func(*ChoiceResult) bool { return true })
	s.ByFault = make(map[string]ChoiceSum)
	for i := range s.Cases {
		fault := s.Cases[i].Fault
		if _, ok := s.ByFault[fault]; !ok {
			s.ByFault[fault] = sumOf(s.Cases, func(r *ChoiceResult) bool { return r.Fault == fault })
		}
	}
}

func sumOf(results []ChoiceResult, of func(*ChoiceResult) bool) ChoiceSum {
	var s ChoiceSum
	var enabled, slices, hits []float64
	for i := range results {
		r := &results[i]
		if !of(r) {
			continue
		}
		s.Count++
		first := r.Rank != nil && *r.Rank == 1
		s.Top1 += float64(eval.Count(first))
		s.Top1First += float64(eval.Count(first && !r.Repeated))
		s.RaisedFirst += float64(eval.Count(r.Raised != nil && !r.Repeated))
		s.Top3 += float64(eval.Count(r.Rank != nil && *r.Rank <= 3))
		s.Visible += float64(eval.Count(r.Visible))
		if r.Raised != nil {
			s.Raised++
			enabled = append(enabled, float64(r.Enabled)/float64(max(1, r.Executed)))
			slices = append(slices, float64(r.Slices))
			hits = append(hits, 1000*float64(r.SpanHits)/float64(max(1, r.Requests)))
		}
	}
	for _, f := range []*float64{&s.Top1, &s.Top3, &s.Visible, &s.Raised, &s.RaisedFirst, &s.Top1First} {
		*f /= float64(max(1, s.Count))
	}
	s.EnabledMedian, s.SlicesMedian, s.SpanHitsMedian = eval.Median(enabled), eval.Median(slices), eval.Median(hits)
	return s
}
