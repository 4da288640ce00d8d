package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/client"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// Limits that findings about a service depend on.
const (
	mostSkew       = 2 * time.Second // between its clock and ours, including the time of a request
	mostIncomplete = 0.02            // share of closed traces that may have a span whose parent is missing
	sampledTypes   = 5               // number of request types to read a trace of
)

// isOpen reports whether the service at the URL server answers without a token.
func isOpen(ctx context.Context, server string) bool {
	anonymous, err := client.New(server, "")
	if err == nil {
		_, _, err = anonymous.Status(ctx)
	}
	return err == nil
}

// checkAccess checks whether the service at the URL server needs a token. open is true if the service answers without
// one.
func checkAccess(server string, open bool) finding {
	f := finding{Check: "access", State: fine, Saw: "Clients need a token."}
	switch {
	case !open:
		return f
	case isLocal(server):
		f.State = warning
		f.Saw = "No token exists: every program and user of this machine may do everything. So may all clients of a " +
			"proxy or tunnel on it that Sibyl does not recognize."
	default:
		f.State = failed
		f.Saw = "No token exists, and " + terminal.Printable(server) + " answers: whoever reaches it may do everything."
	}
	f.Do = "Create one with sibyl token create, at the latest before Sibyl can be reached through a proxy."
	return f
}

// checkService checks s, the status of a service. at is the time of the response by the service's clock, or zero if
// unknown.
func checkService(s *contract.Status, at time.Time) []finding {
	service := finding{Check: "service", State: fine, Saw: fmt.Sprintf("Sibyl %s is ready.", s.Version)}
	switch {
	case s.Leader != nil:
		service.Saw = "This replica is a standby; " + *s.Leader + " leads."
	case !s.Ready:
		service.State, service.Saw = warning, "The service is starting: it replays its journal."
		service.Do = "Wait; traces are accepted once it is done."
	}
	all := []finding{service}
	if skew := time.Since(at); !at.IsZero() && skew.Abs() > mostSkew {
		all = append(all, finding{
			Check: "clock",
			State: warning,
			Saw: fmt.Sprintf("The clocks of the service and of this machine differ by %s.",
				units.Duration(skew.Abs())),
			Do: "Synchronize them with NTP.",
		})
	}
	if s.Epoch.Warning != "" {
		all = append(all, finding{Check: "decisions", State: warning, Saw: s.Epoch.Warning, Do: s.Epoch.Remedy})
	}
	return append(all, checkArrival(s, at), checkLearning(s), checkParents(s),
		checkCoverage(s), checkOperations(s), checkRefused(s))
}

// checkArrival checks whether traces that can be analysed are arriving. Duplicates don't count.
func checkArrival(s *contract.Status, at time.Time) finding {
	f := finding{Check: "traces", State: fine}
	switch last := s.Ingest.LastArrival; {
	case s.Ingest.Spans == 0 && last == nil:
		f.State, f.Saw = failed, "No span has arrived."
		f.Do = "Send OTLP to port 4317 (gRPC) or 4318 (HTTP), for example with " +
			"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318, or try sibyl replay --example. " +
			"Senders on other machines need an address that they can reach, and a token."
		return f
	case last == nil:
		f.State, f.Saw = warning, arrived(s)+" No request could be analysed yet."
		f.Do = "Run sibyl doctor again in a minute: a trace is analysed once no span of it has " +
			"arrived for some seconds. If this persists, the checks below show what the spans lack."
	case at.Sub(*last) > client.MaxGap:
		f.State, f.Saw = warning,
			fmt.Sprintf("The last request that could be analysed arrived %s ago.", units.Coarse(at.Sub(*last)))
		f.Do = "If it was the end of a recording (sibyl replay), all is well. Otherwise look at the logs of the " +
			"senders; if they report refused tokens or connections, see docs/operations.md."
	default:
		f.Saw = arrived(s)
	}
	if n := s.Ingest.DuplicateSpans; n > 0 {
		f.Saw += fmt.Sprintf(" %s since the start had arrived before and were ignored.", units.Plural(int(n), "span"))
	}
	return f
}

