package describe

import (
	"math"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/trace"
)

const ms = time.Millisecond

// shop is a table of operations with a checkout whose bank is slow on one route, and an index page.
type shop struct {
	table                                        *trace.Table
	checkout, pay, charge, bank, index, rendered trace.Op
	toBank, toPage                               trace.Context
}

func newShop() *shop {
	s := &shop{table: &trace.Table{}}
	op := func(service, name string, kind trace.Kind) trace.Op {
		return s.table.Op(s.table.Symbol(service), s.table.Symbol(name), kind)
	}
	s.checkout, s.pay = op("shop", "POST /checkout", trace.Server), op("payment", "Pay", trace.Server)
	s.bank = op("bank", "POST /charge", trace.Server)
	s.charge = s.table.Step(op("payment", "POST", trace.Client), s.bank)
	s.index, s.rendered = op("shop", "GET /", trace.Server), op("shop", "render page", trace.Internal)
	s.toBank = s.context(s.checkout, s.pay, s.charge)
	s.toPage = s.context(s.index, s.rendered)
	return s
}

func (s *shop) context(path ...trace.Op) trace.Context {
	var c trace.Context
	for _, op := range path {
		c = s.table.Child(c, op)
	}
	return c
}

// names returns names with the summary of the checkout.
func (s *shop) names() *Names {
	n := New(s.table, Verbatim)
	id := analysis.Hash{Lo: 1}
	n.Add(&group.Summary{ID: id, Level: group.LevelRequestType, RequestType: id, Entry: s.checkout})
	return n
}

// variable returns the problem of the checkout: its durations vary.
func (s *shop) variable() *detect.Problem {
	id := analysis.Hash{Lo: 1}
	return &detect.Problem{
		ID:          analysis.Hash{Hi: 9},
		Kind:        detect.KindVariable,
		Onset:       detect.Chronic,
		Whole:       detect.WholeVariance,
		Level:       group.LevelRequestType,
		Group:       id,
		RequestType: id,
		Entry:       s.checkout,
		Requests:    1130,
		Rate:        12,
		Mean:        212 * ms,
		P50:         101 * ms,
		P99:         1420 * ms,
		CoV:         0.82,
		CoVLow:      0.71,
		CoVHigh:     0.93,
		Impact:      2.12e8,
		Edges: []group.EdgeShare{
			{
				Edge:          trace.ContextEdge(s.toBank),
				Context:       s.toBank,
				Mean:          9.6e7,
				ShareMean:     0.45,
				ShareVariance: 0.83,
				ShareLow:      0.79,
				ShareHigh:     0.87,
				TailLift:      1.26e9,
				Excess:        math.NaN(),
				ExcessLow:     math.NaN(),
				ExcessHigh:    math.NaN(),
				Score:         0.83,
			},
			{
				Mean:          2e6,
				ShareMean:     0.01,
				ShareVariance: 0.03,
				ShareLow:      math.NaN(),
				ShareHigh:     math.NaN(),
				TailLift:      math.NaN(),
			},
		},
		Explanations: []detect.Explanation{
			{
				Variable: "bank.route",
				Value:    "fallback",
				Where:    s.toBank,
				Effect:   0.64,
				Low:      0.58,
				High:     0.7,
				PValue:   0.0004,
				Remains:  0.31,
			},
			{
				Variable: "concurrency",
				Target:   trace.ContextEdge(s.toBank),
				Effect:   0.08,
				Low:      0.02,
				High:     0.15,
				PValue:   0.03,
				Remains:  math.NaN(),
			},
		},
	}
}

// slow returns the problem of the index page: it takes longer than expected.
func (s *shop) slow() *detect.Problem {
	id := analysis.Hash{Lo: 2}
	return &detect.Problem{
		ID:          analysis.Hash{Hi: 8},
		Kind:        detect.KindSlow,
		Onset:       detect.Changed,
		Level:       group.LevelRequestType,
		Group:       id,
		RequestType: id,
		Entry:       s.index,
		Requests:    3490,
		Mean:        35 * ms,
		Expected:    15 * ms,
		CoV:         0.09,
		CoVLow:      math.NaN(),
		CoVHigh:     math.NaN(),
		Edges: []group.EdgeShare{{
			Edge:          trace.ContextEdge(s.toPage),
			Context:       s.toPage,
			Mean:          2.8e7,
			ShareVariance: 0.9,
			Excess:        1.9e7,
			Score:         0.95,
		}},
	}
}
