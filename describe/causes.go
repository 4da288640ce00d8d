package describe

import (
	"strconv"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// Causes presents the findings about the cause of a problem, apart from its explanations.
type Causes struct {
	Joint     Number      `json:"joint_correlation"` // correlation of all numeric variables together with the durations
	Unrelated []Unrelated `json:"unrelated"`         // attributes that do not explain the problem
	Contrasts []Contrast  `json:"contrasts"`         // hosts and versions that are slower, or have slower edges
	WhatIf    []Recovery  `json:"what_if"`           // for the leading edges, the leading one first
}

// Unrelated presents an attribute that explains almost nothing about a problem.
type Unrelated struct {
	Variable string   `json:"variable"`
	Where    []string `json:"where"` // context
}

// Contrast presents a host or version whose requests are slower than the others, as a whole or at some edges.
type Contrast struct {
	Text     string       `json:"text"` // text for people
	Key      string       `json:"key"`
	Value    string       `json:"value"`
	Requests int          `json:"requests"` // number of sampled requests with the value
	Rest     int          `json:"rest"`     // number of sampled requests with other values
	Duration Difference   `json:"duration"`
	Edges    []Difference `json:"edges"` // slower edges, largest excess first
	Sentence Sentence     `json:"-"`     // Text as a Sentence
}

// Difference presents how much longer some requests take than others.
type Difference struct {
	Edge     *Place `json:"edge"` // nil for the entire duration
	MeanNS   Number `json:"mean_ns"`
	RestNS   Number `json:"rest_ns"`
	ExcessNS Number `json:"excess_ns"` // with its 95 % interval
	LowNS    Number `json:"low_ns"`
	HighNS   Number `json:"high_ns"`
	PValue   Number `json:"p_value"`
}

// Recovery presents the time that the sampled requests would save if one edge were at its reference level.
type Recovery struct {
	Text         string   `json:"text"` // text for people
	Edge         *Place   `json:"edge"`
	LevelNS      int64    `json:"level_ns"`
	Requests     int      `json:"requests"` // number of simulated requests
	MeanNS       Number   `json:"mean_ns"`  // with its 95 % interval
	MeanLowNS    Number   `json:"mean_low_ns"`
	MeanHighNS   Number   `json:"mean_high_ns"`
	MeanFraction Number   `json:"mean_fraction"`
	P99NS        int64    `json:"p99_ns"`
	P99Fraction  Number   `json:"p99_fraction"`
	Sentence     Sentence `json:"-"` // Text as a Sentence
}

// Common presents places in different request types whose times are correlated.
type Common struct {
	Text        string      `json:"text"` // text for people
	Edges       []TypedEdge `json:"edges"`
	Correlation Number      `json:"correlation"`
	PValue      Number      `json:"p_value"`
	Sentence    Sentence    `json:"-"` // Text as a Sentence
}

// TypedEdge presents a place in the requests of one type.
type TypedEdge struct {
	RequestType   string   `json:"request_type"`
	RequestTypeID string   `json:"request_type_id"`
	Context       []string `json:"context"`
}

// NoCauses returns the Causes of a problem that was not explained.
func NoCauses() Causes {
	return Causes{Joint: Unknown(), Unrelated: []Unrelated{}, Contrasts: []Contrast{}, WhatIf: []Recovery{}}
}

// NewCauses presents the findings about p.
func NewCauses(n *Names, p *detect.Problem, f *explain.Findings) Causes {
	c := NoCauses()
	c.Joint = Number(f.Joint)
	for i := range f.Unrelated {
		x := &f.Unrelated[i]
		c.Unrelated = append(c.Unrelated, Unrelated{Variable: n.Clean(x.Name), Where: n.Context(x.Context)})
	}
	for i := range f.Contrasts {
		c.Contrasts = append(c.Contrasts, newContrast(n, p, &f.Contrasts[i]))
	}
	for i := range f.Recoveries {
		c.WhatIf = append(c.WhatIf, newRecovery(n, p, &f.Recoveries[i]))
	}
	return c
}

func newContrast(n *Names, p *detect.Problem, c *explain.KeyedContrast) Contrast {
	x := Contrast{
		Key:      n.Clean(c.Key),
		Value:    n.Clean(c.Value),
		Requests: c.Requests,
		Rest:     c.Rest,
		Duration: newDifference(n, p, &c.Duration),
		Edges:    make([]Difference, 0, len(c.Edges)),
	}
	for i := range c.Edges {
		x.Edges = append(x.Edges, newDifference(n, p, &c.Edges[i]))
	}
	x.Sentence = contrastSentence(n, p, &x, c)
	x.Text = x.Sentence.String()
	return x
}

// contrastSentence compares the durations of requests with and without a value, and names the slowest edge. x must be
// the presentation of c.
func contrastSentence(n *Names, p *detect.Problem, x *Contrast, c *explain.KeyedContrast) (s Sentence) {
	by := Name(x.Key + " = " + x.Value)
	sampled := Say(" (%s and %s sampled)", number(strconv.Itoa(c.Requests)), number(strconv.Itoa(c.Rest)))
	var excess Phrase  // of the slowest edge
	var where Sentence // the edge
	if len(x.Edges) > 0 && x.Edges[0].Edge != nil {
		excess, where = number(units.Duration(time.Duration(c.Edges[0].Value))), edgeIn(n, p, c.Edges[0].Edge)
	}
	if where != nil && !(c.Duration.Value > 0) { // only edges are slower
		return Say("%s: %s more than with others in ", by, excess).And(where).And(sampled)
	}
	mean, rest := units.Duration(time.Duration(c.Duration.Mean)), units.Duration(time.Duration(c.Duration.Rest))
	s.Say("%s: %s a request against %s with others", by, number(mean), number(rest))
	s.Add(sampled)
	switch {
	case where == nil:
	case c.Edges[0].Value > c.Duration.Value:
		s.Say("; %s more in ", excess)
		s.Add(where)
	default:
		s.Say("; %s of that in ", excess)
		s.Add(where)
	}
	return s
}

func newDifference(n *Names, p *detect.Problem, d *explain.Difference) Difference {
	return Difference{
		Edge:     placeIn(n, p, d.Edge),
		MeanNS:   Number(d.Mean),
		RestNS:   Number(d.Rest),
		ExcessNS: Number(d.Value),
		LowNS:    Number(d.Low),
		HighNS:   Number(d.High),
		PValue:   Number(d.PValue),
	}
}

// placeIn presents an edge of p. If p has lost the edge since it was explained, placeIn presents the edge without its
// share. It returns nil for edge 0.
func placeIn(n *Names, p *detect.Problem, edge trace.Edge) *Place {
	if edge == 0 {
		return nil
	}
	return new(NewPlace(n, shareIn(n, p, edge)))
}

// edgeIn returns the name of an edge of p, without emphasis; see [placeIn].
func edgeIn(n *Names, p *detect.Problem, edge trace.Edge) Sentence {
	return n.edge(shareIn(n, p, edge)).quiet()
}

// shareIn returns the given edge of p. If p has no such edge, it returns the edge without a share.
func shareIn(n *Names, p *detect.Problem, edge trace.Edge) *group.EdgeShare {
	for i := range p.Edges {
		if p.Edges[i].Edge == edge {
			return &p.Edges[i]
		}
	}
	return shareless(n, edge)
}

func newRecovery(n *Names, p *detect.Problem, r *explain.Recovery) Recovery {
	x := Recovery{
		Edge:         placeIn(n, p, r.Edge),
		LevelNS:      int64(r.Level),
		Requests:     r.Requests,
		MeanNS:       Number(r.Mean.Value),
		MeanLowNS:    Number(r.Mean.Low),
		MeanHighNS:   Number(r.Mean.High),
		MeanFraction: Number(r.MeanPart),
		P99NS:        int64(r.P99),
		P99Fraction:  Number(r.P99Part),
	}
	if x.Edge != nil {
		saved := figure(units.Percent(r.MeanPart) + " of their mean and " + units.Percent(r.P99Part) + " of their p99")
		requests := number(units.Plural(r.Requests, "sampled request"))
		x.Sentence = Say("If ").And(edgeIn(n, p, r.Edge))
		x.Sentence.Say(" took %s, the %s would save %s.", number(units.Duration(r.Level)), requests, saved)
	}
	x.Text = x.Sentence.String()
	return x
}

// minRecovery is the smallest fraction of the mean or of the p99 that is worth mentioning.
const minRecovery = 0.05

// Matters reports whether r is large enough to be shown to people.
func (r *Recovery) Matters() bool {
	return r.MeanFraction >= minRecovery || r.P99Fraction >= minRecovery
}

// NewCommon presents places of different request types whose times are correlated.
func NewCommon(n *Names, c *explain.CommonEdges) Common {
	x := Common{
		Edges:       make([]TypedEdge, 0, len(c.Edges)),
		Correlation: Number(c.Correlation),
		PValue:      Number(c.PValue),
	}
	s := &x.Sentence
	for i, e := range c.Edges {
		name := n.RequestType(e.RequestType, 0)
		x.Edges = append(x.Edges, TypedEdge{name, e.RequestType.String(), n.Context(e.Context)})
		if i > 0 {
			s.Plain(" and ")
		}
		s.Say("%s in %s", n.op(n.Last(e.Context)), Name(n.Clean(name)).quiet())
	}
	s.Say(" rise and fall together (correlation %s, p %s): a lock or a dependency that they share?",
		number(strconv.FormatFloat(c.Correlation, 'f', 2, 64)), number(PValue(c.PValue)))
	x.Text = s.String()
	return x
}

// PValue formats a p-value with its relation, like "= 0.004" or "< 0.001".
func PValue(p float64) string {
	if p < 0.001 {
		return "< 0.001"
	}
	return "= " + strconv.FormatFloat(p, 'g', 2, 64)
}
