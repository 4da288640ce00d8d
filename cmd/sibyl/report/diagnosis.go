package report

import (
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/cmd/sibyl/units"
)

// sentence is text in which names and numbers to look at stand out.
type sentence []phrase

type phrase struct {
	Text   string
	Strong bool
}

func (s *sentence) plain(text string) { *s = append(*s, phrase{Text: text}) }

func (s *sentence) strong(text string) { *s = append(*s, phrase{Text: text, Strong: true}) }

// String returns s without emphasis.
func (s sentence) String() string {
	var b strings.Builder
	for _, p := range s {
		b.WriteString(p.Text)
	}
	return b.String()
}

// diagnosis says in one sentence what is wrong, where, and when.
func (n *names) diagnosis(p *analysis.Problem) sentence {
	var s sentence
	switch name := n.requestType(p.RequestType, p.Entry); p.Kind {
	case analysis.KindVariable:
		n.spread(&s, p, name)
	case analysis.KindSlow:
		s.strong(name)
		s.plain(" takes ")
		s.strong(units.Duration(p.Mean))
		s.plain(" on average" + against(p))
	case analysis.KindShifted:
		s.plain("requests of ")
		s.strong(name)
		s.plain(" take other paths than they did, and " + units.Duration(p.Mean) + " on average" + against(p))
	}
	n.culprit(&s, p)
	n.cause(&s, p)
	s.plain(".")
	return s
}

// spread says how far durations lie apart.
func (n *names) spread(s *sentence, p *analysis.Problem, name string) {
	sum := n.summary(p)
	if m := p.Size; m != nil && m.Delayed+m.TimedOut > 0 {
		s.strong(units.Percent(m.Delayed + m.TimedOut))
		s.plain(" of the requests of ")
		s.strong(name)
		s.plain(" take far longer than their size lets expect, or time out (CoV at equal size ")
		s.strong(units.Ratio(p.CoV))
		s.plain(")")
		return
	}
	if sum != nil && sum.P50 > 0 && p.CoV > float64(sum.P99)/float64(sum.P50) { // p99 does not tell
		s.plain("few requests of ")
		s.strong(name)
		s.plain(" take far longer than its p99 of " + units.Duration(sum.P99) + " (CoV ")
		s.strong(units.Ratio(p.CoV))
		s.plain(")")
		return
	}
	if sum != nil && sum.P50 > 0 && sum.P99 > 0 {
		s.plain("p99 of ")
		s.strong(name)
		s.plain(" is ")
		s.strong(units.Ratio(float64(sum.P99)/float64(sum.P50)) + "×")
		s.plain(" its median (" + units.Duration(sum.P99) + " against " + units.Duration(sum.P50) + ")")
		return
	}
	s.plain("durations of ")
	s.strong(name)
	s.plain(" vary by ")
	s.strong(units.Percent(p.CoV))
	s.plain(" of their mean of " + units.Duration(p.Mean))
}

// against compares the mean with what was expected, where that is known.
func against(p *analysis.Problem) string {
	if p.Expected <= 0 {
		return ""
	}
	ratio := units.Ratio(float64(p.Mean) / float64(p.Expected))
	return ", " + ratio + "× the expected " + units.Duration(p.Expected)
}

// culprit names the leading edge, with the share that makes it lead.
func (n *names) culprit(s *sentence, p *analysis.Problem) {
	e := leading(p)
	if e == nil {
		return
	}
	share, what := e.ShareVariance, " of the variance is "
	if p.Kind != analysis.KindVariable {
		share, what = e.Score, " of what is wrong is "
	}
	if share != share { // NaN: a place without a number
		s.plain("; most of it at ")
	} else {
		s.plain("; ")
		s.strong(units.Percent(share))
		if p.Kind == analysis.KindVariable {
			s.plain(plusMinus(e))
		}
		s.plain(what)
	}
	s.strong(n.edge(e))
}

// plusMinus returns half the width of the interval of e's share of the variance, like " ± 4"; "" if it is not known.
func plusMinus(e *analysis.EdgeShare) string {
	half := (e.ShareHigh - e.ShareLow) / 2
	if half != half {
		return ""
	}
	return " ± " + units.PercentNumber(half)
}

// cause names the best explanation, if it accounts for at least a tenth of the variance: less is no cause.
func (n *names) cause(s *sentence, p *analysis.Problem) {
	if len(p.Explanations) == 0 || !(p.Explanations[0].Effect >= 0.1) {
		return
	}
	x := &p.Explanations[0]
	if x.Value == "" {
		s.plain("; it goes with ")
	} else {
		s.plain("; most where ")
	}
	what, _ := n.variable(x)
	s.strong(what)
}

// perSecond writes a problem's impact: time lost per second of operation.
func perSecond(impact float64) string {
	if impact != impact || impact <= 0 {
		return units.Unknown
	}
	return units.Duration(time.Duration(impact)) + "/s"
}
