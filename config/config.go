// Package config reads the configuration of sibyl serve: it merges one YAML file, environment variables and flags into
// one typed value.
//
// The table of definitions in keys.go is the only list of keys, with their meaning, type, range, default and field.
// Parsing, flags, names of environment variables, sibyl config print and docs/configuration.md follow from it. Flags
// override the environment, which overrides the file, which overrides the defaults. Load reports all errors at once,
// each with its position and remedy, and returns no configuration if there is any.
//
// The size of the file is limited, and aliases, anchors and tags are rejected, because they could expand without limit.
package config

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/control/sampling"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/notify"
	"github.com/sibyl-trace/sibyl/search"
)

// Config is the configuration of sibyl serve. It is immutable: a reload replaces it. Addresses and endpoints are empty
// if the listener or export is off; sizes are in bytes. keys.go has ranges and defaults.
type Config struct {
	DataDir string
	Log     Log

	HTTP         string // address of API, UI and agents
	API          API    // settings of this listener
	SamplingHTTP string // address of Jaeger's remote sampling
	SamplingGRPC string
	Sampling     Sampling // settings of both
	OpAMP        string   // address for agents that speak OpAMP
	OTLP         OTLP
	Jaeger       Jaeger

	Keys       []string // attributes whose values are stored; see AttributeKeys
	Failures   []string // rules by which spans count as failed; see DecodedKeys
	SeeThrough []string // services that answer no calls
	Memory     int64    // for open traces, queues and statistics together
	Assembly   Assembly
	Journal    Journal

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
	SelfTracing Endpoint // Sibyl's own traces
}

// Log configures logging.
type Log struct {
	Level  string // debug, info, warn or error
	Format string // text or json
}

// TLS names the files for a listener's encryption. Without Cert the listener does not encrypt.
type TLS struct {
	Cert     string
	Key      string
	ClientCA string // clients need a certificate signed by one of these; empty: they need none
}

// API configures the listener at Config.HTTP.
type API struct {
	BasePath  string // like "/sibyl"; empty: none
	PublicURL string // of the UI, for links; empty: see Config.UI
	TLS       TLS
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
	Services []string      // empty: all
	Interval time.Duration // between two fetches
	Lookback time.Duration // how far back the first one goes
}

// Assembly configures when traces close.
type Assembly struct {
	Timeout time.Duration // without new spans
}

// Journal configures the journal, which holds acknowledged requests until a checkpoint covers them.
type Journal struct {
	Durability string // disk or process
	MaxBytes   int64
	MaxAge     time.Duration
}

// Thresholds define problems; see detect.Thresholds and detect.WatchOptions, which have fields of the same names.
type Thresholds struct {
	CoV            float64
	FalseDiscovery float64
	MinImpact      time.Duration // lost per second of operation
}

// Objective is an objective for the requests of an entry: a latency, a share of errors, or both.
type Objective struct {
	Entry   string // a service and an operation, or a service
	Latency Latency
	Errors  float64 // share of the requests that may fail; 0: any
	Name    string  // empty: none
}

// Latency is the duration that a percentage of the requests must not reach; zero: any.
type Latency struct {
	Percentile float64
	Below      time.Duration
}

// IncidentObjectives returns the objectives as options of package engine: one for the latency and one for the errors of
// an entry.
func (c *Config) IncidentObjectives() []incident.Objective {
	var all []incident.Objective
	for _, x := range c.Objectives {
		if x.Latency.Below > 0 {
			all = append(all, incident.Objective{Name: x.Name, Entry: x.Entry, Below: x.Latency.Below, Percentile: x.Latency.Percentile})
		}
		if x.Errors > 0 {
			all = append(all, incident.Objective{Name: x.Name, Entry: x.Entry, Errors: x.Errors})
		}
	}
	return all
}

// Budget limits the cost of a plan. A zero field is no limit.
type Budget struct {
	Tracepoints    int
	BytesPerSecond int64
	CPU            float64 // cores
	PerService     Limit
}