// arrived returns a sentence with the numbers of spans and export requests that have arrived since the start.
func arrived(s *contract.Status) string {
	return fmt.Sprintf("%s in %s arrived.", units.Plural(int(s.Ingest.Spans), "span"),
		units.Plural(int(s.Ingest.Requests), "export request"))
}

// checkLearning checks whether the service is still learning, and reports the remaining time.
func checkLearning(s *contract.Status) finding {
	f := finding{
		Check: "learning",
		State: fine,
		Saw: fmt.Sprintf("%s learned; incidents and problems are reported.",
			units.Plural(s.RequestTypes, "request type")),
	}
	var left []string
	if ns := s.Learning.IncidentsLeftNs; ns != nil {
		left = append(left, "incidents after "+units.Left(time.Duration(*ns))+" more of traffic")
	}
	if ns := s.Learning.LeftNs; ns != nil {
		left = append(left, "problems after "+units.Left(time.Duration(*ns))+" more of traffic")
	}
	if len(left) > 0 {
		f.Saw = "Sibyl is learning. It reports " + strings.Join(left, ", ") + "."
		if s.Learning.IncidentsLeftNs == nil {
			f.Saw += " Incidents are reported already."
		}
	}
	f.Saw += checkKnown(&s.Learning)
	return f
}

// checkKnown returns a sentence about the kinds of changes that Sibyl can't judge yet, because it has been running for
// too short a time. It returns "" if all changes can be judged.
func checkKnown(l *contract.Learning) string {
	var missing []string
	for _, x := range []struct {
		what string
		left *int64
	}{
		{"requests that stop", l.SilenceLeftNs},
		{"single operations", l.OperationsLeftNs},
		{"changes that take days", l.GrowthLeftNs},
	} {
		if x.left != nil {
			missing = append(missing, x.what+", for "+units.Left(time.Duration(*x.left))+" more")
		}
	}
	if len(missing) == 0 {
		return ""
	}
	return " Not judged yet: " + strings.Join(missing, "; ") + "."
}

// justClosed is the time that checkInstances still mentions an incident after it has closed, because the same instance
// may soon be slow again.
const justClosed = time.Hour

// recentIncidents returns the open incidents and those that closed less than justClosed before now, or nil if they
// can't be read.
func recentIncidents(ctx context.Context, api *client.Client, now time.Time) []contract.Incident {
	muted := contract.ListIncidentsParamsMutedAll
	from := now.Add(-justClosed).UTC().Format(time.RFC3339)
	list, err := api.Incidents(ctx, contract.ListIncidentsParams{Muted: &muted, From: &from}, 0)
	if err != nil {
		return nil
	}
	return list.Items
}

// checkInstances checks whether single instances differ from their siblings, according to open incidents and, in the
// first week, according to a comparison since the start of Sibyl. It also mentions instances in closed incidents.
func checkInstances(s *contract.Status, incidents []contract.Incident) finding {
	f := finding{
		Check: "instances",
		State: fine,
		Saw: "No open incident comes from a single instance, and since Sibyl started, no instance has taken much " +
			"longer or failed much more often than its siblings.",
	}
	if s.Learning.GrowthLeftNs == nil {
		f.Saw = "No open incident comes from a single instance. After the first week, Sibyl compares instances with " +
			"their own history only."
	}
	var saw, do, past []string
	for i := range incidents {
		x := &incidents[i]
		switch text := differing(x); {
		case text == "":
		case x.Closed != nil:
			past = append(past, text+" See sibyl incidents "+x.ID[:shownID]+".")
		default:
			saw, do = append(saw, text), append(do, "See sibyl incidents "+x.ID[:shownID]+".")
		}
	}
	if s.Learning.Provisional != nil && len(*s.Learning.Provisional) > 0 {
		for _, x := range *s.Learning.Provisional {
			saw = append(saw, x.Text)
		}
		do = append(do, "Sibyl may have started during an incident and considers this normal. If the instance "+
			"should not differ, repair or restart it: Sibyl relearns its usual times within two hours.")
	}
	if len(saw) > 0 {
		f.State, f.Saw, f.Do = warning, strings.Join(saw, " "), strings.Join(do, " ")
	}
	if len(past) > 0 {
		f.Saw += " Past: " + strings.Join(past, " ")
	}
	return f
}

