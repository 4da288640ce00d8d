package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/audit"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/login"
)

// change is an operation that changes something, with an example.
type change struct {
	of                *harness
	method, operation string
	path              string // below prefix
	on                string // its resource
}

// changes returns all operations of the contract that change something, on existing resources. Those that delete come
// last.
func changes(t *testing.T) (all []change) {
	t.Helper()
	w, incident := newTroubled(t), newIncident(t)
	params := w.pathParams()
	for _, method := range []string{http.MethodPut, http.MethodPost, http.MethodPatch, http.MethodDelete} {
		for pattern, item := range w.doc.Paths.Map() {
			op := item.GetOperation(method)
			if op == nil || isReport(op) || op.Extensions["x-role"] == "viewer" { // a report or a preview
				continue
			}
			if _, decided := op.Extensions["x-audit"]; op.RequestBody != nil && !decided {
				t.Errorf("%s: x-audit doesn't say which fields of the body the audit log records", op.OperationID)
			}
			path := params.Replace(pattern)
			c := change{of: w, method: method, operation: op.OperationID}
			if strings.Contains(path, "{letter}") {
				path = strings.ReplaceAll(path, "{letter}", w.addDeadLetter(t))
			}
			if strings.HasPrefix(pattern, "/incidents") {
				c.of, path = incident, incident.incidentPath(pattern)
			}
			c.path = path
			for i, part := range strings.Split(pattern, "/") {
				if strings.HasPrefix(part, "{") {
					c.on = strings.TrimPrefix(c.on+"/"+strings.Split(path, "/")[i], "/")
				}
			}
			all = append(all, c)
		}
	}
	return all
}

// audited returns the audit log, latest entry first, and checks its answers against the contract.
func (w *harness) audited(t *testing.T, query string, headers ...string) (items []contract.AuditEntry, next *string) {
	t.Helper()
	out := w.get(t, prefix+"/audit?"+query, headers...)
	var list contract.AuditList
	if err := json.Unmarshal(out.Body.Bytes(), &list); err != nil || out.Code != http.StatusOK {
		t.Fatalf("%d: %s: %v", out.Code, out.Body, err)
	}
	return list.Items, list.NextCursor
}

// auditFiles returns the contents of the audit log's files.
func (w *harness) auditFiles(t *testing.T) (all string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(w.dir, audit.DirName, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all += string(text)
	}
	return all
}

// Every operation that changes something has an entry with its caller, address, resource and outcome, which is on disk
// before the answer. Texts that people wrote and addresses of pages aren't in it.
func TestEveryChangeIsAudited(t *testing.T) {
	all := changes(t)
	if len(all) < 18 {
		t.Errorf("found %d changes, want at least 18", len(all))
	}
	for _, c := range all {
		out := c.of.call(t, c.method, prefix+c.path, bodies[c.operation])
		items, _ := c.of.audited(t, "limit=1")
		want := []contract.AuditEntry{{
			At:        c.of.clock().UTC(),
			Who:       "local",
			Role:      "admin",
			Via:       access.ViaLocal,
			From:      "127.0.0.1",
			Operation: c.operation,
			On:        c.on,
			Status:    out.Code,
		}}
		if len(items) == 1 {
			want[0].ID, want[0].Detail = items[0].ID, items[0].Detail
		}
		if diff := cmp.Diff(want, items); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.operation, diff)
		}
		for _, secret := range []string{"on it", "/services/cart"} {
			if strings.Contains(c.of.auditFiles(t), secret) {
				t.Fatalf("%s: %q is in the audit log", c.operation, secret)
			}
		}
	}
}

