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

// part is a block of the document.
type part struct {
	name   string
	args   []string                        // of sibylbench; none: the name
	render func(out []byte) (*page, error) // of what it writes as JSON
	plot   string                          // what its plot shows, for those who do not see it; "": it has none
}

// page is what a part has to show.
type page struct {
	input string // what was worked on; "": nothing to say
	text  string // tables
	plot  []byte // SVG; nil: none
}

// parts holds all of them, quick ones first.
var parts = []part{
	{name: "path", render: figures(pathFigures)},
	{name: "decode", render: figures(decodeFigures)},
	{name: "group", render: figures(groupFigures)},
	{name: "open", render: figures(openFigures)},
	{name: "search", render: figures(searchFigures)},
	{name: "size-model", render: figures(sizeFigures)},
	{name: "ingest", args: strings.Fields("ingest --time 20s -- --learning 10s"), render: figures(ingestFigures)},
	{name: "overload", args: strings.Fields("overload --time 40s -- --learning 10s"), render: figures(overloadFigures)},
	{name: "control", render: figures(controlFigures)},
	{name: "overhead", render: overhead},
	{name: "demo", args: strings.Fields("demo --seeds 5"), render: demos},
	{
		name: "localize", args: strings.Fields("localize --seeds 16 --first-seed 20000 --tracepoints 2000"), render: localized,
		plot: "For each strategy: faults ranked first with their interval, extra spans, epochs to the answer",
	},
	{
		name: "localize-small", args: strings.Fields("localize --seeds 16 --first-seed 20000 --tracepoints 1000 --strategies adaptive,hierarchical"),
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

// command returns the arguments of sibylbench, but for the format.
func (p *part) command() []string {
	if p.args == nil {
		return []string{p.name}
	}
	return p.args
}

// asked returns the arguments of sibylbench. The format stands in front: what follows -- is not for the benchmark
// itself.
func (p *part) asked() []string { return slices.Insert(slices.Clone(p.command()), 1, "-o", "json") }

// plotFile is where the plot is, from the document.
func (p *part) plotFile() string { return "images/bench-" + p.name + ".svg" }

// block returns the content of the block.
func (p *part) block(at *circumstances, b *page) string {
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s\n\n", at)
	if b.input != "" {
		fmt.Fprintf(&out, "Input: %s.\n\n", b.input)
	}
	if b.plot != nil {
		fmt.Fprintf(&out, "![%s](%s)\n\n", p.plot, p.plotFile())
	}
	out.WriteString(b.text)
	return out.String()
}

// figure is a line of a table: something that was measured, and what it should be.
type figure struct {
	what     string
	row, key string // where the result has it
	unit     func(float64) string
	goal     goal
}

// goal is what a figure should be at least or at most. The zero goal is none.
type goal struct {
	sign  string // "≥", "≤", or "" for none
	bound float64
}

func atLeast(x float64) goal { return goal{"≥", x} }

func atMost(x float64) goal { return goal{"≤", x} }

// met says whether x, which is NaN if it was not measured, is as it should be.
func (g goal) met(x float64) string {
	switch {
	case g.sign == "" || math.IsNaN(x):
		return units.Unknown
	case g.sign == "≥" && x >= g.bound, g.sign == "≤" && x <= g.bound:
		return "yes"
	}
	return "**no**"
}

// text returns the goal as the table has it.
func (g goal) text(unit func(float64) string) string {
	if g.sign == "" {
		return units.Unknown
	}
	return g.sign + " " + unit(g.bound)
}

// Units of figures.

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

// fine returns a fraction with two decimals: of one that is nearly all, and of one that is small.
func fine(x float64) string { return fmt.Sprintf("%.2f %%", 100*x) }

// tenths returns a fraction with one decimal.
func tenths(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }
