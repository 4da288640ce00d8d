package eval

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
)

// noClock is a clock that stands still, so that the times in equal runs are equal.
func noClock() time.Time { return time.Time{} }

func small() Simulation {
	return Simulation{
		Seeds: []uint64{3}, Faults: []sim.Fault{sim.ThirdParty, sim.None}, Strategies: []string{"adaptive"},
		App: sim.Config{Tracepoints: 150}, Engine: engine.DefaultOptions(), Epochs: 12,
	}
}

// TestSimulateRepeats: a run depends on its seed only, not on the number of workers.
func TestSimulateRepeats(t *testing.T) {
	s := small()
	one, err := Simulate(context.Background(), s, noClock, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Workers = 2
	two, err := Simulate(context.Background(), s, noClock, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(one, two); diff != "" {
		t.Errorf("two workers give other runs:\n%s", diff)
	}
}

// TestSimulateFindsAThirdParty: a strong fault is raised and located at a cost in spans. Without a fault there is no
// alarm.
func TestSimulateFindsAThirdParty(t *testing.T) {
	runs, err := Simulate(context.Background(), small(), noClock, nil)
	if err != nil {
		t.Fatal(err)
	}
	faulty, healthy := runs[0], runs[1]
	if !faulty.Raised || faulty.Rank != 1 || faulty.Enabled == 0 || faulty.SpanHits == 0 ||
		faulty.Enabled > faulty.Executed {
		t.Errorf("third party: %+v; want it raised and located at a cost in spans", faulty)
	}
	if healthy.Raised || healthy.FalseAlarms > 0 || healthy.Rank != 0 || healthy.SpanHits > 0 ||
		healthy.GroupHours == 0 {
		t.Errorf("healthy: %+v; want no alarm, and nothing enabled", healthy)
	}
}

// TestSimulateStops: a cancelled simulation returns the cause.
func TestSimulateStops(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Simulate(ctx, small(), noClock, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
}

// TestSummarize: rates are over locatable cases with a fault, false alarms over all cases.
func TestSummarize(t *testing.T) {
	report := Summarize([]Run{
		{
			Fault:     sim.Lock,
			Strategy:  "s",
			Locatable: true,
			Raised:    true,
			Rank:      1,
			Epochs:    2,
			Detected:  3,
			Executed:  100,
			Enabled:   4,
			Peak:      2,
			SpanHits:  10,
			Requests:  100,
		},
		{
			Fault:     sim.Lock,
			Strategy:  "s",
			Locatable: true,
			Raised:    true,
			Rank:      3,
			Epochs:    4,
			Detected:  5,
			Executed:  100,
			Enabled:   6,
			Peak:      4,
			SpanHits:  30,
			Requests:  100,
		},
		{Fault: sim.Disk, Strategy: "s", Rank: 1, Raised: true},
		{Fault: sim.None, Strategy: "s", FalseAlarms: 1, GroupHours: 500},
	})
	s := report.Strategies["s"]
	if s.Cases != 3 || s.Locatable != 2 || s.Top1 != 0.5 || s.Top3 != 1 || s.Raised != 1 {
		t.Errorf("%+v; want 3 cases, 2 locatable, half first, all in three", s)
	}
	if s.EnabledMedian != 0.05 || s.PeakMedian != 0.03 || s.SpanHitsMedian != 200 || s.EpochsMedian != 3 ||
		s.DetectedMedian != 4 {
		t.Errorf("%+v; want medians of the locatable cases", s)
	}
	if s.FalseAlarms != 2 {
		t.Errorf("%v false alarms per 1 000 group-hours, want 2", s.FalseAlarms)
	}
	if len(s.ByFault) != 3 || s.ByFault["disk"].Locatable != 0 {
		t.Errorf("by fault: %v", s.ByFault)
	}
}

// TestRatesOfNothing: rates of no cases are null in JSON, not 0.
func TestRatesOfNothing(t *testing.T) {
	report := Summarize([]Run{{Fault: sim.Disk, Strategy: "s"}})
	data, err := json.Marshal(report.Strategies["s"].ByFault["disk"])
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{
		"top1", "top1_low", "top1_high", "top3", "top3_low", "top3_high", "raised", "top1_significant",
		"enabled_median", "peak_median",
		"span_hits_median", "span_hits_mean", "detected_median", "epochs_median",
		"false_alarms_per_1000_group_hours",
	} {
		if x, ok := fields[key]; !ok || x != nil {
			t.Errorf("%s is %v (there: %t), want null", key, x, ok)
		}
	}
	var back Score
	if err := json.Unmarshal(data, &back); err != nil || !math.IsNaN(float64(back.Top1)) {
		t.Errorf("read back: %v, %v", back.Top1, err)
	}
}

// TestWilson compares with published values (Brown, Cai, DasGupta 2001: 0 of 10 has an upper limit of 0.278).
func TestWilson(t *testing.T) {
	if p, low, high := wilson(0, 10); p != 0 || low != 0 || high < 0.277 || high > 0.279 {
		t.Errorf("0 of 10: %v (%v–%v)", p, low, high)
	}
	if _, low, high := wilson(5, 10); low < 0.236 || low > 0.238 || high < 0.762 || high > 0.764 {
		t.Errorf("5 of 10: %v–%v", low, high)
	}
}
