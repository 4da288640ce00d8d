package benchreport

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// plot is a chart of horizontal bars: rows, each with a bar for every series.
type plot struct {
	title  string
	series []string
	rows   []row
}

type row struct {
	label  string
	values []fraction
}

// fraction is a value from 0 to 1, with its interval where that is not empty.
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
	charWidth  = 7 // of the font, about
	margin     = 12
	headHeight = 56
	footHeight = 24
)

// colours of the series, also told apart by people who see no colours: each is darker than the next.
var colours = [...]string{"#1b3a5b", "#3f7fb5", "#a9cce3"}

// write writes the plot as SVG. It needs nothing from elsewhere, neither fonts nor scripts.
func (p *plot) write(w io.Writer) error {
	left := 0
	for _, r := range p.rows {
		left = max(left, utf8.RuneCountInString(r.label)*charWidth)
	}
	left += 2 * margin
	height := headHeight + footHeight
	for _, r := range p.rows {
		height += len(r.values)*barHeight + rowGap
	}
	width := max(left+scaleWidth, 2*margin+utf8.RuneCountInString(p.title)*charWidth) + 4*margin
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n",
		width, height, width, height)
	fmt.Fprintf(&out, `<title>%s</title>`+"\n", escape(p.title))
	fmt.Fprintf(&out, `<rect width="100%%" height="100%%" fill="#fff"/>`+"\n")
	text(&out, margin, 20, "start", p.title)
	for i, name := range p.series {
		x := left + i*scaleWidth/len(p.series)
		fmt.Fprintf(&out, `<rect x="%d" y="32" width="10" height="10" fill="%s"/>`+"\n", x, colours[i%len(colours)])
		text(&out, x+14, 41, "start", name)
	}
	p.scale(&out, left, height)
	p.bars(&out, left)
	out.WriteString("</svg>\n")
	_, err := io.WriteString(w, out.String())
	return err
}

// scale draws lines at quarters.
func (p *plot) scale(out *strings.Builder, left, height int) {
	for i := range 5 {
		x := left + i*scaleWidth/4
		fmt.Fprintf(out, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#ddd"/>`+"\n", x, headHeight-6, x, height-footHeight)
		text(out, x, height-8, "middle", fmt.Sprintf("%d %%", 25*i))
	}
}

func (p *plot) bars(out *strings.Builder, left int) {
	y := headHeight
	for _, r := range p.rows {
		text(out, left-8, y+len(r.values)*barHeight/2+4, "end", r.label)
		for i, f := range r.values {
			fmt.Fprintf(out, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", left, y, f.value*scaleWidth, barHeight-1, colours[i%len(colours)])
			if f.low < f.high {
				fmt.Fprintf(out, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#b30"/>`+"\n",
					float64(left)+f.low*scaleWidth, y+barHeight/2, float64(left)+f.high*scaleWidth, y+barHeight/2)
			}
			y += barHeight
		}
		y += rowGap
	}
}

func text(out *strings.Builder, x, y int, anchor, s string) {
	fmt.Fprintf(out, `<text x="%d" y="%d" text-anchor="%s">%s</text>`+"\n", x, y, anchor, escape(s))
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder takes everything
	return b.String()
}
