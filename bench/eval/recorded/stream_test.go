package recorded

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis/baselinediff"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/trace"
)

const second = trace.Nanos(1e9)

// everySecond returns a set with a trace every second, of one second, and none between 100 s and 200 s.
func everySecond(until trace.Nanos, cases ...Case) *Set {
	s := &Set{Cases: cases, Table: &trace.Table{}}
	for at := range until {
		if at < 100 || at >= 200 {
			s.all = append(s.all, &trace.Trace{ID: trace.ID{byte(at >> 8), byte(at), 15: 1}, Spans: []trace.Span{{ID: 1, Start: at * second, End: (at + 1) * second}}})
		}
	}
	return s
}

func windowOf(name string, from, to trace.Nanos) Case {
	return Case{Name: name, Window: baselinediff.Interval{From: from * second, To: to * second}, Target: Target{Service: "a"}}
}

// A stream begins with healthy traces without gaps, which also follow each window, and are repeated with other IDs.
func TestWeave(t *testing.T) {
	s := everySecond(300, windowOf("late", 240, 260), windowOf("early", 20, 40), windowOf("empty", 120, 140))
	w, err := s.weave(Stream{Learn: 40 * time.Second, Between: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var cases []string
	for _, c := range w.cases {
		cases = append(cases, c.Name+" "+c.Window.From.Sub(streamStart).String()+" "+c.Window.To.Sub(streamStart).String())
	}
	if diff := cmp.Diff([]string{"early 40s 1m0s", "late 1m20s 1m40s"}, cases); diff != "" {
		t.Errorf("cases (-want +got):\n%s", diff)
	}
	ids := make(map[trace.ID]bool)
	var moved trace.Trace
	last := trace.Nanos(0)
	for i := range w.traces {
		w.traces[i].move(&moved)
		if ids[moved.ID] {
			t.Errorf("trace %d has the ID of another", i)
		}
		ids[moved.ID] = true
		from, to := backtest.Extent(&moved)
		if from != w.traces[i].start || to != w.traces[i].end || to < last || to.Sub(from) != time.Second {
			t.Errorf("trace %d from %d to %d, want %d to %d, in order", i, from, to, w.traces[i].start, w.traces[i].end)
		}
		last = to
		inWindow := w.cases[0].Window.Contains(from) || w.cases[1].Window.Contains(from)
		original := w.traces[i].of.Spans[0].Start
		if of := s.Cases[0].Window.Contains(original) || s.Cases[1].Window.Contains(original); of != inWindow {
			t.Errorf("trace %d of %d begins at %d", i, original, from-streamStart)
		}
	}
	if len(ids) != 119 || w.clock.Sub(streamStart) != 2*time.Minute {
		t.Errorf("got %d traces in %v, want 119 in two minutes: a gap is two seconds long", len(ids), w.clock.Sub(streamStart))
	}
}

// When the healthy traces are used up, they begin anew.
func TestWeaveRepeats(t *testing.T) {
	w, err := everySecond(100).weave(Stream{Learn: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(w.traces); w.turn != 3 || n != 303 || w.clock.Sub(streamStart) != 5*time.Minute {
		t.Errorf("got %d traces in %d turns, ending at %v", n, w.turn, w.clock.Sub(streamStart))
	}
}

func TestNotice(t *testing.T) {
	c, err := config.Load(config.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	o := backtest.Options{Core: c.Config.Engine(), Assembly: c.Config.OpenTraces()}
	if _, err := everySecond(50).Notice(t.Context(), Stream{}, o); !errors.Is(err, ErrFewHealthy) {
		t.Errorf("got error %v, want ErrFewHealthy", err)
	}
	score, err := everySecond(500, windowOf("a", 40, 60)).Notice(t.Context(), Stream{Learn: 30 * time.Minute, Between: 6 * time.Minute}, o)
	if err != nil || len(score.Cases) != 1 || score.HealthyHours < 0.4 {
		t.Errorf("got %+v, %v", score, err)
	}
}
