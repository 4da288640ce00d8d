// Command benchdoc runs benchmarks. For each part it runs `sibylbench … -o json` and writes bench/results/PART.md: the
// figures and their goals, with the command, the date, the machine and its load. A part that fails or is interrupted
// leaves its file unchanged.
//
// It replaces the whole file. Notes that people have added below the tables are about the old figures: restore those
// that still hold, and copy the headline figures to docs/benchmarks.md.
//
//	go run ./bench/benchdoc -sibylbench bin/sibylbench [PART…]
//
// Without arguments it runs all parts, the quick ones first.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "benchdoc:", err)
		os.Exit(1)
	}
}

// run is the whole program. It writes progress to progress.
func run(ctx context.Context, args []string, progress io.Writer) error {
	flags := flag.NewFlagSet("benchdoc", flag.ContinueOnError)
	flags.SetOutput(progress)
	program := flags.String("sibylbench", "bin/sibylbench", "path of sibylbench")
	results := flags.String("results", "bench/results", "folder of the results")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := choose(flags.Args())
	if err != nil {
		return err
	}
	var failed []error
	for _, p := range chosen {
		fmt.Fprintf(progress, "%s: sibylbench %s\n", p.name, strings.Join(p.command(), " "))
		if err := p.update(ctx, *program, *results, progress); err != nil {
			failed = append(failed, fmt.Errorf("%s is unchanged: %w", p.file(), err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failed...)
}

// choose returns the parts with the given names in the order of parts, or all parts if there are no names.
func choose(names []string) ([]part, error) {
	if len(names) == 0 {
		return parts, nil
	}
	var chosen []part
	for _, p := range parts {
		if slices.Contains(names, p.name) {
			chosen = append(chosen, p)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			return nil, fmt.Errorf("no part is named %q; the parts are %s", name, strings.Join(partNames(), ", "))
		}
	}
	return chosen, nil
}

// interruptTimeout bounds the time that an interrupted benchmark may take to stop its processes.
const interruptTimeout = 30 * time.Second

// update runs the benchmark of a part and writes its file and its plot.
func (p *part) update(ctx context.Context, program, results string, progress io.Writer) error {
	conditions, err := currentConditions(p.command())
	if err != nil {
		return err
	}
	var out bytes.Buffer
	c := exec.CommandContext(ctx, program, p.arguments()...)
	c.Stdout, c.Stderr = &out, progress
	c.Cancel, c.WaitDelay = func() error { return c.Process.Signal(os.Interrupt) }, interruptTimeout
	if err := c.Run(); err != nil {
		return fmt.Errorf("run the benchmark: %w", err)
	}
	content, err := p.render(out.Bytes())
	if err != nil {
		return fmt.Errorf("read its output: %w", err)
	}
	if content.plot != nil {
		if err := write(filepath.Join(results, p.plotFile()), content.plot); err != nil {
			return err
		}
	}
	return write(filepath.Join(results, p.file()), p.document(conditions, content))
}

// write replaces a file atomically.
func write(path string, data []byte) error {
	if err := os.WriteFile(path+".new", data, 0o644); err != nil { //nolint:gosec // a public document
		return err
	}
	return os.Rename(path+".new", path)
}
