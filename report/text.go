package report

import (
	"strings"

	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/internal/terminal"
)

// wrap writes a sentence in lines of the style's width, each indented by n spaces.
func wrap(s terminal.Style, text describe.Sentence, n int) string {
	var b strings.Builder
	column := 0
	for _, w := range split(text) {
		width := terminal.Width(w.Text)
		switch {
		case column == 0:
			b.WriteString(strings.Repeat(" ", n))
			column = n
		case column+1+width > s.Line():
			b.WriteString("\n" + strings.Repeat(" ", n))
			column = n
		case !w.glued:
			b.WriteByte(' ')
			column++
		}
		column += width
		if w.Strong {
			b.WriteString(s.Paint(terminal.Bold, w.Text))
		} else {
			b.WriteString(w.Text)
		}
	}
	b.WriteByte('\n')
	return b.String()
}

// word is a part of a sentence, delimited by spaces and changes of emphasis.
type word struct {
	describe.Phrase

	glued bool // no space before it
}

func split(text describe.Sentence) []word {
	var all []word
	space := true
	for _, p := range text {
		glued := !space && !strings.HasPrefix(p.Text, " ")
		for w := range strings.FieldsSeq(p.Text) {
			all = append(all, word{describe.Phrase{Text: w, Strong: p.Strong}, glued})
			glued = false
		}
		space = strings.HasSuffix(p.Text, " ")
	}
	return all
}
