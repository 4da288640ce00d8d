package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-chi/chi/v5"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/audit"
	"github.com/sibyl-trace/sibyl/internal/durable"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// isReport reports whether op is meant for senders and pipelines rather than people. The data that they send isn't
// audited, just as traces aren't: otherwise, a sender could displace the records of changes made by people.
func isReport(op *openapi3.Operation) bool { return op.Extensions["x-role"] == string(access.Agent) }

// freesSpace lists the operations that are allowed even if the audit log can't be written because the disk is full.
var freesSpace = map[string]bool{"dropDeadLetter": true}

type attemptKey struct{}

// attempt returns the audit entry of a request, or nil if the request needs no entry.
func attempt(r *http.Request) *audit.Entry {
	e, _ := r.Context().Value(attemptKey{}).(*audit.Entry)
	return e
}

// countAttempts creates the audit entries of all changes, and of all operations that only admins may use. It counts the
// requests that changed nothing, either because they only read or because their caller was refused; record writes the
// entries of all others.
func (a *API) countAttempts(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		op := a.requested(r)
		if op == nil || !needsEntry(op, r) {
			next.ServeHTTP(w, r)
			return
		}
		e := newEntry(op.OperationID, r)
		answer := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(answer, r.WithContext(context.WithValue(r.Context(), attemptKey{}, e)))
		refused := answer.status == http.StatusUnauthorized || answer.status == http.StatusForbidden
		if recorded := e.ID != ""; !recorded && (refused || reads(r)) {
			e.Status = answer.status
			a.options.Audit.Count(*e)
		}
	})
}

// needsEntry reports whether a request for op belongs in the audit log, because it asks for a change or only admins may
// use op. Operations that viewers may use change nothing, even if the method is POST.
func needsEntry(op *openapi3.Operation, r *http.Request) bool {
	role := op.Extensions["x-role"]
	return role != string(access.Viewer) && (!reads(r) || role == string(access.Admin))
}

// newEntry returns the audit entry of a request for an operation, without its caller.
func newEntry(operation string, r *http.Request) *audit.Entry {
	e := &audit.Entry{Operation: operation, From: r.RemoteAddr}
	if at := access.From(r); at.IsValid() {
		e.From = at.String()
	}
	if at := access.ForwardedFor(r); at.IsValid() {
		e.ForwardedFor = at.String()
	}
	return e
}

// setCaller sets the fields of e that describe the caller.
func setCaller(e *audit.Entry, who access.Principal) {
	e.Who, e.Role, e.Via = who.Name, string(who.Role), who.Via
	e.Subject, e.Issuer = cmp.Or(who.Subject, who.Token), who.Issuer
}

// requested returns the contract's operation for a request that hasn't been routed yet, or nil if the contract has no
// such operation.
func (a *API) requested(r *http.Request) *openapi3.Operation {
	method := methodOf(r)
	op, _, _ := a.operationAt(a.router.Find(chi.NewRouteContext(), method, cmp.Or(r.URL.RawPath, r.URL.Path)), method)
	return op
}

// record writes the audit entry of a change before the change, and the outcome before the response. If the entry can't
// be written, it refuses the change.
func (a *API) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e, op := attempt(r), (*openapi3.Operation)(nil)
		if e != nil {
			op, _, _ = a.operation(r)
		}
		if op == nil || reads(r) || isReport(op) {
			next.ServeHTTP(w, r)
			return
		}
		var err error
		if e.Detail, err = auditDetail(op, r); err != nil {
			a.fail(w, r, invalid(err))
			return
		}
		e.On = resource(r)
		e.ID, err = a.options.Audit.Start(*e)
		if err != nil && !freesSpace[op.OperationID] {
			a.fail(w, r, notRecorded(err))
			return
		}
		answer := &statusRecorder{ResponseWriter: w, status: http.StatusInternalServerError} // if next panics
		defer func() { a.options.Audit.Finish(e.ID, answer.status, "") }()
		next.ServeHTTP(answer, r)
		if a.options.Changed != nil { // the client gets the response, which is short, when this handler returns
			a.options.Changed(r.Context())
		}
	})
}

// recordLogin records log-ins, and counts failed ones. A person is logged in only if the entry can be written.
// recordLogin ignores responses with status 202, which mean that the person hasn't confirmed the log-in yet.
func (a *API) recordLogin(logIn func(http.ResponseWriter, *http.Request) access.Principal) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer := &bufferedResponse{header: w.Header().Clone()}
		e := newEntry("login", r)
		setCaller(e, logIn(answer, r))
		e.Status = answer.status
		switch {
		case answer.status >= http.StatusBadRequest:
			a.options.Audit.Count(*e)
		case answer.status != http.StatusAccepted:
			if err := a.options.Audit.LogIn(*e); err != nil {
				a.fail(w, r, notRecorded(err)) // without the cookie
				return
			}
		}
		maps.Copy(w.Header(), answer.header)
		w.WriteHeader(answer.status)
		_, _ = w.Write(answer.body.Bytes()) // fails if the client has left
	}
}

// countLogout counts the log-outs of people who are logged in. It doesn't record them individually: a session stays
// valid after a log-out, so anybody with a session could repeat log-outs until their records displace the records of
// all changes.
func (a *API) countLogout(logOut http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
		logOut(answer, r)
		if who, err := a.options.Login.Person(r); err == nil {
			e := newEntry("logout", r)
			setCaller(e, who)
			e.Status = answer.status
			a.options.Audit.Count(*e)
		}
	}
}

// notRecorded returns the refusal for a change whose audit entry couldn't be written because of err.
func notRecorded(err error) error {
	detail, hint := "the audit log cannot be written, so nothing is changed", "Sibyl's log has the details"
	if durable.Full(err) {
		detail, hint = detail+": the disk is full", "free space on the disk of the data directory"
	}
	return refusal.New(refusal.Overloaded, detail, hint).Later(2 * time.Second)
}

// resource returns the path parameters of a request, separated by slashes.
func resource(r *http.Request) string {
	var values []string
	params := chi.RouteContext(r.Context()).URLParams
	for i, key := range params.Keys {
		if key != "*" {
			values = append(values, params.Values[i])
		}
	}
	return strings.Join(values, "/")
}

// auditDetail returns the fields of r's body that the contract lists for the audit log. It omits other fields, which
// may contain secrets.
func auditDetail(op *openapi3.Operation, r *http.Request) (string, error) {
	names, _ := op.Extensions["x-audit"].([]any)
	if len(names) == 0 {
		return "", nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return "", err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var fields map[string]any
	if err := json.Unmarshal(body, &fields); err != nil && len(body) > 0 {
		return "", errors.New("a valid body is an object") // validate has checked it
	}
	var parts []string
	for _, name := range names {
		if value, some := fieldAt(fields, fmt.Sprint(name)); some {
			parts = append(parts, fmt.Sprintf("%v=%v", name, value))
		}
	}
	return strings.Join(parts, " "), nil
}

// fieldAt returns the value at a dotted path, like event.agent.summary or actions.0.value, and whether it exists.
func fieldAt(value any, path string) (any, bool) {
	for name := range strings.SplitSeq(path, ".") {
		some := false
		switch x := value.(type) {
		case map[string]any:
			value, some = x[name]
		case []any:
			i, err := strconv.Atoi(name)
			if some = err == nil && i < len(x); some {
				value = x[i]
			}
		}
		if !some {
			return nil, false
		}
	}
	return value, true
}
