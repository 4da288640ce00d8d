package config

import (
	"encoding/base64"
	"math"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/telemetry"
	"github.com/sibyl-trace/sibyl/control/sampling"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/notify"
	"github.com/sibyl-trace/sibyl/search"
)

// Limits for values that have no natural limit.
const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
	tib = 1 << 40

	maxBytes    = 512 * tib
	maxDuration = 3650 * day
	maxCount    = math.MaxInt32
	maxCores    = 1 << 16
)

// WebhookFormats lists the formats of webhook bodies. WebhookEvents lists the events that webhooks can receive.
var (
	WebhookFormats = []string{
		"sibyl", "cloudevents", "alertmanager", "grafana-annotation", "slack", "teams",
		"pagerduty", "opsgenie",
	}
	WebhookEvents = []string{
		"incident.opened", "incident.located", "incident.acknowledged", "incident.steady",
		"incident.closed", "problem.opened", "problem.located", "problem.explained", "problem.closed", "decision",
	}
)

// defaultKeys are attributes that instrumentation sets, that are numbers or have few distinct values, and that often
// explain slow requests. They include attributes that identify hosts and versions, because contrasts compare these.
var defaultKeys = []string{
	"http.request.method", "http.response.status_code", "http.request.body.size", "http.response.body.size",
	"rpc.response.status_code", "db.system.name", "db.operation.name", "db.collection.name",
	"messaging.batch.message_count",
	"error.type", "service.version", "deployment.environment.name", "cloud.region", "cloud.availability_zone",
	"host.name", "k8s.node.name", "k8s.pod.name", "service.instance.id",
}

// definitions returns the definitions of all keys, in the order of printing. The keys of a section are contiguous.
func definitions() []definition[Config] {
	var all []definition[Config]
	for _, g := range groups {
		all = append(all, g.keys()...)
	}
	return all
}

// groups are the parts of the configuration, with the titles used for their flags in help texts.
var groups = []struct {
	title string
	keys  func() []definition[Config]
}{
	{"Data, logs, API and web UI", listenerKeys},
	{"Receiving traces", inputKeys},
	{"Assembling traces, memory and journal", traceKeys},
	{"Replicas that share the journal in Kafka", clusterKeys},
	{"Detecting problems; objectives", problemKeys},
	{"Sizes from which a change raises an incident", gateKeys},
	{"Searching for the cause, and its budget", searchKeys},
	{"Keeping the past; links, notifications and export", outputKeys},
}

func listenerKeys() []definition[Config] {
	rates := sampling.DefaultOptions()
	return slices.Concat([]definition[Config]{
		newField("data-dir", path("the name of a directory"), func(c *Config) *string { return &c.DataDir },
			"Directory for all persistent data. Only one process can use it at a time.").withDefault("./sibyl-data"),
		newField("log.level", choice("debug", "info", "warn", "error"), func(c *Config) *string { return &c.Log.Level },
			"Minimum level of log messages; they go to standard error.").withDefault("info").reloadable(),
		newField("log.format", choice("text", "json"), func(c *Config) *string { return &c.Log.Format },
			"Format of log messages.").withDefault("text"),
		newField("http", address(), func(c *Config) *string { return &c.HTTP },
			"Listen address of the API, the UI and the agents.").withDefault("127.0.0.1:8321"),
		newField("api.base-path", words("path", "an empty path, or one like /sibyl without a trailing slash", isPrefix),
			func(c *Config) *string { return &c.API.BasePath },
			"Path prefix of API and UI, for a reverse proxy that also serves other paths. Create a token first: "+
				"behind a proxy, all clients look local.").withDefault(""),
		newField("api.public-url",
			words("url", "an empty text, or a URL that starts with http:// or https://", isPublicURL),
			func(c *Config) *string { return &c.API.PublicURL },
			"URL of the UI with its path prefix, for links in webhooks; by default that of http, unless it listens "+
				"on all addresses.").withDefault(""),
	}, tlsKeys("api.tls.", "API and UI", "callers", func(c *Config) *TLS { return &c.API.TLS }),
		[]definition[Config]{clientTenantKey("api.tls.", "agents", func(c *Config) *TLS { return &c.API.TLS })},
		oidcKeys(), annotationKeys(), []definition[Config]{
			newField("sampling-http", address(), func(c *Config) *string { return &c.SamplingHTTP },
				"Listen address of Jaeger remote sampling over HTTP, usually port 5778.").withDefault(""),
			newField("sampling-grpc", address(), func(c *Config) *string { return &c.SamplingGRPC },
				"Listen address of Jaeger remote sampling over gRPC, usually port 14250.").withDefault(""),
			newField("sampling.default", number(1e-6, 1), func(c *Config) *float64 { return &c.Sampling.Default },
				"Minimum share of requests that remote sampling tells SDKs to trace.").
				withDefault(rates.Default).reloadable(),
			newField("sampling.budget", number(0, 1e9), func(c *Config) *float64 { return &c.Sampling.Budget },
				"Total traces per second that remote sampling may request beyond the default share.").
				withDefault(rates.Budget).reloadable(),
		}, tlsKeys("sampling.tls.", "both remote sampling listeners", "SDKs",
			func(c *Config) *TLS { return &c.Sampling.TLS }), []definition[Config]{
			newField("opamp", address(), func(c *Config) *string { return &c.OpAMP },
				"Listen address for agents that speak OpAMP, at /v1/opamp, or the tracepoint protocol; usually port "+
					"4320. It uses api.tls.").withDefault(""),
		})
}

