package protocol_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// plan returns a plan with all fields set.
func plan() *protocol.Plan {
	p := &protocol.Plan{
		Protocol: protocol.Version, Version: 17, LeaseSeconds: 60,
		Filters: []protocol.Filter{
			{Operation: "GET /cart"},
			{Service: "shop", SpanKind: protocol.Server, Attributes: map[string]string{"tenant": "a", "region": "eu"}},
		},
		Arms: []protocol.Arm{
			{Name: "a", Share: 0.25, Tracepoints: []protocol.Enabled{
				{ID: "shop/cart.price", Rate: 1},
				{ID: "shop/cart.size", Rate: 0.5, Filter: 2},
			}},
			{Name: "b", Share: 0.5, Tracepoints: []protocol.Enabled{}},
			{Name: "c", Share: 0.01, Tracepoints: []protocol.Enabled{}},
		},
	}
	p.Hash = protocol.HashPlan(p)
	return p
}

func TestPlanRoundTrip(t *testing.T) {
	data, err := json.Marshal(plan())
	if err != nil {
		t.Fatal(err)
	}
	got, err := protocol.DecodePlan(data)
	if err != nil {
		t.Fatal(err)
	}
	if want := plan(); !reflect.DeepEqual(got, want) {
		t.Errorf("decoded %+v, want %+v", got, want)
	}
}

// TestHashes pins hashes, because agents in other languages compute them, too.
func TestHashes(t *testing.T) {
	if got, want := plan().Hash, "abc117220e9f0681c5324588eb957fa8"; got != want {
		t.Errorf("hash of the plan is %s, want %s", got, want)
	}
	if got, want := protocol.HashCatalogue(catalogue(2)), "c042e5bf96cc2e75748115521cd1d853"; got != want {
		t.Errorf("hash of the catalogue is %s, want %s", got, want)
	}
}

// TestHashCoversAllFields changes one field at a time.
func TestHashCoversAllFields(t *testing.T) {
	seen := map[string]string{protocol.HashPlan(plan()): "no field"}
	for name, change := range map[string]func(p *protocol.Plan){
		"version":   func(p *protocol.Plan) { p.Version++ },
		"lease":     func(p *protocol.Plan) { p.LeaseSeconds++ },
		"filter":    func(p *protocol.Plan) { p.Filters[0].Operation = "" },
		"kind":      func(p *protocol.Plan) { p.Filters[1].SpanKind = "" },
		"service":   func(p *protocol.Plan) { p.Filters[1].Service = "" },
		"attribute": func(p *protocol.Plan) { p.Filters[1].Attributes["tenant"] = "b" },
		"name":      func(p *protocol.Plan) { p.Arms[0].Name = "c" },
		"share":     func(p *protocol.Plan) { p.Arms[0].Share = 0.1 },
		"id":        func(p *protocol.Plan) { p.Arms[0].Tracepoints[0].ID = "shop/cart" },
		"rate":      func(p *protocol.Plan) { p.Arms[0].Tracepoints[0].Rate = 0.5 },
		"of filter": func(p *protocol.Plan) { p.Arms[0].Tracepoints[0].Filter = 1 },
		"arms":      func(p *protocol.Plan) { p.Arms = p.Arms[:2] },
	} {
		p := plan()
		change(p)
		h := protocol.HashPlan(p)
		if other, found := seen[h]; found {
			t.Errorf("the hash is the same after changing %s and %s", name, other)
		}
		seen[h] = name
	}
}

