package config

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"
)

// checker finds values that contradict each other.
type checker struct {
	e      *Effective
	failed map[string]bool // keys with an invalid value, including keys in list elements; they are not checked
	errors Errors
}

// check returns the errors that involve several keys. It skips the checks of keys that already have an error in known.
func (e *Effective) check(known Errors) Errors {
	c := &checker{e: e, failed: make(map[string]bool)}
	for _, err := range known {
		c.failed[err.Key] = true
	}
	c.tls("api.tls", e.Config.API.TLS)
	c.tls("otlp.tls", e.Config.OTLP.TLS)
	c.tls("sampling.tls", e.Config.Sampling.TLS)
	c.oidc()
	c.addresses()
	c.endpoints()
	c.routes()
	c.sizes()
	c.times()
	c.cluster()
	cfg := &e.Config
	c.require(cfg.OTLP.GRPC != "" || cfg.OTLP.HTTP != "" || len(cfg.Jaeger.Query) > 0,
		"there is no source of traces; set otlp.grpc, otlp.http or jaeger.query",
		"otlp.grpc", "otlp.http", "jaeger.query")
	c.require(len(cfg.AttributeKeys()) <= maxKeys,
		fmt.Sprintf("%d attributes including those of group-by and rules, but at most %d are allowed; remove some",
			len(cfg.AttributeKeys()), maxKeys),
		"keys", "group-by", "rules")
	c.objectives()
	return c.errors
}

// objectives checks that no two objectives are about the same requests and the same limit, because the stricter one
// would always decide.
func (c *checker) objectives() {
	type same struct {
		entry string
		below time.Duration
	}
	seen := make(map[same]bool)
	for _, o := range c.e.Config.IncidentObjectives() {
		if o.Entry == "" { // already reported as invalid
			continue
		}
		about := "errors"
		if o.Below > 0 {
			about = "durations below " + durationText(o.Below)
		}
		k := same{o.Entry, o.Below}
		c.require(!seen[k], "two objectives limit the "+about+" of "+quote(o.Entry)+"; keep the stricter one",
			"objectives")
		seen[k] = true
	}
}

// require records message as an error unless ok is true or one of keys is already invalid. The user must change one of
// keys, so the error names the first key that doesn't have its default value. A key can belong to a list element.
func (c *checker) require(ok bool, message string, keys ...string) {
	if ok || slices.ContainsFunc(keys, func(key string) bool { return c.failed[key] }) {
		return
	}
	key := keys[0]
	if i := slices.IndexFunc(keys, func(key string) bool { return c.origin(key) != "" }); i >= 0 {
		key = keys[i]
	}
	where := c.origin(key)
	c.errors = append(c.errors, &Error{Where: where, Key: key, Text: message, Usage: where == "--"+dashed(listOf(key))})
}

// origin returns the origin of a key, or "" for a default. Keys in list elements have the origin of the list.
func (c *checker) origin(key string) string { return c.e.origins[listOf(key)] }

// listOf returns the key of the list if key belongs to a list element, or key itself otherwise.
func listOf(key string) string {
	list, _, _ := strings.Cut(key, "[")
	return list
}

// tls checks the keys for a listener's encryption.
func (c *checker) tls(section string, t TLS) {
	cert, key, ca := section+".cert", section+".key", section+".client-ca"
	c.require(t.Cert == "" || t.Key != "", "a certificate needs its private key; set "+key, cert, key)
	c.require(t.Key == "" || t.Cert != "", "a private key needs its certificate; set "+cert, key, cert)
	c.require(t.ClientCA == "" || t.Cert != "", "client certificates need a server certificate; set "+cert+" and "+key,
		ca, cert)
	tenant := section + ".client-tenant"
	c.require(t.ClientTenant == "" || t.ClientTenant == "none" || t.ClientCA != "",
		"only certificates that are checked can name a tenant; set "+ca, tenant, ca)
}