// Some fields of a body are recorded. Of the addresses that proxies name, the last proxy's is.
func TestAuditDetail(t *testing.T) {
	w := newTroubled(t)
	path := w.pathParams().Replace(prefix + "/tracepoints/{tracepoint}")
	secret := w.secrets(t)[access.Operator]
	body := map[string]any{"kind": "pin", "until": "2023-11-15T00:00:00Z", "force": false}
	w.expect(t, http.StatusOK, http.MethodPut, path, body,
		"Authorization", "Bearer "+secret, "X-Forwarded-For", "198.51.100.7, 192.0.2.9")
	w.expect(t, http.StatusForbidden, http.MethodPut, path, map[string]any{"kind": "enable", "force": true},
		"Authorization", "Bearer "+secret, "X-Real-IP", "not an address")
	w.expect(t, http.StatusCreated, http.MethodPost, prefix+"/views", bodies["saveView"],
		"Authorization", "Bearer "+secret)
	var got []string
	items, _ := w.audited(t, "who=operator", "Authorization", "Bearer "+w.secrets(t)[access.Admin])
	for _, e := range items {
		if len(e.Subject) != 8 || strings.Contains(secret, e.Subject) {
			t.Errorf("%q is not the ID of the token", e.Subject)
		}
		got = append(got, strings.Join([]string{e.Role, e.Via, e.ForwardedFor, e.Operation, e.Detail}, ", "))
	}
	want := []string{
		"operator, token, , saveView, name=Cart",
		"operator, token, , overrideTracepoint, kind=enable force=true",
		"operator, token, 192.0.2.9, overrideTracepoint, kind=pin force=false until=2023-11-15T00:00:00Z",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if strings.Contains(w.auditFiles(t), secret) {
		t.Error("the audit log contains a token")
	}
}

// Refused changes, and readings of the audit log, are counted by caller, address, operation and minute.
func TestRefusedChangesAreCounted(t *testing.T) {
	const times = 3
	for _, c := range changes(t) {
		secrets := c.of.secrets(t)
		admin := "Bearer " + secrets[access.Admin]
		c.of.options.Audit.Flush() // what the previous iteration has left
		c.of.audited(t, "limit=1", "Authorization", admin)
		for range times {
			for _, role := range []access.Role{"", access.Viewer} {
				c.of.call(t, c.method, prefix+c.path, bodies[c.operation], "Authorization", "Bearer "+secrets[role])
			}
		}
		c.of.call(t, http.MethodGet, prefix+"/audit", nil, "Authorization", "Bearer "+secrets[access.Viewer])
		c.of.call(t, http.MethodGet, prefix+"/plan", nil, "Authorization", "Bearer "+secrets[access.Agent])
		c.of.options.Audit.Flush()
		items, _ := c.of.audited(t, "limit=4", "Authorization", admin)
		got := make(map[contract.AuditEntry]bool)
		for _, e := range items {
			if e.ID == "" || !e.At.Equal(c.of.clock()) || e.From != "127.0.0.1" {
				t.Errorf("%s: %+v", c.operation, e)
			}
			got[contract.AuditEntry{
				Who:       e.Who,
				Role:      e.Role,
				Operation: e.Operation,
				Status:    e.Status,
				Count:     e.Count,
			}] = true
		}
		want := map[contract.AuditEntry]bool{
			{Operation: c.operation, Status: 401, Count: times}:                                true,
			{Who: "viewer", Role: "viewer", Operation: c.operation, Status: 403, Count: times}: true,
			{Who: "viewer", Role: "viewer", Operation: "listAudit", Status: 403, Count: 1}:     true,
			{Who: "admin", Role: "admin", Operation: "listAudit", Status: 200, Count: 1}:       true,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.operation, diff)
		}
	}
}

// Changes that clients on other machines attempt while there is no token are counted, too.
func TestRefusedRemoteChanges(t *testing.T) {
	w := newHarness(t)
	for _, path := range []string{prefix + "/backup", prefix + "/nowhere", "/"} {
		r := httptest.NewRequest(http.MethodPost, "http://localhost"+path, nil)
		r.RemoteAddr = "192.0.2.1:4711"
		out := httptest.NewRecorder()
		w.ServeHTTP(out, r)
		if out.Code != http.StatusForbidden {
			t.Errorf("%s: %d", path, out.Code)
		}
	}
	w.options.Audit.Flush()
	items, _ := w.audited(t, "")
	if len(items) != 1 || items[0].Operation != "backUp" || items[0].From != "192.0.2.1" || items[0].Who != "" ||
		items[0].Status != http.StatusForbidden || items[0].Count != 1 {
		t.Errorf("got %+v", items)
	}
}

// While the audit log can't be written, changes are refused, except for those that free space.
func TestNothingChangesUnrecorded(t *testing.T) {
	for _, c := range changes(t) {
		dir := filepath.Join(c.of.dir, audit.DirName)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir, nil, 0o600); err != nil { // a file in place of the directory
			t.Fatal(err)
		}
		out := c.of.call(t, c.method, prefix+c.path, bodies[c.operation])
		if freesSpace[c.operation] {
			if out.Code >= 300 {
				t.Errorf("%s: %d: %s", c.operation, out.Code, out.Body)
			}
			continue
		}
		if out.Code != http.StatusServiceUnavailable || !strings.Contains(out.Body.String(), "nothing is changed") {
			t.Errorf("%s: %d: %s", c.operation, out.Code, out.Body)
		}
	}
	err := notRecorded(&os.PathError{Op: "write", Err: unix.ENOSPC})
	if !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("on a full disk: %v", err)
	}
}

