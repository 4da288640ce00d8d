package postmortem

import (
	"strconv"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/internal/units"
)

// chart is a line chart of a request type's mean and p99 over time, in the coordinates of an SVG image of chartWidth by
// chartHeight.
type chart struct {
	label     string
	mean, p99 []string // points of each line; lines are interrupted where there were no requests
	ticks     []mark   // on the time axis
	levels    []mark   // on the duration axis
	marks     []mark   // events of the incident
}

// mark is a text at the coordinate `at` on an axis.
type mark struct {
	at   float64
	text string
}

const (
	chartWidth, chartHeight = 900.0, 200.0
	chartTicks              = 6
	chartLevels             = 4
)

// newChart returns a chart of r.Latency, or nil if there is nothing to draw.
func newChart(r *Report) *chart {
	if len(r.Latency) == 0 {
		return nil
	}
	from, to := r.Latency[0].From, r.Latency[len(r.Latency)-1].To
	highest := 0.
	for _, w := range r.Latency {
		for _, v := range []*float64{w.MeanNs, w.P99Ns} {
			if v != nil {
				highest = max(highest, *v)
			}
		}
	}
	if highest == 0 || !to.After(from) {
		return nil
	}
	x := func(t time.Time) float64 { return chartWidth * float64(t.Sub(from)) / float64(to.Sub(from)) }
	y := func(ns float64) float64 { return chartHeight * (1 - ns/highest) }
	c := &chart{
		label: "Mean and p99 of durations from " + clock(from) + " to " + clock(to) + ", at most " +
			units.Nanos(highest),
	}
	var mean, p99 polyline
	for i, w := range r.Latency {
		if i > 0 && w.From.After(r.Latency[i-1].To) {
			mean.add(0, nil, y)
			p99.add(0, nil, y)
		}
		middle := x(w.From.Add(w.To.Sub(w.From) / 2))
		mean.add(middle, w.MeanNs, y)
		p99.add(middle, w.P99Ns, y)
	}
	c.mean, c.p99 = mean.done(), p99.done()
	for i := range chartTicks {
		t := from.Add(to.Sub(from) * time.Duration(i) / (chartTicks - 1))
		c.ticks = append(c.ticks, mark{x(t), t.UTC().Format("15:04")})
	}
	for i := 1; i <= chartLevels; i++ {
		ns := highest * float64(i) / chartLevels
		c.levels = append(c.levels, mark{y(ns), units.Nanos(ns)})
	}
	incident := &r.Detail.Incident
	if !incident.Onset.Before(from) {
		c.marks = []mark{{x(incident.Onset), "onset"}}
	}
	if incident.Closed != nil && incident.Closed.Before(to) {
		c.marks = append(c.marks, mark{x(*incident.Closed), "closed"})
	}
	return c
}

// polyline collects points into lines.
type polyline struct {
	lines  []string
	points []string
}

// add adds the point (x, y(*ns)) to the current line. If ns is nil, it ends the line.
func (p *polyline) add(x float64, ns *float64, y func(float64) float64) {
	if ns == nil {
		p.lines, p.points = p.done(), nil
		return
	}
	p.points = append(p.points, fixed(x)+","+fixed(y(*ns)))
}

func (p *polyline) done() []string {
	switch len(p.points) {
	case 0:
		return p.lines
	case 1: // round line ends make it a dot
		p.points = append(p.points, p.points[0])
	}
	return append(p.lines, strings.Join(p.points, " "))
}

func fixed(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