func TestValidatePlanErrors(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(p *protocol.Plan)
	}{
		{"protocol: 2", func(p *protocol.Plan) { p.Protocol = 2 }},
		{"version: -1", func(p *protocol.Plan) { p.Version = -1 }},
		{"lease_seconds: 0", func(p *protocol.Plan) { p.LeaseSeconds = 0 }},
		{"filters[0].operation: ", func(p *protocol.Plan) { p.Filters[0].Operation = "a\x00b" }},
		{"filters[1].span_kind: ", func(p *protocol.Plan) { p.Filters[1].SpanKind = "odd" }},
		{"filters[0].attributes: missing", func(p *protocol.Plan) {
			p.Filters[0].Attributes = map[string]string{"": "x"}
		}},
		{"arms[0].name: ", func(p *protocol.Plan) { p.Arms[0].Name = "a-b" }},
		{`arms[1].name: "a" occurs twice`, func(p *protocol.Plan) { p.Arms[1].Name = "a" }},
		{"arms[0].share: NaN", func(p *protocol.Plan) { p.Arms[0].Share = math.NaN() }},
		{"arms: the shares sum to 1.26", func(p *protocol.Plan) { p.Arms[0].Share = 0.75 }},
		{"arms[0].tracepoints[1].id: ", func(p *protocol.Plan) { p.Arms[0].Tracepoints[1].ID = "shop/cart.price" }},
		{"arms[0].tracepoints[0].id: missing", func(p *protocol.Plan) { p.Arms[0].Tracepoints[0].ID = "" }},
		{"arms[0].tracepoints[0].rate: 0", func(p *protocol.Plan) { p.Arms[0].Tracepoints[0].Rate = 0 }},
		{"arms[0].tracepoints[1].filter: 3: the plan has 2", func(p *protocol.Plan) {
			p.Arms[0].Tracepoints[1].Filter = 3
		}},
		{"arms[1].tracepoints: 10001", func(p *protocol.Plan) {
			p.Arms[1].Tracepoints = make([]protocol.Enabled, protocol.MaxEnabled+1)
		}},
	} {
		p := plan()
		c.change(p)
		if err := p.Validate(); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got error %v, want %s…", err, c.want)
		}
	}
	if err := (&protocol.Plan{}).Validate(); !errors.Is(err, protocol.ErrVersion) {
		t.Errorf("got error %v without a version, want ErrVersion", err)
	}
}

// catalogue returns n tracepoints.
func catalogue(n int) []protocol.Tracepoint {
	list := make([]protocol.Tracepoint, n)
	for i := range list {
		list[i] = protocol.Tracepoint{
			ID:        fmt.Sprintf("shop/cart.%06d", i),
			Layer:     protocol.App,
			Kind:      protocol.SpanPoint,
			Service:   "shop",
			Scope:     "cart",
			Operation: fmt.Sprintf("cart.%d", i),
			SpanKind:  protocol.Internal,
			Owner:     "GET /cart",
			OwnerKind: protocol.Server,
			CostNanos: 900,
			Bytes:     200,
		}
	}
	return list
}

func registration(n, page int) *protocol.Registration {
	list := catalogue(n)
	r := &protocol.Registration{
		Protocol:     protocol.Version,
		Session:      "0123",
		Resource:     map[string]string{"service.name": "shop"},
		Capabilities: []protocol.Capability{protocol.CanSpan},
		Catalogue:    protocol.Catalogue{Hash: protocol.HashCatalogue(list), Size: n},
	}
	if page >= 0 {
		from, to := r.Catalogue.Page(page)
		r.Page = &protocol.Page{Number: page, Tracepoints: list[from:to]}
	}
	return r
}

func TestValidateRegistration(t *testing.T) {
	for _, c := range []struct{ size, page int }{
		{0, -1}, {1, 0}, {protocol.PageSize, 0}, {protocol.PageSize + 1, -1}, {protocol.PageSize + 1, 1},
	} {
		if err := registration(c.size, c.page).Validate(); err != nil {
			t.Errorf("page %d of a catalogue of %d: %v", c.page, c.size, err)
		}
	}
}

