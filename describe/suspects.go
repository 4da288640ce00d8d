package describe

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// Suspect presents a service with its additional cost over a baseline. Scores and parts are per request: times are in
// units of the request's mean duration in the baseline, and failures, unanswered calls and changed call flows are
// counts.
type Suspect struct {
	Service    string             `json:"service"`
	EmitsSpans bool               `json:"emits_spans"` // if false, only attributes of its callers name it
	Score      Number             `json:"score"`       // the sum of the parts
	Parts      SuspectParts       `json:"parts"`
	Operations []SuspectOperation `json:"operations"`  // in decreasing order of score
	AddedCalls []AddedCall        `json:"added_calls"` // in decreasing order of time
}

// AddedCall presents an operation that a suspect calls more often than before.
type AddedCall struct {
	Name   string `json:"name"`
	Caller string `json:"caller"`
	Before Number `json:"before"` // in each call of the caller
	Now    Number `json:"now"`
	Added  Number `json:"added_ns"` // in each call of the caller
}

// SuspectParts are the parts of a [Suspect]'s score, see [compare.Suspect].
type SuspectParts struct {
	Own        Number `json:"own"`
	Added      Number `json:"added"`
	In         Number `json:"in"`
	Out        Number `json:"out"`
	Errors     Number `json:"errors"`
	Unanswered Number `json:"unanswered"`
	Silent     Number `json:"silent"`
	Shape      Number `json:"shape"`
	Rest       Number `json:"rest"`
}

// SuspectOperation presents the contribution of an operation to the score of a [Suspect].
type SuspectOperation struct {
	Op        trace.Op `json:"-"`       // a step
	Service   string   `json:"service"` // a caller's, if the suspect emits no spans
	Operation string   `json:"operation"`
	Kind      string   `json:"kind"`
	Target    *Target  `json:"target,omitempty"` // the operation calls this one
	Score     Number   `json:"score"`
}

// Suspect presents s.
func (n *Names) Suspect(s *compare.Suspect) Suspect {
	x := Suspect{
		Service: n.Clean(n.Table.Text(s.Service)), EmitsSpans: !s.Opaque, Score: Number(s.Score),
		Parts: SuspectParts{
			Own:        Number(s.Own),
			Added:      Number(s.Added),
			In:         Number(s.In),
			Out:        Number(s.Out),
			Errors:     Number(s.Errors),
			Unanswered: Number(s.Unanswered),
			Silent:     Number(s.Silent),
			Shape:      Number(s.Shape),
			Rest:       Number(s.Rest),
		},
		Operations: []SuspectOperation{}, AddedCalls: []AddedCall{},
	}
	for _, c := range s.AddedCalls {
		x.AddedCalls = append(x.AddedCalls,
			AddedCall{n.Op(c.Op), n.Op(c.Caller), Number(c.Before), Number(c.Now), Number(c.Nanos)})
	}
	for _, o := range s.Operations {
		x.Operations = append(x.Operations, SuspectOperation{
			Op: o.Op, Service: n.Service(o.Op), Operation: n.OpName(o.Op), Kind: n.Table.Operation(o.Op).Kind.String(),
			Target: n.target(o.Op), Score: Number(o.Score),
		})
	}
	return x
}

// SuspectInstance presents a value of an attribute that carries part of the cost of a [Suspect].
type SuspectInstance struct {
	Key   string
	Value string
	Calls uint64 // in the window
	Part  Number // 0–1
}

// keyVersion is the attribute for versions. All other attributes name instances, hosts and zones.
const keyVersion = "service.version"

// Instances presents the instances, hosts, zones and versions that carry most of the cost of s, by decreasing part.
func (n *Names) Instances(s *compare.Suspect) []SuspectInstance {
	all := make([]SuspectInstance, 0, len(s.Instances))
	for _, x := range s.Instances {
		all = append(all, SuspectInstance{n.Clean(n.Table.Text(x.Key)), n.Clean(n.Table.Text(x.Value)), x.Calls, Number(x.Part)})
	}
	return all
}

// Machines is like Instances, but without versions.
func (n *Names) Machines(s *compare.Suspect) []SuspectInstance {
	return slices.DeleteFunc(n.Instances(s), func(x SuspectInstance) bool { return x.Key == keyVersion })
}

// Period describes the window of a comparison in a sentence: "since 02:41" or "between 02:41 and 03:05", with the date
// if dated is set. If openEnd is set, the window has no end.
func Period(window history.Interval, openEnd, dated bool) string {
	return periodIn(Clock, window, openEnd, dated)
}

