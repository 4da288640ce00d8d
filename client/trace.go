package client

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// Trace returns a kept trace with its critical path.
func (c *Client) Trace(ctx context.Context, id string) (*contract.Trace, error) {
	r, err := c.api.GetTraceWithResponse(ctx, strings.ToLower(id))
	return body(c, r, err)
}

// Limits of a trace as text.
const (
	shownSpans    = 60
	unusualFrom   = 95 // percentile from which a span is longer than usual
	leastPathPart = 0.005
)

// ShowTrace writes a trace: the spans that carry its critical path, those that failed, and those longer than usual, in
// the order of their start.
func ShowTrace(w io.Writer, t *contract.Trace, style terminal.Style, _ time.Time) error {
	p := &page{style: style}
	p.printf("trace %s  %s, %s, %s\n", clean(t.ID), t.Start.UTC().Format(time.RFC3339), units.Duration(time.Duration(t.DurationNs)), units.Plural(len(t.Spans), "span"))
	for _, flag := range t.Flags {
		p.printf("  %s\n", clean(flag))
	}
	depth := depths(t.Spans)
	shown, left := 0, 0
	for i := range t.Spans {
		x := &t.Spans[i]
		telling := float64(x.ExclusiveNs) >= leastPathPart*float64(t.DurationNs) || x.Error || unusual(x)
		if !telling || shown == shownSpans {
			left++
			continue
		}
		shown++
		p.printf("%s%s\n", strings.Repeat("  ", min(depth[x.ID], 20)), spanText(x, t.DurationNs))
	}
	if left > 0 {
		p.printf("… and %s off the critical path, as long as usual\n", units.Plural(left, "more span"))
	}
	return p.flush(w)
}

// unusual reports whether a span is longer than nearly all of its operation.
func unusual(x *contract.Span) bool { return x.Percentile != nil && *x.Percentile >= unusualFrom }

// spanText describes a span of a trace of the given duration in ns.
func spanText(x *contract.Span, whole int64) string {
	text := fmt.Sprintf("%s %s (%s)  %s", clean(x.Service), clean(x.Name), clean(x.Kind), units.Duration(time.Duration(x.DurationNs)))
	if x.ExclusiveNs > 0 {
		text += fmt.Sprintf(", %s of its own on the critical path (%s of the request)", units.Duration(time.Duration(x.ExclusiveNs)), units.Percent(float64(x.ExclusiveNs)/float64(max(whole, 1))))
	}
	if unusual(x) {
		text += fmt.Sprintf(", longer than %s of such spans", units.Percentile(*x.Percentile))
	}
	if x.Error {
		text += ", FAILED"
	}
	var attributes []string
	for _, a := range x.Attributes {
		attributes = append(attributes, clean(a.Key)+"="+clean(a.Value))
	}
	if len(attributes) > 0 {
		text += "  [" + strings.Join(attributes, " ") + "]"
	}
	return text
}

// depths returns the number of spans above each span, by ID. Spans are in the order of their start, but a parent may
// start later.
func depths(spans []contract.Span) map[string]int {
	parent := make(map[string]string, len(spans))
	for i := range spans {
		parent[spans[i].ID] = spans[i].Parent
	}
	depth := make(map[string]int, len(spans))
	for i := range spans {
		var path []string
		at := spans[i].ID
		for at != "" && !slices.Contains(path, at) {
			if _, known := depth[at]; known {
				break
			}
			path = append(path, at)
			at = parent[at]
		}
		below, known := depth[at]
		if !known {
			below = -1
		}
		for k, id := range slices.Backward(path) {
			depth[id] = below + len(path) - k
		}
	}
	return depth
}
