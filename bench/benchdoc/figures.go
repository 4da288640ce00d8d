package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/sibyl-trace/sibyl/internal/units"
)

const giB = 1 << 30

var pathFigures = []figure{
	{"traces of 50 spans, after decoding", "50 spans per trace", "spans_per_second", spans, atLeast(5e6)},
	{"allocations per trace", "50 spans per trace", "allocations_per_trace", number, atMost(0)},
	{"one trace of 100 000 spans, wide", "one trace of 100\u202f000 spans, wide", "ns_per_trace", nanos, atMost(100e6)},
	{"deep", "one trace of 100\u202f000 spans, deep", "ns_per_trace", nanos, atMost(100e6)},
	{"mixed", "one trace of 100\u202f000 spans, mixed", "ns_per_trace", nanos, atMost(100e6)},
	{
		"one trace of 1 000 000 spans, wide",
		"one trace of 1\u202f000\u202f000 spans, wide", "ns_per_trace", nanos, atMost(1e9),
	},
	{"deep", "one trace of 1\u202f000\u202f000 spans, deep", "ns_per_trace", nanos, atMost(1e9)},
	{"mixed", "one trace of 1\u202f000\u202f000 spans, mixed", "ns_per_trace", nanos, atMost(1e9)},
}

var decodeFigures = []figure{
	{"OTLP protobuf, 8 keys wanted", "protobuf, 8 keys wanted", "spans_per_second", spans, goal{}},
	{"relative to pdata", "protobuf, ours ÷ pdata", "ratio_with_keys", times, atLeast(5)},
	{"OTLP protobuf, without keys", "protobuf, no attributes wanted", "spans_per_second", spans, goal{}},
	{"relative to pdata", "protobuf, ours ÷ pdata", "ratio", times, atLeast(5)},
	{"pdata, protobuf", "protobuf, pdata", "spans_per_second", spans, goal{}},
	{"OTLP/JSON, 8 keys wanted", "JSON, 8 keys wanted", "spans_per_second", spans, goal{}},
	{"relative to pdata", "JSON, ours ÷ pdata", "ratio_with_keys", times, goal{}},
}

var groupFigures = []figure{
	{"from a trace of 50 spans to its observation", "trace to observation", "ns_per_observation", nanos, goal{}},
	{"from an observation to statistics", "observation to statistics", "ns_per_observation", nanos, atMost(2000)},
	{"from bytes to statistics, 8 keys wanted", "bytes to statistics", "spans_per_second", spans, atLeast(1e6)},
	{
		"100 000 groups of 20 edges, each with ten windows of history",
		"100\u202f000 groups of 20 edges", "bytes", gibibytes, atMost(4 * giB),
	},
	{"judging all of these groups", "judging all groups", "ns", nanos, goal{}},
}

var openFigures = []figure{
	{"memory per span, open traces of 1 span", "traces of 1 span", "bytes_per_span", byteCount, goal{}},
	{"beyond its encoded size", "traces of 1 span", "bytes_beyond_wire", byteCount, atMost(300)},
	{"memory per span, traces of 8 spans", "traces of 8 spans", "bytes_per_span", byteCount, goal{}},
	{"beyond its encoded size", "traces of 8 spans", "bytes_beyond_wire", byteCount, atMost(300)},
	{"memory per span, traces of 64 spans", "traces of 64 spans", "bytes_per_span", byteCount, goal{}},
	{"beyond its encoded size", "traces of 64 spans", "bytes_beyond_wire", byteCount, atMost(300)},
}

var searchFigures = []figure{
	{"`adaptive`, first decision about a problem", "adaptive", "ns_per_decision", nanos, atMost(50e6)},
	{"the next decision", "adaptive", "ns_per_next_decision", nanos, atMost(50e6)},
	{"`hierarchical`, first decision", "hierarchical", "ns_per_decision", nanos, atMost(50e6)},
	{
		"`adaptive` with all nodes below one edge, first decision",
		"adaptive, all nodes below one edge", "ns_per_decision", nanos, atMost(50e6),
	},
	{"the next decision", "adaptive, all nodes below one edge", "ns_per_next_decision", nanos, atMost(50e6)},
	{"building the tree", "building the tree", "ns_per_build", nanos, goal{}},
}

var sizeFigures = []figure{
	{"transfers within one packet: accuracy", "ours, within one packet", "accuracy", hundredths, atLeast(0.99)},
	{"precision on delayed", "ours, within one packet", "precision_delayed", hundredths, atLeast(0.95)},
	{"transfers of up to 20 packets: accuracy", "ours, up to 20 packets", "accuracy", hundredths, atLeast(0.99)},
	{"precision on delayed", "ours, up to 20 packets", "precision_delayed", hundredths, atLeast(0.95)},
	{
		"folded model of the literature, within one packet: accuracy",
		"folded, within one packet", "accuracy", hundredths,
		goal{},
	},
	{"precision on delayed", "folded, within one packet", "precision_delayed", hundredths, goal{}},
	{"folded model, up to 20 packets: accuracy", "folded, up to 20 packets", "accuracy", hundredths, goal{}},
	{"precision on delayed", "folded, up to 20 packets", "precision_delayed", hundredths, goal{}},
}

