// Package config reads the configuration of sibyl serve. It merges one YAML file, environment variables and flags into
// one typed value.
//
// The table of definitions in keys.go is the only list of keys, with their meaning, type, range, default and field.
// Parsing, flags, names of environment variables, sibyl config print and docs/configuration.md are derived from it.
// Flags override the environment, the environment overrides the file, and the file overrides the defaults. Load reports
// all errors at once, each with its position and a remedy. If there are any errors, it returns no configuration.
//
// The size of the file is limited. Load rejects aliases, anchors and tags, because they could expand without limit.
package config

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/api/telemetry"
	"github.com/sibyl-trace/sibyl/control/sampling"
	"github.com/sibyl-trace/sibyl/directory"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/notify"
	"github.com/sibyl-trace/sibyl/search"
)

// Config is the configuration of sibyl serve. It is immutable, and a reload replaces it. Addresses and endpoints are
// empty if the listener or export is off. Sizes are in bytes. For ranges and defaults, see keys.go.
type Config struct {
	DataDir string
	Log     Log

	HTTP string // address for the API, the UI and agents
	API  API    // settings of the listener at HTTP
	OIDC OIDC   // how people log in
	// GitHubSecretFile is the file with the secret that signs GitHub's webhooks. If it is empty, the webhooks need a
	// token instead.
	GitHubSecretFile string
	// PagerDutySecretFile is the file with the secret that signs PagerDuty's webhooks. If it is empty, the webhooks
	// need a token instead.
	PagerDutySecretFile string
	// SlackSecretFile is the file with the secret that signs the clicks on buttons in Slack. If it is empty, messages
	// to Slack have no buttons.
	SlackSecretFile string
	SamplingHTTP    string // address of Jaeger's remote sampling
	SamplingGRPC    string
	Sampling        Sampling // settings for both of these
	OpAMP           string   // address for agents that speak OpAMP
	OTLP            OTLP
	Jaeger          Jaeger

	Keys          []string // attributes with stored values; see AttributeKeys
	Failures      []string // rules that decide which spans count as failed; see DecodedKeys
	SeeThrough    []string // services that don't answer calls
	Memory        int64    // for open traces, queues and statistics together
	ProcessMemory int64    // memory of the whole service if Memory is a tenant's part of it; otherwise 0
	Assembly      Assembly
	Journal       Journal
	Cluster       Cluster

	Epoch      time.Duration
	Learning   time.Duration
	MinSamples uint64
	Thresholds Thresholds
	GroupBy    []string
	Rules      []group.TypeRule
	Objectives []Objective
	Gates      incident.Gates

	Strategy string // one of search.Strategies
	Budget   Budget

	Retention Retention

	TraceURL    []TraceURL
	SuspectURL  []SuspectURL
	Owners      []Owner
	Webhooks    []Webhook
	Email       []Email
	Export      Endpoint // critical-path attributes for a tracing backend
	Tenants     []TenantOutputs
	SelfTracing Endpoint // Sibyl's own traces

	Logs       Logs
	Metrics    Metrics
	Kubernetes Kubernetes
}

// Cluster connects replicas of this service by a Kafka topic. If Brokers is empty, there are none.
type Cluster struct {
	Brokers      []string
	Topic        string
	URL          string // of this replica's API; see Config.ReplicaURL
	Retention    time.Duration
	Patience     time.Duration
	Encryption   string // none or tls
	CAFile       string // empty: the CAs of the system
	CertFile     string // CertFile and KeyFile are empty if the brokers need no certificate
	KeyFile      string
	User         string // empty: no log-in
	PasswordFile string
}

// Logs is a server with the logs of services.
type Logs struct {
	Loki  Endpoint
	Query string // see telemetry.Options
}

// Metrics is a server with the metrics of services.
type Metrics struct {
	Prometheus Endpoint
	Queries    []telemetry.Metric // empty: the default ones
}

// Kubernetes is the API of the cluster that runs the services. It is the zero value if there is no cluster.
type Kubernetes struct {
	URL       string
	TokenFile string // TokenFile and CAFile are only used with https
	CAFile    string
	Namespace string // empty: all
}

// Log configures logging.
type Log struct {
	Level  string // debug, info, warn or error
	Format string // text or json
}

// TLS names the files for a listener's encryption. If Cert is empty, the listener doesn't encrypt.
type TLS struct {
	Cert     string
	Key      string
	ClientCA string // CAs that must sign the certificates of clients; empty: no certificate needed
	// ClientTenant is the part of the subject of a client's certificate that names the tenant of the client: none,
	// organization or common-name.
	ClientTenant string
}