// annotationKeys returns the keys for reports from other systems.
func annotationKeys() []definition[Config] {
	return []definition[Config]{
		newField("annotations.github-secret-file", optional(path("the name of a file")),
			func(c *Config) *string { return &c.GitHubSecretFile },
			"File with the secret of GitHub's webhooks; empty: these need a token.").withDefault(""),
		newField("acknowledgements.pagerduty-secret-file", optional(path("the name of a file")),
			func(c *Config) *string { return &c.PagerDutySecretFile },
			"File with the secret of PagerDuty's webhooks; empty: these need a token.").withDefault(""),
		newField("acknowledgements.slack-secret-file", optional(path("the name of a file")),
			func(c *Config) *string { return &c.SlackSecretFile },
			"File with the signing secret of your Slack app; empty: messages to Slack have no buttons.").
			withDefault(""),
	}
}

// oidcKeys returns the keys for the log-in of people.
func oidcKeys() []definition[Config] {
	roles := func(role string, of func(*Roles) *[]string) definition[Config] {
		return newField("auth.oidc.roles."+role, &list{of: text("a value of the claim")},
			func(c *Config) *[]string { return of(&c.OIDC.Roles) },
			"Values of the claim that give the role "+role+".").withDefault([]string{})
	}
	safeURL := func() *scalar[string] {
		return words("url", "an empty text, or a URL that starts with https://, or with http:// on this machine",
			isSafeURL)
	}
	return []definition[Config]{
		newField("auth.oidc.issuer", safeURL(), func(c *Config) *string { return &c.OIDC.Issuer },
			"Identity provider at which people log in with OpenID Connect; exactly as it names itself. Empty: there is "+
				"no log-in.").withDefault(""),
		newField("auth.oidc.client-id", optional(text("a name")), func(c *Config) *string { return &c.OIDC.ClientID },
			"Name under which the provider knows Sibyl.").withDefault(""),
		newField("auth.oidc.client-secret-file", optional(path("the name of a file")),
			func(c *Config) *string { return &c.OIDC.ClientSecretFile },
			"File with the client's secret; empty: a public client, which has none.").withDefault(""),
		newField("auth.oidc.audience", optional(text("a name")), func(c *Config) *string { return &c.OIDC.Audience },
			"Audience of the provider's tokens (JWT) that programs may send in place of Sibyl's; by default "+
				"client-id.").withDefault(""),
		newField("auth.oidc.scopes", &list{of: text("a scope")}, func(c *Config) *[]string { return &c.OIDC.Scopes },
			"Scopes to ask for. Many providers send groups only if you add theirs, often groups.").
			withDefault([]string{"openid", "profile", "email"}),
		newField("auth.oidc.url", safeURL(), func(c *Config) *string { return &c.OIDC.URL },
			"URL of the UI with its path prefix, as browsers reach it; by default that of api.public-url or http. The "+
				"provider must accept it with /login/callback appended.").withDefault(""),
		newField("auth.oidc.roles.claim", text("the name of a claim"),
			func(c *Config) *string { return &c.OIDC.Roles.Claim },
			"Claim that decides about roles: a text or a list of texts. Dots lead into objects: "+
				"realm_access.roles.").withDefault("groups"),
		roles("admin", func(r *Roles) *[]string { return &r.Admin }),
		roles("operator", func(r *Roles) *[]string { return &r.Operator }),
		roles("viewer", func(r *Roles) *[]string { return &r.Viewer }),
		newField("auth.oidc.tenant-claim", optional(text("the name of a claim")),
			func(c *Config) *string { return &c.OIDC.TenantClaim },
			"Claim with the names of the tenants that a person may enter, like auth.oidc.roles.claim; default is the "+
				"default tenant.").withDefault(""),
	}
}

// tlsKeys returns the keys for a listener's encryption.
func tlsKeys(prefix, listener, clients string, of func(*Config) *TLS) []definition[Config] {
	file := func() *scalar[string] { return optional(path("the name of a PEM file")) }
	return []definition[Config]{
		newField(prefix+"cert", file(), func(c *Config) *string { return &of(c).Cert },
			"Certificate of "+listener+"; empty: no encryption. A change of certificate or key file takes effect "+
				"within seconds.").withDefault(""),
		newField(prefix+"key", file(), func(c *Config) *string { return &of(c).Key },
			"Private key of the certificate.").withDefault(""),
		newField(prefix+"client-ca", file(), func(c *Config) *string { return &of(c).ClientCA },
			"Certificate authorities that must have signed the certificates of "+clients+"; empty: "+clients+
				" need no certificate.").withDefault(""),
	}
}

// clientTenantKey returns the key for the part of client certificates that names the tenant.
func clientTenantKey(prefix, clients string, of func(*Config) *TLS) definition[Config] {
	return newField(prefix+"client-tenant", choice("none", "organization", "common-name"),
		func(c *Config) *string { return &of(c).ClientTenant },
		"Part of the subject of client certificates that names the tenant of "+clients+"; default is the default "+
			"tenant. It needs client-ca.").withDefault("none")
}

func inputKeys() []definition[Config] {
	return slices.Concat([]definition[Config]{
		newField("otlp.grpc", address(), func(c *Config) *string { return &c.OTLP.GRPC },
			"Listen address for OTLP traces over gRPC.").withDefault("127.0.0.1:4317"),
		newField("otlp.http", address(), func(c *Config) *string { return &c.OTLP.HTTP },
			"Listen address for OTLP traces over HTTP, at /v1/traces, and "+
				"Zipkin's JSON, at /api/v2/spans.").withDefault("127.0.0.1:4318"),
		newField("otlp.max-request", size(kib, gib), func(c *Config) *int64 { return &c.OTLP.MaxRequest },
			"Maximum size of a request after decompression. It is at most a sixteenth of memory, also the default "+
				"if memory is below 1GiB. Larger requests are rejected, and senders must not retry "+
				"them.").withDefault(mostRequest),
		newField("otlp.require-token", boolean(), func(c *Config) *bool { return &c.OTLP.RequireToken },
			"Whether senders need a token of role agent, operator or admin; by default true if other machines can "+
				"reach an OTLP address without a client certificate.").withDefault(false),
	}, tlsKeys("otlp.tls.", "both OTLP listeners", "senders", func(c *Config) *TLS { return &c.OTLP.TLS }),
		[]definition[Config]{
			clientTenantKey("otlp.tls.", "senders", func(c *Config) *TLS { return &c.OTLP.TLS }),
			newField("jaeger.query", jaegerQueries(), func(c *Config) *[]JaegerQuery { return &c.Jaeger.Query },
				"Query services of Jaeger to fetch traces from.").withDefault([]JaegerQuery{}).reloadable(),
		})
}

