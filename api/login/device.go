package login

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// Limits on the device flow. Anybody may start a log-in, and each start is a request to the provider.
const (
	deviceLife     = 10 * time.Minute       // at most; the provider may end a log-in earlier
	deviceInterval = 5 * time.Second        // between polls, unless the provider says otherwise; added at slow_down
	startInterval  = 250 * time.Millisecond // between starts, after the first startBurst
	startBurst     = 40
	clientInterval = 2 * time.Second // between starts of a client, after its first clientBurst
	clientBurst    = 10
)

// Error codes of the provider's token endpoint (RFC 8628).
const (
	answerPending  = "authorization_pending"
	answerSlowDown = "slow_down"
	answerExpired  = "expired_token"
)

// deviceFlow is a program's pending log-in, which a person confirms in a browser, perhaps on another device.
type deviceFlow struct {
	provider *provider
	oauth    *oauth2.Config
	code     string // device code, which identifies the log-in at the provider
	verifier string // PKCE code verifier
	expires  time.Time
	interval time.Duration // between requests to the provider
	next     time.Time     // earliest time of the next request
}

// deviceFlows holds the log-ins in progress by handle. The limits on starts bound their number to
// deviceLife/startInterval+startBurst. Log-ins don't survive a restart. A handle yields at most one session. We poll
// the provider at the interval of the log-in, however often clients poll us.
type deviceFlows struct {
	mu    sync.Mutex
	flows map[string]*deviceFlow
}

// add stores f and returns a new handle for it. It also deletes the log-ins that have expired.
func (d *deviceFlows) add(f *deviceFlow, now time.Time) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.flows, func(_ string, f *deviceFlow) bool { return !now.Before(f.expires) })
	handle := rand.Text()
	d.flows[handle] = f
	return handle
}

// turn returns the log-in with the given handle, or nil if it is unknown or has expired, and the time to wait before
// asking the provider about it. If the wait is 0, the caller must ask now.
func (d *deviceFlows) turn(handle string, now time.Time) (*deviceFlow, time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.flows[handle]
	if f == nil || !now.Before(f.expires) {
		return nil, 0
	}
	if wait := f.next.Sub(now); wait > 0 {
		return f, wait
	}
	f.next = now.Add(f.interval)
	return f, 0
}

// slowDown returns the polling interval of f. If asked is set, the provider answered slow_down, and slowDown first adds
// deviceInterval to the interval.
func (d *deviceFlows) slowDown(f *deviceFlow, asked bool) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if asked {
		f.interval += deviceInterval
		f.next = f.next.Add(deviceInterval)
	}
	return f.interval
}

// end removes the log-in with the given handle, and reports whether it existed.
func (d *deviceFlows) end(handle string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, was := d.flows[handle]
	delete(d.flows, handle)
	return was
}

// StartDevice starts the device flow for the program that sent r. A person confirms the log-in in a browser elsewhere.
func (s *Service) StartDevice(r *http.Request) (*contract.DeviceLogin, error) {
	ctx := r.Context()
	if !s.starts.admit(clientOf(r), s.options.Clock()) {
		return nil, refusal.New(refusal.Overloaded, "too many log-ins were started", "").Later(clientInterval)
	}
	p, err := s.discover(ctx)
	if err != nil {
		return nil, s.unreachable().refusal()
	}
	if p.Endpoint().DeviceAuthURL == "" {
		none := refusal.New(refusal.Failed, "the identity provider does not support the device flow, which log-in "+
			"without a browser needs", "use a token: sibyl token create")
		none.Status = http.StatusNotImplemented
		return nil, none
	}
	f := &deviceFlow{provider: p, verifier: oauth2.GenerateVerifier()}
	code, err := s.requestCode(ctx, f)
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok && refused.ErrorCode != "" {
		s.warn(ctx, "the identity provider refused to start the device flow", err)
		e := s.refused(refused.ErrorCode, refused.ErrorDescription).refusal()
		e.Hint = "its operator may have to allow the device flow for Sibyl; tokens of sibyl token create work"
		return nil, e
	}
	if err != nil {
		s.warn(ctx, "the identity provider does not answer", err)
		return nil, s.unreachable().refusal()
	}
	if code.DeviceCode == "" || code.UserCode == "" || code.VerificationURI == "" {
		return nil, s.broken(ctx, errors.New("the device endpoint's answer lacks a code or an address")).refusal()
	}
	now := s.options.Clock()
	f.code, f.expires, f.interval = code.DeviceCode, now.Add(deviceLife), deviceInterval
	if !code.Expiry.IsZero() && code.Expiry.Before(f.expires) {
		f.expires = code.Expiry
	}
	if code.Interval > 0 {
		f.interval = time.Duration(min(code.Interval, int64(deviceLife/time.Second))) * time.Second
	}
	f.next = now.Add(f.interval)
	return &contract.DeviceLogin{
		Handle:                  s.devices.add(f, now),
		UserCode:                code.UserCode,
		VerificationURI:         code.VerificationURI,
		VerificationURIComplete: code.VerificationURIComplete,
		ExpiresIn:               f.expires.Sub(now).Seconds(),
		Interval:                f.interval.Seconds(),
	}, nil
}

