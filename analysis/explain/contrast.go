package explain

import (
	"cmp"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// ContrastBy is the attribute that divides the requests to be compared, such as host.name or service.version.
type ContrastBy struct {
	Key     trace.Symbol
	Context trace.Context // context of the attribute; 0 selects the context nearest to the root of each request
}

// Contrasted compares the requests with one value with all other requests.
type Contrasted struct {
	Value    string
	Requests int // number of requests with the value
	Rest     int // number of requests with other values
	Duration Difference
	Edges    []Difference // of the significantly slower edges, in descending order of Value
}

// Difference is the difference between the mean time of one set of requests and the mean time of the rest.
type Difference struct {
	Edge   trace.Edge // 0 for the duration
	Mean   float64    // ns per request; requests without the edge count as 0
	Rest   float64    // mean of the rest
	Value  float64    // Mean − Rest, with its 95 % interval (Welch)
	Low    float64
	High   float64
	PValue float64 // corrected for the number of values and edges tested
}

// Contrast compares requests that differ in one attribute. If there is no history, healthy hosts or versions serve as
// the reference. Contrast compares the requests with each value that has enough requests with all other requests: their
// durations, and their times in each of the most expensive edges of p. It returns the values whose duration or edges
// are significantly slower, in descending order of excess: the number of requests times the difference of durations.
//
// The requests must be a uniform sample, in any order. The tests are the same as in [Associate], on the logarithm of
// times. They use the whole sample without confirmation, because the caller selects the attribute. Contrast returns nil
// if too few requests have the attribute.
func Contrast(
	p *detect.Problem, requests []*observation.Observation, by ContrastBy, table *trace.Table, o Options,
) []Contrasted {
	o.Alpha = cmp.Or(o.Alpha, 0.02)
	o.Edges = cmp.Or(o.Edges, contrastEdges)
	s := newStudy(o, table, requests)
	// Requests without a value did something else, so we can't compare with them.
	s.requests = slices.DeleteFunc(s.requests, func(x *observation.Observation) bool { return !by.cell(x).some })
	if len(s.requests) < minRequests {
		return nil
	}
	values := s.contrastColumn(by)
	s.addTargets(expensive(p))
	if values == nil || len(s.targets) == 0 {
		return nil
	}
	s.columns = eachCategory(values)
	s.tried = len(s.columns) * len(s.targets)
	var out []Contrasted
	for i := range s.columns {
		if x, slow := s.contrast(&s.columns[i]); slow {
			out = append(out, x)
		}
	}
	sorting.SliceStable(out, func(a, b Contrasted) int {
		return cmp.Compare(b.Duration.Value*float64(b.Requests), a.Duration.Value*float64(a.Requests))
	})
	return out
}

// contrastEdges is the number of edges to compare. More edges would reduce the significance of each.
const contrastEdges = 8

// expensive returns p with its edges scored by their mean time.
func expensive(p *detect.Problem) *detect.Problem {
	q := *p
	q.Edges = slices.Clone(p.Edges)
	for i := range q.Edges {
		q.Edges[i].Score = q.Edges[i].Mean
	}
	return &q
}

// cell returns the value of the attribute in o.
func (by ContrastBy) cell(o *observation.Observation) cell {
	if by.Context != 0 {
		return cellOf(o, columnID{context: by.Context, key: by.Key, kind: attribute})
	}
	return outermost(o, by.Key)
}

// contrastColumn returns the column of the attribute, or nil if it does not vary.
func (s *study) contrastColumn(by ContrastBy) *column {
	r := &rawColumn{
		id:    columnID{context: by.Context, key: by.Key, kind: attribute},
		cells: make([]cell, len(s.requests)),
	}
	for i, o := range s.requests {
		r.cells[i] = by.cell(o)
	}
	if columns := s.categorical(column{id: r.id}, r); len(columns) > 0 {
		return &columns[0]
	}
	return nil
}

// outermost returns the value of the attribute key in the context of o nearest to the root. If several contexts are
// equally near, the smallest one counts.
func outermost(o *observation.Observation, key trace.Symbol) cell {
	best, found := math.MaxInt, cell{}
	var c collector
	for i := range o.Variables {
		v := &o.Variables[i]
		if v.Key != key {
			continue
		}
		at := o.Context(v.Context)
		if at == nil {
			continue
		}
		if depth := c.depth(o, at); depth < best {
			best, found = depth, cell{some: true, numeric: v.Numeric, number: v.Number, text: v.Text}
		}
	}
	return found
}

// eachCategory returns an indicator column for each value other than labelOther and labelNone: category 1 holds the
// requests with that value, category 0 all others.
func eachCategory(values *column) []column {
	var out []column
	for code, label := range values.labels {
		if label == labelOther || label == labelNone {
			continue
		}
		one := column{labels: []string{"", label}, codes: make([]int32, len(values.codes))}
		for i, c := range values.codes {
			if int(c) == code {
				one.codes[i] = 1
			}
		}
		out = append(out, one)
	}
	return out
}

// contrast compares the requests in category 1 of one with the rest. It reports whether their duration or any of their
// edges is significantly slower.
func (s *study) contrast(one *column) (Contrasted, bool) {
	x := Contrasted{Value: one.labels[1]}
	for _, code := range one.codes {
		x.Requests += int(code)
	}
	x.Rest = len(one.codes) - x.Requests
	slow := false
	for i := range s.targets {
		t := &s.targets[i]
		d := difference(t, one.codes)
		d.PValue = min(1, s.pValue(newFit(t.logs), t, one, float64(s.tried)))
		slower := d.PValue <= s.options.Alpha && d.Value > 0
		if t.edge == 0 {
			x.Duration = d
		} else if slower {
			x.Edges = append(x.Edges, d)
		}
		slow = slow || slower
	}
	sorting.SliceStable(x.Edges,
		func(a, b Difference) int { return cmp.Or(cmp.Compare(b.Value, a.Value), cmp.Compare(a.Edge, b.Edge)) })
	return x, slow
}

// difference compares the times of the requests in category 1 with the times of the requests in category 0. It does not
// set the p-value.
func difference(t *target, codes []int32) Difference {
	var n, sum, squares [2]float64
	for i, c := range codes {
		n[c]++
		sum[c] += t.nanos[i]
	}
	mean := [2]float64{sum[0] / n[0], sum[1] / n[1]}
	for i, c := range codes {
		squares[c] += square(t.nanos[i] - mean[c])
	}
	var variance [2]float64 // of the means
	for c := range variance {
		variance[c] = squares[c] / (n[c] - 1) / n[c]
	}
	total := variance[0] + variance[1]
	freedom := max(1, int(total*total/(square(variance[0])/(n[0]-1)+square(variance[1])/(n[1]-1))))
	half := 0.0
	if total > 0 {
		half = stats.StudentsT(freedom) * math.Sqrt(total)
	}
	d := mean[1] - mean[0]
	return Difference{
		Edge:  t.edge,
		Mean:  mean[1],
		Rest:  mean[0],
		Value: d,
		Low:   d - half,
		High:  d + half,
	}
}
