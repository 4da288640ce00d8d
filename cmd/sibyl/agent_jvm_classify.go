package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/agents/jvm/classify"
	"github.com/sibyl-trace/sibyl/internal/cli"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// classifyFlags holds the options of the command agent jvm classify.
type classifyFlags struct {
	output                *cli.Choice
	main                  string
	include, own, exclude string
	classes               bool
}

func classifyCommand(p *process) *cobra.Command {
	f := &classifyFlags{output: cli.NewChoice("table", "json")}
	c := &cobra.Command{
		Use:   "classify PATH…",
		Short: "Show which classes the agent considers the application's own",
		Long: `Classify tells an application's own classes, whose methods become tracepoints, from those of its
libraries, in the same way as the agent in the JVM. PATH is a jar, a war, a jar of Spring Boot or a folder of classes or
jars. Several jars and folders are one application, in the order of its class path.

For each package it shows the log-odds that the package is the application's own, in natural logarithms, and what
contributes most to them. It marks packages with log-odds near zero with "?": decide about them with the arguments own
and exclude of the agent, or with the flags here. Names are given as regular expressions that match the whole name of
a class.`,
		Example: `  sibyl agent jvm classify shop.jar
  sibyl agent jvm classify --main com.shop.Main target/classes lib/*.jar
  sibyl agent jvm classify shop.war --exclude 'com\.shop\.generated\..*' -o json`,
		Args: cli.Arguments(1, math.MaxInt),
		RunE: func(_ *cobra.Command, paths []string) error { return p.classify(f, paths) },
	}
	f.output.Flag(c, "output", "o", "format")
	c.Flags().StringVar(&f.main, "main", "",
		"main class of the application; default: the one that the first manifest names")
	c.Flags().StringVar(&f.include, "include", "",
		"only classes that match are the application's own, as the agent's argument include")
	c.Flags().StringVar(&f.own, "own", "", "classes that match are the application's own, as the agent's argument own")
	c.Flags().StringVar(&f.exclude, "exclude", "",
		"regular expression: matching classes are not the application's own, like exclude:… of the agent")
	c.Flags().BoolVar(&f.classes, "classes", false, "list the classes of each package, too")
	return c
}

func (p *process) classify(f *classifyFlags, paths []string) error {
	rules, err := f.rules()
	if err != nil {
		return cli.UsageError{Err: err}
	}
	deployments, err := classify.Read(paths, f.main)
	if err != nil {
		return err
	}
	var all []*classify.Classification
	for _, d := range deployments {
		p.reportProblems(d)
		all = append(all, classify.Classify(d, rules))
	}
	if len(all) == 0 {
		return fmt.Errorf("%s: no classes and no jars", strings.Join(paths, ", "))
	}
	if f.output.Value == "json" {
		return writeClassificationJSON(p.out, all)
	}
	w := bufio.NewWriter(p.out)
	for _, c := range all {
		writeClassification(w, c, f.classes)
	}
	return w.Flush()
}

// reportProblems prints the entries of d that were skipped. It escapes control characters, because names may be
// hostile.
func (p *process) reportProblems(d *classify.Deployment) {
	for _, problem := range d.Problems {
		fmt.Fprintf(p.err, "sibyl: %s\n", terminal.Printable(problem))
	}
	if n := d.Omitted(); n > 0 {
		fmt.Fprintf(p.err, "sibyl: %s: %d more such entries were left out\n", terminal.Printable(d.Name), n)
	}
}

func (f *classifyFlags) rules() (classify.Rules, error) {
	var errs []error
	compile := func(flag, text string) *regexp.Regexp {
		if text == "" {
			return nil
		}
		re, err := classify.Pattern(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
		}
		return re
	}
	r := classify.Rules{
		Include: compile("include", f.include),
		Own:     compile("own", f.own),
		Exclude: compile("exclude", f.exclude),
	}
	return r, errors.Join(errs...)
}

// decisive is the maximum number of features shown per package.
const decisive = 3

// writeClassification writes the packages in c, the application's own first, and their classes if classes is true.
func writeClassification(w io.Writer, c *classify.Classification, classes bool) {
	d := c.Deployment
	fmt.Fprintf(w, "%s: %s\n", terminal.Printable(d.Name), begin(d))
	packages := slices.Clone(c.Packages)
	sorting.SliceStable(packages, func(a, b classify.Package) int {
		if a.Own != b.Own {
			return boolOrder(a.Own)
		}
		return cmp.Compare(b.LogOdds, a.LogOdds)
	})
	for _, p := range packages {
		fmt.Fprintf(w, "%-8s %6.1f  %s, %s of %s: %s\n",
			verdict(p), p.LogOdds, terminal.Printable(packageName(p.Name)), classCount(len(p.Classes)),
			terminal.Printable(place(d, p.Source)), reasons(p))
		for _, class := range p.Classes {
			if classes {
				fmt.Fprintf(w, "                   %s\n", terminal.Printable(class.Name))
			}
		}
	}
	writeSums(w, packages)
}