func traceKeys() []definition[Config] {
	return []definition[Config]{
		newField("keys", &list{of: text("the key of an attribute")}, func(c *Config) *[]string { return &c.Keys },
			"Attributes that can explain a problem. At most 32, including those of group-by and rules.").
			withDefault(defaultKeys),
		newField("failures", &list{of: choice(ingest.FailureRuleNames()...)},
			func(c *Config) *[]string { return &c.Failures },
			"Signs that a span failed. status: status ERROR; http, grpc: response code; error-type, error-tag: "+
				"attributes error.type, error; exception: an exception event that escaped the "+
				"span.").withDefault(ingest.FailureRuleNames()),
		newField("see-through", &list{of: text("the name of a service")},
			func(c *Config) *[]string { return &c.SeeThrough },
			"Services that only forward calls, such as the sidecars istio-proxy and envoy: the first span behind "+
				"them answers the call.").withDefault([]string{}),
		newField("memory", size(MinMemory, 16*tib), func(c *Config) *int64 { return &c.Memory },
			"Memory for open traces, queues and statistics together. When it runs short, traces close early and "+
				"senders are told to retry.").withDefault(2 * gib),
		newField("assembly.timeout", duration(10*time.Millisecond, time.Hour),
			func(c *Config) *time.Duration { return &c.Assembly.Timeout },
			"Time without new spans after which a trace with missing parents closes. A complete trace closes after "+
				"six tenths of it, any trace after six times as long. Raise it if senders deliver spans "+
				"later.").withDefault(assemble.Timeout),
		newField("journal.durability", choice("disk", "process"),
			func(c *Config) *string { return &c.Journal.Durability },
			"Failure that acknowledged spans survive. disk: a power failure; process: only a crash of the process, "+
				"at lower cost.").withDefault("disk"),
		newField("journal.max-bytes", size(64*mib, maxBytes), func(c *Config) *int64 { return &c.Journal.MaxBytes },
			"Maximum disk space of the journal.").withDefault(8 * gib),
		newField("journal.max-age", duration(time.Minute, 30*day),
			func(c *Config) *time.Duration { return &c.Journal.MaxAge },
			"Maximum age of journal records that a checkpoint already covers. Records not yet covered are "+
				"never deleted.").withDefault(time.Hour),
	}
}

func clusterKeys() []definition[Config] {
	file := func() *scalar[string] { return optional(path("the name of a file")) }
	return []definition[Config]{
		newField("cluster.brokers", &list{of: text("the address of a broker, like kafka-1:9092")},
			func(c *Config) *[]string { return &c.Cluster.Brokers },
			"Some brokers of the Kafka cluster that all replicas of this service share. One replica leads, the others "+
				"stand by. Empty: this is the only process.").withDefault([]string{}),
		newField("cluster.topic", text("the name of a topic"), func(c *Config) *string { return &c.Cluster.Topic },
			"Topic of the journal. It is created if it doesn't exist.").withDefault("sibyl"),
		newField("cluster.url",
			words("url", "an empty text, or a URL that starts with http:// or https://", isPublicURL),
			func(c *Config) *string { return &c.Cluster.URL },
			"URL of this replica's API for the other replicas and their clients; each replica needs its own. By default "+
				"that of api.public-url or http.").withDefault(""),
		newField("cluster.retention", duration(10*time.Minute, 365*day),
			func(c *Config) *time.Duration { return &c.Cluster.Retention },
			"How long a new topic keeps records. A replica that was away for longer needs a backup of another "+
				"one.").withDefault(day),
		newField("cluster.patience", duration(time.Second, time.Hour),
			func(c *Config) *time.Duration { return &c.Cluster.Patience },
			"Silence of the leading replica after which another one takes over.").withDefault(8 * time.Second),
		newField("cluster.encryption", choice("none", "tls"), func(c *Config) *string { return &c.Cluster.Encryption },
			"Encryption of the connections to the brokers.").withDefault("none"),
		newField("cluster.ca-file", file(), func(c *Config) *string { return &c.Cluster.CAFile },
			"PEM file with the certificate authorities of the brokers; empty: those of the system.").withDefault(""),
		newField("cluster.cert-file", file(), func(c *Config) *string { return &c.Cluster.CertFile },
			"PEM file with this replica's certificate for the brokers; empty: none.").withDefault(""),
		newField("cluster.key-file", file(), func(c *Config) *string { return &c.Cluster.KeyFile },
			"PEM file with the private key of that certificate.").withDefault(""),
		newField("cluster.user", optional(text("a name")), func(c *Config) *string { return &c.Cluster.User },
			"User of the brokers, who logs in with SCRAM-SHA-512; empty: no log-in.").withDefault(""),
		newField("cluster.password-file", file(), func(c *Config) *string { return &c.Cluster.PasswordFile },
			"File with the password of that user.").withDefault(""),
	}
}

