package config

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sibyl-trace/sibyl/internal/terminal"
)

// Mistake is one thing that is wrong with a configuration.
type Mistake struct {
	Where string // "sibyl.yaml:3", "--epoch", "SIBYL_EPOCH"; empty: a default
	Key   string // empty: the mistake belongs to none
	What  string // and what to do about it
	Usage bool   // it was made on the command line
}

// Error implements error.
func (m *Mistake) Error() string {
	s := m.What
	if m.Key != "" && m.Where != "--"+dashed(m.Key) && !strings.HasPrefix(s, m.Key+" ") {
		s = m.Key + ": " + s
	}
	if m.Where != "" {
		s = m.Where + ": " + s
	}
	return s
}

// Mistakes are all that is wrong with a configuration, in the order of the sources, at most mostMistakes.
type Mistakes []*Mistake

// Error implements error: one mistake per line.
func (ms Mistakes) Error() string {
	lines := make([]string, len(ms))
	for i, m := range ms {
		lines[i] = m.Error()
	}
	return strings.Join(lines, "\n")
}

// Usage reports whether all mistakes were made on the command line.
func (ms Mistakes) Usage() bool {
	for _, m := range ms {
		if !m.Usage {
			return false
		}
	}
	return true
}

// Bounds of what is said about what somebody wrote.
const (
	mostMistakes = 100
	mostQuoted   = 60 // characters
)

// quote returns a text as it is repeated to whoever wrote it.
func quote(s string) string { return `"` + terminal.Shorten(terminal.Printable(s), mostQuoted) + `"` }

// reader reads values from one source and collects what is wrong with them.
type reader struct {
	file     string // name of the file; empty: another source
	source   string // flag or environment variable
	usage    bool   // a flag
	mistakes Mistakes
}

// where returns the place of a node.
func (r *reader) where(n *yaml.Node) string {
	if r.file == "" {
		return r.source
	}
	if n.Line == 0 { // an empty document
		return r.file
	}
	return fmt.Sprintf("%s:%d", r.file, n.Line)
}

// wrong notes a mistake in the value n of a key.
func (r *reader) wrong(n *yaml.Node, key, format string, args ...any) {
	if !r.full() {
		r.mistakes = append(r.mistakes, &Mistake{Where: r.where(n), Key: key, What: fmt.Sprintf(format, args...), Usage: r.usage})
	}
}

// full reports whether there are so many mistakes that no more are noted.
func (r *reader) full() bool { return len(r.mistakes) >= mostMistakes }