// requestCode requests a device code from the provider, and sets f.oauth. A client with a secret authenticates in the
// header or, if the provider refuses that, in the body. f.oauth uses the same style for the token endpoint. If we let
// oauth2 detect the style, it would take authorization_pending for a sign of the wrong style, and immediately repeat
// each request.
func (s *Service) requestCode(ctx context.Context, f *deviceFlow) (code *oauth2.DeviceAuthResponse, err error) {
	o := &s.options
	styles := []oauth2.AuthStyle{oauth2.AuthStyleInHeader, oauth2.AuthStyleInParams}
	if o.ClientSecret == "" {
		styles = styles[1:]
	}
	for _, style := range styles {
		endpoint := f.provider.Endpoint()
		endpoint.AuthStyle = style
		f.oauth = &oauth2.Config{
			ClientID:     o.ClientID,
			ClientSecret: o.ClientSecret,
			Endpoint:     endpoint,
			Scopes:       o.Scopes,
		}
		client, options := s.client, []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(f.verifier)}
		switch {
		case style == oauth2.AuthStyleInHeader:
			client = &http.Client{Timeout: providerTimeout, Transport: withSecret{o.ClientID, o.ClientSecret}}
		case o.ClientSecret != "":
			options = append(options, oauth2.SetAuthURLParam("client_secret", o.ClientSecret))
		}
		code, err = f.oauth.DeviceAuth(oidc.ClientContext(ctx, client), options...)
		if _, refused := errors.AsType[*oauth2.RetrieveError](err); !refused {
			break
		}
	}
	return code, err
}

// withSecret is a transport that authenticates the client with HTTP Basic authentication, as OAuth prescribes.
type withSecret struct{ id, secret string }

// RoundTrip implements http.RoundTripper.
func (c withSecret) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.SetBasicAuth(url.QueryEscape(c.id), url.QueryEscape(c.secret))
	return http.DefaultTransport.RoundTrip(r)
}

// errEnded is the refusal for an unknown handle.
var errEnded = refusal.New(refusal.NotFound,
	"this log-in has ended: it was completed or refused, has expired, or Sibyl has restarted since",
	"start another one")

// DeviceToken returns the session of the log-in with the given handle, or the time to wait before asking again. It also
// returns the person whom the provider named, even if the person has no role and gets no session, or the zero Principal
// if it named nobody.
func (s *Service) DeviceToken(ctx context.Context, handle string) (*contract.DeviceToken, access.Principal, error) {
	var nobody access.Principal
	f, wait := s.devices.turn(handle, s.options.Clock())
	switch {
	case f == nil:
		return nil, nobody, errEnded
	case wait > 0:
		return &contract.DeviceToken{Interval: wait.Seconds()}, nobody, nil
	}
	ctx = oidc.ClientContext(ctx, s.client)
	token, err := f.oauth.Exchange(ctx, "",
		oauth2.SetAuthURLParam("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
		oauth2.SetAuthURLParam("device_code", f.code),
		oauth2.VerifierOption(f.verifier))
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case ok && (refused.ErrorCode == answerPending || refused.ErrorCode == answerSlowDown):
		interval := s.devices.slowDown(f, refused.ErrorCode == answerSlowDown)
		return &contract.DeviceToken{Interval: interval.Seconds()}, nobody, nil
	case err != nil && (!ok || refused.ErrorCode == ""):
		s.warn(ctx, "the identity provider does not answer", err)
		return nil, nobody, s.unreachable().refusal()
	case !s.devices.end(handle), ok && refused.ErrorCode == answerExpired:
		return nil, nobody, errEnded
	case ok:
		return nil, nobody, s.refused(refused.ErrorCode, refused.ErrorDescription).refusal()
	}
	return s.newToken(ctx, f.provider, token)
}

// newToken returns a session for the person that the provider issued token to. The other results are like those from
// DeviceToken.
func (s *Service) newToken(
	ctx context.Context, p *provider, token *oauth2.Token,
) (*contract.DeviceToken, access.Principal, error) {
	text, _ := token.Extra("id_token").(string)
	id, err := p.verify(ctx, text, s.options.ClientID)
	if err != nil {
		return nil, access.Principal{}, s.broken(ctx, err).refusal()
	}
	x, failed := s.begin(ctx, p, token, id)
	who := s.principal(x)
	if failed != nil {
		return nil, who, failed.refusal()
	}
	expires := s.options.Clock().Add(tokenSession.life)
	sealed, err := s.seal(tokenSession, x)
	if err != nil {
		return nil, who, fmt.Errorf("seal a session: %w", err)
	}
	return &contract.DeviceToken{
		Token:   tokenPrefix + sealed,
		Expires: expires.UTC().Truncate(time.Second),
		Name:    who.Name,
		Role:    string(who.Role),
	}, who, nil
}

// tokenPrefix is the prefix of the session tokens of programs, which contain one dot. Sibyl's own tokens contain no
// dot, and JWTs contain two.
const tokenPrefix = "sibyl_login."

// IsSession reports whether a bearer token has the form of a session token.
func IsSession(token string) bool { return strings.HasPrefix(token, tokenPrefix) }

// Session returns the person that a program's session token belongs to, or a refusal.
func (s *Service) Session(token string) (access.Principal, error) {
	var x session
	if !s.open(tokenSession, strings.TrimPrefix(token, tokenPrefix), &x) {
		return access.Principal{}, s.unauthenticated("the log-in has expired", true)
	}
	return s.person(x)
}
