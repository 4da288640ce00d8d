package report

import (
	"slices"
	"strings"
	"unicode"

	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine/offline"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// exemplars returns a sentence that names a slow and a typical trace of r, if there are any. It is empty if r has
// neither.
func (n *names) exemplars(r *offline.Problem) describe.Sentence {
	var s describe.Sentence
	for _, stratum := range []struct {
		name string
		all  []offline.Exemplar
	}{{"slow", r.Exemplars.Slow}, {"typical", r.Exemplars.Typical}} {
		if len(stratum.all) == 0 {
			continue
		}
		if len(s) > 0 {
			s.Plain(", ")
		}
		x := stratum.all[0]
		s.Plain(stratum.name + " ")
		s.Strong(x.Trace.String())
		s.Plain(" (" + units.Duration(x.Duration) + ")")
	}
	return s
}

// show returns the command that shows the first trace in [names.exemplars], or "" if there is no such trace.
func (n *names) show(r *offline.Problem) string {
	all := slices.Concat(r.Exemplars.Slow, r.Exemplars.Typical)
	if len(all) == 0 {
		return ""
	}
	words := []string{"sibyl trace --trace-id", all[0].Trace.String()}
	for _, file := range n.files {
		words = append(words, shellWord(file))
	}
	return strings.Join(words, " ")
}

// shellWord quotes s, a file name, as one word for a shell. It returns FILE for standard input and for unprintable
// names.
func shellWord(s string) string {
	special := func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_./-+,:@%=", r)
	}
	switch {
	case s == "-" || s != terminal.Printable(s):
		return "FILE"
	case strings.ContainsFunc(s, special):
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}
