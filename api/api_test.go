package api

import (
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/pprof/profile"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/cases"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/decisionlog"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
)

var rewrite = flag.Bool("rewrite", false, "rewrite golden files")

// golden lists the operations whose answers are compared with golden files.
var golden = []string{
	"listProblems", "getProblem", "listGroups", "getGroup", "getGroupHistory", "compareGroup", "getInvestigation",
	"getDecision", "getTracepoint", "listAnnotations", "getPlan", "getBudget", "listAgents", "getStatus",
	"listWebhooks", "listDeadLetters", "getDeadLetter", "listIncidents", "getIncident",
}

// pathParams replaces the parameters in an operation's path with IDs from the harness.
func (w *harness) pathParams() *strings.Replacer {
	problem := w.problem()
	return strings.NewReplacer(
		"{problem}", problem.ID.String(), "{subject}", problem.ID.String(), "{group}", problem.Group.String(),
		"{request_type}", problem.RequestType.String(), "{trace}", w.exemplar.ID.String(),
		"{decision}", decisionlog.ID{At: w.decided}.String(),
		"{tracepoint}", render.Hex16(w.tracepoint), "{service}", "cart", "{comment}", "1", "{view}", "1",
		"{silence}", "1", "{objective}", "1",
		"{tenant}", "shop",
	)
}

// bodies holds the request bodies by operation.
var bodies = map[string]any{
	"acknowledgeIncident": map[string]string{"text": "on it"},
	"acknowledgeProblem":  map[string]string{"text": "on it"},
	"annotate":            map[string]string{"kind": "change", "text": "new limits"},
	"annotateFromArgoCD":  map[string]string{"app": "cart"},
	"annotateFromGitHub":  map[string]any{"zen": "Keep it logically awesome."},
	"acknowledgeFromPagerDuty": object{
		"event": object{"event_type": "incident.resolved", "data": object{}},
	},
	"acknowledgeFromOpsgenie": object{"action": "Close", "alert": object{}},
	"acknowledgeFromSlack":    object{"type": "block_actions"},
	"addComment":              map[string]string{"text": "on it"},
	"createTenant":            map[string]string{"name": "shop"},
	"muteIncident":            map[string]string{},
	"muteProblem":             map[string]string{},
	"addSilence": map[string]any{
		"match": map[string]string{"service": "cart"},
		"until": time.Unix(0, int64(begin)).UTC().Add(24 * time.Hour),
	},
	"previewSilence":     map[string]string{"service": "cart"},
	"overrideTracepoint": map[string]string{"kind": "pin"},
	"steerInvestigation": map[string]string{"kind": "start"},
	"addObjective":       object{"entry": "cart", "errors": 0.1},
	"setObjective":       object{"entry": "pay", "errors": 0.1},
	"previewObjective":   object{"entry": "cart", "errors": 0.1},
	"setGates":           object{"growth": 0.2},
	"previewGates":       object{"growth": 0.2},
	"saveView":           map[string]string{"name": "Cart", "path": "/services/cart"},
}

// Every operation of the contract succeeds, and its answer conforms to the contract.
func TestEveryOperation(t *testing.T) {
	w, incident := playTroubled(t), playIncident(t) // a restored core lacks some samples and trees
	params := w.pathParams()
	called := 0
	letter := w.addDeadLetter(t)
	w.call(t, http.MethodPost, "/api/v1/silences", bodies["addSilence"])
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodPost} {
		if method == http.MethodPost {
			letter = w.addDeadLetter(t)
		}
		for pattern, item := range w.doc.Paths.Map() {
			op := item.GetOperation(method)
			if op == nil || op.OperationID == "streamEvents" { // has its own test
				continue
			}
			called++
			query := ""
			if op.OperationID == "listExemplars" {
				query = params.Replace("?group={group}")
			}
			path := params.Replace(w.replaceObjective(t, pattern))
			path = strings.ReplaceAll(path, "{letter}", letter)
			of := w
			if strings.HasPrefix(pattern, "/incidents") {
				of, path = incident, incident.incidentPath(pattern)
			}
			out := of.call(t, method, prefix+path+query, bodies[op.OperationID])
			if out.Code >= 300 {
				t.Errorf("%s: %d: %s", op.OperationID, out.Code, out.Body)
			}
			if slices.Contains(golden, op.OperationID) {
				compareGolden(t, op.OperationID, out.Body.Bytes())
			}
		}
	}
	if called < 38 {
		t.Errorf("called %d operations, want at least 38", called)
	}
}

// replaceObjective returns pattern, the path of an operation. If it is about objectives, exactly one added objective
// exists then, and its ID replaces the parameter.
func (w *harness) replaceObjective(t *testing.T, pattern string, headers ...string) string {
	t.Helper()
	const path = prefix + "/objectives"
	if !strings.HasPrefix(prefix+pattern, path) {
		return pattern
	}
	for _, x := range decode[contract.ObjectiveList](t, w.get(t, path, headers...)).Items {
		if x.ID != nil {
			w.expect(t, http.StatusNoContent, http.MethodDelete, fmt.Sprint(path, "/", *x.ID), nil, headers...)
		}
	}
	var x contract.Objective
	out := w.call(t, http.MethodPost, path, object{"entry": "shop", "errors": 0.1}, headers...)
	if err := json.Unmarshal(out.Body.Bytes(), &x); err != nil || x.ID == nil {
		t.Fatal(out.Code, out.Body)
	}
	return strings.ReplaceAll(pattern, "{objective}", strconv.FormatInt(*x.ID, 10))
}

