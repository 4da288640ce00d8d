package main

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/cmd/sibyl/terminal"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// inputFlags are the options of reading.
type inputFlags struct {
	memory  size
	strict  bool
	workers workers
}

func addInputFlags(c *cobra.Command) *inputFlags {
	f := &inputFlags{memory: assemble.DefaultMemory}
	c.Flags().Var(&f.memory, "memory", "memory for open traces; what is beyond goes to a temporary file")
	c.Flags().BoolVar(&f.strict, "strict", false, "stop at the first broken record instead of skipping it")
	c.Flags().Var(&f.workers, "workers", "goroutines that decode; 0: one per core")
	return f
}

// options returns how to read, telling n what happens.
func (f *inputFlags) options(p *process, n *notices) file.Options {
	return file.Options{
		Workers: int(f.workers), Memory: int64(f.memory), Strict: f.strict, Stdin: p.in,
		Report: n.broken, Progress: n.progress(p.err),
	}
}

// Limits of what is said while reading.
const (
	mostBroken = 100      // broken records said one by one
	longInput  = 64 << 20 // bytes that take long enough to show progress
)

var errNoTrace = errors.New("the input holds no trace that could be read")

// notices tells on standard error what happens while input is read. It is safe for concurrent use.
type notices struct {
	out io.Writer

	mu      sync.Mutex // guards all below, and out
	bar     *progressbar.ProgressBar
	records int
}

// broken says that a record could not be used.
func (n *notices) broken(b file.Broken) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.records++
	if n.records > mostBroken {
		return
	}
	n.clear()
	fmt.Fprintf(n.out, "sibyl: skipped %s\n", terminal.Printable(b.Error()))
}

// progress returns what shows progress on w; nil if w is no terminal.
func (n *notices) progress(w io.Writer) func(file.Progress) {
	if !terminal.Is(w) {
		return nil
	}
	return func(p file.Progress) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if max(p.Read, p.Total) < longInput {
			return
		}
		if n.bar == nil {
			n.bar = newBar(w, p.Total)
		}
		_ = n.bar.Set64(p.Read) // a bar that cannot be drawn is no reason to stop
	}
}

func newBar(w io.Writer, total int64) *progressbar.ProgressBar {
	if total == 0 {
		total = -1 // not known: show a spinner
	}
	return progressbar.NewOptions64(total, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription("reading"),
		progressbar.OptionShowBytes(true), progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(30))
}

// clear takes the bar off the terminal until it is drawn again.
func (n *notices) clear() {
	if n.bar != nil {
		_ = n.bar.Clear() // see progress
	}
}

// close ends the notices and says what was not said one by one.
func (n *notices) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.bar != nil {
		_ = n.bar.Finish() // see progress
	}
	if more := n.records - mostBroken; more > 0 {
		fmt.Fprintf(n.out, "sibyl: skipped %s in the same way\n", units.Plural(more, "more broken record"))
	}
}

// someFiles asks for at least one argument.
func someFiles(_ *cobra.Command, files []string) error {
	if len(files) == 0 {
		return errors.New("which FILE? Name files or directories, or - for standard input")
	}
	return nil
}
