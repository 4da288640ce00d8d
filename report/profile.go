package report

import (
	"io"

	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine/offline"
	"github.com/sibyl-trace/sibyl/internal/terminal"
)

// Pprof writes the critical paths of all request types in r as a gzipped pprof profile; see [describe.Pprof].
func Pprof(w io.Writer, r *offline.Report) error {
	return describe.Pprof(w, profiles(r, describe.Verbatim))
}

// Folded writes the critical paths of all request types in r as folded stacks; see [describe.Folded].
func Folded(w io.Writer, r *offline.Report) error {
	return describe.Folded(w, profiles(r, terminal.Printable))
}