// compareGolden compares an answer with a golden file.
func compareGolden(t *testing.T, name string, body []byte) {
	t.Helper()
	var x any
	if err := json.Unmarshal(body, &x); err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(x, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", name+".json")
	if *rewrite {
		if err := os.WriteFile(file, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.TrimSpace(string(want)), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// secrets returns a token for each role, and an unknown token for the empty role.
func (w *harness) secrets(t *testing.T) map[access.Role]string {
	secrets := map[access.Role]string{"": "sibyl_nobody"}
	for _, role := range access.Roles() {
		secret, _, err := w.tokens.Create(access.Token{Role: role, Name: string(role)}, time.Unix(0, int64(w.now)))
		if err != nil {
			t.Fatal(err)
		}
		secrets[role] = secret
	}
	return secrets
}

// incidentPath replaces the parameters in an operation's path with the IDs of the first incident and a comment.
func (w *harness) incidentPath(pattern string) string {
	return strings.NewReplacer("{incident}", w.incidentID(), "{comment}", "1").Replace(pattern)
}

// Every operation requires the role that the contract names.
func TestRoles(t *testing.T) {
	w, incident := newTroubled(t), newIncident(t)
	params := w.pathParams()
	secrets, incidentSecrets := w.secrets(t), incident.secrets(t)
	for role, secret := range secrets {
		for pattern, item := range w.doc.Paths.Map() {
			for method, op := range item.Operations() {
				if op.OperationID == "streamEvents" {
					continue
				}
				needed, ok := op.Extensions["x-role"].(string)
				if !ok || !slices.Contains(access.Roles(), access.Role(needed)) {
					t.Fatalf("%s: x-role is %v, want a role", op.OperationID, op.Extensions["x-role"])
				}
				query := ""
				if op.OperationID == "listExemplars" {
					query = params.Replace("?group={group}")
				}
				path := params.Replace(w.replaceObjective(t, pattern,
					"Authorization", "Bearer "+secrets[access.Operator]))
				if strings.Contains(path, "{letter}") {
					path = strings.ReplaceAll(path, "{letter}", w.addDeadLetter(t))
				}
				of, secret := w, secret
				if op.OperationID == "endSilence" {
					w.call(t, http.MethodPost, prefix+"/silences", bodies["addSilence"],
						"Authorization", "Bearer "+secrets[access.Operator])
				}
				if strings.HasPrefix(pattern, "/incidents") {
					of, secret, path = incident, incidentSecrets[role], incident.incidentPath(pattern)
				}
				out := of.call(t, method, prefix+path+query, bodies[op.OperationID], "Authorization", "Bearer "+secret)
				switch {
				case role == "" && (out.Code != http.StatusUnauthorized || out.Header().Get("WWW-Authenticate") == ""):
					t.Errorf("%s without a token: %d", op.OperationID, out.Code)
				case role != "" && role.Allows(access.Role(needed)) != (out.Code < 300):
					t.Errorf("%s as %s: %d: %s", op.OperationID, role, out.Code, out.Body)
				case out.Code == http.StatusForbidden && !strings.Contains(out.Body.String(), "role "+needed):
					t.Errorf("%s as %s: the answer does not name the required role: %s", op.OperationID, role, out.Body)
				}
			}
		}
	}
	force := map[string]any{"kind": "enable", "force": true}
	for role, want := range map[access.Role]int{access.Operator: http.StatusForbidden, access.Admin: http.StatusOK} {
		w.expect(t, want, http.MethodPut, prefix+params.Replace("/tracepoints/{tracepoint}"), force,
			"Authorization", "Bearer "+secrets[role])
	}
	w.expect(t, http.StatusForbidden, http.MethodGet, "/metrics", nil, "Authorization", "Bearer "+secrets[access.Agent])
}

// Invalid requests are refused with a status and a detail that names the error.
func TestRefusals(t *testing.T) {
	w := newTroubled(t)
	params := w.pathParams()
	const annotations = "/api/v1/annotations"
	pin, zeros := map[string]string{"kind": "pin"}, strings.Repeat("0", 32)
	long := map[string]string{"text": strings.Repeat("x", maxBody)}
	for _, c := range []struct {
		method, path string // params are replaced in the path
		body         any
		headers      string // in the form "key: value"
		code         int
		detail       string // part of the detail
	}{
		{"GET", "/api/v1/nowhere", nil, "", 404, "openapi.yaml"},
		{"GET", "/elsewhere", nil, "", 404, "openapi.yaml"},
		{"GET", "/api/v1/problems/" + zeros, nil, "", 404, "no such problem"},
		{"GET", "/api/v1/problems/x", nil, "", 404, "problem"},
		{"GET", "/api/v1/groups/" + zeros, nil, "", 404, "no such group"},
		{"GET", "/api/v1/trees/" + zeros, nil, "", 404, "no such tree"},
		{"GET", "/api/v1/traces/" + strings.Repeat("1", 32), nil, "", 404, "samples of each group"},
		{"GET", "/api/v1/decisions/999999-0", nil, "", 404, "no such decision"},
		{"GET", "/api/v1/tracepoints/0000000000000001", nil, "", 404, "no such tracepoint"},
		{"PUT", "/api/v1/investigations/" + zeros, map[string]string{"kind": "start"}, "", 409, "nothing to search"},
		{"PUT", "/api/v1/investigations/{subject}", map[string]string{"kind": "pin"}, "", 422, "kind"},
		{
			"PUT", "/api/v1/investigations/{subject}",
			map[string]string{"kind": "end", "until": "2001-01-01T00:00:00Z"},
			"", 422, "want a time in the future",
		},
		{"GET", "/api/v1/webhooks/dead/99", nil, "", 404, "no such dead letter"},
		{"GET", "/api/v1/webhooks/dead/9999999999999999999", nil, "", 404, "no such dead letter"},
		{"GET", "/api/v1/webhooks/dead/0", nil, "", 404, "letter"},
		{"DELETE", "/api/v1/webhooks/dead/99", nil, "", 404, "no such dead letter"},
		{"POST", "/api/v1/webhooks/dead/99/resend", nil, "", 404, "no such dead letter"},
		{"PUT", "/api/v1/webhooks/dead/99/resend", nil, "", 405, "POST"},
		{"GET", "/api/v1/webhooks/dead?cursor=abc", nil, "", 400, "start without a cursor"},
		{"GET", "/api/v1/profile?request_type=nothing", nil, "", 404, "no such request type"},
		{"POST", "/api/v1/problems", nil, "", 405, "GET"},
		{"PATCH", "/api/v1/tracepoints/{tracepoint}", nil, "", 405, "GET, HEAD, PUT, DELETE"},
		{"GET", "/api/v1/problems?limit=0", nil, "", 400, "limit: number must be at least 1"},
		{"GET", "/api/v1/problems?limit=1001", nil, "", 400, "limit"},
		{"GET", "/api/v1/problems?limit=many", nil, "", 400, "limit: want an integer"},
		{"GET", "/api/v1/problems?knd=slow", nil, "", 400, `unknown parameter "knd"`},
		{"GET", "/api/v1/problems?knd=slow", nil, "", 400, "known parameters: limit, cursor"},
		{"GET", "/api/v1/problems?kind=slow&kind=variable", nil, "", 400, "kind is given more than once"},
		{"GET", "/api/v1/problems?kind=fast", nil, "", 400, "kind"},
		{"GET", "/api/v1/problems?cursor=abc", nil, "", 400, "start without a cursor"},
		{"GET", "/api/v1/status?x=1", nil, "", 400, "no parameters"},
		{"GET", "/api/v1/problems?q=%zz", nil, "", 400, "escape"},
		{"GET", "/api/v1/services?to=1900-01-01T00:00:00Z", nil, "", 400, "to: want a time like"},
		{"GET", "/api/v1/incidents?from=2&to=1", nil, "", 400, "from must be before to"},
		{"GET", "/api/v1/annotations?from=2&to=1", nil, "", 400, "from must be before to"},
		{"POST", annotations, map[string]string{"kind": "flag", "text": " "}, "", 422, "text: say what happened"},
		{
			"POST", annotations,
			map[string]string{"kind": "flag", "text": "on", "time": "2001-01-01T00:00:00Z"},
			"",
			422, "time of the last 30 days",
		},
		{
			"POST", annotations,
			map[string]any{"kind": "flag", "text": "on", "end": w.clock().Add(-1)},
			"",
			422, "end: want a time in the 30 days after time",
		},
		{
			"POST", annotations,
			map[string]string{"kind": "flag", "text": "on", "link": "javascript:alert(1)"},
			"",
			422, "an address that starts with http:// or https://",
		},
		{"GET", "/api/v1/decisions?from=yesterday", nil, "", 400, "from: want a time like"},
		{"GET", "/api/v1/incidents/xyz", nil, "", 404, "incident: want 16 hexadecimal digits"},
		{"GET", "/api/v1/decisions?from=2026-13-45T00:00:00Z", nil, "", 400, "want a time"},
		{"GET", "/api/v1/exemplars", nil, "", 400, "group: is required"},
		{"GET", "/api/v1/groups/{group}/compare?slowest=0.2&from=1", nil, "", 400, "either"},
		{"GET", "/api/v1/groups/{group}/compare?longer_ns=5&base_to=1", nil, "", 400, "either"},
		{"GET", "/api/v1/groups/{group}/compare?longer_ns=5&slowest=0.2", nil, "", 400, "either"},
		{"GET", "/api/v1/problems", nil, "Accept: text/html", 406, "application/json"},
		{"PUT", "/api/v1/problems/{problem}/mute", nil, "", 415, "application/json"},
		{"PUT", "/api/v1/problems/{problem}/mute", "text", "", 422, "object"},
		{
			"PUT", "/api/v1/problems/{problem}/mute",
			map[string]string{"expires": "2001-01-01T00:00:00Z"},
			"", 422, "30 days",
		},
		{
			"PUT", "/api/v1/problems/{problem}/mute",
			map[string]string{"expires": "tomorrow"},
			"", 422, "expires: want a time like",
		},
		{"PUT", "/api/v1/problems/{problem}/mute", map[string]string{"reason": "x"}, "", 422, "reason"},
		{"PUT", "/api/v1/problems/{problem}/mute", long, "", 413, "at most"},
		{"PUT", "/api/v1/problems/" + zeros + "/mute", map[string]string{}, "", 404, "no such problem"},
		{"PUT", "/api/v1/tracepoints/{tracepoint}", map[string]string{"kind": "smash"}, "", 422, "kind"},
		{"PUT", "/api/v1/tracepoints/{tracepoint}", map[string]any{"kind": "forbid", "force": true}, "", 422, "force"},
		{"PUT", "/api/v1/tracepoints/{tracepoint}", pin, "Sec-Fetch-Site: cross-site", 403, "other sites"},
		{"PUT", "/api/v1/tracepoints/{tracepoint}", pin, "Origin: http://evil.example", 403, "other sites"},
	} {
		headers := strings.SplitN(c.headers, ": ", 2)
		if c.headers == "" {
			headers = nil
		}
		out := w.call(t, c.method, params.Replace(c.path), c.body, headers...)
		if out.Code != c.code || !strings.Contains(out.Body.String(), strings.ReplaceAll(c.detail, `"`, `\"`)) {
			t.Errorf("%s %s: %d: %s, want %d with %s", c.method, c.path, out.Code, out.Body, c.code, c.detail)
		}
		if got := out.Header().Get("Allow"); c.code == http.StatusMethodNotAllowed && !strings.Contains(got, c.detail) {
			t.Errorf("%s %s: Allow: %s", c.method, c.path, got)
		}
	}
}

// Calls above the limit on concurrent calls are refused, and don't count towards the limit.
func TestBusy(t *testing.T) {
	w := newHarness(t)
	const path = prefix + "/annotations" // waits for the core
	w.mu.Lock()
	answers := make(chan int, maxServing)
	for range maxServing {
		go func() { answers <- w.callUnchecked(http.MethodGet, path).Code }()
	}
	for w.serving.Load() < maxServing {
		select {
		case code := <-answers:
			t.Fatalf("a call got %d before the limit was reached", code)
		case <-time.After(time.Millisecond):
		}
	}
	for range maxServing {
		if out := w.get(t, path); out.Code != http.StatusServiceUnavailable || out.Header().Get("Retry-After") != "1" {
			t.Errorf("a call beyond the limit: got %d: %s", out.Code, out.Body)
		}
	}
	w.mu.Unlock()
	for range maxServing {
		if code := <-answers; code != http.StatusOK {
			t.Errorf("a call within the limit: got %d", code)
		}
	}
	w.expect(t, http.StatusOK, http.MethodGet, path, nil)
}

// As long as there is no token, callers from other machines and requests for other host names are refused.
func TestWithoutTokens(t *testing.T) {
	w := newHarness(t)
	for _, c := range []struct {
		remote, host string
		code         int
	}{
		{"127.0.0.1:1", "localhost:8321", 200},
		{"127.0.0.1:1", "127.0.0.1:8321", 200},
		{"[::1]:1", "[::1]:8321", 200},
		{"[::ffff:127.0.0.1]:1", "LOCALHOST", 200},
		{"127.0.0.1:1", "sibyl.localhost", 200},
		{"127.0.0.1:1", "evil.example", 403},
		{"127.0.0.1:1", "localhost.evil.example:8321", 403},
		{"127.0.0.1:1", "10.0.0.1", 403},
		{"10.0.0.2:1", "localhost", 403},
		{"", "localhost", 403},
	} {
		r := httptest.NewRequest(http.MethodGet, "http://x/api/v1/status", nil)
		r.RemoteAddr, r.Host = c.remote, c.host
		out := httptest.NewRecorder()
		w.ServeHTTP(out, r)
		if out.Code != c.code {
			t.Errorf("from %s for %s: %d, want %d", c.remote, c.host, out.Code, c.code)
		}
	}
	// A proxy on this machine sets these.
	for _, header := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Server", "X-Real-IP", "Via", ""} {
		r := httptest.NewRequest(http.MethodGet, "http://localhost/api/v1/status", nil)
		r.RemoteAddr = "127.0.0.1:1"
		if header == "" { // as nginx does by default
			r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.0", 1, 0
			r.Header.Set("Connection", "close")
		} else {
			r.Header.Set(header, "203.0.113.5")
		}
		out := httptest.NewRecorder()
		if w.ServeHTTP(out, r); out.Code != http.StatusForbidden || !strings.Contains(out.Body.String(), "proxy") {
			t.Errorf("with %s: %d: %s", header, out.Code, out.Body)
		}
	}
	secret, _, err := w.tokens.Create(access.Token{Role: access.Viewer}, time.Unix(0, int64(w.now)))
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "http://sibyl.example/api/v1/status", nil)
	r.RemoteAddr = "10.0.0.2:1"
	r.Header.Set("X-Forwarded-For", "203.0.113.5")
	r.Header.Set("Authorization", "bearer "+secret)
	out := httptest.NewRecorder()
	if w.ServeHTTP(out, r); out.Code != http.StatusOK {
		t.Errorf("from another machine with a token: got %d", out.Code)
	}
}

// A page of another site is recognized by its host or its origin, unless a proxy forwarded its request. Programs and
// other machines may use any name.
func TestForeignPage(t *testing.T) {
	for _, c := range []struct {
		remote, host, header string
		old                  bool // HTTP/1.0
		want                 bool
	}{
		{remote: "127.0.0.1:1", host: "rebound.example", header: "Origin: http://rebound.example", want: true},
		{remote: "127.0.0.1:1", host: "localhost:4318", header: "Origin: http://evil.example", want: true},
		{remote: "[::1]:1", host: "[::1]:4318", header: "Origin: null", want: true},
		{remote: "127.0.0.1:1", host: "localhost:4318", header: "Sec-Fetch-Site: cross-site", want: true},

		{remote: "127.0.0.1:1", host: "localhost:4318", header: "Origin: http://localhost:4318"},
		{remote: "127.0.0.1:1", host: "localhost:4318", header: "Sec-Fetch-Site: same-origin"},
		{remote: "127.0.0.1:1", host: "sibyl:4318"},
		{remote: "127.0.0.6:1", host: "sibyl.monitoring.svc:4318"}, // from a sidecar
		{remote: "127.0.0.1:1", host: "host.docker.internal:4318"},
		{remote: "10.0.0.2:1", host: "sibyl.example", header: "Origin: https://shop.example"},
		{remote: "127.0.0.1:1", host: "127.0.0.1:4318", header: "Origin: https://shop.example", old: true},
	} {
		r := httptest.NewRequest(http.MethodPost, "http://x/v1/traces", nil)
		r.RemoteAddr, r.Host = c.remote, c.host
		if c.old {
			r.ProtoMinor = 0
		}
		if name, value, ok := strings.Cut(c.header, ": "); ok {
			r.Header.Set(name, value)
		}
		if got := ForeignPage(r); got != c.want {
			t.Errorf("%+v: got %t", c, got)
		}
	}
}

// Answers have ETags and security headers, and are compressed if the client accepts this.
func TestAnswerHeaders(t *testing.T) {
	w := newTroubled(t)
	out := w.get(t, "/api/v1/groups")
	tag := out.Header().Get("ETag")
	for key, want := range map[string]string{
		"Content-Type": "application/json", "X-Content-Type-Options": "nosniff",
		"Content-Security-Policy": policy, "Cache-Control": "private, no-cache",
	} {
		if got := out.Header().Get(key); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
	if again := w.get(t, "/api/v1/groups", "If-None-Match", `"x", W/`+tag); again.Code != http.StatusNotModified ||
		again.Body.Len() > 0 {
		t.Errorf("If-None-Match: got %d with %d bytes, want 304 without a body", again.Code, again.Body.Len())
	}
	if head := w.call(t, http.MethodHead, "/api/v1/groups", nil); head.Code != http.StatusOK ||
		head.Header().Get("ETag") != tag {
		t.Errorf("HEAD: %d, %s", head.Code, head.Header().Get("ETag"))
	}
	zipped := w.get(t, "/api/v1/groups", "Accept-Encoding", "br, gzip;q=0.5")
	z, err := gzip.NewReader(zipped.Body)
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := io.ReadAll(z); err != nil || string(plain) != out.Body.String() {
		t.Errorf("gzip: %d bytes, want %d: %v", len(plain), out.Body.Len(), err)
	}
	if got := w.get(t, "/api/v1/groups", "Accept-Encoding", "gzip;q=0").Header().Get("Content-Encoding"); got != "" {
		t.Errorf("Accept-Encoding: gzip;q=0: got Content-Encoding %s", got)
	}
	zippedTag := zipped.Header().Get("ETag")
	again := w.get(t, "/api/v1/groups", "Accept-Encoding", "gzip", "If-None-Match", zippedTag)
	if again.Code != http.StatusNotModified || again.Header().Get("ETag") != zippedTag || zippedTag == tag {
		t.Errorf("If-None-Match of gzip %s, plain %s: got %d with ETag %s",
			zippedTag, tag, again.Code, again.Header().Get("ETag"))
	}
	const first = "bytes=0-9"
	part := w.callUnchecked(http.MethodGet, "/api/v1/groups", "Range", first, "If-Range", tag)
	if part.Code != http.StatusPartialContent || part.Body.String() != out.Body.String()[:10] {
		t.Errorf("range: got %d, %s", part.Code, part.Body)
	}
	whole := w.callUnchecked(http.MethodGet, "/api/v1/groups", "Range", first, "If-Range", zippedTag)
	if whole.Code != http.StatusOK || whole.Body.String() != out.Body.String() {
		t.Errorf("range with the ETag of the gzip: got %d, %d bytes, want the whole answer",
			whole.Code, whole.Body.Len())
	}
	got := w.get(t, w.pathParams().Replace("/api/v1/decisions/{decision}")).Header().Get("Cache-Control")
	if !strings.Contains(got, "immutable") {
		t.Errorf("a decision: got Cache-Control: %s, want immutable", got)
	}
	w.epoch(t)
	if got := w.get(t, "/api/v1/groups").Header().Get("ETag"); got == tag {
		t.Error("the ETag is the same after another epoch")
	}
}

// Reading a list page by page gives the same result as reading it at once.
func TestPages(t *testing.T) {
	w := newTroubled(t)
	for range 3 {
		w.addDeadLetter(t)
	}
	for _, path := range []string{
		"/api/v1/webhooks/dead", "/api/v1/groups?sort=mean", "/api/v1/groups?sort=id&level=group",
		"/api/v1/tracepoints?sort=bytes", "/api/v1/tracepoints", "/api/v1/decisions", "/api/v1/annotations",
	} {
		join := "&"
		if !strings.Contains(path, "?") {
			join = "?"
		}
		type list struct {
			Items []struct{ ID, Number string }
			Next  *string `json:"next_cursor"`
		}
		all := fetch[list](t, w, path+join+"limit=1000")
		if len(all.Items) < 2 || all.Next != nil {
			t.Fatalf("%s: %d items, next %v", path, len(all.Items), all.Next)
		}
		var read []struct{ ID, Number string }
		for page := fetch[list](t, w, path+join+"limit=2"); ; {
			read = append(read, page.Items...)
			if page.Next == nil {
				break
			}
			page = fetch[list](t, w, path+join+"limit=2&cursor="+*page.Next)
		}
		if diff := cmp.Diff(all.Items, read); diff != "" {
			t.Errorf("%s (-at once +by pages):\n%s", path, diff)
		}
	}
}

// Muted problems are omitted, and overridden tracepoints change at the end of the epoch.
func TestMuteAndOverride(t *testing.T) {
	w := newTroubled(t)
	params := w.pathParams()
	w.call(t, http.MethodPut, params.Replace("/api/v1/problems/{problem}/mute"), map[string]string{"text": "known"})
	if n := len(fetch[contract.ProblemList](t, w, "/api/v1/problems").Items); n != len(w.problems())-1 {
		t.Errorf("got %d problems while one of %d is muted", n, len(w.problems()))
	}
	if n := fetch[contract.ProblemList](t, w, "/api/v1/problems?limit=1&muted=all").Total; n != len(w.problems()) {
		t.Errorf("total of all pages: got %d problems, want %d", n, len(w.problems()))
	}
	muted := fetch[contract.ProblemList](t, w, "/api/v1/problems?muted=true&explain=true")
	if len(muted.Items) != 1 || muted.Items[0].Notes.Muted == nil || muted.Items[0].Notes.Muted.By != "local" ||
		muted.Items[0].Why == nil {
		t.Errorf("muted: %+v", muted.Items)
	}
	reopened, err := cases.OpenNotes(w.dir)
	if err != nil || len(reopened.All(time.Unix(0, int64(w.now)))) != 1 {
		t.Errorf("after a restart: %v, %v", reopened, err)
	}
	if left := w.options.Notes.All(time.Unix(0, int64(w.now)).AddDate(0, 0, 1)); len(left) != 0 {
		t.Errorf("after a day: %v", left)
	}
	off := fetch[contract.TracepointList](t, w, "/api/v1/tracepoints?state=off&limit=1").Items[0]
	path := "/api/v1/tracepoints/" + off.ID
	x := decode[contract.Tracepoint](t, w.call(t, http.MethodPut, path, map[string]string{"kind": "pin"}))
	if x.State != contract.TracepointStatePending {
		t.Errorf("pinned: got state %s before the end of the epoch", x.State)
	}
	w.end(w.now.Add(10 * time.Second))
	x = fetch[contract.Tracepoint](t, w, path)
	if x.State != contract.TracepointStateOn || len(x.Leases) == 0 || x.Override == nil || !x.Leases[0].Pinned {
		t.Errorf("pinned: got %+v after the end of the epoch", x)
	}
	decisions := fetch[contract.DecisionList](t, w, "/api/v1/decisions?limit=20").Items
	enables := func(d contract.Decision) bool { return strings.Contains(d.Text, " on: "+x.Name+";") }
	if !slices.ContainsFunc(decisions, enables) {
		t.Errorf("no decision names %s: %+v", x.Name, decisions)
	}
	w.call(t, http.MethodPut, path, map[string]string{"kind": "forbid"})
	w.end(w.now.Add(10 * time.Second))
	if x := fetch[contract.Tracepoint](t, w, path); x.State != contract.TracepointStateForbidden || len(x.Leases) > 0 {
		t.Errorf("forbidden: %+v", x)
	}
	w.call(t, http.MethodDelete, path, nil)
	if x := fetch[contract.Tracepoint](t, w, path); x.State != contract.TracepointStateOff || x.Override != nil {
		t.Errorf("withdrawn: %+v", x)
	}
}

// Annotations are listed by service, kind and time, latest first, and each one is published once as an event.
func TestAnnotations(t *testing.T) {
	w := newTroubled(t)
	second := w.core.View().Annotations[1].At
	for query, want := range map[string]string{
		"": "cart 1.5, before 1.4; bank 8, before 7", "?service=cart": "cart 1.5, before 1.4", "?service=car": "",
		"?limit=1": "cart 1.5, before 1.4", "?kind=flag": "",
		fmt.Sprintf("?from=%d", second): "cart 1.5, before 1.4", fmt.Sprintf("?to=%d", second): "bank 8, before 7",
	} {
		list := fetch[contract.AnnotationList](t, w, "/api/v1/annotations"+query)
		var found []string
		for _, x := range list.Items {
			found = append(found, x.Title)
		}
		if got := strings.Join(found, "; "); got != want || (list.NextCursor != nil) != (query == "?limit=1") {
			t.Errorf("%s: %s and %v more, want %s", query, got, list.NextCursor, want)
		}
	}
	w.observeVersion("cart", "1.6", w.now)
	flag := map[string]any{"kind": "flag", "service": "cart", "text": "new-checkout on", "tags": []string{"web"}}
	w.expect(t, http.StatusOK, http.MethodPost, "/api/v1/annotations", flag)
	w.expect(t, http.StatusOK, http.MethodPost, "/api/v1/annotations", flag) // a repetition
	for _, want := range []string{"cart 1.6, before 1.5; cart: new-checkout on", ""} {
		var got []string
		for _, e := range w.publish(t) {
			if e.Type == "annotation" {
				got = append(got, e.Annotation.Title)
			}
		}
		if strings.Join(got, "; ") != want {
			t.Errorf("events: got %q, want %q", got, want)
		}
	}
	x := fetch[contract.AnnotationList](t, w, "/api/v1/annotations?kind=flag").Items[0]
	if x.Source != contract.AnnotationSourceAPI || x.Service != "cart" || !slices.Equal(x.Tags, []string{"web"}) {
		t.Errorf("%+v", x)
	}
}

// A token that is limited to services can only annotate these.
func TestAnnotateWithLimitedToken(t *testing.T) {
	w := newHarness(t)
	secret, _, err := w.tokens.Create(access.Token{Role: access.Agent, Services: []string{"cart", "pay*"}}, w.clock())
	if err != nil {
		t.Fatal(err)
	}
	for service, want := range map[string]int{"cart": 200, "payment": 200, "cart2": 403, "": 403} {
		w.expect(t, want, http.MethodPost, "/api/v1/annotations",
			map[string]string{"kind": "deploy", "service": service, "version": "2"}, "Authorization", "Bearer "+secret)
	}
}

// Agents can be listed by service, state and search text.
func TestAgents(t *testing.T) {
	w := newHarness(t)
	for query, want := range map[string]string{
		"": "b2 c1", "?service=cart": "c1", "?state=lost": "b2", "?q=web-3": "c1", "?q=1.5": "", "?limit=1": "b2",
	} {
		list := fetch[contract.AgentList](t, w, "/api/v1/agents"+query)
		var ids []string
		for _, x := range list.Items {
			ids = append(ids, x.ID)
		}
		if got := strings.Join(ids, " "); got != want || list.Total != (contract.AgentCounts{Behind: 1, Lost: 1}) ||
			(list.NextCursor != nil) != (query == "?limit=1") {
			t.Errorf("%s: %s, want %s; %+v", query, got, want, list.Total)
		}
	}
}

// Dead letters can be read, resent and dropped.
func TestDeadLetters(t *testing.T) {
	w := newTroubled(t)
	first, second := w.addDeadLetter(t), w.addDeadLetter(t)
	d := fetch[contract.DeadLetterDetail](t, w, "/api/v1/webhooks/dead/"+first)
	if d.Body != `{"a":1}` || d.Letter.Error != "404 Not Found" || d.Letter.Attempts != 1 ||
		d.Letter.Endpoint != "oncall" {
		t.Errorf("%+v", d)
	}
	w.expect(t, http.StatusNoContent, http.MethodPost, "/api/v1/webhooks/dead/"+first+"/resend", nil)
	w.expect(t, http.StatusNoContent, http.MethodDelete, "/api/v1/webhooks/dead/"+second, nil)
	if list := fetch[contract.DeadLetterList](t, w, "/api/v1/webhooks/dead"); len(list.Items) != 0 {
		t.Errorf("left: %+v", list.Items)
	}
	if waiting := w.outbox.List(false, 0, 9); len(waiting) != 1 || waiting[0].ID != d.Letter.Event {
		t.Errorf("waiting: %+v", waiting)
	}
}

// Groups are listed from the first epoch on, with all requests. Problems are only listed after the learning period.
func TestProvisional(t *testing.T) {
	w := newHarness(t)
	sent := 0
	for range w.app.Fork().Requests(w.now, w.now.Add(10*time.Second), nil) {
		sent++
	}
	w.epoch(t)
	groups := fetch[contract.GroupList](t, w, "/api/v1/groups?level=request_type")
	counted := 0
	for _, g := range groups.Items {
		counted += int(g.Count)
		if !g.Provisional || g.MeanNs == nil || g.RequestTypeName == "" {
			t.Errorf("while learning: %+v", g)
		}
	}
	if counted < sent || counted == 0 { // a trace can contain several requests
		t.Errorf("got %d requests from %d traces", counted, sent)
	}
	if list := fetch[contract.ProblemList](t, w, "/api/v1/problems"); !list.Learning || len(list.Items) > 0 {
		t.Errorf("problems while learning: %+v", list)
	}
	w.play(t, 8, w.learned)
	after := fetch[contract.GroupList](t, w, "/api/v1/groups?level=request_type")
	later := 0
	for _, g := range after.Items {
		later += int(g.Count)
	}
	if later <= counted || after.Items[0].Provisional {
		t.Errorf("got %d requests after learning, %d before", later, counted)
	}
}

// The profile is valid as pprof and as folded stacks.
func TestProfile(t *testing.T) {
	w := newTroubled(t)
	out := w.get(t, "/api/v1/profile")
	p, err := profile.Parse(out.Body)
	if err != nil || len(p.Sample) == 0 {
		t.Errorf("%v, %v", p, err)
	}
	folded := w.get(t, "/api/v1/profile?format=folded")
	for line := range strings.Lines(folded.Body.String()) {
		if at := strings.LastIndexByte(line, ' '); at < 1 ||
			strings.TrimLeft(strings.TrimSpace(line[at:]), "0123456789") != "" {
			t.Errorf("not a folded stack: %q", line)
		}
	}
}

// Folded stacks don't contain control characters, not even in the names of request types.
func TestProfileOfControlCharacters(t *testing.T) {
	w := newHarnessOf(t, sim.ThirdParty, func(o *engine.Options) {
		o.Rules.Types = []group.TypeRule{{Name: "sh\x1b[31mop\x00"}}
	})
	w.play(t, 8, w.learned)
	folded := w.get(t, "/api/v1/profile?format=folded").Body.String()
	if !strings.HasPrefix(folded, "sh·[31mop·") || strings.ContainsAny(folded, "\x1b\x00") {
		t.Errorf("got %.100q", folded)
	}
}

// /metrics includes the metrics of the service, of queues and of the API.
func TestMetrics(t *testing.T) {
	w := newTroubled(t)
	w.get(t, "/api/v1/problems")
	text := w.get(t, "/metrics").Body.String()
	for _, want := range []string{
		"sibyl_ready 1", "sibyl_problems 2", "go_goroutines",
		`sibyl_queue_length{queue="arrivals"} 1`, `sibyl_traces_closed_total{reason="complete"} 0`,
		`sibyl_size_bytes{part="journal"} 1`, `sibyl_ingest_refused_requests_total{reason="disk_full"} 0`,
		`sibyl_api_request_seconds_count{operation="listProblems"} 1`,
	} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		w.expect(t, http.StatusOK, http.MethodGet, path, nil)
	}
}

// Late decisions don't make the service unready, but it says so.
func TestLateDecisions(t *testing.T) {
	w := newHarness(t)
	if got := w.get(t, "/readyz").Body.String(); got != "ok\n" {
		t.Errorf("on time: %q", got)
	}
	for cause, want := range map[live.LagCause]string{
		live.LagSpace:     "Decisions are 2 min late: nothing is judged, because the disk is full.",
		live.LagDecisions: "Decisions are 2 min late: those of an epoch take 13 s.",
		live.LagAnalysis:  "Decisions are 2 min late: requests arrive faster than they are analysed.",
	} {
		w.lag = live.Lag{Overdue: 2 * time.Minute, Cause: cause, Work: 13 * time.Second}
		out := w.get(t, "/readyz")
		if got := out.Body.String(); out.Code != http.StatusOK || got != "ok\n"+want+"\n" {
			t.Errorf("readyz: %d %q", out.Code, got)
		}
		s := decode[contract.Status](t, w.get(t, "/api/v1/status"))
		if e := s.Epoch; e.Warning != want || e.Remedy == "" || e.OverdueNs != w.lag.Overdue.Nanoseconds() {
			t.Errorf("status: %+v", e)
		}
	}
	if text := w.get(t, "/metrics").Body.String(); !strings.Contains(text, "\nsibyl_epoch_overdue_seconds 120\n") {
		t.Error("the metric is not 120")
	}
}

// The answer to any query conforms to the contract and isn't an internal error.
func FuzzQueries(f *testing.F) {
	w := newTroubled(f)
	paths := []string{
		"problems", "groups", "tracepoints", "trees", "decisions", "investigations", "exemplars", "profile",
		"groups/{group}/compare", "trees/{request_type}",
	}
	for i, query := range []string{
		"limit=3", "cursor=e30", "sort=id&q=%00", "state=on", "q=x&limit=1000", "from=1&to=2", "state=gone", "group=0",
		"format=folded", "slowest=0.5", "from=2026-01-01T00:00:00.5%2B01:00",
	} {
		f.Add(i, query)
	}
	params := w.pathParams()
	f.Fuzz(func(t *testing.T, n int, query string) {
		path := params.Replace(paths[uint(n)%uint(len(paths))])
		r := httptest.NewRequest(http.MethodGet, "http://localhost/api/v1/"+path, nil)
		r.URL.RawQuery = query
		r.RemoteAddr = "127.0.0.1:1"
		out := httptest.NewRecorder()
		w.ServeHTTP(out, r)
		if out.Code >= 500 {
			t.Errorf("%s?%s: %d: %s", path, query, out.Code, out.Body)
		}
		w.check(t, r, out)
	})
}

// A comparison by duration puts every sampled request on one side according to its duration.
func TestCompareDurations(t *testing.T) {
	w := newTroubled(t)
	path := w.pathParams().Replace("/api/v1/groups/{group}/compare")
	all := fetch[contract.Comparison](t, w, path+"?longer_ns=0").A
	if all.Requests == 0 || all.MeanNs == nil {
		t.Fatalf("%+v", all)
	}
	middle := int64(*all.MeanNs)
	slow := fetch[contract.Comparison](t, w, fmt.Sprintf("%s?longer_ns=%d", path, middle))
	fast := fetch[contract.Comparison](t, w, fmt.Sprintf("%s?shorter_ns=%d", path, middle))
	if slow.A.Requests+slow.B.Requests != all.Requests || slow.A.Requests != fast.B.Requests ||
		!(*slow.A.MeanNs >= *all.MeanNs && *fast.A.MeanNs < *all.MeanNs) {
		t.Errorf("of %+v: %+v and %+v, %+v", all, slow.A, slow.B, fast.A)
	}
	if slow.A.From == nil || slow.A.To == nil || !slow.A.From.Before(*slow.A.To) || all.From.After(*slow.A.From) ||
		all.To.Before(*slow.A.To) {
		t.Errorf("%v to %v of the sample from %v to %v", slow.A.From, slow.A.To, all.From, all.To)
	}
}
