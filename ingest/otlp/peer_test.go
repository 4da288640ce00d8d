package otlp_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/trace"
)

// peerName decodes a span with the given attributes, in pairs, and returns the callee that they name, as
// "service|operation".
func peerName(t *testing.T, kind ptrace.SpanKind, attrs ...string) string {
	t.Helper()
	traces := ptrace.NewTraces()
	s := addSpan(traces, kind)
	for i := 0; i < len(attrs); i += 2 {
		s.Attributes().PutStr(attrs[i], attrs[i+1])
	}
	var table trace.Table
	got := decodePeers(t, traces, &table)
	if got.Spans[0].Peer == 0 {
		return ""
	}
	o := table.Operation(got.Spans[0].Peer)
	if o.Kind != trace.External {
		t.Errorf("the callee has kind %v", o.Kind)
	}
	return table.Text(o.Service) + "|" + table.Text(o.Name)
}

func addSpan(traces ptrace.Traces, kind ptrace.SpanKind) ptrace.Span {
	s := traces.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	s.SetTraceID(pcommon.TraceID{1})
	s.SetSpanID(pcommon.SpanID{1})
	s.SetKind(kind)
	return s
}

func decodePeers(t interface {
	Helper()
	Fatal(args ...any)
}, traces ptrace.Traces, table *trace.Table,
) *ingest.Batch {
	t.Helper()
	data, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(traces)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := ingest.NewKeys()
	if err != nil {
		t.Fatal(err)
	}
	var got ingest.Batch
	if err := otlp.NewDecoder(table, keys).Protobuf(data, &got); err != nil {
		t.Fatal(err)
	}
	return &got
}

// The attributes of the semantic conventions name the callee of a call.
func TestPeers(t *testing.T) {
	for _, c := range []struct {
		about string
		kind  ptrace.SpanKind
		attrs []string
		want  string
	}{
		{
			"HTTP",
			ptrace.SpanKindClient,
			[]string{"server.address", "Cart.example.com", "server.port", "8080"},
			"cart.example.com:8080|",
		},
		{
			"HTTP with a template",
			ptrace.SpanKindClient,
			[]string{"server.address", "cart", "server.port", "80", "url.template", "/items/{id}"},
			"cart|/items/{id}",
		},
		{
			"a URL",
			ptrace.SpanKindClient,
			[]string{"url.full", "https://user:secret@pay.example.com:443/charge?card=4111"},
			"pay.example.com|",
		},
		{"a former name", ptrace.SpanKindClient, []string{"net.peer.name", "cart"}, "cart|"},
		{
			"a service before its address",
			ptrace.SpanKindClient,
			[]string{"server.address", "10.0.0.7", "peer.service", "cart"},
			"cart|",
		},
		{
			"RPC",
			ptrace.SpanKindClient,
			[]string{"rpc.service", "shop.Cart", "server.address", "cart", "server.port", "7070"},
			"cart:7070|shop.cart",
		},
		{"RPC without an address", ptrace.SpanKindClient, []string{"rpc.service", "shop.Cart"}, "shop.cart|"},
		{
			"a database",
			ptrace.SpanKindClient,
			[]string{
				"db.system", "postgresql", "db.name", "shop", "db.sql.table", "orders", "server.address", "orders-db",
				"server.port", "5432",
			},
			"postgresql orders-db:5432|shop.orders",
		},
		{
			"a database called by an INTERNAL span",
			ptrace.SpanKindInternal,
			[]string{"db.system.name", "mysql", "db.namespace", "shop"},
			"mysql|shop",
		},
		{
			"a queue",
			ptrace.SpanKindProducer,
			[]string{"messaging.destination.name", "orders.17", "server.address", "kafka-2"},
			"kafka-{}|orders.{}",
		},
		{
			"a template of a queue",
			ptrace.SpanKindProducer,
			[]string{"messaging.destination.name", "orders.eu", "messaging.destination.template", "orders.{region}"},
			"|orders.{region}",
		},
		{"an INTERNAL span calls nobody", ptrace.SpanKindInternal, []string{"server.address", "cart"}, ""},
		{"the attributes of a SERVER name itself", ptrace.SpanKindServer, []string{"server.address", "cart"}, ""},
		{"no attributes", ptrace.SpanKindClient, nil, ""},
		{"a port alone", ptrace.SpanKindClient, []string{"server.address", ":8080"}, ""},
		{"an empty address", ptrace.SpanKindClient, []string{"server.address", ""}, ""},
	} {
		if got := peerName(t, c.kind, c.attrs...); got != c.want {
			t.Errorf("%s: %q, want %q", c.about, got, c.want)
		}
	}
}

