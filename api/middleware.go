package api

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	_ "embed" // the contract
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/go-chi/chi/v5"
	otelattr "go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/login"
	"github.com/sibyl-trace/sibyl/api/operating"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

//go:generate gzip -9 --no-name --keep --force openapi.yaml
//go:embed openapi.yaml.gz
var packedContract []byte

// contractText returns openapi.yaml.
func contractText() ([]byte, error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(packedContract))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(unpacked)
}

// loadContract parses the contract once. The result is shared and must not be modified.
var loadContract = sync.OnceValues(func() (*openapi3.T, error) {
	text, err := contractText()
	if err != nil {
		return nil, fmt.Errorf("openapi.yaml.gz: %w", err)
	}
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	return doc, nil
})

// policy is the Content-Security-Policy of responses. If a browser shows a response as a page, the page can't do
// anything.
const policy = "default-src 'none'; frame-ancestors 'none'"

// headAsGet routes HEAD requests to the handlers for GET. chi's middleware package has an equivalent, but also links
// net/http/pprof.
func headAsGet(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			chi.RouteContext(r.Context()).RouteMethod = http.MethodGet
		}
		next.ServeHTTP(w, r)
	})
}

// harden sets the security headers of every response, limits the size of the request body, and responds with an error
// if a handler panics.
func (a *API) harden(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		most := int64(maxBody)
		if r.ContentLength > maxBody { // of unknown size they stay small: limit counts large ones in advance
			if op := a.requested(r); op != nil && op.OperationID == annotateFromGitHub {
				most = maxLargeBody
			}
		}
		r.Body = http.MaxBytesReader(w, r.Body, most)
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p) // for the server, which closes the connection
			}
			a.fail(w, r, fmt.Errorf("panic: %v", p))
		}()
		next.ServeHTTP(w, r)
	})
}

// requireLocal refuses callers on other machines as long as no token exists and log-in isn't configured.
func (a *API) requireLocal(next http.Handler) http.Handler {
	if a.options.Login != nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, some, err := a.tokens.Find("", a.options.Clock())
		switch {
		case err != nil:
			a.fail(w, r, err)
		case some:
			next.ServeHTTP(w, r)
		default:
			if err := Local(r, a.options.Hosts...); err != nil {
				a.fail(w, r, refusal.New(refusal.Forbidden, "until a token exists, "+err.Error(),
					"create one with sibyl token create"))
				return
			}
			next.ServeHTTP(w, r)
		}
	})
}

// Errors returned by Local.
var (
	errRemote    = errors.New("only clients on the same machine are served")
	errForwarded = errors.New("requests that a proxy forwards, and all by HTTP/1.0, which nginx uses for that, " +
		"are refused: they may come from other machines")
	errHost = errors.New("requests must address this machine by a loopback address or as localhost")
)

// Local returns an error unless a request comes from a client on this machine. It detects requests from other machines,
// whether they come directly or through a proxy that can be recognized. It also detects requests of pages of sites
// whose name was resolved to this machine (DNS rebinding): such a page uses its own host name, which is neither a
// loopback name nor in hosts. The error can be shown to clients.
func Local(r *http.Request, hosts ...string) error {
	switch {
	case !access.From(r).IsLoopback():
		return errRemote
	case forwarded(r):
		return errForwarded
	case !ownHost(r.Host) && !slices.Contains(hosts, hostname(r.Host)):
		return errHost
	}
	return nil
}

// forwarded reports whether a proxy forwarded r. It recognizes proxies that describe the client in header fields, and
// proxies that use HTTP/1.0, which was nginx's default before version 1.29.7 and isn't the default of any current
// client.
func forwarded(r *http.Request) bool {
	for name := range r.Header {
		switch {
		case name == "Forwarded", name == "Via", name == "X-Real-Ip", strings.HasPrefix(name, "X-Forwarded-"):
			return true
		}
	}
	return !r.ProtoAtLeast(1, 1)
}

// FromPage reports whether a page in a browser sent r. Browsers add at least one of these headers to every POST.
func FromPage(r *http.Request) bool {
	return r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != ""
}

