package config

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sibyl-trace/sibyl/internal/terminal"
)

// Error is one error in a configuration.
type Error struct {
	Where string // "sibyl.yaml:3", "--epoch", "SIBYL_EPOCH"; empty for a default
	Key   string // empty if the error doesn't belong to a key
	Text  string // the error and its remedy
	Usage bool   // the error is on the command line
}

// Error implements error.
func (e *Error) Error() string {
	s := e.Text
	if e.Key != "" && e.Where != "--"+dashed(e.Key) && !strings.HasPrefix(s, e.Key+" ") {
		s = e.Key + ": " + s
	}
	if e.Where != "" {
		s = e.Where + ": " + s
	}
	return s
}

// Errors are the errors in a configuration, ordered by source. If there are more than maxErrors, it contains only the
// first ones.
type Errors []*Error

// Error implements error. It returns one error per line.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Usage reports whether all errors are on the command line.
func (es Errors) Usage() bool {
	for _, e := range es {
		if !e.Usage {
			return false
		}
	}
	return true
}

// Limits on error messages.
const (
	maxErrors = 100
	maxQuoted = 60 // characters
)

// quote shortens, escapes and quotes input for error messages.
func quote(s string) string { return `"` + terminal.Shorten(terminal.Printable(s), maxQuoted) + `"` }

// reader reads values from one source and collects the errors in it.
type reader struct {
	file   string // name of the file; empty for other sources
	source string // flag or environment variable
	usage  bool   // source is a flag
	errors Errors
}

// where returns the position of a node.
func (r *reader) where(n *yaml.Node) string {
	if r.file == "" {
		return r.source
	}
	if n.Line == 0 { // an empty document
		return r.file
	}
	return fmt.Sprintf("%s:%d", r.file, n.Line)
}

// fail records an error in n, the value of key, unless there are already maxErrors.
func (r *reader) fail(n *yaml.Node, key, format string, args ...any) {
	if !r.full() {
		r.errors = append(r.errors,
			&Error{Where: r.where(n), Key: key, Text: fmt.Sprintf(format, args...), Usage: r.usage})
	}
}

// full reports whether fail drops further errors.
func (r *reader) full() bool { return len(r.errors) >= maxErrors }