// oidc checks that log-in is configured completely or not at all.
func (c *checker) oidc() {
	const issuer, client, own, base = "auth.oidc.issuer", "auth.oidc.client-id", "auth.oidc.url", "api.base-path"
	o, address := &c.e.Config.OIDC, c.e.Config.LoginURL()
	c.require(o.Issuer == "" || o.ClientID != "", "log-in needs the name of the client; set "+client, issuer)
	c.require(o.Issuer != "" || o.ClientID == "", "log-in needs an identity provider; set "+issuer, client)
	c.require(o.Issuer == "" || address != "", "log-in needs the address of the UI; set "+own, issuer)
	c.require(o.Issuer == "" || isSafeURL(address),
		"log-in needs encryption, but browsers reach the UI at "+address+"; set "+own, issuer)
	prefix := c.e.Config.API.BasePath
	c.require(o.Issuer == "" || address == "" || pathOf(address) == prefix,
		fmt.Sprintf("log-in ends at %s/login/callback, but the UI is served below %s/; make the path of %s equal to %s",
			address, prefix, own, base),
		own, base, "api.public-url")
	c.require(o.Issuer == "" || slices.Contains(o.Scopes, "openid"), "the scope openid is missing; add it",
		"auth.oidc.scopes")
}

// pathOf returns the path of a URL without a slash at the end.
func pathOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(u.Path, "/")
}

// Listener is an enabled listener.
type Listener struct {
	Key     string // configuration key
	Address string
}

// Listeners returns the enabled listeners.
func (c *Config) Listeners() []Listener {
	all := []Listener{
		{"http", c.HTTP},
		{"otlp.grpc", c.OTLP.GRPC},
		{"otlp.http", c.OTLP.HTTP},
		{"sampling-http", c.SamplingHTTP},
		{"sampling-grpc", c.SamplingGRPC},
		{"opamp", c.OpAMP},
	}
	return slices.DeleteFunc(all, func(l Listener) bool { return l.Address == "" })
}

// addresses checks that no two listeners share an address.
func (c *checker) addresses() {
	all := c.e.Config.Listeners()
	for i, a := range all {
		for _, b := range all[:i] {
			c.require(!collide(a.Address, b.Address),
				fmt.Sprintf("%s is also the address of %s; change one of the ports", a.Address, b.Key), a.Key, b.Key)
		}
	}
}

// collide reports whether a process can't listen on both addresses at the same time.
func collide(a, b string) bool {
	hostA, portA, _ := net.SplitHostPort(a) // addresses are well-formed, see isAddress
	hostB, portB, _ := net.SplitHostPort(b)
	return portA == portB && portA != "0" && (hostA == hostB || isAny(hostA) || isAny(hostB))
}

