package describe

import (
	"math"
	"strings"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// evidence appends the evidence against the first of several suspects to a sentence, in clauses. The score of the first
// suspect must be above 0.
type evidence struct {
	*Sentence

	names    *Names
	suspects []compare.Suspect
	baseline string        // name of the time that the suspects are compared with
	longer   bool          // whether to mention added latency
	counted  bool          // whether to give numbers of failures: the sentence has no other
	over     bool          // whether to use the past tense
	place    *engine.Place // named instead of its service if it has an operation; may be nil
}

// write appends all clauses.
func (e *evidence) write() {
	first := &e.suspects[0]
	of := e.names.service(first.Service)
	least := leastShare * first.Score
	clauses := 0
	clause := func(part, least float64) bool {
		if part < least {
			return false
		}
		if clauses++; clauses > 1 {
			e.Plain("; ")
		}
		return true
	}
	if e.longer && clause(first.AddedTime(), least) {
		e.lostTime()
	}
	if calls := first.AddedCalls; len(calls) > 0 && clause(first.Added, least) {
		e.addedCall(&calls[0])
	}
	if clause(first.Errors, min(least, leastFailures)) {
		e.Say("errors "+tense(e.over, "begin", "began")+" in %s", of)
		if e.counted {
			e.Say(", %s", perHundred(first.Errors, "more"))
		}
	}
	if clause(first.Unanswered, min(least, leastFailures)) {
		e.unanswered()
	}
	if first.Added < least && clause(first.Shape, least) { // otherwise the added calls already describe the change
		e.Say("%s "+tense(e.over, "makes", "made")+" other calls than "+e.baseline+", %s",
			of, perHundred(first.Shape, "times"))
	}
}

// unanswered appends a clause saying that the suspect doesn't answer, or that calls fail on the way to it.
func (e *evidence) unanswered() {
	x, over := &e.suspects[0], e.over
	calls, of := perHundred(x.Unanswered, "more calls"), e.names.service(x.Service)
	if !e.counted {
		calls = Phrase{Text: "calls"}
	}
	switch {
	case x.From != 0:
	case x.Unfailed:
		e.Say("%s "+tense(over, "have", "had")+" no span of %s, and "+tense(over, "do", "did")+" not fail", calls, of)
		return
	case !e.counted:
		e.Say("calls to %s "+tense(over, "get", "got")+" no answer", of)
		return
	default:
		e.Say("%s "+tense(over, "does", "did")+" not answer %s", of, calls)
		return
	}
	e.Say("%s "+tense(over, "fail", "failed")+" between %s and %s, "+
		"which "+tense(over, "answers", "answered")+" the others", calls, e.names.service(x.From), of)
}

// lostTime appends the place of the added latency: the located operation or, before one is known, the first suspect.
func (e *evidence) lostTime() {
	if p := e.place; p != nil && p.Operation != 0 {
		e.Add(Located(e.names, p.Operation, p.Share, p.Reason))
		return
	}
	e.addedTime()
	if callee := silentCallee(e.suspects); callee != nil {
		e.Say(", in calls to %s, which emits no spans", e.names.service(callee.Service))
	}
}

// leastShare is the smallest fraction of a score, or of its time, that a sentence mentions.
const leastShare = 0.05

// leastFailures is the minimum number of failures per request at which a sentence mentions failures, however slow the
// requests are.
const leastFailures = 0.01

func perHundred(perRequest float64, noun string) Phrase {
	return number(units.Ratio(100*perRequest) + " " + noun + " per 100 requests")
}

// addedCall appends a call that the suspect makes more often: "gateway calls items GET /items 41 times instead of 2,
// +232 ms". The number and the added time are per call of the caller.
func (e *evidence) addedCall(x *compare.AddedCall) {
	caller := e.names.service(e.suspects[0].Service)
	e.Say("%s "+tense(e.over, "calls", "called")+" %s %s", caller, e.names.op(x.Op), number(times(x.Now)))
	if x.Before > 0 {
		e.Say(" instead of %s", number(strings.TrimSuffix(times(x.Before), " times")))
	} else {
		e.Plain(", which it did not call before")
	}
	e.Say(", %s", number("+"+units.Nanos(x.Nanos)))
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

// addedTime appends the suspect's share of the total added latency: "86 % of the added latency is time to and from cart
// (to it 61 %, from it 25 %)".
func (e *evidence) addedTime() {
	x, total := &e.suspects[0], compare.AddedTime(e.suspects)
	var where []string
	var shares []Sentence
	time, of := x.AddedTime(), e.names.service(x.Service)
	for _, part := range []struct {
		time        float64
		preposition string
	}{{x.Own, "in"}, {x.In + x.Rest, "to"}, {x.Out, "from"}} {
		if part.time >= leastShare*time {
			where = append(where, part.preposition)
			shares = append(shares, Say(part.preposition+" it %s", number(units.Percent(part.time/total))))
		}
	}
	e.Say("%s of the added latency is time ", figure(units.Share(time/total)))
	if x.From != 0 {
		e.Say("between %s and %s, outside of the spans of both", e.names.service(x.From), of)
		return
	}
	calls := x.Added >= leastShare*time
	switch {
	case len(where) > 0:
		e.Say(enumerate(where)+" %s", of)
		if calls {
			e.Plain(" and in calls that it adds")
		}
	case calls:
		e.Say("in calls that %s adds", of)
	}
	if calls {
		shares = append(shares, Say("in added calls %s", number(units.Percent(x.Added/total))))
	}
	if x.Opaque {
		e.Plain(", which emits no spans")
	}
	for i := range shares {
		if len(shares) > 1 {
			e.Plain([]string{" (", ", "}[min(i, 1)])
			e.Add(shares[i])
		}
	}
	if len(shares) > 1 {
		e.Plain(")")
	}
}

// silentCallee returns the service without spans that the first suspect calls and that accounts for most of its score,
// or nil if there is no such service. The time of calls to such a service counts towards both the service and its
// callers.
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
