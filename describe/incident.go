package describe

import (
	"cmp"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// Incident presents an incident. The API, webhooks and reports derive their views of it from this one. It is valid only
// as long as the incident that it presents.
type Incident struct {
	*engine.Incident

	Kind     IncidentKind
	Sentence Sentence  // describes the change, its time and the evidence against the first suspect
	Reason   Sentence  // reason for the severity
	Ending   Sentence  // why it closed, as a clause; nil while it is open
	Failures Failures  // zero if no more requests fail than usual, or requests have stopped
	Size     Size      // zero if requests have stopped, because other requests then say nothing about the incident
	Stopped  float64   // rate of the requests that have stopped, per second; 0 if unknown or for other kinds
	Named    []Suspect // the suspects that are worth showing
	Affected []string  // names of the affected request types
	when     Sentence
}

// NewIncident presents x at the time now.
func NewIncident(n *Names, x *engine.Incident, now trace.Nanos) *Incident {
	d := &Incident{Incident: x, Kind: KindOf(x), when: period(x.Onset, x.End(), now)}
	for i := range x.Types {
		d.Affected = append(d.Affected, affectedType(n, &x.Types[i]))
	}
	suspects := x.Shown()
	for i := range suspects {
		d.Named = append(d.Named, NewSuspect(n, &suspects[i]))
	}
	if d.Kind == Silent {
		for i := range x.Suspects[0].Operations {
			d.Stopped += x.Suspects[0].Operations[i].Stopped
		}
	} else {
		d.Failures, d.Size = d.failures(), d.size()
		if slow := d.Kind == Slow || d.Kind == Crept; !slow && d.Size.Ratio() < 1+leastLonger {
			d.Size = Size{} // it would say that hardly anything happened
		}
	}
	d.Sentence, d.Reason = incidentSentence(n, d), severity(n, x)
	if !x.IsOpen() {
		d.Ending = Ending(n, new(x.Last()))
	}
	return d
}

// affectedType returns the name of a request type, or its ID if its group was evicted.
func affectedType(n *Names, t *engine.AffectedType) string {
	return cmp.Or(n.RequestType(t.RequestType, 0), "request type "+t.RequestType.String()[:8])
}

// period describes when an incident took place, to the minute because the onset is an estimate. ended is 0 while the
// incident is open. The period includes dates unless the onset is on the same day (UTC) as the end of the incident or,
// while the incident is open, on the same day as now.
func period(onset, ended, now trace.Nanos) Sentence {
	end := cmp.Or(ended, now)
	const minute = trace.Nanos(time.Minute)
	window := history.Interval{From: onset - onset%minute, To: max(onset+1, end-end%minute)}
	return Period(window, ended == 0, !OneDay(window))
}

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

// KindOf returns the kind of the evidence that the sentence about x names.
func KindOf(x *engine.Incident) IncidentKind {
	if isUnknown(x) {
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
		case o.FailedShare() >= leastFailures && o.FailedShare() > o.Excess/max(1, o.Usual):
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

// isUnknown reports whether no service stands out.
func isUnknown(x *engine.Incident) bool { return len(x.Suspects) == 0 || x.Suspects[0].Score <= 0 }

// tense returns the past form of a verb if an incident is over, and the present form otherwise.
func tense(over bool, present, past string) string {
	if over {
		return past
	}
	return present
}

func (x *Incident) tense(present, past string) string { return tense(!x.IsOpen(), present, past) }

// mostFew is the share of affected requests from which an incident's sentence no longer mentions the share.
const mostFew = 0.1

// incidentSentence describes x: the violated objectives, how much longer requests take, the evidence against the first
// suspect, and the share of requests that the incident affects.
func incidentSentence(n *Names, x *Incident) Sentence {
	c := change{names: n, x: x}
	c.write()
	if x.Share > 0 && x.Share < mostFew && x.Kind != Silent {
		c.Say(" It "+x.tense("affects", "affected")+" %s of the requests.", number(units.Percent(x.Share)))
	}
	return c.Sentence
}

// leastLonger is the smallest relative increase of the mean duration at which a sentence about failures mentions added
// time. A smaller increase may only be the time of unanswered calls, which counts as wire time even if their callers
// wait no longer than usual.
const leastLonger = 0.05

// change builds the sentence that describes an incident.
type change struct {
	Sentence

	names *Names
	x     *Incident
}

// write appends the sentence without the share of the requests that the incident affects.
func (c *change) write() {
	x := c.x
	c.Add(missed(c.names, x))
	switch unknown := isUnknown(x.Incident); {
	case unknown && len(x.Objectives) > 0:
		c.Plain(" No service stands out.")
		return
	case len(x.Objectives) > 0:
		c.Plain(" ")
	case unknown:
		c.Plain("Requests " + x.tense("are slower or fail", "were slower or failed") + " more often ")
		c.Add(x.when)
		c.Plain(", but no service accounts for it.")
		return
	}
	c.shared()
	first := &x.Suspects[0]
	if o := first.Queue(); o != nil {
		c.lag(o)
		return
	}
	if o := outstanding(first); o != nil {
		c.operation(o)
		c.where()
		c.Plain(".")
		return
	}
	longer, counted := true, !x.requestsFail() || x.Failures == Failures{}
	switch x.Kind {
	case Slow, Crept:
		c.longer()
		c.Plain("; ")
	case Failing, Silent, Missed:
		longer = x.Longer() >= leastLonger
		switch {
		case !counted:
			c.failing()
		case first.Errors >= first.Unanswered && x.requestsFail():
			c.Plain("More requests " + x.tense("fail", "failed") + " ")
		case first.Errors >= first.Unanswered:
			c.Plain("More calls " + x.tense("fail", "failed") + " ")
		default:
			c.Plain("More calls " + x.tense("get", "got") + " no answer ")
		}
		c.Add(x.when)
		if !counted {
			c.Say(", usually %s", number(units.Percent(x.Failures.Before)))
		}
		c.Plain(": ")
	}
	(&evidence{
		Sentence: &c.Sentence,
		names:    c.names,
		suspects: x.Suspects,
		baseline: "before",
		longer:   longer,
		counted:  counted,
		over:     !x.IsOpen(),
		place:    &x.Place,
	}).write()
	c.where()
	c.Plain(".")
}

// failing appends the share of the affected requests that fail, the same as in all views.
func (c *change) failing() {
	x := c.x
	share, fail := figure(units.Percent(x.Failures.Now)), " "+x.tense("fail", "failed")+" "
	switch of := x.Affected; len(of) {
	case 1:
		c.Say("%s of the requests of %s"+fail, share, Name(of[0]))
	case 2:
		c.Say("%s of the requests of %s and %s"+fail, share, Name(min(of[0], of[1])), Name(max(of[0], of[1])))
	default:
		c.Say("%s of the requests of %s types, most of all %s,"+fail, share, number(units.Count(len(of))),
			Name(of[x.mostFailing()]))
	}
}

// mostFailing returns the index of the request type with the most added failures.
func (x *Incident) mostFailing() (most int) {
	added := func(i int) float64 {
		t := &x.Types[i]
		return float64(t.Requests) * (t.Failed - t.UsualFailed)
	}
	for i := range x.Types {
		if added(i) > added(most) {
			most = i
		}
	}
	return most
}

// Rules for describing the size of an incident by its worst request type alone. A mean over several types is misleading
// if the worst type has slowed down far more than the others.
const (
	leastUnlike = 2   // minimum ratio to the growth of the other types
	mostAlone   = 0.5 // minimum share of the added latency to omit the other types
)

// Size holds the mean durations, in ns, of the slower requests of an incident. Before is the mean in normal times
// before the onset. Now is the mean from the onset to the end or, while the incident is open, until now. Size is zero
// if no request type is slower.
type Size struct {
	Before, Now float64
	Types       int // number of slower request types

	worst string // name of the type with the largest added latency
	alone bool   // the size describes the worst type only
	most  bool   // the worst type has at least half of the added latency
}

// Ratio returns the factor by which the requests have become slower, or 0 if s is zero.
func (s *Size) Ratio() float64 { return s.Now / max(1, s.Before) }

// addedLatency returns the added latency of all requests of t since the onset, in ns.
func addedLatency(t *engine.AffectedType) float64 {
	return float64(t.Requests) * max(0, t.Mean-t.Usual)
}

func (x *Incident) size() (s Size) {
	n, lost := 0., 0.
	var worst *engine.AffectedType
	for _, i := range x.slower() {
		t := &x.Types[i]
		s.Types++
		n += float64(t.Requests)
		s.Before += float64(t.Requests) * t.Usual
		lost += addedLatency(t)
		if worst == nil || addedLatency(t) > addedLatency(worst) {
			worst, s.worst = t, x.Affected[i]
		}
	}
	if s.Types == 0 {
		return s
	}
	most := addedLatency(worst)
	others := (lost - most) / max(1, s.Before-float64(worst.Requests)*worst.Usual)
	growth := (worst.Mean - worst.Usual) / max(1, worst.Usual)
	s.alone, s.most = s.Types == 1 || growth >= leastUnlike*others, most >= mostAlone*lost
	s.Before, s.Now = s.Before/n, (s.Before+lost)/n
	if s.alone {
		s.Before, s.Now = worst.Usual, worst.Mean
	}
	return s
}

// leastShown is the smallest growth of all requests that a sentence gives as a number.
const leastShown = 0.005

// longer appends how much longer the slower request types take or, while no slower type is known, all requests.
func (c *change) longer() {
	x := c.x
	size, take := &x.Size, " "+x.tense("take", "took")+" "
	longer := figure(slowdown(size.Ratio() - 1))
	switch {
	case size.Types == 0 && compare.AddedTime(x.Suspects) < leastShown:
		c.Plain("Requests" + take + "slightly longer ")
		c.Add(x.when)
		return
	case size.Types == 0:
		c.Say("All requests"+take+"%s on average ", figure(slowdown(compare.AddedTime(x.Suspects))))
		c.Add(x.when)
		return
	case size.alone && !size.most:
		c.Say("Requests of %s types"+take+"longer ", number(units.Count(size.Types)))
		c.Add(x.when)
		c.Say(", those of %s %s", Name(size.worst), longer)
		return
	case size.alone:
		c.Say("Requests of %s"+take+"%s ", Name(size.worst), longer)
	case size.Types == 2:
		slower := x.slower()
		a, b := x.Affected[slower[0]], x.Affected[slower[1]]
		c.Say("Requests of %s and %s"+take+"%s ", Name(min(a, b)), Name(max(a, b)), longer)
	default:
		types := number(units.Count(size.Types))
		c.Say("Requests of %s types, most of all %s,"+take+"%s ", types, Name(size.worst), longer)
	}
	c.Add(x.when)
}

// Failures holds the fractions of the affected requests that fail. Before is the fraction in normal times before the
// onset, Now the fraction from the onset to the end or now.
type Failures struct{ Before, Now float64 }

func (x *Incident) failures() (f Failures) {
	n := 0.
	for i := range x.Types {
		t := &x.Types[i]
		n += float64(t.Requests)
		f.Before += float64(t.Requests) * t.UsualFailed
		f.Now += float64(t.Requests) * t.Failed
	}
	f.Before, f.Now = f.Before/max(1, n), f.Now/max(1, n)
	if f.Now-f.Before < leastFailures {
		return Failures{}
	}
	return f
}

// slower returns the indexes of the slower request types. It leaves out the types of long requests if other types are
// slower, too, because long requests would outweigh the others.
func (x *Incident) slower() (types []int) {
	for _, long := range []bool{false, true} {
		for i := range x.Types {
			if t := &x.Types[i]; t.Long == long && addedLatency(t) > 0 {
				types = append(types, i)
			}
		}
		if len(types) > 0 {
			break
		}
	}
	return types
}

// requestsFail reports whether a request type is known to fail more often. If not, calls fail, but the requests that
// make these calls may succeed.
func (x *Incident) requestsFail() bool {
	return slices.ContainsFunc(x.Types, func(t engine.AffectedType) bool {
		return t.Failed-t.UsualFailed >= leastFailures
	})
}

// slowdown describes the added latency, a multiple of the usual duration: "26 % longer" or "28 times as long".
func slowdown(added float64) string {
	const readable = 1 // percentages of 100 % or more are hard to read
	if added >= readable {
		return units.Ratio(1+added) + " times as long"
	}
	return units.Percent(added) + " longer"
}

// smallScore is the minimum score at which a sentence describes all requests. At a lower score, requests hardly change,
// so the sentence describes an operation instead.
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

// operation appends how the calls of the operation o changed: they stopped, fail or take longer, depending on the
// kind of the incident.
func (c *change) operation(o *compare.SuspectOperation) {
	x := c.x
	of, first := c.names.op(o.Op), &x.Suspects[0]
	switch x.Kind {
	case Silent:
		c.Say("%s "+x.tense("gets", "got")+" no requests ", of)
		c.Add(x.when)
		if o.Stopped > 0 {
			c.Say("; %s came steadily before", number(units.Rate(o.Stopped)))
		} else { // from an older checkpoint
			c.Plain("; they came steadily before")
		}
	case Failing:
		verb, but := " "+x.tense("fail", "failed")+" ", ""
		if first.Unfailed && first.Unanswered > first.Errors {
			verb, but = " "+x.tense("get", "got")+" no answer with a span ", ", and do not fail"
		}
		c.Say("%s of %s"+verb, figure(units.Percent(o.FailedShare())+" of the calls"), of)
		c.Add(x.when)
		c.Plain(but)
	case Slow, Crept, Missed:
		verb := x.tense("takes", "took")
		if first.Opaque {
			verb = x.tense("waits", "waited")
		}
		c.Say("%s "+verb+" %s ", of, figure(slowdown(o.Excess/max(1, o.Usual))))
		c.Add(x.when)
		c.Say(": %s a call, %s "+ago(x.Weeks), number(units.Nanos(o.Usual+o.Excess)), number(units.Nanos(o.Usual)))
		if first.Opaque {
			c.Say(", for %s, which emits no spans", c.names.service(first.Service))
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

// lag appends how long messages wait in a queue before the first suspect receives them.
func (c *change) lag(queue *compare.SuspectOperation) {
	x := c.x
	known, wait := queue.Excess > 0, Phrase{Text: "longer"}
	if known {
		wait = figure(units.Nanos(queue.Usual + queue.Excess))
	}
	c.Say("Messages "+x.tense("wait", "waited")+" %s in %s ", wait, Name(queueName(c.names, queue.Op)))
	c.Add(x.when)
	switch usual := number(units.Nanos(queue.Usual)); {
	case known && x.Weeks == 0:
		c.Say(", usually %s,", usual)
	case known:
		c.Say(", %s "+ago(x.Weeks)+",", usual)
	}
	c.Say(" until %s "+x.tense("takes", "took")+" them.", c.names.service(x.Suspects[0].Service))
}

// Lag returns the queue in which messages wait longer until the first suspect takes them, and its name. It returns nil
// if x isn't about a queue.
func (x *Incident) Lag(n *Names) (queue *compare.SuspectOperation, name string) {
	if isUnknown(x.Incident) {
		return nil, ""
	}
	if queue = x.Suspects[0].Queue(); queue == nil {
		return nil, ""
	}
	return queue, queueName(n, queue.Op)
}

// queueName returns the name of a queue: its destination or, if only that is known, its broker.
func queueName(n *Names, op trace.Op) string { return cmp.Or(n.OpName(op), n.Service(op)) }

// shared appends the node or zone that slows several services down, if there is one. The place comes first because it
// is the cause.
func (c *change) shared() {
	x := c.x
	place := &x.Shared
	if len(place.Services) == 0 {
		return
	}
	c.Say("%s "+x.tense("affects", "affected")+" ", c.names.text(place.Value))
	services := make([]Phrase, 0, len(place.Services))
	for i := range place.Services {
		services = append(services, c.names.service(place.Services[i].Service))
	}
	c.list(services, maxSharing, "other service")
	c.Say(": %s of what they lose "+x.tense("is", "was")+" lost there. ", number(units.Percent(place.Part)))
}

// maxSharing is the maximum number of services in a sentence about the place that they share.
const maxSharing = 4

// leastCarried is the minimum part of a service's cost that an instance or version must carry to be named.
const leastCarried = 0.8

// where appends the instance, host or zone, and the version, that carry most of the cost of the first suspect.
func (c *change) where() {
	n, x := c.names, &c.x.Suspects[0]
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
		c.Say(", "+words[0]+" %s, 1 of its %s "+words[1], n.text(p.Value), number(units.Count(p.Of)))
	}
	if p := carries(true); p != nil {
		c.Say(", only version %s", n.text(p.Value))
	}
}

// machineWords holds the preposition and the plural noun for attributes that name pods, hosts, nodes or zones.
var machineWords = map[string][2]string{
	"k8s.pod.name": {"on", "pods"}, "host.name": {"on", "hosts"}, "k8s.node.name": {"on", "nodes"},
	"cloud.availability_zone": {"in", "zones"},
}
