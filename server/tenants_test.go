package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/config"
)

// house is a service with the tenants a and b, and tokens by "tenant role".
type house struct {
	*Server
	t      *testing.T
	tokens map[string]string
}

// newHouse starts a service with the tenants a and b.
func newHouse(t *testing.T, env map[string]string) *house {
	t.Helper()
	all := volatile(t.TempDir())
	maps.Copy(all, env)
	dir := all["SIBYL_DATA_DIR"]
	h := &house{t: t, tokens: make(map[string]string)}
	for _, name := range []string{"a", "b"} {
		if err := CreateTenant(dir, Tenant{Name: name}); err != nil && !errors.Is(err, ErrTenantThere) {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"", "a", "b"} {
		for _, role := range access.Roles() {
			h.tokens[strings.TrimSpace(name+" "+string(role))] = h.token(dir, access.Token{Role: role, Tenant: name})
		}
	}
	h.tokens["gateway"] = h.token(dir, access.Token{Role: access.Agent, AnyTenant: true})
	e, err := config.Load(config.Sources{Getenv: func(key string) string { return all[key] }})
	if err != nil {
		t.Fatal(err)
	}
	h.Server = started(t, e, &slog.LevelVar{}, io.Discard)
	for _, x := range h.Server.all() {
		<-x.live.Started()
	}
	return h
}

func (h *house) token(dir string, like access.Token) string {
	secret, _, err := access.Open(dir).Create(like, time.Now())
	if err != nil {
		h.t.Fatal(err)
	}
	return secret
}

// do sends a request to the API and returns the status and the body.
func (h *house) do(method, path, token, body string) (int, string) {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), method, "http://"+h.Addresses().API.String()+path,
		strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil && answer.Header.Get("Content-Type") != "text/event-stream" {
		h.t.Error(err)
	}
	return answer.StatusCode, string(text)
}

// send sends traces over HTTP and returns the status.
func (h *house) send(token, scope string, request []byte) int {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), http.MethodPost,
		"http://"+h.Addresses().HTTP.String()+"/v1/traces", bytes.NewReader(request))
	if err != nil {
		h.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if scope != "" {
		r.Header.Set("X-Scope-OrgID", scope)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}

// requests returns the numbers of requests that the tenants accepted, from the default one on.
func (h *house) requests() (all []int64) {
	for _, x := range h.Server.all() {
		all = append(all, x.live.Counts().Requests.Load())
	}
	return all
}

// Every operation of the API refuses tokens of other tenants, before it does anything. Agents and senders are refused
// likewise.
func TestTenantsAreApart(t *testing.T) {
	h := newHouse(t, nil)
	calls := map[string]string{
		http.MethodGet: "/api/v1/status /api/v1/incidents /api/v1/events /api/v1/audit /api/v1/webhooks/dead " +
			"/api/v1/traces /api/v1/me /metrics",
		http.MethodPost: "/api/v1/backup /api/v1/webhooks/dead/1/resend",
	}
	for _, c := range []struct {
		token, path string
		enters      bool
	}{
		{"a admin", "/t/a", true},
		{"a admin", "/t/b", false},
		{"a admin", "", false},
		{"admin", "/t/a", true},
		{"admin", "", true},
		{"operator", "/t/a", false},
		{"viewer", "/t/a", false},
		{"viewer", "", true},
		{"", "/t/a", false},
	} {
		for method, paths := range calls {
			for path := range strings.FieldsSeq(paths) {
				if c.enters && (strings.HasSuffix(path, "/events") || method == http.MethodPost) {
					continue
				}
				code, text := h.do(method, c.path+path, h.tokens[c.token], "")
				refused := code == http.StatusForbidden || code == http.StatusUnauthorized
				mayNot := strings.Contains(text, "this needs the role") // of a viewer
				if refused == c.enters && !mayNot {
					t.Errorf("%q: %s %s: %d %s", c.token, method, c.path+path, code, text)
				}
			}
		}
	}
	for token, want := range map[string]string{
		"admin":  `"tenants":[{"name":"default","path":""},{"name":"a","path":"/t/a"},{"name":"b","path":"/t/b"}]`,
		"viewer": `"role":"viewer"`,
	} {
		_, text := h.do(http.MethodGet, "/api/v1/me", h.tokens[token], "")
		if !strings.Contains(text, want) || token == "viewer" && strings.Contains(text, "tenants") {
			t.Errorf("%s: %s", token, text)
		}
	}
	silence := fmt.Sprintf(`{"match":{"service":"cart"},"until":%q}`, time.Now().Add(time.Hour).Format(time.RFC3339))
	if code, text := h.do(http.MethodPost, "/t/a/api/v1/silences", h.tokens["a operator"], silence); code != 201 {
		t.Errorf("%d %s", code, text)
	}
	if _, text := h.do(http.MethodGet, "/t/b/api/v1/silences", h.tokens["b viewer"], ""); text != `{"items":[]}`+"\n" {
		t.Errorf("a silence of the tenant a is in b: %s", text)
	}
	for path := range strings.FieldsSeq("/t/c/api/v1/status /t/ /t /t/a/t/b/api/v1/status /t/../t/b/api/v1/status") {
		if code, _ := h.do(http.MethodGet, path, h.tokens["a admin"], ""); code == http.StatusOK {
			t.Errorf("%s: %d", path, code)
		}
	}
}

// Traces go to the tenant of the token, and to the tenant in X-Scope-OrgID only if the token permits it.
func TestTenantsOfSenders(t *testing.T) {
	h := newHouse(t, nil)
	request := oneSpan(t)
	for _, c := range []struct {
		token, scope string
		want         int
		to           int // index of the tenant
	}{
		{"", "", http.StatusOK, 0},
		{"agent", "", http.StatusOK, 0},
		{"agent", "default", http.StatusOK, 0},
		{"a agent", "", http.StatusOK, 1},
		{"a operator", "a", http.StatusOK, 1},
		{"b agent", "", http.StatusOK, 2},
		{"gateway", "", http.StatusOK, 0},
		{"gateway", "a", http.StatusOK, 1},
		{"gateway", "b", http.StatusOK, 2},
		{"gateway", "c", http.StatusForbidden, 0},
		{"a agent", "b", http.StatusForbidden, 0},
		{"a agent", "default", http.StatusForbidden, 0},
		{"admin", "a", http.StatusForbidden, 0},
		{"", "a", http.StatusForbidden, 0},
		{"a viewer", "", http.StatusUnauthorized, 0},
		{"guessed", "", http.StatusUnauthorized, 0},
	} {
		want := h.requests()
		if c.want == http.StatusOK {
			want[c.to]++
		}
		token := h.tokens[c.token]
		if c.token == "guessed" {
			token = "guessed"
		}
		if code := h.send(token, c.scope, request); code != c.want {
			t.Errorf("%q, %q: %d, want %d", c.token, c.scope, code, c.want)
		}
		if got := h.requests(); !slices.Equal(got, want) {
			t.Errorf("%q, %q: %v, want %v", c.token, c.scope, got, want)
		}
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-scope-orgid", c.scope)
		if token != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
		}
		code := map[int]codes.Code{
			http.StatusOK: codes.OK, http.StatusForbidden: codes.PermissionDenied,
			http.StatusUnauthorized: codes.Unauthenticated,
		}[c.want]
		if err := h.export(ctx, request); status.Code(err) != code {
			t.Errorf("gRPC, %q, %q: %v, want %v", c.token, c.scope, err, code)
		}
	}
}

