package describe

import (
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// Diagnosis describes p in one sentence: the duration of the requests, the place of the delay, and its cause if known.
// located is the operation that the investigation located, and share its share of p. Unless located is 0, it is the
// only place in the sentence.
func (n *Names) Diagnosis(p *detect.Problem, located trace.Op, share float64) Sentence {
	var s Sentence
	latency := Evidence{Kind: LatencyEvidence}
	switch name := n.judged(p); p.Kind {
	case detect.KindVariable:
		n.spread(&s, p, name)
	case detect.KindSlow:
		s.Strong(name)
		s.Plain(" takes ")
		s.cite(units.Duration(p.Mean), latency)
		s.Plain(" on average")
		versus(&s, p)
	case detect.KindShifted:
		s.Plain("requests of ")
		s.Strong(name)
		s.Plain(" changed their ")
		s.mention("call flow", Evidence{Kind: CallFlowEvidence})
		if sum := n.Summary(p); sum != nil && sum.Failed > 0 {
			s.Plain(", or fail as they did not before,")
		}
		s.Plain(" and take ")
		s.mention(units.Duration(p.Mean), latency)
		s.Plain(" on average")
		versus(&s, p)
	}
	if located == 0 {
		n.leading(&s, p)
	} else {
		place := Evidence{Kind: LocationEvidence, Operation: located}
		s.Plain("; ")
		s.cite(units.Share(share), place)
		s.Plain(" of the " + whole(p) + " is in ")
		s.cite(n.Op(located), place)
	}
	n.cause(&s, p)
	s.Plain(".")
	return s
}

// judged returns the name of p's requests: the name of their type, or of one of its groups. Several groups can have
// the same figures.
func (n *Names) judged(p *detect.Problem) string {
	name := n.RequestType(p.RequestType, p.Entry)
	if p.Level == group.LevelRequestType {
		return name
	}
	return InGroup(name, p.Group)
}

// InGroup returns the name of a group, given the name of its request type.
func InGroup(requestType string, group analysis.Hash) string {
	return requestType + " (group " + group.String()[:8] + ")"
}

// leastTail is the minimum ratio of p99 to median at which a sentence describes the spread of durations by these two.
const leastTail = 1.2

// spread describes how widely the durations of p's requests vary.
func (n *Names) spread(s *Sentence, p *detect.Problem, name string) {
	latency := Evidence{Kind: LatencyEvidence}
	if m := p.Size; m != nil && m.Delayed+m.TimedOut > 0 {
		size := Evidence{Kind: SizeEvidence}
		s.cite(units.Percent(m.Delayed+m.TimedOut), size)
		s.Plain(" of the requests of ")
		s.Strong(name)
		s.Plain(" take far longer than their size would suggest, or time out (CoV at equal size ")
		s.cite(units.Ratio(p.CoV), size)
		s.Plain(")")
		return
	}
	if p.P50 > 0 && p.CoV > float64(p.P99)/float64(p.P50) { // too few slow requests to raise the p99
		s.Plain("a few requests of ")
		s.Strong(name)
		s.Plain(" take far longer than its p99 of ")
		s.mention(units.Duration(p.P99), latency)
		s.Plain(" (CoV ")
		s.cite(units.Ratio(p.CoV), latency)
		s.Plain(")")
		return
	}
	if p.P50 > 0 && float64(p.P99) >= leastTail*float64(p.P50) {
		s.Plain("p99 of ")
		s.Strong(name)
		s.Plain(" is ")
		s.cite(units.Ratio(float64(p.P99)/float64(p.P50))+"×", latency)
		s.Plain(" its median (")
		s.mention(units.Duration(p.P99), latency)
		s.Plain(" vs. ")
		s.mention(units.Duration(p.P50), latency)
		s.Plain(")")
		return
	}
	s.Plain("durations of ")
	s.Strong(name)
	s.Plain(" vary by ")
	s.cite(units.Percent(p.CoV), latency)
	s.Plain(" around their mean of ")
	s.mention(units.Duration(p.Mean), latency)
}

// versus compares the mean with the expected duration, if there is one.
func versus(s *Sentence, p *detect.Problem) {
	if p.Expected <= 0 {
		return
	}
	baseline := Evidence{Kind: BaselineEvidence}
	s.Plain(", ")
	s.mention(units.Ratio(float64(p.Mean)/float64(p.Expected))+"×", baseline)
	s.Plain(" the expected ")
	s.mention(units.Duration(p.Expected), baseline)
}

// leading names the leading edge with its share of the problem and its interval. It adds nothing if no edge has a
// share above 0. It also adds nothing for shifted requests that are hardly slower than before: their shares would
// divide a meaningless difference.
func (n *Names) leading(s *Sentence, p *detect.Problem) {
	e := Leading(p)
	if e == nil || p.Kind == detect.KindShifted && float64(p.Mean) < (1+leastLonger)*float64(p.Expected) {
		return
	}
	share, chronic := e.Score, p.Kind == detect.KindVariable && p.Onset == detect.Chronic
	if share <= 0 || chronic && e.ShareLow <= 0 {
		return
	}
	edge := Evidence{Kind: EdgeEvidence, Edge: e.Edge}
	if share != share { // NaN: unknown
		s.Plain("; most of it in ")
	} else {
		s.Plain("; ")
		part := units.Share(share)
		s.cite(part, edge)
		if chronic && part != "all" { // the interval is for the share of the whole variance
			s.mention(plusMinus(e), edge)
		}
		s.Plain(" of the " + whole(p) + " is in ")
	}
	s.cite(n.Edge(e), edge)
}

// whole names the quantity that is divided into shares of p.
func whole(p *detect.Problem) string {
	switch {
	case p.Kind == detect.KindShifted:
		return "change"
	case p.Whole == detect.WholeVariance:
		return "variance"
	}
	return "slowdown"
}

// plusMinus returns half the width of the interval of e's share of the variance, like " ± 4", or "" if it is unknown.
func plusMinus(e *group.EdgeShare) string {
	half := (e.ShareHigh - e.ShareLow) / 2
	if half != half {
		return ""
	}
	return " ± " + units.PercentNumber(half)
}

// minCause is the minimum fraction of the variance that a variable must explain to be named as a cause.
const minCause = 0.1

// cause names the best explanation, if it accounts for enough of the variance.
func (n *Names) cause(s *Sentence, p *detect.Problem) {
	if len(p.Explanations) == 0 || !(p.Explanations[0].Effect >= minCause) {
		return
	}
	x := &p.Explanations[0]
	e := Evidence{Kind: VariableEvidence, Explained: true}
	if x.Variable == variableSkeleton {
		e.Kind = CallFlowEvidence
	}
	if x.Value == "" || x.Variable == variableSkeleton { // the value of a skeleton is a hash
		s.Plain("; correlated with ")
	} else {
		s.Plain("; mostly when ")
	}
	text, _ := n.Variable(x)
	s.cite(text, e)
}

// PerSecond formats a problem's impact: the added latency per second of operation, in ns.
func PerSecond(impact float64) string {
	switch {
	case impact != impact:
		return "unknown"
	case impact < 1:
		return "none"
	}
	return units.Duration(time.Duration(impact)) + "/s"
}
