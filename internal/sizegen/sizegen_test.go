package sizegen_test

import (
	"slices"
	"testing"

	"github.com/sibyl-trace/sibyl/internal/sizegen"
)

func TestGenerateIsDeterministicAndAsOrdered(t *testing.T) {
	o := sizegen.Draw(3, 20)
	ts := sizegen.Generate(3, 20000, o)
	if !slices.Equal(ts, sizegen.Generate(3, 20000, o)) {
		t.Fatal("the same seed gave other transfers")
	}
	var counts [3]float64
	for _, tr := range ts {
		counts[tr.Class]++
		if tr.Size <= 0 || tr.Latency <= 0 || (tr.Latency >= o.Timeout) != (tr.Class == sizegen.TimedOut) {
			t.Fatalf("%+v", tr)
		}
	}
	for class, want := range map[sizegen.Class]float64{sizegen.Delayed: o.Delayed, sizegen.TimedOut: o.TimedOut} {
		if got := counts[class] / 20000; got < want*0.8 || got > want*1.2 {
			t.Errorf("class %d: %v, want %v", class, got, want)
		}
	}
}
