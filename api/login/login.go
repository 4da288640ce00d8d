// Package login lets people log in at an identity provider with OpenID Connect: the code flow with PKCE, state and
// nonce. Both the attempt to log in and the session that follows are sealed cookies, so the service stores nothing
// about them, and requests in a session don't involve the provider. Programs can send JWTs issued by the provider
// instead.
//
// A person can also use the device flow to log in a program that runs where there is no browser. The service acts as
// the provider's client, so the program needs neither the provider's address nor the client's secret, and never gets a
// token of the provider. Its session is sealed like a browser's, but sent as a bearer token.
//
// The provider may be down when the service starts, or at any time later. The service needs it only to log people in,
// and to verify tokens signed with a key that the service hasn't seen yet.
package login

import (
	"context"
	"crypto/cipher"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// Options configure log-in.
type Options struct {
	Issuer       string
	ClientID     string
	ClientSecret string // empty: a public client
	Audience     string // required audience of the JWTs that programs send; empty: ClientID
	Scopes       []string
	URL          string // of the UI, as browsers see it, without a trailing slash
	Roles        Roles
	TenantClaim  string // claim whose values are names of tenants; empty: no such claim
	IsTenant     func(name string) bool
	Dir          string // holds the key that seals sessions
	Clock        func() time.Time
	Log          *slog.Logger
}

// Paths of the handlers, below the base path of the UI.
const (
	StartPath    = "/login"
	CallbackPath = "/login/callback"
	EndPath      = "/logout"

	DevicePath      = "/login/device"
	DeviceTokenPath = "/login/device/token"
)

// Limits on the use of the provider.
const (
	providerTimeout  = 10 * time.Second
	providerInterval = 5 * time.Second // between attempts to discover it, requests for its keys, and warnings
	maxExchanges     = 32              // log-ins being completed at a time; anybody can cause some
	clientExchanges  = 8               // the same, per client
)

// Service logs people in, and identifies them in later requests. It is safe for concurrent use.
type Service struct {
	options Options
	origin  string // of URL: scheme, host and port
	base    string // path of URL; may be empty
	suffix  string // of cookie names
	sealer  cipher.AEAD
	client  *http.Client
	warning pace // limits warnings about failed log-ins
	devices deviceFlows

	starts    starts
	exchanges exchanges

	mu       sync.Mutex // guards the fields below; held while the provider is being asked
	provider *provider  // nil until discovered
	failed   error      // error from the last attempt to discover it
	tried    time.Time  // end of that attempt
}

// provider is an identity provider, as described by its metadata.
type provider struct {
	*oidc.Provider
	oauth    oauth2.Config
	verifier *oidc.IDTokenVerifier // checks everything but the audience
	logout   string                // address of its log-out page; empty if it has no such page
}

// New returns a Service. It creates the key in o.Dir if there is no key yet. It doesn't contact the provider.
func New(o Options) (*Service, error) {
	address, err := url.Parse(o.URL)
	if err != nil {
		return nil, fmt.Errorf("address of the UI: %w", err)
	}
	s := &Service{
		options: o,
		origin:  address.Scheme + "://" + address.Host,
		base:    address.Path,
		suffix:  suffixOf(o.URL),
		client:  &http.Client{Timeout: providerTimeout},
		warning: pace{clock: o.Clock},
		devices: deviceFlows{flows: make(map[string]*deviceFlow)},

		starts:    starts{clients: make(map[client]time.Time)},
		exchanges: exchanges{clients: make(map[client]int)},
	}
	if o.Audience == "" {
		s.options.Audience = o.ClientID
	}
	s.sealer, err = newSealer(o.Dir)
	return s, err
}

// Address returns the address at which people log in.
func (s *Service) Address() string { return s.options.URL + StartPath }

// Discover asks the provider for its metadata, unless that has succeeded before. It logs failures, so call it at
// startup, when somebody is likely to be watching the log. If it fails, s tries again when the provider is next needed.
func (s *Service) Discover(ctx context.Context) { _, _ = s.discover(ctx) }

func (s *Service) discover(ctx context.Context) (*provider, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.provider != nil || s.failed != nil && s.options.Clock().Sub(s.tried) < providerInterval {
		return s.provider, s.failed
	}
	// Other requests need the result, too, so the attempt continues if this client disconnects.
	s.provider, s.failed = s.find(oidc.ClientContext(context.WithoutCancel(ctx), s.client))
	s.tried = s.options.Clock()
	if s.failed != nil {
		s.options.Log.WarnContext(ctx, "people cannot log in: the identity provider does not answer; tokens work",
			slog.String("issuer", s.options.Issuer), slog.Any("error", s.failed))
	}
	return s.provider, s.failed
}

// find fetches the provider's metadata.
func (s *Service) find(ctx context.Context) (*provider, error) {
	o := &s.options
	found, err := oidc.NewProvider(ctx, o.Issuer)
	if err != nil {
		return nil, err
	}
	endpoint := found.Endpoint()
	if o.ClientSecret == "" {
		endpoint.AuthStyle = oauth2.AuthStyleInParams // otherwise it first tries an empty password
	}
	var more struct {
		Logout string `json:"end_session_endpoint"`
	}
	if err := found.Claims(&more); err != nil {
		return nil, err
	}
	keys := &http.Client{Timeout: providerTimeout, Transport: &sparing{pace{clock: o.Clock}}}
	return &provider{
		Provider: found,
		oauth: oauth2.Config{
			ClientID:     o.ClientID,
			ClientSecret: o.ClientSecret,
			Endpoint:     endpoint,
			RedirectURL:  o.URL + CallbackPath,
			Scopes:       o.Scopes,
		},
		verifier: found.VerifierContext(oidc.ClientContext(ctx, keys),
			&oidc.Config{SkipClientIDCheck: true, Now: o.Clock}),
		logout: more.Logout,
	}, nil
}

// pace limits an action that anybody can trigger to once per providerInterval.
type pace struct {
	clock func() time.Time
	mu    sync.Mutex
	last  time.Time // time of the last action
}

// allow reports whether the action may happen now. If so, it records the time.
func (p *pace) allow() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	if now.Sub(p.last) < providerInterval {
		return false
	}
	p.last = now
	return true
}

