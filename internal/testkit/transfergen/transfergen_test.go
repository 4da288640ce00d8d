package transfergen_test

import (
	"slices"
	"testing"

	"github.com/sibyl-trace/sibyl/internal/testkit/transfergen"
)

// TestGenerate checks that equal seeds give equal transfers, with the configured fractions of each class.
func TestGenerate(t *testing.T) {
	o := transfergen.Draw(3, 20)
	ts := transfergen.Generate(3, 20000, o)
	if !slices.Equal(ts, transfergen.Generate(3, 20000, o)) {
		t.Fatal("two calls with the same seed differ")
	}
	var counts [3]float64
	for _, tr := range ts {
		counts[tr.Class]++
		if tr.Size <= 0 || tr.Latency <= 0 || (tr.Latency >= o.Timeout) != (tr.Class == transfergen.TimedOut) {
			t.Fatalf("%+v does not fit its class", tr)
		}
	}
	for class, want := range map[transfergen.Class]float64{
		transfergen.Delayed: o.Delayed, transfergen.TimedOut: o.TimedOut,
	} {
		if got := counts[class] / 20000; got < want*0.8 || got > want*1.2 {
			t.Errorf("fraction of class %d: %v, want about %v", class, got, want)
		}
	}
}

func TestConfusion(t *testing.T) {
	transfers := []transfergen.Transfer{
		{Size: 1, Latency: 1},
		{Size: 1, Latency: 9},
		{Size: 2, Latency: 9, Class: transfergen.Delayed},
		{Size: 3, Class: transfergen.TimedOut},
	}
	c := transfergen.Classify(transfers, func(size, latency float64) transfergen.Class {
		if size == 3 {
			return transfergen.TimedOut
		}
		return transfergen.Class(latency / 9)
	})
	c.Add(c)
	if c.Accuracy() != 0.75 || c.Precision(transfergen.Delayed) != 0.5 || c.Recall(transfergen.Delayed) != 1 ||
		c.Recall(transfergen.Normal) != 0.5 {
		t.Errorf("%v: accuracy %v, precision %v, recall %v",
			c, c.Accuracy(), c.Precision(transfergen.Delayed), c.Recall(transfergen.Delayed))
	}
}