// shownID is the number of digits of an incident's ID in the output of commands.
const shownID = 8

// mostOfIt is the minimum share of a service's additional cost that makes an instance count as differing from its
// siblings.
const mostOfIt = 0.5

// differing returns a sentence about the instance that most of the additional cost of x comes from, or "" if there is
// no such instance.
func differing(x *contract.Incident) string {
	if len(x.Suspects) == 0 {
		return ""
	}
	s := &x.Suspects[0]
	for i := range s.Instances {
		if p := &s.Instances[i]; p.Key != "service.version" && p.Part >= mostOfIt {
			onset := x.Onset.Local().Format("15:04")
			when, carries, adds := "Since "+onset, "carries", "adds"
			if x.Ended != nil {
				when = "From " + onset + " to " + x.Ended.Local().Format("15:04")
				carries, adds = "carried", "added"
			}
			return fmt.Sprintf("%s %s (%s) %s %s of what %s %s to requests.",
				when, terminal.Printable(p.Value), terminal.Printable(p.Key), carries,
				units.Part(p.Part), terminal.Printable(s.Service), adds)
		}
	}
	return ""
}

// checkParents checks whether the parents of spans arrive.
func checkParents(s *contract.Status) finding {
	f := finding{Check: "parents", State: fine, Saw: "No trace has been closed yet."}
	// A span is missing in idle traces. checkRefused judges traces that were cut off.
	closed := s.Closed["complete"] + s.Closed["idle"]
	if closed == 0 {
		f.State = skipped
		return f
	}
	share := float64(s.Closed["idle"]) / float64(closed)
	f.Saw = fmt.Sprintf("%s of %s have spans whose parents did not arrive.",
		units.Sentence(units.Part(share)), units.Plural(int(closed), "closed trace"))
	if share > mostIncomplete {
		f.State = warning
		if hops := s.Coverage.HopsWithoutSpans; len(hops) > 0 {
			f.Do = fmt.Sprintf("Instrument the hop between %s and %s, or let it forward traceparent unchanged. "+
				"For other traces: ", terminal.Printable(hops[0].Caller), terminal.Printable(hops[0].Callee))
		}
		f.Do += "Sample whole traces, at their root or in the Collector after all spans of a trace have met " +
			"(loadbalancing exporter, tail sampling); propagate traceparent through every proxy and queue; " +
			"raise --assembly-timeout if senders batch for longer."
	}
	return f
}

// checkCoverage checks whether enough spans of the last minutes are judged, in total and for each service, and whether
// operations have enough calls.
func checkCoverage(s *contract.Status) finding {
	c := &s.Coverage
	f := finding{Check: "coverage", State: fine, Saw: "No span has been judged in the last minutes."}
	switch {
	case c.Warning != "":
		f.State, f.Saw, f.Do = warning, terminal.Printable(c.Warning), c.Remedy
	case c.Received.Spans == 0:
		f.State = skipped
	default:
		f.Saw = fmt.Sprintf("%s of the %s of the last minutes and %s of their time are judged.",
			units.Sentence(units.Part(c.ShareOfSpans)),
			units.Plural(int(c.Received.Spans), "span"), units.Part(c.ShareOfTime))
		if n := c.RequestsOfTheirOwn.Spans; n > 0 {
			f.Saw += fmt.Sprintf(" %s belong to requests of their own, such as work "+
				"after a response and parts below missing spans.", units.Count(int(n)))
		}
	}
	if few := &s.FewCalls; few.Text != "" {
		f.Saw += " " + terminal.Printable(few.Text)
		if few.Remedy != "" {
			f.State, f.Do = warning, strings.TrimSpace(f.Do+" "+few.Remedy)
		}
	}
	for _, h := range c.HopsWithoutSpans[:min(shownHops, len(c.HopsWithoutSpans))] {
		f.Saw += " A hop between " + terminal.Printable(h.Caller) +
			" and " + terminal.Printable(h.Callee) + " exports no spans."
	}
	return f
}

// shownHops is the number of hops without spans in a finding.
const shownHops = 3

// checkOperations checks whether operation names seem to contain identifiers.
func checkOperations(s *contract.Status) finding {
	if s.Names.Warning == "" {
		return finding{Check: "operations", State: fine, Saw: "No operation names seem to contain IDs."}
	}
	return finding{Check: "operations", State: warning, Saw: terminal.Printable(s.Names.Warning), Do: s.Names.Remedy}
}

