package login

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// Start redirects a browser to the provider. The query parameter `to` is the path of the page to return to. If the
// query has a parameter `again`, Start tells the provider to ask for credentials even if the person is already logged
// in there.
func (s *Service) Start(w http.ResponseWriter, r *http.Request) {
	p, err := s.discover(r.Context())
	if err != nil {
		s.answer(w, s.unreachable())
		return
	}
	query := r.URL.Query()
	x := attempt{
		State:    rand.Text(),
		Nonce:    rand.Text(),
		Verifier: oauth2.GenerateVerifier(),
		To:       s.pathOf(query.Get("to")),
	}
	if err := s.write(w, attemptCookie, x); err != nil {
		s.answer(w, s.broken(r.Context(), err))
		return
	}
	options := []oauth2.AuthCodeOption{oidc.Nonce(x.Nonce), oauth2.S256ChallengeOption(x.Verifier)}
	if query.Has("again") {
		options = append(options, oauth2.SetAuthURLParam("prompt", "login"))
	}
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, p.oauth.AuthCodeURL(x.State, options...), http.StatusFound)
}

// maxPath is the maximum length of the path of a page in bytes. The path is stored in a cookie, and browsers limit
// cookies to 4096 bytes.
const maxPath = 1024

// pathOf returns `to` if it is the path of a page of this UI, or the path of the home page otherwise.
func (s *Service) pathOf(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" || u.Host != "" || len(to) > maxPath || !strings.HasPrefix(to, s.base+"/") {
		return s.base + "/"
	}
	return to
}

// Callback handles the request of a browser that returns from the provider, and starts the session. It returns the
// person whom the provider named, even if the person has no role and gets no session, or the zero Principal if it named
// nobody.
func (s *Service) Callback(w http.ResponseWriter, r *http.Request) access.Principal {
	var x attempt
	query := r.URL.Query()
	known := s.read(r, attemptCookie, &x)
	if !known || subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(x.State)) != 1 {
		s.answer(w, s.foreign())
		return access.Principal{}
	}
	from := clientOf(r)
	if !s.exchanges.begin(from) {
		s.answer(w, s.busy())
		return access.Principal{}
	}
	defer s.exchanges.end(from)
	s.remove(w, attemptCookie) // an attempt can be completed only once
	if reason := query.Get("error"); reason != "" {
		s.answer(w, s.refused(reason, query.Get("error_description")))
		return access.Principal{}
	}
	who, failed := s.exchange(r.Context(), query.Get("code"), &x)
	if failed != nil {
		s.answer(w, failed)
		return s.principal(who)
	}
	if err := s.write(w, sessionCookie, who); err != nil {
		s.answer(w, s.broken(r.Context(), err))
		return s.principal(who)
	}
	w.Header().Set("Cache-Control", "no-store")
	// The path follows our own origin, so whatever it contains, it can't lead to another site.
	http.Redirect(w, r, s.origin+x.To, http.StatusSeeOther)
	return s.principal(who)
}

// exchange redeems the provider's authorization code for the session of the person who logged in. If that fails, it
// returns the page that explains the reason, like begin.
func (s *Service) exchange(ctx context.Context, code string, x *attempt) (who session, failed *page) {
	p, err := s.discover(ctx)
	if err != nil {
		return who, s.unreachable()
	}
	ctx = oidc.ClientContext(ctx, s.client)
	token, err := p.oauth.Exchange(ctx, code, oauth2.VerifierOption(x.Verifier))
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		s.warn(ctx, "the identity provider refused its code", err)
		return who, s.refused(refused.ErrorCode, refused.ErrorDescription)
	}
	if err != nil {
		s.warn(ctx, "the identity provider does not answer", err)
		return who, s.unreachable()
	}
	text, _ := token.Extra("id_token").(string)
	id, err := p.verify(ctx, text, s.options.ClientID)
	if err == nil && subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(x.Nonce)) != 1 {
		err = errors.New("the nonce of the ID token is not that of the attempt")
	}
	if err != nil {
		return who, s.broken(ctx, err)
	}
	return s.begin(ctx, p, token, id)
}

// begin returns the session of the person to whom the provider issued token and id, or the page that explains why there
// is no session. If the person has no role, begin returns both, and the session has no Value.
func (s *Service) begin(
	ctx context.Context, p *provider, token *oauth2.Token, id *oidc.IDToken,
) (who session, failed *page) {
	all, err := s.claims(ctx, p, token, id)
	if err != nil {
		return who, s.broken(ctx, err)
	}
	role, value := s.options.Roles.of(all)
	who = session{Subject: id.Subject, Name: all.name(), Value: value, Tenants: s.options.tenants(all)}
	if role == "" {
		return who, s.withoutRole(all)
	}
	s.options.Log.InfoContext(ctx, "a person has logged in",
		slog.String("name", all.name()), slog.String("subject", id.Subject), slog.String("role", string(role)))
	return who, nil
}

// warn logs the reason why a log-in failed, at most once per providerInterval. The audit log counts all failures.
func (s *Service) warn(ctx context.Context, reason string, err error) {
	if s.warning.allow() {
		s.options.Log.WarnContext(ctx, "a log-in failed", slog.String("reason", reason),
			slog.String("issuer", s.options.Issuer), slog.Any("error", err))
	}
}

// claims returns the claims of an ID token. If the claim for roles or tenants is missing, it adds the claims from the
// provider's UserInfo endpoint, because some providers keep tokens small.
func (s *Service) claims(ctx context.Context, p *provider, token *oauth2.Token, id *oidc.IDToken) (claims, error) {
	all := make(claims)
	if err := id.Claims(&all); err != nil {
		return nil, err
	}
	complete := len(all.values(s.options.Roles.Claim)) > 0 &&
		(s.options.TenantClaim == "" || len(all.values(s.options.TenantClaim)) > 0)
	if complete || p.UserInfoEndpoint() == "" {
		return all, nil
	}
	more, err := p.UserInfo(ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		return nil, err
	}
	if more.Subject != id.Subject {
		return nil, fmt.Errorf("the provider answers about %q, not about %q", more.Subject, id.Subject)
	}
	return all, more.Claims(&all)
}

// End ends a session. Its response contains the URL that the UI should go to next: the provider's log-out page or, if
// there is no such page, the home page.
func (s *Service) End(w http.ResponseWriter, r *http.Request) {
	if !s.OwnPage(r) {
		err := refusal.New(refusal.Forbidden, "only pages of this site can log out", "")
		err.Write(w, err.Problem())
		return
	}
	s.remove(w, sessionCookie)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	answer := struct {
		URL string `json:"url"`
	}{s.farewell(r.Context())}
	_ = json.NewEncoder(w).Encode(answer) // fails only if the client has disconnected
}

// farewell returns the address of the provider's log-out page, which then leads back to the UI. If there is no such
// page, or the provider can't be reached, it returns the address of the UI.
func (s *Service) farewell(ctx context.Context) string {
	home := s.options.URL + "/"
	p, err := s.discover(ctx)
	if err != nil {
		return home
	}
	address, err := url.Parse(p.logout)
	if err != nil || p.logout == "" {
		return home
	}
	query := address.Query()
	query.Set("client_id", s.options.ClientID)
	query.Set("post_logout_redirect_uri", home)
	address.RawQuery = query.Encode()
	return address.String()
}
