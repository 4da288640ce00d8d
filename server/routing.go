package server

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/api"
	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/ingest/otlp/receiver"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// front passes a request to the API of the tenant in its path, or to the agents' part of a tenant.
func (s *Server) front() http.Handler {
	base := s.config.API.BasePath
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, protocol.Path) { // also with a base path
			s.byToken(r).agents.ServeHTTP(w, r)
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
			t.api.ServeHTTP(w, r)
		case t == s.main:
			http.StripPrefix(own, s.byToken(r).agents).ServeHTTP(w, r)
		default:
			http.StripPrefix(own, t.agents).ServeHTTP(w, r)
		}
	})
}

// serveReady answers for the process, which is ready once all of its tenants are: with the answer of a tenant that is
// not, or of the default tenant.
func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) {
	t := s.main
	if i := slices.IndexFunc(s.tenants, func(t *tenant) bool { return !t.live.Ready() }); i >= 0 {
		t = s.tenants[i]
	}
	r = r.Clone(r.Context())
	r.URL.Path = t.config.API.BasePath + "/readyz"
	t.api.ServeHTTP(w, r)
}

// byPath returns the tenant of a path below the base path. Paths of unknown tenants are the default tenant's, which has
// nothing there.
func (s *Server) byPath(path string) *tenant {
	if rest, ok := strings.CutPrefix(path, config.TenantPath("")); ok {
		name, _, _ := strings.Cut(rest, "/")
		if t := s.others[name]; t != nil {
			return t
		}
	}
	return s.main
}

// byToken returns the tenant of a request's token. The tenant may still refuse the request.
func (s *Server) byToken(r *http.Request) *tenant {
	if len(s.others) == 0 {
		return s.main
	}
	token, _, err := s.shared.tokens.Find(bearer(r), time.Now())
	if err != nil || token == nil || s.others[token.Tenant] == nil {
		return s.main
	}
	return s.others[token.Tenant]
}

// bearer returns the bearer token of a request, or "".
func bearer(r *http.Request) string {
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(secret)
}

// serveOpAMP serves the address for OpAMP agents, which also has the agents' endpoints of the API.
func (s *Server) serveOpAMP(w http.ResponseWriter, r *http.Request) {
	t := s.byToken(r)
	if strings.HasPrefix(r.URL.Path, protocol.Path) {
		t.agents.ServeHTTP(w, r)
		return
	}
	t.opamp.ServeHTTP(w, r)
}

// newReceiver returns the receiver of traces. Each tenant has limits of its own on requests, so that the requests of
// one don't keep out those of another.
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
	destinations := make(map[string]*receiver.Destination)
	for name, t := range s.others {
		o := s.destination(receiver.Options{}, t)
		var err error
		if destinations[name], err = receiver.NewDestination(intake{t.live}, o); err != nil {
			return nil, err
		}
	}
	switch {
	case len(s.others) > 0:
		options.Route = func(x receiver.Sender) (*receiver.Destination, error) {
			name, err := s.route(x)
			return destinations[name], err
		}
	case c.OTLP.RequireToken:
		options.Route = func(x receiver.Sender) (*receiver.Destination, error) {
			_, err := s.sender(x)
			return nil, err
		}
	}
	return receiver.New(intake{s.main.live}, s.destination(options, s.main))
}

// destination returns options with the limits of t. The tenants divide the requests at the same time, which would
// otherwise keep each other's connections from being accepted.
func (s *Server) destination(options receiver.Options, t *tenant) receiver.Options {
	options.MaxRequestBytes = t.config.OTLP.MaxRequest
	options.MaxInFlightBytes = t.config.MaxInFlight()
	options.MaxRequests = receiver.DefaultRequests / int64(len(s.tenants))
	options.Refuse = t.live.Refuse
	options.Log = t.log
	return options
}

// sender returns the token of a sender, or a refusal if it may not send traces.
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

// route returns the name of the tenant for the traces of a sender, or a refusal. Senders may only leave out the token
// if they need none. A token must be valid, because those of tenants decide where traces go.
func (s *Server) route(x receiver.Sender) (string, error) {
	own, anyTenant := "", false
	if x.Token != "" || s.config.OTLP.RequireToken {
		token, err := s.sender(x)
		if err != nil {
			return "", err
		}
		own, anyTenant = token.Tenant, token.AnyTenant
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
		return "", errScope
	case name != "" && s.others[name] == nil:
		return "", errNoTenant
	}
	return name, nil
}

// Refusals of senders.
var (
	errScope = refusal.New(refusal.Forbidden, "the token is not good for the tenant in X-Scope-OrgID",
		"leave out the header, or use a token of sibyl token create --any-tenant")
	errNoTenant = refusal.New(refusal.Forbidden, "there is no such tenant", "sibyl tenant list shows them")
)