// Limit limits a part of the cost of a plan. A zero field is no limit.
type Limit struct {
	Tracepoints    int
	BytesPerSecond int64
	CPU            float64
}

// Retention limits the stored history.
type Retention struct {
	Age       time.Duration
	Bytes     int64
	Exemplars int // per group: the number of slow, of typical and of fast traces
}

// TraceURL is a link to a trace in a tracing backend.
type TraceURL struct {
	Name   string
	URL    string // a template; see notify.NewLink
	Search string // a template; see notify.NewSearchLink; empty: none
}

// SuspectURL is a link to a page about a service, such as its logs.
type SuspectURL struct {
	Name     string
	URL      string   // a template; see notify.NewServiceLink
	Services []string // names, in which * stands for any text; empty: all
}

// Owner is a team that is responsible for some services.
type Owner struct {
	Services []string // names, in which * stands for any text
	Name     string
	Contact  string   // empty: unknown
	Route    []string // names of webhooks that receive no other incidents
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
	Events       []string // of WebhookEvents; empty: all
	AllowPrivate bool     // non-public addresses may be called
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
	Events       []string // of WebhookEvents; empty: all
	AllowPrivate bool     // the address of the server may be non-public
}

// Endpoint is an OTLP endpoint to export to; empty: none.
type Endpoint struct {
	OTLP    string
	Headers []Header // of every request
}

// Header is an HTTP header of requests, for example one that authenticates them.
type Header struct {
	Name      string
	Value     string
	ValueFile string // file with the value
}

// Fields returns the headers by name. It reads their files.
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

// mostRequest is the default of otlp.max-request.
const mostRequest = 64 * mib

// MaxInFlight returns the limit of the bytes of all requests being read or decoded. Three of the largest requests fit:
// a request takes up to twice its size, as sent and uncompressed, and more than one sender must progress. Smaller
// requests than by default make no reason to have fewer of them in flight.
func (c *Config) MaxInFlight() int64 {
	return 3 * max(c.OTLP.MaxRequest, min(mostRequest, c.Memory/requestShare))
}

// openShare is the divisor of the configured memory that gives the memory of open traces.
const openShare = 4

// OpenTraces returns the options of package assemble for the traces of all shards.
func (c *Config) OpenTraces() assemble.OnlineOptions {
	return assemble.NewOnlineOptions(c.Assembly.Timeout, c.Memory/openShare)
}

// groupBytes is the memory of a large group with its contexts. It determines the limit of groups from the configured
// memory.
const groupBytes = 20 << 10

// Engine returns the options of package engine.
func (c *Config) Engine() engine.Options {
	o := engine.DefaultOptions()
	o.Groups.Groups = int(min(group.DefaultGroups, c.Memory/groupBytes))
	o.Watch, o.Learning, o.Epoch, o.Rules = c.WatchOptions(), c.Learning, c.Epoch, c.AnalysisRules()
	o.SeeThrough(c.SeeThrough...)
	o.Budget, o.Strategy, o.Retention = c.Budget.Search(), c.Strategy, c.Retention.Age
	o.Objectives, o.Gates = c.IncidentObjectives(), c.Gates
	return o
}

// Rates returns s as options of package sampling.
func (s *Sampling) Rates() sampling.Options {
	return sampling.Options{Default: s.Default, Budget: s.Budget}
}

// Endpoints returns the webhooks and the destinations of e-mails as endpoints of package notify. It reads the files
// with their secrets.
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

// EndpointNames returns the names of the webhooks, then those of the destinations of e-mails.
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

// Endpoint returns the webhook or destination of e-mails with a name as an endpoint of package notify; nil if there is
// none. It reads the files with its secrets.
func (c *Config) Endpoint(name string) (*notify.Endpoint, error) {
	for i := range c.Webhooks {
		if c.Webhooks[i].Name == name {
			return c.Webhooks[i].Endpoint()
		}
	}
	for i := range c.Email {
		if c.Email[i].Name == name {
			return c.Email[i].Endpoint()
		}
	}
	return nil, nil
}

