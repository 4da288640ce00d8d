package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/client"
)

// answering serves golden files of the API, to clients with the token.
func answering(t *testing.T, token string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := map[string]string{
			"/api/v1/incidents": "listIncidents.json", "/api/v1/incidents/101885cb3de75177": "getIncident.json",
		}[r.URL.Path]
		if r.Header.Get("Authorization") != "Bearer "+token {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w,
				`{"type": "about:blank", "title": "Unauthorized", "status": 401, "detail": "a token is required"}`)
			return
		}
		data, err := os.ReadFile("../../api/testdata/" + name)
		if err != nil {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(data)
	}))
	t.Cleanup(s.Close)
	return s
}

// connectAssistant connects an assistant to an MCP server for the service that api asks.
func connectAssistant(t *testing.T, api *client.Client, steer bool) *mcp.ClientSession {
	t.Helper()
	here, there := mcp.NewInMemoryTransports()
	server, err := newMCP(api, steer).Connect(t.Context(), there, nil)
	if err != nil {
		t.Fatal(err)
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), here, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = session.Close()
		_ = server.Close()
	})
	return session
}

// call calls tool and returns the text of its answer, and whether it is an error.
func call(t *testing.T, session *mcp.ClientSession, tool string, arguments any) (text string, failed bool) {
	t.Helper()
	r, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Content {
		if x, ok := c.(*mcp.TextContent); ok {
			text += x.Text
		}
	}
	return text, r.IsError
}

// TestMCP: an assistant lists tools, all of them read-only, and reads incidents with their evidence.
func TestMCP(t *testing.T) {
	api, err := client.New(answering(t, "secret").URL, "secret")
	if err != nil {
		t.Fatal(err)
	}
	session := connectAssistant(t, api, false)
	tools, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range tools.Tools {
		names = append(names, tool.Name)
		if !tool.Annotations.ReadOnlyHint {
			t.Errorf("%s is not read-only", tool.Name)
		}
	}
	want := []string{
		"get_health", "get_incident", "get_problem", "get_trace", "list_incidents", "list_objectives",
		"list_problems", "list_services",
	}
	if !slices.Equal(names, want) {
		t.Errorf("tools %q, want %q", names, want)
	}
	if text, failed := call(t, session, "list_incidents", map[string]any{"state": "all"}); failed ||
		!strings.Contains(text, "101885cb") {
		t.Errorf("list_incidents: %s", text)
	}
	if text, failed := call(t, session, "get_incident", map[string]any{"id": "101885cb"}); failed ||
		!strings.Contains(text, "Suspects") || !strings.Contains(text, "Timeline") {
		t.Errorf("get_incident: %s", text)
	}
	if text, failed := call(t, session, "get_trace", map[string]any{"id": "1"}); !failed {
		t.Errorf("get_trace of an unknown trace: %s", text)
	}
}

// TestMCPOverHTTP: each request has the rights of its token.
func TestMCPOverHTTP(t *testing.T) {
	l := startService(t)
	viewer := l.newToken(access.Viewer)
	handler, err := mcpHandler(l.api, true)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(handler)
	defer s.Close()
	for _, token := range []string{viewer, "", "other"} {
		h := &http.Client{Transport: bearer(token)}
		transport := &mcp.StreamableClientTransport{Endpoint: s.URL + "/mcp", HTTPClient: h, DisableStandaloneSSE: true}
		assistant := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		session, err := assistant.Connect(t.Context(), transport, nil)
		if (err == nil) != (token == viewer) {
			t.Errorf("token %q: %v", token, err)
		}
		if err != nil {
			continue
		}
		if text, failed := call(t, session, "list_incidents", nil); failed || !strings.Contains(text, "learning") {
			t.Errorf("%s", text)
		}
		steer := map[string]any{"id": strings.Repeat("0", 16), "action": "start"}
		text, failed := call(t, session, "steer_search", steer)
		if !failed || !strings.Contains(text, "role operator") {
			t.Errorf("a viewer steers: %s", text)
		}
		if err := session.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestMCPSteers: with --steer, an assistant starts and ends searches and overrides tracepoints.
func TestMCPSteers(t *testing.T) {
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, r.Method+" "+strings.TrimPrefix(r.URL.Path, "/api/v1/")+" "+string(body))
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_, _ = io.WriteString(w, `{"kind": "start", "by": "bot", "until": "2026-11-30T12:00:00Z", "reason": ""}`)
	}))
	defer s.Close()
	api, err := client.New(s.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	session := connectAssistant(t, api, true)
	const incident, point = "101885cb3de75177", "00000000000000ab"
	for _, x := range []struct {
		tool, key, id, action string
		want                  string // "": refused
	}{
		{
			"steer_search", "id", incident, "start",
			`PUT investigations/` + incident + ` {"kind":"start","reason":"why"}`,
		},
		{"steer_search", "id", incident, "withdraw", `DELETE investigations/` + incident + ` `},
		{"steer_search", "id", incident, "pin", ""},
		{
			"override_tracepoint", "tracepoint", point, "forbid",
			`PUT tracepoints/` + point + ` {"kind":"forbid","until":"`,
		},
		{"override_tracepoint", "tracepoint", point, "pin", ""},
	} {
		got = nil
		arguments := map[string]any{x.key: x.id, "action": x.action}
		if x.tool == "steer_search" {
			arguments["reason"] = "why"
		}
		text, failed := call(t, session, x.tool, arguments)
		sent := strings.Join(got, "\n")
		if failed != (x.want == "") || (sent == "") != failed || !strings.HasPrefix(sent, x.want) {
			t.Errorf("%v: %s; sent %q", x, text, sent)
		}
	}
}

