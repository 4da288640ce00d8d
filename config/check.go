package config

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/sibyl-trace/sibyl/ingest/otlp/receiver"
)

// checker looks for values that do not go together.
type checker struct {
	e        *Effective
	wrong    map[string]bool // keys with mistakes of their own: nothing more is said about them
	mistakes Mistakes
}

// check returns the mistakes that lie in several values together, beside those that are known.
func (e *Effective) check(known Mistakes) Mistakes {
	c := &checker{e: e, wrong: make(map[string]bool)}
	for _, m := range known {
		key, _, _ := strings.Cut(m.Key, "[") // of an element: that of the list
		c.wrong[key] = true
	}
	c.tls("api.tls", e.Config.API.TLS)
	c.tls("otlp.tls", e.Config.OTLP.TLS)
	c.tls("sampling.tls", e.Config.Sampling.TLS)
	c.addresses()
	c.endpoints()
	c.sizes()
	c.times()
	cfg := &e.Config
	c.require(cfg.OTLP.GRPC != "" || cfg.OTLP.HTTP != "" || len(cfg.Jaeger.Query) > 0,
		"no traces could come in; set otlp.grpc, otlp.http or jaeger.query", "otlp.grpc", "otlp.http", "jaeger.query")
	c.require(len(cfg.AttributeKeys()) <= mostKeys,
		fmt.Sprintf("%d attributes with those of group-by, size and rules, at most %d are possible; leave some out", len(cfg.AttributeKeys()), mostKeys),
		"keys", "group-by", "size", "rules")
	c.require(cfg.SizeTimeout == 0 || cfg.Size != "", "a time-out is for requests with a size; set size", "size-timeout", "size")
	for i := range cfg.Rules {
		r := &cfg.Rules[i]
		c.require(r.Timeout == 0 || r.Size != "" || cfg.Size != "", fmt.Sprintf("rule %d: a time-out is for requests with a size; set its size, or size", i+1), "rules", "size")
	}
	return c.mistakes
}

// require notes what is wrong unless ok. It is told of the first of the keys that is no default, as one of them must change.
func (c *checker) require(ok bool, what string, keys ...string) {
	if ok || slices.ContainsFunc(keys, func(key string) bool { return c.wrong[key] }) {
		return
	}
	key := keys[0]
	if i := slices.IndexFunc(keys, func(key string) bool { return c.e.origins[key] != "" }); i >= 0 {
		key = keys[i]
	}
	where := c.e.origins[key]
	c.mistakes = append(c.mistakes, &Mistake{Where: where, Key: key, What: what, Usage: where == "--"+dashed(key)})
}

// tls checks the keys of a listener's encryption.
func (c *checker) tls(section string, t TLS) {
	cert, key, ca := section+".cert", section+".key", section+".client-ca"
	c.require(t.Cert == "" || t.Key != "", "a certificate without its private key; set "+key, cert, key)
	c.require(t.Key == "" || t.Cert != "", "a private key without its certificate; set "+cert, key, cert)
	c.require(t.ClientCA == "" || t.Cert != "", "callers can only show certificates to a server that has one; set "+cert+" and "+key, ca, cert)
}

// Listener is an address that is listened on.
type Listener struct {
	Key     string // of the configuration
	Address string
}

// listeners returns those that are on.
func (c *Config) listeners() []Listener {
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
	all := c.e.Config.listeners()
	for i, a := range all {
		for _, b := range all[:i] {
			c.require(!collide(a.Address, b.Address), fmt.Sprintf("%s is the address of %s, too; give one of them another port", a.Address, b.Key), a.Key, b.Key)
		}
	}
}

// collide reports whether two addresses cannot be listened on at the same time.
func collide(a, b string) bool {
	hostA, portA, _ := net.SplitHostPort(a) // addresses are well-formed, see isAddress
	hostB, portB, _ := net.SplitHostPort(b)
	return portA == portB && portA != "0" && (hostA == hostB || isAny(hostA) || isAny(hostB))
}