// ForeignPage reports whether r, a POST, was sent by a page that a browser on this machine loaded from another site,
// possibly a site whose name was resolved to this machine (DNS rebinding). It returns false for requests from other
// machines, and for requests from programs, which may use any name for this machine.
func ForeignPage(r *http.Request) bool {
	return FromPage(r) && access.From(r).IsLoopback() && !forwarded(r) && (!ownHost(r.Host) || SameSite(r) != nil)
}

// ownHost reports whether a Host header names this machine: a loopback address or localhost.
func ownHost(host string) bool {
	name := hostname(host)
	if at, err := netip.ParseAddr(name); err == nil {
		return at.Unmap().IsLoopback()
	}
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// hostname returns a host in lower case and without its port.
func hostname(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// operation returns the contract's operation for a request, with its path item and path pattern. The operation is nil
// if the contract contains no such operation.
func (a *API) operation(r *http.Request) (*openapi3.Operation, *openapi3.PathItem, string) {
	return a.operationAt(chi.RouteContext(r.Context()).RoutePattern(), methodOf(r))
}

// operationAt is like operation, for a route pattern and a method.
func (a *API) operationAt(route, method string) (*openapi3.Operation, *openapi3.PathItem, string) {
	pattern := strings.TrimPrefix(route, a.options.Base+prefix)
	item := a.doc.Paths.Value(pattern)
	if item == nil {
		return nil, nil, ""
	}
	return item.GetOperation(method), item, pattern
}

// methodOf returns the method of the operation that handles r: GET for a HEAD request.
func methodOf(r *http.Request) string {
	if r.Method == http.MethodHead {
		return http.MethodGet
	}
	return r.Method
}

// authorize refuses callers without the role that the operation needs.
func (a *API) authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.signer(r) != nil { // verify checks the signature
			next.ServeHTTP(w, r)
			return
		}
		op, _, _ := a.operation(r)
		role, _ := op.Extensions["x-role"].(string)
		a.requireRole(access.Role(role))(next).ServeHTTP(w, r)
	})
}

// requireRole refuses callers whose role doesn't include needed, and changes made by pages of other sites. As long as
// no token exists and log-in isn't configured, every caller is an administrator, because requireLocal has refused
// callers on other machines.
func (a *API) requireRole(needed access.Role) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			who, err := a.identify(r)
			if e := attempt(r); e != nil {
				setCaller(e, who)
			}
			if err == nil && !who.Role.Allows(needed) {
				err = refusal.New(refusal.Forbidden,
					fmt.Sprintf("this needs the role %s; yours is %s", needed, who.Role), "")
			}
			if err == nil {
				err = a.sameSite(r, who)
			}
			if err != nil {
				a.fail(w, r, err)
				return
			}
			next.ServeHTTP(w, r.WithContext(access.WithCaller(r.Context(), who)))
		})
	}
}

// bearer returns the bearer token of a request, or "" if it has none.
func bearer(r *http.Request) string {
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(secret)
}

// ErrTenant is the refusal for callers who may not enter the tenant.
var ErrTenant = refusal.New(refusal.Forbidden, "you may not enter this tenant", "use a token of this tenant")

// identify returns the caller of a request, or a refusal if the token or session is missing, invalid or not valid for
// this tenant.
func (a *API) identify(r *http.Request) (access.Principal, error) {
	who, err := a.caller(r)
	if err == nil && !who.Tenants.Enters(a.options.Tenant, who.Role) {
		err = ErrTenant
	}
	return who, err
}

// caller returns the caller of a request, or a refusal if its token or session is missing or invalid. A token takes
// precedence, because it is sent on purpose.
func (a *API) caller(r *http.Request) (access.Principal, error) {
	secret := bearer(r)
	if people := a.options.Login; people != nil {
		switch {
		case secret == "":
			return people.Person(r)
		case login.IsSession(secret):
			return people.Session(secret)
		case login.IsJWT(secret):
			return people.Program(r.Context(), secret)
		}
	}
	token, some, err := a.tokens.Identify(secret, r.RemoteAddr, a.options.Clock())
	switch {
	case err != nil:
		return access.Principal{}, err
	case !some && a.options.Login == nil:
		return access.Principal{Name: "local", Role: access.Admin, Via: access.ViaLocal}, nil
	case token != nil:
		name := cmp.Or(token.Name, "token "+token.ID)
		return access.Principal{
			Name:     name,
			Role:     token.Role,
			Token:    token.ID,
			Via:      access.ViaToken,
			Tenants:  access.Scope(token.Tenant),
			Services: strings.Join(token.Services, ", "),
		}, nil
	}
	refused := refusal.New(refusal.Unauthenticated, "this needs a token",
		"send Authorization: Bearer … with one from sibyl token create")
	challenge := `Bearer realm="sibyl"`
	if secret != "" {
		refused.Detail = "the token is not known, was revoked, or has expired"
		challenge += `, error="invalid_token"`
	}
	refused.Header = http.Header{"Www-Authenticate": {challenge}}
	return access.Principal{}, refused
}

