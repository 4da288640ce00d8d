package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// Choice is a flag whose value is one of a few words.
type Choice struct {
	Value string // one of among
	among []string
}

// NewChoice returns a choice among words; the first is the default.
func NewChoice(among ...string) *Choice { return &Choice{Value: among[0], among: among} }

// String implements pflag.Value.
func (c *Choice) String() string { return c.Value }

// mostNamed is the maximum number of choices that help shows in place of the value. If there are more, the flag's
// description lists them instead.
const mostNamed = 7

// Type implements pflag.Value; help shows it as the name of the value.
func (c *Choice) Type() string {
	if len(c.among) > mostNamed {
		return "name"
	}
	return strings.Join(c.among, "|")
}

// Set implements pflag.Value.
func (c *Choice) Set(s string) error {
	if !slices.Contains(c.among, s) {
		return fmt.Errorf("want one of %s", strings.Join(c.among, ", "))
	}
	c.Value = s
	return nil
}

// Flag adds c to the flags of a command, with completion.
func (c *Choice) Flag(to *cobra.Command, name, short, usage string) {
	if len(c.among) > mostNamed {
		usage += "; one of " + strings.Join(c.among, ", ")
	}
	to.Flags().VarP(c, name, short, usage)
	complete := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return c.among, cobra.ShellCompDirectiveNoFileComp
	}
	if err := to.RegisterFlagCompletionFunc(name, complete); err != nil {
		panic(err) // the flag was just added
	}
}

// Size is a flag for a number of bytes, like 512MiB.
type Size int64

// String implements pflag.Value.
func (s *Size) String() string { return units.Bytes(int64(*s)) }

// Type implements pflag.Value.
func (s *Size) Type() string { return "size" }

// Set implements pflag.Value.
func (s *Size) Set(text string) error {
	n, ok := units.ParseBytes(text)
	if !ok || n < 1 {
		return errors.New("want a size above 0 like 512MiB or 2GiB")
	}
	*s = Size(n)
	return nil
}

// Fraction is a flag for a number from 0 to 1.
type Fraction float64

// String implements pflag.Value.
func (f *Fraction) String() string { return strconv.FormatFloat(float64(*f), 'g', -1, 64) }

// Type implements pflag.Value.
func (f *Fraction) Type() string { return "fraction" }

// Set implements pflag.Value.
func (f *Fraction) Set(s string) error {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || !(x >= 0 && x <= 1) {
		return errors.New("want a number from 0 to 1")
	}
	*f = Fraction(x)
	return nil
}

// NonNegative is a flag for a duration that is not negative.
type NonNegative time.Duration

// String implements pflag.Value.
func (d *NonNegative) String() string { return time.Duration(*d).String() }

// Type implements pflag.Value.
func (d *NonNegative) Type() string { return "duration" }

// Set implements pflag.Value.
func (d *NonNegative) Set(s string) error {
	x, err := time.ParseDuration(s)
	if err != nil || x < 0 {
		return errors.New("want a duration of at least 0, like 1s or 250ms")
	}
	*d = NonNegative(x)
	return nil
}

// Workers is a flag for a number of goroutines.
type Workers int

// String implements pflag.Value.
func (w *Workers) String() string { return strconv.Itoa(int(*w)) }

// Type implements pflag.Value.
func (w *Workers) Type() string { return "int" }

// Set implements pflag.Value.
func (w *Workers) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > file.MaxWorkers {
		return fmt.Errorf("want a number from 0 to %d", file.MaxWorkers)
	}
	*w = Workers(n)
	return nil
}

// PathFlags are the flags that control how critical paths are extracted.
type PathFlags struct {
	async, tie, touching *Choice
	overlap              Fraction
	seeThrough           []string
}

// AddPathFlags adds the flags to c and returns them.
func AddPathFlags(c *cobra.Command) *PathFlags {
	f := &PathFlags{
		async: NewChoice("clamp", "ignore"), tie: NewChoice("earliest-start", "latest-start"),
		touching: NewChoice("inclusive", "strict"),
	}
	f.async.Flag(c, "async", "", "clamp children that outlive their parent to its end, or ignore them")
	f.tie.Flag(c, "tie", "", "tie break between children that end at the same time")
	f.touching.Flag(c, "touching", "", "inclusive: consecutive children may touch; strict: they may not")
	c.Flags().Var(&f.overlap, "overlap-tolerance",
		"largest overlap of two children on the path, as a fraction of their parent's duration")
	c.Flags().StringSliceVar(&f.seeThrough, "see-through", nil,
		"services that only forward calls, such as istio-proxy,envoy: the first span behind them answers the call")
	return f
}

// Options returns the options for critpath.NewExtractor.
func (f *PathFlags) Options() critpath.Options {
	var seeThrough []trace.Symbol
	for _, service := range f.seeThrough {
		seeThrough = append(seeThrough, trace.SymbolOf([]byte(service)))
	}
	return critpath.Options{
		SeeThrough:       seeThrough,
		IgnoreAsync:      f.async.Value == "ignore",
		OverlapTolerance: float64(f.overlap),
		LatestStart:      f.tie.Value == "latest-start",
		StrictTouching:   f.touching.Value == "strict",
	}
}
