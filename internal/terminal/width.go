package terminal

import (
	"iter"
	"unicode"

	"golang.org/x/text/width"
)

// Width returns the number of columns that s takes: two for most East Asian characters and emoji, zero for combining
// marks.
func Width(s string) (columns int) {
	for _, n := range clusters(s) {
		columns += n
	}
	return columns
}

// Characters that change the width of others.
const (
	joiner = '\u200d' // joins the emoji around it into one
	wider  = '\ufe0f' // turns the symbol before it into an emoji
)

// clusters yields the characters of s, each with the marks that follow it: their end in s and the columns that they
// take.
func clusters(s string) iter.Seq2[int, int] {
	return func(yield func(end, columns int) bool) {
		columns, joined := 0, false
		for i, r := range s {
			mark := joined || unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf)
			if !mark && i > 0 {
				if !yield(i, columns) {
					return
				}
				columns = 0
			}
			switch kind := width.LookupRune(r).Kind(); {
			case r == wider && columns == 1, !mark && (kind == width.EastAsianWide || kind == width.EastAsianFullwidth):
				columns = 2
			case !mark:
				columns = 1
			}
			joined = r == joiner
		}
		if s != "" {
			yield(len(s), columns)
		}
	}
}