func periodIn(clock func(t trace.Nanos, dated bool) string, window history.Interval, openEnd, dated bool) string {
	if openEnd {
		return "since " + clock(window.From, dated)
	}
	return "between " + clock(window.From, dated) + " and " + clock(window.To, dated && !OneDay(window))
}

// IncidentPeriod describes the time of an incident in a sentence, see [Period]. It is to the minute, because the onset
// is an estimate. ended is 0 while the incident is open. The period includes dates unless it lies within the day of
// its end or, if the incident is open, of now.
func IncidentPeriod(onset, ended, now trace.Nanos) string {
	return IncidentPeriodIn(Clock, onset, ended, now)
}

// IncidentPeriodIn is like IncidentPeriod, but formats times with clock instead of [Clock].
func IncidentPeriodIn(clock func(t trace.Nanos, dated bool) string, onset, ended, now trace.Nanos) string {
	end := ended
	if end == 0 {
		end = now
	}
	const minute = trace.Nanos(time.Minute)
	period := history.Interval{From: onset - onset%minute, To: max(onset+1, end-end%minute)}
	return periodIn(clock, period, ended == 0, !OneDay(period))
}

// OneDay reports whether all intervals lie within the same day, UTC.
func OneDay(intervals ...history.Interval) bool {
	const day = trace.Nanos(24 * time.Hour)
	for _, i := range intervals {
		if i.From/day != intervals[0].From/day || (i.To-1)/day != intervals[0].From/day {
			return false
		}
	}
	return true
}

// Clock returns the time of day of t in UTC, like "02:41" or "02:41:30", with its date if dated is set. It omits the
// seconds of whole minutes.
func Clock(t trace.Nanos, dated bool) string {
	at := time.Unix(0, int64(t)).UTC()
	layout := "15:04"
	if at.Second() != 0 || at.Nanosecond() != 0 {
		layout = time.TimeOnly
	}
	if dated {
		layout = time.DateOnly + " " + layout
	}
	return at.Format(layout)
}

// Comparison holds the numbers that describe a comparison of a window with a baseline.
type Comparison struct {
	When     string            // a [Period], or text in its place
	Types    int               // request types in the window
	Slower   int               // slower request types
	Unjudged int               // request types with too few requests to compare
	Suspects []compare.Suspect // ranked
	Usual    []float64         // the highest scores in parts of the baseline as long as the window; empty if unknown
}

// leastScore is the smallest score that is not rounded to 0.00.
const leastScore = 0.005

// Comparison describes d: the number of slower request types, the evidence against the first suspect, and the reasons
// to doubt it.
func (n *Names) Comparison(d *Comparison) Sentence {
	var s Sentence
	found := len(d.Suspects) > 0 && d.Suspects[0].Score >= leastScore
	switch {
	case !found && d.Unjudged == d.Types:
		s.Plain("Nothing can be compared: no request type has enough requests both in the window and in the baseline.")
		return s
	case !found && d.Slower == 0:
		s.Plain("Nothing stands out: no request type is clearly slower " + d.When + ", and no service takes longer or behaves otherwise than the baseline explains.")
	case !found:
		s.slower(d)
		s.Plain(", but no service accounts for it.")
	case d.Slower == 0:
		s.slower(d)
		s.Plain(", but ")
	default:
		s.slower(d)
		s.Plain("; ")
	}
	mostlyTime := false
	if found {
		first := &d.Suspects[0]
		mostlyTime = 2*first.AddedTime() >= first.Score
		n.evidence(&s, d.Suspects, words{whole: "of the added latency", baseline: "in the baseline", longer: d.Slower > 0 || mostlyTime})
		s.Plain(".")
	}
	switch {
	case len(d.Usual) == 0 && d.Slower == 0 && mostlyTime:
		s.Plain(" This may be chance: the baseline is too short to tell how much such scores vary.")
	case found && len(d.Usual) > 0 && d.Suspects[0].Score <= stats.Median(slices.Clone(d.Usual)):
		s.Plain(" This may be chance: half of the baseline scores as much.")
	}
	switch {
	case d.Unjudged == 1:
		s.Plain(" 1 other request type has too few requests to compare.")
	case d.Unjudged > 1:
		s.Plain(" " + units.Count(d.Unjudged) + " other request types have too few requests to compare.")
	}
	return s
}

