package search

import (
	"strings"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
)

// A search that a person has ended stays ended until the decision expires.
func TestSearchEndedByPerson(t *testing.T) {
	in := searched(1)
	subject := in.Problems[0].Subject
	in.State, _ = Next(in)
	until := in.Now.Add(3 * epoch)
	in.State.Steered = []Steering{{Subject: subject, Ended: true, Until: until, By: "ann", Reason: "known"}}
	for range 2 {
		in.Now = in.Now.Add(epoch)
		in.State, _ = Next(in)
		_, status, reason := statuses(&in.State, subject)
		if status != Gone || reason != "ann ended the search: known" {
			t.Errorf("%s, %q; want gone, by ann", status, reason)
		}
	}
	in.Now = in.Now.Add(epoch)
	before := in.State.Investigation(subject).Epochs
	in.State, _ = Next(in)
	if v := in.State.Investigation(subject); v.Epochs != before+1 || len(in.State.Steered) > 0 {
		t.Errorf("the decision has expired, and the problem is not searched: %+v, %+v", v, in.State.Steered)
	}
}

// A person can start the search for a chronic problem out of turn, and once more after it has ended.
func TestSearchStartedByPerson(t *testing.T) {
	in := searched(maxSteady + 2)
	last := in.Problems[maxSteady+1].Subject
	in.State, _ = Next(in)
	if in.State.Investigation(last) != nil {
		t.Fatal("the problem is searched without being asked for")
	}
	steer := func() {
		in.State.Steered = []Steering{{Subject: last, Until: in.Now.Add(100 * epoch), By: "ann"}}
		in.Now = in.Now.Add(epoch)
		in.State, _ = Next(in)
	}
	steer()
	v := in.State.Investigation(last)
	if v == nil || !v.Status.Active() {
		t.Fatal("the problem is not searched")
	}
	opened := v.Opened
	if steer(); in.State.Investigation(last).Opened != opened {
		t.Error("a search that is under way begins anew")
	}
	v = in.State.Investigation(last)
	v.Status, v.Tried = Exhausted, append(v.Tried, 7)
	in.State.Cooldowns = []Cooldown{{Subject: last, Tracepoint: 7, Until: in.Now.Add(CooldownPeriod)}}
	began := in.Now.Add(epoch)
	steer()
	for range 3 {
		v = in.State.Investigation(last)
		if v.Opened != began || len(v.Tried) > 0 || len(in.State.Cooldowns) > 0 {
			t.Errorf("not searched anew, once: %+v, %d cooldowns", v, len(in.State.Cooldowns))
		}
		in.Now = in.Now.Add(epoch)
		in.State, _ = Next(in)
	}
}

// A search that a person wants takes the place of a chronic problem, and no other problem takes its place.
func TestSearchStartedByPersonTakesAPlace(t *testing.T) {
	in := searched(maxInvestigations)
	setOnset(in.Problems, detect.Changed)
	in.State, _ = Next(in)
	setOnset(in.Problems, detect.Chronic)
	wanted := problem(analysis.Hash{Hi: 1}, detect.Chronic, detect.KindSlow)
	in.Problems = append(in.Problems, wanted)
	in.State.Steered = []Steering{{Subject: wanted.Subject, Until: in.Now.Add(100 * epoch)}}
	in.Now = in.Now.Add(epoch)
	in.State, _ = Next(in)
	if active, status, _ := statuses(&in.State, wanted.Subject); active != maxInvestigations || !status.Active() {
		t.Fatalf("%d active, the wanted one %s", active, status)
	}
	in.Problems = append(in.Problems, problem(analysis.Hash{Hi: 2}, detect.Changed, detect.KindSlow))
	in.Now = in.Now.Add(epoch)
	in.State, _ = Next(in)
	_, status, _ := statuses(&in.State, wanted.Subject)
	_, evicted, reason := statuses(&in.State, in.Problems[maxInvestigations-2].Subject)
	if !status.Active() || evicted != Gone || !strings.Contains(reason, "more urgent") {
		t.Errorf("wanted: %s; the last chronic one: %s, %q", status, evicted, reason)
	}
}
