package client

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// Traces returns up to `most` kept traces that match q, in the order that q selects. If `most` is 0, it returns all.
func (c *Client) Traces(ctx context.Context, q contract.ListTracesParams, most int) (*contract.TraceList, error) {
	return getPages(ctx, c, q, most, func(l *contract.TraceList) (*[]contract.KeptTrace, *string) {
		return &l.Items, l.NextCursor
	}, "traces")
}

// Trace returns the kept trace with the given name, including its critical path. The name is an ID or a prefix of an
// ID.
func (c *Client) Trace(ctx context.Context, name string) (*contract.Trace, error) {
	id := strings.ToLower(name)
	if !longID.MatchString(id) {
		var err error
		if id, err = findTrace(ctx, c, id); err != nil {
			return nil, err
		}
	}
	return Get[contract.Trace](ctx, c, nil, "traces", id)
}

// tracePrefix matches the ID of a trace, or a prefix of one.
var tracePrefix = regexp.MustCompile("^[0-9a-f]{1,32}$")

// ShowTraces writes the kept traces in list, in this order.
func ShowTraces(w io.Writer, list *contract.TraceList, style terminal.Style, _ time.Time) error {
	p := &page{style: style}
	if len(list.Items) == 0 {
		p.printf("No kept trace matches. Sibyl keeps samples only: your tracing backend may have it.\n")
		for _, l := range list.Links {
			p.printf("  %s  %s\n", clean(l.Name), clean(l.URL))
		}
		return p.flush(w)
	}
	const id = 10
	row := func(name, start, duration, spans, failed, request string) string {
		return terminal.PadRight(name, id) + terminal.PadRight(start, 21) + terminal.PadLeft(duration, 8) +
			terminal.PadLeft(spans, 7) + terminal.PadLeft(failed, 8) + "  " + request
	}
	p.printf("%s\n", p.dim(row("ID", "STARTED", "TOOK", "SPANS", "FAILED", "REQUEST")))
	for i := range list.Items {
		x := &list.Items[i]
		line := row(x.ID[:8], x.Start.Local().Format(time.DateTime), units.Nanos(float64(x.DurationNs)),
			units.Count(x.Spans), units.Count(x.Errors), "")
		p.printf("%s%s\n", line, terminal.Shorten(clean(x.Service+" "+x.Operation), style.Line()-terminal.Width(line)))
	}
	if list.NextCursor != nil {
		p.printf("%s\n", p.dim("… and more: --limit 0 shows all"))
	}
	p.printf("\n%s", p.hint("FAILED: the number of spans that failed. sibyl traces ID shows a trace, "+
		"and how it differs from normal ones.", 0))
	return p.flush(w)
}

// Limits on a trace as text.
const (
	shownSpans    = 60
	unusualFrom   = 95 // at this percentile or above, a span counts as unusually long
	leastPathPart = 0.005
	continued     = 4 // indentation of a span's continuation lines
)

// ShowTrace writes the spans of a trace that are on the critical path, failed or unusually long, in the order of their
// start. It writes at most shownSpans spans.
func ShowTrace(w io.Writer, t *contract.Trace, style terminal.Style, _ time.Time) error {
	p := &page{style: style}
	p.printf("trace %s  %s, %s, %s\n", clean(t.ID), t.Start.UTC().Format(time.RFC3339),
		units.Duration(time.Duration(t.DurationNs)), units.Plural(len(t.Spans), "span"))
	for _, flag := range t.Flags {
		p.printf("  %s\n", clean(flag))
	}
	if t.Comparison != nil {
		p.printf("%s\n", style.Wrap(clean(t.Comparison.Sentence), 0))
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
		indent := 2 * min(depth[x.ID], 20)
		lines := style.Wrap(spanText(x, t.DurationNs), indent+continued)
		p.printf("%s", lines[continued:])
	}
	if left > 0 {
		p.printf("… and %s off the critical path, as long as usual\n", units.Plural(left, "more span"))
	}
	return p.flush(w)
}

// unusual reports whether a span is longer than nearly all spans of its operation. It returns false if its percentile
// is unknown.
func unusual(x *contract.Span) bool { return x.Percentile != nil && *x.Percentile >= unusualFrom }

// spanText returns a text about a span. whole is the duration of its trace in ns.
func spanText(x *contract.Span, whole int64) string {
	text := fmt.Sprintf("%s %s (%s): %s",
		clean(x.Service), clean(x.Name), clean(x.Kind), units.Duration(time.Duration(x.DurationNs)))
	if x.ExclusiveNs > 0 {
		text += fmt.Sprintf(", %s of its own on the critical path (%s of the request)",
			units.Duration(time.Duration(x.ExclusiveNs)), units.Percent(float64(x.ExclusiveNs)/float64(max(whole, 1))))
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
		text += " [" + strings.Join(attributes, " ") + "]"
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