// API configures the listener at Config.HTTP.
type API struct {
	BasePath  string // like "/sibyl"; may be empty
	PublicURL string // of the UI, for links; empty: see Config.UI
	TLS       TLS
}

// OIDC configures log-in at an identity provider with OpenID Connect. If Issuer is empty, there is no log-in.
type OIDC struct {
	Issuer           string
	ClientID         string
	ClientSecretFile string // empty: a public client
	Audience         string // of bearer tokens from the provider; empty: ClientID
	Scopes           []string
	URL              string // of the UI; empty: see Config.UI
	Roles            Roles
	TenantClaim      string // claim with the names of a person's tenants; empty: there is none
}

// ClientSecret returns the secret of the client, or "" if it is public. It reads the file with the secret.
func (o *OIDC) ClientSecret() (string, error) {
	secret, err := secretOf("", o.ClientSecretFile)
	if err != nil {
		return "", fmt.Errorf("client secret: %w", err)
	}
	return secret, nil
}

// GitHubSecret returns the secret that signs GitHub's webhooks, or "" if GitHubSecretFile is empty. It reads the file.
func (c *Config) GitHubSecret() (string, error) {
	secret, err := secretOf("", c.GitHubSecretFile)
	if err != nil {
		return "", fmt.Errorf("secret of GitHub's webhooks: %w", err)
	}
	return secret, nil
}

// PagerDutySecret returns the secret that signs PagerDuty's webhooks, or "" if PagerDutySecretFile is empty. It reads
// the file.
func (c *Config) PagerDutySecret() (string, error) {
	secret, err := secretOf("", c.PagerDutySecretFile)
	if err != nil {
		return "", fmt.Errorf("secret of PagerDuty's webhooks: %w", err)
	}
	return secret, nil
}

// SlackSecret returns the secret that signs the clicks on buttons in Slack, or "" if there is none. It reads the file.
func (c *Config) SlackSecret() (string, error) {
	secret, err := secretOf("", c.SlackSecretFile)
	if err != nil {
		return "", fmt.Errorf("signing secret of Slack: %w", err)
	}
	return secret, nil
}

// Roles lists the values of a claim that grant each role.
type Roles struct {
	Claim    string // name of the claim, or a path into it like realm_access.roles
	Admin    []string
	Operator []string
	Viewer   []string
}

// Sampling configures remote sampling; see sampling.Options.
type Sampling struct {
	Default float64 // share of the requests
	Budget  float64 // traces per second
	TLS     TLS
}

// OTLP configures the receivers of traces.
type OTLP struct {
	GRPC         string
	HTTP         string
	MaxRequest   int64 // bytes of one request after decompression
	RequireToken bool
	TLS          TLS
}

// Jaeger lists the servers to fetch traces from.
type Jaeger struct {
	Query []JaegerQuery
}

// JaegerQuery is one server to fetch traces from.
type JaegerQuery struct {
	URL      string
	Protocol string        // http or grpc
	Services []string      // empty: all services
	Interval time.Duration // between fetches
	Lookback time.Duration // time before the start from which the first fetch gets traces
}

// Assembly configures when traces close.
type Assembly struct {
	Timeout time.Duration // time without new spans
}

// Journal configures the journal, which holds acknowledged requests until a checkpoint covers them.
type Journal struct {
	Durability string // disk or process
	MaxBytes   int64
	MaxAge     time.Duration
}

// Thresholds define problems. See detect.Thresholds and detect.WatchOptions for fields with the same names.
type Thresholds struct {
	CoV            float64
	FalseDiscovery float64
	MinImpact      time.Duration // time lost per second of operation
}

// Objective is an objective for the requests of an entry: a latency, a share of errors, or both.
type Objective struct {
	Entry   string // a service with or without an operation
	Latency Latency
	Errors  float64 // share of the requests that may fail; 0: no objective
	Name    string  // may be empty
}

// Latency is an objective for durations: Percentile percent of the requests must take less than Below. The zero value
// means no objective.
type Latency struct {
	Percentile float64
	Below      time.Duration
}

// IncidentObjectives returns the objectives in the form of package incident, where latency and errors are separate
// objectives.
func (c *Config) IncidentObjectives() []incident.Objective {
	var all []incident.Objective
	for _, x := range c.Objectives {
		if x.Latency.Below > 0 {
			all = append(all, incident.Objective{
				Name:       x.Name,
				Entry:      x.Entry,
				Below:      x.Latency.Below,
				Percentile: x.Latency.Percentile,
			})
		}
		if x.Errors > 0 {
			all = append(all, incident.Objective{Name: x.Name, Entry: x.Entry, Errors: x.Errors})
		}
	}
	return all
}

