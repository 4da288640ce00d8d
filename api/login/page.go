package login

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// page is an error page that tells a person why a log-in failed.
type page struct {
	status int
	title  string
	texts  []string // paragraphs
	again  bool     // whether to offer logging in with another account
}

// refusal returns the same explanation as a refusal for programs.
func (p *page) refusal() *refusal.Error {
	detail := p.title + ". " + strings.Join(p.texts, " ")
	if p.status == http.StatusServiceUnavailable {
		return refusal.New(refusal.Overloaded, detail, "").Later(providerInterval)
	}
	return refusal.New(refusal.Forbidden, detail, "")
}

// pagePolicy is the Content-Security-Policy of error pages, which need nothing but an inline style.
const pagePolicy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"

const pageStyle = "body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:4rem auto;padding:0 1rem;" +
	"color-scheme:light dark}"

// answer writes p as the response.
func (s *Service) answer(w http.ResponseWriter, p *page) {
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", pagePolicy)
	header.Set("Cache-Control", "no-store")
	if p.status == http.StatusServiceUnavailable {
		header.Set("Retry-After", strconv.Itoa(int(providerInterval.Seconds())))
	}
	w.WriteHeader(p.status)
	link, label := s.Address(), "Try again"
	if p.again {
		link, label = link+"?again", "Log in as someone else"
	}
	_ = h.Doctype(h.HTML(h.Lang("en"), // fails only if the client has disconnected
		h.Head(h.Meta(h.Charset("utf-8")), h.Meta(h.Name("viewport"), h.Content("width=device-width")),
			h.TitleEl(g.Text(p.title+" – Sibyl")), h.StyleEl(g.Raw(pageStyle))),
		h.Body(h.Main(h.H1(g.Text(p.title)),
			g.Map(p.texts, func(text string) g.Node { return h.P(g.Text(text)) }),
			h.P(h.A(h.Href(link), g.Text(label))))))).Render(w)
}

// unreachable is the page for a provider that doesn't answer.
func (s *Service) unreachable() *page {
	return &page{
		status: http.StatusServiceUnavailable,
		title:  "Log-in is not possible now",
		texts: []string{
			"The identity provider " + s.options.Issuer + " does not answer Sibyl.",
			"People who are logged in and programs with a token are not affected. Sibyl's log has the details.",
		},
	}
}

// busy is the page for a person who returns from the provider at the same time as too many others.
func (s *Service) busy() *page {
	return &page{
		status: http.StatusServiceUnavailable,
		title:  "Log-in is not possible now",
		texts:  []string{"Too many people are logging in at the moment. Reload this page in a few seconds."},
	}
}

// foreign is the page for a browser that returns from the provider without a matching attempt to log in.
func (s *Service) foreign() *page {
	return &page{
		status: http.StatusBadRequest,
		title:  "This log-in cannot be completed",
		texts: []string{"It was not started in this browser, was completed before, began more than ten minutes ago, " +
			"or another one was started since."},
	}
}

// refused is the page for a person whom the provider refused, with the provider's reason.
func (s *Service) refused(reason, description string) *page {
	const most = 500 // bytes
	text := strings.ToValidUTF8(reason+": "+description, "")
	return &page{
		status: http.StatusForbidden,
		title:  "The identity provider refused the log-in",
		texts:  []string{"It says: " + strings.TrimSuffix(text[:min(len(text), most)], ": ")},
	}
}

// broken logs err, the reason why a response from the provider can't be used, and returns the page for it.
func (s *Service) broken(ctx context.Context, err error) *page {
	s.warn(ctx, "the answer of the identity provider is not valid", err)
	return &page{
		status: http.StatusForbidden,
		title:  "The log-in failed",
		texts:  []string{"The answer of the identity provider is not valid. Sibyl's log has the details."},
	}
}

// withoutRole is the page for a person whose claims give no role.
func (s *Service) withoutRole(all claims) *page {
	claim, has := s.options.Roles.Claim, "It is missing, or has no text."
	if values := all.values(s.options.Roles.Claim); len(values) > 0 {
		has = "It has: " + strings.Join(values, ", ") + "."
	}
	at := s.options.Issuer
	if u, err := url.Parse(at); err == nil {
		at = u.Host
	}
	return &page{
		status: http.StatusForbidden,
		title:  "You have no role in Sibyl",
		texts: []string{
			"You are logged in as " + all.name() + ", but the claim " + claim + ", which decides about roles here, " +
				"gives you none. " + has,
			"Ask the operator of Sibyl to add one of your values to auth.oidc.roles, or the operator of " + at +
				" to give you a value that is there. If the claim is missing, it may need a scope in auth.oidc.scopes.",
		},
		again: true,
	}
}
