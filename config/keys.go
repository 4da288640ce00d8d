package config

import (
	"encoding/base64"
	"math"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/control/sampling"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/search"
)

// definition says what a key is. Its flag is the key with dashes for dots, its environment variable that in capitals, with
// underscores, after SIBYL_.
type definition struct {
	key    string // like "otlp.grpc"
	kind   kind
	preset any    // the default, of the type that kind reads
	help   string // what it does, with the unit, and what 0 or empty mean
	live   bool   // a reload applies it; others need a restart
}

// applied returns d as a key that a reload applies.
func applied(d definition) definition {
	d.live = true
	return d
}

// Bounds of what has no natural ones.
const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
	tib = 1 << 40

	mostBytes = 512 * tib
	longest   = 3650 * day
	mostCount = math.MaxInt32
	mostCores = 1 << 16
)

// WebhookFormats are what the bodies of webhooks can look like; WebhookEvents what they can tell.
var (
	WebhookFormats = []string{"sibyl", "cloudevents", "alertmanager", "grafana-annotation", "slack"}
	WebhookEvents  = []string{"problem.opened", "problem.located", "problem.explained", "problem.closed", "decision"}
)

// usefulKeys are attributes of few values, or numbers, that instrumentation sets and that often explain why a request is slow.
var usefulKeys = []string{
	"http.request.method", "http.response.status_code", "http.request.body.size", "http.response.body.size",
	"rpc.response.status_code", "db.system.name", "db.operation.name", "db.collection.name", "messaging.batch.message_count",
	"error.type", "service.version", "deployment.environment.name", "cloud.region", "cloud.availability_zone",
}

// definitions returns all keys, in the order in which they are printed: sections are in one piece.
func definitions() []definition {
	var all []definition
	for _, part := range [][]definition{placeKeys(), inputKeys(), traceKeys(), problemKeys(), searchKeys(), outputKeys()} {
		all = append(all, part...)
	}
	return all
}

func placeKeys() []definition {
	rates := sampling.DefaultOptions()
	return []definition{
		{key: "data-dir", kind: path("the name of a directory"), preset: "./sibyl-data", help: "Directory of everything that must survive a restart. One process at a time uses it."},
		applied(definition{key: "log.level", kind: choice("debug", "info", "warn", "error"), preset: "info", help: "How much is logged, on standard error."}),
		{key: "log.format", kind: choice("text", "json"), preset: "text", help: "What lines of the log look like."},
		{key: "http", kind: address(), preset: "127.0.0.1:8321", help: "Address of the API, the UI and the agents."},
		{key: "api.base-path", kind: words("path", "empty, or a path like /sibyl without a slash at its end", isPrefix), preset: "", help: "What paths of API and UI begin with behind a proxy that serves other things, too."},
		{key: "api.tls.cert", kind: optional(path("the name of a PEM file")), preset: "", help: "Certificate of API and UI; empty: no encryption. When file or key change, what is new is shown within seconds."},
		{key: "api.tls.key", kind: optional(path("the name of a PEM file")), preset: "", help: "Its private key."},
		{key: "api.tls.client-ca", kind: optional(path("the name of a PEM file")), preset: "", help: "Authorities of which callers must show a certificate; empty: they need none."},
		{key: "sampling-http", kind: address(), preset: "", help: "Address of Jaeger's remote sampling over HTTP; 5778 is its usual port."},
		{key: "sampling-grpc", kind: address(), preset: "", help: "Address of Jaeger's remote sampling over gRPC; 14250 is its usual port."},
		applied(definition{key: "sampling.default", kind: number(1e-6, 1), preset: rates.Default, help: "Share of the requests that SDKs are told to trace in any case, by remote sampling."}),
		applied(definition{key: "sampling.wanted", kind: number(0, 1e6), preset: rates.Wanted, help: "Traces per second of each entry operation under investigation that they are told to send."}),
		applied(definition{key: "sampling.budget", kind: number(0, 1e9), preset: rates.Budget, help: "Traces per second beyond the default, all together."}),
		{key: "sampling.tls.cert", kind: optional(path("the name of a PEM file")), preset: "", help: "Certificate of both listeners for remote sampling; empty: no encryption. When file or key change, what is new is shown within seconds."},
		{key: "sampling.tls.key", kind: optional(path("the name of a PEM file")), preset: "", help: "Its private key."},
		{key: "sampling.tls.client-ca", kind: optional(path("the name of a PEM file")), preset: "", help: "Authorities of which SDKs must show a certificate; empty: they need none."},
		{key: "opamp", kind: address(), preset: "", help: "Address for agents that speak OpAMP, at /v1/opamp, or the tracepoint protocol; 4320 is its usual port. It encrypts as api.tls says."},
	}
}