// refusals lists the reasons why parts of the traffic are not used, with remedies.
var refusals = []struct {
	count func(*contract.Status) int64
	noun  string
	saw   string // follows the number and the noun
	do    string
}{
	{
		func(s *contract.Status) int64 { return s.Ingest.RejectedSpans }, "span", "rejected as malformed",
		"Responses told the senders why: look for partial_success in their logs or in the Collector's, and update " +
			"their SDKs.",
	},
	{
		func(s *contract.Status) int64 { return s.Unusable["no_duration"] + s.Unusable["too_long"] },
		"request", "that took no time, or more than 39 hours",
		"Synchronize the clocks of the senders, and look for SDKs that end spans with their start time.",
	},
	{
		lateSpans, "span", "that arrived after their trace was closed",
		"Raise --assembly-timeout above the longest delay of a sender, or look for a slow Collector. " +
			"A workflow whose root span ends last needs one above its longest pause.",
	},
	{
		func(s *contract.Status) int64 { return s.Refused["busy"] }, "export request", "that senders had to repeat",
		"Give Sibyl more cores or memory (--memory), or sample; see docs/operations.md.",
	},
	{
		func(s *contract.Status) int64 { return s.Refused["memory"] },
		"export request", "refused because the memory was used up",
		"Give Sibyl more memory (--memory), or sample; see docs/operations.md.",
	},
	{
		func(s *contract.Status) int64 { return s.Refused["disk_full"] },
		"export request", "refused because the disk was full", "Free space.",
	},
	{
		func(s *contract.Status) int64 { return s.Refused["too_many_groups"] }, "request", "without a separate group",
		"Operation names probably contain IDs: name spans by their route, and remove attributes with many values " +
			"from --group-by.",
	},
	{
		func(s *contract.Status) int64 { return s.Refused["learning_full"] },
		"request", "not learned from", "Shorten --learning.",
	},
	{
		func(s *contract.Status) int64 { return s.Refused["too_many_contexts"] },
		"calling context", "dropped for lack of room",
		"Operation names probably contain IDs: name spans by their route. Otherwise raise --memory.",
	},
	{
		func(s *contract.Status) int64 { return s.Refused["too_many_names"] },
		"name", "shown as (other) for lack of room",
		"Operation names or attributes probably contain IDs: name spans by their route, and remove such attributes " +
			"from --keys. Otherwise raise --memory.",
	},
	{
		func(s *contract.Status) int64 { return s.Refused["too_many_tracepoints"] },
		"agent message", "refused because of the limit on tracepoints",
		"Raise --memory, or let agents announce fewer tracepoints.",
	},
	{
		func(s *contract.Status) int64 { return s.Closed["age"] }, "trace", "closed early because spans kept arriving",
		"Raise --assembly-timeout, which a trace can take six times, if requests take that long; " +
			"end traces at queues with links instead of parents.",
	},
	{
		func(s *contract.Status) int64 { return s.Closed["size"] }, "trace", "closed early at the size limit",
		"End traces at queues, and at each run of a job, with links instead of parents.",
	},
	{
		func(s *contract.Status) int64 { return s.Closed["evicted"] }, "trace", "closed early for lack of memory",
		"Raise --memory, or sample.",
	},
}

// mostLate is the largest normal share of late spans. It isn't 0, because retried requests cause late spans.
const mostLate = 0.01

// lateSpans returns the number of late spans, or 0 if their share is at most mostLate.
func lateSpans(s *contract.Status) int64 {
	if n := s.Ingest.LateSpans; float64(n) > mostLate*float64(s.Ingest.Spans) {
		return n
	}
	return 0
}

// checkRefused checks whether Sibyl uses all traffic, or drops or refuses parts of it.
func checkRefused(s *contract.Status) finding {
	f := finding{Check: "limits", State: fine, Saw: "All traffic is used."}
	var saw, do []string
	for _, x := range refusals {
		if n := x.count(s); n > 0 {
			saw, do = append(saw, units.Plural(int(n), x.noun)+" "+x.saw), append(do, x.do)
		}
	}
	if len(saw) > 0 {
		f.State, f.Saw, f.Do = warning, "Since the start: "+strings.Join(saw, "; ")+".", strings.Join(do, " ")
	}
	return f
}

