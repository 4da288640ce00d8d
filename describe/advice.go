package describe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// Advice is the evidence about an incident that decides the next step.
type Advice struct {
	Suspects []compare.Suspect   // ranked
	Last     incident.Transition // of the incident
	// Objective is an objective that requests violate. It may be nil.
	Objective *Objective
	// Version is the latest version of the first suspect that was deployed between shortly before the onset and the
	// opening of the incident. Before is its predecessor. Both are 0 without a deploy.
	Version, Before trace.Symbol

	// The state of the search inside the first suspect.
	Located   trace.Op // 0 if nothing was located
	Share     float64  // of the added latency, at Located; 0 if unknown
	Reason    Reason   // for Located
	Searching bool     // for Located
	On        int      // tracepoints, while searching
	Doing     string   // the step that the search waits for
	Exhausted string   // why the search located nothing; may be empty
	Untried   bool     // if exhausted: there was no tracepoint to try
	Lead      trace.Op // if searching or exhausted: the place with the largest share so far; may be 0
	LeadShare float64  // of the added latency
}

// leastPart is the smallest part of the cost that an instance must carry, or of the added latency that a place must
// have, for the advice to point to it.
const leastPart = 0.5

// Advice returns the next step for the people who work on an incident.
func (n *Names) Advice(x *Advice) string {
	if !x.Last.State.IsOpen() {
		return n.adviceAfter(x)
	}
	if len(x.Suspects) == 0 {
		return "Compare slow traces with usual ones."
	}
	if x.Last.State == incident.Steady {
		open := *x
		open.Last.State = incident.Open
		return n.Advice(&open) + " It has been like this for a day: if it is normal now, accept it."
	}
	first := &x.Suspects[0]
	name := n.NamedService(first.Service)
	if x.Objective != nil && first.Score <= 0 {
		if x.Objective.Below > 0 {
			return "Compare slow traces of " + n.Clean(x.Objective.Entry) + " with usual ones: no service stands out."
		}
		return "Look at failed traces of " + n.Clean(x.Objective.Entry) + " in your tracing backend: no service stands out."
	}
	if text := n.undoable(x, first, name); text != "" {
		switch { // the sentence about the incident states the share of the place
		case x.Located != 0 && x.Reason.Wait != 0:
			text += " " + waitRemedy(n, x.Located, &x.Reason)
		case x.Located != 0:
			text += " The place to look at is " + n.Op(x.Located) + "."
		case x.leads():
			text += " " + Located(n, x.Lead, x.LeadShare, Reason{}).String() + " so far."
		}
		return text + n.searching(x, name)
	}
	if callee := silentCallee(x.Suspects); callee != nil {
		return n.adviceFor(callee, n.NamedService(callee.Service)) + n.searching(x, name)
	}
	if queue := first.Queue(); queue != nil { // no place inside the consumer carries the wait
		return "Look at the lag of " + n.queue(queue.Op) + " and at its consumer: " + name +
			" takes messages late if it is slow, has stopped, or runs in too few instances."
	}
	if x.Located != 0 && x.Reason.Wait != 0 {
		return waitRemedy(n, x.Located, &x.Reason)
	}
	if x.Located != 0 {
		if x.Share == 0 {
			return "Look at " + n.Op(x.Located) + "."
		}
		return "Look at " + n.Op(x.Located) + ": it carries " + units.Share(x.Share) + " of the added latency."
	}
	if x.leads() {
		return "Look at " + n.Op(x.Lead) + ": it carries " + units.Share(x.LeadShare) + " of the added latency so far." + n.searching(x, name)
	}
	return n.adviceFor(first, name) + n.searching(x, name)
}

// adviceAfter returns the next step after the end of an incident.
func (n *Names) adviceAfter(x *Advice) string {
	switch last := &x.Last; last.Why {
	case incident.SameCause:
		return fmt.Sprintf("Look at incident %016x, which has the same cause.", last.Into)
	case incident.Replaced:
		return fmt.Sprintf("Look at incident %016x, in which the same service does something else.", last.Into)
	case incident.ByPerson:
		return "Nothing to do: " + n.Ending(last) + ", so it may go on."
	case incident.Moved:
		return "Nothing to do if " + n.NamedService(last.Service) + " was to take over: it answers these requests now."
	case incident.NoTraces:
		return n.untilKnown(x, "Check that the application still runs and sends traces: "+
			"none arrived when the incident closed, so nobody knows whether the fault is gone.")
	case incident.Stopped:
		return n.untilKnown(x, "Check whether these requests should have stopped: none "+
			"came when the incident closed, so nobody knows whether the fault is gone.")
	case incident.Recovered, incident.Noticed, incident.Returned, incident.Grew, incident.Unchanged:
		// the last four don't end an incident
	}
	return "Nothing to do: " + n.Ending(&x.Last) + "."
}