func inputKeys() []definition {
	return []definition{
		{key: "otlp.grpc", kind: address(), preset: "127.0.0.1:4317", help: "Address that takes traces as OTLP over gRPC."},
		{key: "otlp.http", kind: address(), preset: "127.0.0.1:4318", help: "Address that takes traces as OTLP over HTTP, at /v1/traces."},
		{key: "otlp.max-request", kind: size(kib, gib), preset: int64(64 * mib), help: "Largest request, after decompression. Larger ones are refused for good."},
		{key: "otlp.max-in-flight", kind: size(mib, tib), preset: int64(192 * mib), help: "Bytes of all requests that are being read or decoded, after decompression. Beyond, senders are told to try again."},
		{key: "otlp.require-token", kind: boolean(), preset: false, help: "Whether senders must show a token of the role agent or above."},
		{key: "otlp.tls.cert", kind: optional(path("the name of a PEM file")), preset: "", help: "Certificate of both OTLP listeners; empty: no encryption. When file or key change, what is new is shown within seconds."},
		{key: "otlp.tls.key", kind: optional(path("the name of a PEM file")), preset: "", help: "Its private key."},
		{key: "otlp.tls.client-ca", kind: optional(path("the name of a PEM file")), preset: "", help: "Authorities of which senders must show a certificate; empty: they need none."},
		applied(definition{key: "jaeger.query", kind: jaegerQueries(), preset: []JaegerQuery{}, help: "Servers of Jaeger that traces are fetched from."}),
	}
}

func traceKeys() []definition {
	return []definition{
		{key: "keys", kind: &list{of: text("the key of an attribute")}, preset: usefulKeys, help: "Attributes that causes are looked for in. With those of group-by, size and rules at most 32."},
		{key: "memory", kind: size(64*mib, 16*tib), preset: int64(2 * gib), help: "Memory for open traces, queues and statistics together. Under pressure traces are closed early and senders told to try again."},
		{key: "shards", kind: integer(0, 1024), preset: 0, help: "Parts in which traces are worked on at the same time; 0: one per core. Results do not depend on it."},
		{key: "assembly.settle", kind: duration(0, time.Hour), preset: 6 * time.Second, help: "A trace whose spans all have their parents is closed when none came for so long. SDKs export every 5 s."},
		{key: "assembly.idle", kind: duration(time.Millisecond, time.Hour), preset: 10 * time.Second, help: "Any other trace is closed when no span came for so long."},
		{key: "assembly.max-age", kind: duration(time.Millisecond, day), preset: time.Minute, help: "A trace is closed so long after its first span came, whatever comes."},
		{key: "assembly.max-spans", kind: integer(1, 10_000_000), preset: 100_000, help: "A trace is closed when it has so many spans."},
		{key: "assembly.max-bytes", kind: size(kib, tib), preset: int64(64 * mib), help: "A trace is closed when its spans take so much memory."},
		{key: "assembly.remember", kind: duration(time.Second, 7*day), preset: 10 * time.Minute, help: "How long a trace that was closed is known, so that late spans do not make another of it."},
		{key: "journal.durability", kind: choice("disk", "process"), preset: "disk", help: "What acknowledged spans survive. disk: loss of power; process: the death of the process only, at less cost."},
		{key: "journal.max-bytes", kind: size(64*mib, mostBytes), preset: int64(8 * gib), help: "Disk space of the journal."},
		{key: "journal.max-age", kind: duration(time.Minute, 30*day), preset: time.Hour, help: "How long what is in the statistics is kept in the journal, at most. What is not yet is always kept."},
	}
}

