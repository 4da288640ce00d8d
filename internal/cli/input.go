package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// InputFlags are the flags that control how trace files are read.
type InputFlags struct {
	memory  Size
	strict  bool
	workers Workers
}

// AddInputFlags adds the flags to c and returns them.
func AddInputFlags(c *cobra.Command) *InputFlags {
	f := &InputFlags{memory: assemble.DefaultMemory}
	c.Flags().Var(&f.memory, "memory", "memory for open traces; the excess goes to a temporary file")
	c.Flags().BoolVar(&f.strict, "strict", false, "stop at the first broken record instead of skipping it")
	c.Flags().Var(&f.workers, "workers", "number of decoding goroutines; 0: one per core")
	return f
}

// Options returns options for reading files. n receives broken records and progress.
func (f *InputFlags) Options(stdin io.Reader, n *Notices) file.Options {
	return file.Options{
		Workers: int(f.workers), Memory: int64(f.memory), Strict: f.strict, Stdin: stdin,
		Report: n.Broken, Progress: n.Progress(),
	}
}

// Limits on messages while input is read.
const (
	MostBroken = 100      // number of broken records that are reported individually
	longInput  = 64 << 20 // minimum size of the input in bytes for a progress bar
)

// ErrNoTrace reports that the input contains no readable trace.
var ErrNoTrace = errors.New("the input holds no trace that could be read")

// Notices prints broken records and a progress bar while input is read. It is safe for concurrent use.
type Notices struct {
	program string // prefix of each line
	out     io.Writer

	mu      sync.Mutex // guards all fields below, and out
	bar     *terminal.Progress
	records int
	cut     []string // errors of files that ended early
}

// NewNotices returns Notices that print to w, usually the standard error of the program.
func NewNotices(program string, w io.Writer) *Notices { return &Notices{program: program, out: w} }

// Broken reports a record that could not be read.
func (n *Notices) Broken(b file.InputError) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if errors.Is(b, file.ErrCut) {
		n.cut = append(n.cut, b.Error())
		n.clear()
		fmt.Fprintf(n.out, "%s: %s\n", n.program, terminal.Printable(b.Error()))
		return
	}
	n.records++
	if n.records > MostBroken {
		return
	}
	n.clear()
	fmt.Fprintf(n.out, "%s: skipped %s\n", n.program, terminal.Printable(b.Error()))
}

// Progress returns a function that draws a progress bar for long input, or nil if the output is not a terminal.
func (n *Notices) Progress() func(file.Progress) {
	if !terminal.Is(n.out) {
		return nil
	}
	return func(p file.Progress) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if max(p.Read, p.Total) < longInput {
			return
		}
		if n.bar == nil {
			n.bar = terminal.NewProgress(n.out, "reading", units.Bytes)
		}
		n.bar.Set(p.Read, p.Total)
	}
}

// clear removes the bar from the terminal until it is drawn again.
func (n *Notices) clear() {
	if n.bar != nil {
		n.bar.Clear()
	}
}

// Close removes the progress bar, and prints the number of broken records beyond MostBroken.
func (n *Notices) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clear()
	if more := n.records - MostBroken; more > 0 {
		fmt.Fprintf(n.out, "%s: skipped %s in the same way\n", n.program, units.Plural(more, "more broken record"))
	}
}

// Cut returns the errors of files that ended early.
func (n *Notices) Cut() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.cut)
}

// Complete returns an error if a file ended early. Call it after writing the result. The notices have already reported
// the file.
func (n *Notices) Complete() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.cut) > 0 {
		return ExitCode(ExitError)
	}
	return nil
}

// RequireFiles is a [cobra.PositionalArgs] that requires at least one argument.
func RequireFiles(_ *cobra.Command, files []string) error {
	if len(files) == 0 {
		return errors.New("FILE is missing: name files or directories, or - for standard input")
	}
	return nil
}