// sparing is the transport that fetches the provider's keys. It limits the rate of fetches, because anybody can trigger
// one with a token that names an unknown key.
type sparing struct{ pace }

var errSparing = errors.New("the provider's keys were fetched a few seconds ago")

// RoundTrip implements http.RoundTripper.
func (s *sparing) RoundTrip(r *http.Request) (*http.Response, error) {
	if !s.allow() {
		return nil, errSparing
	}
	return http.DefaultTransport.RoundTrip(r)
}

// verify returns the contents of a token if the provider signed it for the audience, it is valid now, and it names its
// subject. Without a subject, nobody could tell later who used the token.
func (p *provider) verify(ctx context.Context, token, audience string) (*oidc.IDToken, error) {
	id, err := p.verifier.Verify(ctx, token)
	if err == nil && !slices.Contains(id.Audience, audience) {
		err = fmt.Errorf("the token is for %q, want %q", id.Audience, audience)
	}
	if err == nil && id.Subject == "" {
		err = errors.New("the token names nobody: it has no claim sub")
	}
	return id, err
}

// IsJWT reports whether a bearer token has the form of a JWT, as providers issue them. Sibyl's own tokens have no dots.
func IsJWT(token string) bool { return strings.Count(token, ".") == 2 }

// Program returns the caller that a JWT of the provider identifies, or a refusal.
func (s *Service) Program(ctx context.Context, token string) (access.Principal, error) {
	var none access.Principal
	p, err := s.discover(ctx)
	if err != nil {
		return none, refusal.New(refusal.Overloaded, "the identity provider cannot be reached, so its tokens cannot "+
			"be checked", "those of sibyl token create work").Later(providerInterval)
	}
	id, err := p.verify(ctx, token, s.options.Audience)
	if err != nil {
		s.options.Log.DebugContext(ctx, "a token of the identity provider was refused", slog.Any("error", err))
		return none, s.unauthenticated("the token is not a valid one of the identity provider for this service", true)
	}
	claims := make(claims)
	if err := id.Claims(&claims); err != nil {
		return none, err
	}
	role, _ := s.options.Roles.of(claims)
	if role == "" {
		return none, refusal.New(refusal.Forbidden,
			fmt.Sprintf("the claim %s of the token gives no role in Sibyl", s.options.Roles.Claim),
			"its operator can name one of the values in auth.oidc.roles")
	}
	who := s.named(claims.name(), id.Subject, role, access.ViaJWT)
	who.Tenants = s.options.tenants(claims)
	return who, nil
}

// Person returns the person that the session cookie in r belongs to, or a refusal.
func (s *Service) Person(r *http.Request) (access.Principal, error) {
	var x session
	if !s.read(r, sessionCookie, &x) {
		return access.Principal{}, s.unauthenticated("you are not logged in", false)
	}
	return s.person(x)
}

// person returns the person of a session, or a refusal if they no longer have a role.
func (s *Service) person(x session) (access.Principal, error) {
	who := s.principal(x)
	if who.Role == "" {
		return access.Principal{}, s.unauthenticated("your role has changed: log in again", false)
	}
	return who, nil
}

// principal returns the person of a session, or the zero value for the zero session. The person has no role if the
// configuration no longer maps x.Value to a role.
func (s *Service) principal(x session) access.Principal {
	if x.Subject == "" {
		return access.Principal{}
	}
	role := s.options.Roles.from([]string{x.Value})
	who := s.named(x.Name, x.Subject, role, access.ViaLogin)
	who.Tenants = x.Tenants
	return who
}

// named returns a caller who was authenticated by the provider.
func (s *Service) named(name, subject string, role access.Role, via string) access.Principal {
	return access.Principal{Name: name, Role: role, Subject: subject, Issuer: s.options.Issuer, Via: via}
}

// unauthenticated returns the refusal for an unknown caller. invalid is set if the caller sent a token, and the token
// is invalid.
func (s *Service) unauthenticated(detail string, invalid bool) error {
	err := refusal.New(refusal.Unauthenticated, detail,
		"log in at "+s.Address()+", or send Authorization: Bearer … with a token")
	challenge := `Bearer realm="sibyl"`
	if invalid {
		challenge += `, error="invalid_token"`
	}
	err.Header = http.Header{"Www-Authenticate": {challenge}}
	return err
}

// OwnPage reports whether a page of the UI sent r, a request that changes something. Browsers name the origin of the
// page in each such request. The session's cookie proves nothing, because browsers also add it to requests from other
// pages on the same host.
func (s *Service) OwnPage(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return r.Header.Get("Origin") == s.origin && (site == "" || site == "same-origin")
}