func problemKeys() []definition {
	t, w := detect.DefaultThresholds(), detect.DefaultWatchOptions()
	return []definition{
		{key: "epoch", kind: duration(time.Second, time.Hour), preset: 10 * time.Second, help: "Time between two decisions."},
		{key: "learning", kind: duration(0, 30*day), preset: 5 * time.Minute, help: "How long what is seen of a group at first counts as healthy."},
		applied(definition{key: "min-samples", kind: integer[uint64](2, mostCount), preset: t.MinSamples, help: "Requests under which nothing is said about a group."}),
		applied(definition{key: "thresholds.cov", kind: number(0, 1000), preset: t.CoV, help: "Coefficient of variation above which requests count as variable without having changed."}),
		applied(definition{key: "thresholds.delayed", kind: number(0, 1), preset: t.Delayed, help: "Part of the requests with a size that may be delayed or time out."}),
		applied(definition{key: "thresholds.false-discovery", kind: number(0, 1), preset: w.FalseDiscovery, help: "Part of all alarms that may be false."}),
		applied(definition{key: "thresholds.min-impact", kind: duration(0, day), preset: time.Duration(w.MinImpact), help: "Time lost per second of operation under which a change is left alone."}),
		applied(definition{key: "thresholds.confirm", kind: integer(1, 1000), preset: w.Confirm, help: "Epochs in a row in which the evidence of a change must have grown."}),
		applied(definition{key: "thresholds.calm", kind: integer(1, 1000), preset: w.Calm, help: "Epochs with requests within the expectation after which a problem is gone."}),
		applied(definition{key: "thresholds.renew", kind: integer(1, 1_000_000), preset: w.Renew, help: "Epochs with healthy requests after which these become the expectation."}),
		applied(definition{key: "thresholds.silence", kind: integer(1, 1_000_000), preset: w.Silence, help: "Epochs without a request after which a problem is gone."}),
		{key: "group-by", kind: &list{of: text("the key of an attribute")}, preset: []string{}, help: "Attributes, of few values each, whose values are expected to perform differently."},
		{key: "size", kind: optional(text("the key of an attribute")), preset: "", help: "Attribute with the size of a request in bytes: what takes long for its size is judged, not what is large."},
		{key: "size-timeout", kind: duration(0, day), preset: time.Duration(0), help: "After which a request with a size is given up; 0: not known."},
		{key: "split", kind: boolean(), preset: false, help: "Whether groups are split by the variable that explains their variance."},
		{key: "rules", kind: typeRules(), preset: []group.TypeRule{}, help: "What holds for some requests. The first rule that matches a request holds for it."},
	}
}

func searchKeys() []definition {
	names := append([]string{search.DefaultStrategy}, without(search.Strategies(), search.DefaultStrategy)...)
	all := []definition{
		applied(definition{key: "strategy", kind: choice(names...), preset: search.DefaultStrategy, help: "How it is chosen what to switch on next."}),
		applied(definition{key: "explore", kind: number(0, 0.1), preset: 0.0, help: "Share of the requests that have everything on, to learn from."}),
	}
	all = append(all, limitKeys("budget.", "together", Limit{Tracepoints: 1000, BytesPerSecond: 16 * mib, CPU: 1})...)
	all = append(all, limitKeys("budget.per-request-type.", "in the requests of each type", Limit{})...)
	return append(all, limitKeys("budget.per-service.", "in each service", Limit{})...)
}

// limitKeys returns the keys of a part of the budget.
func limitKeys(prefix, where string, preset Limit) []definition {
	return []definition{
		applied(definition{key: prefix + "tracepoints", kind: integer(0, mostCount), preset: preset.Tracepoints, help: "Tracepoints that are on at the same time, " + where + "; 0: no bound."}),
		applied(definition{key: prefix + "bytes-per-second", kind: size(0, tib), preset: preset.BytesPerSecond, help: "Extra trace data per second, " + where + "; 0: no bound."}),
		applied(definition{key: prefix + "cpu", kind: number(0, mostCores), preset: preset.CPU, help: "Cores that tracepoints which are on may use, " + where + "; 0: no bound."}),
	}
}

