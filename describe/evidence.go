package describe

import (
	"math"
	"strings"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// evidence appends the evidence against the first of several suspects to a sentence, in clauses. The score of the first
// suspect must be above 0.
type evidence struct {
	*Sentence

	names    *Names
	suspects []compare.Suspect
	baseline string   // the name of the time that the suspects are compared with
	longer   bool     // mention added latency
	over     bool     // use the past tense
	located  trace.Op // the operation to name instead of its service; 0 until located
	share    float64  // of the added latency, at located; 0 if unknown
	reason   Reason   // for located
}

// write appends all clauses.
func (e *evidence) write() {
	first := &e.suspects[0]
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
		e.Plain("errors " + tense(e.over, "begin", "began") + " in ")
		e.service(first.Service)
		e.Plain(", " + perHundred(first.Errors, "more"))
	}
	if clause(first.Unanswered, min(least, leastFailures)) {
		e.unanswered()
	}
	if first.Added < least && clause(first.Shape, least) { // otherwise the added calls already describe the change
		e.service(first.Service)
		e.Plain(" " + tense(e.over, "makes", "made") + " other calls than " + e.baseline)
		e.Plain(", " + perHundred(first.Shape, "times"))
	}
}

func (e *evidence) service(s trace.Symbol) { e.Strong(e.names.NamedService(s)) }

// unanswered appends that the suspect doesn't answer, or that calls fail on the way to it.
func (e *evidence) unanswered() {
	x, over := &e.suspects[0], e.over
	if x.From == 0 {
		e.service(x.Service)
		e.Plain(" " + tense(over, "does", "did") + " not answer " + perHundred(x.Unanswered, "more calls"))
		if x.Unfailed {
			e.Plain(" with a span, and these " + tense(over, "do", "did") + " not fail")
		}
		return
	}
	e.Plain(perHundred(x.Unanswered, "more calls") + " " + tense(over, "fail", "failed") + " between ")
	e.service(x.From)
	e.Plain(" and ")
	e.service(x.Service)
	e.Plain(", which " + tense(over, "answers", "answered") + " the others")
}

// lostTime appends the place of the added latency: the located operation or, before one is known, the first suspect.
func (e *evidence) lostTime() {
	if e.located != 0 {
		*e.Sentence = append(*e.Sentence, Located(e.names, e.located, e.share, e.reason)...)
		return
	}
	e.addedTime()
	if callee := silentCallee(e.suspects); callee != nil {
		e.Plain(", in calls to ")
		e.service(callee.Service)
		e.Plain(", which emits no spans")
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

// addedCall appends a call that the suspect makes more often: "gateway calls items GET /items 41 times instead of 2,
// +232 ms". Times are in each call of the caller.
func (e *evidence) addedCall(x *compare.AddedCall) {
	e.service(e.suspects[0].Service)
	e.Plain(" " + tense(e.over, "calls", "called") + " ")
	e.Strong(e.names.Op(x.Op))
	e.Plain(" " + times(x.Now))
	if x.Before > 0 {
		e.Plain(" instead of " + strings.TrimSuffix(times(x.Before), " times"))
	} else {
		e.Plain(", which it did not call before")
	}
	e.Plain(", +" + units.Nanos(x.Nanos))
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

// addedTime appends the share of the suspect in the total added latency: "86 % of the added latency is time to and from
// cart (to it 61 %, from it 25 %)".
func (e *evidence) addedTime() {
	x, total := &e.suspects[0], compare.AddedTime(e.suspects)
	time := x.AddedTime()
	var where, shares []string
	for _, part := range []struct {
		time        float64
		preposition string
	}{{x.Own, "in"}, {x.In + x.Rest, "to"}, {x.Out, "from"}} {
		if part.time >= leastShare*time {
			where = append(where, part.preposition)
			shares = append(shares, part.preposition+" it "+units.Percent(part.time/total))
		}
	}
	e.Strong(units.Share(time / total))
	e.Plain(" of the added latency is time ")
	if x.From != 0 {
		e.Plain("between ")
		e.service(x.From)
		e.Plain(" and ")
		e.service(x.Service)
		e.Plain(", outside of the spans of both")
		return
	}
	calls := x.Added >= leastShare*time
	switch {
	case len(where) > 0:
		e.Plain(enumerate(where) + " ")
		e.service(x.Service)
		if calls {
			e.Plain(" and in calls that it adds")
		}
	case calls:
		e.Plain("in calls that ")
		e.service(x.Service)
		e.Plain(" adds")
	}
	if calls {
		shares = append(shares, "in added calls "+units.Percent(x.Added/total))
	}
	if x.Opaque {
		e.Plain(", which emits no spans")
	}
	if len(shares) > 1 {
		e.Plain(" (" + strings.Join(shares, ", ") + ")")
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
