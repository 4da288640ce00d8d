package classify

import (
	"cmp"
	"maps"
	"math"
	"regexp"
	"slices"
	"sync"

	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// Rules are patterns from the configuration that override the model. Compile them with [Pattern], so that they match
// whole class names. A nil pattern decides nothing.
type Rules struct {
	Include *regexp.Regexp // if set, exactly the classes that match are the application's own; Own is ignored
	Own     *regexp.Regexp // classes that match are the application's own
	Exclude *regexp.Regexp // classes that match are not the application's own; takes precedence over the others
}

// decide reports whether the rules decide about class and, if so, whether class is the application's own.
func (r Rules) decide(class string) (own, decided bool) {
	switch {
	case r.Exclude != nil && r.Exclude.MatchString(class):
		return false, true
	case r.Include != nil:
		return r.Include.MatchString(class), true
	case r.Own != nil && r.Own.MatchString(class):
		return true, true
	}
	return false, false
}

// Pattern compiles text to a regular expression that matches whole names only.
func Pattern(text string) (*regexp.Regexp, error) { return regexp.Compile("^(?:" + text + ")$") }

// Evidence is a feature with its log-odds.
type Evidence struct {
	Feature
	LogOdds float64
}

// Package is the decision about the classes of a package in a source. If the configuration decides differently about
// some of the classes, these form separate Packages.
type Package struct {
	Source     *Source
	Name       string
	Classes    []Class
	LogOdds    float64    // for being the application's own
	Evidence   []Evidence // descending by weight
	Own        bool
	Unsure     bool // the log-odds are within the band, so people should decide
	Configured bool // decided by the configuration, regardless of the log-odds
}

// Classification holds the decisions about a deployment.
type Classification struct {
	Deployment *Deployment
	Packages   []Package // in the order of sources, ascending by name
}

// defaults holds the built-in names and model.
var defaults = sync.OnceValues(func() (names, Model) {
	n, err := parseNames(namesText)
	if err != nil {
		panic(err) // a test reads them
	}
	m, err := ParseModel(weightsText)
	if err != nil {
		panic(err)
	}
	return n, m
})

// HasLauncher reports whether the main class is a well-known launcher. If so, the application itself starts elsewhere.
func (d *Deployment) HasLauncher() bool {
	n, _ := defaults()
	return n.covers("launcher", d.Main)
}

// Classify decides, for each package of d, whether it is the application's own. rules override the model.
func Classify(d *Deployment, rules Rules) *Classification {
	n, m := defaults()
	o := newOrigin(n, d)
	result := &Classification{Deployment: d}
	for i := range d.Sources {
		s := &d.Sources[i]
		classes := make(map[string][]Class)
		for _, c := range s.Classes {
			classes[c.Package()] = append(classes[c.Package()], c)
		}
		for _, name := range slices.Sorted(maps.Keys(classes)) {
			p := Package{Source: s, Name: name}
			p.judge(m, o.features(s, name))
			result.Packages = append(result.Packages, p.split(rules, classes[name])...)
		}
	}
	return result
}

func (p *Package) judge(m Model, features []Feature) {
	p.LogOdds = m.LogOdds(features)
	p.Own = p.LogOdds > 0
	p.Unsure = math.Abs(p.LogOdds) < m.Band
	for _, f := range features {
		p.Evidence = append(p.Evidence, Evidence{f, m.Weights[f]})
	}
	sorting.SliceStable(p.Evidence, func(a, b Evidence) int {
		return cmp.Compare(math.Abs(b.LogOdds), math.Abs(a.LogOdds))
	})
}

// split divides classes into up to three copies of p: classes that rules don't decide, own classes, and foreign
// classes.
func (p *Package) split(rules Rules, classes []Class) []Package {
	other, own, foreign := *p, *p, *p
	own.Own, own.Unsure, own.Configured = true, false, true
	foreign.Own, foreign.Unsure, foreign.Configured = false, false, true
	for _, c := range classes {
		target := &other
		if isOwn, decided := rules.decide(c.Name); decided && isOwn {
			target = &own
		} else if decided {
			target = &foreign
		}
		target.Classes = append(target.Classes, c)
	}
	return slices.DeleteFunc([]Package{other, own, foreign}, func(p Package) bool { return len(p.Classes) == 0 })
}
