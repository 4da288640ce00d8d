package api

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/trace"
)

// crowded returns a harness with the given number of groups in its core and the given number of problems in its
// snapshot.
func crowded(b *testing.B, groups, problems int) *harness {
	b.Helper()
	w := newHarness(b)
	table := w.core.View().Table
	kinds := int(math.Sqrt(float64(groups)))
	for i := range groups - kinds {
		op := table.Op(table.Symbol("service"), table.Symbol(fmt.Sprintf("GET /%d", i%kinds)), trace.Server)
		ctx := trace.Context(0).Child(op)
		var o observation.Observation
		o.Trace[0], o.Trace[8], o.Trace[9], o.Trace[10] = byte(i), 1, byte(i>>8), byte(i>>16)
		o.Entry, o.Start = op, begin.Add(time.Second)
		o.Duration, o.Skeleton = time.Duration(i+1)*time.Microsecond, analysis.HashOf(uint64(i))
		edge := observation.EdgeTime{Edge: trace.EdgeOf(ctx, 0, 0), Context: ctx, Nanos: o.Duration.Nanoseconds()}
		o.Edges = append(o.Edges, edge)
		w.core.Observe(&o, nil)
	}
	w.end(begin.Add(10 * time.Second))
	err := w.reader.Ask(b.Context(), func(c *engine.View) {
		s := w.reader.Refresh(c)
		if len(s.Groups) < groups*9/10 {
			b.Fatalf("got %d groups, want about %d", len(s.Groups), groups)
		}
		for i := range problems {
			id := analysis.HashOf(uint64(i), 7)
			s.ByID[id.String()] = i
			s.IDs = append(s.IDs, id)
			s.Problems = append(s.Problems, contract.Problem{
				ID:    id.String(),
				Rank:  i + 1,
				Kind:  contract.KindSlow,
				Onset: contract.OnsetChanged,
				Level: contract.LevelGroup,
				State: contract.StateNone,
				Diagnosis: "service GET /1 takes 75.8 ms on average, " +
					"1.1× the expected 66.3 ms; 99 % of the slowdown is in service GET /1.",
				DiagnosisParts: []contract.Phrase{},
				Impact:         new(float64(i * 7919 % 5000)),
			})
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	return w
}

// BenchmarkLists measures lists of 5,000 problems and 100,000 groups, and building the snapshot of these groups. It
// also reports the 99th percentile of the time per answer.
func BenchmarkLists(b *testing.B) {
	w := crowded(b, 100_000, 5000)
	for _, path := range []string{
		"/api/v1/problems", "/api/v1/problems?sort=impact&q=75.8&limit=1000", "/api/v1/groups?limit=1000",
		"/api/v1/groups?sort=mean&q=nothing",
	} {
		b.Run(path, func(b *testing.B) {
			b.ReportAllocs()
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				if out := w.callUnchecked(http.MethodGet, path); out.Code != http.StatusOK {
					b.Fatal(out.Body)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
	b.Run("snapshot", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			epoch.NewReader(w).Refresh(w.core.View())
		}
	})
}
