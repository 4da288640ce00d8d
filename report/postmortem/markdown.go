package postmortem

import (
	"io"
	"strings"
	"unicode"
)

// Markdown writes r as GitHub-flavoured Markdown, because that supports tables.
func Markdown(w io.Writer, r *Report) error {
	d := newDocument(r)
	var b strings.Builder
	b.WriteString("# " + escaped(d.title) + "\n\n")
	for _, f := range d.facts {
		b.WriteString("- **" + f.name + "**: " + f.value.markdown() + "\n")
	}
	for i := range d.sections {
		d.sections[i].markdown(&b)
	}
	b.WriteString("\n" + escaped(d.footer) + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// markdown writes s as Markdown. It omits charts.
func (s *section) markdown(b *strings.Builder) {
	if s.chart != nil {
		return
	}
	b.WriteString("\n## " + s.title + "\n\n")
	if s.note != "" {
		b.WriteString(escaped(s.note) + "\n")
	}
	if len(s.rows) > 0 {
		if s.note != "" {
			b.WriteByte('\n')
		}
		s.markdownTable(b)
	}
	for i, q := range s.quotes {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString("> **" + escaped(q.by) + "**\n")
		for line := range strings.Lines(q.text) {
			if line = escaped(line); line != "" {
				b.WriteString(">\n> " + line + "\n")
			}
		}
	}
}

func (s *section) markdownTable(b *strings.Builder) {
	for _, c := range s.head {
		b.WriteString("| " + c.text + " ")
	}
	b.WriteString("|\n")
	for _, c := range s.head {
		if c.number {
			b.WriteString("|---:")
		} else {
			b.WriteString("|---")
		}
	}
	b.WriteString("|\n")
	for _, row := range s.rows {
		for _, c := range row {
			b.WriteString("| " + c.markdown() + " ")
		}
		b.WriteString("|\n")
	}
}

func (c cell) markdown() string {
	switch text := escaped(c.text); {
	case c.text == c.link:
		return c.text
	case c.link != "":
		return "[" + text + "](" + c.link + ")"
	default:
		return text
	}
}

// escaped returns text on one line, with the special characters of Markdown escaped and unprintable characters
// replaced.
func escaped(text string) string {
	var b strings.Builder
	for _, r := range strings.Join(strings.Fields(text), " ") {
		switch {
		case strings.ContainsRune("\\`*_[]<>#|~&@!", r):
			b.WriteRune('\\')
		case !unicode.IsPrint(r):
			r = '·'
		}
		b.WriteRune(r)
	}
	return b.String()
}