func boolOrder(first bool) int {
	if first {
		return -1
	}
	return 1
}

func begin(d *classify.Deployment) string {
	switch {
	case d.Main == "" && d.Outer != nil:
		return "no main class" // a container starts it
	case d.Main == "":
		return "no main class; name it with --main"
	case d.HasLauncher():
		return "started by " + terminal.Printable(d.Main) + "; name the application's own main class with --main"
	}
	return "main class " + terminal.Printable(d.Main)
}

func verdict(p classify.Package) string {
	v := "library"
	if p.Own {
		v = "own"
	}
	if p.Unsure {
		v += "?"
	}
	return v
}

func classCount(n int) string {
	if n == 1 {
		return "1 class"
	}
	return units.Count(n) + " classes"
}

func packageName(name string) string {
	if name == "" {
		return "unnamed package"
	}
	return name
}

// place returns the path of s, relative to d if s is in d.
func place(d *classify.Deployment, s *classify.Source) string {
	if inner, found := strings.CutPrefix(s.Path, d.Name); found {
		return strings.TrimLeft(inner, "!/")
	}
	return s.Path
}

func reasons(p classify.Package) string {
	if p.Configured {
		return "decided by configuration"
	}
	var all []string
	for _, e := range p.Evidence[:min(decisive, len(p.Evidence))] {
		all = append(all, fmt.Sprintf("%s: %s %+.1f", e.Name, e.Value, e.LogOdds))
	}
	return strings.Join(all, ", ")
}

// writeSums writes the number of classes that are the application's own, and a hint on deciding about unsure ones.
func writeSums(w io.Writer, packages []classify.Package) {
	own, foreign, unsure := 0, 0, 0
	var names []string
	for _, p := range packages {
		switch n := len(p.Classes); {
		case p.Own:
			own += n
		default:
			foreign += n
		}
		if p.Unsure {
			unsure += len(p.Classes)
			names = append(names, regexp.QuoteMeta(p.Name))
		}
	}
	fmt.Fprintf(w, "\n%s of the application, %s of libraries.\n", classCount(own), classCount(foreign))
	if unsure == 0 {
		return
	}
	slices.Sort(names)
	names = slices.Compact(names)
	more := ""
	if len(names) > maxSuggested {
		names, more = names[:maxSuggested], " and so on"
	}
	fmt.Fprintf(w, "The model is not sure about %d of them (\"?\"). Decide with own or exclude, for the agent and "+
		"here, such as\n  own:(%s)\\.[^.]*%s\n", unsure, terminal.Printable(strings.Join(names, "|")), more)
}

// maxSuggested is the maximum number of packages in a suggested argument.
const maxSuggested = 10

// classifiedJSON is the JSON output for one application.
type classifiedJSON struct {
	Name     string        `json:"name"`
	Main     string        `json:"main_class,omitempty"`
	Problems []string      `json:"problems,omitempty"`
	Packages []packageJSON `json:"packages"`
}

type packageJSON struct {
	Package    string         `json:"package"`
	Source     string         `json:"source"`
	Own        bool           `json:"own"`
	Unsure     bool           `json:"unsure"`
	Configured bool           `json:"configured"`
	LogOdds    float64        `json:"log_odds"`
	Evidence   []evidenceJSON `json:"evidence"`
	Classes    []string       `json:"classes"`
}

type evidenceJSON struct {
	Feature string  `json:"feature"`
	Value   string  `json:"value"`
	LogOdds float64 `json:"log_odds"`
}

func writeClassificationJSON(w io.Writer, all []*classify.Classification) error {
	result := []classifiedJSON{}
	for _, c := range all {
		d := classifiedJSON{Name: c.Deployment.Name, Main: c.Deployment.Main, Problems: c.Deployment.Problems}
		for _, p := range c.Packages {
			j := packageJSON{
				Package:    p.Name,
				Source:     p.Source.Path,
				Own:        p.Own,
				Unsure:     p.Unsure,
				Configured: p.Configured,
				LogOdds:    p.LogOdds,
				Evidence:   []evidenceJSON{},
				Classes:    []string{},
			}
			for _, e := range p.Evidence {
				j.Evidence = append(j.Evidence, evidenceJSON{e.Name, e.Value, e.LogOdds})
			}
			for _, class := range p.Classes {
				j.Classes = append(j.Classes, class.Name)
			}
			d.Packages = append(d.Packages, j)
		}
		result = append(result, d)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(result)
}