// The list has pages, and only administrators can read it.
func TestAuditPages(t *testing.T) {
	w := newHarness(t)
	for range 5 {
		w.expect(t, http.StatusOK, http.MethodPost, prefix+"/backup", nil)
	}
	seen := make(map[string]bool)
	for query := "limit=2&operation=backUp"; ; {
		items, next := w.audited(t, query)
		for _, e := range items {
			seen[e.ID] = true
		}
		if next == nil {
			break
		}
		query = "limit=2&operation=backUp&cursor=" + *next
	}
	if len(seen) != 5 {
		t.Errorf("the pages have %d entries, want 5", len(seen))
	}
	w.expect(t, http.StatusBadRequest, http.MethodGet, prefix+"/audit?cursor=abc", nil)
	w.expect(t, http.StatusBadRequest, http.MethodGet, prefix+"/audit?from=2&to=1", nil)
	w.expect(t, http.StatusForbidden, http.MethodGet, prefix+"/audit", nil,
		"Authorization", "Bearer "+w.secrets(t)[access.Operator])
}

// Log-ins are recorded with the person, and log-outs and log-ins that fail are counted. If they can't be recorded,
// nobody gets a session, but people can still end theirs.
func TestLoginsAreAudited(t *testing.T) {
	w := newLoginHarness(t)
	ann := w.person(t, "ops")
	w.ask(t, ann, http.MethodPost, prefix+"/views", "Origin", w.site)
	w.ask(t, ann, http.MethodPost, login.EndPath, "Origin", w.site)
	w.ask(t, ann, http.MethodPost, login.EndPath, "Origin", w.site) // changes nothing
	w.ask(t, http.DefaultClient, http.MethodGet, login.CallbackPath+"?state=x&code=y")
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	w.provider.QueueUser(w.user("strangers"))
	stranger := &http.Client{Jar: jar}
	if status, _ := w.ask(t, stranger, http.MethodGet, login.StartPath); status != http.StatusForbidden {
		t.Errorf("without a role: %d", status)
	}
	handle := w.startDevice(t)
	w.ask(t, http.DefaultClient, http.MethodPost, login.DeviceTokenPath, "Authorization", "Bearer "+handle) // waits
	if status, token := w.endDevice(t, handle, "staff"); status != http.StatusOK || token == "" {
		t.Errorf("log-in of a program: %d", status)
	}
	w.ask(t, http.DefaultClient, http.MethodPost, login.DeviceTokenPath, "Authorization", "Bearer "+handle) // has ended
	w.options.Audit.Flush()
	secret := w.secrets(t)[access.Admin]
	items, _ := w.audited(t, "", "Authorization", "Bearer "+secret)
	var got []string
	for _, e := range items {
		who := strings.Join([]string{e.Who, e.Subject, e.Role, e.Via}, " ")
		got = append(got, fmt.Sprint(e.Operation, " by ", who, ": ", e.Status, " ", e.Count))
		if e.Subject != "" && e.Issuer != w.provider.Issuer() {
			t.Errorf("the subject %s is of the issuer %q", e.Subject, e.Issuer)
		}
	}
	slices.Sort(got)
	want := []string{
		"login by    : 400 1",
		"login by    : 404 1",
		"login by ann@example.com 1  login: 403 1",
		"login by ann@example.com 1 operator login: 303 0",
		"login by ann@example.com 1 viewer login: 200 0",
		"logout by ann@example.com 1 operator login: 200 1",
		"saveView by ann@example.com 1 operator login: 201 0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	ann = w.person(t, "ops")
	dir := filepath.Join(w.dir, audit.DirName)
	if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	w.provider.QueueUser(w.user("ops"))
	if status, _ := w.ask(t, stranger, http.MethodGet, login.StartPath); status != http.StatusServiceUnavailable {
		t.Errorf("log-in that can't be recorded: %d", status)
	}
	status, token := w.endDevice(t, w.startDevice(t), "ops")
	if status != http.StatusServiceUnavailable || token != "" {
		t.Errorf("log-in of a program that can't be recorded: %d, %q", status, token)
	}
	if status, _ := w.ask(t, stranger, http.MethodGet, prefix+"/plan"); status != http.StatusUnauthorized {
		t.Errorf("reading after that: %d", status)
	}
	w.ask(t, ann, http.MethodPost, login.EndPath, "Origin", w.site)
	if status, _ := w.ask(t, ann, http.MethodGet, prefix+"/plan"); status != http.StatusUnauthorized {
		t.Errorf("reading after a log-out: %d", status)
	}
}
