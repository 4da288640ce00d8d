package report

import (
	"strings"
	"testing"

	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/internal/terminal"
)

// A number stays on the line of its unit, whether or not it is emphasized.
func TestWrapKeepsUnits(t *testing.T) {
	var s describe.Sentence
	s.Plain("Requests take ")
	s.Strong("171 % longer")
	s.Plain(" between 23:01 and 23:04; ")
	s.Strong("92 %")
	s.Plain(" of it is time in and from ")
	s.Strong("frontend")
	s.Plain(" (in it 76 %, from it 16 %).")
	for width := 60; width < 140; width++ {
		for line := range strings.Lines(wrap(terminal.Style{Width: width}, s, 2)) {
			line = strings.TrimSuffix(line, "\n")
			if terminal.Width(line) > width {
				t.Errorf("width %d: long line %q", width, line)
			}
			if strings.HasPrefix(strings.TrimSpace(line), "%") {
				t.Errorf("width %d: a line begins with a unit: %q", width, line)
			}
		}
	}
}
