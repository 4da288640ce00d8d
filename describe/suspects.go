package describe

import (
	"cmp"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// Incident holds the numbers that describe an incident.
type Incident struct {
	When     string            // a [Period]
	Suspects []compare.Suspect // ranked
	Shared   compare.SharedPlace
	Longer   float64 // mean duration of all requests above the usual one, relative to it
	// weeks between the two times compared, for an incident that grew over days; 0 if it is compared with the hours
	// before
	Weeks    int
	Slower   []SlowerType // request types that are slower
	Affected float64      // share of all requests that belong to affected types, 0–1; 0 if unknown

	Objectives []Objective // violated objectives
	Over       bool        // it is closed

	Located trace.Op // the located place; may be 0
	Share   float64  // of the added latency, at Located; 0 if unknown
	Reason  Reason   // for Located
}

// SlowerType is a request type that takes longer since the onset of an incident.
type SlowerType struct {
	Name        string
	Requests    uint64  // since the onset
	Mean, Usual float64 // ns
}

// lost returns the added latency of all requests of t, in ns.
func (t *SlowerType) lost() float64 { return float64(t.Requests) * max(0, t.Mean-t.Usual) }

// growth returns the relative growth of the mean duration of t.
func (t *SlowerType) growth() float64 { return (t.Mean - t.Usual) / max(1, t.Usual) }

// leastLonger is the smallest relative increase of the mean duration at which a sentence about failures mentions added
// time. Below it, the added time may only be the time of unanswered calls, which counts as wire time even if their
// callers wait no longer than usual.
const leastLonger = 0.05

// IncidentKind is the kind of evidence for an incident, as in the API.
type IncidentKind string

// The kinds of incidents.
const (
	Slow    IncidentKind = "slow"      // requests, or the calls of an operation, take longer than in the hours before
	Crept   IncidentKind = "crept"     // requests became slower over days: they take longer than weeks ago
	Failing IncidentKind = "failing"   // more requests fail or remain unanswered
	Silent  IncidentKind = "silent"    // requests have stopped
	Missed  IncidentKind = "objective" // requests violate an objective, and no service stands out
)

// Kind returns the kind of x, which depends on the evidence in its sentence.
func (x *Incident) Kind() IncidentKind {
	if x.isUnknown() {
		if len(x.Objectives) > 0 {
			return Missed
		}
		return Slow
	}
	first := &x.Suspects[0]
	slow := Slow
	if x.Weeks > 0 {
		slow = Crept
	}
	if o := outstanding(first); o != nil {
		switch {
		case first.Silent >= first.Score/2:
			return Silent
		case o.Failed/o.Calls >= leastFailures && o.Failed/o.Calls > o.Excess/max(1, o.Usual):
			return Failing
		default:
			return slow
		}
	}
	if first.Errors+first.Unanswered > first.AddedTime() {
		return Failing
	}
	return slow
}

// tense returns the past form of a verb if an incident is over, and the present form otherwise.
func tense(over bool, present, past string) string {
	if over {
		return past
	}
	return present
}

// isUnknown reports whether no service stands out.
func (x *Incident) isUnknown() bool { return len(x.Suspects) == 0 || x.Suspects[0].Score <= 0 }

// Incident describes x: the violated objectives, how much longer requests take, and the evidence against the first
// suspect.
func (n *Names) Incident(x *Incident) Sentence {
	s := n.incident(x)
	if x.Affected > 0 && x.Affected < mostFew && x.Kind() != Silent {
		s.Plain(" " + tense(x.Over, "It affects ", "It affected ") + units.Percent(x.Affected) + " of the requests.")
	}
	return s
}

// mostFew is the share of affected requests at which an incident's sentence no longer mentions the share.
const mostFew = 0.1

// incident returns the sentence about x without the share of the requests that it affects.
func (n *Names) incident(x *Incident) Sentence {
	var s Sentence
	n.missed(&s, x)
	switch unknown := x.isUnknown(); {
	case unknown && len(x.Objectives) > 0:
		s.Plain(" No service stands out.")
		return s
	case len(x.Objectives) > 0:
		s.Plain(" ")
	case unknown:
		s.Plain("Requests " + tense(x.Over, "are slower or fail", "were slower or failed") + " more often " + x.When + ", but no service accounts for it.")
		return s
	}
	n.shared(&s, x)
	first := &x.Suspects[0]
	if o := first.Queue(); o != nil {
		n.lag(&s, x, o)
		return s
	}
	if o := outstanding(first); o != nil {
		n.operation(&s, x, o)
		n.where(&s, first)
		s.Plain(".")
		return s
	}
	longer := true
	switch x.Kind() {
	case Slow, Crept:
		s.longer(x)
		s.Plain("; ")
	case Failing, Silent, Missed:
		longer = x.Longer >= leastLonger
		if first.Errors >= first.Unanswered {
			s.Plain("More requests " + tense(x.Over, "fail", "failed") + " " + x.When + ": ")
		} else {
			s.Plain("More calls " + tense(x.Over, "get", "got") + " no answer " + x.When + ": ")
		}
	}
	(&evidence{
		Sentence: &s,
		names:    n,
		suspects: x.Suspects,
		baseline: "before",
		longer:   longer,
		over:     x.Over,
		located:  x.Located,
		share:    x.Share,
		reason:   x.Reason,
	}).write()
	n.where(&s, first)
	s.Plain(".")
	return s
}

// Rules for describing the size of an incident by its worst request type alone. A mean over several types is
// misleading if the worst type has grown far more than the others.
const (
	leastUnlike = 2   // times the growth of the others
	mostAlone   = 0.5 // minimum share of the added latency to omit the other types
)

// Size holds the mean durations, in ns, of the slower requests of an incident. Before is the mean in normal times
// before the onset, Now the mean from the onset to the end or now. Size is zero if no request type is slower.
type Size struct {
	Before, Now float64
	Types       int // slower request types

	worst *SlowerType // has the largest added latency
	alone bool        // the size describes worst only
	most  bool        // worst has at least half of the added latency
}

// Ratio returns the factor by which the requests have become slower, or 0 if s is zero.
func (s *Size) Ratio() float64 { return s.Now / max(1, s.Before) }

// Stopped returns the rate of requests that have stopped, in requests per second. It returns 0 if x isn't about stopped
// requests, or if the rate is unknown.
func (x *Incident) Stopped() (rate float64) {
	if x.Kind() != Silent {
		return 0
	}
	for i := range x.Suspects[0].Operations {
		rate += x.Suspects[0].Operations[i].Stopped
	}
	return rate
}

// Size returns the size of x. It is zero if requests have stopped, because other requests say nothing about them.
func (x *Incident) Size() (s Size) {
	if x.Kind() == Silent {
		return s
	}
	n, lost := 0., 0.
	for i := range x.Slower {
		t := &x.Slower[i]
		if t.lost() <= 0 {
			continue
		}
		s.Types++
		n += float64(t.Requests)
		s.Before += float64(t.Requests) * t.Usual
		lost += t.lost()
		if s.worst == nil || t.lost() > s.worst.lost() {
			s.worst = t
		}
	}
	if s.Types == 0 {
		return s
	}
	others := (lost - s.worst.lost()) / max(1, s.Before-float64(s.worst.Requests)*s.worst.Usual)
	s.alone, s.most = s.Types == 1 || s.worst.growth() >= leastUnlike*others, s.worst.lost() >= mostAlone*lost
	s.Before, s.Now = s.Before/n, (s.Before+lost)/n
	if s.alone {
		s.Before, s.Now = s.worst.Usual, s.worst.Mean
	}
	return s
}

// longer appends how much longer the slower request types take or, while no slower type is known, all requests.
func (s *Sentence) longer(x *Incident) {
	size, take := x.Size(), " "+tense(x.Over, "take", "took")+" "
	if size.Types == 0 {
		s.Plain("All requests" + take)
		s.Strong(slowdown(compare.AddedTime(x.Suspects)))
		s.Plain(" on average " + x.When)
		return
	}
	longer := slowdown(size.Ratio() - 1)
	if size.alone && !size.most {
		s.Plain("Requests of " + units.Count(size.Types) + " types" + take + "longer " + x.When + ", those of ")
		s.Strong(size.worst.Name)
		s.Plain(" ")
		s.Strong(longer)
		return
	}
	s.Plain("Requests of ")
	switch {
	case size.alone:
		s.Strong(size.worst.Name)
	case size.Types == 2:
		names := x.slower()
		s.Strong(min(names[0], names[1]))
		s.Plain(" and ")
		s.Strong(max(names[0], names[1]))
	default:
		s.Plain(units.Count(size.Types) + " types, most of all ")
		s.Strong(size.worst.Name)
		s.Plain(",")
	}
	s.Plain(take)
	s.Strong(longer)
	s.Plain(" " + x.When)
}

// slower returns the names of the slower request types.
func (x *Incident) slower() (names []string) {
	for i := range x.Slower {
		if x.Slower[i].lost() > 0 {
			names = append(names, x.Slower[i].Name)
		}
	}
	return names
}

// slowdown describes the added latency, a multiple of the usual duration: "26 % longer" or "28 times as long".
func slowdown(added float64) string {
	const readable = 1 // percentages from 100 % on are hard to read
	if added >= readable {
		return units.Ratio(1+added) + " times as long"
	}
	return units.Percent(added) + " longer"
}

// smallScore is the minimum score for describing all requests. Below it they hardly change, so a sentence describes an
// operation instead.
const smallScore = 0.02

// outstanding returns the operation of s whose own change says more than the change of all requests, or nil if there is
// no such operation.
func outstanding(s *compare.Suspect) *compare.SuspectOperation {
	if s.Silent < s.Score/2 && s.Score >= smallScore {
		return nil
	}
	for i := range s.Operations {
		if o := &s.Operations[i]; o.Calls > 0 && (o.Excess > 0 || o.Failed > 0) {
			return o
		}
	}
	return nil
}

// operation appends how the calls of the operation o changed: they stopped, fail or take longer, depending on the kind
// of x.
func (n *Names) operation(s *Sentence, x *Incident, o *compare.SuspectOperation) {
	name, first := n.Op(o.Op), &x.Suspects[0]
	switch growth := o.Excess / max(1, o.Usual); x.Kind() {
	case Silent:
		s.Strong(name)
		s.Plain(" " + tense(x.Over, "gets", "got") + " no requests " + x.When)
		if o.Stopped > 0 {
			s.Plain("; " + units.Rate(o.Stopped) + " came steadily before")
		} else { // from an older checkpoint
			s.Plain("; they came steadily before")
		}
	case Failing:
		s.Strong(units.Percent(min(1, o.Failed/o.Calls)) + " of the calls")
		s.Plain(" of ")
		s.Strong(name)
		if first.Unfailed && first.Unanswered > first.Errors {
			s.Plain(" " + tense(x.Over, "get", "got") + " no answer with a span " + x.When + ", and do not fail")
		} else {
			s.Plain(" " + tense(x.Over, "fail", "failed") + " " + x.When)
		}
	case Slow, Crept, Missed:
		s.Strong(name)
		if first.Opaque {
			s.Plain(" " + tense(x.Over, "waits", "waited") + " ")
		} else {
			s.Plain(" " + tense(x.Over, "takes", "took") + " ")
		}
		s.Strong(slowdown(growth))
		s.Plain(" " + x.When + ": ")
		s.Plain(units.Nanos(o.Usual+o.Excess) + " a call, " + units.Nanos(o.Usual) + " " + ago(x.Weeks))
		if first.Opaque {
			s.Plain(", for ")
			s.Strong(n.NamedService(first.Service))
			s.Plain(", which emits no spans")
		}
	}
}

// ago names the time that an incident is compared with: the given number of weeks ago, or "before" for 0.
func ago(weeks int) string {
	switch weeks {
	case 0:
		return "before"
	case 1:
		return "a week ago"
	default:
		return units.Plural(weeks, "week") + " ago"
	}
}

// lag describes how long messages wait in a queue until the first suspect takes them.
func (n *Names) lag(s *Sentence, x *Incident, queue *compare.SuspectOperation) {
	s.Plain("Messages " + tense(x.Over, "wait ", "waited "))
	known := queue.Excess > 0
	if known {
		s.Strong(units.Nanos(queue.Usual + queue.Excess))
	} else {
		s.Plain("longer")
	}
	s.Plain(" in ")
	s.Strong(n.queue(queue.Op))
	s.Plain(" " + x.When)
	switch usual := units.Nanos(queue.Usual); {
	case known && x.Weeks == 0:
		s.Plain(", usually " + usual + ",")
	case known:
		s.Plain(", " + usual + " " + ago(x.Weeks) + ",")
	}
	s.Plain(" until ")
	s.Strong(n.NamedService(x.Suspects[0].Service))
	s.Plain(tense(x.Over, " takes", " took") + " them.")
}

// queue returns the name of a queue: its destination or, if only that is known, its broker.
func (n *Names) queue(op trace.Op) string { return cmp.Or(n.OpName(op), n.Service(op)) }

// shared appends the node or zone that slows several services down, if there is one. It comes first because it is the
// cause.
func (n *Names) shared(s *Sentence, x *Incident) {
	place := &x.Shared
	if len(place.Services) == 0 {
		return
	}
	s.Strong(n.Text(place.Value))
	s.Plain(tense(x.Over, " affects ", " affected "))
	named := min(maxSharing, len(place.Services))
	for i := range named {
		if i > 0 && i == len(place.Services)-1 {
			s.Plain(" and ")
		} else if i > 0 {
			s.Plain(", ")
		}
		s.Strong(n.NamedService(place.Services[i].Service))
	}
	if rest := len(place.Services) - named; rest > 0 {
		s.Plain(" and " + units.Plural(rest, "other service"))
	}
	s.Plain(": " + units.Percent(place.Part) + " of what they lose " + tense(x.Over, "is", "was") + " lost there. ")
}

// maxSharing is the maximum number of services in a sentence about the place that they share.
const maxSharing = 4

// leastCarried is the minimum part of a service's cost that an instance or version must carry to be named.
const leastCarried = 0.8

// where appends the instance, host or zone, and the version, that carry most of the cost of a suspect.
func (n *Names) where(s *Sentence, x *compare.Suspect) {
	carries := func(version bool) *compare.InstancePart {
		for i := range x.Instances {
			if p := &x.Instances[i]; p.Part >= leastCarried && (n.Table.Text(p.Key) == keyVersion) == version {
				return p
			}
		}
		return nil
	}
	if p := carries(false); p != nil {
		words, ok := machineWords[n.Table.Text(p.Key)]
		if !ok {
			words = [2]string{"on", "instances"}
		}
		s.Plain(", " + words[0] + " ")
		s.Strong(n.Text(p.Value))
		s.Plain(", 1 of its " + units.Count(p.Of) + " " + words[1])
	}
	if p := carries(true); p != nil {
		s.Plain(", only version ")
		s.Strong(n.Text(p.Value))
	}
}

// machineWords are the preposition and the plural for attributes that do not name instances.
var machineWords = map[string][2]string{
	"k8s.pod.name": {"on", "pods"}, "host.name": {"on", "hosts"}, "k8s.node.name": {"on", "nodes"},
	"cloud.availability_zone": {"in", "zones"},
}
