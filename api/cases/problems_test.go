package cases

import (
	"strings"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// The rank of a problem is explained.
func TestWhy(t *testing.T) {
	for want, p := range map[string]*contract.Problem{
		"changed: significantly worse than its own history; by impact, 37 ns/s, rank 1": {
			Rank:   1,
			Onset:  contract.OnsetChanged,
			Impact: new(37.0),
		},
		"chronic: high without a change, ranked after problems that changed; by impact, unknown, rank 2": {
			Rank:  2,
			Onset: contract.OnsetChronic,
		},
	} {
		if got := why(p); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// newRenderer returns a renderer for a core without requests.
func newRenderer() renderer {
	c := engine.NewCore(&trace.Table{}, engine.DefaultOptions())
	return renderer{render.New(describe.New(c.View().Table, describe.Verbatim), c.View())}
}

// There is a next step for each state of an investigation.
func TestNext(t *testing.T) {
	names, tried := newRenderer(), []trace.Symbol{1}
	for want, c := range map[string]struct {
		v       *search.Investigation
		advice  describe.Sentence
		missing []string

		noSlower bool
	}{
		"Queued: too many other problems are being investigated.":                                    {},
		"Look at sample traces: Sibyl searches for added latency, and these requests are no slower.": {noSlower: true},
		"Just opened: tracepoints are chosen when the epoch ends, if any fit the budget.": {
			v: &search.Investigation{Status: search.Opened},
		},
		"1 tracepoint on: waiting for requests that show where the time goes.": {
			v: &search.Investigation{Status: search.Investigating, Requested: make([]search.TracepointRequest, 1)},
		},
		"One place stands out.": {
			v: &search.Investigation{Status: search.Located, Reason: "one place stands out"},
		},
		"The available tracepoints show no more. All were tried.": {
			v: &search.Investigation{Status: search.Exhausted, Reason: "all were tried", Tried: tried},
		},
		"Add tracepoints within a b, c d: the existing ones show no more.": {
			v:       &search.Investigation{Status: search.Exhausted, Tried: tried},
			missing: []string{"a b", "c d"},
		},
		"Add tracepoints within a b: Sibyl found none to try.": {
			v:       &search.Investigation{Status: search.Exhausted},
			missing: []string{"a b"},
		},
		"Add tracepoints where the time is lost: Sibyl found none to try.": {
			v: &search.Investigation{Status: search.Exhausted},
		},
		"The available tracepoints show no more. None fits the budget.": {
			v: &search.Investigation{Status: search.Exhausted, Reason: "none fits the budget", BudgetStarved: 3},
		},
		"It is part of an incident, which Sibyl investigates as a whole. Roll it back.": {
			v:      &search.Investigation{Status: search.Gone},
			advice: describe.Say("Roll it back."),
		},
	} {
		if got := names.next(c.v, c.advice, c.missing, c.noSlower).String(); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

// The next step for a problem of an incident is the incident's next step, even if the problem has closed.
func TestNextWithinIncident(t *testing.T) {
	r := newRenderer()
	x := &engine.Incident{Incident: incident.Incident{Suspects: make([]compare.Suspect, 1)}}
	unseen := *x // as after a replay
	unseen.Enter(incident.Transition{At: 1, State: incident.Closed, Why: incident.NoTraces})
	p := detect.Problem{Kind: detect.KindShifted}
	if next := r.nextOfOpen(x, &p, nil, nil).String(); next != "It is part of an incident. "+r.advice(x).String() {
		t.Errorf("next of a problem of an open incident that isn't searched: %q", next)
	}
	for _, next := range []string{r.nextOfOpen(&unseen, &p, nil, nil).String(), r.nextOfClosed(&unseen).String()} {
		if want := "It was part of an incident. " + r.advice(&unseen).String(); next != want ||
			!strings.Contains(next, "nobody knows") {
			t.Errorf("next of a problem of an incident that closed without traffic: %q, want %q", next, want)
		}
	}
	if next := r.nextOfClosed(x).String(); !strings.Contains(next, "still open") {
		t.Errorf("next of a closed problem of an open incident: %q", next)
	}
	if next := r.nextOfClosed(nil).String(); next != "Nothing to do: the problem has closed." {
		t.Errorf("next of a closed problem without an incident: %q", next)
	}
}
