package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sibyl-trace/sibyl/agents/jvm/classify"
)

// score counts the decisions about one application.
type score struct {
	kind, app              string
	own, foreign           int
	ownRight, foreignRight int
	unsure, unsureRight    int
}

func (s score) accuracy() float64 {
	return float64(s.ownRight+s.foreignRight) / float64(s.own+s.foreign)
}
func (s score) recall() float64 { return float64(s.ownRight) / float64(s.own) }

// model returns the log-odds of features.
type model func(features []classify.Feature) float64

// crossValidate judges each application by a model that is trained on all others. Log-odds within the band are unsure.
func crossValidate(rows []row, band float64, train func([]row) model) []score {
	var scores []score
	for _, r := range rows {
		if len(scores) == 0 || scores[len(scores)-1].app != r.app || scores[len(scores)-1].kind != r.kind {
			scores = append(scores, score{kind: r.kind, app: r.app})
		}
	}
	for i := range scores {
		s := &scores[i]
		isIt := func(r row) bool { return r.app == s.app && r.kind == s.kind }
		m := train(slices.DeleteFunc(slices.Clone(rows), isIt))
		for _, r := range rows {
			if isIt(r) {
				s.add(r, m(r.features), band)
			}
		}
	}
	return scores
}

func (s *score) add(r row, odds, band float64) {
	right := r.foreign
	s.own += r.own
	s.foreign += r.foreign
	if odds > 0 {
		right = r.own
		s.ownRight += r.own
	} else {
		s.foreignRight += r.foreign
	}
	if odds > -band && odds < band {
		s.unsure += r.own + r.foreign
		s.unsureRight += right
	}
}

// formatScores returns scores as text, without the numbers of unsure classes.
func formatScores(scores []score) string {
	var b strings.Builder
	b.WriteString("# Decisions of naive Bayes as published: kind, application, own classes, classes of libraries, " +
		"of both those that it found. Written by make classify-set.\n")
	for _, s := range scores {
		fmt.Fprintf(&b, "%s\t%s\t%d\t%d\t%d\t%d\n", s.kind, s.app, s.own, s.foreign, s.ownRight, s.foreignRight)
	}
	return b.String()
}

func parseScores(text string) ([]score, error) {
	var scores []score
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var s score
		if _, err := fmt.Sscanf(line, "%s\t%s\t%d\t%d\t%d\t%d\n",
			&s.kind, &s.app, &s.own, &s.foreign, &s.ownRight, &s.foreignRight); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		scores = append(scores, s)
	}
	return scores, nil
}

// summary pools the scores of one kind.
type summary struct {
	apps                 int
	pooled, mean, recall float64
	meanRecall           float64
	total                score
}

func summarize(scores []score, kind string) summary {
	var s summary
	for _, x := range scores {
		if x.kind != kind {
			continue
		}
		s.apps++
		s.mean += x.accuracy()
		s.meanRecall += x.recall()
		t := &s.total
		t.own += x.own
		t.foreign += x.foreign
		t.ownRight += x.ownRight
		t.foreignRight += x.foreignRight
		t.unsure += x.unsure
		t.unsureRight += x.unsureRight
	}
	s.mean /= float64(s.apps)
	s.meanRecall /= float64(s.apps)
	s.pooled, s.recall = s.total.accuracy(), s.total.recall()
	return s
}