// slower appends the number of slower request types.
func (s *Sentence) slower(d *Comparison) {
	switch d.Slower {
	case 0:
		s.Plain("No request type is clearly slower " + d.When)
	case 1:
		s.Strong("1 request type")
		s.Plain(" is slower " + d.When)
	default:
		s.Strong(units.Plural(d.Slower, "request type"))
		s.Plain(" are slower " + d.When)
	}
}

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
	w := words{"of the added latency", "before", true, x.Over, x.Located, x.Share, x.Reason}
	switch x.Kind() {
	case Slow, Crept:
		w.whole = "of the added latency"
		s.longer(x)
		s.Plain("; ")
	case Failing, Silent, Missed:
		w.longer = x.Longer >= leastLonger
		if first.Errors >= first.Unanswered {
			s.Plain("More requests " + tense(x.Over, "fail", "failed") + " " + x.When + ": ")
		} else {
			s.Plain("More calls " + tense(x.Over, "get", "got") + " no answer " + x.When + ": ")
		}
	}
	n.evidence(&s, x.Suspects, w)
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
	s.Strong(n.Clean(n.Table.Text(place.Value)))
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
		s.Strong(n.Clean(n.Table.Text(p.Value)))
		s.Plain(", 1 of its " + units.Count(p.Of) + " " + words[1])
	}
	if p := carries(true); p != nil {
		s.Plain(", only version ")
		s.Strong(n.Clean(n.Table.Text(p.Value)))
	}
}

// machineWords are the preposition and the plural for attributes that do not name instances.
var machineWords = map[string][2]string{
	"k8s.pod.name": {"on", "pods"}, "host.name": {"on", "hosts"}, "k8s.node.name": {"on", "nodes"},
	"cloud.availability_zone": {"in", "zones"},
}

// slowdown describes the added latency, a multiple of the usual duration: "26 % longer" or "28 times as long".
func slowdown(added float64) string {
	const readable = 1 // percentages from 100 % on are hard to read
	if added >= readable {
		return units.Ratio(1+added) + " times as long"
	}
	return units.Percent(added) + " longer"
}

// words are the words and facts that [Names.evidence] needs: the names of the whole that shares refer to and of the
// baseline, whether to mention added latency (longer), and the located place, which is named instead of its service.
type words struct {
	whole, baseline string
	longer          bool
	over            bool     // use the past tense
	located         trace.Op // 0 until located
	share           float64  // of the added latency, at located; 0 if unknown
	reason          Reason   // for located
}

// evidence appends the evidence against the first suspect, whose score is above 0, in clauses.
func (n *Names) evidence(s *Sentence, suspects []compare.Suspect, w words) {
	first := &suspects[0]
	name := n.NamedService(first.Service)
	least := leastShare * first.Score
	clauses := 0
	clause := func(part, least float64) bool {
		if part < least {
			return false
		}
		if clauses++; clauses > 1 {
			s.Plain("; ")
		}
		return true
	}
	if w.longer && clause(first.AddedTime(), least) {
		n.lostTime(s, suspects, w)
	}
	if calls := first.AddedCalls; len(calls) > 0 && clause(first.Added, least) {
		n.addedCall(s, name, &calls[0], w.over)
	}
	if clause(first.Errors, min(least, leastFailures)) {
		s.Plain("errors " + tense(w.over, "begin", "began") + " in ")
		s.Strong(name)
		s.Plain(", " + perHundred(first.Errors, "more"))
	}
	if clause(first.Unanswered, min(least, leastFailures)) {
		n.unanswered(s, first, w.over)
	}
	if first.Added < least && clause(first.Shape, least) { // otherwise the added calls already describe the change
		s.Strong(name)
		s.Plain(" " + tense(w.over, "makes", "made") + " other calls than " + w.baseline + ", " + perHundred(first.Shape, "times"))
	}
}

// unanswered appends that a suspect doesn't answer, or that calls fail on the way to it.
func (n *Names) unanswered(s *Sentence, x *compare.Suspect, over bool) {
	if x.From == 0 {
		s.Strong(n.NamedService(x.Service))
		s.Plain(" " + tense(over, "does", "did") + " not answer " + perHundred(x.Unanswered, "more calls"))
		if x.Unfailed {
			s.Plain(" with a span, and these " + tense(over, "do", "did") + " not fail")
		}
		return
	}
	s.Plain(perHundred(x.Unanswered, "more calls") + " " + tense(over, "fail", "failed") + " between ")
	s.Strong(n.NamedService(x.From))
	s.Plain(" and ")
	s.Strong(n.NamedService(x.Service))
	s.Plain(", which " + tense(over, "answers", "answered") + " the others")
}