// Replicas of one service have one name.
func TestPeerHosts(t *testing.T) {
	for address, want := range map[string]string{
		"10.0.0.7":                 "{ip}",
		"10.0.0.7:8080":            "{ip}:8080",
		"2001:db8::1":              "{ip}",
		"[2001:db8::1]:443":        "{ip}",
		"cart:80":                  "cart",
		"cart:7070":                "cart:7070",
		"cart-7f9c8d6b5-x2k4z":     "cart-{}",
		"cart-7f9c8d6b5-bcdfg:80":  "cart-{}",
		"kafka-0.kafka.prod.svc":   "kafka-{}.kafka.prod.svc",
		"ip-10-0-1-17.eu.internal": "ip-{}.eu.internal",
		"orders-db":                "orders-db",
		"order-queue":              "order-queue",
		"s3.amazonaws.com":         "s3.amazonaws.com",
		"db1":                      "db1",
		"42":                       "{}",
		"-1":                       "-{}",
	} {
		if got := peerName(t, ptrace.SpanKindClient, "server.address", address); got != want+"|" {
			t.Errorf("%q: %q, want %q", address, got, want)
		}
	}
}

// Spellings of one address are equal, other addresses and ports differ, and local addresses are ignored.
func TestAddresses(t *testing.T) {
	address := func(kind ptrace.SpanKind, attrs ...string) trace.Address {
		traces := ptrace.NewTraces()
		s := addSpan(traces, kind)
		for i := 0; i < len(attrs); i += 2 {
			s.Attributes().PutStr(attrs[i], attrs[i+1])
		}
		return decodePeers(t, traces, &trace.Table{}).Spans[0].Address
	}
	for _, same := range [][][]string{
		{
			{"server.address", "10.0.0.7", "server.port", "8080"},
			{"server.address", "10.0.0.7:8080"},
			{"url.full", "http://10.0.0.7:8080/x"},
		},
		{
			{"server.address", "10.0.0.7", "server.port", "80"},
			{"url.full", "http://10.0.0.7/x"},
			{"net.peer.name", "10.0.0.7"},
		},
		{{"server.address", "2001:db8::1", "server.port", "8080"}, {"http.host", "[2001:db8::1]:8080"}},
	} {
		for _, attrs := range same {
			got, own := address(ptrace.SpanKindClient, attrs...), address(ptrace.SpanKindServer, attrs...)
			if want := address(ptrace.SpanKindClient, same[0]...); got != want || got == 0 || own != got {
				t.Errorf("%v: %x, of a server %x, want %x", attrs, got, own, want)
			}
		}
	}
	seen := make(map[trace.Address]bool)
	for _, other := range []string{"10.0.0.7", "10.0.0.7:8080", "10.0.0.7:8081", "10.0.0.8:8080", "cart-1", "cart-2"} {
		seen[address(ptrace.SpanKindClient, "server.address", other)] = true
	}
	if len(seen) != 6 {
		t.Errorf("%d different addresses, want 6", len(seen))
	}
	for _, none := range []string{"localhost:80", "127.0.0.1:8080", "[::1]:7", ":8080"} {
		if got := address(ptrace.SpanKindClient, "server.address", none); got != 0 {
			t.Errorf("%s: %x, want none", none, got)
		}
	}
	if got := address(ptrace.SpanKindInternal, "server.address", "10.0.0.7"); got != 0 {
		t.Errorf("an INTERNAL span: %x, want none", got)
	}
}

