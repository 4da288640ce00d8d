package classify

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

//go:embed weights.txt
var weightsText string

// Model is a linear model of the log-odds that a class is the application's own. Each value of a feature adds a weight.
type Model struct {
	Bias    float64             // log-odds of a class without any known feature
	Band    float64             // if the log-odds are closer to 0 than this, people should decide
	Weights map[Feature]float64 // log-odds; a missing feature counts as 0
}

// ParseModel parses a model written by String.
func ParseModel(text string) (Model, error) {
	m := Model{Weights: make(map[Feature]float64)}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		number, rest, _ := strings.Cut(line, "\t")
		w, err := strconv.ParseFloat(number, 64)
		if err != nil || math.IsInf(w, 0) || math.IsNaN(w) {
			return Model{}, fmt.Errorf("weights.txt: %q does not start with a number", line)
		}
		name, value, _ := strings.Cut(rest, "\t")
		switch {
		case name == "bias":
			m.Bias = w
		case name == "band":
			m.Band = w
		case !slices.Contains(featureNames, name):
			return Model{}, fmt.Errorf("weights.txt: there is no feature %q", name)
		default:
			m.Weights[Feature{name, value}] = w
		}
	}
	return m, nil
}

// String returns the model as text that ParseModel and the Java agent read, with numbers rounded to three decimals.
func (m Model) String() string {
	var b strings.Builder
	b.WriteString("# Log-odds that a class is the application's own, by value of each feature. " +
		"Written by make classify-set.\n")
	fmt.Fprintf(&b, "%.3f\tbias\n%.3f\tband\n", m.Bias, m.Band)
	var lines []string
	for f, w := range m.Weights {
		lines = append(lines,
			fmt.Sprintf("%02d %s\t%.3f\t%s\t%s", slices.Index(featureNames, f.Name), f.Value, w, f.Name, f.Value))
	}
	slices.Sort(lines)
	for _, l := range lines {
		_, line, _ := strings.Cut(l, "\t")
		b.WriteString(line + "\n")
	}
	return b.String()
}

// LogOdds returns the sum of the bias and the weights of features, added in this order.
func (m Model) LogOdds(features []Feature) float64 {
	sum := m.Bias
	for _, f := range features {
		sum += m.Weights[f]
	}
	return sum
}
