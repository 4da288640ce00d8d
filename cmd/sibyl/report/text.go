package report

import (
	"strings"
	"unicode/utf8"
)

// Style is what a terminal can show.
type Style struct {
	Width  int // columns
	Colour bool
}

// Lengths of lines: below narrow nothing lines up, above wide lines are tiring to read.
const (
	narrow = 60
	wide   = 140
)

// roomy reports whether the columns that can be done without have room.
func (s Style) roomy() bool { return s.Width >= 100 }

// line returns the number of columns to fill.
func (s Style) line() int { return min(max(s.Width, narrow), wide) }

// The attributes of text that are used, as terminals number them.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	yellow = "33"
)

// paint returns text with an attribute.
func (s Style) paint(attribute, text string) string {
	if !s.Colour || text == "" {
		return text
	}
	return "\x1b[" + attribute + "m" + text + "\x1b[0m"
}

// wrap writes a sentence in lines of the style's width, each indented by n spaces.
func (s Style) wrap(text sentence, n int) string {
	var b strings.Builder
	column := 0
	for _, w := range words(text) {
		width := utf8.RuneCountInString(w.Text)
		switch {
		case column == 0:
			b.WriteString(strings.Repeat(" ", n))
			column = n
		case column+1+width > s.line():
			b.WriteString("\n" + strings.Repeat(" ", n))
			column = n
		case !w.glued:
			b.WriteByte(' ')
			column++
		}
		column += width
		if w.Strong {
			b.WriteString(s.paint(bold, w.Text))
		} else {
			b.WriteString(w.Text)
		}
	}
	b.WriteByte('\n')
	return b.String()
}

// word is a part of a sentence between spaces, or up to where emphasis changes.
type word struct {
	phrase

	glued bool // no space before it
}

func words(text sentence) []word {
	var all []word
	space := true
	for _, p := range text {
		glued := !space && !strings.HasPrefix(p.Text, " ")
		for _, w := range strings.Fields(p.Text) {
			all = append(all, word{phrase{w, p.Strong}, glued})
			glued = false
		}
		space = strings.HasSuffix(p.Text, " ")
	}
	return all
}

// padRight fills s up to width columns.
func padRight(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
}

// padLeft fills s from the left up to width columns.
func padLeft(s string, width int) string {
	return strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s))) + s
}

// shorten cuts the middle out of s where it has more than width columns: both ends of a path tell more.
func shorten(s string, width int) string {
	r := []rune(s)
	if len(r) <= width || width < 3 {
		return s
	}
	head := (width - 1) / 2
	tail := width - 1 - head
	return string(r[:head]) + "…" + string(r[len(r)-tail:])
}

// eighths are blocks of one to eight eighths of a column.
var eighths = []rune(" ▏▎▍▌▋▊▉█")

// bar draws the fraction f of width columns; nothing for what is not above 0.
func bar(f float64, width int) string {
	if !(f > 0) {
		return strings.Repeat(" ", width)
	}
	n := int(min(f, 1)*float64(width)*8 + 0.5)
	s := strings.Repeat("█", n/8)
	if n%8 != 0 {
		s += string(eighths[n%8])
	}
	return padRight(s, width)
}
