package engine

import (
	"testing"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// The evidence of an investigation is recorded when it locates a cause, once for each context.
func TestRecordHistory(t *testing.T) {
	const entry, tp = 1, 2
	c := NewCore(&trace.Table{}, DefaultOptions())
	problem, requestType := search.OfProblem(analysis.Hash{Hi: 1}), analysis.Hash{Hi: 2}
	root := trace.Context(0).Child(entry)
	place := root.Child(tp)
	c.trees.observe(requestType, cct.Observation{On: []trace.Symbol{tp}, Contexts: []cct.ContextCount{
		{Context: root, Op: entry, Count: 1},
		{
			Context:    place,
			Parent:     root,
			Op:         tp,
			Tracepoint: tp,
			Count:      1,
		},
	}})
	c.searches.state.Investigations = []search.Investigation{{
		Subject:     problem,
		RequestType: requestType,
		Suspects:    []search.Suspect{{Tracepoint: tp, Share: 0.8}},
		Evidence: []search.Evidence{
			{Context: place, Tracepoint: tp, Batch: 1},
			{Context: place, Tracepoint: tp, Batch: 2},
		},
	}}
	c.searches.recordHistory([]search.Decision{
		{Subject: problem, To: search.Investigating},
		{Subject: problem, From: search.Investigating, To: search.Located},
		{Subject: problem, From: search.Located, To: search.Located},
	})
	built := c.View().Trees.Of(requestType)
	h := built.Nodes[built.Find(place)].History
	if h.N != 1 || h.Mean() != 0.8 {
		t.Fatalf("%+v", h)
	}
}