// untilKnown returns text and, if a deploy or an instance may be the cause, the advice to compare it, because the
// incident may still go on.
func (n *Names) untilKnown(x *Advice, text string) string {
	if len(x.Suspects) == 0 {
		return text
	}
	return strings.TrimSpace(text + " " + n.undoable(x, &x.Suspects[0], n.NamedService(x.Suspects[0].Service)))
}

// leads reports whether the search is still running and knows a place with at least leastPart of the added latency that
// isn't already among the first suspect's operations.
func (x *Advice) leads() bool {
	return x.Searching && x.Lead != 0 && x.LeadShare >= leastPart &&
		!slices.ContainsFunc(x.Suspects[0].Operations, func(o compare.SuspectOperation) bool { return o.Op == x.Lead })
}

// undoable returns the next step if a deploy or an instance of the suspect s, which is called name, may be the cause,
// because a rollback or a restart is quicker than a diagnosis. Otherwise it returns "".
func (n *Names) undoable(x *Advice, s *compare.Suspect, name string) string {
	if x.Version != 0 {
		deployed := "just deployed"
		if !x.Last.State.IsOpen() {
			deployed = "deployed shortly before it opened"
		}
		return "Compare " + name + " " + n.Clean(n.Table.Text(x.Version)) + ", which was " + deployed + ", with " + n.Clean(n.Table.Text(x.Before)) +
			": if it is the cause, roll it back."
	}
	if len(s.Instances) > 0 && s.Instances[0].Part >= leastPart {
		i := &s.Instances[0]
		return "Compare " + n.Clean(n.Table.Text(i.Key)) + " = " + n.Clean(n.Table.Text(i.Value)) + ", which carries " + units.Percent(i.Part) +
			" of the cost, with the rest of " + name + "."
	}
	return ""
}

// searching describes the search inside the service called name, as a sentence that follows another. It returns "" if
// there is no search or the search has located the place.
func (n *Names) searching(x *Advice, name string) string {
	switch {
	case x.Exhausted != "":
		text := " The tracepoints of " + name + " show no more: " + x.Exhausted + "."
		if x.Untried {
			text = " Sibyl found no tracepoint to try in " + name + "."
		}
		switch {
		case x.Lead != 0:
			text += " Add some inside " + n.Op(x.Lead) + ", which carries " + units.Share(x.LeadShare) + " of the added latency."
		case x.Untried:
			text += " Add some to show the place."
		}
		return text
	case x.Searching:
		on := "no tracepoint"
		if x.On > 0 {
			on = units.Plural(x.On, "tracepoint")
		}
		where := ""
		if !x.leads() {
			where = " in " + name
		}
		return " Sibyl searches further" + where + ", with " + on + " on: " + cmp.Or(x.Doing, "it has just begun") + "."
	}
	return ""
}

// adviceFor returns the next step for the suspect s, which is called name, according to the largest part of its score.
func (n *Names) adviceFor(s *compare.Suspect, name string) string {
	wire := s.In + s.Rest
	switch most := max(s.Own, s.Added, wire, s.Out, s.Errors, s.Unanswered, s.Silent); {
	case s.Opaque:
		return "Look at the metrics and logs of " + name + ", which emits no spans, and at the connections to it."
	case s.From != 0:
		return "Look at what is between " + n.NamedService(s.From) + " and " + name + ": proxies, the network, and the " +
			"connections and the queue of " + name + "."
	case most == s.Unanswered && s.Unfailed:
		return "Check whether " + name + " still exports its spans, and whether it runs: the calls to it do not fail."
	case most == s.Unanswered:
		return "Check whether " + name + " runs and can be reached."
	case most == s.Silent:
		return "Check what sends these requests to " + name + ", and the way from there."
	case most == s.Errors:
		return "Look at the logs of " + name + ", and at its failed spans in your tracing backend." // sample traces have them only if whole requests failed
	case most == s.Added && len(s.AddedCalls) > 0:
		return "Look for a loop or a cache around the calls of " + n.Op(s.AddedCalls[0].Op) +
			" in " + n.Op(s.AddedCalls[0].Caller) + ", and at the last change of " + name + "."
	case most == wire:
		return "Look at the network to " + name + ", at its queue and connections, and at its CPU limit."
	case most == s.Out:
		return "Look at the CPU limit, the connection pools and the network of " + name + ": all of its calls take longer."
	case len(s.Operations) > 0:
		return "Look at " + n.Op(s.Operations[0].Op) + " in a slow trace, and at the CPU, locks and garbage collection of " + name + "."
	}
	return "Look at the slow traces through " + name + "."
}
