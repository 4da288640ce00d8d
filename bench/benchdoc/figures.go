package main

import (
	"encoding/json"
	"errors"
	"math"

	"github.com/sibyl-trace/sibyl/internal/units"
)

const giB = 1 << 30

var pathFigures = []figure{
	{"traces of 50 spans, after decoding", "50 spans a trace", "spans_per_second", spans, atLeast(5e6)},
	{"the same: allocations a trace", "50 spans a trace", "allocations_per_trace", number, atMost(0)},
	{"one trace of 100 000 spans, wide", "one trace of 100\u202f000 spans, wide", "ns_per_trace", nanos, atMost(100e6)},
	{"deep", "one trace of 100\u202f000 spans, deep", "ns_per_trace", nanos, atMost(100e6)},
	{"mixed", "one trace of 100\u202f000 spans, mixed", "ns_per_trace", nanos, atMost(100e6)},
	{"one trace of 1 000 000 spans, wide", "one trace of 1\u202f000\u202f000 spans, wide", "ns_per_trace", nanos, atMost(1e9)},
	{"deep", "one trace of 1\u202f000\u202f000 spans, deep", "ns_per_trace", nanos, atMost(1e9)},
	{"mixed", "one trace of 1\u202f000\u202f000 spans, mixed", "ns_per_trace", nanos, atMost(1e9)},
}

var decodeFigures = []figure{
	{"OTLP protobuf, 8 keys wanted", "protobuf, 8 keys wanted", "spans_per_second", spans, goal{}},
	{"the same to pdata", "protobuf, ours ÷ pdata", "ratio_with_keys", times, atLeast(5)},
	{"OTLP protobuf, without keys", "protobuf, no attributes wanted", "spans_per_second", spans, goal{}},
	{"the same to pdata", "protobuf, ours ÷ pdata", "ratio", times, atLeast(5)},
	{"pdata, protobuf", "protobuf, pdata", "spans_per_second", spans, goal{}},
	{"OTLP/JSON, 8 keys wanted", "JSON, 8 keys wanted", "spans_per_second", spans, goal{}},
	{"the same to pdata", "JSON, ours ÷ pdata", "ratio_with_keys", times, goal{}},
}

var groupFigures = []figure{
	{"a trace of 50 spans to its observation", "trace to observation", "ns_per_observation", nanos, goal{}},
	{"an observation to statistics", "observation to statistics", "ns_per_observation", nanos, atMost(2000)},
	{"from bytes to statistics, 8 keys wanted", "bytes to statistics", "spans_per_second", spans, atLeast(1e6)},
	{"100 000 groups of 20 edges, each with ten windows of its past", "100\u202f000 groups of 20 edges", "bytes", gibibytes, atMost(4 * giB)},
	{"all of them judged", "all of them judged", "ns", nanos, goal{}},
	{"10 000 problems ranked", "10\u202f000 problems ranked", "ns", nanos, atMost(100e6)},
}

var openFigures = []figure{
	{"a span in open traces of one span", "traces of 1 span", "bytes_per_span", byteCount, goal{}},
	{"the same beyond what it takes on the wire", "traces of 1 span", "bytes_beyond_wire", byteCount, atMost(300)},
	{"of 8 spans", "traces of 8 spans", "bytes_per_span", byteCount, goal{}},
	{"beyond the wire", "traces of 8 spans", "bytes_beyond_wire", byteCount, atMost(300)},
	{"of 64 spans", "traces of 64 spans", "bytes_per_span", byteCount, goal{}},
	{"beyond the wire", "traces of 64 spans", "bytes_beyond_wire", byteCount, atMost(300)},
}

var searchFigures = []figure{
	{"`adaptive`, the first decision about a problem", "adaptive", "ns_per_decision", nanos, atMost(50e6)},
	{"the next one", "adaptive", "ns_per_next_decision", nanos, atMost(50e6)},
	{"`hierarchical`, the first decision", "hierarchical", "ns_per_decision", nanos, atMost(50e6)},
	{"`adaptive` with all nodes below one edge, the first", "adaptive, all nodes below one edge", "ns_per_decision", nanos, atMost(50e6)},
	{"the next one", "adaptive, all nodes below one edge", "ns_per_next_decision", nanos, atMost(50e6)},
	{"building the tree", "building the tree", "ns_per_build", nanos, goal{}},
}

