package main

import (
	"fmt"
	"slices"
	"strings"
)

var kinds = []struct{ name, title string }{
	{"debian", "Debian's programs"}, {"maven", "Spring Boot applications and wars"},
}

// tables returns the figures as Markdown: sums, then each application.
func tables(ours, others []score) string {
	var b strings.Builder
	b.WriteString("# own-classes\nWritten by `make classify-set`. " +
		"`go doc ./bench/ownclasses` explains the columns.\n\n")
	b.WriteString(
		"| | applications | classes | own | right, pooled | right, mean | own classes found, pooled | mean |\n" +
			"|---|---|---|---|---|---|---|---|\n")
	for _, k := range kinds {
		for _, m := range []struct {
			title  string
			scores []score
		}{{"ours", ours}, {"as published", others}} {
			s := summarize(m.scores, k.name)
			if s.apps == 0 {
				continue
			}
			fmt.Fprintf(&b, "| %s, %s | %d | %d | %d | %s | %s | %s | %s |\n",
				k.title, m.title, s.apps, s.total.own+s.total.foreign, s.total.own,
				percent(s.pooled), percent(s.mean), percent(s.recall), percent(s.meanRecall))
		}
	}
	b.WriteString("\n| application | classes | own | right | own found | unsure | as published: right | own found |\n" +
		"|---|---|---|---|---|---|---|---|\n")
	for _, s := range ours {
		right, found := "–", "–"
		if i := slices.IndexFunc(others, func(o score) bool { return o.kind == s.kind && o.app == s.app }); i >= 0 {
			right, found = percent(others[i].accuracy()), percent(others[i].recall())
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %s | %s | %s | %s | %s |\n",
			shortName(s.app), s.own+s.foreign, s.own, percent(s.accuracy()), percent(s.recall()),
			percent(float64(s.unsure)/float64(s.own+s.foreign)), right, found)
	}
	return b.String()
}

// shortName returns artifact and version of Maven coordinates, or the name of a package.
func shortName(app string) string {
	f := strings.Split(app, ":")
	if len(f) < 3 {
		return app
	}
	return f[1] + " " + f[2]
}

func percent(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }
