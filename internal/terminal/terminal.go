// Package terminal knows what a terminal can show, and lays out text for it.
package terminal

import (
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
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

// Roomy reports whether the columns that can be done without have room.
func (s Style) Roomy() bool { return s.Width >= 100 }

// Line returns the number of columns to fill.
func (s Style) Line() int { return min(max(s.Width, narrow), wide) }

// The attributes of text that are used, as terminals number them.
const (
	Bold   = "1"
	Dim    = "2"
	Red    = "31"
	Yellow = "33"
)

// Paint returns text with an attribute.
func (s Style) Paint(attribute, text string) string {
	if !s.Colour || text == "" {
		return text
	}
	return "\x1b[" + attribute + "m" + text + "\x1b[0m"
}

// PadRight fills s up to width columns.
func PadRight(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
}

// PadLeft fills s from the left up to width columns.
func PadLeft(s string, width int) string {
	return strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s))) + s
}

// Shorten cuts the middle out of s where it has more than width columns: both ends of a path tell more.
func Shorten(s string, width int) string {
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

// Bar draws the fraction f of width columns; nothing for what is not above 0.
func Bar(f float64, width int) string {
	if !(f > 0) {
		return strings.Repeat(" ", width)
	}
	n := int(min(f, 1)*float64(width)*8 + 0.5)
	s := strings.Repeat("█", n/8)
	if n%8 != 0 {
		s += string(eighths[n%8])
	}
	return PadRight(s, width)
}

// Printable replaces what could move a terminal's cursor, or break a line, by a dot.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '·'
		}
		return r
	}, s)
}

// Of returns what the terminal behind w can show. What is no terminal gets lines of a fixed width without colours; the
// environment's COLUMNS, NO_COLOR and TERM=dumb are heeded.
func Of(w io.Writer, getenv func(string) string) Style {
	s := Style{Width: defaultWidth}
	if n, err := strconv.Atoi(getenv("COLUMNS")); err == nil && n > 0 {
		s.Width = n
	}
	if !Is(w) {
		return s
	}
	if f, ok := w.(*os.File); ok && getenv("COLUMNS") == "" {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			s.Width = n
		}
	}
	s.Colour = getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
	return s
}

// defaultWidth is what files and pipes get: wide enough for all columns.
const defaultWidth = 120

// Is reports whether w is a terminal.
func Is(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Wrap writes text in lines of the style's width, each indented by n spaces, the last one with its end.
func (s Style) Wrap(text string, n int) string {
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		width := utf8.RuneCountInString(word)
		switch {
		case column == 0:
			b.WriteString(strings.Repeat(" ", n))
			column = n
		case column+1+width > s.Line():
			b.WriteString("\n" + strings.Repeat(" ", n))
			column = n
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += width
	}
	return b.String() + "\n"
}
