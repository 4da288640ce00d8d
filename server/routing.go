package server

import (
	"crypto/x509"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/api"
	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/ingest/otlp/receiver"
	"github.com/sibyl-trace/sibyl/internal/connlimit"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// front passes a request to the API of the tenant in its path, or to a tenant's endpoints for agents.
func (s *Server) front() http.Handler {
	base := s.config.API.BasePath
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, protocol.Path) { // also with a base path
			s.serveAgent(w, r)
			return
		}
		r = below(base, r)
		if r.URL.Path == base+"/readyz" {
			s.serveReady(w, r)
			return
		}
		t := s.byPath(strings.TrimPrefix(r.URL.Path, base))
		switch own := t.config.API.BasePath; {
		case !strings.HasPrefix(r.URL.Path, own+protocol.Path):
			t.answer(t.api, w, r)
		case t == s.main:
			http.StripPrefix(own, http.HandlerFunc(s.serveAgent)).ServeHTTP(w, r)
		default:
			t.answer(http.StripPrefix(own, t.agents), w, r)
		}
	})
}

// answer passes a request to h, a handler of t, unless t is being deleted.
func (t *tenant) answer(h http.Handler, w http.ResponseWriter, r *http.Request) {
	if !t.enter() {
		errNoTenant.Write(w, errNoTenant.Problem())
		return
	}
	defer t.done()
	h.ServeHTTP(w, r)
}

// serveAgent passes a request of an agent to the tenant of its certificate or token.
func (s *Server) serveAgent(w http.ResponseWriter, r *http.Request) {
	t := s.byToken(r)
	t.answer(t.agents, w, r)
}

// serveReady reports whether the process is ready, that is, whether all of its tenants are. It passes the request to
// the first tenant that isn't ready or, if all are ready, to the tenant whose decisions are latest.
func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) {
	all := s.all()
	i := slices.IndexFunc(all, func(t *tenant) bool { return !t.live.Ready() })
	if i < 0 {
		lags := make([]live.Lag, len(all))
		for k, t := range all {
			lags[k] = t.live.Lag()
		}
		i = latest(lags)
	}
	t := all[i]
	r = r.Clone(r.Context())
	r.URL.Path = t.config.API.BasePath + "/readyz"
	t.api.ServeHTTP(w, r)
}

// latest returns the index of the longest lag among those that have a cause, or 0 if none has.
func latest(lags []live.Lag) int {
	worst := 0
	for i, lag := range lags {
		if lag.Cause != live.LagNone && (lags[worst].Cause == live.LagNone || lag.Overdue > lags[worst].Overdue) {
			worst = i
		}
	}
	return worst
}

// byPath returns the tenant of a path below the base path. If there is no such tenant, byPath returns the default
// tenant, which serves nothing at such paths.
func (s *Server) byPath(path string) *tenant {
	if rest, ok := strings.CutPrefix(path, config.TenantPath("")); ok {
		name, _, _ := strings.Cut(rest, "/")
		if t := s.open.Load().named[name]; t != nil {
			return t
		}
	}
	return s.main
}

// byToken returns the tenant for a request of an agent: the tenant that the agent's certificate names, else the tenant
// of its token, else the default tenant. The tenant may still refuse the request.
func (s *Server) byToken(r *http.Request) *tenant {
	all := s.open.Load()
	if len(all.named) == 0 {
		return s.main
	}
	certificate := connlimit.ClientCertificate(r.TLS)
	if name, _, _ := certifiedTenant(s.config.API.TLS.ClientTenant, certificate); all.named[name] != nil {
		return all.named[name]
	}
	token, _, err := s.shared.tokens.Find(bearer(r), time.Now())
	if err != nil || token == nil || all.named[token.Tenant] == nil {
		return s.main
	}
	return all.named[token.Tenant]
}

// bearer returns the bearer token of a request, or "" if it has none.
func bearer(r *http.Request) string {
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(secret)
}

// serveOpAMP serves the listener for OpAMP agents, which also offers the API's endpoints for agents.
func (s *Server) serveOpAMP(w http.ResponseWriter, r *http.Request) {
	t := s.byToken(r)
	if strings.HasPrefix(r.URL.Path, protocol.Path) {
		t.answer(t.agents, w, r)
		return
	}
	t.answer(t.opamp, w, r)
}

