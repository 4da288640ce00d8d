// Package config is the configuration of sibyl serve: one YAML file, environment variables and flags become one typed value.
//
// The table of definitions in keys.go is the only place that knows the keys: what they mean, their type, range and default. Reading,
// flags, names of environment variables, sibyl config print and docs/configuration.md follow from it. A flag goes before the
// environment, that before the file, that before the default. What is wrong is told all at once, each mistake with its place and
// what to do; a configuration with a mistake is none.
//
// The file is untrusted as far as size goes: it is bounded, and aliases, anchors and tags are refused.
package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/control/sampling"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/notify"
	"github.com/sibyl-trace/sibyl/search"
)

// Config is what sibyl serve does. It is read once and never changed: another one takes its place at a reload. Addresses and
// endpoints are empty where a listener or an export is off; sizes are in bytes. Ranges and defaults stand in the table of keys.
type Config struct {
	DataDir string `koanf:"data-dir"`
	Log     Log    `koanf:"log"`

	HTTP         string   `koanf:"http"`          // address of API, UI and agents
	API          API      `koanf:"api"`           // what is served there
	SamplingHTTP string   `koanf:"sampling-http"` // address of Jaeger's remote sampling
	SamplingGRPC string   `koanf:"sampling-grpc"`
	Sampling     Sampling `koanf:"sampling"` // what is said there
	OpAMP        string   `koanf:"opamp"`    // address for agents that speak OpAMP
	OTLP         OTLP     `koanf:"otlp"`
	Jaeger       Jaeger   `koanf:"jaeger"`

	Keys     []string `koanf:"keys"`   // attributes whose values are kept; see AttributeKeys
	Memory   int64    `koanf:"memory"` // bound of open traces, queues and statistics together
	Shards   int      `koanf:"shards"` // 0: one per core
	Assembly Assembly `koanf:"assembly"`
	Journal  Journal  `koanf:"journal"`

	Epoch       time.Duration    `koanf:"epoch"`
	Learning    time.Duration    `koanf:"learning"`
	MinSamples  uint64           `koanf:"min-samples"`
	Thresholds  Thresholds       `koanf:"thresholds"`
	GroupBy     []string         `koanf:"group-by"`
	Size        string           `koanf:"size"`         // key of an attribute; empty: none
	SizeTimeout time.Duration    `koanf:"size-timeout"` // 0: not known
	Split       bool             `koanf:"split"`
	Rules       []group.TypeRule `koanf:"rules"`

	Strategy string  `koanf:"strategy"` // one of search.Strategies
	Explore  float64 `koanf:"explore"`  // share of the requests
	Budget   Budget  `koanf:"budget"`

	Retention Retention `koanf:"retention"`

	TraceURL    []TraceURL `koanf:"trace-url"`
	Webhooks    []Webhook  `koanf:"webhooks"`
	Export      Endpoint   `koanf:"export"`       // critical-path attributes for a tracing backend
	SelfTracing Endpoint   `koanf:"self-tracing"` // where own traces go
}

// Log is what is logged, and how.
type Log struct {
	Level  string `koanf:"level"`  // debug, info, warn or error
	Format string `koanf:"format"` // text or json
}

// TLS holds the files that a listener's encryption needs. Without Cert it does not encrypt.
type TLS struct {
	Cert     string `koanf:"cert"`
	Key      string `koanf:"key"`
	ClientCA string `koanf:"client-ca"` // callers must show a certificate signed by one of these; empty: they need none
}

// API is what is served at Config.HTTP.
type API struct {
	BasePath string `koanf:"base-path"` // like "/sibyl"; empty: none
	TLS      TLS    `koanf:"tls"`
}

// Sampling is how remote sampling is answered; see sampling.Options.
type Sampling struct {
	Default float64 `koanf:"default"` // share of the requests
	Wanted  float64 `koanf:"wanted"`  // traces per second
	Budget  float64 `koanf:"budget"`  // traces per second
	TLS     TLS     `koanf:"tls"`
}

