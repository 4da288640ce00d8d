package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/api"
	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/control"
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

// control waits until the journal has been read, then runs the control plane until ctx is done.
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

// below returns r if its path starts with base. Otherwise, a proxy has removed base, and below returns a copy of r with
// base prepended to the path.
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

// identify returns a function that authenticates a request of one of tenant's agents. The function returns the identity
// in the request's token, or an error, usually a [*refusal.Error]. As long as there are no tokens, agents on the same
// machine need none. The function refuses pages in browsers, because they could belong to any site. Some requests from
// browsers contain no header that reveals their origin. But they always name the host that the page asked for, so the
// function also checks the host.
//
// Unless part is empty or "none", it is the part of a client's certificate that names the tenant, and the certificate
// must name this tenant.
func identify(tokens *access.Tokens, tenant, part string) func(*http.Request) (control.Identity, error) {
	return func(r *http.Request) (control.Identity, error) {
		var none control.Identity
		certified, named, err := certifiedTenant(part, connlimit.ClientCertificate(r.TLS))
		if err == nil && named && certified != tenant {
			err = errCertificate
		}
		if err != nil {
			return none, err
		}
		if api.FromPage(r) {
			return none, refusal.New(refusal.Forbidden, "this is for agents, not for pages in a browser", "")
		}
		token, some, err := tokens.Identify(bearer(r), r.RemoteAddr, time.Now())
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
		case !access.Scope(token.Tenant).Enters(tenant, token.Role) && (!named || !token.AnyTenant):
			return none, api.ErrTenant
		}
		return control.Identity{Token: token.ID, Services: token.Services}, nil
	}
}
