package describe

import (
	"cmp"
	"fmt"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// Transition describes how an incident entered a state.
func Transition(n *Names, t *incident.Transition) Sentence {
	switch t.Why {
	case incident.Noticed:
		return Say("The incident opened.")
	case incident.Returned:
		return Say("The incident opened again.")
	case incident.Grew:
		return Say("It grew, after it had been the same for a day.")
	case incident.Unchanged:
		return Say("It had been the same for a day: Sibyl proposed to accept it as normal.")
	case incident.Recovered, incident.Stopped, incident.NoTraces, incident.Replaced, incident.Moved,
		incident.SameCause, incident.ByPerson:
	}
	return Say("The incident closed: ").And(Ending(n, t)).And(Say("."))
}

// EndReasons names the reasons why incidents close, as in the API.
var EndReasons = map[incident.Why]string{
	incident.Recovered: "recovered",
	incident.Stopped:   "stopped",
	incident.NoTraces:  "no_traces",
	incident.Replaced:  "replaced",
	incident.Moved:     "moved",
	incident.SameCause: "merged",
	incident.ByPerson:  "accepted",
}

// Ending describes why an incident closed, as a clause. All texts about the end of an incident use this clause.
func Ending(n *Names, t *incident.Transition) Sentence {
	switch t.Why {
	case incident.Stopped:
		return Say("its requests stopped, so nobody knows whether its cause is gone")
	case incident.NoTraces:
		return Say("no traces arrived, so nobody knows whether its cause is gone")
	case incident.Replaced:
		return Say("incident %s tells what happens to its service now", incidentID(t.Into))
	case incident.Moved:
		return Say("its requests go to %s now", n.service(t.Service).quiet())
	case incident.SameCause:
		return Say("incident %s has the same cause", incidentID(t.Into))
	case incident.ByPerson:
		by := Phrase{Text: cmp.Or(n.Clean(t.By), "a person")}
		if t.Text == "" {
			return Say("%s accepted the behaviour since the onset as normal", by)
		}
		return Say("%s accepted the behaviour since the onset as normal (%s)", by, Phrase{Text: n.Clean(t.Text)})
	case incident.Recovered, incident.Noticed, incident.Returned, incident.Grew, incident.Unchanged:
		// the last four don't end an incident
	}
	if t.Calls == 0 {
		return Say("back to normal")
	}
	return Say("back to normal, seen in %s", number(units.Plural(int(t.Calls), "call")))
}

// incidentID returns the ID of an incident.
func incidentID(id uint64) Phrase {
	return Phrase{Text: fmt.Sprintf("%016x", id), Kind: IncidentPhrase}
}

// ProblemOpened describes the milestone m, the opening of one of an incident's problems.
func ProblemOpened(n *Names, m *engine.Milestone) Sentence {
	requests := cmp.Or(n.RequestType(m.RequestType, m.Entry), "request type "+m.RequestType.String()[:8])
	if !m.Group.IsZero() {
		requests = InGroup(requests, m.Group)
	}
	of := Name(requests)
	switch m.Kind {
	case detect.KindVariable:
		return Say("A problem opened: the durations of %s vary more than usual.", of)
	case detect.KindShifted:
		if m.Fails {
			return Say("A problem opened: more requests of %s fail than usual.", of)
		}
		return Say("A problem opened: requests of %s changed their call flow.", of)
	case detect.KindSlow:
	}
	return Say("A problem opened: %s takes longer than usual.", of)
}