func isAny(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// Exposed returns the listeners that other machines can reach without a client certificate and without a log-in. The
// service refuses to start with such a listener until a token exists; see [Effective.RequireTokens].
func (c *Config) Exposed() []Listener {
	return slices.DeleteFunc(c.Listeners(), func(l Listener) bool {
		switch l.Key {
		case "http":
			return c.API.TLS.ClientCA != "" || c.OIDC.Issuer != "" || isLoopback(l.Address)
		case "opamp":
			return c.API.TLS.ClientCA != "" || isLoopback(l.Address)
		case "otlp.grpc", "otlp.http":
			return c.OTLP.TLS.ClientCA != "" || isLoopback(l.Address)
		case "sampling-http", "sampling-grpc":
			return c.Sampling.TLS.ClientCA != "" || isLoopback(l.Address)
		}
		return isLoopback(l.Address)
	})
}

// Unguarded returns the listeners that other machines can use without a client certificate and without a token.
func (c *Config) Unguarded() []Listener {
	return slices.DeleteFunc(c.Exposed(), func(l Listener) bool {
		switch l.Key {
		case "otlp.grpc", "otlp.http":
			return c.OTLP.RequireToken
		case "sampling-http", "sampling-grpc":
			return false
		}
		return true
	})
}

func isLoopback(address string) bool {
	host, _, _ := net.SplitHostPort(address) // well-formed, see isAddress
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// RequireTokens returns [Errors] with an error for each listener in [Config.Exposed], or nil if there is no such
// listener. Call it only while no token exists.
func (e *Effective) RequireTokens() error {
	c := &checker{e: e}
	for _, l := range e.Config.Exposed() {
		c.require(false, l.Address+" is reachable from other machines, but no token exists; "+
			"create one with sibyl token create, or listen on 127.0.0.1", l.Key)
	}
	if len(c.errors) == 0 {
		return nil
	}
	return c.errors
}

// maxMetrics limits the number of queries that the metrics server receives each time somebody looks at an incident.
const maxMetrics = 8

// endpoints checks the endpoints of other systems. Sibyl must not send traces to itself.
func (c *checker) endpoints() {
	own := c.e.Config.OTLP.HTTP
	loops := func(to string) bool {
		u, err := url.Parse(to)
		return err == nil && own != "" && isLoopback(u.Host) && collide(u.Host, own)
	}
	const message = " is the address of otlp.http, so traces would loop; use another endpoint"
	exports := func(x *Endpoint, section string, keys ...string) {
		c.require(len(x.Headers) == 0 || x.URL != "", "headers need an endpoint; set export.otlp",
			append([]string{section + "export.headers"}, keys...)...)
		c.require(!loops(x.URL), section+"export.otlp"+message, append(keys, "otlp.http")...)
	}
	exports(&c.e.Config.Export, "", "export.otlp")
	for i := range c.e.Config.Tenants {
		exports(&c.e.Config.Tenants[i].Export, element("tenants", i)+".", "tenants")
	}
	c.require(len(c.e.Config.SelfTracing.Headers) == 0 || c.e.Config.SelfTracing.URL != "",
		"headers need an endpoint; set self-tracing.otlp", "self-tracing.headers", "self-tracing.otlp")
	c.require(len(c.e.Config.Metrics.Queries) <= maxMetrics, "these are more than 8 metrics; keep those that matter",
		"metrics.queries")
	c.require(!loops(c.e.Config.SelfTracing.URL), "self-tracing.otlp"+message, "self-tracing.otlp", "otlp.http")
}

// unique checks that the webhooks and e-mail destinations of a tenant, in the given section, have different names.
func (c *checker) unique(of *Config, section string) {
	for i := range of.Email {
		name := of.Email[i].Name
		twice := name != "" && slices.ContainsFunc(of.Webhooks, func(h Webhook) bool { return h.Name == name })
		c.require(!twice, "there is already a webhook "+quote(name)+"; rename one",
			section+element("email", i)+".name", section+"webhooks")
	}
}

// requestShare is the minimum ratio of the memory to the maximum size of a request. We measured the ratio with senders
// of such requests: a request takes several times its size while it is being decoded, and the garbage collector runs
// late when memory is allocated quickly.
const requestShare = 16

// routes checks that the names of a tenant's webhooks and e-mail destinations are unique, and that each route of an
// owner names a webhook or e-mail destination of some tenant.
func (c *checker) routes() {
	cfg := &c.e.Config
	c.unique(cfg, "")
	names := cfg.EndpointNames()
	for i := range cfg.Tenants {
		of := cfg.Tenant(cfg.Tenants[i].Name, 1)
		c.unique(of, element("tenants", i)+".")
		names = append(names, of.EndpointNames()...)
	}
	if slices.Contains(names, "") { // an invalid name, which may be the one that a route refers to
		return
	}
	for i, o := range cfg.Owners {
		for _, name := range o.Route {
			c.require(slices.Contains(names, name),
				"there is no webhook "+quote(name)+"; correct the route, or add the webhook",
				element("owners", i)+".route", "webhooks", "email")
		}
	}
}

// sizes checks that otlp.max-request is at most memory/requestShare.
func (c *checker) sizes() {
	cfg := &c.e.Config
	c.require(cfg.OTLP.MaxRequest <= cfg.Memory/requestShare,
		"otlp.max-request exceeds a sixteenth of memory; lower it or raise memory", "otlp.max-request", "memory")
}

// cluster checks the keys for replicas.
func (c *checker) cluster() {
	cfg := &c.e.Config
	x := &cfg.Cluster
	c.require(!cfg.Clustered() || cfg.ReplicaURL() != "",
		"the other replicas need the URL of this one; set cluster.url", "cluster.url", "http", "cluster.brokers")
	c.require((x.CertFile == "") == (x.KeyFile == ""), "a certificate needs its key, and a key its certificate",
		"cluster.cert-file", "cluster.key-file")
	c.require((x.User == "") == (x.PasswordFile == ""), "a user needs a password, and a password its user",
		"cluster.user", "cluster.password-file")
	c.require(x.Encryption == "tls" || x.CAFile == "" && x.CertFile == "",
		"certificates are only used with encryption; set cluster.encryption to tls",
		"cluster.encryption", "cluster.ca-file", "cluster.cert-file")
}

// times checks the durations that depend on one another.
func (c *checker) times() {
	c.require(c.e.Config.OpenTraces().MaxAge <= c.e.Config.Journal.MaxAge,
		"six times assembly.timeout exceeds journal.max-age, so open traces would not survive a restart; "+
			"lower one or raise the other",
		"assembly.timeout", "journal.max-age")
	c.require(c.e.Config.Learning == 0 || c.e.Config.Learning >= c.e.Config.Epoch,
		"learning is shorter than epoch; use at least one epoch, or 0s to disable learning",
		"learning", "epoch")
}