// Key returns the key that signs calls of the webhook, nil if they are not signed. It reads the secret file if there is
// one.
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

// Endpoint returns the webhook as an endpoint of package notify. It reads the files with its secrets.
func (h *Webhook) Endpoint() (*notify.Endpoint, error) {
	key, err := h.Key()
	if err != nil {
		return nil, err
	}
	token, err := secretOf(h.Token, h.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("token of webhook %s: %w", h.Name, err)
	}
	return &notify.Endpoint{Name: h.Name, URL: h.URL, Format: h.Format, Key: key, Token: token, Events: eventTypes(h.Events), AllowPrivate: h.AllowPrivate}, nil
}

// Endpoint returns the destination as an endpoint of package notify. It reads the file with the password if there is
// one.
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
	return &notify.Endpoint{Name: m.Name, Mail: to, Format: "email", Events: eventTypes(m.Events), AllowPrivate: m.AllowPrivate}, nil
}

func eventTypes(events []string) []notify.Type {
	var types []notify.Type
	for _, event := range events {
		types = append(types, notify.Type(event))
	}
	return types
}

// secretOf returns a secret or, if file is not empty, its contents without spaces around them.
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

// UI returns the address of the UI for people, without a slash at the end; empty if it is unknown, because it was not
// configured and the service listens on all addresses or on any port.
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

// Directory returns the owners of services, and the templates of links.
func (c *Config) Directory() notify.Directory {
	var d notify.Directory
	for _, o := range c.Owners {
		d.Owners = append(d.Owners, notify.Owner{Name: o.Name, Contact: o.Contact, Services: o.Services, Route: o.Route})
	}
	for _, u := range c.TraceURL {
		d.Traces = append(d.Traces, checked(notify.NewLink(u.Name, u.URL)))
		if u.Search != "" {
			d.Searches = append(d.Searches, checked(notify.NewSearchLink(u.Name, u.Search)))
		}
	}
	for _, u := range c.SuspectURL {
		d.Services = append(d.Services, checked(notify.NewServiceLink(u.Name, u.URL, u.Services...)))
	}
	return d
}

// checked returns a link whose template Load has checked.
func checked(l notify.Link, err error) notify.Link {
	if err != nil {
		panic(err)
	}
	return l
}

// Search returns b as a budget of package search.
func (b *Budget) Search() search.Budget {
	return search.Budget{
		Tracepoints: b.Tracepoints, Bytes: float64(b.BytesPerSecond), CPU: b.CPU, Service: b.PerService.search(),
	}
}

func (l Limit) search() search.Limit {
	return search.Limit{Tracepoints: l.Tracepoints, Bytes: float64(l.BytesPerSecond), CPU: l.CPU}
}

// WatchOptions returns the options for detecting changes.
func (c *Config) WatchOptions() detect.WatchOptions {
	o := detect.DefaultWatchOptions()
	t := &c.Thresholds
	o.FalseDiscovery, o.MinImpact, o.MinSamples = t.FalseDiscovery, float64(t.MinImpact.Nanoseconds()), c.MinSamples
	o.Chronic = c.ChronicThresholds()
	return o
}

// ChronicThresholds returns the thresholds for problems without a change.
func (c *Config) ChronicThresholds() detect.Thresholds {
	t := detect.DefaultThresholds()
	t.CoV, t.MinSamples = c.Thresholds.CoV, c.MinSamples
	return t
}

// AnalysisRules returns the rules for requests.
func (c *Config) AnalysisRules() group.Rules {
	return group.Rules{Types: c.Rules, GroupBy: c.GroupBy}
}

// FailureRules returns Failures as a set.
func (c *Config) FailureRules() (ingest.FailureRules, error) {
	return ingest.NewFailureRules(c.Failures...)
}

// DecodedKeys returns AttributeKeys, compiled for decoders that apply Failures.
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

// AttributeKeys returns the keys of all attributes to decode, sorted and without duplicates: those of keys, group-by
// and rules. There are at most ingest.MaxKeys.
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