func problemKeys() []definition[Config] {
	t, w := detect.DefaultThresholds(), detect.DefaultWatchOptions()
	return []definition[Config]{
		newField("epoch", duration(time.Second, time.Hour), func(c *Config) *time.Duration { return &c.Epoch },
			"Time between two decisions.").withDefault(10 * time.Second),
		newField("learning", duration(0, 30*day), func(c *Config) *time.Duration { return &c.Learning },
			"Time during which the requests of a new group count as healthy. Requests that arrive late, "+
				"as from a replayed recording, count by their own time.").withDefault(5 * time.Minute),
		newField("min-samples", integer[uint64](2, maxCount), func(c *Config) *uint64 { return &c.MinSamples },
			"Number of requests that a group needs before it is judged.").withDefault(t.MinSamples).reloadable(),
		newField("thresholds.cov", number(0, 1000), func(c *Config) *float64 { return &c.Thresholds.CoV },
			"Coefficient of variation above which a group is a problem even without a change.").
			withDefault(t.CoV).reloadable(),
		newField("thresholds.false-discovery", number(0, 1),
			func(c *Config) *float64 { return &c.Thresholds.FalseDiscovery },
			"Share of the alarms that may be false.").withDefault(w.FalseDiscovery).reloadable(),
		newField("thresholds.min-impact", duration(0, day),
			func(c *Config) *time.Duration { return &c.Thresholds.MinImpact },
			"Minimum time lost per second of operation, or rise of the standard deviation × rate, for a change to "+
				"be a problem. It must also be 1 % of the time of its request type.").
			withDefault(time.Duration(w.MinImpact)).reloadable(),
		newField("group-by", &list{of: text("the key of an attribute")},
			func(c *Config) *[]string { return &c.GroupBy },
			"Attributes with few values each; requests with different values form different groups.").
			withDefault([]string{}),
		newField("rules", typeRules(), func(c *Config) *[]group.TypeRule { return &c.Rules },
			"Settings for some of the requests. The first matching rule applies.").withDefault([]group.TypeRule{}),
		newField("objectives", objectives(), func(c *Config) *[]Objective { return &c.Objectives },
			"Objectives for the requests of an entry. An objective opens an incident if its error budget burns 14.4 "+
				"times too fast for an hour, or 6 times too fast for six.").withDefault([]Objective{}).reloadable(),
	}
}

// gateKeys returns the keys for the minimum size of a change that raises an incident.
func gateKeys() []definition[Config] {
	g := incident.DefaultGates()
	return []definition[Config]{
		newField("gates.growth", share(0.001, 100), func(c *Config) *float64 { return &c.Gates.Growth },
			"Growth of the own time of an operation, relative to the usual one, from which it raises an incident. "+
				"Raise it if you do not act on small changes.").withDefault(g.Growth).reloadable(),
		newField("gates.time", duration(time.Microsecond, time.Hour),
			func(c *Config) *time.Duration { return &c.Gates.Time },
			"Time that a call of the operation must also lose. Lower it if calls take less than 10ms and every "+
				"one of them matters.").withDefault(g.Time).reloadable(),
		newField("gates.lost", rate(time.Microsecond, time.Hour),
			func(c *Config) *time.Duration { return &c.Gates.Lost },
			"Time that all calls of the operation together must also lose; proportionally less if all requests "+
				"together take less than 400 times as long. Raise it if rarely called operations do not matter.").
			withDefault(g.Lost).reloadable(),
		newField("gates.failing", share(0.001, 1), func(c *Config) *float64 { return &c.Gates.Failing },
			"Share of the calls of an operation that must fail to raise an incident.").
			withDefault(g.Failing).reloadable(),
		newField("gates.score", share(0.001, 100), func(c *Config) *float64 { return &c.Gates.Score },
			"Score from which a service raises an incident: the time that requests lose there relative to their "+
				"usual time, or the share that fails. Lower it to find causes that affect few requests.").
			withDefault(g.Score).reloadable(),
	}
}

func searchKeys() []definition[Config] {
	others := slices.DeleteFunc(slices.Clone(search.StrategyNames()),
		func(s string) bool { return s == search.DefaultStrategy })
	names := append([]string{search.DefaultStrategy}, others...)
	return slices.Concat([]definition[Config]{
		newField("strategy", choice(names...), func(c *Config) *string { return &c.Strategy },
			"Strategy that chooses the tracepoints to enable next.").withDefault(search.DefaultStrategy).reloadable(),
	},
		limitKeys("budget.", "in total", func(c *Config) *int { return &c.Budget.Tracepoints },
			func(c *Config) *int64 { return &c.Budget.BytesPerSecond },
			func(c *Config) *float64 { return &c.Budget.CPU },
			Limit{Tracepoints: 1000, BytesPerSecond: 16 * mib, CPU: 1}),
		partKeys("budget.per-service.", "in each service", func(c *Config) *Limit { return &c.Budget.PerService }),
	)
}

// partKeys returns the keys for a part of the budget, which is unlimited by default.
func partKeys(prefix, where string, of func(*Config) *Limit) []definition[Config] {
	return limitKeys(prefix, where, func(c *Config) *int { return &of(c).Tracepoints },
		func(c *Config) *int64 { return &of(c).BytesPerSecond },
		func(c *Config) *float64 { return &of(c).CPU }, Limit{})
}

func limitKeys(
	prefix, where string, tracepoints func(*Config) *int, bytes func(*Config) *int64, cpu func(*Config) *float64,
	defaults Limit,
) []definition[Config] {
	return []definition[Config]{
		newField(prefix+"tracepoints", integer(0, maxCount), tracepoints,
			"Maximum number of enabled tracepoints "+where+"; 0: unlimited.").
			withDefault(defaults.Tracepoints).reloadable(),
		newField(prefix+"bytes-per-second", size(0, tib), bytes,
			"Maximum additional trace data per second "+where+"; 0: unlimited.").
			withDefault(defaults.BytesPerSecond).reloadable(),
		newField(prefix+"cpu", number(0, maxCores), cpu,
			"Maximum CPU use of enabled tracepoints "+where+", in cores; 0: unlimited.").
			withDefault(defaults.CPU).reloadable(),
	}
}

