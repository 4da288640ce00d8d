// Package terminal lays out text for terminals and determines their width and colours.
package terminal

import (
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/term"
)

// Style describes a terminal.
type Style struct {
	Width  int // columns
	Colour bool
}

// Limits on the line length. Below narrow, columns do not line up; above wide, lines are tiring to read.
const (
	narrow = 60
	wide   = 140
)

// Roomy reports whether there is room for optional columns.
func (s Style) Roomy() bool { return s.Width >= 100 }

// Line returns the number of columns to fill.
func (s Style) Line() int { return min(max(s.Width, narrow), wide) }

// ANSI codes of text attributes.
const (
	Bold   = "1"
	Dim    = "2"
	Red    = "31"
	Yellow = "33"
)

// Paint returns text with the given attribute.
func (s Style) Paint(attribute, text string) string {
	if !s.Colour || text == "" {
		return text
	}
	return "\x1b[" + attribute + "m" + text + "\x1b[0m"
}

// PadRight appends spaces to s up to width columns.
func PadRight(s string, width int) string { return s + strings.Repeat(" ", max(0, width-Width(s))) }

// PadLeft prepends spaces to s up to width columns.
func PadLeft(s string, width int) string { return strings.Repeat(" ", max(0, width-Width(s))) + s }

// Shorten returns s with at most width columns. It replaces the middle of s with an ellipsis, because both ends of a
// path matter. If width is less than 3, it returns s unchanged.
func Shorten(s string, width int) string {
	if width < 3 || Width(s) <= width {
		return s
	}
	var ends []int
	for end := range clusters(s) {
		ends = append(ends, end)
	}
	head, tail := 0, len(s)
	for _, end := range ends {
		if Width(s[:end]) > (width-1)/2 {
			break
		}
		head = end
	}
	for i := len(ends) - 2; i >= 0 && Width(s[:head])+1+Width(s[ends[i]:]) <= width; i-- {
		tail = ends[i]
	}
	return s[:head] + "…" + s[tail:]
}

// eighths are blocks with a width of zero to eight eighths of a column.
var eighths = []rune(" ▏▎▍▌▋▊▉█")

// Bar returns a bar that fills the fraction f of width columns. It returns only spaces if f is NaN or not positive.
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

// Printable replaces unprintable characters, which could move the cursor or break the line, with dots.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '·'
		}
		return r
	}, s)
}

// Of returns the style of the terminal that w writes to. If w is not a terminal, the width is defaultWidth and there
// are no colours. The environment variables COLUMNS, NO_COLOR and TERM=dumb take precedence.
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

// defaultWidth is the width of files and pipes. It is enough for all columns.
const defaultWidth = 120

// Is reports whether w is a terminal.
func Is(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Wrap returns text in lines of the style's width, indented by n spaces, each ending with a line break. A number stays
// on the same line as the next word.
func (s Style) Wrap(text string, n int) string {
	var b strings.Builder
	column := 0
	words := strings.Fields(text)
	for i, word := range words {
		switch {
		case column == 0:
			b.WriteString(strings.Repeat(" ", n))
			column = n
		case column+1+unbroken(words[i:]) > s.Line() && !Together(words[i-1], word):
			b.WriteString("\n" + strings.Repeat(" ", n))
			column = n
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += Width(word)
	}
	return b.String() + "\n"
}

// unbroken returns the width of the first word and the words that must stay on its line.
func unbroken(words []string) int {
	width := Width(words[0])
	for i := 1; i < len(words) && Together(words[i-1], words[i]); i++ {
		width += 1 + Width(words[i])
	}
	return width
}

// Together reports whether a line break between two words of a text would separate a number from its unit, like % or
// ms.
func Together(word, next string) bool { return isNumber(word) && !isNumber(next) }

// isNumber reports whether a word is a number, such as "(1,198" or "−2.5", and doesn't end a clause.
func isNumber(word string) bool {
	return strings.ContainsAny(word, "0123456789") && strings.Trim(word, "0123456789.,(+−±≈<") == "" &&
		!strings.HasSuffix(word, ".") && !strings.HasSuffix(word, ",")
}
