package describe

import (
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// Diagnosis describes p in one sentence: the duration of the requests, the place of the delay, and its cause if known.
// located is the operation that the investigation located, or 0, and share is its share of p. A located operation is
// the only place in the sentence.
func Diagnosis(n *Names, p *detect.Problem, located trace.Op, share float64) Sentence {
	d := diagnosis{names: n, p: p}
	switch p.Kind {
	case detect.KindVariable:
		d.spread()
	case detect.KindSlow:
		d.Say("%s takes %s on average", d.judged(), figure(units.Duration(p.Mean)).with(ofLatency))
		d.versus()
	case detect.KindShifted:
		d.shift()
	}
	if p.Fails() && !p.Slower() { // what explains their durations doesn't explain the failures
		d.Plain(".")
		return d.Sentence
	}
	if located == 0 {
		d.leading()
	} else {
		place := Evidence{Kind: LocationEvidence, Operation: located}
		d.Say("; %s of the "+whole(p)+" is in %s", figure(units.Share(share)).with(place), n.op(located).with(place))
	}
	d.cause()
	d.Plain(".")
	return d.Sentence
}

// diagnosis builds the sentence that describes a problem.
type diagnosis struct {
	Sentence

	names *Names
	p     *detect.Problem
}

// ofLatency refers to the durations of the problem's requests.
var ofLatency = Evidence{Kind: LatencyEvidence}

// judged returns the name of the problem's requests: the name of their type, with the ID of the group if the problem is
// limited to a group, because several groups of a type can have the same figures.
func (d *diagnosis) judged() Phrase {
	name := d.names.RequestType(d.p.RequestType, d.p.Entry)
	if d.p.Level == group.LevelRequestType {
		return Name(name)
	}
	return Name(InGroup(name, d.p.Group))
}

// InGroup returns the name of a group, given the name of its request type.
func InGroup(requestType string, group analysis.Hash) string {
	return requestType + " (group " + group.String()[:8] + ")"
}

// shift describes requests that fail more often, or that changed their call flow.
func (d *diagnosis) shift() {
	flow := Evidence{Kind: CallFlowEvidence}
	mean := number(units.Duration(d.p.Mean)).with(ofLatency)
	if d.p.Fails() {
		d.Say("%s of the requests of %s fail, usually %s", figure(units.Percent(d.p.Failed)).with(flow), d.judged(),
			number(units.Percent(d.p.UsualFailed)))
		if !d.p.Slower() {
			return
		}
		d.Say("; they take %s on average", mean)
	} else {
		d.Say("requests of %s changed their %s and take %s on average", d.judged(),
			Phrase{Text: "call flow"}.with(flow), mean)
	}
	d.versus()
}

// leastTail is the minimum ratio of p99 to median at which a sentence describes the spread of durations in terms of
// these two.
const leastTail = 1.2

// spread describes the variation of the durations of the problem's requests.
func (d *diagnosis) spread() {
	of, p := d.judged(), d.p
	cov, p99 := figure(units.Ratio(p.CoV)).with(ofLatency), number(units.Duration(p.P99)).with(ofLatency)
	if m := p.Size; m != nil && m.Delayed+m.TimedOut > 0 {
		size := Evidence{Kind: SizeEvidence}
		d.Say("%s of the requests of %s take far longer than their size would suggest, or time out "+
			"(CoV at equal size %s)", figure(units.Percent(m.Delayed+m.TimedOut)).with(size), of, cov.with(size))
		return
	}
	if p.P50 > 0 && p.CoV > float64(p.P99)/float64(p.P50) { // too few slow requests to raise the p99
		d.Say("a few requests of %s take far longer than its p99 of %s (CoV %s)", of, p99, cov)
		return
	}
	if p.P50 > 0 && float64(p.P99) >= leastTail*float64(p.P50) {
		ratio := figure(units.Ratio(float64(p.P99)/float64(p.P50)) + "×").with(ofLatency)
		d.Say("p99 of %s is %s its median (%s vs. %s)", of, ratio, p99, number(units.Duration(p.P50)).with(ofLatency))
		return
	}
	d.Say("durations of %s vary by %s around their mean of %s", of,
		figure(units.Percent(p.CoV)).with(ofLatency), number(units.Duration(p.Mean)).with(ofLatency))
}

// versus compares the mean with the expected duration, if there is one.
func (d *diagnosis) versus() {
	p := d.p
	if p.Expected <= 0 {
		return
	}
	baseline := Evidence{Kind: BaselineEvidence}
	ratio := number(units.Ratio(float64(p.Mean)/float64(p.Expected)) + "×").with(baseline)
	d.Say(", %s the expected %s", ratio, number(units.Duration(p.Expected)).with(baseline))
}

// leading names the leading edge, with its share of the problem and the interval of the share. It adds nothing if no
// edge has a share above 0, or if the requests have changed their call flow but are hardly slower than before, because
// shares would then be mostly noise.
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
		part, interval := units.Share(share), ""
		if chronic && part != "all" { // the interval is for the share of the whole variance
			interval = plusMinus(e)
		}
		d.Say("; %s%s of the "+whole(p)+" is in ", figure(part).with(edge), number(interval).with(edge))
	}
	d.Add(d.names.edge(e).strong(edge))
}

