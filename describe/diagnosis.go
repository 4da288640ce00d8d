package describe

import (
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// Sentence is text in which names and numbers to look at stand out.
type Sentence []Phrase

// Phrase is a part of a sentence.
type Phrase struct {
	Text   string
	Strong bool
}

// Plain appends text.
func (s *Sentence) Plain(text string) { *s = append(*s, Phrase{Text: text}) }

// Strong appends text that stands out.
func (s *Sentence) Strong(text string) { *s = append(*s, Phrase{Text: text, Strong: true}) }

// String returns s without emphasis.
func (s Sentence) String() string {
	var b strings.Builder
	for _, p := range s {
		b.WriteString(p.Text)
	}
	return b.String()
}

// Diagnosis says in one sentence what is wrong, where, and when. Located is the operation that was located as the cause; 0: none was.
func (n *Names) Diagnosis(p *detect.Problem, located trace.Op) Sentence {
	var s Sentence
	switch name := n.RequestType(p.RequestType, p.Entry); p.Kind {
	case detect.KindVariable:
		n.spread(&s, p, name)
	case detect.KindSlow:
		s.Strong(name)
		s.Plain(" takes ")
		s.Strong(units.Duration(p.Mean))
		s.Plain(" on average" + against(p))
	case detect.KindShifted:
		s.Plain("requests of ")
		s.Strong(name)
		s.Plain(" take other paths than they did, and " + units.Duration(p.Mean) + " on average" + against(p))
	}
	n.culprit(&s, p)
	if e := Leading(p); located != 0 && (e == nil || n.Last(e.Context) != located) {
		s.Plain("; located: ")
		s.Strong(n.Op(located))
	}
	n.cause(&s, p)
	s.Plain(".")
	return s
}

// spread says how far durations lie apart.
func (n *Names) spread(s *Sentence, p *detect.Problem, name string) {
	sum := n.Summary(p)
	if m := p.Size; m != nil && m.Delayed+m.TimedOut > 0 {
		s.Strong(units.Percent(m.Delayed + m.TimedOut))
		s.Plain(" of the requests of ")
		s.Strong(name)
		s.Plain(" take far longer than their size lets expect, or time out (CoV at equal size ")
		s.Strong(units.Ratio(p.CoV))
		s.Plain(")")
		return
	}
	if sum != nil && sum.P50 > 0 && p.CoV > float64(sum.P99)/float64(sum.P50) { // p99 does not tell
		s.Plain("few requests of ")
		s.Strong(name)
		s.Plain(" take far longer than its p99 of " + units.Duration(sum.P99) + " (CoV ")
		s.Strong(units.Ratio(p.CoV))
		s.Plain(")")
		return
	}
	if sum != nil && sum.P50 > 0 && sum.P99 > 0 {
		s.Plain("p99 of ")
		s.Strong(name)
		s.Plain(" is ")
		s.Strong(units.Ratio(float64(sum.P99)/float64(sum.P50)) + "×")
		s.Plain(" its median (" + units.Duration(sum.P99) + " against " + units.Duration(sum.P50) + ")")
		return
	}
	s.Plain("durations of ")
	s.Strong(name)
	s.Plain(" vary by ")
	s.Strong(units.Percent(p.CoV))
	s.Plain(" of their mean of " + units.Duration(p.Mean))
}

// against compares the mean with what was expected, where that is known.
func against(p *detect.Problem) string {
	if p.Expected <= 0 {
		return ""
	}
	ratio := units.Ratio(float64(p.Mean) / float64(p.Expected))
	return ", " + ratio + "× the expected " + units.Duration(p.Expected)
}

// culprit names the leading edge, with the share that makes it lead; nothing where no edge has a part in what is wrong.
func (n *Names) culprit(s *Sentence, p *detect.Problem) {
	e := Leading(p)
	if e == nil {
		return
	}
	share, what := e.ShareVariance, " of the variance is "
	if p.Kind != detect.KindVariable {
		share, what = e.Score, " of what is wrong is "
	}
	if share <= 0 {
		return // it got better, or is as it was: no place stands out
	}
	if share != share { // NaN: a place without a number
		s.Plain("; most of it at ")
	} else {
		s.Plain("; ")
		part := units.Share(share)
		s.Strong(part)
		if p.Kind == detect.KindVariable && part != "all" {
			s.Plain(plusMinus(e))
		}
		s.Plain(what)
	}
	s.Strong(n.Edge(e))
}

// plusMinus returns half the width of the interval of e's share of the variance, like " ± 4"; "" if it is not known.
func plusMinus(e *group.EdgeShare) string {
	half := (e.ShareHigh - e.ShareLow) / 2
	if half != half {
		return ""
	}
	return " ± " + units.PercentNumber(half)
}

// cause names the best explanation, if it accounts for at least a tenth of the variance: less is no cause.
func (n *Names) cause(s *Sentence, p *detect.Problem) {
	if len(p.Explanations) == 0 || !(p.Explanations[0].Effect >= 0.1) {
		return
	}
	x := &p.Explanations[0]
	if x.Value == "" || x.Variable == variableSkeleton { // whose value is no word
		s.Plain("; it goes with ")
	} else {
		s.Plain("; most where ")
	}
	what, _ := n.Variable(x)
	s.Strong(what)
}

// PerSecond writes a problem's impact: time lost per second of operation.
func PerSecond(impact float64) string {
	if impact != impact || impact <= 0 {
		return units.Unknown
	}
	return units.Duration(time.Duration(impact)) + "/s"
}
