package benchreport

import (
	"bytes"
	"fmt"
	"io"

	"github.com/sibyl-trace/sibyl/bench/svg"
)

// plot is a chart of horizontal bars: each row has a bar for each series.
type plot struct {
	title  string
	series []string
	rows   []row
}

type row struct {
	label  string
	values []fraction
}

// fraction is a value from 0 to 1 with its interval, which is not drawn if empty.
type fraction struct{ value, low, high float64 }

func fractions(values ...float64) []fraction {
	f := make([]fraction, 0, len(values))
	for _, v := range values {
		f = append(f, fraction{value: v})
	}
	return f
}

// Sizes in pixels.
const (
	barHeight  = 9
	rowGap     = 9
	scaleWidth = 400
	margin     = 12
	headHeight = 56
	footHeight = 24
)

// colours of the series, from dark to light, to be distinguishable without colour vision.
var colours = [...]string{"#1b3a5b", "#3f7fb5", "#a9cce3"}

// write writes the plot as SVG.
func (p *plot) write(w io.Writer) error {
	left := 0
	for _, r := range p.rows {
		left = max(left, svg.TextWidth(r.label))
	}
	left += 2 * margin
	height := headHeight + footHeight
	for _, r := range p.rows {
		height += len(r.values)*barHeight + rowGap
	}
	width := max(left+scaleWidth, 2*margin+svg.TextWidth(p.title)) + 4*margin
	var out bytes.Buffer
	svg.Start(&out, width, height, `font-family="sans-serif" font-size="12"`, p.title)
	fmt.Fprintf(&out, `<rect width="100%%" height="100%%" fill="#fff"/>`+"\n")
	svg.Text(&out, "", "start", margin, 20, p.title)
	for i, name := range p.series {
		x := left + i*scaleWidth/len(p.series)
		fmt.Fprintf(&out, `<rect x="%d" y="32" width="10" height="10" fill="%s"/>`+"\n", x, colours[i%len(colours)])
		svg.Text(&out, "", "start", x+14, 41, name)
	}
	p.scale(&out, left, height)
	p.bars(&out, left)
	svg.End(&out)
	_, err := w.Write(out.Bytes())
	return err
}

// scale draws a line at each quarter.
func (p *plot) scale(out *bytes.Buffer, left, height int) {
	for i := range 5 {
		x := left + i*scaleWidth/4
		fmt.Fprintf(out, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#ddd"/>`+"\n", x, headHeight-6, x,
			height-footHeight)
		svg.Text(out, "", "middle", x, height-8, fmt.Sprintf("%d %%", 25*i))
	}
}

func (p *plot) bars(out *bytes.Buffer, left int) {
	y := headHeight
	for _, r := range p.rows {
		svg.Text(out, "", "end", left-8, y+len(r.values)*barHeight/2+4, r.label)
		for i, f := range r.values {
			fmt.Fprintf(out, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", left, y,
				f.value*scaleWidth, barHeight-1, colours[i%len(colours)])
			if f.low < f.high {
				fmt.Fprintf(out, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#b30"/>`+"\n",
					float64(left)+f.low*scaleWidth, y+barHeight/2, float64(left)+f.high*scaleWidth, y+barHeight/2)
			}
			y += barHeight
		}
		y += rowGap
	}
}