// checkWebhooks checks whether the last calls of all webhooks succeeded. It returns nil if all is empty.
func checkWebhooks(all []contract.Webhook) []finding {
	if len(all) == 0 {
		return nil
	}
	f := finding{
		Check: "webhooks",
		State: fine,
		Saw:   fmt.Sprintf("Configured: %s. No last call failed.", units.Plural(len(all), "webhook")),
	}
	var saw []string
	for i := range all {
		if w := &all[i]; w.LastError != "" || w.Disabled {
			saw = append(saw, fmt.Sprintf("%s (%s) does not accept messages; %s wait. Last error: %s.",
				w.Name, w.Origin, units.Count(w.Waiting), w.LastError))
		}
	}
	if len(saw) > 0 {
		f.State, f.Saw = warning, strings.Join(saw, " ")
		f.Do = "Fix the receiver or the configuration, and try it with sibyl webhook test NAME. " +
			"Messages are retried for a day; then sibyl webhook dead lists them."
	}
	return []finding{f}
}

// checkTraffic checks sample traces of the busiest request types. It returns nil if there are no request types yet.
func checkTraffic(ctx context.Context, api *client.Client, s *contract.Status) []finding {
	if s.RequestTypes == 0 {
		return nil
	}
	traces, err := api.SampleTraces(ctx, sampledTypes)
	if err != nil || len(traces) == 0 {
		return []finding{{
			Check: "samples",
			State: skipped,
			Saw:   "No sample trace is kept yet.",
			Do:    "Run sibyl doctor again in a minute.",
		}}
	}
	seen := look(traces)
	return []finding{seen.names(), seen.proxies(), seen.single()}
}

// sight holds counts over the sample traces that were examined.
type sight struct {
	traces, spans int
	services      map[string]bool
	alone         int // traces with one span
}

func look(traces []contract.Trace) *sight {
	s := &sight{traces: len(traces), services: make(map[string]bool)}
	for i := range traces {
		spans := traces[i].Spans
		if len(spans) == 1 {
			s.alone++
		}
		s.spans += len(spans)
		for k := range spans {
			s.services[spans[k].Service] = true
		}
	}
	return s
}

// names checks whether all spans name their service.
func (s *sight) names() finding {
	f := finding{
		Check: "names",
		State: fine,
		Saw: fmt.Sprintf("%s in %s name %s.", units.Plural(s.spans, "span"), units.Plural(s.traces, "sample trace"),
			units.Plural(len(s.services), "service")),
	}
	for name := range s.services {
		if name == "" || strings.HasPrefix(name, "unknown_service") {
			f.State, f.Saw = warning, "Some spans have no service.name."
			f.Do = "Set OTEL_SERVICE_NAME in every process: Sibyl tells services apart by it."
		}
	}
	return f
}

// sidecars lists the service names of proxies that emit their own spans.
var sidecars = []string{"istio-proxy", "envoy", "linkerd-proxy", "consul-proxy", "kuma-dp"}

// proxies checks whether sidecars appear as services, which hides the services behind them.
func (s *sight) proxies() finding {
	var found []string
	for _, name := range sidecars {
		if s.services[name] {
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		return finding{Check: "proxies", State: fine, Saw: "No sidecar has a service name of its own."}
	}
	list := strings.Join(found, ",")
	return finding{
		Check: "proxies", State: warning, Saw: list + " appears as a service.",
		Do: "Set --see-through " + list + " unless it is set: otherwise calls are counted as calls to the proxy.",
	}
}

// single checks whether most traces consist of a single span.
func (s *sight) single() finding {
	f := finding{
		Check: "context",
		State: fine,
		Saw: fmt.Sprintf("%s of %s have more than one span.",
			units.Count(s.traces-s.alone), units.Plural(s.traces, "sample trace")),
	}
	if 2*s.alone > s.traces {
		f.State = warning
		f.Do = "Most traces consist of a single span: propagate the trace context (traceparent) between services, " +
			"and instrument their calls."
	}
	return f
}