// OTLP is how traces are received.
type OTLP struct {
	GRPC         string `koanf:"grpc"`
	HTTP         string `koanf:"http"`
	MaxRequest   int64  `koanf:"max-request"`   // bytes of one request after decompression
	MaxInFlight  int64  `koanf:"max-in-flight"` // bytes of all requests that are being read or decoded
	RequireToken bool   `koanf:"require-token"`
	TLS          TLS    `koanf:"tls"`
}

// Jaeger holds the servers that traces are fetched from.
type Jaeger struct {
	Query []JaegerQuery `koanf:"query"`
}

// JaegerQuery is one server that traces are fetched from.
type JaegerQuery struct {
	URL      string
	Protocol string        // http or grpc
	Services []string      // empty: all
	Interval time.Duration // between two fetches
	Lookback time.Duration // how far back the first one goes
}

// Assembly says when a trace is closed.
type Assembly struct {
	Settle   time.Duration `koanf:"settle"`
	Idle     time.Duration `koanf:"idle"`
	MaxAge   time.Duration `koanf:"max-age"`
	MaxSpans int           `koanf:"max-spans"`
	MaxBytes int64         `koanf:"max-bytes"`
	Remember time.Duration `koanf:"remember"`
}

// Journal is where what was acknowledged stands until it is in the statistics.
type Journal struct {
	Durability string        `koanf:"durability"` // disk or process
	MaxBytes   int64         `koanf:"max-bytes"`
	MaxAge     time.Duration `koanf:"max-age"`
}

// Thresholds say what is a problem; see analysis.Thresholds and analysis.WatchOptions, whose fields have these names.
type Thresholds struct {
	CoV            float64       `koanf:"cov"`
	Delayed        float64       `koanf:"delayed"`
	FalseDiscovery float64       `koanf:"false-discovery"`
	MinImpact      time.Duration `koanf:"min-impact"` // lost per second of operation
	Confirm        int           `koanf:"confirm"`
	Calm           int           `koanf:"calm"`
	Renew          int           `koanf:"renew"`
	Silence        int           `koanf:"silence"`
}

// Budget bounds what a plan may cost. A zero field is no bound.
type Budget struct {
	Tracepoints    int     `koanf:"tracepoints"`
	BytesPerSecond int64   `koanf:"bytes-per-second"`
	CPU            float64 `koanf:"cpu"` // cores
	PerRequestType Limit   `koanf:"per-request-type"`
	PerService     Limit   `koanf:"per-service"`
}

// Limit bounds a part of what a plan costs. A zero field is no bound.
type Limit struct {
	Tracepoints    int     `koanf:"tracepoints"`
	BytesPerSecond int64   `koanf:"bytes-per-second"`
	CPU            float64 `koanf:"cpu"`
}

// Retention says what of the past is kept.
type Retention struct {
	Age       time.Duration `koanf:"age"`
	Bytes     int64         `koanf:"bytes"`
	Exemplars int           `koanf:"exemplars"` // traces of each group, of each of slowest, typical and fastest
}

// TraceURL is a link to a trace in a tracing backend.
type TraceURL struct {
	Name string
	URL  string // a template; see notify.NewLink
}

// Webhook is somebody to be told about problems and decisions.
type Webhook struct {
	Name         string
	URL          string
	Format       string   // one of WebhookFormats
	Secret       string   // whsec_…, as in Standard Webhooks; empty: calls are not signed, unless SecretFile says otherwise
	SecretFile   string   // file that holds the secret instead
	Events       []string // of WebhookEvents; empty: all
	AllowPrivate bool     // addresses that are not public may be called
}

// Endpoint is where OTLP goes; empty: nowhere.
type Endpoint struct {
	OTLP    string   `koanf:"otlp"`
	Headers []Header `koanf:"headers"` // of every request
}

// Header is a field of the header of requests, like one that proves who sends them.
type Header struct {
	Name      string
	Value     string
	ValueFile string // file that holds the value instead
}

// Fields returns the headers by name. It reads the files that hold values.
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

// Online returns when a trace is closed as package assemble has it, with the memory that open traces may take.
func (a *Assembly) Online(memory int64) assemble.OnlineOptions {
	return assemble.OnlineOptions{
		Settle: a.Settle, Idle: a.Idle, MaxAge: a.MaxAge, MaxSpans: a.MaxSpans, MaxBytes: a.MaxBytes, Memory: memory, Remember: a.Remember,
	}
}

