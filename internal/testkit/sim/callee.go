package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

// Calls are named as OpenTelemetry's instrumentations name them: after the HTTP method, or the operation of a database
// or of messaging. Only attributes identify the callee. With [Config.CalleeNames], the names identify it instead.

// attributes lists attributes of a CLIENT or PRODUCER span, in pairs of key and value. A value is a string or an int.
type attributes []any

// keptAttributes are the attributes of calls that `sibyl serve` keeps by default.
var keptAttributes = map[string]bool{
	"http.request.method": true, "db.system.name": true, "db.operation.name": true, "db.collection.name": true,
}

// Ports of callees.
const (
	httpPort     = 8080
	httpsPort    = 443
	postgresPort = 5432
	redisPort    = 6379
)

// nameCall returns the name of calls of, or messages to, the entry callee of another service, and those of their
// attributes that don't depend on the called replica. operation is the name of the entry.
func (sb *serviceBuilder) nameCall(callee int32, operation string) (string, attributes) {
	service := sb.services[sb.points[callee].service].name
	if sb.config.CalleeNames {
		return sb.names.unique(service + " " + operation), nil
	}
	if sb.points[callee].kind == trace.Consumer {
		name := messages[mix(mix(sb.config.Seed, streamCallees), uint64(sb.service))%uint64(len(messages))]
		return name, attributes{
			"messaging.system", "kafka", "messaging.operation.name", name,
			"messaging.destination.name", service + "." + operation,
		}
	}
	method := httpMethod(operation)
	return method, attributes{"http.request.method", method, "server.port", httpPort}
}

// nameThirdParty returns the name of calls of the given third party, and their attributes. The third party is a service
// with an HTTP API, a database or a cache.
func (sb *serviceBuilder) nameThirdParty(name string) (string, attributes) {
	if sb.config.CalleeNames {
		return "POST " + name, nil
	}
	random := mix(mix(mix(sb.config.Seed, streamCallees), uint64(sb.service)), uint64(trace.SymbolOf([]byte(name))))
	pick := func(values ...string) string { return values[random>>8%uint64(len(values))] }
	service := sb.services[sb.service].name
	switch random % 6 {
	case 0, 1:
		operation := pick("SELECT", "SELECT", "INSERT")
		return operation, attributes{
			"db.system.name", "postgresql", "db.operation.name", operation, "db.namespace", service,
			"db.collection.name", pick(resources...), "server.address", name + "-db", "server.port", postgresPort,
		}
	case 2:
		operation := pick("GET", "SET")
		return operation, attributes{
			"db.system.name", "redis", "db.operation.name", operation,
			"server.address", name + "-cache", "server.port", redisPort,
		}
	}
	address := "api." + strings.ReplaceAll(name, "_", "-") + ".example"
	return "POST", attributes{
		"http.request.method", "POST", "server.address", address, "server.port", httpsPort,
		"url.full", "https://" + address + "/v1/requests",
	}
}

// setCallee sets the attributes of the spans of point p. The point calls the entry callee, or a third party if callee
// is −1. Callers balance the load among the addresses of an entry's replicas.
func (sb *serviceBuilder) setCallee(p, callee int32, list attributes) {
	if len(list) == 0 {
		return
	}
	var c called
	for i := 0; i < len(list); i += 2 {
		if key, _ := list[i].(string); keptAttributes[key] || sb.config.AllAttributes {
			c.attrs = append(c.attrs, sb.attr(key, list[i+1]))
		}
	}
	if callee < 0 || sb.points[callee].kind == trace.Consumer {
		c.peers = []trace.Op{sb.peer(p, list)}
	} else {
		hosts := sb.services[sb.points[callee].service].hosts
		for _, h := range sb.hosts[hosts.first:hosts.end] {
			url := fmt.Sprintf("http://%s:%d/%s", h.address, httpPort, sb.table.OpName(sb.points[callee].op))
			c.peers = append(c.peers,
				sb.peer(p, append(slices.Clone(list), "server.address", h.address, "url.full", url)))
			if sb.config.AllAttributes {
				c.replicas = append(c.replicas,
					[2]trace.Attr{sb.attr("server.address", h.address), sb.attr("url.full", url)})
			}
		}
	}
	sb.points[p].callee = int32(len(sb.calls))
	sb.calls = append(sb.calls, c)
}

// peer returns the peer that decoders read from the given attributes of a span of point p.
func (sb *serviceBuilder) peer(p int32, list attributes) trace.Op {
	d := &sb.decoder
	if d.builder == nil {
		d.keys, _ = ingest.NewKeys() // only fails for too many keys
		d.builder = ingest.NewBuilder(sb.table, d.keys)
	}
	var batch ingest.Batch
	b := d.builder
	b.Begin(&batch)
	b.Span()
	b.ID, b.Trace, b.Name, b.Kind = []byte("identity"), []byte("identity of call"), []byte("call"), sb.points[p].kind
	b.Start, b.End = 1, 2
	for i := 0; i < len(list); i += 2 {
		name, _ := list[i].(string)
		key := []byte(name)
		v := ingest.Value{}
		switch x := list[i+1].(type) {
		case int:
			v.Text, v.Number, v.Numeric = []byte(strconv.Itoa(x)), float64(x), true
		case string:
			v.Text = []byte(x)
		}
		if found := d.keys.Find(key); found != ingest.Unwanted {
			b.Attr(found, key, v)
		}
	}
	b.EndSpan()
	return batch.Spans[0].Peer
}

func (b *builder) attr(key string, value any) trace.Attr {
	a := trace.Attr{Key: b.table.Symbol(key)}
	switch v := value.(type) {
	case int:
		a.Number, a.Numeric = float64(v), true
	case string:
		a.Text = b.table.Symbol(v)
	}
	return a
}

// podName returns a name like the ones that Kubernetes gives to the pods of a deployment.
func podName(service string, random uint64) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	var suffix [5]byte
	for i := range suffix {
		suffix[i] = letters[random>>(8*i)%uint64(len(letters))]
	}
	return fmt.Sprintf("%s-%08x-%s", service, uint32(trace.SymbolOf([]byte(service))), suffix[:])
}

// instanceID returns a random UUID.
func instanceID(random uint64) string {
	low := mix(random, 1)
	return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x",
		uint32(random>>32), uint16(random>>16), random&0xfff, 0x8000|low>>48&0x3fff, low&(1<<48-1))
}