// Budget limits the cost of a plan. A zero field means no limit.
type Budget struct {
	Tracepoints    int
	BytesPerSecond int64
	CPU            float64 // cores
	PerService     Limit
}

// Limit limits a part of the cost of a plan. A zero field means no limit.
type Limit struct {
	Tracepoints    int
	BytesPerSecond int64
	CPU            float64
}

// Retention limits the stored history.
type Retention struct {
	Age       time.Duration
	Bytes     int64
	Exemplars int // maximum number of slow traces per group, and also of typical and of fast ones
	Audit     time.Duration
}

// TraceURL is a link to a trace in a tracing backend.
type TraceURL struct {
	Name   string
	URL    string // a template; see directory.NewLink
	Search string // a template; see directory.NewSearchLink; may be empty
}

// SuspectURL is a link to a page about a service, such as its logs.
type SuspectURL struct {
	Name     string
	URL      string   // a template; see directory.NewServiceLink
	Services []string // names; * stands for any text; empty: all services
}

// Owner is a team that is responsible for some services.
type Owner struct {
	Services []string // names; * stands for any text
	Name     string
	Contact  string   // empty: unknown
	Route    []string // names of webhooks; these then only receive incidents routed to them
}

// Webhook receives problems and decisions.
type Webhook struct {
	Name         string
	URL          string
	Format       string   // one of WebhookFormats
	Secret       string   // whsec_…, as in Standard Webhooks; empty: see SecretFile
	SecretFile   string   // file with the secret; if both are empty, calls are not signed
	Token        string   // authorizes calls in some formats, see notify.NeedsToken; empty: see TokenFile
	TokenFile    string   // file with the token
	Events       []string // a subset of WebhookEvents; empty: all
	AllowPrivate bool     // allow calls to non-public addresses
}

// Email is a destination of e-mails about incidents, problems and decisions.
type Email struct {
	Name         string
	Server       string // host and port
	Security     string // starttls, tls or none
	From         string
	To           []string
	Username     string // empty: no authentication
	Password     string // empty: see PasswordFile
	PasswordFile string
	Events       []string // a subset of WebhookEvents; empty: all
	AllowPrivate bool     // allow a server with a non-public address
}

// Endpoint is an endpoint of another system. It is the zero value if the system isn't used.
type Endpoint struct {
	URL     string
	Headers []Header // sent with every request
}

// Header is an HTTP header field of requests, such as Authorization.
type Header struct {
	Name      string
	Value     string
	ValueFile string // file with the value
}

// Fields returns the values of the headers by name. Each call reads the files with values. It returns an error if a
// file can't be read or a value isn't valid.
func (e *Endpoint) Fields() (map[string]string, error) {
	fields := make(map[string]string, len(e.Headers))
	for _, h := range e.Headers {
		if h.ValueFile != "" {
			text, err := readFile(h.ValueFile)
			if err != nil {
				return nil, fmt.Errorf("value of header %s: %s: %w", h.Name, h.ValueFile, err)
			}
			h.Value = strings.TrimSpace(string(text))
		}
		if !isText(h.Value) {
			return nil, fmt.Errorf("value of header %s: want %s", h.Name, headerValue)
		}
		fields[h.Name] = h.Value
	}
	return fields, nil
}

// mostRequest is the default value of otlp.max-request.
const mostRequest = 64 * mib

// Engine returns the options of package engine.
func (c *Config) Engine() engine.Options {
	o := engine.DefaultOptions()
	c.limitStatistics(&o)
	o.Watch, o.Learning, o.Epoch, o.Rules = c.WatchOptions(), c.Learning, c.Epoch, c.AnalysisRules()
	o.SeeThrough(c.SeeThrough...)
	o.Budget, o.Strategy, o.Retention = c.Budget.Search(), c.Strategy, c.Retention.Age
	o.Objectives, o.Gates = c.IncidentObjectives(), c.Gates
	return o
}

// Rates converts s to options of package sampling.
func (s *Sampling) Rates() sampling.Options {
	return sampling.Options{Default: s.Default, Budget: s.Budget}
}

// Endpoints returns the webhooks and e-mail destinations as endpoints of package notify. It reads the files with the
// secrets.
func (c *Config) Endpoints() ([]notify.Endpoint, error) {
	var all []notify.Endpoint
	for _, name := range c.EndpointNames() {
		e, err := c.Endpoint(name)
		if err != nil {
			return nil, err
		}
		all = append(all, *e)
	}
	return all, nil
}