// Engine returns how the loop from traces to decisions works.
func (c *Config) Engine() engine.Options {
	o := engine.DefaultOptions()
	o.Watch, o.Learning, o.Epoch, o.Rules, o.Split = c.WatchOptions(), c.Learning, c.Epoch, c.AnalysisRules(), c.Split
	o.Budget, o.Strategy, o.Explore, o.Retention = c.Budget.Search(), c.Strategy, c.Explore, c.Retention.Age
	return o
}

// Rates returns how the rates of remote sampling are made.
func (s *Sampling) Rates() sampling.Options {
	return sampling.Options{Default: s.Default, Wanted: s.Wanted, Budget: s.Budget}
}

// Endpoints returns the webhooks as package notify has them. It reads the files that hold secrets.
func (c *Config) Endpoints() ([]notify.Endpoint, error) {
	var all []notify.Endpoint
	for i := range c.Webhooks {
		e, err := c.Webhooks[i].Endpoint()
		if err != nil {
			return nil, err
		}
		all = append(all, *e)
	}
	return all, nil
}

// Key returns what calls of the webhook are signed with, nil if they are not. It reads the file that holds the secret if there is one.
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

// Endpoint returns the webhook as package notify has it. It reads the file that holds the secret if there is one.
func (h *Webhook) Endpoint() (*notify.Endpoint, error) {
	key, err := h.Key()
	if err != nil {
		return nil, err
	}
	e := &notify.Endpoint{Name: h.Name, URL: h.URL, Format: h.Format, Key: key, AllowPrivate: h.AllowPrivate}
	for _, event := range h.Events {
		e.Events = append(e.Events, notify.Type(event))
	}
	return e, nil
}

// Links returns the templates of links to traces.
func (c *Config) Links() []notify.Link {
	var links []notify.Link
	for _, u := range c.TraceURL {
		l, err := notify.NewLink(u.Name, u.URL)
		if err != nil {
			panic(err) // it was checked when the configuration was read
		}
		links = append(links, l)
	}
	return links
}

// Search returns the budget as package search has it.
func (b *Budget) Search() search.Budget {
	return search.Budget{
		Tracepoints: b.Tracepoints, Bytes: float64(b.BytesPerSecond), CPU: b.CPU,
		RequestType: b.PerRequestType.search(), Service: b.PerService.search(),
	}
}

func (l Limit) search() search.Limit {
	return search.Limit{Tracepoints: l.Tracepoints, Bytes: float64(l.BytesPerSecond), CPU: l.CPU}
}

// WatchOptions returns when a change is a problem.
func (c *Config) WatchOptions() detect.WatchOptions {
	o := detect.DefaultWatchOptions()
	t := &c.Thresholds
	o.FalseDiscovery, o.MinImpact, o.MinSamples = t.FalseDiscovery, float64(t.MinImpact.Nanoseconds()), c.MinSamples
	o.Confirm, o.Calm, o.Renew, o.Silence = t.Confirm, t.Calm, t.Renew, t.Silence
	o.Chronic = c.ChronicThresholds()
	return o
}

// ChronicThresholds returns what is a problem without a change.
func (c *Config) ChronicThresholds() detect.Thresholds {
	return detect.Thresholds{CoV: c.Thresholds.CoV, Delayed: c.Thresholds.Delayed, MinSamples: c.MinSamples}
}

// AnalysisRules returns what somebody says about requests.
func (c *Config) AnalysisRules() group.Rules {
	return group.Rules{Types: c.Rules, GroupBy: c.GroupBy, Size: c.Size, Timeout: c.SizeTimeout}
}

// AttributeKeys returns the keys of all attributes that must be decoded, each once, ascending: those asked for and those that rules
// name. There are at most ingest.MaxKeys.
func (c *Config) AttributeKeys() []string {
	all := slices.Concat(c.Keys, c.GroupBy, []string{c.Size})
	for i := range c.Rules {
		r := &c.Rules[i]
		all = append(all, r.Attribute, r.Size)
		all = append(all, r.GroupBy...)
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(key string) bool { return key == "" })
}
