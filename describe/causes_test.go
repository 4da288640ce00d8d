package describe

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

func TestCauses(t *testing.T) {
	s := newShop()
	n, p := s.names(), s.variable()
	former := s.context(s.checkout, s.index)
	s.table.AddEdge(trace.ContextEdge(former), trace.EdgeInfo{Context: former})
	f := explain.Findings{
		Requests:  128,
		Joint:     0.7,
		Unrelated: []explain.UnrelatedVariable{{Context: s.toBank, Name: "user.locale"}},
		Contrasts: []explain.KeyedContrast{{Key: "host.name", Contrasted: explain.Contrasted{
			Value:    "pay-b",
			Requests: 40,
			Rest:     88,
			Duration: explain.Difference{
				Mean:   4.1e8,
				Rest:   1.4e8,
				Value:  2.7e8,
				Low:    2.2e8,
				High:   3.2e8,
				PValue: 2e-9,
			},
			Edges: []explain.Difference{{
				Edge:   trace.ContextEdge(s.toBank),
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
				Edge:     trace.ContextEdge(s.toBank),
				Level:    38 * time.Millisecond,
				Requests: 64,
				Mean:     stats.Interval{Value: 5.8e7, Low: 4.1e7, High: 7.5e7},
				MeanPart: 0.27,
				P99:      1200 * time.Millisecond,
				P99Part:  0.85,
			},
			{
				Edge:     trace.ContextEdge(former),
				Level:    time.Millisecond,
				Requests: 64,
				MeanPart: 0.01,
				P99Part:  0.02,
			},
		},
	}
	c := NewCauses(n, p, &f)
	partly, onlyEdge := f.Contrasts[0], f.Contrasts[0]
	partly.Duration.Value = 2e8
	onlyEdge.Duration = explain.Difference{Mean: 1.4e8, Rest: 4.1e8, Value: -2.7e8}
	for got, want := range map[string]string{
		newContrast(n, p, &partly).Text: "host.name = pay-b: 410 ms a request against 140 ms with others (40 and " +
			"88 sampled); 250 ms more in payment → bank POST /charge (wire or queue)",
		newContrast(n, p, &onlyEdge).Text: "host.name = pay-b: 250 ms more than with others in payment → bank POST " +
			"/charge (wire or queue) (40 and 88 sampled)",
		c.Contrasts[0].Text: "host.name = pay-b: 410 ms a request against 140 ms with others (40 and 88 sampled); " +
			"250 ms of that in payment → bank POST /charge (wire or queue)",
		c.WhatIf[0].Text: "If payment → bank POST /charge (wire or queue) took 38 ms, the 64 sampled requests would " +
			"save 27 % of their mean and 85 % of their p99.",
		// no longer an edge of the problem
		c.WhatIf[1].Text: "If shop GET / took 1 ms, the 64 sampled requests would save 1 % of their mean and 2 % " +
			"of their p99.",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if !c.WhatIf[0].Matters() || c.WhatIf[1].Matters() {
		t.Errorf("recoveries matter: %t and %t, want the first one only", c.WhatIf[0].Matters(), c.WhatIf[1].Matters())
	}
	if c.Contrasts[0].Duration.Edge != nil ||
		*c.Contrasts[0].Edges[0].Edge.Target != (Target{Service: "bank", Operation: "POST /charge"}) {
		t.Errorf("edges of the contrast: %+v", c.Contrasts[0])
	}
	if len(c.Unrelated) != 1 || c.Unrelated[0].Variable != "user.locale" || c.Joint != 0.7 {
		t.Errorf("joint correlation %v, unrelated %+v", c.Joint, c.Unrelated)
	}
	none, err := json.Marshal(NoCauses())
	if want := `{"joint_correlation":null,"unrelated":[],"contrasts":[],"what_if":[]}`; err != nil ||
		string(none) != want {
		t.Errorf("no causes: %s, %v, want %s", none, err, want)
	}
}

func TestCommon(t *testing.T) {
	s := newShop()
	n := s.names()
	n.SetName(analysis.Hash{Lo: 7}, "page")
	c := NewCommon(n, &explain.CommonEdges{Correlation: 0.62, PValue: 0.004, Edges: []explain.TypedEdge{
		{RequestType: analysis.Hash{Lo: 1}, Context: s.toBank}, {RequestType: analysis.Hash{Lo: 7}, Context: s.toPage},
	}})
	want := "payment → bank POST /charge in shop POST /checkout and shop render page in page rise and fall together " +
		"(correlation 0.62, p = 0.004): a lock or a dependency that they share?"
	if c.Text != want {
		t.Errorf("got %q, want %q", c.Text, want)
	}
}
