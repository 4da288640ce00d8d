package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// choice is a flag whose value is one of a few words; the first is the default.
type choice struct {
	value string
	among []string
}

func newChoice(among ...string) *choice { return &choice{value: among[0], among: among} }

// String implements pflag.Value.
func (c *choice) String() string { return c.value }

// Type implements pflag.Value; help shows it as the name of the value.
func (c *choice) Type() string { return strings.Join(c.among, "|") }

// Set implements pflag.Value.
func (c *choice) Set(s string) error {
	if !slices.Contains(c.among, s) {
		return fmt.Errorf("want one of %s", strings.Join(c.among, ", "))
	}
	c.value = s
	return nil
}

// flag adds c to the flags of a command, with completion.
func (c *choice) flag(to *cobra.Command, name, short, usage string) {
	to.Flags().VarP(c, name, short, usage)
	complete := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return c.among, cobra.ShellCompDirectiveNoFileComp
	}
	if err := to.RegisterFlagCompletionFunc(name, complete); err != nil {
		panic(err) // the flag was just added
	}
}

// size is a flag for a number of bytes, like 512MiB.
type size int64

// String implements pflag.Value.
func (s *size) String() string { return units.Bytes(int64(*s)) }

// Type implements pflag.Value.
func (s *size) Type() string { return "size" }

// Set implements pflag.Value.
func (s *size) Set(text string) error {
	n, ok := units.ParseBytes(text)
	if !ok || n < 1 {
		return errors.New("want a size above 0 like 512MiB or 2GiB")
	}
	*s = size(n)
	return nil
}

// fraction is a flag for a number from 0 to 1.
type fraction float64

// String implements pflag.Value.
func (f *fraction) String() string { return strconv.FormatFloat(float64(*f), 'g', -1, 64) }

// Type implements pflag.Value.
func (f *fraction) Type() string { return "fraction" }

// Set implements pflag.Value.
func (f *fraction) Set(s string) error {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || !(x >= 0 && x <= 1) {
		return errors.New("want a number from 0 to 1")
	}
	*f = fraction(x)
	return nil
}

// atLeastZero is a flag for a duration that is not negative.
type atLeastZero time.Duration

// String implements pflag.Value.
func (d *atLeastZero) String() string { return time.Duration(*d).String() }

// Type implements pflag.Value.
func (d *atLeastZero) Type() string { return "duration" }

// Set implements pflag.Value.
func (d *atLeastZero) Set(s string) error {
	x, err := time.ParseDuration(s)
	if err != nil || x < 0 {
		return errors.New("want a duration of at least 0, like 1s or 250ms")
	}
	*d = atLeastZero(x)
	return nil
}

// workers is a flag for a number of goroutines.
type workers int

// String implements pflag.Value.
func (w *workers) String() string { return strconv.Itoa(int(*w)) }

// Type implements pflag.Value.
func (w *workers) Type() string { return "int" }

// Set implements pflag.Value.
func (w *workers) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > file.MaxWorkers {
		return fmt.Errorf("want a number from 0 to %d", file.MaxWorkers)
	}
	*w = workers(n)
	return nil
}

// pathFlags are the options of critical paths.
type pathFlags struct {
	async, tie, touching *choice
	overlap              fraction
	maxSkew              atLeastZero
}

func addPathFlags(c *cobra.Command) *pathFlags {
	f := &pathFlags{
		async: newChoice("clamp", "ignore"), tie: newChoice("earliest-start", "latest-start"),
		touching: newChoice("inclusive", "strict"), maxSkew: atLeastZero(analysis.DefaultOptions().MaxSkew),
	}
	f.async.flag(c, "async", "", "children that outlive their parent: cut them to it, or leave them off the path")
	f.tie.flag(c, "tie", "", "which of two children that end together is on the path")
	f.touching.flag(c, "touching", "", "whether a child may end exactly when the next one starts")
	c.Flags().Var(&f.overlap, "overlap-tolerance", "by what part of their parent's duration two children on the path may overlap")
	c.Flags().Var(&f.maxSkew, "max-skew", "largest difference of two hosts' clocks that is corrected; 0: none")
	return f
}

func (f *pathFlags) options() analysis.Options {
	return analysis.Options{
		MaxSkew:          time.Duration(f.maxSkew),
		IgnoreAsync:      f.async.value == "ignore",
		OverlapTolerance: float64(f.overlap),
		LatestStart:      f.tie.value == "latest-start",
		StrictTouching:   f.touching.value == "strict",
	}
}