// oneSpan returns a request with a trace of one span.
func oneSpan(t *testing.T) []byte {
	t.Helper()
	traces := ptrace.NewTraces()
	resource := traces.ResourceSpans().AppendEmpty()
	resource.Resource().Attributes().PutStr("service.name", "shop")
	span := resource.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	now := time.Now()
	span.SetName("GET /")
	span.SetTraceID(pcommon.TraceID([]byte(rand.Text())[:16]))
	span.SetSpanID(pcommon.SpanID([]byte(rand.Text())[:8]))
	span.SetStartTimestamp(pcommon.NewTimestampFromTime(now.Add(-time.Millisecond)))
	span.SetEndTimestamp(pcommon.NewTimestampFromTime(now))
	request, err := ptraceotlp.NewExportRequestFromTraces(traces).MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	return request
}

// export sends traces over gRPC.
func (h *house) export(ctx context.Context, body []byte) error {
	h.t.Helper()
	conn, err := grpc.NewClient(h.Addresses().GRPC.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		h.t.Fatal(err)
	}
	defer conn.Close()
	request := ptraceotlp.NewExportRequest()
	if err := request.UnmarshalProto(body); err != nil {
		h.t.Fatal(err)
	}
	_, err = ptraceotlp.NewGRPCClient(conn).Export(ctx, request)
	return err
}

