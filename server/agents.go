package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/api"
	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/control"
	"github.com/sibyl-trace/sibyl/control/opamp"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/internal/connlimit"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/search"
)

// feedback passes the reports of agents to the engine.
type feedback struct{ service *live.Service }

// Record implements [control.Engine].
func (f feedback) Record(ctx context.Context, report *search.Feedback) error {
	_, err := f.service.Change(ctx, engine.Change{Feedback: report})
	return err
}

// control runs the control plane until ctx is done, once the journal has been read.
func (t *tenant) control(ctx context.Context) error {
	select {
	case <-t.live.Started():
	case <-ctx.Done():
		return nil
	}
	var known []string
	err := t.live.Ask(ctx, func(core *engine.View) {
		t.plane.Publish(core.Searches.Plan(), core.Table)
		known = core.Offers.Services()
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("start the control plane: %w", err)
	}
	t.plane.Begin(known)
	return t.plane.Run(ctx)
}

// front routes requests of agents to the control plane and all others to the API.
func (s *Server) front() http.Handler {
	plain := s.main.plane.Handler(identify(s.shared.tokens))
	agents := http.StripPrefix(s.config.API.BasePath, plain)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch base := s.config.API.BasePath; {
		case strings.HasPrefix(r.URL.Path, protocol.Path):
			plain.ServeHTTP(w, r)
		case base != "" && strings.HasPrefix(r.URL.Path, base+protocol.Path):
			agents.ServeHTTP(w, r)
		default:
			s.main.api.ServeHTTP(w, below(base, r))
		}
	})
}

// below returns r with base at the start of its path. If the path lacks base, because a proxy has removed it, below
// returns a copy.
func below(base string, r *http.Request) *http.Request {
	if base == "" || r.URL.Path == base || strings.HasPrefix(r.URL.Path, base+"/") {
		return r
	}
	whole := r.Clone(r.Context())
	whole.URL.Path = base + r.URL.Path
	if r.URL.RawPath != "" {
		whole.URL.RawPath = base + r.URL.RawPath
	}
	return whole
}

// listenOpAMP opens the address for OpAMP agents, if one is configured. It also serves the agents' endpoints of the
// API.
func (s *Server) listenOpAMP(ctx context.Context, share *connlimit.Share) (err error) {
	if s.config.OpAMP == "" {
		return nil
	}
	if s.opamp, err = opamp.New(s.main.plane, identify(s.shared.tokens), s.log); err != nil {
		return err
	}
	agents := s.main.plane.Handler(identify(s.shared.tokens))
	s.agents, err = openHTTP(ctx, "OpAMP", s.config.OpAMP, share, s.config.API.TLS, s.log, &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, protocol.Path) {
				agents.ServeHTTP(w, r)
				return
			}
			s.opamp.ServeHTTP(w, r)
		}),
		ConnContext: s.opamp.ConnContext(),
	})
	return err
}

// identify returns a function that returns the token of a request, or a [*refusal.Error]. While tokens has no tokens,
// agents on the same machine need none. Pages in browsers are refused, because they could belong to any site. Headers
// don't reveal every request of a browser, but browsers always send the host that the page asked for, so that is
// checked, too.
func identify(tokens *access.Tokens) func(*http.Request) (control.Identity, error) {
	return func(r *http.Request) (control.Identity, error) {
		var none control.Identity
		if api.FromPage(r) {
			return none, refusal.New(refusal.Forbidden, "this is for agents, not for pages in a browser", "")
		}
		scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "bearer") {
			secret = ""
		}
		token, some, err := tokens.Identify(strings.TrimSpace(secret), r.RemoteAddr, time.Now())
		switch {
		case err != nil:
			return none, err
		case !some:
			if err := api.Local(r); err != nil {
				return none, refusal.New(refusal.Forbidden, "until a token exists, "+err.Error(),
					"create one with sibyl token create --role agent")
			}
			return none, nil
		case token == nil:
			return none, &refusal.Error{
				Reason: refusal.Unauthenticated,
				Detail: "this needs a token with the role agent",
				Hint:   "send Authorization: Bearer …",
				Header: http.Header{"Www-Authenticate": {`Bearer realm="sibyl"`}},
			}
		case !token.Role.Allows(access.Agent):
			return none, refusal.New(refusal.Forbidden,
				"this needs a token with the role agent; yours is "+string(token.Role), "")
		}
		return control.Identity{Token: token.ID, Services: token.Services}, nil
	}
}