// EndpointNames returns the names of the webhooks followed by the names of the e-mail destinations.
func (c *Config) EndpointNames() []string {
	var names []string
	for i := range c.Webhooks {
		names = append(names, c.Webhooks[i].Name)
	}
	for i := range c.Email {
		names = append(names, c.Email[i].Name)
	}
	return names
}

// Endpoint returns the webhook or e-mail destination with the given name as an endpoint of package notify, or nil if
// there is no such webhook or destination. It reads the files with the secrets.
func (c *Config) Endpoint(name string) (*notify.Endpoint, error) {
	for i := range c.Webhooks {
		if c.Webhooks[i].Name == name {
			e, err := c.Webhooks[i].Endpoint()
			if err == nil {
				e.Buttons = e.Format == "slack" && c.SlackSecretFile != ""
			}
			return e, err
		}
	}
	for i := range c.Email {
		if c.Email[i].Name == name {
			return c.Email[i].Endpoint()
		}
	}
	return nil, nil
}

// Key returns the key that signs calls of the webhook, or nil if calls aren't signed. It reads the secret file if there
// is one.
func (h *Webhook) Key() ([]byte, error) {
	secret := h.Secret
	if h.SecretFile != "" {
		text, err := readFile(h.SecretFile)
		if err != nil {
			return nil, fmt.Errorf("secret of webhook %s: %s: %w", h.Name, h.SecretFile, err)
		}
		secret = strings.TrimSpace(string(text))
	}
	if secret == "" && h.SecretFile == "" {
		return nil, nil
	}
	key, ok := webhookKey(secret)
	if !ok {
		return nil, fmt.Errorf("secret of webhook %s: want %s", h.Name, webhookSecret)
	}
	return key, nil
}

// Endpoint returns the webhook as an endpoint of package notify. It reads the files with the secrets.
func (h *Webhook) Endpoint() (*notify.Endpoint, error) {
	key, err := h.Key()
	if err != nil {
		return nil, err
	}
	token, err := secretOf(h.Token, h.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("token of webhook %s: %w", h.Name, err)
	}
	return &notify.Endpoint{
		Name:         h.Name,
		URL:          h.URL,
		Format:       h.Format,
		Key:          key,
		Token:        token,
		Events:       eventTypes(h.Events),
		AllowPrivate: h.AllowPrivate,
	}, nil
}

// Endpoint returns the destination as an endpoint of package notify. It reads the password file if there is one.
func (m *Email) Endpoint() (*notify.Endpoint, error) {
	password, err := secretOf(m.Password, m.PasswordFile)
	if err != nil {
		return nil, fmt.Errorf("password of e-mail %s: %w", m.Name, err)
	}
	from, err := notify.ParseMail(m.From)
	if err != nil {
		return nil, fmt.Errorf("sender of e-mail %s: %w", m.Name, err)
	}
	to := &notify.Mail{Server: m.Server, Security: m.Security, From: from, Username: m.Username, Password: password}
	for _, text := range m.To {
		a, err := notify.ParseMail(text)
		if err != nil {
			return nil, fmt.Errorf("recipient of e-mail %s: %w", m.Name, err)
		}
		to.To = append(to.To, a)
	}
	return &notify.Endpoint{
		Name:         m.Name,
		Mail:         to,
		Format:       "email",
		Events:       eventTypes(m.Events),
		AllowPrivate: m.AllowPrivate,
	}, nil
}

func eventTypes(events []string) []notify.Type {
	var types []notify.Type
	for _, event := range events {
		types = append(types, notify.Type(event))
	}
	return types
}

