package main

import (
	"math"
	"path"
	"strings"

	"github.com/sibyl-trace/sibyl/agents/jvm/classify"
)

// published returns the features of a class alone, without regard to the application, for naive Bayes as published. The
// abstract of the publication names the method, not the features. We use everything that a class file and its location
// contain.
func published(s *classify.Source, c classify.Class) []classify.Feature {
	place := "jar"
	if s.Kind == classify.Folder {
		place = "folder"
	}
	return []classify.Feature{
		{Name: "package", Value: prefix(c.Package(), 3)},
		{Name: "owner", Value: prefix(c.Package(), 2)},
		{Name: "domain", Value: prefix(c.Package(), 1)},
		{Name: "super", Value: prefix(c.Super, 2)},
		{Name: "depth", Value: depth(c.Package())},
		{Name: "kind", Value: kind(c)},
		{Name: "interfaces", Value: string('0' + rune(min(c.Interfaces, 3)))},
		{Name: "place", Value: place},
		{Name: "folder", Value: path.Dir(s.Path)},
	}
}

// textbook trains naive Bayes with the estimates of textbooks: each class counts, and one is added to each count,
// including the counts of values never seen.
func textbook(rows []row) model {
	type count struct{ own, foreign float64 }
	values := make(map[classify.Feature]count)
	distinct := make(map[string]float64) // values, by name of feature
	var all count
	for _, r := range rows {
		all = count{all.own + float64(r.own), all.foreign + float64(r.foreign)}
		for _, f := range r.features {
			c, known := values[f]
			if !known {
				distinct[f.Name]++
			}
			values[f] = count{c.own + float64(r.own), c.foreign + float64(r.foreign)}
		}
	}
	return func(features []classify.Feature) float64 {
		odds := math.Log(all.own / all.foreign)
		for _, f := range features {
			c := values[f]
			n := distinct[f.Name] + 1
			odds += math.Log((c.own + 1) / (all.own + n) * (all.foreign + n) / (c.foreign + 1))
		}
		return odds
	}
}

func prefix(name string, segments int) string {
	f := strings.SplitN(name, ".", segments+1)
	return strings.Join(f[:min(segments, len(f))], ".")
}

func depth(pkg string) string { return string('0' + rune(min(strings.Count(pkg, "."), 9))) }

// kind returns the kind of a class by its access flags.
func kind(c classify.Class) string {
	const interfaceFlag, abstractFlag, annotationFlag, enumFlag = 0x200, 0x400, 0x2000, 0x4000
	switch {
	case c.Access&annotationFlag != 0:
		return "annotation"
	case c.Access&interfaceFlag != 0:
		return "interface"
	case c.Access&enumFlag != 0:
		return "enum"
	case strings.Contains(c.Name, "$"):
		return "inner"
	case c.Access&abstractFlag != 0:
		return "abstract"
	}
	return "class"
}
