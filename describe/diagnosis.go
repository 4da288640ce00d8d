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
func Diagnosis(n *Names, p *detect.Problem, located trace.Op, share float64) Sentence {
	d := diagnosis{names: n, p: p}
	switch p.Kind {
	case detect.KindVariable:
		d.spread()
	case detect.KindSlow:
		d.Strong(d.judged())
		d.Plain(" takes ")
		d.cite(units.Duration(p.Mean), ofLatency)
		d.Plain(" on average")
		d.versus()
	case detect.KindShifted:
		d.shift()
	}
	if located == 0 {
		d.leading()
	} else {
		place := Evidence{Kind: LocationEvidence, Operation: located}
		d.Plain("; ")
		d.cite(units.Share(share), place)
		d.Plain(" of the " + whole(p) + " is in ")
		d.cite(n.Op(located), place)
	}
	d.cause()
	d.Plain(".")
	return d.Sentence
}

// diagnosis is the sentence about a problem while it is written.
type diagnosis struct {
	Sentence

	names *Names
	p     *detect.Problem
}

// ofLatency refers to the durations of the problem's requests.
var ofLatency = Evidence{Kind: LatencyEvidence}

// judged returns the name of the problem's requests: the name of their type, or of one of its groups. Several groups
// can have the same figures.
func (d *diagnosis) judged() string {
	name := d.names.RequestType(d.p.RequestType, d.p.Entry)
	if d.p.Level == group.LevelRequestType {
		return name
	}
	return InGroup(name, d.p.Group)
}

// InGroup returns the name of a group, given the name of its request type.
func InGroup(requestType string, group analysis.Hash) string {
	return requestType + " (group " + group.String()[:8] + ")"
}

// shift describes requests that changed their call flow.
func (d *diagnosis) shift() {
	d.Plain("requests of ")
	d.Strong(d.judged())
	d.Plain(" changed their ")
	d.mention("call flow", Evidence{Kind: CallFlowEvidence})
	if sum := d.names.Summary(d.p); sum != nil && sum.Failed > 0 {
		d.Plain(", or fail as they did not before,")
	}
	d.Plain(" and take ")
	d.mention(units.Duration(d.p.Mean), ofLatency)
	d.Plain(" on average")
	d.versus()
}

// leastTail is the minimum ratio of p99 to median at which a sentence describes the spread of durations by these two.
const leastTail = 1.2

// spread describes how widely the durations of the problem's requests vary.
func (d *diagnosis) spread() {
	name, p := d.judged(), d.p
	if m := p.Size; m != nil && m.Delayed+m.TimedOut > 0 {
		size := Evidence{Kind: SizeEvidence}
		d.cite(units.Percent(m.Delayed+m.TimedOut), size)
		d.Plain(" of the requests of ")
		d.Strong(name)
		d.Plain(" take far longer than their size would suggest, or time out (CoV at equal size ")
		d.cite(units.Ratio(p.CoV), size)
		d.Plain(")")
		return
	}
	if p.P50 > 0 && p.CoV > float64(p.P99)/float64(p.P50) { // too few slow requests to raise the p99
		d.Plain("a few requests of ")
		d.Strong(name)
		d.Plain(" take far longer than its p99 of ")
		d.mention(units.Duration(p.P99), ofLatency)
		d.Plain(" (CoV ")
		d.cite(units.Ratio(p.CoV), ofLatency)
		d.Plain(")")
		return
	}
	if p.P50 > 0 && float64(p.P99) >= leastTail*float64(p.P50) {
		d.Plain("p99 of ")
		d.Strong(name)
		d.Plain(" is ")
		d.cite(units.Ratio(float64(p.P99)/float64(p.P50))+"×", ofLatency)
		d.Plain(" its median (")
		d.mention(units.Duration(p.P99), ofLatency)
		d.Plain(" vs. ")
		d.mention(units.Duration(p.P50), ofLatency)
		d.Plain(")")
		return
	}
	d.Plain("durations of ")
	d.Strong(name)
	d.Plain(" vary by ")
	d.cite(units.Percent(p.CoV), ofLatency)
	d.Plain(" around their mean of ")
	d.mention(units.Duration(p.Mean), ofLatency)
}

// versus compares the mean with the expected duration, if there is one.
func (d *diagnosis) versus() {
	p := d.p
	if p.Expected <= 0 {
		return
	}
	baseline := Evidence{Kind: BaselineEvidence}
	d.Plain(", ")
	d.mention(units.Ratio(float64(p.Mean)/float64(p.Expected))+"×", baseline)
	d.Plain(" the expected ")
	d.mention(units.Duration(p.Expected), baseline)
}

// leading names the leading edge with its share of the problem and its interval. It adds nothing if no edge has a
// share above 0. It also adds nothing for shifted requests that are hardly slower than before: their shares would
// divide a meaningless difference.
func (d *diagnosis) leading() {
	p, e := d.p, Leading(d.p)
	if e == nil || p.Kind == detect.KindShifted && float64(p.Mean) < (1+leastLonger)*float64(p.Expected) {
		return
	}
	share, chronic := e.Score, p.Kind == detect.KindVariable && p.Onset == detect.Chronic
	if share <= 0 || chronic && e.ShareLow <= 0 {
		return
	}
	edge := Evidence{Kind: EdgeEvidence, Edge: e.Edge}
	if share != share { // NaN: unknown
		d.Plain("; most of it in ")
	} else {
		d.Plain("; ")
		part := units.Share(share)
		d.cite(part, edge)
		if chronic && part != "all" { // the interval is for the share of the whole variance
			d.mention(plusMinus(e), edge)
		}
		d.Plain(" of the " + whole(p) + " is in ")
	}
	d.cite(d.names.Edge(e), edge)
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
func (d *diagnosis) cause() {
	if len(d.p.Explanations) == 0 || !(d.p.Explanations[0].Effect >= minCause) {
		return
	}
	x := &d.p.Explanations[0]
	e := Evidence{Kind: VariableEvidence, Explained: true}
	if x.Variable == variableSkeleton {
		e.Kind = CallFlowEvidence
	}
	if x.Value == "" || x.Variable == variableSkeleton { // the value of a skeleton is a hash
		d.Plain("; correlated with ")
	} else {
		d.Plain("; mostly when ")
	}
	text, _ := d.names.Variable(x)
	d.cite(text, e)
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