// lostTime appends the place of the added latency: the located operation or, before one is known, the first suspect.
func (n *Names) lostTime(s *Sentence, suspects []compare.Suspect, w words) {
	if w.located != 0 {
		*s = append(*s, n.Located(w.located, w.share, w.reason)...)
		return
	}
	n.addedTime(s, &suspects[0], compare.AddedTime(suspects), w.whole)
	if callee := silentCallee(suspects); callee != nil {
		s.Plain(", in calls to ")
		s.Strong(n.NamedService(callee.Service))
		s.Plain(", which emits no spans")
	}
}

// leastShare is the smallest part of a score, and of its time, that a sentence mentions.
const leastShare = 0.05

// leastFailures is the minimum number of failures per request at which a sentence mentions failures, however slow the
// requests are.
const leastFailures = 0.01

func perHundred(perRequest float64, noun string) string {
	return units.Ratio(100*perRequest) + " " + noun + " per 100 requests"
}

// addedCall appends a call that a service makes more often: "gateway calls items GET /items 41 times instead of 2,
// +232 ms". Times are in each call of the caller.
func (n *Names) addedCall(s *Sentence, caller string, x *compare.AddedCall, over bool) {
	s.Strong(caller)
	s.Plain(" " + tense(over, "calls", "called") + " ")
	s.Strong(n.Op(x.Op))
	s.Plain(" " + times(x.Now))
	if x.Before > 0 {
		s.Plain(" instead of " + strings.TrimSuffix(times(x.Before), " times"))
	} else {
		s.Plain(", which it did not call before")
	}
	s.Plain(", +" + units.Nanos(x.Nanos))
}

// times describes a mean number of calls: "once", "41 times", "1.5 times".
func times(x float64) string {
	const whole = 0.05 // means this close to a whole number are rounded to it
	if r := math.Round(x); r >= 1 && math.Abs(x-r) < whole {
		if r == 1 {
			return "once"
		}
		return units.Count(int(r)) + " times"
	}
	return units.Ratio(x) + " times"
}

// addedTime appends the share of a suspect in the total added latency: "86 % of the added latency is time to and from
// cart (to it 61 %, from it 25 %)".
func (n *Names) addedTime(s *Sentence, x *compare.Suspect, total float64, whole string) {
	var where, shares []string
	time := x.AddedTime()
	for _, part := range []struct {
		time        float64
		preposition string
	}{{x.Own, "in"}, {x.In + x.Rest, "to"}, {x.Out, "from"}} {
		if part.time >= leastShare*time {
			where = append(where, part.preposition)
			shares = append(shares, part.preposition+" it "+units.Percent(part.time/total))
		}
	}
	s.Strong(units.Share(time / total))
	s.Plain(" " + whole + " is time ")
	if x.From != 0 {
		s.Plain("between ")
		s.Strong(n.NamedService(x.From))
		s.Plain(" and ")
		s.Strong(n.NamedService(x.Service))
		s.Plain(", outside of the spans of both")
		return
	}
	calls := x.Added >= leastShare*time
	switch {
	case len(where) > 0:
		s.Plain(enumerate(where) + " ")
		s.Strong(n.NamedService(x.Service))
		if calls {
			s.Plain(" and in calls that it adds")
		}
	case calls:
		s.Plain("in calls that ")
		s.Strong(n.NamedService(x.Service))
		s.Plain(" adds")
	}
	if calls {
		shares = append(shares, "in added calls "+units.Percent(x.Added/total))
	}
	if x.Opaque {
		s.Plain(", which emits no spans")
	}
	if len(shares) > 1 {
		s.Plain(" (" + strings.Join(shares, ", ") + ")")
	}
}

// silentCallee returns the service without spans that the first suspect calls and that accounts for most of its score,
// or nil if there is no such service. The time of calls to such a service counts for both the service and its callers.
func silentCallee(suspects []compare.Suspect) *compare.Suspect {
	first := &suspects[0]
	for _, shared := range first.Shared {
		for i := range suspects {
			x := &suspects[i]
			if x.Service == shared.Service && x.Opaque && min(x.Rest, shared.Score) >= leastCarried*first.Score {
				return x
			}
		}
	}
	return nil
}

// enumerate joins words like "in, to and from".
func enumerate(words []string) string {
	if last := len(words) - 1; last > 0 {
		return strings.Join(words[:last], ", ") + " and " + words[last]
	}
	return strings.Join(words, "")
}
