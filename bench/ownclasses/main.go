// Ownclasses trains and judges the classifier of an application's own classes, agents/jvm/classify.
//
// It downloads the applications of applications.txt with apt and Maven into a cache outside of the repository, counts
// their classes by features in table.tsv, trains the model on that (agents/jvm/classify/weights.txt), and writes into
// docs/benchmarks.md how models judge applications that they have not seen. With -table it uses table.tsv as it is.
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
	document      = "docs/benchmarks.md"
)

func run(ctx context.Context, tableOnly bool, out io.Writer) error {
	if !tableOnly {
		rows, others, err := build(ctx, out)
		if err != nil {
			return err
		}
		theirs := crossValidate(others, 0, textbook)
		if err := errors.Join(write(tableFile, formatTable(rows)), write(publishedFile, formatScores(theirs))); err != nil {
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
	doc, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	text, err := replaceBlock(string(doc), content)
	if err != nil {
		return err
	}
	return errors.Join(write(weightsFile, naiveBayes(rows).String()), write(document, text))
}

// figures returns the tables of the document, from the counts of classes and the decisions as published.
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
		ours = append(ours, tabulate(l, func(s *classify.Source, c classify.Class) []classify.Feature { return features(s, c.Package()) })...)
		others = append(others, tabulate(l, published)...)
	}
	return ours, others, nil
}
