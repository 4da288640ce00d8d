package report

import (
	"io"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/engine/offline"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/trace"
)

// newBacktest returns a hand-written result with two closed incidents and an open one; the latter two are false.
func newBacktest() *backtest.Result {
	s := sample{Report: &offline.Report{Table: &trace.Table{}}}
	pay, cart := s.op("payment", "Pay", trace.Server), s.Table.Symbol("cart\x1b[31m")
	const midnight = trace.Nanos(1_790_035_200_000_000_000)
	return &backtest.Result{
		Table:    s.Table,
		Traces:   21_568,
		Misdated: 3,
		From:     midnight + 1.5e9,
		To:       midnight + 90_000e9,
		Learned:  midnight + 310e9,
		Incidents: []engine.Incident{
			{Incident: incident.Incident{
				ID:    0xabc,
				Onset: midnight + 9480e9,
				Seen:  midnight + 9980e9,
				History: []incident.Transition{
					{At: midnight + 9660e9},
					{At: midnight + 9980e9, State: incident.Closed, Why: incident.Recovered, Calls: 412},
				},
				Suspects: []compare.Suspect{
					{
						Service:    s.Table.Symbol("payment"),
						Score:      0.46,
						Own:        0.25,
						In:         0.125,
						Rest:       0.0625,
						Out:        0.01,
						Errors:     0.01,
						Unanswered: 0.003,
						Shape:      0.002,
						Operations: []compare.SuspectOperation{{Op: pay, Score: 0.4}},
						Instances: []compare.InstancePart{
							{
								Key:   s.Table.Symbol("k8s.pod.name"),
								Value: s.Table.Symbol("payment-7"),
								Calls: 30,
								Part:  0.9375,
								Of:    12,
							},
							{
								Key:   s.Table.Symbol("service.version"),
								Value: s.Table.Symbol("1.8.2"),
								Calls: 30,
								Part:  0.9,
								Of:    2,
							},
						},
					},
					{Service: cart, Score: 0.02, Own: 0.02},
					{Service: s.Table.Symbol("shop"), Score: 0.001, Own: 0.001},
				},
			}},
			{Incident: incident.Incident{
				ID:    0xbcd,
				Onset: midnight + 20_000e9,
				Seen:  midnight + 20_600e9,
				History: []incident.Transition{
					{At: midnight + 20_100e9},
					{At: midnight + 20_800e9, State: incident.Closed, Why: incident.Moved, Service: cart},
				},
				Suspects: []compare.Suspect{{Service: s.Table.Symbol("shop"), Score: 0.2, Own: 0.2}},
			}},
			{Incident: incident.Incident{
				ID: 0xdef, Onset: midnight + 80_000e9, History: []incident.Transition{{At: midnight + 80_180e9}},
				Suspects: []compare.Suspect{{Service: cart, Score: 0.12, Errors: 0.12}},
			}},
		},
		Score: &backtest.Score{
			Cases: []backtest.Case{
				{
					Name:           "payment-cpu",
					Fault:          "cpu",
					Raised:         true,
					SecondsToRaise: new(60.),
					RankService:    new(1),
					Service:        "payment",
					Incident:       0xabc,
				},
				{
					Name:           "ship-cpu",
					Fault:          "cpu",
					Raised:         true,
					SecondsToRaise: new(90.),
					RankService:    new(3),
					Service:        "ship",
					Incident:       0xabc,
				},
				{
					Name:           "shop-return",
					Fault:          "return",
					Raised:         true,
					SecondsToRaise: new(90.),
					Service:        "shop",
					Incident:       0xabc,
				},
				{Name: "stock-return", Fault: "return", Service: "stock"},
			},
			All:          backtest.Sum{Cases: 4, Raised: 0.75, Top1: 0.25, Top3: 0.5},
			False:        []uint64{0xbcd, 0xdef},
			HealthyHours: 24.25,
			Outside:      []string{"last-week"},
			ByFault: map[string]backtest.Sum{
				"cpu": {Cases: 2, Raised: 1, Top1: 0.5, Top3: 1}, "return": {Cases: 2, Raised: 0.5},
			},
		},
	}
}

func TestBacktestGolden(t *testing.T) {
	r := newBacktest()
	r.Coverage.Records = 21_000
	r.Coverage.LeaveRecords(12, trace.Malformed)
	none := &backtest.Result{
		Table:  &trace.Table{},
		Traces: 1,
		From:   1_790_035_200_000_000_000,
		To:     1_790_035_201_000_000_000,
	}
	for name, write := range map[string]func(w io.Writer) error{
		"backtest.txt":        func(w io.Writer) error { return BacktestTable(w, r, terminal.Style{Width: 120}) },
		"backtest-narrow.txt": func(w io.Writer) error { return BacktestTable(w, r, terminal.Style{Width: 70}) },
		"backtest.json":       func(w io.Writer) error { return BacktestJSON(w, r) },
		"backtest-none.txt":   func(w io.Writer) error { return BacktestTable(w, none, terminal.Style{Width: 80}) },
		"backtest-none.json":  func(w io.Writer) error { return BacktestJSON(w, none) },
	} {
		golden(t, name, comparisonText(t, write))
	}
}
