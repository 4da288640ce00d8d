package terminal

import (
	"fmt"
	"io"
	"time"

	"github.com/sibyl-trace/sibyl/internal/units"
)

// Progress is a line on a terminal that shows how much of something is done. Each time, it is drawn over the previous
// one.
type Progress struct {
	out   io.Writer
	what  string             // "reading"
	unit  func(int64) string // formats a number of steps
	began time.Time
	drawn time.Time // zero if it is not on the terminal
}

const (
	barWidth     = 30
	drawInterval = 100 * time.Millisecond
	leastElapsed = 2 * time.Second // elapsed time before which the time left is a guess
)

// NewProgress returns a Progress whose line begins with the text `what`, such as "reading". unit formats a number of
// steps. It draws nothing before Set.
func NewProgress(out io.Writer, what string, unit func(int64) string) *Progress {
	return &Progress{out: out, what: what, unit: unit, began: time.Now()}
}

// Set draws that done of total steps are finished, unless the line was drawn less than drawInterval ago. total is 0 if
// unknown.
func (p *Progress) Set(done, total int64) {
	now := time.Now()
	if now.Sub(p.drawn) < drawInterval {
		return
	}
	p.drawn = now
	line := p.what + " " + p.unit(done)
	if total > 0 {
		f := float64(done) / float64(total)
		line = fmt.Sprintf("%s %s %s of %s", p.what, Bar(f, barWidth), p.unit(done), p.unit(total))
		if elapsed := now.Sub(p.began); done > 0 && elapsed >= leastElapsed {
			line += ", " + units.Left(time.Duration(float64(elapsed)*(1-f)/f)) + " left"
		}
	}
	p.write(line)
}

// Clear removes the line. The next Set draws it again.
func (p *Progress) Clear() {
	if !p.drawn.IsZero() {
		p.drawn = time.Time{}
		p.write("")
	}
}

// write replaces the line. It ignores errors, because work goes on even if its progress cannot be drawn.
func (p *Progress) write(line string) { _, _ = io.WriteString(p.out, "\r"+eraseLine+line) }

// eraseLine is the sequence that erases from the cursor to the end of the line.
const eraseLine = "\x1b[K"
