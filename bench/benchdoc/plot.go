package main

import (
	"bytes"
	"fmt"
	"math"

	"github.com/sibyl-trace/sibyl/bench/svg"
)

// panel is a chart of one figure, with a row for each name.
type panel struct {
	title  string  // with the unit
	top    float64 // the axis ends here or higher
	bars   bool    // draw bars from zero instead of points
	values []interval
}

// interval is a figure with its bounds. A NaN figure is not drawn.
type interval struct{ value, low, high float64 }

// exactly returns an interval without width.
func exactly(x float64) interval { return interval{x, x, x} }

// Sizes in pixels.
const (
	rowHeight  = 22
	panelWidth = 250
	panelGap   = 30
	edge       = 16
	headHeight = 64
	footHeight = 28
)

// style has colours for light and dark pages. The plot paints its own background, so that it is legible on any page.
const style = `<style>
svg { font: 12px sans-serif }
.ground { fill: #ffffff } text { fill: #1f2328 } .head { font-weight: bold } .soft { fill: #59636e }
.grid { stroke: #d1d9e0 } .mark { fill: #0a6ebd } .whisker { stroke: #0a6ebd; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
.ground { fill: #0d1117 } text { fill: #f0f6fc } .soft { fill: #9198a1 }
.grid { stroke: #3d444d } .mark { fill: #58a6ff } .whisker { stroke: #58a6ff }
}
</style>
`

// plot returns an SVG with panels side by side and the names of the rows on the left.
func plot(title string, names []string, panels ...panel) []byte {
	left := 0
	for _, name := range names {
		left = max(left, svg.TextWidth(name))
	}
	left += 2 * edge
	width, height := left+len(panels)*(panelWidth+panelGap), headHeight+len(names)*rowHeight+footHeight
	var out bytes.Buffer
	svg.Start(&out, width, height, `role="img"`, title)
	out.WriteString(style)
	fmt.Fprintln(&out, `<rect class="ground" width="100%" height="100%"/>`)
	svg.Text(&out, "head", "start", edge, 22, title)
	for i, name := range names {
		svg.Text(&out, "row", "end", left-10, rowAt(i)+4, name)
	}
	for i := range panels {
		panels[i].draw(&out, left+i*(panelWidth+panelGap), height)
	}
	svg.End(&out)
	return out.Bytes()
}

// rowAt returns the middle of row i.
func rowAt(i int) int { return headHeight + i*rowHeight + rowHeight/2 }

// draw draws the panel with its left edge at x.
func (p *panel) draw(out *bytes.Buffer, x, height int) {
	top := p.top
	for _, v := range p.values {
		if x := max(v.value, v.high); x > top { // false for NaN
			top = x
		}
	}
	if top == 0 {
		top = 1
	}
	step := stepOf(top)
	top = step * math.Ceil(top/step)
	at := func(v float64) float64 { return float64(x) + v/top*panelWidth }
	svg.Text(out, "soft", "start", x, headHeight-14, p.title)
	for tick := 0.0; tick <= top+step/2; tick += step {
		fmt.Fprintf(out, `<line class="grid" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`+"\n", at(tick), headHeight-6,
			at(tick), height-footHeight+4)
		svg.Text(out, "soft", "middle", int(math.Round(at(tick))), height-8, fmt.Sprintf("%g", tick))
	}
	for i, v := range p.values {
		if math.IsNaN(v.value) {
			continue
		}
		if v.low < v.high {
			fmt.Fprintf(out, `<line class="whisker" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`+"\n", at(v.low), rowAt(i),
				at(v.high), rowAt(i))
		}
		if p.bars {
			fmt.Fprintf(out, `<rect class="mark" x="%d" y="%d" width="%.1f" height="%d"/>`+"\n", x, rowAt(i)-6,
				at(v.value)-float64(x), 12)
		} else {
			fmt.Fprintf(out, `<circle class="mark" cx="%.1f" cy="%d" r="5"/>`+"\n", at(v.value), rowAt(i))
		}
	}
}

// stepOf returns a step of 1, 2 or 5 times a power of ten that divides an axis from 0 to top into two to five parts.
func stepOf(top float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(top/5)))
	for _, factor := range []float64{1, 2, 5} {
		if top/(factor*power) <= 5 {
			return factor * power
		}
	}
	return 10 * power
}
