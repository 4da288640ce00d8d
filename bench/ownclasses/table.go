package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sibyl-trace/sibyl/agents/jvm/classify"
)

// row counts the classes of an application that have the same features.
type row struct {
	kind, app    string
	own, foreign int
	features     []classify.Feature
}

// tabulate counts classes by their features.
func tabulate(l *labelled, features func(s *classify.Source, c classify.Class) []classify.Feature) []row {
	counts := make(map[string]*row)
	for i := range l.Sources {
		s := &l.Sources[i]
		for _, c := range s.Classes {
			f := features(s, c)
			key := joinFeatures(f)
			r := counts[key]
			if r == nil {
				r = &row{kind: l.kind, app: l.name, features: f}
				counts[key] = r
			}
			if l.owns(s, c.Package()) {
				r.own++
			} else {
				r.foreign++
			}
		}
	}
	var rows []row
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		rows = append(rows, *counts[key])
	}
	return rows
}

func joinFeatures(all []classify.Feature) string {
	var b strings.Builder
	for i, f := range all {
		if i > 0 {
			b.WriteByte(';')
		}
		b.WriteString(f.Name + "=" + f.Value)
	}
	return b.String()
}

func formatTable(rows []row) string {
	var b strings.Builder
	b.WriteString("# Classes of the labelled set by features: kind, application, own classes, " +
		"classes of libraries, features. Written by make classify-set.\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "%s\t%s\t%d\t%d\t%s\n", r.kind, r.app, r.own, r.foreign, joinFeatures(r.features))
	}
	return b.String()
}

func parseTable(text string) ([]row, error) {
	var rows []row
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		f := strings.Split(line, "\t")
		if len(f) != 5 {
			return nil, fmt.Errorf("%q has %d fields, want 5", line, len(f))
		}
		r := row{kind: f[0], app: f[1]}
		var errs [2]error
		r.own, errs[0] = strconv.Atoi(f[2])
		r.foreign, errs[1] = strconv.Atoi(f[3])
		if errs[0] != nil || errs[1] != nil {
			return nil, fmt.Errorf("%q: the counts are not numbers", line)
		}
		for feature := range strings.SplitSeq(f[4], ";") {
			name, value, _ := strings.Cut(feature, "=")
			r.features = append(r.features, classify.Feature{Name: name, Value: value})
		}
		rows = append(rows, r)
	}
	return rows, nil
}