func outputKeys() []definition {
	return []definition{
		applied(definition{key: "retention.age", kind: duration(time.Hour, longest), preset: 7 * day, help: "How long statistics, decisions and exemplars are kept."}),
		applied(definition{key: "retention.bytes", kind: size(64*mib, mostBytes), preset: int64(10 * gib), help: "Disk space of what is kept, beside the journal. Beyond it the oldest decisions and exemplars go, evidence of open problems last."}),
		applied(definition{key: "retention.exemplars", kind: integer(0, 100), preset: 3, help: "Traces kept of each group: so many of the slowest, of the typical and of the fastest."}),
		applied(definition{key: "trace-url", kind: traceURLs(), preset: []TraceURL{}, help: "Links from traces to tracing backends."}),
		applied(definition{key: "webhooks", kind: webhooks(), preset: []Webhook{}, help: "Who is told about problems and decisions."}),
		{key: "export.otlp", kind: orOff(endpoint()), preset: "", help: "OTLP/HTTP endpoint of a tracing backend that is told what is on the critical path of exemplars."},
		{key: "export.headers", kind: headers(), preset: []Header{}, help: "What requests to it say beside that. Files with values are read for each."},
		{key: "self-tracing.otlp", kind: orOff(endpoint()), preset: "", help: "OTLP/HTTP endpoint that gets traces of Sibyl itself, of its API and its epochs; not Sibyl."},
		{key: "self-tracing.headers", kind: headers(), preset: []Header{}, help: "What requests to it say beside that. Files with values are read for each."},
	}
}

// optional returns s extended by the empty text.
func optional(s *scalar) *scalar {
	parse := s.parse
	s.wants += ", or empty"
	s.parse = func(text string) (any, error) {
		if text == "" {
			return "", nil
		}
		return parse(text)
	}
	return s
}

func without(all []string, word string) []string {
	var rest []string
	for _, x := range all {
		if x != word {
			rest = append(rest, x)
		}
	}
	return rest
}

func jaegerQueries() kind {
	type j = JaegerQuery
	return &records[j]{noun: "server", name: func(q *j) string { return q.URL }, members: []member[j]{
		field("url", endpoint(), func(q *j) *string { return &q.URL }, "Of its query service, like http://jaeger:16686 (http) or http://jaeger:16685 (grpc).").must(),
		field("protocol", choice("http", "grpc"), func(q *j) *string { return &q.Protocol }, "http for /api/v3/traces, grpc for servers that do not have it.").otherwise("http"),
		field("services", &list{of: text("the name of a service")}, func(q *j) *[]string { return &q.Services }, "Of which traces are fetched; without it: of all."),
		field("interval", duration(time.Second, time.Hour), func(q *j) *time.Duration { return &q.Interval }, "Time between two fetches.").otherwise(10 * time.Second),
		field("lookback", duration(0, 30*day), func(q *j) *time.Duration { return &q.Lookback }, "How far back the first fetch goes.").otherwise(time.Hour),
	}}
}

func typeRules() kind {
	type r = group.TypeRule
	return &records[r]{noun: "rule", check: checkRule, members: []member[r]{
		field("entry", text("a service and an operation, like shop GET /cart"), func(t *r) *string { return &t.Entry }, "Matches requests that enter there: service, blank, operation."),
		field("attribute", text("the key of an attribute"), func(t *r) *string { return &t.Attribute }, "Matches requests whose entry span has this attribute."),
		field("value", text("the value of the attribute"), func(t *r) *string { return &t.Value }, "With this value; without it: any."),
		field("name", text("the name of a request type"), func(t *r) *string { return &t.Name }, "Of the request type that they are. Rules may share one; then the first says the rest."),
		field("merge", boolean(), func(t *r) *bool { return &t.Merge }, "Whether they are one group, whatever their path."),
		field("group-by", &list{of: text("the key of an attribute")}, func(t *r) *[]string { return &t.GroupBy }, "As group-by above, for these requests."),
		field("size", text("the key of an attribute"), func(t *r) *string { return &t.Size }, "As size above, for these requests."),
		field("timeout", duration(0, day), func(t *r) *time.Duration { return &t.Timeout }, "As size-timeout above, for these requests."),
		field("objective", duration(time.Microsecond, day), func(t *r) *time.Duration { return &t.Objective }, "A mean duration above it is a problem."),
		field("accept.cov", number(0, 1000), func(t *r) *float64 { return &t.Accepted.CoV }, "Coefficient of variation up to which they do not count as variable."),
		field("accept.delayed", number(0, 1), func(t *r) *float64 { return &t.Accepted.Delayed }, "Part of them that may be delayed or time out."),
		field("accept.mean", duration(0, day), func(t *r) *time.Duration { return &t.Accepted.Mean }, "Mean duration up to which they do not count as slow."),
	}}
}

