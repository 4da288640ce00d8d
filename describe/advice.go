package describe

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// advice is an incident together with the evidence that decides the next step.
type advice struct {
	*engine.Incident

	names  *Names
	v      *search.Investigation // investigation of the incident; may be nil
	change *engine.Annotation    // change that may have caused the incident; may be nil
	// lead is the place with the largest share so far. It is 0 if no place is known yet, or if a place has already been
	// located. leadShare is its share of the added latency.
	lead      trace.Op
	leadShare float64
}

// leastPart is the minimum fraction of the cost that an instance must carry, or of the added latency that a place must
// carry, for the advice to point to it.
const leastPart = 0.5

// Advice returns the recommended next step for engineers working on incident x. v is the investigation of x, or nil.
// all holds all annotations, oldest first.
func Advice(n *Names, x *engine.Incident, v *search.Investigation, all []engine.Annotation) Sentence {
	s := Step(n, x, v, all)
	if x.IsSteady() && len(x.Suspects) > 0 {
		s.Plain(" It has been like this for a day: if it is normal now, accept it.")
	}
	return s
}

// Step is like Advice, but doesn't suggest accepting a steady incident.
func Step(n *Names, x *engine.Incident, v *search.Investigation, all []engine.Annotation) Sentence {
	a := &advice{Incident: x, names: n, v: v}
	if len(x.Suspects) > 0 {
		a.change = x.SuspectChange(all)
	}
	if v != nil && v.Answer() == 0 && len(v.Suspects) > 0 {
		a.lead, a.leadShare = v.Suspects[0].Op, x.ShareOf(v, v.Suspects[0].Share)
	}
	switch {
	case !x.IsOpen():
		return a.after()
	case len(x.Suspects) == 0:
		return Say("Compare slow traces with usual ones.")
	}
	first := &x.Suspects[0]
	if len(x.Objectives) > 0 && first.Score <= 0 {
		entry := Name(n.Clean(x.Objectives[0].Entry))
		if x.Objectives[0].Below > 0 {
			return Say("Compare slow traces of %s with usual ones: no service stands out.", entry)
		}
		return Say("Look at failed traces of %s in your tracing backend: no service stands out.", entry)
	}
	return a.open(first)
}

// open returns the next step for an open incident with the given first suspect.
func (x *advice) open(first *compare.Suspect) Sentence {
	n := x.names
	of := n.service(first.Service)
	located, reason := x.v.Answer(), x.reason()
	if step := x.undoable(first); step != nil {
		switch { // the sentence about the incident states the share of the place
		case located != 0 && reason.Wait != 0:
			step.Plain(" ")
			step.Add(waitRemedy(n, located, &reason))
		case located != 0:
			step.Say(" The place to look at is %s.", n.op(located))
		case x.leads():
			step.Plain(" ")
			step.Add(Located(n, x.lead, x.leadShare, engine.Reason{}))
			step.Plain(" so far.")
		}
		return step.And(x.searching(of))
	}
	if callee := silentCallee(x.Suspects); callee != nil {
		return stepFor(n, callee).And(x.searching(of))
	}
	if queue := first.Queue(); queue != nil { // no place inside the consumer carries the wait
		return Say("Look at the lag of %s and at its consumer: %s takes messages late if it is slow, has stopped, "+
			"or runs in too few instances.", Name(queueName(n, queue.Op)), of)
	}
	switch {
	case located != 0 && reason.Wait != 0:
		return waitRemedy(n, located, &reason)
	case located != 0:
		share := x.ShareOf(x.v, x.v.AnswerShare())
		if share == 0 {
			return Say("Look at %s.", n.op(located))
		}
		return Say("Look at %s: it carries %s of the added latency.", n.op(located), number(units.Share(share)))
	case x.leads():
		return Say("Look at %s: it carries %s of the added latency so far.",
			n.op(x.lead), number(units.Share(x.leadShare))).And(x.searching(of))
	}
	return stepFor(n, first).And(x.searching(of))
}

