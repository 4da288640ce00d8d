package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

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
	here, there := mcp.NewInMemoryTransports()
	server, err := newMCP(api).Connect(t.Context(), there, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), here, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Close() }()
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
	handler, err := mcpHandler(answering(t, "secret").URL)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(handler)
	defer s.Close()
	for token, want := range map[string]string{"secret": "101885cb", "": "token", "other": "token"} {
		h := &http.Client{Transport: bearer(token)}
		transport := &mcp.StreamableClientTransport{Endpoint: s.URL + "/mcp", HTTPClient: h, DisableStandaloneSSE: true}
		assistant := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		session, err := assistant.Connect(t.Context(), transport, nil)
		if err != nil {
			t.Fatal(err)
		}
		if text, failed := call(t, session, "list_incidents", nil); failed != (token != "secret") ||
			!strings.Contains(text, want) {
			t.Errorf("token %q: %s", token, text)
		}
		if err := session.Close(); err != nil {
			t.Error(err)
		}
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

// TestMCPExposed: an address that other machines can reach is refused while the service needs no token.
func TestMCPExposed(t *testing.T) {
	open := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"version": "1"}`)
	}))
	defer open.Close()
	if err := guardMCP(t.Context(), open.URL, "0.0.0.0:0"); err == nil ||
		!strings.Contains(err.Error(), "sibyl token create") {
		t.Errorf("a service without tokens: %v", err)
	}
	if err := guardMCP(t.Context(), open.URL, "127.0.0.1:0"); err != nil {
		t.Error(err)
	}
	if err := guardMCP(t.Context(), answering(t, "secret").URL, "0.0.0.0:0"); err != nil {
		t.Error(err)
	}
	if r := sibyl(t, "", "mcp", "--http", "nowhere"); r.code != 2 || !strings.Contains(r.err, "--http") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
}