// errForeign is the refusal for a change that a page of another site requests.
var errForeign = refusal.New(refusal.Forbidden,
	"changes are accepted from pages of this site and from programs, not from pages of other sites", "")

// sameSite returns a refusal for changes made by pages of other sites. If a session cookie identifies the caller, the
// request must come from our own page, because browsers add the cookie on their own.
func (a *API) sameSite(r *http.Request, who access.Principal) error {
	if who.Via != access.ViaLogin || bearer(r) != "" {
		return SameSite(r)
	}
	if reads(r) || a.options.Login.OwnPage(r) {
		return nil
	}
	return errForeign
}

// reads reports whether a request changes nothing.
func reads(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// SameSite returns a refusal for changes made by pages of other sites. Such pages have no token, but callers on the
// loopback interface may not need one.
func SameSite(r *http.Request) error {
	if reads(r) {
		return nil
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return errForeign
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		if u, parseErr := url.Parse(origin); parseErr != nil || u.Host != r.Host {
			return errForeign
		}
	}
	return nil
}

// negotiate refuses requests whose Accept header excludes all media types of the response.
func (a *API) negotiate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		op, _, _ := a.operation(r)
		accept := strings.Join(r.Header.Values("Accept"), ",")
		var offers []string
		if ok := op.Responses.Value("200"); ok != nil {
			for offer := range ok.Value.Content {
				offers = append(offers, offer)
			}
		}
		slices.Sort(offers)
		if accept != "" && len(offers) > 0 && !accepts(accept, offers) {
			a.fail(w, r, refusal.New(refusal.NotAcceptable, "this is served as "+strings.Join(offers, " or "), ""))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// accepts reports whether an Accept header allows any of the offered media types.
func accepts(header string, offers []string) bool {
	for part := range strings.SplitSeq(header, ",") {
		media, params, err := mime.ParseMediaType(part)
		if err != nil || strings.Trim(params["q"], "0.") == "" && params["q"] != "" {
			continue
		}
		for _, offer := range offers {
			kind, _, _ := strings.Cut(offer, "/")
			if media == offer || media == "*/*" || media == kind+"/*" {
				return true
			}
		}
	}
	return false
}

// validate refuses requests that violate the contract.
func (a *API) validate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		op, item, pattern := a.operation(r)
		if err := a.valid(r, op, item, pattern); err != nil {
			a.fail(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (a *API) valid(r *http.Request, op *openapi3.Operation, item *openapi3.PathItem, pattern string) error {
	if err := knownQuery(r, op); err != nil {
		return err
	}
	if body := op.RequestBody; body != nil && (body.Value.Required || r.ContentLength != 0) {
		media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if err != nil || media != "application/json" {
			return refusal.New(refusal.UnknownType, "the Content-Type of the body is not JSON",
				"send Content-Type: application/json")
		}
	}
	params := make(map[string]string)
	for i, key := range chi.RouteContext(r.Context()).URLParams.Keys {
		params[key] = chi.RouteContext(r.Context()).URLParams.Values[i]
	}
	err := openapi3filter.ValidateRequest(r.Context(), &openapi3filter.RequestValidationInput{
		Request: r, PathParams: params,
		Route: &routers.Route{Spec: a.doc, Path: pattern, PathItem: item, Method: r.Method, Operation: op},
		Options: &openapi3filter.Options{
			AuthenticationFunc:  openapi3filter.NoopAuthenticationFunc,
			SkipSettingDefaults: true,
		},
	})
	return invalid(err)
}

// knownQuery returns a refusal for unknown parameters, because a filter with a misspelt name would silently match
// everything.
func knownQuery(r *http.Request, op *openapi3.Operation) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return refusal.New(refusal.Malformed, "the query cannot be read",
			"escape characters other than letters and digits")
	}
	var known []string
	for _, p := range op.Parameters {
		if p.Value.In == openapi3.ParameterInQuery {
			known = append(known, p.Value.Name)
		}
	}
	for name, values := range query {
		switch {
		case !slices.Contains(known, name) && len(known) == 0:
			return refusal.New(refusal.Malformed, "this resource takes no parameters", "")
		case !slices.Contains(known, name):
			return refusal.New(refusal.Malformed, fmt.Sprintf("unknown parameter %.64q", name),
				"known parameters: "+strings.Join(known, ", "))
		case len(values) > 1:
			return refusal.New(refusal.Malformed, name+" is given more than once", "")
		}
	}
	return nil
}

// invalid returns the refusal for a validation error, or nil for nil.
func invalid(err error) error {
	if err == nil {
		return nil
	}
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return refusal.New(refusal.TooLarge, fmt.Sprintf("a body has at most %d bytes", large.Limit), "")
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return refusal.New(refusal.TimedOut, "the body did not arrive in time", "")
	}
	field, why := "", ""
	if schema, ok := errors.AsType[*openapi3.SchemaError](err); ok {
		why = schema.Reason
		if schema.SchemaField == "format" && schema.Schema.Format == "date-time" {
			why = "want a time like 2026-01-31T12:00:00Z" // the reason is a regular expression
		}
		if text := patterns[schema.Schema.Pattern]; schema.SchemaField == "pattern" && text != "" {
			why = "want " + text
		}
		field = strings.Join(schema.JSONPointer(), ".")
	}
	request, ok := errors.AsType[*openapi3filter.RequestError](err)
	switch {
	case ok && request.Parameter != nil:
		reason := refusal.Malformed
		if request.Parameter.In == openapi3.ParameterInPath {
			reason = refusal.NotFound // no resource can have such a name
		}
		if errors.Is(err, openapi3filter.ErrInvalidRequired) {
			why = "is required"
		} else if why == "" {
			why = wantType(request.Parameter.Schema)
		}
		return refusal.New(reason, request.Parameter.Name+": "+why, "")
	case field != "" || ok && request.RequestBody != nil && why != "":
		return refusal.New(refusal.Invalid, strings.TrimPrefix(field+": "+why, ": "), "")
	case errors.Is(err, openapi3filter.ErrInvalidRequired):
		return refusal.New(refusal.Malformed, "the body is missing", "")
	}
	return refusal.New(refusal.Malformed, "the body is not valid JSON", "")
}

const timePattern = "^([0-9]{1,19}|[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9:.]+([Zz]|[+-][0-9]{2}:[0-9]{2}))$"

// patterns maps the regular expressions in the contract to descriptions for error messages.
var patterns = map[string]string{
	"^[0-9a-f]{16}$":                       "16 hexadecimal digits, in lower case",
	"^[0-9a-f]{32}$":                       "32 hexadecimal digits, in lower case",
	"^[0-9a-fA-F]{32}$":                    "32 hexadecimal digits",
	"^[0-9a-fA-F]{1,32}$":                  "1 to 32 hexadecimal digits",
	"^([0-9a-f]{16}|[0-9a-f]{32})$":        "16 or 32 hexadecimal digits, in lower case",
	"^[0-9]{1,19}-[0-9]{1,9}$":             "the ID of a decision, like 1790000000000000000-0",
	"^[1-9][0-9]{0,18}$":                   "a number from 1",
	"^([01][0-9]|2[0-3]):[0-5][0-9]$":      "a time of day like 22:00",
	"^https://hooks[.]slack(-gov)?[.]com/": "an address of Slack",
	"^https?://":                           "an address that starts with http:// or https://",
	"^[a-z0-9-]{1,40}$":                    "1 to 40 characters of a-z, 0-9 and -",
	timePattern:                            "a time like 2026-01-31T12:00:00Z, or in nanoseconds since 1970",
}

// wantType returns the part of an error message that names the type that a parameter must have according to schema.
func wantType(schema *openapi3.SchemaRef) string {
	switch t := schema.Value.Type; {
	case t.Is(openapi3.TypeInteger):
		return "want an integer"
	case t.Is(openapi3.TypeNumber):
		return "want a number"
	case t.Is(openapi3.TypeBoolean):
		return "want true or false"
	}
	return "invalid value"
}

var errBusy = refusal.New(refusal.Overloaded, "too many concurrent requests", "").Later(time.Second)

// limit bounds the number of concurrent requests and the time that each may take, including the time to receive its
// body and the time that the client takes to read the response. A request occupies a slot only once its body has
// arrived, so that slow senders don't keep others out.
func (a *API) limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := http.NewResponseController(w)
		if r.ContentLength != 0 {
			_ = conn.SetReadDeadline(a.options.Clock().Add(requestTimeout)) // only fails for recorders in tests
			if r.ContentLength > maxBody {
				defer a.large.Add(-1) // decoded, it takes many times its size
				if a.large.Add(1) > maxLarge {
					a.fail(w, r, errBusy)
					return
				}
			}
			body, err := a.arriving.read(r, a.signer(r) != nil)
			if err != nil {
				a.fail(w, r, err)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		defer a.serving.Add(-1)
		if a.serving.Add(1) > maxServing {
			a.fail(w, r, errBusy)
			return
		}
		_ = conn.SetWriteDeadline(a.options.Clock().Add(requestTimeout + operating.WriteTimeout))
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// arrivals counts the bodies being received. It separately counts the bodies from senders whose signature can only be
// checked once the body has arrived.
type arrivals struct{ known, unknown atomic.Int64 }

// read returns the body of r, or a refusal if it can't be read or too many other bodies are being received. If signed
// is set, the sender is still unknown, because its signature covers the body.
func (x *arrivals) read(r *http.Request, signed bool) ([]byte, error) {
	arriving, most := &x.known, int64(maxArriving)
	if signed {
		arriving, most = &x.unknown, maxUnknown
	}
	defer arriving.Add(-1)
	if arriving.Add(1) > most {
		return nil, errBusy
	}
	body, err := io.ReadAll(r.Body)
	return body, invalid(err)
}

// wrongMethod refuses a request whose path only supports other methods. The response lists the supported methods.
func (a *API) wrongMethod(w http.ResponseWriter, r *http.Request, root chi.Router) {
	var allowed []string
	methods := []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete}
	for _, method := range methods {
		at := method
		if method == http.MethodHead {
			at = http.MethodGet
		}
		if root.Match(chi.NewRouteContext(), at, r.URL.Path) {
			allowed = append(allowed, method)
		}
	}
	allow := strings.Join(allowed, ", ")
	a.fail(w, r, &refusal.Error{
		Reason: refusal.UnknownMethod, Detail: "allowed methods: " + allow, Header: http.Header{"Allow": {allow}},
	})
}

// observe measures the duration of requests by operation, and traces the requests if there is a tracer.
func (a *API) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		op, _, _ := a.operation(r)
		if op == nil {
			a.options.Log.LogAttrs(r.Context(), slog.LevelError, "the contract lacks a route",
				slog.String("path", r.URL.Path))
			http.NotFound(w, r)
			return
		}
		began := a.options.Clock()
		if a.options.Tracer == nil {
			next.ServeHTTP(w, r)
		} else {
			a.trace(op.OperationID, next, w, r)
		}
		a.handlers.Observe(op.OperationID, a.options.Clock().Sub(began))
	})
}

// trace serves a request within a span. If the request contains a trace context, the span is a child of the caller's
// span.
func (a *API) trace(operation string, next http.Handler, w http.ResponseWriter, r *http.Request) {
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := a.options.Tracer.Start(ctx, operation, oteltrace.WithSpanKind(oteltrace.SpanKindServer))
	defer span.End()
	answer := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
	next.ServeHTTP(answer, r.WithContext(ctx))
	span.SetAttributes(otelattr.String("http.request.method", r.Method),
		otelattr.Int("http.response.status_code", answer.status))
	if answer.status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, "")
	}
}

// statusRecorder is a response writer that records the final status.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (s *statusRecorder) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap gives [http.ResponseController] access to the response.
func (s *statusRecorder) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// getContract serves the contract.
func (a *API) getContract(w http.ResponseWriter, r *http.Request) {
	text, err := contractText()
	if err != nil {
		a.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(text)
}