func outputKeys() []definition[Config] {
	return slices.Concat([]definition[Config]{
		newField("retention.age", duration(time.Hour, maxDuration),
			func(c *Config) *time.Duration { return &c.Retention.Age },
			"How long to keep statistics, decisions, exemplars, windows of past days, and closed incidents and "+
				"problems; the last three at least a day.").withDefault(7 * day).reloadable(),
		newField("retention.bytes", size(64*mib, maxBytes), func(c *Config) *int64 { return &c.Retention.Bytes },
			"Maximum disk space of stored data, without the journal. Beyond it the oldest decisions, exemplars and "+
				"days of windows are deleted, evidence of open problems last.").withDefault(10 * gib).reloadable(),
		newField("retention.exemplars", integer(0, 100), func(c *Config) *int { return &c.Retention.Exemplars },
			"Number of slow, of typical, of fast and of failed traces to keep for each group.").
			withDefault(3).reloadable(),
		newField("retention.audit", duration(day, maxDuration),
			func(c *Config) *time.Duration { return &c.Retention.Audit },
			"How long to keep the audit log, at most 64 MiB of changes, and 16 MiB each of log-ins and refused "+
				"requests.").
			withDefault(365 * day).reloadable(),
		newField("trace-url", traceURLs(), func(c *Config) *[]TraceURL { return &c.TraceURL },
			"Links from traces to tracing backends.").withDefault([]TraceURL{}).reloadable(),
		newField("suspect-url", suspectURLs(), func(c *Config) *[]SuspectURL { return &c.SuspectURL },
			"Links from the suspects of incidents to their logs, metrics and runbooks.").
			withDefault([]SuspectURL{}).reloadable(),
		newField("owners", owners(), func(c *Config) *[]Owner { return &c.Owners },
			"Owners of services, shown with incidents. The first matching element applies.").
			withDefault([]Owner{}).reloadable(),
		newField("webhooks", webhooks(), func(c *Config) *[]Webhook { return &c.Webhooks },
			"Webhooks for incidents, problems and decisions.").withDefault([]Webhook{}).reloadable(),
		newField("email", emails(), func(c *Config) *[]Email { return &c.Email },
			"Destinations of e-mails about incidents, problems and decisions.").withDefault([]Email{}).reloadable(),
	},
		endpointKeys("export.", "OTLP/HTTP endpoint of a tracing backend that receives the critical paths "+
			"of exemplars.", func(c *Config) *Endpoint { return &c.Export }),
		[]definition[Config]{
			newField("tenants", tenants(), func(c *Config) *[]TenantOutputs { return &c.Tenants },
				"Webhooks, e-mails and exports of tenants other than the default one. A tenant needs no element. A "+
					"change of an export takes effect after a restart.").
				withDefault([]TenantOutputs{}).reloadable(),
		},
		endpointKeys("self-tracing.", "OTLP/HTTP endpoint for traces of Sibyl's own API and epochs. "+
			"It must not be Sibyl itself.", func(c *Config) *Endpoint { return &c.SelfTracing }),
		telemetryKeys(),
	)
}

// telemetryKeys returns the keys for the systems that are queried about the suspects of incidents.
func telemetryKeys() []definition[Config] {
	const account = "/var/run/secrets/kubernetes.io/serviceaccount/"
	server := func(key, headersKey, help string, of func(*Config) *Endpoint) []definition[Config] {
		return []definition[Config]{
			newField(key, orOff(endpoint()), func(c *Config) *string { return &of(c).URL }, help).withDefault(""),
			newField(headersKey, headers(), func(c *Config) *[]Header { return &of(c).Headers },
				"Extra HTTP headers, such as Authorization; header files are re-read for every request.").
				withDefault([]Header{}),
		}
	}
	return slices.Concat(
		server("logs.loki", "logs.headers",
			"Loki server whose logs of the first suspect the page of an incident shows.",
			func(c *Config) *Endpoint { return &c.Logs.Loki }),
		[]definition[Config]{
			newField("logs.query", text("a query of Loki with {service} in it"),
				func(c *Config) *string { return &c.Logs.Query },
				"Query for the logs of a service. docs/operations.md lists the placeholders.").
				withDefault(telemetry.DefaultLogQuery),
		},
		server("metrics.prometheus", "metrics.headers", "Server with the API of Prometheus whose metrics of the first "+
			"suspect the page of an incident shows.", func(c *Config) *Endpoint { return &c.Metrics.Prometheus }),
		[]definition[Config]{
			newField("metrics.queries", metricQueries(),
				func(c *Config) *[]telemetry.Metric { return &c.Metrics.Queries },
				"Metrics to show, at most eight; by default CPU, memory, restarts and garbage collection.").
				withDefault([]telemetry.Metric{}),
			newField("kubernetes.url", orOff(endpoint()), func(c *Config) *string { return &c.Kubernetes.URL },
				"API of Kubernetes whose restarts and events of the first suspect the page of an incident shows; in a "+
					"pod https://kubernetes.default.svc.").withDefault(""),
			newField("kubernetes.token-file", path("the name of a file"),
				func(c *Config) *string { return &c.Kubernetes.TokenFile },
				"File with the bearer token, if the URL starts with https://; re-read for every request.").
				withDefault(account + "token"),
			newField("kubernetes.ca-file", path("the name of a PEM file"),
				func(c *Config) *string { return &c.Kubernetes.CAFile },
				"Certificate authority of the API, if the URL starts with https://.").withDefault(account + "ca.crt"),
			newField("kubernetes.namespace", optional(text("the name of a namespace")),
				func(c *Config) *string { return &c.Kubernetes.Namespace },
				"Namespace of the services; empty: all.").withDefault(""),
		})
}