func isAny(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// Exposed returns the listeners that other machines can reach and that do not ask for a client certificate. Without any token they
// must not be opened; see [Effective.RequireTokens].
func (c *Config) Exposed() []Listener {
	return slices.DeleteFunc(c.listeners(), func(l Listener) bool {
		switch l.Key {
		case "http", "opamp":
			return c.API.TLS.ClientCA != "" || isLoopback(l.Address)
		case "otlp.grpc", "otlp.http":
			return c.OTLP.TLS.ClientCA != "" || isLoopback(l.Address)
		case "sampling-http", "sampling-grpc":
			return c.Sampling.TLS.ClientCA != "" || isLoopback(l.Address)
		}
		return isLoopback(l.Address)
	})
}

// Unguarded returns the listeners that other machines can reach and that whoever reaches them may use, even where there are tokens.
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

// RequireTokens returns [Mistakes], one for each listener that must not be opened while there is no token; nil if all may be.
func (e *Effective) RequireTokens() error {
	c := &checker{e: e}
	for _, l := range e.Config.Exposed() {
		c.require(false, l.Address+" can be reached from other machines, but nobody has a token; make one with sibyl token create, or listen on 127.0.0.1", l.Key)
	}
	if len(c.mistakes) == 0 {
		return nil
	}
	return c.mistakes
}

// endpoints checks that nothing is sent round in a circle.
func (c *checker) endpoints() {
	own := c.e.Config.OTLP.HTTP
	circle := func(to string) bool {
		u, err := url.Parse(to)
		return err == nil && own != "" && isLoopback(u.Host) && collide(u.Host, own)
	}
	const what = "is the address of otlp.http: what is sent there would come back without end; name another"
	c.require(len(c.e.Config.Export.Headers) == 0 || c.e.Config.Export.OTLP != "", "headers for nobody; set export.otlp", "export.headers", "export.otlp")
	c.require(len(c.e.Config.SelfTracing.Headers) == 0 || c.e.Config.SelfTracing.OTLP != "", "headers for nobody; set self-tracing.otlp", "self-tracing.headers", "self-tracing.otlp")
	c.require(!circle(c.e.Config.Export.OTLP), "export.otlp "+what, "export.otlp", "otlp.http")
	c.require(!circle(c.e.Config.SelfTracing.OTLP), "self-tracing.otlp "+what, "self-tracing.otlp", "otlp.http")
}

// sizes checks that what is bounded fits into what it is part of.
func (c *checker) sizes() {
	cfg := &c.e.Config
	if need := receiver.InFlight(cfg.OTLP.MaxRequest); cfg.OTLP.MaxInFlight < need {
		c.require(false, fmt.Sprintf("otlp.max-in-flight must be at least %dMiB for such an otlp.max-request, which would never get in; raise the one or lower the other", (need+mib-1)/mib),
			"otlp.max-request", "otlp.max-in-flight")
	}
	c.require(cfg.OTLP.MaxInFlight <= cfg.Memory/2, "otlp.max-in-flight is above half of memory; lower the one or raise the other", "otlp.max-in-flight", "memory")
	c.require(cfg.Assembly.MaxBytes <= cfg.Memory/2, "assembly.max-bytes is above half of memory; lower the one or raise the other",
		"assembly.max-bytes", "memory")
}

// times checks that what must end before something else does.
func (c *checker) times() {
	a := &c.e.Config.Assembly
	c.require(a.Settle < a.Idle, "assembly.settle must be below assembly.idle: a trace that lacks nothing closes earlier than others", "assembly.settle", "assembly.idle")
	c.require(a.Idle < a.MaxAge, "assembly.idle must be below assembly.max-age: no trace would ever be idle", "assembly.idle", "assembly.max-age")
	c.require(a.MaxAge < a.Remember, "assembly.remember must be above assembly.max-age: late spans would make traces of their own", "assembly.remember", "assembly.max-age")
	c.require(a.MaxAge <= c.e.Config.Journal.MaxAge, "assembly.max-age is above journal.max-age: open traces would not survive a restart; lower the one or raise the other",
		"assembly.max-age", "journal.max-age")
	c.require(c.e.Config.Learning == 0 || c.e.Config.Learning >= c.e.Config.Epoch, "learning is below epoch; learn for at least one epoch, or not at all (0s)",
		"learning", "epoch")
}
