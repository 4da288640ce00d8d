package report

import (
	"math"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// Size of a histogram in drawing units.
const (
	plotWidth  = 600
	plotHeight = 110
	plotBars   = 60
)

// histogram is a drawing of durations over a logarithmic axis. X grows to the right and Y down, from 0.
type histogram struct {
	Bars  []bin
	Ticks []tick
	Marks []tick // p50 and p99
	Most  string // number of requests in the highest bar
	Label string // description of the histogram
}

type bin struct {
	X, Y, Width, Height float64
	Range, Count        string
}

type tick struct {
	X      float64
	Text   string
	Anchor string // start, middle or end
}

// newHistogram returns a histogram of s.Latency. The result is empty if s.Latency is empty.
func newHistogram(s *group.Summary) histogram {
	if len(s.Latency) == 0 {
		return histogram{}
	}
	a := newAxis(s.Latency[0].Low, s.Latency[len(s.Latency)-1].High)
	counts := make([]uint64, plotBars)
	for _, b := range s.Latency {
		middle := math.Sqrt(float64(max(b.Low, 1)) * float64(max(b.High, 1)))
		counts[min(int(a.at(middle)/plotWidth*plotBars), plotBars-1)] += b.Count
	}
	hist := histogram{Ticks: a.ticks(), Label: "Histogram of the durations: " + units.Plural(int(s.Count), "request") +
		", median " + units.Duration(s.P50) + ", p99 " + units.Duration(s.P99)}
	hist.bars(a, counts)
	hist.mark(a, "p50", s.P50)
	hist.mark(a, "p99", s.P99)
	return hist
}

func (hist *histogram) bars(a axis, counts []uint64) {
	most := uint64(1)
	for _, n := range counts {
		most = max(most, n)
	}
	hist.Most = units.Plural(int(most), "request")
	const width = float64(plotWidth) / plotBars
	for i, n := range counts {
		if n == 0 {
			continue
		}
		height := max(float64(n)/float64(most)*plotHeight, 1.5) // a single slow request must be visible
		x := float64(i) * width
		hist.Bars = append(hist.Bars, bin{
			X:      round(x),
			Y:      round(plotHeight - height),
			Width:  width - 1,
			Height: round(height),
			Range:  units.Nanos(a.value(x)) + " to " + units.Nanos(a.value(x+width)),
			Count:  units.Plural(int(n), "request"),
		})
	}
}

func (hist *histogram) mark(a axis, name string, d time.Duration) {
	if d <= 0 {
		return
	}
	t := tick{X: round(a.at(float64(d))), Text: name + " " + units.Duration(d), Anchor: "start"}
	if t.X > plotWidth*3/4 {
		t.Anchor = "end"
	}
	if len(hist.Marks) > 0 && t.X-hist.Marks[0].X < 90 && hist.Marks[0].Anchor == t.Anchor { // they would overlap
		hist.Marks[0].Anchor, t.Anchor = "end", "start"
	}
	hist.Marks = append(hist.Marks, t)
}

// axis is a logarithmic axis of durations.
type axis struct{ low, high float64 } // logarithms

func newAxis(low, high time.Duration) axis {
	a := axis{math.Log(float64(max(low, 1))), math.Log(float64(max(high, 1)))}
	if a.high-a.low < 0.1 { // durations are nearly equal: show them in the middle
		a.low, a.high = a.low-0.5, a.high+0.5
	}
	return a
}

// at returns the position of the duration ns, limited to [0, plotWidth].
func (a axis) at(ns float64) float64 {
	x := (math.Log(max(ns, 1)) - a.low) / (a.high - a.low)
	return min(max(x, 0), 1) * plotWidth
}

// value returns the duration in nanoseconds at position x.
func (a axis) value(x float64) float64 { return math.Exp(a.low + x/plotWidth*(a.high-a.low)) }

// ticks returns ticks at round durations: 1, 2 and 5 times powers of ten, or only powers of ten on a long axis.
func (a axis) ticks() []tick {
	steps := []float64{1, 2, 5}
	if a.high-a.low > math.Log(500) {
		steps = []float64{1}
	}
	var all []tick
	for decade := math.Pow(10, math.Floor(a.low/math.Ln10)); decade <= math.Exp(a.high); decade *= 10 {
		for _, s := range steps {
			if ns := decade * s; math.Log(ns) >= a.low && math.Log(ns) <= a.high {
				all = append(all, tick{X: round(a.at(ns)), Text: units.Nanos(ns), Anchor: "middle"})
			}
		}
	}
	return all
}

func pathText(path []string) string { return strings.Join(path, " › ") }