func metricQueries() kind[[]telemetry.Metric] {
	type m = telemetry.Metric
	units := []string{
		string(contract.TelemetryUnitNumber), string(contract.TelemetryUnitBytes),
		string(contract.TelemetryUnitSeconds), string(contract.TelemetryUnitShare),
	}
	return &sections[m]{noun: "metric", name: func(x *m) string { return x.Name }, keys: []definition[m]{
		newField("name", text("a name"), func(x *m) *string { return &x.Name }, "Name of the metric.").required(),
		newField("query", text("a query of Prometheus with {service}, {pod} or {instance} in it"),
			func(x *m) *string { return &x.Query },
			"Query that returns one series. docs/operations.md lists the placeholders.").required(),
		newField("unit", choice(units...), func(x *m) *string { return (*string)(&x.Unit) },
			"Unit of the values.").withDefault("number"),
	}}
}

func endpointKeys[T any](prefix, help string, of func(*T) *Endpoint) []definition[T] {
	return []definition[T]{
		newField(prefix+"otlp", orOff(endpoint()), func(c *T) *string { return &of(c).URL }, help).
			withDefault(""),
		newField(prefix+"headers", headers(), func(c *T) *[]Header { return &of(c).Headers },
			"Extra HTTP headers; header files are re-read for every request.").withDefault([]Header{}),
	}
}

// optional makes s accept the empty text, too, and returns s.
func optional(s *scalar[string]) *scalar[string] {
	parse := s.parse
	s.wants += ", or empty"
	s.parse = func(text string) (string, error) {
		if text == "" {
			return "", nil
		}
		return parse(text)
	}
	return s
}

func jaegerQueries() kind[[]JaegerQuery] {
	type j = JaegerQuery
	return &sections[j]{noun: "server", name: func(q *j) string { return q.URL }, keys: []definition[j]{
		newField("url", endpoint(), func(q *j) *string { return &q.URL },
			"URL of its query service, like http://jaeger:16686 (http) or http://jaeger:16685 (grpc).").required(),
		newField("protocol", choice("http", "grpc"), func(q *j) *string { return &q.Protocol },
			"http for /api/v3/traces; grpc for servers without it.").withDefault("http"),
		newField("services", &list{of: text("the name of a service")}, func(q *j) *[]string { return &q.Services },
			"Services whose traces to fetch; by default all."),
		newField("interval", duration(time.Second, time.Hour), func(q *j) *time.Duration { return &q.Interval },
			"Time between two fetches.").withDefault(10 * time.Second),
		newField("lookback", duration(0, 30*day), func(q *j) *time.Duration { return &q.Lookback },
			"How far back the first fetch goes.").withDefault(time.Hour),
	}}
}

func typeRules() kind[[]group.TypeRule] {
	type r = group.TypeRule
	return &sections[r]{noun: "rule", check: checkRule, keys: []definition[r]{
		newField("entry", text("a service and an operation, like shop GET /cart"),
			func(t *r) *string { return &t.Entry }, "Matches requests by their entry: service, space, operation."),
		newField("attribute", text("the key of an attribute"), func(t *r) *string { return &t.Attribute },
			"Matches requests whose entry span has this attribute."),
		newField("value", text("the value of the attribute"), func(t *r) *string { return &t.Value },
			"Value that the attribute must have; by default any."),
		newField("name", text("the name of a request type"), func(t *r) *string { return &t.Name },
			"Name of the request type. If several rules share it, the other settings of the first one apply."),
		newField("merge", boolean(), func(t *r) *bool { return &t.Merge },
			"Whether the requests form one group, whatever their path."),
		newField("group-by", &list{of: text("the key of an attribute")}, func(t *r) *[]string { return &t.GroupBy },
			"Like the key group-by, for these requests."),
		newField("size", text("the key of an attribute"), func(t *r) *string { return &t.Size },
			"Attribute with the size of a request in bytes. Durations are then judged relative to size."),
		newField("timeout", duration(0, day), func(t *r) *time.Duration { return &t.Timeout },
			"Timeout of the requests with a size; by default unknown."),
		newField("objective", duration(time.Microsecond, day), func(t *r) *time.Duration { return &t.Objective },
			"Mean duration above which the requests are a problem."),
		newField("accept.cov", number(0, 1000), func(t *r) *float64 { return &t.Accepted.CoV },
			"Coefficient of variation up to which the requests are not a problem."),
		newField("accept.delayed", number(0, 1), func(t *r) *float64 { return &t.Accepted.Delayed },
			"Share of the requests that may be delayed or time out."),
		newField("accept.mean", duration(0, day), func(t *r) *time.Duration { return &t.Accepted.Mean },
			"Mean duration up to which the requests are not slow."),
	}}
}

// checkRule returns a description of the error in a rule, or "" if the rule is valid. It reports only errors that don't
// depend on other keys.
func checkRule(t *group.TypeRule) string {
	one := group.Rules{Types: []group.TypeRule{*t}}
	if err := one.Check(); err != nil {
		return strings.TrimPrefix(err.Error(), "rule 1: ")
	}
	return ""
}

func objectives() kind[[]Objective] {
	type o = Objective
	return &sections[o]{noun: "objective", check: checkObjective, keys: []definition[o]{
		newField("entry", text("a service and an operation, like shop GET /cart, or a service"),
			func(x *o) *string { return &x.Entry },
			"Entry of the requests: service, space, operation. A service alone stands for all of its entries.").
			required(),
		newField("latency.percentile", number(50, 99.999), func(x *o) *float64 { return &x.Latency.Percentile },
			"Percent of the requests that must take less than latency.below."),
		newField("latency.below", duration(time.Microsecond, day),
			func(x *o) *time.Duration { return &x.Latency.Below }, "Duration that they must stay below."),
		newField("errors", share(1e-5, 0.5), func(x *o) *float64 { return &x.Errors },
			"Share of the requests that may fail: the status of their entry span is an error."),
		newField("name", text("a name"), func(x *o) *string { return &x.Name },
			"Name in the UI, in the API and in sentences; by default the entry."),
	}}
}

