package report

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine/offline"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// contrast describes a host or version whose requests are slower than the others, and the edge where they are.
func (n *names) contrast(p *detect.Problem, c *explain.KeyedContrast) describe.Sentence {
	var s describe.Sentence
	s.Strong(n.Clean(c.Key) + " = " + n.Clean(c.Value))
	s.Plain(": " + units.Duration(time.Duration(c.Duration.Mean)) + " a request against " + units.Duration(time.Duration(c.Duration.Rest)) +
		" with others (" + strconv.Itoa(c.Requests) + " and " + strconv.Itoa(c.Rest) + " sampled)")
	for i := range p.Edges {
		if e := &p.Edges[i]; len(c.Edges) > 0 && e.Edge == c.Edges[0].Edge {
			s.Plain("; " + units.Duration(time.Duration(c.Edges[0].Value)) + " of that in " + n.Edge(e))
		}
	}
	return s
}

// minRecovery is the smallest fraction of the mean or of the p99 for which a recovery is shown.
const minRecovery = 0.05

// recoveries describes the time that requests would gain with single edges at their reference levels.
func (n *names) recoveries(r *offline.Problem) []describe.Sentence {
	var all []describe.Sentence
	for i := range r.Findings.Recoveries {
		x := &r.Findings.Recoveries[i]
		if x.MeanPart < minRecovery && x.P99Part < minRecovery {
			continue
		}
		for k := range r.Edges {
			if e := &r.Edges[k]; e.Edge == x.Edge {
				var s describe.Sentence
				s.Plain("with " + n.Edge(e) + " at " + units.Duration(x.Level) + ", requests would save ")
				s.Strong(units.Percent(x.MeanPart) + " of the mean and " + units.Percent(x.P99Part) + " of the p99")
				all = append(all, s)
			}
		}
	}
	return all
}

// common describes places of different request types whose times rise and fall together.
func (n *names) common(c *explain.CommonEdges) describe.Sentence {
	var s describe.Sentence
	for i, e := range c.Edges {
		if i > 0 {
			s.Plain(" and ")
		}
		s.Strong(n.Op(n.Last(e.Context)))
		s.Plain(" in " + n.Clean(n.RequestType(e.RequestType, 0)))
	}
	s.Plain(" rise and fall together (correlation " + strconv.FormatFloat(c.Correlation, 'f', 2, 64) + ", p " + pValue(c.PValue) +
		"): a lock or a dependency that they share?")
	return s
}

// exemplars names a slow and a typical trace; empty if there are none.
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

// show returns the command that shows the first trace of [names.exemplars]; "" if there is none.
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

// shellWord quotes s as one word of a shell. It returns FILE for standard input and for unprintable names.
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