// checkRule says what is wrong with a rule, whatever stands beside the rules.
func checkRule(t *group.TypeRule) string {
	one := group.Rules{Types: []group.TypeRule{*t}, Size: "any"}
	if err := one.Check(); err != nil {
		return strings.TrimPrefix(err.Error(), "rule 1: ")
	}
	return ""
}

func headers() kind {
	type h = Header
	return &records[h]{noun: "header", name: func(x *h) string { return strings.ToLower(x.Name) }, check: checkHeader, members: []member[h]{
		field("name", words("name", "the name of a header, like Authorization", isHeaderName), func(x *h) *string { return &x.Name }, "Of the header.").must(),
		field("value", secret(text(headerValue)), func(x *h) *string { return &x.Value }, "What it says; not shown anywhere. Better in a file."),
		field("value-file", path("the name of a file"), func(x *h) *string { return &x.ValueFile }, "That holds what it says."),
	}}
}

// headerValue describes what a header can say.
const headerValue = "one line of printable characters"

func checkHeader(h *Header) string {
	switch {
	case h.Value != "" && h.ValueFile != "":
		return "value and value-file are both given; leave one of them"
	case h.Value == "" && h.ValueFile == "":
		return "a header that says nothing; give it value or value-file"
	}
	return ""
}

// isHeaderName reports whether a text can be the name of a header.
func isHeaderName(s string) bool {
	return s != "" && len(s) <= longestText && strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

func traceURLs() kind {
	type l = TraceURL
	return &records[l]{noun: "link", name: func(u *l) string { return u.Name }, members: []member[l]{
		field("name", text("the name of a backend"), func(u *l) *string { return &u.Name }, "What the link is called, like Jaeger.").must(),
		field("url", words("url", "a URL with "+tracePlaceholder+" in it, like https://jaeger.example/trace/"+tracePlaceholder, isTraceURL), func(u *l) *string { return &u.URL }, "With "+tracePlaceholder+" where the ID belongs. docs/webhooks.md has more placeholders.").must(),
	}}
}

func webhooks() kind {
	type w = Webhook
	return &records[w]{noun: "webhook", name: func(h *w) string { return h.Name }, check: checkWebhook, members: []member[w]{
		field("name", text("a name"), func(h *w) *string { return &h.Name }, "By which it is shown and tested.").must(),
		field("url", secretURL(), func(h *w) *string { return &h.URL }, "That is called; its path is not shown anywhere.").must(),
		field("format", choice(WebhookFormats...), func(h *w) *string { return &h.Format }, "Of the body.").otherwise("sibyl"),
		field("secret", secret(words("secret", webhookSecret, isWebhookSecret)), func(h *w) *string { return &h.Secret }, "With which calls are signed. Better in a file."),
		field("secret-file", path("the name of a file"), func(h *w) *string { return &h.SecretFile }, "That holds the secret."),
		field("events", &list{of: choice(WebhookEvents...)}, func(h *w) *[]string { return &h.Events }, "What is told; without it: everything."),
		field("allow-private", boolean(), func(h *w) *bool { return &h.AllowPrivate }, "Whether addresses that are not public may be called: loopback, private, link-local, metadata."),
	}}
}

func checkWebhook(h *Webhook) string {
	if h.Secret != "" && h.SecretFile != "" {
		return "secret and secret-file are both given; leave one of them"
	}
	return ""
}

// webhookSecret describes a symmetric secret of Standard Webhooks.
const webhookSecret = "whsec_ and 24 to 64 bytes in base64, as in Standard Webhooks"

func isWebhookSecret(s string) bool {
	_, ok := webhookKey(s)
	return ok
}

// webhookKey returns the bytes of a secret; false if it is none.
func webhookKey(secret string) ([]byte, bool) {
	rest, ok := strings.CutPrefix(secret, "whsec_")
	bytes, err := base64.StdEncoding.DecodeString(rest)
	return bytes, ok && err == nil && len(bytes) >= 24 && len(bytes) <= 64
}

// mostKeys is how many attributes can be kept.
const mostKeys = ingest.MaxKeys