// The decoder names the same callees as the reference, whatever the attributes.
func TestPeersEqualReference(t *testing.T) {
	keys := []string{
		"service.peer.name", "peer.service", "rpc.service", "messaging.destination.template",
		"messaging.destination.name", "messaging.destination",
		"db.system.name", "db.system", "db.namespace", "db.name", "db.collection.name", "db.sql.table",
		"server.address", "net.peer.name",
		"http.host", "server.port", "net.peer.port", "url.full", "http.url", "url.template", "http.route", "url.path",
		"http.target", "other",
	}
	text := rapid.OneOf(
		rapid.StringMatching(`[a-z0-9]{1,5}(-[a-z0-9]{1,6}){0,3}(\.[a-z]{1,3}){0,2}(:[0-9]{1,5})?`),
		rapid.StringMatching(`(https?://)?([a-z:]{0,3}@)?[\[\]a-f0-9:.-]{0,12}[/?#]?[a-zA-Z]{0,4}`),
		rapid.StringMatching(`(https?://[a-z]{0,2})?(/[a-z0-9]{0,3}){0,6}([?#][a-z/]{0,3})?`),
		rapid.SampledFrom([]string{"", "10.1.2.3", "::1", "[::1]:80", "cart", "CART", "\xff\xfe", "K", "é-1-abcde"}),
		rapid.StringN(0, 300, 600),
	)
	rapid.Check(t, func(t *rapid.T) {
		traces := ptrace.NewTraces()
		s := addSpan(traces, ptrace.SpanKind(rapid.IntRange(0, 5).Draw(t, "kind")))
		s.SetName(rapid.SampledFrom([]string{"", "GET", "HTTP POST", "HTTP", "cart", "GET /a"}).Draw(t, "name"))
		for range rapid.IntRange(0, 6).Draw(t, "attributes") {
			key := rapid.SampledFrom(keys).Draw(t, "key")
			switch rapid.IntRange(0, 5).Draw(t, "type") {
			case 0:
				s.Attributes().PutInt(key, rapid.Int64Range(-1, 1<<17).Draw(t, "int"))
			case 1:
				s.Attributes().PutDouble(key, rapid.Float64Range(-1, 1<<17).Draw(t, "double"))
			case 2:
				s.Attributes().PutBool(key, true)
			default:
				s.Attributes().PutStr(key, text.Draw(t, "text"))
			}
		}
		got := decodePeers(t, traces, &trace.Table{})
		data, _ := (&ptrace.ProtoMarshaler{}).MarshalTraces(traces)
		var want ingest.Batch
		if err := newReference(&trace.Table{}, false).Protobuf(data, &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&want, got, sameBatch); diff != "" {
			t.Errorf("-pdata +decoder:\n%s", diff)
		}
	})
}

// The names of servers contain the route, and the names of consumers the destination.
func TestCompletedNames(t *testing.T) {
	for _, c := range []struct {
		about, name string
		kind        ptrace.SpanKind
		attrs       []string
		want        string
	}{
		{"the method", "GET", ptrace.SpanKindServer, []string{"http.route", "/cart/{id}"}, "GET /cart/{id}"},
		{
			"a name for all routes",
			"handle",
			ptrace.SpanKindServer,
			[]string{"http.route", "/cart/{id}"},
			"handle /cart/{id}",
		},
		{
			"a name with the route",
			"GET users/<id>",
			ptrace.SpanKindServer,
			[]string{"http.route", "/users/<id>"},
			"GET users/<id>",
		},
		{
			"the method, no route",
			"HTTP GET",
			ptrace.SpanKindServer,
			[]string{"url.path", "/api/v1/cart/17/items/3"},
			"HTTP GET /api/v1/cart/{}",
		},
		{
			"a former name of the path",
			"POST",
			ptrace.SpanKindServer,
			[]string{"http.target", "/cart/17?user=4"},
			"POST /cart/{}",
		},
		{
			"a URL",
			"POST",
			ptrace.SpanKindServer,
			[]string{"http.url", "http://shop:8080/cart/17?user=4"},
			"POST /cart/{}",
		},
		{"another name, no route", "handle", ptrace.SpanKindServer, []string{"url.path", "/cart"}, "handle"},
		{"a client", "GET", ptrace.SpanKindClient, []string{"http.route", "/cart"}, "GET"},
		{
			"a consumer",
			"process",
			ptrace.SpanKindConsumer,
			[]string{"messaging.destination.name", "orders-7"},
			"process orders-7",
		},
		{
			"a template of a queue",
			"process",
			ptrace.SpanKindConsumer,
			[]string{"messaging.destination.name", "a", "messaging.destination.template", "b/{}"},
			"process b/{}",
		},
		{
			"a consumer with its queue",
			"orders process",
			ptrace.SpanKindConsumer,
			[]string{"messaging.destination", "orders"},
			"orders process",
		},
	} {
		traces := ptrace.NewTraces()
		s := addSpan(traces, c.kind)
		s.SetName(c.name)
		for i := 0; i < len(c.attrs); i += 2 {
			s.Attributes().PutStr(c.attrs[i], c.attrs[i+1])
		}
		var table trace.Table
		if got := table.OpName(decodePeers(t, traces, &table).Spans[0].Op); got != c.want {
			t.Errorf("%s: %q, want %q", c.about, got, c.want)
		}
	}
}
