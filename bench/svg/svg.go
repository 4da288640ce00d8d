// Package svg writes elements of self-contained SVG charts.
package svg

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"unicode/utf8"
)

// charWidth is the approximate width of a character in pixels.
const charWidth = 7

// TextWidth returns the approximate width of a text in pixels.
func TextWidth(s string) int { return utf8.RuneCountInString(s) * charWidth }

// Start writes the start of an image with a size in pixels. It adds attributes to the root element.
func Start(out *bytes.Buffer, width, height int, attributes, title string) {
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" %s>`+"\n",
		width, height, width, height, attributes)
	fmt.Fprintf(out, "<title>%s</title>\n", Escape(title))
}

// End writes the end of an image.
func End(out *bytes.Buffer) { out.WriteString("</svg>\n") }

// Text writes a text at x, y. anchor (start, middle or end) is the part of the text at x. class may be empty.
func Text(out *bytes.Buffer, class, anchor string, x, y int, s string) {
	if class != "" {
		class = fmt.Sprintf(`class="%s" `, class)
	}
	fmt.Fprintf(out, `<text %stext-anchor="%s" x="%d" y="%d">%s</text>`+"\n", class, anchor, x, y, Escape(s))
}

// Escape returns s as character data.
func Escape(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // writing to a buffer never fails
	return b.String()
}