var ingestFigures = []figure{
	{"accepted spans, durable and analysed", "accepted", "spans_per_second", spans, atLeast(0.4e6)},
	{"server CPU per million spans", "server CPU", "cpu_seconds_per_million_spans", seconds, atMost(2)},
	{"peak server memory", "peak server memory", "peak_bytes", gibibytes, atMost(2 * giB)},
	{"fsyncs", "journal", "fsyncs", number, goal{}},
	{"journal per span", "journal", "journal_bytes_per_span", byteCount, goal{}},
}

var overloadFigures = []figure{
	{"capacity, the server on one core", "capacity", "taken_spans_per_second", spans, goal{}},
	{"offered load relative to the capacity", "overload", "ratio", times, atLeast(3)},
	{"accepted under overload", "overload", "taken_spans_per_second", spans, goal{}},
	{"refused requests", "refused", "refused", number, goal{}},
	{"refused without a retry delay", "refused", "without_hint", number, atMost(0)},
	{"GET /api/v1/problems under overload, median", "GET /api/v1/problems", "p50_ns", nanos, goal{}},
	{"p99", "GET /api/v1/problems", "p99_ns", nanos, atMost(200e6)},
	{"peak server memory", "peak server memory", "peak_bytes", gibibytes, atMost(2 * giB)},
	{"last refusal after the overload", "last refusal after the overload", "seconds", seconds, atMost(10)},
	{
		"accepted at half the capacity afterwards",
		"last refusal after the overload", "taken_spans_per_second", spans,
		goal{},
	},
}

var controlFigures = []figure{
	{"all agents connect", "all agents connect", "connect_seconds", seconds, goal{}},
	{
		"a changed plan reaches all agents, median",
		"a changed plan reaches all agents", "median_seconds", seconds, atMost(2),
	},
	{"maximum", "a changed plan reaches all agents", "longest_seconds", seconds, atMost(2)},
	{
		"server CPU per change, including reports",
		"a changed plan reaches all agents", "server_cpu_seconds", seconds,
		goal{},
	},
	{"peak server memory", "peak server memory", "peak_bytes", gibibytes, atMost(2 * giB)},
	{"all agents are back after a kill of the server", "restart after a kill", "converged_seconds", seconds, goal{}},
	{"requests per agent", "restart after a kill", "requests_per_agent", number, goal{}},
	{"requests in the busiest second", "restart after a kill", "busiest_second_requests", number, goal{}},
}

var kernelFigures = []figure{
	{"CPU time of a round trip, nothing attached", "nothing attached", "round_trip_ns", units.Nanos, goal{}},
	{"another process observed: added", "another process observed", "added", units.Percent, atMost(0.08)},
	{"observed, sums: added", "observed: sums", "added", units.Percent, goal{}},
	{"observed, sums and stacks: added", "observed: sums and stacks", "added", units.Percent, atMost(0.20)},
	{
		"observed, an event for every wait, too: added",
		"observed: sums, stacks, and an event for every wait", "added", units.Percent,
		goal{},
	},
	{
		"observed, the span of every wait by goroutine labels, too: added",
		"observed: the same, and the span of every wait by goroutine labels", "added", units.Percent,
		goal{},
	},
}

var kernelHTTPFigures = []figure{
	{"CPU time of a request, nothing attached", "nothing attached", "request_ns", units.Nanos, goal{}},
	{"another process observed: added", "another process observed", "added", units.Percent, goal{}},
	{
		"adaptive probes (five classes, single waits from 100 µs on, stacks): added",
		"adaptive probes", "added", units.Percent, atMost(0.02),
	},
	{
		"adaptive probes: time of all probes on the machine, compared to a request",
		"adaptive probes", "probes", units.Percent,
		goal{},
	},
	{"all classes: added", "all classes", "added", units.Percent, goal{}},
}

// benchmarkResult is the JSON output of the benchmarks in package throughput.
type benchmarkResult struct {
	Input   string           `json:"input"`
	Results []map[string]any `json:"results"`
}

// value returns a figure, or NaN if it is missing.
func (b *benchmarkResult) value(row, key string) float64 {
	for _, r := range b.Results {
		if x, ok := r[key].(float64); ok && r["name"] == row {
			return x
		}
	}
	return math.NaN()
}

// figures returns a function that renders the JSON output of a benchmark as a table of the given figures. A missing
// figure becomes a dash; it is an error if all are missing.
func figures(lines []figure) func([]byte) (*content, error) {
	return func(out []byte) (*content, error) {
		var b benchmarkResult
		if err := json.Unmarshal(out, &b); err != nil {
			return nil, err
		}
		var rows [][]string
		known := false
		for _, f := range lines {
			x := b.value(f.row, f.key)
			known = known || !math.IsNaN(x)
			rows = append(rows, goalRow(f.label, x, f.unit, f.goal))
		}
		if !known {
			return nil, errors.New("it has none of the figures")
		}
		return &content{input: b.Input, text: table(goalHeader, rows)}, nil
	}
}

// goalRow returns the row of a figure in a table with goalHeader. x is NaN if it was not measured.
func goalRow(label string, x float64, unit func(float64) string, g goal) []string {
	text := units.Unknown
	if !math.IsNaN(x) {
		text = unit(x)
	}
	return []string{label, text, g.text(unit), g.met(x)}
}

var goalHeader = []string{"", "figure", "goal", "met"}

// table returns a Markdown table.
func table(header []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(header)
	b.WriteString(strings.Repeat("|---", len(header)) + "|\n")
	for _, row := range rows {
		line(row)
	}
	return b.String()
}
