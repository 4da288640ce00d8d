package search

import (
	"slices"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// searched returns the input of a call of Next with n chronic problems.
func searched(n int) Input {
	in := Input{Epoch: epoch}
	for i := range n {
		in.Problems = append(in.Problems,
			problem(analysis.Hash{Lo: uint64(i + 1)}, detect.Chronic, detect.KindVariable))
	}
	return in
}

func problem(id analysis.Hash, onset detect.Onset, kind detect.ProblemKind) Problem {
	return ProblemOf(&detect.Problem{ID: id, Onset: onset, Kind: kind})
}

// statuses returns the number of active investigations, and the status and reason of the investigation of subject.
func statuses(st *State, subject Subject) (active int, status Status, reason string) {
	for i := range st.Investigations {
		if st.Investigations[i].Status.Active() {
			active++
		}
	}
	if v := st.Investigation(subject); v != nil {
		return active, v.Status, v.Reason
	}
	return active, Gone, ""
}

// A changed problem takes the place of the lowest-ranked chronic problem, which is searched again later.
func TestChangedProblemsTakeThePlaceOfChronicOnes(t *testing.T) {
	in := searched(maxInvestigations + 1)
	setOnset(in.Problems, detect.Changed) // chronic problems would be searched one after the other
	in.State, _ = Next(in)
	setOnset(in.Problems, detect.Chronic)
	last := in.Problems[maxInvestigations-1].Subject
	in.State, _ = Next(in)
	if active, status, _ := statuses(&in.State, last); active != maxInvestigations || status != Opened {
		t.Fatalf("%d active, the last one %s", active, status)
	}
	changed := problem(analysis.Hash{Hi: 1}, detect.Changed, detect.KindSlow)
	in.Problems = slices.Insert(in.Problems, 0, changed)
	for range 2 {
		in.Now = in.Now.Add(epoch)
		in.State, _ = Next(in)
		active, status, _ := statuses(&in.State, changed.Subject)
		_, chronic, reason := statuses(&in.State, last)
		if active != maxInvestigations || status != Opened || chronic != Gone || reason == "" {
			t.Fatalf("%d active, the changed one %s, the chronic one %s: %q", active, status, chronic, reason)
		}
	}
	waiting := in.Problems[maxInvestigations+1].Subject // never had a place
	in.Problems = in.Problems[maxInvestigations:]
	for range graceEpochs + 2 {
		in.Now = in.Now.Add(epoch)
		in.State, _ = Next(in)
	}
	if in.State.Investigation(waiting) == nil && in.State.Investigation(last).Status == Gone {
		t.Errorf("no chronic problem has taken a place after the changed problem and most others closed")
	}
}

func setOnset(problems []Problem, onset detect.Onset) {
	for i := range problems {
		problems[i].Onset = onset
	}
}

// Only a few of many chronic problems are searched at a time, by rank. The next problem is searched when one closes. A
// changed problem doesn't wait.
func TestChronicProblemsAreSearchedInTurn(t *testing.T) {
	in := searched(10)
	for range 3 {
		in.Now = in.Now.Add(epoch)
		in.State, _ = Next(in)
	}
	active, _, _ := statuses(&in.State, in.Problems[0].Subject)
	if active != maxSteady || in.State.Investigation(in.Problems[maxSteady].Subject) != nil {
		t.Fatalf("%d active, want the first %d", active, maxSteady)
	}
	changed := problem(analysis.Hash{Hi: 1}, detect.Changed, detect.KindSlow)
	in.Problems = append(in.Problems, changed)
	in.State, _ = Next(in)
	if _, status, _ := statuses(&in.State, changed.Subject); status != Opened {
		t.Errorf("the changed problem is %s", status)
	}
	next := in.Problems[maxSteady].Subject
	in.Problems = in.Problems[1:]
	for range graceEpochs + 1 {
		in.Now = in.Now.Add(epoch)
		in.State, _ = Next(in)
	}
	if _, status, _ := statuses(&in.State, next); status != Opened {
		t.Errorf("the next chronic problem is %s", status)
	}
}

// The investigation of a problem that another problem stands for ends at once. It resumes if the other problem closes.
func TestTakenProblems(t *testing.T) {
	in := searched(1)
	taken := in.Problems[0]
	in.State, _ = Next(in)
	in.Problems, in.Taken = nil, map[Subject]bool{taken.Subject: true}
	var decisions []Decision
	in.State, decisions = Next(in)
	if _, status, reason := statuses(&in.State, taken.Subject); status != Gone || len(decisions) != 1 ||
		decisions[0].Reason != reason {
		t.Errorf("%s: %q, decisions %v", status, reason, decisions)
	}
	in.Problems, in.Taken = []Problem{taken}, nil
	in.State, _ = Next(in)
	if v := in.State.Investigation(taken.Subject); v.Missed != 0 {
		t.Errorf("%s, missed %d times", v.Status, v.Missed)
	}
}

// A changed problem doesn't wait for a problem of another application.
func TestTurnsOfApplications(t *testing.T) {
	var table trace.Table
	through := func(services ...string) *Problem {
		p := problem(analysis.Hash{Lo: uint64(len(services))}, detect.Changed, detect.KindSlow)
		for _, name := range services {
			at := table.Child(0, table.Op(table.Symbol(name), table.Symbol("GET /"), trace.Server))
			p.Edges = append(p.Edges, group.EdgeShare{Edge: trace.ContextEdge(at), Context: at})
		}
		return &p
	}
	in := Input{Table: &table, Epoch: epoch}
	s := newEpochStep(&in)
	s.state.Investigations = []Investigation{{Subject: through("gateway", "cart").Subject, Status: Investigating}}
	s.investigate(through("gateway", "cart"))
	waits := func(p *Problem) bool {
		i := investigationStep{epoch: s, v: &Investigation{}, problem: p}
		return i.waitsForTurn()
	}
	if !waits(through("search", "gateway")) || waits(through("wiki")) {
		t.Error("a problem of the same application does not wait, or one of another does")
	}
}

// No other search starts in the first call of the search of an incident, because no request has run through the
// incident yet.
func TestOpeningIncident(t *testing.T) {
	incident := Problem{Problem: &detect.Problem{Onset: detect.Changed}, Subject: OfIncident(1), Tree: &cct.Tree{}}
	other := problem(analysis.Hash{Hi: 2}, detect.Changed, detect.KindSlow)
	other.Edges = []group.EdgeShare{{Edge: 1, Context: 1}}
	in := Input{Epoch: epoch}
	for _, opens := range []bool{true, false} {
		s := newEpochStep(&in)
		s.investigate(&incident)
		i := investigationStep{epoch: s, v: &Investigation{}, problem: &other}
		if i.waitsForTurn() != opens {
			t.Errorf("another problem waits: %t, in the first call of the incident: %t", !opens, opens)
		}
		in.State = s.state
	}
}
