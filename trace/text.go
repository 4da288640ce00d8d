package trace

import (
	"strings"
	"unicode"
)

// Printable returns the first `most` runes of s, which may come from a trace. It replaces invalid and unprintable
// runes, and appends an ellipsis if it leaves some out.
func Printable(s string, most int) string {
	var b strings.Builder
	n := 0
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		if n++; n > most {
			b.WriteString("…")
			break
		}
		if !unicode.IsPrint(r) {
			r = '\uFFFD'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Clean returns s printable and bounded, as a name, a value or a short text in messages and links.
func Clean(s string) string { return Printable(s, maxText) }

// maxText is the maximum number of runes of a clean text.
const maxText = 300
