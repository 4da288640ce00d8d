package main

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/internal/units"
)

// part is a benchmark with a file of results.
type part struct {
	name   string
	args   []string                           // of sibylbench; nil for the name alone
	render func(out []byte) (*content, error) // renders the JSON output of the benchmark
	plot   string                             // alternative text of the plot; "" without a plot
}

// content is the outcome of a benchmark.
type content struct {
	input string // description of the input; may be empty
	text  string // tables
	plot  []byte // SVG; nil without a plot
}

// parts lists all parts, the quick ones first.
var parts = []part{
	{name: "path", render: figures(pathFigures)},
	{name: "decode", render: figures(decodeFigures)},
	{name: "group", render: figures(groupFigures)},
	{name: "open", render: figures(openFigures)},
	{name: "search", render: figures(searchFigures)},
	{name: "kernel", render: figures(kernelFigures)},
	{name: "kernel-http", render: figures(kernelHTTPFigures)},
	{name: "size-model", render: figures(sizeFigures)},
	{name: "ingest", render: figures(ingestFigures)},
	{name: "overload", args: strings.Fields("overload --time 40s -- --learning 10s"), render: figures(overloadFigures)},
	{name: "control", render: figures(controlFigures)},
	{name: "overhead", render: overhead},
	{name: "demo", args: strings.Fields("demo --seeds 5"), render: demos},
	{name: "jvm", render: jvm},
	{
		name: "localize", args: strings.Fields("localize --seeds 16 --first-seed 20000 --tracepoints 2000"),
		render: localized,
		plot:   "For each strategy: faults ranked first with their interval, extra spans, epochs to the answer",
	},
	{
		name: "localize-small", args: strings.Fields(
			"localize --seeds 16 --first-seed 20000 --tracepoints 1000 --strategies adaptive,hierarchical"),
		render: localizedSmall,
	},
}

func partNames() []string {
	names := make([]string, len(parts))
	for i := range parts {
		names[i] = parts[i].name
	}
	return names
}

// command returns the arguments of sibylbench without the output format.
func (p *part) command() []string {
	if p.args == nil {
		return []string{p.name}
	}
	return p.args
}

// arguments returns the arguments of sibylbench. The output format precedes a --, because arguments after it are the
// server's.
func (p *part) arguments() []string {
	return slices.Insert(slices.Clone(p.command()), 1, "-o", "json")
}

// file returns the name of the file of results.
func (p *part) file() string { return p.name + ".md" }

// plotFile returns the name of the plot, which is in the same folder.
func (p *part) plotFile() string { return p.name + ".svg" }

// document returns the content of the file of results.
func (p *part) document(at *conditions, c *content) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "# %s\n%s\n\n", p.name, at)
	if c.input != "" {
		fmt.Fprintf(&out, "Input: %s.\n\n", c.input)
	}
	if c.plot != nil {
		fmt.Fprintf(&out, "![%s](%s)\n\n", p.plot, p.plotFile())
	}
	out.WriteString(c.text)
	return out.Bytes()
}

// figure is a row of a table: a measured value and its goal.
type figure struct {
	label    string
	row, key string // in the output of the benchmark
	unit     func(float64) string
	goal     goal
}

// goal is a bound on a figure. The zero value means that there is no goal.
type goal struct {
	sign  string // "≥", "≤", or "" without a goal
	bound float64
}

func atLeast(x float64) goal { return goal{"≥", x} }

func atMost(x float64) goal { return goal{"≤", x} }

// met returns the table cell for whether x meets the goal. x is NaN if it was not measured.
func (g goal) met(x float64) string {
	switch {
	case g.sign == "" || math.IsNaN(x):
		return units.Unknown
	case g.sign == "≥" && x >= g.bound, g.sign == "≤" && x <= g.bound:
		return "yes"
	}
	return "**no**"
}

// text returns the table cell of the goal.
func (g goal) text(unit func(float64) string) string {
	if g.sign == "" {
		return units.Unknown
	}
	return g.sign + " " + unit(g.bound)
}

// The following functions format figures.

func spans(x float64) string { return million(x) + " spans/s" }

func million(x float64) string { return units.Ratio(x/1e6) + " M" }

func nanos(x float64) string { return units.Duration(time.Duration(math.Round(x))) }

func seconds(x float64) string { return number(x) + " s" }

func times(x float64) string { return units.Ratio(x) + " ×" }

func gibibytes(x float64) string { return units.Ratio(x/(1<<30)) + " GiB" }

func byteCount(x float64) string { return units.Count(int(math.Round(x))) + " bytes" }

func number(x float64) string {
	if x == 0 {
		return "0"
	}
	return units.Ratio(x)
}

func percent(x float64) string { return units.Percent(x) }

// hundredths formats a fraction in percent with two decimals.
func hundredths(x float64) string { return fmt.Sprintf("%.2f %%", 100*x) }

// tenths formats a fraction in percent with one decimal.
func tenths(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }
