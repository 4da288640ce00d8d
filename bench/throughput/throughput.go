// Package throughput measures the speed of Sibyl's parts and of the whole service, and the accuracy of its size model.
// sibylbench prints the results.
//
// Benchmarks of parts generate their input in memory before the clock starts: at least [InputBytes] of distinct traces,
// more than fits into caches. Each measurement runs on one goroutine and one core, so it includes the collection of its
// garbage.
package throughput

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sibyl-trace/sibyl/internal/units"
)

// InputBytes is the default size of the input of a measurement, many times the size of a core's caches.
const InputBytes = 64 << 20

// Options configures a benchmark.
type Options struct {
	Bytes int           // minimum size of the input; 0: InputBytes
	Time  time.Duration // minimum duration of a measurement; 0: a second
	Seed  uint64        // of the generated input
	Small bool          // shrink inputs whose size does not depend on Bytes, for tests
	// Service is the command that runs [Serve]. It is a hidden command of this program by default.
	Service []string
}

func (o Options) withDefaults() Options {
	if o.Bytes == 0 {
		o.Bytes = InputBytes
	}
	if o.Time == 0 {
		o.Time = time.Second
	}
	return o
}

// Result is the outcome of one benchmark.
type Result struct {
	Benchmark string
	Input     string // description for people
	Rows      []Row
}

// Row is one measurement.
type Row struct {
	Name   string
	Values []Value
}

// Value is one figure of a row.
type Value struct {
	Key    string // in JSON, with the unit
	Number float64
	Text   string // for people
}

// JSON writes r as one JSON object.
func (r *Result) JSON(w io.Writer) error {
	rows := make([]map[string]any, 0, len(r.Rows))
	for _, row := range r.Rows {
		m := map[string]any{"name": row.Name}
		for _, v := range row.Values {
			m[v.Key] = v.Number
		}
		rows = append(rows, m)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(map[string]any{"benchmark": r.Benchmark, "input": r.Input, "results": rows})
}

// Table writes r as a table for terminals.
func (r *Result) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintf(t, "%s: %s\n", r.Benchmark, r.Input)
	for _, row := range r.Rows {
		texts := make([]string, len(row.Values))
		for i, v := range row.Values {
			texts[i] = v.Text
		}
		fmt.Fprintf(t, "  %s\t%s\n", row.Name, strings.Join(texts, "\t"))
	}
	return t.Flush()
}

func (r *Result) add(name string, values ...Value) { r.Rows = append(r.Rows, Row{name, values}) }

// cost is the cost of one pass over the input.
type cost struct {
	time   time.Duration // of the fastest pass
	allocs float64       // mean
}

// measure calls pass, which processes the input once, first to warm up and then repeatedly for o.Time. It takes the
// time of the fastest pass, because other work on the machine only makes passes slower. It returns an error if ctx ends
// or a pass fails.
func (o Options) measure(ctx context.Context, pass func() error) (cost, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if err := pass(); err != nil {
		return cost{}, err
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fastest, passes := time.Duration(math.MaxInt64), 0
	for begin := time.Now(); passes == 0 || time.Since(begin) < o.Time; passes++ {
		if err := ctx.Err(); err != nil {
			return cost{}, err
		}
		start := time.Now()
		if err := pass(); err != nil {
			return cost{}, err
		}
		fastest = min(fastest, time.Since(start))
	}
	runtime.ReadMemStats(&after)
	return cost{max(fastest, 1), float64(after.Mallocs-before.Mallocs) / float64(passes)}, nil
}

// rate returns the number of items per second of a pass over n items.
func (c cost) rate(n int, key, noun string) Value {
	x := float64(n) / c.time.Seconds()
	return Value{key, x, millions(x) + " " + noun + "/s"}
}

// each returns the time per item of a pass over n items.
func (c cost) each(n int, key, noun string) Value {
	x := float64(c.time) / float64(n)
	return Value{key, x, units.Nanos(x) + "/" + noun}
}

// allocated returns the allocations per item of a pass over n items.
func (c cost) allocated(n int, key, noun string) Value {
	x := c.allocs / float64(n)
	return Value{key, x, units.Ratio(x) + " allocations/" + noun}
}

// millions formats x like "7.4 M".
func millions(x float64) string {
	switch {
	case x >= 1e5:
		return units.Ratio(x/1e6) + " M"
	case x >= 1e3:
		return units.Ratio(x/1e3) + " k"
	}
	return units.Ratio(x)
}

// mebibytes formats a number of bytes.
func mebibytes(n int) string { return units.Count(n>>20) + " MiB" }
