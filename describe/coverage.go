package describe

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// shownHops is the maximum number of hops without spans listed in a text.
const shownHops = 3

// Coverage returns sentences, without full stops, about everything that is missing from the analysis, or nil if
// nothing is: records that could not be read; spans that are not part of ordinary requests, with the reasons for
// leaving some out; spans that are too long for shares of time; traces that lost spans; and hops that export no spans.
func Coverage(n *Names, c *trace.Coverage) []string {
	total := c.Total()
	all, judged := total.Received(), total.Judged()
	var texts []string
	if unread, _ := c.UnreadRecords(); unread > 0 {
		var reasons []string
		for _, reason := range slices.Sorted(maps.Keys(c.Unread)) {
			reasons = append(reasons, left(c.Unread[reason], reason))
		}
		texts = append(texts, fmt.Sprintf("%s of %s of the input could not be read, and are left out: %s",
			units.Count(int(unread)), units.Plural(int(unread+c.Records), "record"), strings.Join(reasons, ", ")))
	}
	if total.Own.Spans > 0 {
		texts = append(texts, fmt.Sprintf("%s of %s belong to requests of their own: work "+
			"that starts after its parent ended, messages, and entries below a missing span",
			units.Count(int(total.Own.Spans)), units.Plural(int(all.Spans), "span")))
	}
	if judged.Spans < all.Spans {
		spans, ofTime := total.Shares()
		var reasons []string
		for reason, p := range total.Reasons() {
			reasons = append(reasons, left(p.Spans, reason))
		}
		texts = append(texts, fmt.Sprintf("%s of the spans and %s of their time are judged; left out: %s",
			units.Part(spans), units.Part(ofTime), strings.Join(reasons, ", ")))
	}
	if total.Long.Spans > 0 {
		texts = append(texts, fmt.Sprintf("shares of the time leave out %s of an hour or more, with %s in all",
			units.Plural(int(total.Long.Spans), "span"), units.Span(time.Duration(total.Long.Nanos))))
	}
	if lost := c.Lost(n.Table); lost > 0 {
		texts = append(texts, fmt.Sprintf("spans of at least %s of %s got lost: spans below them arrived",
			units.Count(int(lost)), units.Plural(int(c.Traces), "trace")))
	}
	return append(texts, hops(n, c)...)
}

// left describes n spans or records that were left out for the given reason.
func left(n int64, reason trace.Reason) string {
	return units.Count(int(n)) + " " + strings.ReplaceAll(string(reason), "_", " ")
}

// hops returns up to shownHops sentences about hops that export no spans.
func hops(n *Names, c *trace.Coverage) (texts []string) {
	for h, x := range c.Hops(n.Table, c) {
		if len(texts) == shownHops {
			break
		}
		hop, callee := "one hop", n.Text(h.Callee)
		if name := n.Service(x.Peer); name != "" && name != callee { // often the address of the service behind it
			hop += ", " + name + ","
		}
		texts = append(texts, fmt.Sprintf("between %s and %s %s exports no spans, in %s of %s",
			n.Text(h.Caller), callee, hop,
			units.Part(float64(x.Requests)/float64(max(1, x.Requests, c.Traces))),
			units.Plural(int(c.Traces), "trace")))
	}
	return texts
}

// leastSpans is the minimum number of spans for judging a service's own coverage.
const leastSpans = 20

// shownUncovered is the maximum number of services listed in a text about spans that aren't judged.
const shownUncovered = 3

// Uncovered returns sentences about the spans that are not judged, in total and by service (saw), and about the remedy
// for the most frequent reason (do). Both are empty if at least 95 % of the input's records could be read, and at least
// 95 % of the spans and of their time are judged, in total and for each service with at least leastSpans spans.
func Uncovered(n *Names, c *trace.Coverage) (saw, do string) {
	total := c.Total()
	reason, spans, time, lacks := total.Lacks()
	if lacks {
		judgedSpans, judgedTime := total.Shares()
		saw = fmt.Sprintf("%s of the spans and %s of their time are judged, so "+
			"faults of the others stay unseen: %s of the spans, with %s of the time, %s.",
			units.Sentence(units.Part(judgedSpans)), units.Part(judgedTime),
			units.Part(spans), units.Part(time), remedies[reason].left)
	}
	if c.LacksRecords() {
		_, share := c.UnreadRecords()
		unread := units.Sentence(units.Part(share)) + " of the records of the input could not be read. "
		saw = strings.TrimSpace(unread + saw)
		if !lacks {
			reason, lacks = mostUnread(c), true
		}
	}
	var services []string
	for service, a := range c.Services() {
		why, spans, time, lacking := a.Lacks()
		if !lacking || service == 0 || a.Distinct().Spans < leastSpans || len(services) == shownUncovered {
			continue
		}
		judgedSpans, judgedTime := a.Shares()
		text := fmt.Sprintf("Of %s %s of the spans and %s of their time are judged",
			n.Text(service), units.Part(judgedSpans), units.Part(judgedTime))
		if why != reason {
			text += fmt.Sprintf("; %s of the spans, with %s of the time, %s",
				units.Part(spans), units.Part(time), remedies[why].left)
		}
		services = append(services, text+".")
		if !lacks {
			reason, lacks = why, true
		}
	}
	if !lacks {
		return "", ""
	}
	return strings.TrimSpace(saw + " " + strings.Join(services, " ")), remedies[reason].do
}

// mostUnread returns the most frequent reason why records couldn't be read. If several reasons are equally frequent, it
// returns the first by name.
func mostUnread(c *trace.Coverage) (most trace.Reason) {
	for _, reason := range slices.Sorted(maps.Keys(c.Unread)) {
		if most == "" || c.Unread[reason] > c.Unread[most] {
			most = reason
		}
	}
	return most
}

// remedy describes why spans are left out and how to avoid it.
type remedy struct {
	left string // completes "12 % of the spans …"
	do   string // how to avoid it
}

var unreadable = remedy{
	"could not be read", "Update the SDKs or converters that wrote them; the answers " +
		"to OTLP requests (partial_success) tell senders what their spans lack.",
}

var timeless = remedy{
	"belong to requests that took no time, or more than 39 hours",
	"Synchronize the clocks of the senders, and look for SDKs that end spans with their start time.",
}

var remedies = map[trace.Reason]remedy{
	trace.Malformed:  unreadable,
	trace.BadTraceID: unreadable,
	trace.BadSpanID:  unreadable,
	trace.BadTime:    unreadable,
	trace.TooLarge:   unreadable,
	trace.TooLong:    timeless,
	trace.NoDuration: timeless,
	trace.Misdated:   {"are dated far before or after all others", "Set the clocks of their senders."},
	trace.Outside: {
		"belong to tracepoints outside of all other spans",
		"Propagate the context of requests into the code that has these tracepoints.",
	},
	trace.Conflict: {
		"have the ID of another span of their trace",
		"Update the instrumentation that gives one ID to several spans, as to the attempts of a call.",
	},
	trace.Late: {
		"arrived after their trace was closed",
		"Raise assembly.timeout above the longest delay of a sender and the longest pause in a workflow, or look for " +
			"a slow Collector.",
	},
	trace.Cut: {
		"belong to traces that were closed early",
		"Raise assembly.timeout, which a trace can take six times, if requests take that long, or memory if that " +
			"ran out; end traces at queues with links instead of parents.",
	},
}
