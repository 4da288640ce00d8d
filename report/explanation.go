package report

import (
	"encoding/json"
	"io"
	"strconv"

	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// ExplanationJSON writes x as a JSON object on one line. Times are in nanoseconds. Unknown values are null.
func ExplanationJSON(w io.Writer, x *describe.TraceExplanation) error {
	return json.NewEncoder(w).Encode(x)
}

// shownCalls is the maximum number of suspects in the text.
const shownCalls = 10

// ExplanationText writes x for a terminal: its sentence, then the first suspects by rank.
func ExplanationText(w io.Writer, x *describe.TraceExplanation, style terminal.Style) error {
	t := table{style: style}
	t.printf("%s\n%s", style.Paint(terminal.Bold, "trace "+x.TraceID), wrap(style, x.Sentence(), 0))
	if len(x.Suspects) > 0 {
		t.calls(x)
	}
	_, err := io.WriteString(w, t.out.String())
	return err
}

// calls writes the table of the suspects in x.
func (t *table) calls(x *describe.TraceExplanation) {
	const column = 10
	head := terminal.PadLeft("excess", rankWidth+column) + "  " + terminal.PadRight("reason", column) + "suspect"
	t.printf("%s\n", t.style.Paint(terminal.Dim, head))
	for i := range x.Suspects[:min(shownCalls, len(x.Suspects))] {
		s := &x.Suspects[i]
		excess := "·"
		if s.ExcessNS > 0 {
			excess = units.Nanos(float64(s.ExcessNS))
		}
		name := s.Phrase()
		if s.Calls > 1 {
			name += ", " + units.Plural(s.Calls, "call")
		}
		t.printf("%s%s  %s%s\n", terminal.PadLeft(strconv.Itoa(i+1), rankWidth), terminal.PadLeft(excess, column),
			terminal.PadRight(string(s.Reason), column), terminal.Shorten(name, t.style.Line()-rankWidth-2*column-2))
	}
	if left := len(x.Suspects) - shownCalls; left > 0 {
		more := "… and " + units.Plural(left, "more suspect") + " (-o json shows all)"
		t.printf("%s\n", t.style.Paint(terminal.Dim, more))
	}
}
