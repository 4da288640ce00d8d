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
	tableFile   = "bench/ownclasses/table.tsv"
	weightsFile = "agents/jvm/classify/weights.txt"
	document    = "docs/benchmarks.md"
)

func run(ctx context.Context, tableOnly bool, out io.Writer) error {
	if tableOnly {
		rows, err := readTable(tableFile)
		if err != nil {
			return err
		}
		report(out, crossValidate(rows, band, ours))
		return os.WriteFile(weightsFile, []byte(naiveBayes(rows).String()), 0o644)
	}
	rows, others, err := build(ctx, out)
	if err != nil {
		return err
	}
	scores, theirs := crossValidate(rows, band, ours), crossValidate(others, 0, textbook)
	report(out, scores)
	fmt.Fprintln(out, "as published:")
	report(out, theirs)
	doc, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	text, err := replaceBlock(string(doc), tables(scores, theirs))
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(tableFile, []byte(formatTable(rows)), 0o644),
		os.WriteFile(weightsFile, []byte(naiveBayes(rows).String()), 0o644),
		os.WriteFile(document, []byte(text), 0o644))
}

func readTable(file string) ([]row, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parseTable(string(text))
}

func report(out io.Writer, scores []score) {
	for _, s := range scores {
		fmt.Fprintf(out, "%-8s %-40s own %6d foreign %6d accuracy %.4f recall %.4f precision %.3f unsure %.4f\n", s.kind, s.app, s.own, s.foreign, s.accuracy(), s.recall(), float64(s.ownRight)/float64(max(1, s.ownRight+s.foreign-s.foreignRight)), float64(s.unsure)/float64(s.own+s.foreign))
	}
	for _, kind := range []string{"debian", "maven"} {
		s := summarize(scores, kind)
		fmt.Fprintf(out, "%s: %d applications, %d own, %d foreign: pooled %.4f, mean %.4f, recall %.4f, mean recall %.4f\n", kind, s.apps, s.total.own, s.total.foreign, s.pooled, s.mean, s.recall, s.meanRecall)
	}
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
