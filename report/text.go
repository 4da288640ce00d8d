package report

import (
	"strings"

	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/internal/terminal"
)

// wrap returns text in lines of the style's width, each indented by n spaces. It keeps a number on the same line as the
// next word.
func wrap(s terminal.Style, text describe.Sentence, n int) string {
	var b strings.Builder
	column := 0
	words := split(text)
	for i, w := range words {
		switch {
		case column == 0:
			b.WriteString(strings.Repeat(" ", n))
			column = n
		case w.glued:
		case !w.kept && column+1+unbroken(words[i:]) > s.Line():
			b.WriteString("\n" + strings.Repeat(" ", n))
			column = n
		default:
			b.WriteByte(' ')
			column++
		}
		column += terminal.Width(w.Text)
		if w.Strong {
			b.WriteString(s.Paint(terminal.Bold, w.Text))
		} else {
			b.WriteString(w.Text)
		}
	}
	b.WriteByte('\n')
	return b.String()
}

// unbroken returns the width of words[0] and the following words that must stay on the same line. words must not be
// empty.
func unbroken(words []word) int {
	width := terminal.Width(words[0].Text)
	for _, w := range words[1:] {
		switch {
		case w.kept:
			width++
		case !w.glued:
			return width
		}
		width += terminal.Width(w.Text)
	}
	return width
}

// word is a part of a sentence between spaces or changes of emphasis.
type word struct {
	describe.Phrase

	glued bool // no space before it
	kept  bool // a space but no line break before it
}

func split(text describe.Sentence) []word {
	var all []word
	space, last := true, ""
	for _, p := range text {
		glued := !space && !strings.HasPrefix(p.Text, " ")
		for w := range strings.FieldsSeq(p.Text) {
			all = append(all,
				word{describe.Phrase{Text: w, Strong: p.Strong}, glued, !glued && terminal.Together(last, w)})
			glued, last = false, w
		}
		space = strings.HasSuffix(p.Text, " ")
	}
	return all
}