var sizeFigures = []figure{
	{"within one packet, transfers told right", "ours, within one packet", "accuracy", fine, atLeast(0.99)},
	{"precision on delayed", "ours, within one packet", "precision_delayed", fine, atLeast(0.95)},
	{"up to 20 packets, told right", "ours, up to 20 packets", "accuracy", fine, atLeast(0.99)},
	{"precision on delayed", "ours, up to 20 packets", "precision_delayed", fine, atLeast(0.95)},
	{"by the folded model of the literature, within one packet", "folded, within one packet", "accuracy", fine, goal{}},
	{"precision on delayed", "folded, within one packet", "precision_delayed", fine, goal{}},
	{"up to 20 packets", "folded, up to 20 packets", "accuracy", fine, goal{}},
	{"precision on delayed", "folded, up to 20 packets", "precision_delayed", fine, goal{}},
}

var ingestFigures = []figure{
	{"spans taken, durable and analysed", "taken", "spans_per_second", spans, atLeast(0.4e6)},
	{"CPU of the server for a million spans", "server's CPU", "cpu_seconds_per_million_spans", seconds, atMost(2)},
	{"memory at the peak", "server's memory at the peak", "peak_bytes", gibibytes, atMost(2 * giB)},
	{"fsyncs", "journal", "fsyncs", number, goal{}},
	{"journal, of a span", "journal", "journal_bytes_per_span", byteCount, goal{}},
}

var overloadFigures = []figure{
	{"capacity, the server on one core", "capacity", "taken_spans_per_second", spans, goal{}},
	{"offered, to the capacity", "overload", "ratio", times, atLeast(3)},
	{"taken meanwhile", "overload", "taken_spans_per_second", spans, goal{}},
	{"requests refused", "refused", "refused", number, goal{}},
	{"of them without a time to wait", "refused", "without_hint", number, atMost(0)},
	{"GET /api/v1/problems meanwhile, median", "GET /api/v1/problems", "p50_ns", nanos, goal{}},
	{"99 in 100 of them", "GET /api/v1/problems", "p99_ns", nanos, atMost(200e6)},
	{"memory at the peak", "server's memory at the peak", "peak_bytes", gibibytes, atMost(2 * giB)},
	{"last refusal after the overload", "last refusal after the overload", "seconds", seconds, atMost(10)},
	{"taken right afterwards", "last refusal after the overload", "taken_spans_per_second", spans, goal{}},
}

var controlFigures = []figure{
	{"all agents connect", "all agents connect", "connect_seconds", seconds, goal{}},
	{"a change of the plan reaches all, median", "a change of the plan reaches all", "median_seconds", seconds, atMost(2)},
	{"at most", "a change of the plan reaches all", "longest_seconds", seconds, atMost(2)},
	{"CPU of the server for a change, reports included", "a change of the plan reaches all", "server_cpu_seconds", seconds, goal{}},
	{"memory of the server at the peak", "server's memory at the peak", "peak_bytes", gibibytes, atMost(2 * giB)},
	{"all agents are back after the server was killed", "the server was killed and is back", "converged_seconds", seconds, goal{}},
	{"requests an agent", "the server was killed and is back", "requests_per_agent", number, goal{}},
	{"requests in the busiest second", "the server was killed and is back", "busiest_second_requests", number, goal{}},
}

// measured is what the benchmarks of speed write.
type measured struct {
	Input   string           `json:"input"`
	Results []map[string]any `json:"results"`
}

// value returns a figure; NaN if there is none.
func (m *measured) value(row, key string) float64 {
	for _, r := range m.Results {
		if x, ok := r[key].(float64); ok && r["name"] == row {
			return x
		}
	}
	return math.NaN()
}

// figures returns what renders a result as a table with these lines. A figure that the result does not have is a dash:
// what else was measured counts.
func figures(lines []figure) func([]byte) (*page, error) {
	return func(out []byte) (*page, error) {
		var m measured
		if err := json.Unmarshal(out, &m); err != nil {
			return nil, err
		}
		var rows [][]string
		known := false
		for _, f := range lines {
			x := m.value(f.row, f.key)
			known = known || !math.IsNaN(x)
			rows = append(rows, judged(f.what, x, f.unit, f.goal))
		}
		if !known {
			return nil, errors.New("none of the figures is in it")
		}
		return &page{input: m.Input, text: table(goalHeader, rows)}, nil
	}
}

// judged returns the line of a figure; x is NaN if it was not measured.
func judged(what string, x float64, unit func(float64) string, g goal) []string {
	text := units.Unknown
	if !math.IsNaN(x) {
		text = unit(x)
	}
	return []string{what, text, g.text(unit), g.met(x)}
}

var goalHeader = []string{"", "figure", "goal", "met"}