func TestValidateRegistrationErrors(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(r *protocol.Registration)
	}{
		{"protocol: 0", func(r *protocol.Registration) { r.Protocol = 0 }},
		{"session: missing", func(r *protocol.Registration) { r.Session = "" }},
		{"resource.service.name: missing", func(r *protocol.Registration) { r.Resource = nil }},
		{"catalogue.size: -1", func(r *protocol.Registration) { r.Catalogue.Size = -1 }},
		{"catalogue.hash: ", func(r *protocol.Registration) { r.Catalogue.Hash = "XYZ" }},
		{"catalogue.hash: does not match", func(r *protocol.Registration) { r.Page.Tracepoints[1].CostNanos++ }},
		{"page.number: 1: the catalogue has 1", func(r *protocol.Registration) { r.Page.Number = 1 }},
		{"page.tracepoints: got 1 entries, want 2", func(r *protocol.Registration) {
			r.Page.Tracepoints = r.Page.Tracepoints[:1]
		}},
		{"page.tracepoints[1].id: ", func(r *protocol.Registration) { r.Page.Tracepoints[1].ID = "a" }},
		{"page.tracepoints[0].operation: missing", func(r *protocol.Registration) {
			r.Page.Tracepoints[0].Operation = ""
		}},
		{"page.tracepoints[0].layer: ", func(r *protocol.Registration) { r.Page.Tracepoints[0].Layer = "" }},
		{"page.tracepoints[0].kind: ", func(r *protocol.Registration) { r.Page.Tracepoints[0].Kind = "event" }},
		{"page.tracepoints[0].cost_ns: -1", func(r *protocol.Registration) { r.Page.Tracepoints[0].CostNanos = -1 }},
	} {
		r := registration(2, 0)
		c.change(r)
		if err := r.Validate(); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got error %v, want %s…", err, c.want)
		}
	}
}

func TestValidateStatus(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(s *protocol.Status)
	}{
		{"", func(*protocol.Status) {}},
		{"protocol: 3", func(s *protocol.Status) { s.Protocol = 3 }},
		{"session: missing", func(s *protocol.Status) { s.Session = "" }},
		{"version: -1", func(s *protocol.Status) { s.Version = -1 }},
		{"hash: ", func(s *protocol.Status) { s.Hash = "1" }},
		{"tracepoints[0].id: missing", func(s *protocol.Status) { s.Tracepoints[0].ID = "" }},
		{"tracepoints[0].state: ", func(s *protocol.Status) { s.Tracepoints[0].State = "on" }},
		{"tracepoints[0].cost_ns: +Inf", func(s *protocol.Status) { s.Tracepoints[0].Nanos = math.Inf(1) }},
		{"tracepoints[0].bytes: -1", func(s *protocol.Status) { s.Tracepoints[0].Bytes = -1 }},
	} {
		s := &protocol.Status{
			Protocol: protocol.Version, Session: "0123", Version: 17, Hash: plan().Hash,
			Tracepoints: []protocol.Outcome{{
				ID:    "shop/cart.price",
				State: protocol.Applied,
				Hits:  3,
				Nanos: 800,
				Bytes: 210,
			}},
		}
		c.change(s)
		if err := s.Validate(); (c.want == "") != (err == nil) ||
			err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got error %v, want %q…", err, c.want)
		}
	}
}

func TestDecision(t *testing.T) {
	for text, want := range map[string]protocol.Decision{
		"0":                     {},
		"17":                    {Version: 17},
		"17-b":                  {Version: 17, Arm: "b"},
		"17-x-1f":               {Version: 17, Arm: "x", Filters: 0x1f},
		"17-b-8000000000000000": {Version: 17, Arm: "b", Filters: 1 << 63},
	} {
		if got, ok := protocol.ParseDecision(text); !ok || got != want || got.String() != text {
			t.Errorf("ParseDecision(%q) = %+v, %v; String() = %q", text, got, ok, got.String())
		}
	}
	for _, text := range []string{
		"", "-", "b", "-1", "+1", "17-", "17-B", "17-b-", "17-b-g", "17-b-1-2", "17--1", "9007199254740992",
		"17-aaaaaaaaaaaaaaaaa",
	} {
		if got, ok := protocol.ParseDecision(text); ok || got != (protocol.Decision{}) {
			t.Errorf("ParseDecision(%q) = %+v, want an error", text, got)
		}
	}
}

