package report

import (
	"io"

	"github.com/sibyl-trace/sibyl/cmd/sibyl/terminal"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/words"
)

// Pprof writes the critical paths of all request types as a gzipped pprof profile, see [words.Pprof].
func Pprof(w io.Writer, r *engine.Report) error { return words.Pprof(w, profiles(r, words.Verbatim)) }

// Folded writes the critical paths of all request types as folded stacks, see [words.Folded].
func Folded(w io.Writer, r *engine.Report) error {
	return words.Folded(w, profiles(r, terminal.Printable))
}
