package trace

import (
	"strings"
	"unicode"
)

// Printable returns the first `most` runes of s, which may come from a trace. It replaces invalid and unprintable runes
// with U+FFFD, and appends an ellipsis if it leaves runes out.
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

// Clean returns s in a printable form of limited length, for a name, a value or a short text in messages and links.
func Clean(s string) string { return Printable(s, maxText) }

// maxText is the maximum number of runes of a clean text.
const maxText = 300