// TestRandomness pins a value that agents in other languages must derive, too, and checks the distribution over arms
// and rates.
func TestRandomness(t *testing.T) {
	id := [16]byte{0: 0x4b, 1: 0xf9, 2: 0x2f, 3: 0x35, 15: 0x36}
	if got, want := protocol.RandomnessOf(id), protocol.Randomness(0x47bc1441ce3b6609); got != want {
		t.Errorf("randomness is %#x, want %#x", got, want)
	}
	p := plan()
	arms, passed := map[int]float64{}, map[int]float64{}
	const n = 100_000
	for i := range n {
		id := [16]byte{14: byte(i >> 8), 15: byte(i), 13: byte(i >> 16)}
		r := protocol.RandomnessOf(id)
		arm := r.Arm(p)
		arms[arm] += 1. / n
		if r.Passes(0.5) {
			passed[arm] += 1. / n
			if !r.Passes(0.7) || !r.Passes(1) {
				t.Fatalf("%v passes at a rate of 0.5, but not at a higher one", r)
			}
		}
	}
	for arm, want := range map[int]float64{0: 0.25, 1: 0.5, 2: 0.01, -1: 0.24} {
		if got := arms[arm]; math.Abs(got-want) > 0.005 {
			t.Errorf("arm %d has a share of %v, want %v", arm, got, want)
		}
		if got := passed[arm]; math.Abs(got-want/2) > 0.005 {
			t.Errorf("a share of %v of all requests passes in arm %d at a rate of 0.5, want %v", got, arm, want/2)
		}
	}
}

func TestFilter(t *testing.T) {
	attribute := func(key string) (string, bool) {
		v, ok := map[string]string{"tenant": "a", "empty": ""}[key]
		return v, ok
	}
	for _, c := range []struct {
		filter protocol.Filter
		want   bool
	}{
		{protocol.Filter{}, true},
		{protocol.Filter{Service: "shop", Operation: "GET /", SpanKind: protocol.Server}, true},
		{protocol.Filter{Service: "cart"}, false},
		{protocol.Filter{Operation: "GET"}, false},
		{protocol.Filter{SpanKind: protocol.Client}, false},
		{protocol.Filter{Attributes: map[string]string{"tenant": "a", "empty": ""}}, true},
		{protocol.Filter{Attributes: map[string]string{"tenant": "a", "none": ""}}, false},
	} {
		if got := c.filter.Matches("shop", "GET /", protocol.Server, attribute); got != c.want {
			t.Errorf("%+v: Matches = %v, want %v", c.filter, got, c.want)
		}
	}
	for filter, want := range map[int]uint64{0: 0, 1: 1, 2: 2, 64: 1 << 63} {
		if got := (&protocol.Enabled{Filter: filter}).FilterBit(); got != want {
			t.Errorf("FilterBit of filter %d is %#x, want %#x", filter, got, want)
		}
	}
}

// FuzzDecodePlan checks that DecodePlan returns either a plan or an error, and that valid plans survive a round trip.
func FuzzDecodePlan(f *testing.F) {
	data, err := json.Marshal(plan())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{
		"protocol":1,"version":1,"hash":"","lease_seconds":1,
		"arms":[{"name":"a","share":1,"tracepoints":[{"id":"b","rate":1}]}]
	}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := protocol.DecodePlan(data)
		if (p == nil) != (err != nil) {
			t.Fatalf("plan %v with error %v", p, err)
		}
		var unhashed protocol.Plan // reaches the validation although the hash doesn't match
		if json.Unmarshal(data, &unhashed) != nil || unhashed.Validate() != nil {
			return
		}
		unhashed.Hash = protocol.HashPlan(&unhashed)
		again, err := json.Marshal(&unhashed)
		if err != nil {
			t.Fatal(err)
		}
		if p, err = protocol.DecodePlan(again); err != nil {
			t.Fatalf("decoding %s: %v", again, err)
		}
		id := [16]byte{15: byte(len(data))}
		if arm := protocol.RandomnessOf(id).Arm(p); arm >= len(p.Arms) {
			t.Fatalf("arm %d of %d", arm, len(p.Arms))
		}
	})
}
