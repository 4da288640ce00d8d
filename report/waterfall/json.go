// Package waterfall writes a trace with its critical path: as a waterfall for a terminal, or as JSON.
package waterfall

import (
	"encoding/json"
	"io"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/trace"
)

type jsonTrace struct {
	TraceID  string       `json:"trace_id"`
	Flags    []string     `json:"flags"`
	Coverage jsonCoverage `json:"coverage"`
	Roots    []jsonRoot   `json:"roots"`
}

// jsonCoverage accounts for the spans of the trace. Its parts except Long add up to Received.
type jsonCoverage struct {
	Received trace.Part                  `json:"received"`
	Requests trace.Part                  `json:"requests"`
	Own      trace.Part                  `json:"requests_of_their_own"`
	Left     map[trace.Reason]trace.Part `json:"left_out"`
	Long     trace.Part                  `json:"long"`
}

type jsonRoot struct {
	SpanID      string           `json:"span_id"`
	DurationNS  int64            `json:"duration_ns"`
	Sections    []jsonSection    `json:"sections"`
	ExclusiveNS map[string]int64 `json:"exclusive_ns"`
	// Origin is the reason for the span being a root: "parentless", "below_missing" or "detached".
	Origin string `json:"origin"`
	// CallerID is the span that started a detached root, or that called the missing hop above the root. It may be
	// empty.
	CallerID string `json:"caller_id,omitempty"`
	WaitNS   *int64 `json:"wait_ns,omitempty"` // from the end of the caller to the start of a detached root
	// Refined holds the path including the spans of enabled tracepoints. It is empty if the root has no such spans.
	Refined []jsonSection `json:"refined,omitempty"`
}

type jsonSection struct {
	SpanID  string `json:"span_id"`
	StartNS int64  `json:"start_ns"`
	EndNS   int64  `json:"end_ns"`
}

// JSON writes p as a JSON object on one line. For each root, the primary root first, the object contains the sections
// of the critical path in time order, and the exclusive times that are above 0, by span. Times are in nanoseconds since
// the root's start, and identifiers in hexadecimal.
func JSON(w io.Writer, p *critpath.Path) error {
	t := jsonTrace{TraceID: p.Trace.ID.String(), Flags: p.Flags.Names(), Roots: []jsonRoot{}}
	if t.Flags == nil {
		t.Flags = []string{}
	}
	var c trace.Coverage
	p.Cover(&c)
	total := c.Total()
	t.Coverage = jsonCoverage{total.Received(), total.Requests, total.Own, total.Left, total.Long}
	if t.Coverage.Left == nil {
		t.Coverage.Left = map[trace.Reason]trace.Part{}
	}
	for i := range p.Roots {
		t.Roots = append(t.Roots, newJSONRoot(p, i))
	}
	return json.NewEncoder(w).Encode(t)
}

func newJSONRoot(p *critpath.Path, number int) jsonRoot {
	r := &p.Roots[number]
	root := &p.Nodes[r.Node]
	j := jsonRoot{
		SpanID:      root.ID.String(),
		DurationNS:  int64(p.Duration(r)),
		Sections:    jsonSections(p, root.Start, r.Sections),
		ExclusiveNS: make(map[string]int64),
		Origin:      r.Origin.String(),
		Refined:     jsonSections(p, root.Start, r.Refined),
	}
	if w, ok := p.Wait(number); ok {
		j.CallerID, j.WaitNS = p.Trace.Spans[r.From].ID.String(), new(int64(w.Time))
	} else if r.Gap >= 0 {
		j.CallerID = p.Nodes[r.Gap].ID.String()
	}
	for node, ns := range exclusive(r, r.Sections) {
		if ns > 0 {
			j.ExclusiveNS[p.Nodes[node].ID.String()] = ns
		}
	}
	return j
}

func jsonSections(p *critpath.Path, origin trace.Nanos, sections []critpath.Section) []jsonSection {
	list := make([]jsonSection, len(sections))
	for i, s := range sections {
		list[i] = jsonSection{p.Nodes[s.Node].ID.String(), int64(s.Start - origin), int64(s.End - origin)}
	}
	return list
}

// exclusive returns the time of each node on the path of r that sections describes, in nanoseconds. Overlapping time
// counts only once.
func exclusive(r *critpath.Root, sections []critpath.Section) map[int32]int64 {
	times := make(map[int32]int64)
	for _, s := range sections {
		times[s.Node] += int64(s.End - s.Start)
	}
	for _, o := range r.Overlaps {
		times[o.Node] -= int64(o.By)
	}
	return times
}