// TestMCPSlowClients: a connection closes if its request arrives slowly, or if no next one arrives.
func TestMCPSlowClients(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := mcpServer(http.NotFoundHandler(), 100*time.Millisecond)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	defer func() { _, _ = s.Close(), <-served }()
	const header = "POST /mcp HTTP/1.1\r\nHost: localhost\r\n"
	for _, sent := range []string{
		"", header, header + "Content-Length: 10\r\n\r\n{", header + "Content-Length: 0\r\n\r\n",
	} {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp4", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.WriteString(c, sent)
		err = errors.Join(err, c.SetReadDeadline(time.Now().Add(time.Minute)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q: still open after a minute", sent)
		}
		_ = c.Close()
	}
}

// bearer is a transport that adds a token.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+string(b))
	}
	return http.DefaultTransport.RoundTrip(r)
}

// TestMCPAdmits: the service decides about every request. Without a token, only local clients get in, even if the
// service starts later. With tokens, a token of a viewer is needed.
func TestMCPAdmits(t *testing.T) {
	reserved, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := reserved.Addr().String()
	if err := reserved.Close(); err != nil {
		t.Fatal(err)
	}
	handler, err := mcpHandler("http://"+address, false)
	if err != nil {
		t.Fatal(err)
	}
	const near, far, own = "127.0.0.1:40000", "203.0.113.5:40000", "localhost:8322"
	check := func(code int, answer, from, host string, header ...string) {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", strings.NewReader(
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_incidents","arguments":{}}}`))
		r.RemoteAddr, r.Host = from, host
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, r); w.Code != code || !strings.Contains(w.Body.String(), answer) {
			t.Errorf("from %s for %s, %q: %d %s, want %d %q", from, host, header, w.Code, w.Body, code, answer)
		}
	}
	check(http.StatusServiceUnavailable, "no service", near, own)
	check(http.StatusServiceUnavailable, "no service", far, "mcp.example", "Authorization", "Bearer any")

	l := startServiceAt(t, address)
	const create = "create one with sibyl token create"
	check(http.StatusOK, "learning", near, own)
	check(http.StatusOK, "learning", near, own, "Origin", "http://"+own)
	check(http.StatusForbidden, create, far, own)
	check(http.StatusForbidden, create, far, own, "Authorization", "Bearer any")
	check(http.StatusForbidden, create, near, "rebound.example")
	check(http.StatusForbidden, create, near, own, "X-Forwarded-For", "203.0.113.5")
	check(http.StatusForbidden, "other sites", near, own, "Origin", "http://evil.example")

	viewer, agent := "Bearer "+l.newToken(access.Viewer), "Bearer "+l.newToken(access.Agent)
	check(http.StatusUnauthorized, "needs a token", near, own)
	check(http.StatusUnauthorized, "needs a token", far, own)
	check(http.StatusUnauthorized, "is not known", far, own, "Authorization", "Bearer any")
	check(http.StatusForbidden, "role viewer", far, own, "Authorization", agent)
	check(http.StatusOK, "learning", far, own, "Authorization", viewer)
	check(http.StatusOK, "learning", near, "mcp.example", "Authorization", viewer, "X-Forwarded-For", "203.0.113.5")
	check(http.StatusForbidden, "other sites", far, own, "Authorization", viewer, "Origin", "http://evil.example")
	if r := sibyl(t, "", "mcp", "--http", "nowhere"); r.code != 2 || !strings.Contains(r.err, "--http") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
}