// reason returns why requests are slower at the located place. It returns the zero value if the incident names a
// different place.
func (x *advice) reason() engine.Reason { return reasonAt(x.Incident, x.v) }

func reasonAt(x *engine.Incident, v *search.Investigation) engine.Reason {
	if x.Place.Operation == v.Answer() {
		return x.Place.Reason
	}
	return engine.Reason{}
}

// LocatedBy describes the place that v, the investigation of x, located; see [Located]. It returns nil if v is nil or
// has located no place.
func LocatedBy(n *Names, x *engine.Incident, v *search.Investigation) Sentence {
	if v.Answer() == 0 {
		return nil
	}
	return Located(n, v.Answer(), x.ShareOf(v, v.AnswerShare()), reasonAt(x, v))
}

// after returns the next step after the end of an incident.
func (x *advice) after() Sentence {
	last := x.Last()
	nothing := Say("Nothing to do: ").And(Ending(x.names, &last))
	switch last.Why {
	case incident.SameCause:
		return Say("Look at incident %s, which has the same cause.", incidentID(last.Into))
	case incident.Replaced:
		return Say("Look at incident %s, in which the same service does something else.", incidentID(last.Into))
	case incident.ByPerson:
		return nothing.And(Say(", so it may go on."))
	case incident.Moved:
		return Say("Nothing to do if %s was to take over: it answers these requests now.",
			x.names.service(last.Service))
	case incident.NoTraces:
		return x.untilKnown("Check that the application still runs and sends traces: " +
			"none arrived when the incident closed, so nobody knows whether the fault is gone.")
	case incident.Stopped:
		return x.untilKnown("Check whether these requests should have stopped: none " +
			"came when the incident closed, so nobody knows whether the fault is gone.")
	case incident.Recovered, incident.Noticed, incident.Returned, incident.Grew, incident.Unchanged:
		// the last four don't end an incident
	}
	return nothing.And(Say("."))
}

// untilKnown returns text. If a deploy or an instance may be the cause, it adds the advice to compare it, because the
// incident may still be going on.
func (x *advice) untilKnown(text string) Sentence {
	s := Say(text)
	if len(x.Suspects) > 0 {
		if step := x.undoable(&x.Suspects[0]); step != nil {
			s.Plain(" ")
			s.Add(step)
		}
	}
	return s
}

// leads reports whether the search is still running and knows a place that carries at least leastPart of the added
// latency and isn't already among the first suspect's operations.
func (x *advice) leads() bool {
	return x.isSearched() && x.lead != 0 && x.leadShare >= leastPart &&
		!slices.ContainsFunc(x.Suspects[0].Operations, func(o compare.SuspectOperation) bool { return o.Op == x.lead })
}

// isSearched reports whether the search is still running and has located nothing.
func (x *advice) isSearched() bool { return x.v != nil && x.v.Answer() == 0 && x.v.Status.Active() }

// undoable returns the next step if a deploy or an instance of the suspect s may be the cause, and nil otherwise. This
// step takes precedence, because a rollback or a restart is quicker than a diagnosis.
func (x *advice) undoable(s *compare.Suspect) Sentence {
	n := x.names
	of := n.service(s.Service)
	if x.change != nil {
		return x.undo(of)
	}
	if len(s.Instances) > 0 && s.Instances[0].Part >= leastPart {
		i := &s.Instances[0]
		instance := Name(n.Text(i.Key) + " = " + n.Text(i.Value))
		return Say("Compare %s, which carries %s of the cost, with the rest of %s.",
			instance, number(units.Percent(i.Part)), of)
	}
	return nil
}