// whole names the quantity that the shares of p are fractions of.
func whole(p *detect.Problem) string {
	switch {
	case p.Kind == detect.KindShifted:
		return "change"
	case p.Whole == detect.WholeVariance:
		return "variance"
	}
	return "slowdown"
}

// plusMinus formats half the width of the interval of e's share of the variance, like " ± 4", or "" if it is unknown.
func plusMinus(e *group.EdgeShare) string {
	half := (e.ShareHigh - e.ShareLow) / 2
	if half != half {
		return ""
	}
	return " ± " + units.PercentNumber(half)
}

// minCause is the minimum fraction of the variance that a variable must explain to be named as a cause.
const minCause = 0.1

// cause names the best explanation, if it accounts for enough of the variance. It never names the call flow: slow
// requests take a different path because they are slow, and nobody can act on that. If the problem is a change of the
// call flow, the sentence says so anyway.
func (d *diagnosis) cause() {
	i := slices.IndexFunc(d.p.Explanations, func(x detect.Explanation) bool { return x.Variable != variableSkeleton })
	if i < 0 || !(d.p.Explanations[i].Effect >= minCause) {
		return
	}
	x := &d.p.Explanations[i]
	e := Evidence{Kind: VariableEvidence, Explained: true, Explanation: i}
	if x.Value == "" {
		d.Plain("; correlated with ")
	} else {
		d.Plain("; mostly when ")
	}
	by, _ := d.names.variable(x)
	d.Add(by.strong(e))
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

// mostlyExplained is the minimum share of the variance that an attribute value must explain to be the first thing to
// look at.
const mostlyExplained = 0.5

// CompareValue suggests looking at the attribute value that explains most of the variance of p. It returns nil if no
// value explains at least half.
func CompareValue(n *Names, p *detect.Problem) Sentence {
	var most *detect.Explanation
	for i := range p.Explanations {
		x := &p.Explanations[i]
		switch x.Variable {
		case variableCount, variablePresent, variableErrors, variableSkeleton: // they are effects, not places to look
			continue
		}
		if x.Value != "" && x.Effect >= mostlyExplained && (most == nil || x.Effect > most.Effect) {
			most = x
		}
	}
	if most == nil {
		return nil
	}
	of, where := n.variable(most)
	share := number(units.Percent(most.Effect))
	if most.Variable == keyVersion && most.Where != 0 {
		service := n.Table.Operation(n.Table.Base(n.Last(most.Where))).Service
		return Say("roll back %s of %s, or compare it with other versions: it explains %s of the variance",
			Name(n.Clean(most.Value)), n.service(service), share)
	}
	return Say("compare ").And(of).And(where).And(Say(" with the others: it explains %s of the variance", share))
}