// checkObjective returns a description of the error in an objective, or "" if the objective is valid.
func checkObjective(x *Objective) string {
	switch {
	case (x.Latency.Percentile == 0) != (x.Latency.Below == 0):
		return "a latency needs both latency.percentile and latency.below, like {percentile: 99, below: 300ms}"
	case x.Latency.Below == 0 && x.Errors == 0:
		return "set what the requests must meet: latency, like {percentile: 99, below: 300ms}, or errors, like 0.1%"
	}
	return ""
}

func headers() kind[[]Header] {
	type h = Header
	return &sections[h]{
		noun:  "header",
		name:  func(x *h) string { return strings.ToLower(x.Name) },
		check: checkHeader,
		keys: []definition[h]{
			newField("name", words("name", "the name of a header, like Authorization", isHeaderName),
				func(x *h) *string { return &x.Name }, "Name of the header.").required(),
			newField("value", secret(text(headerValue)), func(x *h) *string { return &x.Value },
				"Value of the header; never shown. Prefer value-file."),
			newField("value-file", path("the name of a file"), func(x *h) *string { return &x.ValueFile },
				"File with the value."),
		},
	}
}

// headerValue describes, in error messages, the valid values of a header.
const headerValue = secretValue

func checkHeader(h *Header) string {
	switch {
	case h.Value != "" && h.ValueFile != "":
		return "value and value-file are both given; remove one"
	case h.Value == "" && h.ValueFile == "":
		return "the header has no value; set value or value-file"
	}
	return ""
}

