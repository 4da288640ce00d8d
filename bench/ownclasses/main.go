// Ownclasses trains and judges the classifier of an application's own classes, agents/jvm/classify.
//
// It downloads the applications of applications.txt with apt and Maven into a cache outside of the repository, and
// counts their classes by features in table.tsv. From that it trains the model (agents/jvm/classify/weights.txt). It
// writes the decisions of models about applications that they have not seen to bench/results/own-classes.md. With
// -table it uses table.tsv as it is.
//
// # Labels
//
// A class of a Debian program is its own if its jar is built from the same source package. The jars of all other
// packages on which the program depends are libraries. Classes of Maven artifacts are own if their package belongs to
// the project that publishes the application, by a list made by hand. No feature reads the labels.
//
// # Columns
//
// Each application is judged by a model trained on all others, with the same weight for each application. Right is the
// share of all classes, pooled or as the mean over applications. Own found is the share of the own classes. Unsure
// classes lie within the band of the model; they count by the sign.
//
// As published is a reconstruction: naive Bayes with features of the class itself (package, super class, kind and
// folder) and the estimates of textbooks. The publication is an article in the Chinese journal Computer Systems &
// Applications of 2018 (27(2)) on a framework that changes instrumentation points at run time. We had only its
// abstract, which names the method but not the features, so the authors' own classifier may be better or worse.
//
// # Jars of several projects
//
// We cannot learn from the set how to judge them. Debian forbids programs to bundle libraries, which others do, so in
// Debian all classes of such a jar are own. The feature place therefore says nothing about them, which cost 0.8 % of
// the right decisions when we introduced it (97.4 instead of 98.2 %).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/sibyl-trace/sibyl/agents/jvm/classify"
)

func main() {
	tableOnly := flag.Bool("table", false, "train on table.tsv, without downloads")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *tableOnly, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ownclasses:", err)
		os.Exit(1)
	}
}

const (
	tableFile     = "bench/ownclasses/table.tsv"
	publishedFile = "bench/ownclasses/published.tsv"
	weightsFile   = "agents/jvm/classify/weights.txt"
	resultsFile   = "bench/results/own-classes.md"
)

func run(ctx context.Context, tableOnly bool, out io.Writer) error {
	if !tableOnly {
		rows, others, err := build(ctx, out)
		if err != nil {
			return err
		}
		theirs := crossValidate(others, 0, textbook)
		if err := errors.Join(write(tableFile, formatTable(rows)),
			write(publishedFile, formatScores(theirs))); err != nil {
			return err
		}
	}
	rows, err := readTable(tableFile)
	if err != nil {
		return err
	}
	content, err := figures("", rows)
	if err != nil {
		return err
	}
	return errors.Join(write(weightsFile, naiveBayes(rows).String()), write(resultsFile, content))
}

// figures returns the results as Markdown, from the counts of classes and the decisions as published.
func figures(root string, rows []row) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, publishedFile))
	if err != nil {
		return "", err
	}
	theirs, err := parseScores(string(text))
	if err != nil {
		return "", err
	}
	return tables(crossValidate(rows, band, ours), theirs), nil
}

func write(file, text string) error { return os.WriteFile(file, []byte(text), 0o644) }

func readTable(file string) ([]row, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parseTable(string(text))
}

// build downloads and reads the applications. It returns their classes by our features, and by the published ones.
func build(ctx context.Context, out io.Writer) (ours, others []row, err error) {
	all, err := parseApplications(applications)
	if err != nil {
		return nil, nil, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, nil, err
	}
	cache = filepath.Join(cache, "sibyl", "classify-set")
	deb, err := openDebian(ctx, cache)
	if err != nil {
		return nil, nil, err
	}
	mvn := maven{filepath.Join(cache, "maven")}
	messages, err := mvn.download(ctx, all)
	if err != nil {
		return nil, nil, err
	}
	fmt.Fprint(out, messages)
	for _, a := range all {
		var l *labelled
		var unfit string
		if a.kind == "debian" {
			l, unfit, err = deb.deployment(ctx, a)
		} else {
			l, unfit, err = mvn.deployment(a)
		}
		if err != nil {
			fmt.Fprintf(out, "%s: %v\n", a.name, err)
			continue
		}
		if unfit != "" {
			fmt.Fprintf(out, "%s is left out: %s\n", a.name, unfit)
			continue
		}
		fmt.Fprintf(out, "%s: main class %s, %d sources\n", a.name, l.Main, len(l.Sources))
		features := classify.Features(l.Deployment)
		ours = append(ours, tabulate(l, func(s *classify.Source, c classify.Class) []classify.Feature {
			return features(s, c.Package())
		})...)
		others = append(others, tabulate(l, published)...)
	}
	return ours, others, nil
}