// newReceiver returns the receiver of traces. Each tenant has its own limits on requests, so that one tenant's requests
// don't keep out the requests of another.
func (s *Server) newReceiver() (*receiver.Server, error) {
	c := s.config
	options := receiver.Options{
		GRPC:           c.OTLP.GRPC,
		HTTP:           c.OTLP.HTTP,
		TLS:            tlsFiles(c.OTLP.TLS, s.log),
		MaxConnections: s.files.others,
		Observe:        newReceived(s.main.registry).observe,
	}
	if !c.OTLP.RequireToken {
		options.Foreign = api.ForeignPage
	}
	options.Route = func(x receiver.Sender) (*receiver.Destination, error) {
		t, err := s.route(x)
		if err != nil {
			return nil, err
		}
		return t.traces, nil // nil for the default tenant
	}
	for _, t := range s.all()[1:] {
		if err := s.receive(t); err != nil {
			return nil, err
		}
	}
	return receiver.New(intake{s.main}, s.destination(options, s.main))
}

// receive sets the destination of the traces of t, which must not be the default tenant.
func (s *Server) receive(t *tenant) (err error) {
	t.traces, err = receiver.NewDestination(intake{t}, s.destination(receiver.Options{}, t))
	return err
}

// destination returns options with the limits of t. The tenants share the maximum number of concurrent requests
// equally. Otherwise, one tenant could keep the connections of another from being accepted.
func (s *Server) destination(options receiver.Options, t *tenant) receiver.Options {
	options.MaxRequestBytes = t.config.OTLP.MaxRequest
	options.MaxInFlightBytes = t.config.MaxInFlight()
	options.MaxRequests = receiver.DefaultRequests / int64(len(s.all()))
	options.Decoders = t.config.IntakeLimits().Decoders
	options.Refuse = t.live.Refuse
	options.Log = t.log
	return options
}

// sender returns the token of x, or a refusal if x may not send traces.
func (s *Server) sender(x receiver.Sender) (*access.Token, error) {
	token, _, err := s.shared.tokens.Identify(x.Token, x.From, time.Now())
	if err != nil {
		s.log.Error("the tokens cannot be read", slog.Any("error", err))
	}
	if err != nil || token == nil || !token.Role.Allows(access.Agent) {
		return nil, receiver.ErrUnauthorized
	}
	return token, nil
}

// route returns the tenant for the traces of a sender, or a refusal. Senders may leave out the token only if tokens
// aren't required. Once there are several tenants, a token must be valid whenever it is sent, because it determines the
// tenant that receives the traces.
func (s *Server) route(x receiver.Sender) (*tenant, error) {
	all := s.open.Load()
	certified, named, err := certifiedTenant(s.config.OTLP.TLS.ClientTenant, x.Certificate)
	if err != nil {
		return nil, err
	}
	own, anyTenant := certified, false
	if x.Token != "" && all.several || s.config.OTLP.RequireToken {
		token, err := s.sender(x)
		if err != nil {
			return nil, err
		}
		if named && token.Tenant != certified && !token.AnyTenant {
			return nil, errCertificate
		}
		if !named {
			own, anyTenant = token.Tenant, token.AnyTenant
		}
	}
	if !all.several && !named { // the header may be for another backend
		return s.main, nil
	}
	name := own
	switch x.Scope {
	case "":
	case access.DefaultTenant:
		name = ""
	default:
		name = x.Scope
	}
	switch {
	case name != own && !anyTenant:
		return nil, errScope
	case name == "":
		return s.main, nil
	case all.named[name] == nil:
		return nil, errNoTenant
	}
	return all.named[name], nil
}

// certifiedTenant returns the tenant that a client's certificate names in the given part; see [config.TLS]. named
// reports whether certificates name tenants at all. If they do, certifiedTenant returns a refusal unless c, which may
// be nil, names exactly one tenant, because some authorities issue certificates with several organizations.
func certifiedTenant(part string, c *x509.Certificate) (name string, named bool, err error) {
	var names []string
	switch {
	case part == "" || part == "none":
		return "", false, nil
	case c == nil:
	case part == "organization":
		names = c.Subject.Organization
	default:
		names = []string{c.Subject.CommonName}
	}
	switch {
	case len(names) == 1 && config.IsTenantName(names[0]):
		return names[0], true, nil
	case len(names) == 1 && names[0] == access.DefaultTenant:
		return "", true, nil
	}
	return "", true, errUncertified
}

// Refusals of senders and agents.
var (
	errScope = refusal.New(refusal.Forbidden,
		"the token or the certificate is not good for the tenant in X-Scope-OrgID",
		"leave out the header, or use a token of sibyl token create --any-tenant")
	errCertificate = refusal.New(refusal.Forbidden, "the certificate of this connection is for another tenant",
		"use a certificate and a token of the same tenant, or a token of sibyl token create --any-tenant")
	errUncertified = refusal.New(refusal.Forbidden, "the certificate of this connection names no tenant",
		"tls.client-tenant of Sibyl's configuration tells where it must name exactly one")
	errNoTenant = refusal.New(refusal.Forbidden, "there is no such tenant", "sibyl tenant list shows them")
)