// Agents belong to the tenant of their token, at every address.
func TestTenantsOfAgents(t *testing.T) {
	h := newHouse(t, map[string]string{"SIBYL_OPAMP": "127.0.0.1:0"})
	hello, err := json.Marshal(protocol.Registration{
		Protocol:     protocol.Version,
		Session:      "1",
		Resource:     map[string]string{"service.name": "shop"},
		Capabilities: []protocol.Capability{protocol.CanSpan},
		Catalogue:    protocol.Catalogue{Hash: protocol.HashCatalogue(nil)},
	})
	if err != nil {
		t.Fatal(err)
	}
	agents := func() (all []int) {
		for _, x := range h.Server.all() {
			all = append(all, len(x.plane.Agents()))
		}
		return all
	}
	for i, c := range []struct {
		token, path string
		want        int
		to          int
	}{
		{"agent", "", http.StatusOK, 0},
		{"a agent", "", http.StatusOK, 1},
		{"a agent", "/t/a", http.StatusOK, 1},
		{"admin", "/t/b", http.StatusOK, 2},
		{"a agent", "/t/b", http.StatusForbidden, 0},
		{"agent", "/t/b", http.StatusForbidden, 0},
		{"", "", http.StatusUnauthorized, 0},
	} {
		want := agents()
		path := c.path + protocol.Path + string(rune('a'+i)) + "?session=1"
		code, text := h.do(http.MethodPut, path, h.tokens[c.token], string(hello))
		if code/100 != c.want/100 || c.want != http.StatusOK && code != c.want {
			t.Errorf("%q at %q: %d %s", c.token, c.path, code, text)
		}
		if c.want == http.StatusOK {
			want[c.to]++
		}
		// the plane lists an agent once the engine has its offer
		eventually(t, fmt.Sprintf("%q at %q: agents are %v", c.token, c.path, want), func() bool {
			return slices.Equal(agents(), want)
		})
	}
}

// Each tenant's data are in its own directory, survive a restart, and are gone when the tenant is deleted.
func TestTenantsData(t *testing.T) {
	dir := t.TempDir()
	env := map[string]string{"SIBYL_DATA_DIR": dir}
	t.Run("first", func(t *testing.T) {
		h := newHouse(t, env)
		for range 3 {
			h.send(h.tokens["a agent"], "", oneSpan(t))
		}
		eventually(t, "a request of a is in the history", func() bool {
			return h.Server.all()[1].live.Counts().Arrived.Load() != 0
		})
		if code, text := h.do(http.MethodPost, "/t/a/api/v1/backup", h.tokens["a admin"], ""); code != http.StatusOK ||
			!strings.Contains(text, filepath.Join(dir, "tenants", "a", "backup")) {
			t.Errorf("backup: %d %s", code, text)
		}
		if _, text := h.do(http.MethodGet, "/t/a/api/v1/audit", h.tokens["a admin"], ""); !strings.Contains(text,
			"backUp") {
			t.Errorf("audit log of a: %s", text)
		}
		for path, token := range map[string]string{"/t/b": "b admin", "": "admin"} {
			if _, text := h.do(http.MethodGet, path+"/api/v1/audit", h.tokens[token], ""); strings.Contains(text,
				"backUp") {
				t.Errorf("audit log at %q: %s", path, text)
			}
		}
		if _, text := h.do(http.MethodGet, "/metrics", h.tokens["admin"], ""); !strings.Contains(text,
			`sibyl_ingest_requests_total{tenant="a"} 3`) || !strings.Contains(text, "\nsibyl_ingest_requests_total 0") {
			t.Errorf("metrics: %s", text)
		}
		if err := DeleteTenant(dir, "a"); !errors.Is(err, errTenantInUse) {
			t.Errorf("deleted while in use: %v", err)
		}
	})
	if err := DeleteTenant(dir, "b"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "tenants", "b")); !os.IsNotExist(err) {
		t.Errorf("data of b: %v", err)
	}
	if err := DeleteTenant(dir, "b"); !errors.Is(err, ErrNoTenant) {
		t.Error(err)
	}
	t.Run("second", func(t *testing.T) {
		h := newHouse(t, env) // creates b again
		arrived := func(i int) int64 { return h.Server.all()[i].live.Counts().Arrived.Load() }
		if arrived(1) == 0 || arrived(2) != 0 || arrived(0) != 0 {
			t.Errorf("last arrivals: %d, %d, %d", arrived(0), arrived(1), arrived(2))
		}
	})
}

// Shares of the memory that aren't given are equal. There is no tenant without enough memory, or beyond the limits.
func TestShares(t *testing.T) {
	each, err := shares([]Tenant{{Quota: Quota{Memory: 40}}, {}, {}})
	if err != nil || !slices.Equal(each, []float64{.2, .4, .2, .2}) {
		t.Errorf("%v, %v", each, err)
	}
	dir := t.TempDir()
	for _, c := range []struct {
		tenant Tenant
		want   error
	}{
		{Tenant{Name: "a"}, nil},
		{Tenant{Name: "a"}, ErrTenantThere},
		{Tenant{Name: "default"}, ErrTenantName},
		{Tenant{Name: "../a"}, ErrTenantName},
		{Tenant{Name: ""}, ErrTenantName},
		{Tenant{Name: "c", Quota: Quota{Memory: 95}}, nil},
		{Tenant{Name: "d", Quota: Quota{Memory: 1}}, errShares},
	} {
		if err := CreateTenant(dir, c.tenant); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v", c.tenant, err)
		}
	}
	c := &config.Config{DataDir: dir, Memory: 1 << 30}
	all, err := Tenants(dir)
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	if _, err := configs(c, all); err == nil || !strings.Contains(err.Error(), "raise memory") {
		t.Error(err)
	}
	if _, err := configs(c, make([]Tenant, mostTenants)); !errors.Is(err, errTenants) {
		t.Error(err)
	}
}

