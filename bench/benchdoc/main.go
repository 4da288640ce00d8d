// Command benchdoc measures and writes down what it measured: for each part that is asked for it runs `sibylbench … -o
// json` and puts the figures, with their goals, in place of that part's block of docs/benchmarks.md. What stands around
// the blocks is written by hand and stays. A part that fails or is interrupted leaves its block as it was.
//
//	go run ./bench/benchdoc -sibylbench bin/sibylbench [PART…]
//
// Without parts it does all of them, the quick ones first.
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

func run(ctx context.Context, args []string, told io.Writer) error {
	flags := flag.NewFlagSet("benchdoc", flag.ContinueOnError)
	flags.SetOutput(told)
	program := flags.String("sibylbench", "bin/sibylbench", "the program to run")
	doc := flags.String("doc", "docs/benchmarks.md", "document with the blocks")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := choose(flags.Args())
	if err != nil {
		return err
	}
	var failed []error
	for _, p := range chosen {
		fmt.Fprintf(told, "%s: sibylbench %s\n", p.name, strings.Join(p.command(), " "))
		if err := p.measure(ctx, *program, *doc, told); err != nil {
			failed = append(failed, fmt.Errorf("%s keeps its block: %w", p.name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failed...)
}

// choose returns the parts with these names, in the order of the list; all if there are none.
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
			return nil, fmt.Errorf("there is no part %q; there are %s", name, strings.Join(partNames(), ", "))
		}
	}
	return chosen, nil
}

// endWithin is how long a benchmark that is interrupted may take to end the processes that it started.
const endWithin = 30 * time.Second

// measure runs a part's benchmark and writes its block, and its plot if it has one.
func (p *part) measure(ctx context.Context, program, doc string, told io.Writer) error {
	at := circumstances{command: p.command(), begin: time.Now()}
	if err := at.look(); err != nil {
		return err
	}
	var out bytes.Buffer
	c := exec.CommandContext(ctx, program, p.asked()...)
	c.Stdout, c.Stderr = &out, told
	c.Cancel, c.WaitDelay = func() error { return c.Process.Signal(os.Interrupt) }, endWithin
	if err := c.Run(); err != nil {
		return fmt.Errorf("run the benchmark: %w", err)
	}
	b, err := p.render(out.Bytes())
	if err != nil {
		return fmt.Errorf("read what it measured: %w", err)
	}
	if b.plot != nil {
		if err := write(filepath.Join(filepath.Dir(doc), p.plotFile()), b.plot); err != nil {
			return err
		}
	}
	old, err := os.ReadFile(doc) // now, since somebody may have edited it meanwhile
	if err != nil {
		return fmt.Errorf("read the document: %w", err)
	}
	text, err := replace(string(old), p.name, p.block(&at, b))
	if err != nil {
		return err
	}
	return write(doc, []byte(text))
}

// write replaces a file as a whole or not at all.
func write(path string, data []byte) error {
	if err := os.WriteFile(path+".new", data, 0o644); err != nil { //nolint:gosec // a document, for everybody
		return err
	}
	return os.Rename(path+".new", path)
}
