package main

import (
	"math"

	"github.com/sibyl-trace/sibyl/agents/jvm/classify"
)

const (
	smoothing = 1e-6 // added to the share of each value, so that a value never seen in a class is possible
	band      = 2    // log-odds below which people should decide; bench/results/own-classes.md has the share of classes
)

// ours trains our model.
func ours(rows []row) model { return naiveBayes(rows).LogOdds }

// naiveBayes trains a naive Bayes classifier. Each application has the same weight, however large it is.
func naiveBayes(rows []row) classify.Model {
	size := make(map[string]float64)
	for _, r := range rows {
		size[r.kind+r.app] += float64(r.own + r.foreign)
	}
	type count struct{ own, foreign float64 }
	var all count
	values := make(map[classify.Feature]*count)
	totals := make(map[string]*count) // by name of feature
	for _, r := range rows {
		w := 1 / size[r.kind+r.app]
		own, foreign := w*float64(r.own), w*float64(r.foreign)
		all.own += own
		all.foreign += foreign
		for _, f := range r.features {
			if values[f] == nil {
				values[f] = new(count)
			}
			if totals[f.Name] == nil {
				totals[f.Name] = new(count)
			}
			for _, c := range []*count{values[f], totals[f.Name]} {
				c.own += own
				c.foreign += foreign
			}
		}
	}
	m := classify.Model{Bias: math.Log(all.own / all.foreign), Band: band, Weights: make(map[classify.Feature]float64)}
	for f, c := range values {
		t := totals[f.Name]
		m.Weights[f] = math.Log((c.own/t.own + smoothing) / (c.foreign/t.foreign + smoothing))
	}
	return m
}
