package describe

import (
	"cmp"
	"fmt"

	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// Transition describes how an incident entered a state.
func (n *Names) Transition(t *incident.Transition) string {
	switch t.Why {
	case incident.Noticed:
		return "The incident opened."
	case incident.Returned:
		return "The incident opened again."
	case incident.Grew:
		return "It grew, after it had been the same for a day."
	case incident.Unchanged:
		return "It had been the same for a day: Sibyl proposed to accept it as normal."
	case incident.Recovered, incident.Stopped, incident.NoTraces, incident.Replaced, incident.Moved,
		incident.SameCause, incident.ByPerson:
	}
	return "The incident closed: " + n.Ending(t) + "."
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

// Ending describes why an incident closed, as a clause. All texts about its end use it.
func (n *Names) Ending(t *incident.Transition) string {
	switch t.Why {
	case incident.Stopped:
		return "its requests stopped, so nobody knows whether its cause is gone"
	case incident.NoTraces:
		return "no traces arrived, so nobody knows whether its cause is gone"
	case incident.Replaced:
		return fmt.Sprintf("incident %016x tells what happens to its service now", t.Into)
	case incident.Moved:
		return "its requests go to " + n.NamedService(t.Service) + " now"
	case incident.SameCause:
		return fmt.Sprintf("incident %016x has the same cause", t.Into)
	case incident.ByPerson:
		text := cmp.Or(n.Clean(t.By), "a person") + " accepted the behaviour since the onset as normal"
		if t.Text != "" {
			text += " (" + n.Clean(t.Text) + ")"
		}
		return text
	case incident.Recovered, incident.Noticed, incident.Returned, incident.Grew, incident.Unchanged:
		// the last four don't end an incident
	}
	if t.Calls == 0 {
		return "back to normal"
	}
	return "back to normal, seen in " + units.Plural(int(t.Calls), "call")
}