// The flood of one tenant, in every way at once, costs another no request and no span. The test logs how long the
// requests of the other take; how much that changes depends on the processors.
func TestTenantFlood(t *testing.T) {
	v := newProcess(t, t.TempDir())
	v.http, v.more = freeAddress(t), []string{"--memory", "256MiB"}
	tokens := make(map[string]string)
	for _, x := range []Tenant{{Name: "loud", Quota: Quota{Spans: 20_000}}, {Name: "quiet"}} {
		if err := CreateTenant(v.dir, x); err != nil {
			t.Fatal(err)
		}
		secret, _, err := access.Open(v.dir).Create(access.Token{Role: access.Operator, Tenant: x.Name}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		tokens[x.Name] = secret
	}
	v.start()
	t.Cleanup(func() { v.end(os.Kill) })
	v.ready()
	length := 5 * time.Second
	if *soak {
		length = 2 * time.Minute
	}
	sent := 0
	trickle := func(name string, until <-chan struct{}) {
		var took []time.Duration
		for done := false; !done; {
			began := time.Now()
			answer, err := ask(t.Context(), http.MethodPost, "http://"+v.http+"/v1/traces", tokens["quiet"],
				"application/x-protobuf", oneSpan(t))
			if err != nil {
				t.Error(err)
				return
			}
			text, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				t.Errorf("%s: a request was refused: %s %s", name, answer.Status, text)
				return
			}
			took, sent = append(took, time.Since(began)), sent+1
			select {
			case <-until:
				done = true
			case <-time.After(20 * time.Millisecond):
			}
		}
		slices.Sort(took)
		t.Logf("%s: %d requests; median %v, 99th percentile %v", name, len(took),
			took[len(took)/2].Round(time.Microsecond), took[len(took)*99/100].Round(time.Microsecond))
	}
	alone, flooded := make(chan struct{}), make(chan struct{})
	time.AfterFunc(length, func() { close(alone) })
	trickle("alone", alone)
	var beside sync.WaitGroup
	beside.Go(func() { trickle("beside a flood", flooded) })
	v.floodFromElsewhere(tokens["loud"], length)
	close(flooded)
	beside.Wait()
	if n := v.spans("quiet", tokens["quiet"]); n != sent {
		t.Errorf("the quiet tenant has %d spans, want %d", n, sent)
	}
	n := v.spans("loud", tokens["loud"])
	if n < 1000 {
		t.Errorf("the flood had only %d spans", n)
	}
	t.Logf("the flood had %d spans", n)
}

// spans returns the number of spans that a tenant has accepted.
func (v *process) spans(tenant, token string) (n int) {
	v.t.Helper()
	answer, err := ask(v.t.Context(), http.MethodGet, "http://"+v.api+"/t/"+tenant+"/metrics", token, "", nil)
	if err != nil {
		v.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\nsibyl_ingest_spans_total ")
	if _, err := fmt.Sscan(after, &n); err != nil {
		v.t.Fatalf("%v in %s", err, text)
	}
	return n
}

// A tenant has the webhooks and the export that the configuration gives it, and no others.
func TestOutputsOfTenants(t *testing.T) {
	h := newHouse(t, map[string]string{
		"SIBYL_WEBHOOKS": `[{name: ours, url: "https://hooks.example/ours"}]`,
		"SIBYL_TENANTS": `[{name: a, webhooks: [{name: own, url: "https://hooks.example/a"}], ` +
			`export: {otlp: "http://127.0.0.1:9/v1/traces"}}, {name: later}]`,
	})
	for path, want := range map[string]string{"": "ours", "/t/a": "own", "/t/b": ""} {
		_, text := h.do(http.MethodGet, path+"/api/v1/webhooks", h.tokens["admin"], "")
		for _, name := range []string{"ours", "own"} {
			if strings.Contains(text, `"name":"`+name+`"`) != (name == want) {
				t.Errorf("webhooks at %q: %s, want %q", path, text, want)
			}
		}
	}
	for i, x := range h.all() {
		if exports := x.outbound.exporting != nil; exports != (i == 1) {
			t.Errorf("tenant %q exports: %v", x.Name, exports)
		}
	}
}