// isHeaderName reports whether s can be the name of a header.
func isHeaderName(s string) bool {
	return s != "" && len(s) <= maxText &&
		strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

func traceURLs() kind[[]TraceURL] {
	type l = TraceURL
	wants := "a URL with " + tracePlaceholder + " in it, like https://jaeger.example/trace/" + tracePlaceholder
	return &sections[l]{noun: "link", name: func(u *l) string { return u.Name }, keys: []definition[l]{
		newField("name", text("the name of a backend"), func(u *l) *string { return &u.Name },
			"Text of the link, like Jaeger.").required(),
		newField("url", linkURL(wants, isTraceURL), func(u *l) *string { return &u.URL },
			"URL with "+tracePlaceholder+" in place of the trace ID. docs/webhooks.md lists further placeholders.").
			required(),
		newField("search", linkURL(
			"a URL, usually with a query in it, like https://jaeger.example/search?service={service}", isSearchURL),
			func(u *l) *string { return &u.Search },
			"URL of a search for traces, to which the page Traces hands its query. docs/webhooks.md lists the "+
				"placeholders."),
	}}
}

func suspectURLs() kind[[]SuspectURL] {
	type l = SuspectURL
	wants := "a URL, usually with {service} in it, like https://wiki.example/runbooks/{service}"
	return &sections[l]{noun: "link", keys: []definition[l]{
		newField("name", text("the name of a page"), func(u *l) *string { return &u.Name },
			"Text of the link, like Logs, Metrics or Runbook.").required(),
		newField("url", linkURL(wants, isSuspectURL), func(u *l) *string { return &u.URL },
			"URL in which {service} stands for the suspect. docs/webhooks.md lists further placeholders.").required(),
		newField("services", &list{of: text(servicePattern)}, func(u *l) *[]string { return &u.Services },
			"Services that have this page; by default all."),
	}}
}

// servicePattern describes, in error messages, a pattern for the names of services.
const servicePattern = "the name of a service, in which * stands for any text"

func owners() kind[[]Owner] {
	type o = Owner
	return &sections[o]{noun: "owner", keys: []definition[o]{
		newField("services", &list{of: text(servicePattern)}, func(x *o) *[]string { return &x.Services },
			"Services of the owner.").required(),
		newField("name", text("the name of a team"), func(x *o) *string { return &x.Name },
			"Name of the owner.").required(),
		newField("contact", text("a channel, a telephone number, or an address"),
			func(x *o) *string { return &x.Contact }, "How to reach the owner."),
		newField("route", &list{of: text("the name of a webhook")}, func(x *o) *[]string { return &x.Route },
			"Webhooks for incidents whose first suspect, when they open, is one of these services. "+
				"They receive no other incidents."),
	}}
}

func tenants() kind[[]TenantOutputs] {
	type t = TenantOutputs
	return &sections[t]{
		noun: "tenant",
		name: func(x *t) string { return x.Name },
		keys: append([]definition[t]{
			newField("name", words("text", "the name of a tenant other than default", IsTenantName),
				func(x *t) *string { return &x.Name }, "Name of the tenant.").required(),
			newField("webhooks", webhooks(), func(x *t) *[]Webhook { return &x.Webhooks },
				"Webhooks of the tenant, like webhooks of the configuration."),
			newField("email", emails(), func(x *t) *[]Email { return &x.Email },
				"Destinations of e-mails of the tenant, like email of the configuration."),
		}, endpointKeys("export.", "OTLP/HTTP endpoint of a tracing backend that receives the tenant's critical paths.",
			func(x *t) *Endpoint { return &x.Export })...),
	}
}

func webhooks() kind[[]Webhook] {
	type w = Webhook
	return &sections[w]{
		noun:  "webhook",
		name:  func(h *w) string { return h.Name },
		check: checkWebhook,
		keys: []definition[w]{
			newField("name", text("a name"), func(h *w) *string { return &h.Name },
				"Name in the UI, in logs and for sibyl webhook test.").required(),
			newField("url", secretURL(), func(h *w) *string { return &h.URL },
				"URL to call; its path is never shown.").required(),
			newField("format", choice(WebhookFormats...), func(h *w) *string { return &h.Format },
				"Format of the body.").withDefault("sibyl"),
			newField("secret", secret(words("secret", webhookSecret, isWebhookSecret)),
				func(h *w) *string { return &h.Secret }, "Secret that signs calls. Prefer secret-file."),
			newField("secret-file", path("the name of a file"), func(h *w) *string { return &h.SecretFile },
				"File with the secret."),
			newField("token", secret(text(secretValue)), func(h *w) *string { return &h.Token },
				"Routing key of PagerDuty, or key of an API integration of Opsgenie; never shown. Prefer token-file."),
			newField("token-file", path("the name of a file"), func(h *w) *string { return &h.TokenFile },
				"File with the token."),
			eventsField(func(h *w) *[]string { return &h.Events }),
			newField("allow-private", boolean(), func(h *w) *bool { return &h.AllowPrivate },
				"Whether non-public addresses may be called: loopback, private, link-local, cloud metadata."),
		},
	}
}

// eventsField returns the key for the events that an endpoint receives.
func eventsField[T any](of func(*T) *[]string) definition[T] {
	return newField("events", &list{of: choice(WebhookEvents...)}, of,
		"Events to send, by default incident.opened, incident.steady and incident.closed; an empty list: all.").
		withDefault([]string{"incident.opened", "incident.steady", "incident.closed"})
}

func checkWebhook(h *Webhook) string {
	switch needed := notify.NeedsToken(h.Format); {
	case h.Secret != "" && h.SecretFile != "":
		return "secret and secret-file are both given; remove one"
	case h.Token != "" && h.TokenFile != "":
		return "token and token-file are both given; remove one"
	case needed && h.Token == "" && h.TokenFile == "":
		return "format " + h.Format + " needs a token; set token or token-file"
	case !needed && (h.Token != "" || h.TokenFile != ""):
		return "format " + h.Format + " has no token; remove it"
	}
	if u, err := url.Parse(h.URL); err == nil && !h.AllowPrivate && notify.IsPrivateHost(u.Hostname()) {
		return privateHost
	}
	return ""
}

// privateHost is the error for an endpoint that is never called because its address isn't public.
const privateHost = "the address is not public, so it is not called; set allow-private: true if it is yours"

func emails() kind[[]Email] {
	type m = Email
	return &sections[m]{
		noun:  "e-mail destination",
		name:  func(x *m) string { return x.Name },
		check: checkEmail,
		keys: []definition[m]{
			newField("name", text("a name"), func(x *m) *string { return &x.Name },
				"Name in the UI, in logs and for sibyl webhook test; no webhook has it.").required(),
			newField("server", words("address", "a host and a port, like smtp.example.com:587", isServer),
				func(x *m) *string { return &x.Server },
				"SMTP server that accepts the e-mails, usually at port 587 (starttls) or 465 (tls).").required(),
			newField("security", choice("starttls", "tls", "none"), func(x *m) *string { return &x.Security },
				"Encryption of the connection: with STARTTLS, TLS from the start, or none. With starttls nothing is "+
					"sent to a server that does not offer it.").withDefault("starttls"),
			newField("from", words("text", "an address like sibyl@example.com or Sibyl <sibyl@example.com>", isMail),
				func(x *m) *string { return &x.From }, "Sender.").required(),
			newField("to", &list{of: words("text", "an address like oncall@example.com", isMail)},
				func(x *m) *[]string { return &x.To }, "Recipients.").required(),
			newField("username", text("a user name"), func(x *m) *string { return &x.Username },
				"User name at the server; by default Sibyl does not log in."),
			newField("password", secret(text(secretValue)), func(x *m) *string { return &x.Password },
				"Password at the server; never shown. Prefer password-file."),
			newField("password-file", path("the name of a file"), func(x *m) *string { return &x.PasswordFile },
				"File with the password."),
			eventsField(func(x *m) *[]string { return &x.Events }),
			newField("allow-private", boolean(), func(x *m) *bool { return &x.AllowPrivate },
				"Whether the server may have a non-public address: loopback, private, link-local."),
		},
	}
}

func checkEmail(m *Email) string {
	given := m.Password != "" || m.PasswordFile != ""
	host, _, _ := net.SplitHostPort(m.Server) // already checked by isServer
	switch {
	case !m.AllowPrivate && notify.IsPrivateHost(host):
		return privateHost
	case m.Password != "" && m.PasswordFile != "":
		return "password and password-file are both given; remove one"
	case m.Username != "" && !given:
		return "the user has no password; set password or password-file"
	case m.Username == "" && given:
		return "a password needs a user; set username"
	case given && m.Security == "none":
		return "a password must not be sent unencrypted; set security to starttls or tls"
	case len(m.To) == 0:
		return "there is no recipient; set to"
	}
	return ""
}

// secretValue describes, in error messages, the valid values of a token or a password.
const secretValue = "one line of printable characters"

func isServer(s string) bool {
	host, port, _ := strings.Cut(s, ":")
	return isAddress(s) && (host != "" || strings.HasPrefix(s, "[")) && port != "0"
}

func isMail(s string) bool {
	_, err := notify.ParseMail(s)
	return err == nil && isText(s)
}

// webhookSecret describes, in error messages, a symmetric secret of Standard Webhooks.
const webhookSecret = "whsec_ and 24 to 64 bytes in base64, as in Standard Webhooks"

func isWebhookSecret(s string) bool {
	_, ok := webhookKey(s)
	return ok
}

// webhookKey returns the key in a secret, and whether the secret is well-formed.
func webhookKey(secret string) ([]byte, bool) {
	rest, ok := strings.CutPrefix(secret, "whsec_")
	bytes, err := base64.StdEncoding.DecodeString(rest)
	return bytes, ok && err == nil && len(bytes) >= 24 && len(bytes) <= 64
}

// maxKeys is the maximum number of attributes with stored values.
const maxKeys = ingest.MaxKeys