// secretOf returns secret or, if file isn't empty, the contents of the file without surrounding white space.
func secretOf(secret, file string) (string, error) {
	if file == "" {
		return secret, nil
	}
	text, err := readFile(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	secret = strings.TrimSpace(string(text))
	if !isText(secret) {
		return "", fmt.Errorf("%s: want %s", file, secretValue)
	}
	return secret, nil
}

// UI returns the address of the UI for people, without a slash at the end. It returns "" if the address is unknown,
// that is, if it isn't configured and the service listens on all addresses or on any port.
func (c *Config) UI() string {
	if c.API.PublicURL != "" {
		return strings.TrimSuffix(c.API.PublicURL, "/")
	}
	host, port, err := net.SplitHostPort(c.HTTP)
	if ip := net.ParseIP(host); err != nil || host == "" || port == "0" || ip != nil && ip.IsUnspecified() {
		return ""
	}
	scheme := "http://"
	if c.API.TLS.Cert != "" {
		scheme = "https://"
	}
	return scheme + c.HTTP + c.API.BasePath
}

// Clustered reports whether this service shares its journal with other replicas.
func (c *Config) Clustered() bool { return len(c.Cluster.Brokers) > 0 }

// Password returns the password of the user of the brokers, or "" if there is none. It reads the password's file.
func (x *Cluster) Password() (string, error) {
	password, err := secretOf("", x.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("password of the brokers: %w", err)
	}
	return password, nil
}

// ReplicaURL returns the URL of this replica's API for the other replicas and their clients, or "" if it is unknown.
func (c *Config) ReplicaURL() string { return cmp.Or(strings.TrimSuffix(c.Cluster.URL, "/"), c.UI()) }

// LoginURL returns the address of the UI for people who log in, without a slash at the end, or "" if it is unknown.
func (c *Config) LoginURL() string {
	if c.OIDC.URL != "" {
		return strings.TrimSuffix(c.OIDC.URL, "/")
	}
	return c.UI()
}

// Directory returns the owners of services and the templates of links.
func (c *Config) Directory() directory.Directory {
	var d directory.Directory
	for _, o := range c.Owners {
		d.Owners = append(d.Owners,
			directory.Owner{Name: o.Name, Contact: o.Contact, Services: o.Services, Route: o.Route})
	}
	for _, u := range c.TraceURL {
		d.Traces = append(d.Traces, checked(directory.NewLink(u.Name, u.URL)))
		if u.Search != "" {
			d.Searches = append(d.Searches, checked(directory.NewSearchLink(u.Name, u.Search)))
		}
	}
	for _, u := range c.SuspectURL {
		d.Services = append(d.Services, checked(directory.NewServiceLink(u.Name, u.URL, u.Services...)))
	}
	return d
}

// checked returns l. It panics on an error, because Load has already checked the templates of links.
func checked(l directory.Link, err error) directory.Link {
	if err != nil {
		panic(err)
	}
	return l
}

// Search converts b to a budget of package search.
func (b *Budget) Search() search.Budget {
	return search.Budget{
		Tracepoints: b.Tracepoints, Bytes: float64(b.BytesPerSecond), CPU: b.CPU, Service: b.PerService.search(),
	}
}

func (l Limit) search() search.Limit {
	return search.Limit{Tracepoints: l.Tracepoints, Bytes: float64(l.BytesPerSecond), CPU: l.CPU}
}

// WatchOptions returns the options for detecting problems, both changed and chronic ones.
func (c *Config) WatchOptions() detect.WatchOptions {
	o := detect.DefaultWatchOptions()
	t := &c.Thresholds
	o.FalseDiscovery, o.MinImpact, o.MinSamples = t.FalseDiscovery, float64(t.MinImpact.Nanoseconds()), c.MinSamples
	o.Chronic = c.ChronicThresholds()
	return o
}

// ChronicThresholds returns the thresholds for chronic problems, that is, problems that didn't start with a change.
func (c *Config) ChronicThresholds() detect.Thresholds {
	t := detect.DefaultThresholds()
	t.CoV, t.MinSamples = c.Thresholds.CoV, c.MinSamples
	return t
}

// AnalysisRules converts Rules and GroupBy to rules of package group.
func (c *Config) AnalysisRules() group.Rules {
	return group.Rules{Types: c.Rules, GroupBy: c.GroupBy}
}

// FailureRules returns Failures as a set.
func (c *Config) FailureRules() (ingest.FailureRules, error) {
	return ingest.NewFailureRules(c.Failures...)
}

// DecodedKeys returns the result of AttributeKeys, compiled for decoders that apply Failures.
func (c *Config) DecodedKeys() (*ingest.Keys, error) {
	rules, err := c.FailureRules()
	if err != nil {
		return nil, err
	}
	keys, err := ingest.NewKeys(c.AttributeKeys()...)
	if err != nil {
		return nil, err
	}
	return keys.FailingBy(rules), nil
}

// AttributeKeys returns the keys of all attributes to decode, sorted and without duplicates: the attributes in keys,
// group-by and rules. Their number is at most [ingest.MaxKeys].
func (c *Config) AttributeKeys() []string {
	all := slices.Concat(c.Keys, c.GroupBy)
	for i := range c.Rules {
		r := &c.Rules[i]
		all = append(all, r.Attribute, r.Size)
		all = append(all, r.GroupBy...)
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(key string) bool { return key == "" })
}
