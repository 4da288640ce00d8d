package recorded

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/trace"
)

const second = trace.Nanos(1e9)

// everySecond returns a set with a trace of one second every second, except between 100 s and 200 s.
func everySecond(until trace.Nanos, cases ...Case) *Set {
	s := &Set{Cases: cases, Table: &trace.Table{}}
	for at := range until {
		if at < 100 || at >= 200 {
			span := trace.Span{ID: 1, Start: at * second, End: (at + 1) * second}
			id := trace.ID{byte(at >> 8), byte(at), 15: 1}
			s.all = append(s.all, &trace.Trace{ID: id, Spans: []trace.Span{span}})
		}
	}
	return s
}

func windowOf(name string, from, to trace.Nanos) Case {
	return Case{
		Name: name, Window: history.Interval{From: from * second, To: to * second},
		Target: Target{Service: "a"},
	}
}

// A stream starts with healthy traces without gaps, which also follow each window, and are repeated with other IDs.
func TestWeave(t *testing.T) {
	s := everySecond(300, windowOf("late", 240, 260), windowOf("early", 20, 40), windowOf("empty", 120, 140))
	w, err := s.weave(Stream{Learn: 40 * time.Second, Between: 20 * time.Second},
		[][]Case{s.Cases[1:2], s.Cases[2:], s.Cases[:1]})
	if err != nil {
		t.Fatal(err)
	}
	var cases []string
	for _, c := range w.cases {
		cases = append(cases,
			c.Name+" "+c.Window.From.Sub(streamStart).String()+" "+c.Window.To.Sub(streamStart).String())
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
		t.Errorf("got %d traces in %v, want 119 in two minutes: a gap is two seconds long",
			len(ids), w.clock.Sub(streamStart))
	}
}

// The windows of two cases are laid over each other, and the same traces have other IDs in another window.
func TestWeavePairs(t *testing.T) {
	s := everySecond(300, windowOf("a", 20, 40), windowOf("b", 240, 270))
	w, err := s.weave(Stream{Between: 10 * time.Second}, [][]Case{s.Cases, s.Cases})
	if err != nil {
		t.Fatal(err)
	}
	ids := make(map[trace.ID]bool)
	var moved trace.Trace
	for i := range w.traces {
		w.traces[i].move(&moved)
		ids[moved.ID] = true
	}
	var from, to []time.Duration
	for _, c := range w.cases {
		from, to = append(from, c.Window.From.Sub(streamStart)), append(to, c.Window.To.Sub(streamStart))
	}
	if diff := cmp.Diff([]time.Duration{0, 0, 40 * time.Second, 40 * time.Second}, from); diff != "" {
		t.Errorf("windows begin (-want +got):\n%s", diff)
	}
	diff := cmp.Diff([]time.Duration{20 * time.Second, 30 * time.Second, 60 * time.Second, 70 * time.Second}, to)
	if diff != "" {
		t.Errorf("windows end (-want +got):\n%s", diff)
	}
	if len(ids) != 120 || len(w.traces) != 120 {
		t.Errorf("got %d traces with %d IDs, want 120: 50 in each window, and 10 after each", len(w.traces), len(ids))
	}
}

// Pairs consist of cases that were noticed alone, of different services. Both count only if each has its own incident.
func TestPairs(t *testing.T) {
	s := &Set{Cases: []Case{windowOf("a", 1, 2), windowOf("b", 3, 4), windowOf("c", 5, 6), windowOf("d", 7, 8)}}
	s.Cases[1].Target.Service, s.Cases[2].Target.Service = "b", "c"
	found := func(name string, incident uint64) backtest.Case {
		return backtest.Case{Name: name, RankService: new(1), Incident: incident}
	}
	pairs := s.pairs(&backtest.Score{Cases: []backtest.Case{found("a", 1), found("b", 2), {Name: "c"}, found("d", 3)}},
		10, 1)
	if len(pairs) != 2 || len(s.pairs(&backtest.Score{}, 10, 1)) != 0 {
		t.Errorf("got pairs %v, want b with a, and b with d", pairs)
	}
	for _, p := range pairs {
		if len(p) != 2 || p[0].Target.Service == p[1].Target.Service || p[0].Name == "c" || p[1].Name == "c" {
			t.Errorf("got the pair %v", p)
		}
	}
	got := pairsOf(&backtest.Score{
		Cases: []backtest.Case{found("a", 1), found("b", 2), found("a", 3), found("b", 3), {}, {}, found("a", 4), {}},
		False: make([]uint64, 5),
	})
	if diff := cmp.Diff(&Pairs{Pairs: 4, Both: 0.25, One: 0.75, FalseIncidents: 5}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// When the healthy traces are used up, they start again.
func TestWeaveRepeats(t *testing.T) {
	w, err := everySecond(100).weave(Stream{Learn: 5 * time.Minute}, nil)
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
	score, err := everySecond(500, windowOf("a", 40, 60)).Notice(t.Context(),
		Stream{Learn: 30 * time.Minute, Between: 6 * time.Minute}, o)
	if err != nil || len(score.Cases) != 1 || score.HealthyHours < 0.4 {
		t.Errorf("got %+v, %v", score, err)
	}
}