// undo returns the step that checks and reverts the latest change of the service.
func (x *advice) undo(service Phrase) Sentence {
	n, c, when := x.names, x.change, "just "
	after := ""
	if !x.IsOpen() {
		when, after = "", " shortly before it opened"
	}
	what := Name(n.Clean(c.Text))
	if what.Text == "" {
		what = n.text(c.Version)
	}
	switch {
	case c.Before != 0:
		return Say("Compare %s %s, which was "+when+"deployed"+after+", with %s: if it is the cause, roll it back.",
			service, n.text(c.Version), n.text(c.Before))
	case c.Kind == engine.KindDeploy:
		return Say("Check %s, which was "+when+"deployed"+after+" (%s): if it is the cause, roll it back.",
			service, what)
	case c.Kind == engine.KindFlag:
		return Say("Check %s, whose feature flag was "+when+"switched"+after+
			" (%s): if it is the cause, switch it back.", service, what)
	}
	return Say("Check %s, which was "+when+"changed"+after+" (%s): if it is the cause, undo the change.", service, what)
}

// searching describes the search inside the service, in sentences to append to another one. It returns nil if there is
// no search, or if the search has located the place.
func (x *advice) searching(service Phrase) Sentence {
	switch {
	case x.v == nil || x.v.Answer() != 0:
	case x.v.Status == search.Exhausted && x.v.Reason != "":
		untried := len(x.v.Tried) == 0 && x.v.BudgetStarved == 0
		s := Say(" The tracepoints of %s show no more: %s.", service, Phrase{Text: x.v.Reason})
		if untried {
			s = Say(" Sibyl found no tracepoint to try in %s.", service)
		}
		switch {
		case x.lead != 0:
			s.Say(" Add some inside %s, which carries %s of the added latency.",
				x.names.op(x.lead), number(units.Share(x.leadShare)))
		case untried:
			s.Plain(" Add some to show the place.")
		}
		return s
	case x.v.Status.Active():
		on := "no tracepoint"
		if len(x.v.Requested) > 0 {
			on = units.Plural(len(x.v.Requested), "tracepoint")
		}
		s := Say(" Sibyl searches further")
		if !x.leads() {
			s.Say(" in %s", service)
		}
		s.Say(", with %s on: %s.", number(on), Phrase{Text: cmp.Or(x.v.Reason, "it has just begun")})
		return s
	}
	return nil
}

// stepFor returns the next step for the suspect s according to the largest part of its score.
func stepFor(n *Names, s *compare.Suspect) Sentence {
	of, wire := n.service(s.Service), s.In+s.Rest
	switch most := max(s.Own, s.Added, wire, s.Out, s.Errors, s.Unanswered, s.Silent); {
	case s.Opaque:
		return Say("Look at the metrics and logs of %s, which emits no spans, and at the connections to it.", of)
	case s.From != 0:
		return Say("Look at what is between %s and %s: proxies, the network, and the connections and the queue of %s.",
			n.service(s.From), of, of)
	case most == s.Unanswered && s.Unfailed:
		return Say("Check whether %s still exports its spans, and whether it runs: the calls to it do not fail.", of)
	case most == s.Unanswered:
		return Say("Check whether %s runs and can be reached.", of)
	case most == s.Silent:
		return Say("Check what sends these requests to %s, and the way from there.", of)
	case most == s.Errors: // sample traces have failed spans only if whole requests failed
		return Say("Look at the logs of %s, and at its failed spans in your tracing backend.", of)
	case most == s.Added && len(s.AddedCalls) > 0:
		return Say("Look for a loop or a cache around the calls of %s in %s, and at the last change of %s.",
			n.op(s.AddedCalls[0].Op), n.op(s.AddedCalls[0].Caller), of)
	case most == wire:
		return Say("Look at the network to %s, at its queue and connections, and at its CPU limit.", of)
	case most == s.Out:
		return Say("Look at the CPU limit, the connection pools and the network of %s: "+
			"all of its calls take longer.", of)
	case len(s.Operations) > 0 && n.Queued(s.Operations[0].Op):
		return Say("Look at the threads or workers of %s, its CPU limit and its number of requests: "+
			"they wait before it takes them up.", of)
	case len(s.Operations) > 0:
		return Say("Look at %s in a slow trace, and at the CPU, locks and garbage collection of %s.",
			n.op(s.Operations[0].Op), of)
	}
	return Say("Look at the slow traces through %s.", of)
}
