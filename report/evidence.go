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

// contrast says which hosts or versions are slower than the others, and where.
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

// leastRecovery is the part of the mean or of the p99 from which a recovery is worth a line.
const leastRecovery = 0.05

// recoveries says what would come back if edges were at their reference levels.
func (n *names) recoveries(r *offline.Problem) []describe.Sentence {
	var all []describe.Sentence
	for i := range r.Findings.Recoveries {
		x := &r.Findings.Recoveries[i]
		if x.MeanPart < leastRecovery && x.P99Part < leastRecovery {
			continue
		}
		for k := range r.Edges {
			if e := &r.Edges[k]; e.Edge == x.Edge {
				var s describe.Sentence
				s.Plain("with " + n.Edge(e) + " at " + units.Duration(x.Level) + ", ")
				s.Strong(units.Percent(x.MeanPart) + " of the mean and " + units.Percent(x.P99Part) + " of the p99")
				s.Plain(" would come back")
				all = append(all, s)
			}
		}
	}
	return all
}

// common says which places of different request types rise and fall together.
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

// exemplars says which traces to look at; empty if none are known.
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

// show returns the command that shows the first trace of [names.exemplars]; "" if none is known.
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

// shellWord returns s as a shell takes it for one word, FILE for what cannot be named: standard input, and unprintable names.
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
