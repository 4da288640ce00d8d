package explain

import (
	"cmp"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// ContrastBy is the variable by which requests are compared with each other: an attribute such as host.name or service.version.
type ContrastBy struct {
	Key     trace.Symbol
	Context trace.Context // where it is; 0: at the place nearest to the root that has it, request by request
}

// Contrasted is what requests with one value have that the others do not.
type Contrasted struct {
	Value    string
	Requests int // with the value
	Rest     int // with other values
	Duration Difference
	Edges    []Difference // those that are significantly slower, by falling Value
}

// Difference is how much more time one set of requests takes than the rest.
type Difference struct {
	Edge   trace.Edge // 0: the duration
	Mean   float64    // ns a request, requests without the edge counting 0
	Rest   float64    // the same of the rest
	Value  float64    // Mean − Rest, with its 95 % interval (Welch)
	Low    float64
	High   float64
	PValue float64 // corrected for the number of values and edges tried
}

// Contrast compares requests that differ in one variable: where history is missing, healthy hosts or versions serve as the reference.
// Every value with enough requests is compared with all the other requests: their durations, and their times in each of the most expensive
// edges of p. It returns the values that are significantly slower, in the whole or in an edge, by falling excess (their requests times
// the difference).
//
// Requests are a uniform sample; their order does not matter. Tests are those of [Associate], on the logarithm of times. The whole sample
// is used for the test: what is compared was chosen by the caller, not found.
func Contrast(p *detect.Problem, requests []*observation.Observation, by ContrastBy, table *trace.Table, o Options) []Contrasted {
	o.Alpha = cmp.Or(o.Alpha, 0.02)
	o.Edges = cmp.Or(o.Edges, contrastEdges)
	s := newStudy(o, table, requests)
	// A request that has no value did something else altogether: it is no reference.
	s.requests = slices.DeleteFunc(s.requests, func(x *observation.Observation) bool { return !by.cell(x).some })
	if len(s.requests) < minRequests {
		return nil
	}
	values := s.contrastColumn(by)
	s.aim(expensive(p))
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
	slices.SortStableFunc(out, func(a, b Contrasted) int {
		return cmp.Compare(b.Duration.Value*float64(b.Requests), a.Duration.Value*float64(a.Requests))
	})
	return out
}

// contrastEdges is how many edges are compared: the more, the less is significant.
const contrastEdges = 8

// expensive returns p with its edges scored by the time that they take.
func expensive(p *detect.Problem) *detect.Problem {
	q := *p
	q.Edges = slices.Clone(p.Edges)
	for i := range q.Edges {
		q.Edges[i].Score = q.Edges[i].Mean
	}
	return &q
}

// cell returns the value for one request.
func (by ContrastBy) cell(o *observation.Observation) cell {
	if by.Context != 0 {
		return cellOf(o, columnID{context: by.Context, key: by.Key, kind: attribute})
	}
	return outermost(o, by.Key)
}

// contrastColumn returns the column of the variable, nil if it does not vary.
func (s *study) contrastColumn(by ContrastBy) *column {
	r := &rawColumn{id: columnID{context: by.Context, key: by.Key, kind: attribute}, cells: make([]cell, len(s.requests))}
	for i, o := range s.requests {
		r.cells[i] = by.cell(o)
	}
	if columns := s.categorical(column{id: r.id}, r, false); len(columns) > 0 {
		return &columns[0]
	}
	return nil
}

// outermost returns the value of an attribute at the place nearest to the root that has it; of several the smallest context.
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
		if depth := c.climb(o, at); depth < best {
			best, found = depth, cell{some: true, numeric: v.Numeric, number: v.Number, text: v.Text}
		}
	}
	return found
}

// eachCategory returns for each value the column that says whether a request has it: category 1.
func eachCategory(values *column) []column {
	var out []column
	for code, label := range values.labels {
		if label == labelOther || label == labelNone {
			continue
		}
		one := column{labels: []string{"", label}, codes: make([]int32, len(values.codes))}
		for i, c := range values.codes {
			one.codes[i] = int32(b2i(int(c) == code))
		}
		out = append(out, one)
	}
	return out
}

// contrast compares requests with one value with the rest, and reports whether they are slower in anything.
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
	slices.SortStableFunc(x.Edges, func(a, b Difference) int { return cmp.Or(cmp.Compare(b.Value, a.Value), cmp.Compare(a.Edge, b.Edge)) })
	return x, slow
}

// difference compares the times of the requests in category 1 with those in category 0.
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
	var error [2]float64 // of the means, squared
	for c := range error {
		error[c] = squares[c] / (n[c] - 1) / n[c]
	}
	all := error[0] + error[1]
	freedom := max(1, int(all*all/(error[0]*error[0]/(n[0]-1)+error[1]*error[1]/(n[1]-1))))
	half := 0.0
	if all > 0 {
		half = studentsT(freedom) * math.Sqrt(all)
	}
	d := mean[1] - mean[0]
	return Difference{Edge: t.edge, Mean: mean[1], Rest: mean[0], Value: d, Low: d - half, High: d + half}
}
