package report

import (
	"math"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/engine/offline"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

const ms = time.Millisecond

// sample is a hand-written report: a shop whose bank is slow on one route, an index page that got slower, and a third
// request type whose names contain the special characters of every format.
type sample struct {
	*offline.Report

	checkout, pay, charge, bank, stock, index, render trace.Op
}

func newSample() *offline.Report {
	s := sample{Report: &offline.Report{
		Refused:  76,
		Table:    &trace.Table{},
		Traces:   4777,
		Spans:    98211,
		Judged:   4700,
		Complete: 4700,
		Rejected: map[trace.Reason]int{trace.TooLong: 74, trace.Malformed: 3},
	}}
	s.checkout = s.op("shop", "POST /checkout", trace.Server)
	s.pay = s.op("payment", "Pay", trace.Server)
	s.bank = s.op("bank", "POST /charge", trace.Server)
	s.charge = s.Table.Step(s.op("payment", "POST", trace.Client), s.bank)
	s.stock = s.op("stock", "Reserve", trace.Server)
	s.index = s.op("shop", "GET /", trace.Server)
	s.render = s.op("shop", "render page", trace.Internal)
	s.checkoutGroups()
	s.indexGroups()
	s.Common = []explain.CommonEdges{{Correlation: 0.62, PValue: 0.004, Edges: []explain.TypedEdge{
		{RequestType: analysis.Hash{Hi: 1, Lo: 1}, Context: s.context(s.checkout, s.stock)},
		{RequestType: analysis.Hash{Hi: 2, Lo: 2}, Context: s.context(s.index, s.render)},
	}}}
	s.hostile()
	return s.Report
}

func (s *sample) op(service, name string, kind trace.Kind) trace.Op {
	return s.Table.Op(s.Table.Symbol(service), s.Table.Symbol(name), kind)
}

func (s *sample) context(path ...trace.Op) trace.Context {
	var c trace.Context
	for _, op := range path {
		c = s.Table.Child(c, op)
	}
	return c
}

// share returns the edge of the context c, with the given share of the variance ± 0.04.
func share(c trace.Context, mean, of time.Duration, variance float64, lift time.Duration) group.EdgeShare {
	return group.EdgeShare{
		Edge:          trace.ContextEdge(c),
		Context:       c,
		Mean:          float64(mean),
		ShareMean:     float64(mean) / float64(of),
		ShareVariance: variance,
		ShareLow:      variance - 0.04,
		ShareHigh:     variance + 0.04,
		TailLift:      float64(lift),
		Excess:        math.NaN(),
		ExcessLow:     math.NaN(),
		ExcessHigh:    math.NaN(),
		Score:         variance,
	}
}

func (s *sample) checkoutGroups() {
	id, grp := analysis.Hash{Hi: 1, Lo: 1}, analysis.Hash{Hi: 0x3f2a91c0_00000000, Lo: 2}
	wire := share(s.context(s.checkout, s.pay, s.charge), 96*ms, 212*ms, 0.83, 1260*ms)
	edges := []group.EdgeShare{
		wire,
		share(s.context(s.checkout), 31*ms, 212*ms, 0.01, 1*ms),
		share(s.context(s.checkout, s.pay), 22*ms, 212*ms, 0.03, 14*ms),
		share(s.context(s.checkout, s.pay, s.charge, s.bank), 41*ms, 212*ms, 0.12, 160*ms),
		share(s.context(s.checkout, s.stock), 20*ms, 212*ms, -0.02, -3*ms),
		{
			Mean:          float64(2 * ms),
			ShareMean:     2. / 212,
			ShareVariance: 0.03,
			ShareLow:      math.NaN(),
			ShareHigh:     math.NaN(),
			TailLift:      math.NaN(),
		},
	}
	sum := group.Summary{
		ID:          id,
		Level:       group.LevelRequestType,
		RequestType: id,
		Entry:       s.checkout,
		Count:       1204,
		Mean:        212 * ms,
		P50:         101 * ms,
		P99:         1420 * ms,
		CoV:         0.82,
		CoVLow:      0.71,
		CoVHigh:     0.93,
		Between:     0.12,
		Edges:       edges,
		Latency: []group.Bin{
			{Low: 60 * ms, High: 80 * ms, Count: 120},
			{Low: 80 * ms, High: 107 * ms, Count: 600},
			{Low: 107 * ms, High: 142 * ms, Count: 310},
			{Low: 142 * ms, High: 190 * ms, Count: 61},
			{Low: 800 * ms, High: 1067 * ms, Count: 53},
			{Low: 1067 * ms, High: 1422 * ms, Count: 48},
			{Low: 1422 * ms, High: 1900 * ms, Count: 12},
		},
	}
	fine := sum
	fine.ID, fine.Level, fine.Count, fine.Failed, fine.Between = grp, group.LevelGroup, 1130, 7, math.NaN()
	fine.Bins = []group.VariableBin{{Variable: "cache.hit", Value: "false", Where: s.context(s.checkout, s.stock)}}
	fine.Edges = append([]group.EdgeShare(nil), edges...)
	for i := range fine.Edges[:5] {
		e := &fine.Edges[i]
		e.Edge = trace.EdgeOf(e.Context, 0, 0)
	}
	fine.Edges[1].Before, fine.Edges[1].After = s.stock, s.pay
	s.Groups = append(s.Groups, sum, fine)
	s.Problems = append(s.Problems, offline.Problem{
		Problem: detect.Problem{
			ID:          analysis.Hash{Hi: 9, Lo: 9},
			Kind:        detect.KindVariable,
			Onset:       detect.Chronic,
			Whole:       detect.WholeVariance,
			Level:       group.LevelGroup,
			Group:       grp,
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
			Impact:      float64(212 * ms),
			Edges:       fine.Edges,
			Explanations: []detect.Explanation{
				{
					Variable: "bank.route",
					Value:    "fallback",
					Where:    s.context(s.checkout, s.pay, s.charge),
					Effect:   0.64,
					Low:      0.58,
					High:     0.7,
					PValue:   0.0004,
					Remains:  0.31,
				},
				{
					Variable: "concurrency",
					Target:   fine.Edges[0].Edge,
					Effect:   0.08,
					Low:      0.02,
					High:     0.15,
					PValue:   0.03,
					Remains:  math.NaN(),
				},
			},
		},
		Proposed: []search.Pick{
			{
				Tracepoint: s.Table.Symbol("payment.retry"),
				Context:    s.context(s.checkout, s.pay),
				Reason:     "child of the leading edge, not on yet",
			},
			{Tracepoint: s.Table.Symbol("net.tcp.connect"), Reason: "kernel waits of the process"},
		},
		Missing: []trace.Op{s.charge},
		Findings: explain.Findings{
			Joint: 0.71, Unrelated: []explain.UnrelatedVariable{{Context: s.context(s.checkout), Name: "user.locale"}},
			Contrasts: []explain.KeyedContrast{{Key: "host.name", Contrasted: explain.Contrasted{
				Value:    "pay-b",
				Requests: 71,
				Rest:     185,
				Duration: explain.Difference{
					Mean:   4.1e8,
					Rest:   1.4e8,
					Value:  2.7e8,
					Low:    2.2e8,
					High:   3.2e8,
					PValue: 2e-9,
				},
				Edges: []explain.Difference{{
					Edge:   fine.Edges[0].Edge,
					Mean:   2.8e8,
					Rest:   3e7,
					Value:  2.5e8,
					Low:    2.1e8,
					High:   2.9e8,
					PValue: 1e-11,
				}},
			}}},
			Recoveries: []explain.Recovery{
				{
					Edge:     fine.Edges[0].Edge,
					Level:    38 * ms,
					Requests: 64,
					Mean:     stats.Interval{Value: 5.8e7, Low: 4.1e7, High: 7.5e7},
					MeanPart: 0.27,
					P99:      1200 * ms,
					P99Part:  0.85,
				},
				{
					Edge:     fine.Edges[1].Edge,
					Level:    30 * ms,
					Requests: 64,
					Mean:     stats.Interval{Value: 1e6, Low: -1e6, High: 3e6},
					MeanPart: 0.005,
					P99:      2 * ms,
					P99Part:  0.001,
				},
			},
		},
		Exemplars: offline.Exemplars{
			Slow: []offline.Exemplar{
				{Trace: trace.ID{1, 0xab}, Duration: 1900 * ms},
				{Trace: trace.ID{2}, Duration: 1422 * ms},
			},
			Typical: []offline.Exemplar{{Trace: trace.ID{15: 3}, Duration: 101 * ms}},
			Fast:    []offline.Exemplar{{Trace: trace.ID{4}, Duration: 61 * ms}},
		},
	})
}

func (s *sample) indexGroups() {
	id := analysis.Hash{Hi: 2, Lo: 2}
	edges := []group.EdgeShare{
		share(s.context(s.index, s.render), 28*ms, 35*ms, 0.9, 9*ms),
		share(s.context(s.index), 7*ms, 35*ms, 0.1, 1*ms),
	}
	edges[0].Excess, edges[0].Score = float64(19*ms), 0.95
	size := &group.SizeModel{
		SizeModel: stats.SizeModel{Base: float64(12 * ms), PerByte: 40, PerSegment: 0.2 * float64(ms), Segment: 1460},
		Requests:  256,
		Delayed:   0.012,
		TimedOut:  0.004,
		BadLow:    0.006,
		BadHigh:   0.04,
		CoV:       0.09,
		CoVLow:    0.08,
		CoVHigh:   0.1,
		CoVTotal:  0.41,
	}
	s.Groups = append(s.Groups, group.Summary{
		ID:          id,
		Level:       group.LevelRequestType,
		RequestType: id,
		Entry:       s.index,
		Distinct:    []trace.Op{s.render, s.stock},
		Count:       3490,
		Mean:        35 * ms,
		P50:         34 * ms,
		P99:         44 * ms,
		CoV:         0.09,
		CoVLow:      0.08,
		CoVHigh:     0.1,
		Size:        size,
		Edges:       edges,
		Latency: []group.Bin{
			{Low: 28 * ms, High: 33 * ms, Count: 1500},
			{Low: 33 * ms, High: 38 * ms, Count: 1700},
			{Low: 38 * ms, High: 44 * ms, Count: 290},
		},
	})
	s.Problems = append([]offline.Problem{{Problem: detect.Problem{
		ID:          analysis.Hash{Hi: 8, Lo: 8},
		Kind:        detect.KindSlow,
		Onset:       detect.Changed,
		Group:       id,
		RequestType: id,
		Entry:       s.index,
		Requests:    3490,
		Mean:        35 * ms,
		P50:         34 * ms,
		P99:         44 * ms,
		Expected:    15 * ms,
		Size:        size,
		CoV:         0.09,
		CoVLow:      0.08,
		CoVHigh:     0.1,
		Impact:      float64(740 * ms),
		Edges:       edges,
	}, Findings: explain.NoFindings()}}, s.Problems...)
}

// hostile adds a request type whose names contain special characters of formats and terminals.
func (s *sample) hostile() {
	id := analysis.Hash{Hi: 3, Lo: 3}
	op := s.op("a\x1b[31m;b", "</script><img src=x onerror=alert(1)> \n{{.}} \u202egnp", trace.Server)
	s.Groups = append(s.Groups, group.Summary{
		ID:          id,
		Level:       group.LevelRequestType,
		RequestType: id,
		Entry:       op,
		Count:       1,
		Mean:        5 * ms,
		P50:         5 * ms,
		P99:         5 * ms,
		CoV:         math.NaN(),
		CoVLow:      math.NaN(),
		CoVHigh:     math.NaN(),
		Between:     math.NaN(),
		Edges: []group.EdgeShare{{
			Edge:          trace.ContextEdge(s.context(op)),
			Context:       s.context(op),
			Mean:          float64(5 * ms),
			ShareMean:     1,
			ShareVariance: math.NaN(),
			ShareLow:      math.NaN(),
			ShareHigh:     math.NaN(),
			TailLift:      math.NaN(),
		}},
		Latency: []group.Bin{{Low: 5 * ms, High: 5 * ms, Count: 1}},
	})
}
