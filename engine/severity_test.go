package engine

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/incident"
)

// The severity depends on the loss of requests, on failing request types, and on objectives.
func TestSeverity(t *testing.T) {
	type types = []AffectedType
	slowly, fast := incident.Missed{Window: 6 * time.Hour}, incident.Missed{Window: time.Hour}
	for _, c := range []struct {
		name       string
		score      float64
		types      types
		objectives []incident.Missed
		want       Grounds
	}{
		{"a little time", 0.05, types{{Failed: 0.2, UsualFailed: 0.1}}, nil, Grounds{Minor, 0.1, nil, nil}},
		{"a tenth of the time", 0.1, nil, nil, Grounds{Major, 0.1, nil, nil}},
		{
			"a request type fails", 0.01,
			types{{}, {Failed: 0.26, UsualFailed: 0.01}},
			nil,
			Grounds{Major, 0.25, nil, &AffectedType{Failed: 0.26, UsualFailed: 0.01}},
		},
		{
			"a request type that always fails", 0.01,
			types{{Failed: 0.9, UsualFailed: 0.9}},
			nil,
			Grounds{Minor, 0.1, nil, nil},
		},
		{"an objective is missed", 0, nil, []incident.Missed{slowly}, Grounds{Major, 0, &slowly, nil}},
		{"an objective is missed fast", 0.1, nil, []incident.Missed{slowly, fast}, Grounds{Critical, 0, &fast, nil}},
		{"half of the time", 0.5, nil, []incident.Missed{fast}, Grounds{Critical, 0.5, nil, nil}},
	} {
		x := Incident{
			Incident: incident.Incident{Objectives: c.objectives, Suspects: make([]compare.Suspect, 1)},
			Types:    c.types,
		}
		x.Suspects[0].Score = c.score
		if diff := cmp.Diff(c.want, x.Grounds()); diff != "" || x.Severity() != c.want.Severity {
			t.Errorf("%s: -want +got\n%s", c.name, diff)
		}
	}
	late := Incident{Incident: incident.Incident{Suspects: []compare.Suspect{{
		Score: 383, Operations: []compare.SuspectOperation{{Queue: true, Score: 383}},
	}}}}
	if got := late.Severity(); got != Major {
		t.Errorf("messages that wait: %s", got)
	}
	if got := (&Incident{}).Severity(); got != Minor {
		t.Errorf("without suspects: %s", got)
	}
}

// The impact counts losses relative to usual requests, but no gains.
func TestImpact(t *testing.T) {
	x := Incident{Incident: incident.Incident{Onset: 10e9}, Types: []AffectedType{
		{
			Requests:    100,
			Mean:        3e6,
			Usual:       1e6,
			Failed:      0.5,
			UsualFailed: 0.1,
		},
		{
			Requests:    100,
			Mean:        1e6,
			Usual:       5e6,
			Failed:      0,
			UsualFailed: 0.5,
		},
	}}
	if got, want := x.Impact(20e9), (Impact{Lost: 20e6, Failed: 4}); got != want {
		t.Errorf("open: %v, want %v", got, want)
	}
	x.Seen, x.History = 50e9, []incident.Transition{{At: 90e9, State: incident.Closed}}
	if got, want := x.Impact(1000e9), (Impact{Lost: 5e6, Failed: 1}); got != want {
		t.Errorf("closed: %v, want %v", got, want)
	}
	x.Onset, x.History = 20e9, nil
	if got, want := x.Impact(20e9), (Impact{Lost: 200e6, Failed: 40}); got != want {
		t.Errorf("that has just begun: %v, want %v", got, want)
	}
}
