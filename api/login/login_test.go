package login

import (
	"bytes"
	"context"
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/oauth2-proxy/mockoidc"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/internal/testkit/device"
)

// world is a service with an identity provider, which answers every person with the groups of the next user.
type world struct {
	*Service
	t        *testing.T
	provider *mockoidc.MockOIDC
	device   *device.Endpoint // of the provider
	site     *httptest.Server
	options  Options
	ahead    time.Duration                       // of the service's clock
	alter    func(header, claims map[string]any) // changes the ID tokens of log-ins; may be nil
	keys     atomic.Int64                        // requests for the provider's keys
	codes    atomic.Int64                        // codes that the provider was asked to exchange
	hold     chan struct{}                       // not nil: exchanges end when it is closed
	down     atomic.Bool                         // the provider closes connections without an answer
	log      bytes.Buffer
}

// newWorld returns a world whose provider runs.
func newWorld(t *testing.T, change ...func(*Options)) *world {
	t.Helper()
	w := &world{t: t}
	var err error
	if w.provider, err = mockoidc.NewServer(nil); err != nil {
		t.Fatal(err)
	}
	if err := w.provider.AddMiddleware(w.intercept); err != nil {
		t.Fatal(err)
	}
	w.device = device.Add(t, w.provider)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.provider.Start(l, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.provider.Server.Close() })
	mux := http.NewServeMux()
	w.site = httptest.NewServer(mux)
	t.Cleanup(w.site.Close)
	w.options = Options{
		Issuer:       w.provider.Issuer(),
		ClientID:     w.provider.ClientID,
		ClientSecret: w.provider.ClientSecret,
		Scopes:       []string{"openid", "email", "groups"},
		URL:          w.site.URL,
		Roles:        testRoles("groups"),
		Dir:          t.TempDir(),
		Clock:        func() time.Time { return time.Now().Add(w.ahead) },
		Log:          slog.New(slog.NewTextHandler(&w.log, nil)),
	}
	for _, f := range change {
		f(&w.options)
	}
	w.restart()
	mux.HandleFunc("GET "+StartPath, func(a http.ResponseWriter, r *http.Request) { w.Start(a, r) })
	mux.HandleFunc("GET "+CallbackPath, func(a http.ResponseWriter, r *http.Request) { w.Callback(a, r) })
	mux.HandleFunc("POST "+EndPath, func(a http.ResponseWriter, r *http.Request) { w.End(a, r) })
	mux.HandleFunc("GET /", func(a http.ResponseWriter, r *http.Request) {
		who, err := w.Person(r)
		fmt.Fprint(a, r.URL.RequestURI(), " ", who, " ", err)
	})
	return w
}

// testRoles returns roles by claim.
func testRoles(claim string) Roles {
	return Roles{Claim: claim, Admin: []string{"root"}, Operator: []string{"ops"}, Viewer: []string{"staff"}}
}

// restart replaces the service with a new one, which has the same data directory.
func (w *world) restart() {
	w.t.Helper()
	var err error
	if w.Service, err = New(w.options); err != nil {
		w.t.Fatal(err)
	}
}

// intercept counts requests for the provider's keys, and replaces its ID tokens as w.alter says.
func (w *world) intercept(next http.Handler) http.Handler {
	return http.HandlerFunc(func(a http.ResponseWriter, r *http.Request) {
		if w.down.Load() {
			panic(http.ErrAbortHandler)
		}
		if r.URL.Path == mockoidc.JWKSEndpoint {
			w.keys.Add(1)
		}
		if r.URL.Path == mockoidc.TokenEndpoint {
			w.codes.Add(1)
			if w.hold != nil {
				<-w.hold
			}
		}
		if r.URL.Path != mockoidc.TokenEndpoint || w.alter == nil {
			next.ServeHTTP(a, r)
			return
		}
		recorded := httptest.NewRecorder()
		next.ServeHTTP(recorded, r)
		var answer map[string]any
		if err := json.Unmarshal(recorded.Body.Bytes(), &answer); err != nil {
			w.t.Error(err)
		}
		if text, ok := answer["id_token"].(string); ok {
			_, claims := w.decode(text)
			answer["id_token"] = w.sign(claims, w.alter)
		}
		a.Header().Set("Content-Type", "application/json")
		a.WriteHeader(recorded.Code)
		_ = json.NewEncoder(a).Encode(answer)
	})
}

// decode returns the contents of a JWT.
func (w *world) decode(token string) (header, claims map[string]any) {
	for i, to := range []*map[string]any{&header, &claims} {
		text, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[i])
		if err == nil {
			err = json.Unmarshal(text, to)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
	return header, claims
}

// sign returns a JWT of the provider with claims, both changed by alter.
func (w *world) sign(claims map[string]any, alter func(header, claims map[string]any)) string {
	id, err := w.provider.Keypair.KeyID()
	if err != nil {
		w.t.Fatal(err)
	}
	header := map[string]any{"alg": "RS256", "typ": "JWT", "kid": id}
	if alter != nil {
		alter(header, claims)
	}
	var parts [2]string
	for i, part := range []map[string]any{header, claims} {
		text, err := json.Marshal(part)
		if err != nil {
			w.t.Fatal(err)
		}
		parts[i] = base64.RawURLEncoding.EncodeToString(text)
	}
	signed := parts[0] + "." + parts[1]
	sum := sha256.Sum256([]byte(signed))
	var signature []byte
	switch header["alg"] {
	case "RS256":
		signature, err = rsa.SignPKCS1v15(rand.Reader, w.provider.Keypair.PrivateKey, crypto.SHA256, sum[:])
	case "HS256": // with the public key as the secret
		mac := hmac.New(sha256.New, w.provider.Keypair.PublicKey.N.Bytes())
		mac.Write([]byte(signed))
		signature = mac.Sum(nil)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// token returns a JWT for a program, changed by alter.
func (w *world) token(alter func(header, claims map[string]any)) string {
	return w.sign(map[string]any{
		"iss":    w.provider.Issuer(),
		"aud":    []string{w.options.ClientID},
		"sub":    "machine",
		"exp":    time.Now().Add(time.Hour).Unix(),
		"iat":    time.Now().Unix(),
		"groups": []string{"x", "ops"},
	}, alter)
}

// person lets the next log-in be by a person with the given groups.
func (w *world) person(groups ...string) {
	w.provider.QueueUser(&mockoidc.MockUser{
		Subject: "u1", Email: "ann@example.com", EmailVerified: true, Groups: groups,
	})
}

// browser is a client with cookies.
type browser struct {
	http.Client
	t *testing.T
	w *world
}

func (w *world) browser() *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return &browser{http.Client{Jar: jar}, w.t, w}
}

// get follows all redirects. It returns the status, the last URL and the body.
func (b *browser) get(address string) (status int, last *url.URL, body string) {
	b.t.Helper()
	return b.do(http.MethodGet, address)
}

func (b *browser) do(method, address string, headers ...string) (status int, last *url.URL, body string) {
	b.t.Helper()
	r, err := http.NewRequest(method, address, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := b.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer.StatusCode, answer.Request.URL, string(text)
}

// back goes to the provider and returns the address to which it sends the browser back, without going there.
func (b *browser) back() string {
	b.t.Helper()
	var at string
	b.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if r.URL.Path == CallbackPath {
			at = r.URL.String()
			return http.ErrUseLastResponse
		}
		return nil
	}
	b.get(b.w.site.URL + StartPath)
	b.CheckRedirect = nil
	return at
}

// loggedIn reports whether the browser has a session.
func (b *browser) loggedIn() bool {
	b.t.Helper()
	_, _, body := b.get(b.w.site.URL + "/")
	return !strings.Contains(body, "not logged in")
}

// A person logs in, returns to the page asked for, keeps the session for eight hours, and logs out.
func TestLogIn(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	w.person("team", "ops")
	_, last, body := b.get(w.site.URL + StartPath + "?to=" + url.QueryEscape("/problems/1?a=b"))
	want := "/problems/1?a=b {ann@example.com operator u1 " + w.options.Issuer + "  login  } <nil>"
	if last.Path != "/problems/1" || body != want {
		t.Errorf("at %s: %s", last, body)
	}
	for _, c := range b.Jar.Cookies(parsed(t, w.site.URL)) {
		if !strings.HasPrefix(c.Name, "sibyl-session-") {
			t.Errorf("the browser keeps %s", c.Name)
		}
	}
	_ = w.provider.Shutdown() // sessions don't need it
	w.restart()
	w.ahead = sessionCookie.life - time.Minute
	if !b.loggedIn() {
		t.Error("the session is over before its end")
	}
	w.ahead = sessionCookie.life
	if b.loggedIn() {
		t.Error("the session has no end")
	}
	w.ahead = 0
	for _, headers := range [][]string{
		{},
		{"Origin", "https://evil.example"},
		{"Sec-Fetch-Site", "same-origin"},
		{"Origin", w.site.URL, "Sec-Fetch-Site", "cross-site"},
	} {
		status, _, _ := b.do(http.MethodPost, w.site.URL+EndPath, headers...)
		if status != http.StatusForbidden || !b.loggedIn() {
			t.Errorf("a page with %v logs the person out: %d", headers, status)
		}
	}
	status, _, answer := b.do(http.MethodPost, w.site.URL+EndPath, "Origin", w.site.URL)
	if status != http.StatusOK || answer != `{"url":"`+w.site.URL+`/"}`+"\n" || b.loggedIn() {
		t.Errorf("log-out: %d, %s", status, answer)
	}
}

func parsed(t *testing.T, address string) *url.URL {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// Attacks on a log-in, and answers of a provider that must not be believed, give no session.
func TestForgedLogIn(t *testing.T) {
	set := func(key string, value any) func(_, claims map[string]any) {
		return func(_, claims map[string]any) { claims[key] = value }
	}
	for name, c := range map[string]struct {
		alter  func(header, claims map[string]any)
		change func(w *world, callback string) string // of the callback's address
		status int
	}{
		"foreign state": {
			change: func(_ *world, at string) string { return strings.Replace(at, "state=", "state=x", 1) },
			status: http.StatusBadRequest,
		},
		"no state": {
			change: func(_ *world, at string) string { return strings.Replace(at, "state=", "other=", 1) },
			status: http.StatusBadRequest,
		},
		"late": {
			change: func(w *world, at string) string { w.ahead = attemptCookie.life; return at },
			status: http.StatusBadRequest,
		},
		"foreign code": {
			change: func(_ *world, at string) string { return strings.Replace(at, "code=", "code=x", 1) },
			status: http.StatusForbidden,
		},
		"refused": {
			change: func(_ *world, at string) string { return at + "&error=access_denied" },
			status: http.StatusForbidden,
		},
		"no subject":       {alter: set("sub", nil), status: http.StatusForbidden},
		"foreign nonce":    {alter: set("nonce", "x"), status: http.StatusForbidden},
		"no nonce":         {alter: set("nonce", nil), status: http.StatusForbidden},
		"foreign audience": {alter: set("aud", "another"), status: http.StatusForbidden},
		"foreign issuer":   {alter: set("iss", "https://evil.example"), status: http.StatusForbidden},
		"expired":          {alter: set("exp", time.Now().Add(-time.Second).Unix()), status: http.StatusForbidden},
		"no end":           {alter: set("exp", nil), status: http.StatusForbidden},
		"not signed":       {alter: func(h, _ map[string]any) { h["alg"] = "none" }, status: http.StatusForbidden},
		"symmetric":        {alter: func(h, _ map[string]any) { h["alg"] = "HS256" }, status: http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.alter = c.alter
			b := w.browser()
			w.person("root")
			at := b.back()
			if c.change != nil {
				at = c.change(w, at)
			}
			if status, _, body := b.get(at); status != c.status || b.loggedIn() {
				t.Errorf("%d, want %d: %s", status, c.status, body)
			}
			if n := w.codes.Load(); c.status == http.StatusBadRequest && n > 0 {
				t.Errorf("the provider was asked for %d codes", n)
			}
		})
	}
}

// However many browsers come back at once, the provider is asked about few, and about some of each client. The others
// can come again.
func TestManyExchanges(t *testing.T) {
	w := newWorld(t)
	w.hold = make(chan struct{})
	const clients = maxExchanges / clientExchanges
	type end struct {
		status int
		b      *browser
		from   string
		at     string // the callback's address
	}
	ends := make(chan end)
	for i := range maxExchanges + clients {
		b, from := w.browser(), fmt.Sprint("192.0.2.", i%clients)
		w.person("staff")
		at := b.back()
		go func() {
			status, _, _ := b.do(http.MethodGet, at, "X-Forwarded-For", from)
			ends <- end{status, b, from, at}
		}()
	}
	refused := make(map[string]bool)
	var late end
	for range clients {
		if late = <-ends; late.status != http.StatusServiceUnavailable || refused[late.from] {
			t.Errorf("beyond the limit: %d, %s", late.status, late.from)
		}
		refused[late.from] = true
	}
	if n := w.codes.Load(); n > maxExchanges {
		t.Errorf("%d exchanges at a time, want at most %d", n, maxExchanges)
	}
	close(w.hold)
	for range maxExchanges {
		if in := <-ends; in.status != http.StatusOK || !in.b.loggedIn() {
			t.Errorf("within the limit: %d", in.status)
		}
	}
	if late.b.get(late.at); !late.b.loggedIn() {
		t.Error("a person who was refused can't come again")
	}
}

// Anybody can make log-ins fail as often as they like. That does not fill the log.
func TestManyFailures(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	for range 20 {
		b.get(strings.Replace(b.back(), "code=", "code=x", 1))
	}
	if n := strings.Count(w.log.String(), "refused its code"); n != 1 {
		t.Errorf("%d warnings: %s", n, w.log.String())
	}
	w.ahead += providerInterval
	b.get(strings.Replace(b.back(), "code=", "code=x", 1))
	if n := strings.Count(w.log.String(), "refused its code"); n != 2 {
		t.Errorf("%d warnings after %v", n, providerInterval)
	}
}

// A callback works once, and only in the browser that started the log-in.
func TestReplay(t *testing.T) {
	w := newWorld(t)
	victim, attacker := w.browser(), w.browser()
	w.person("root")
	at := victim.back()
	if status, _, _ := attacker.get(at); status != http.StatusBadRequest || attacker.loggedIn() {
		t.Errorf("in another browser: %d", status)
	}
	if victim.get(at); !victim.loggedIn() {
		t.Fatal("not logged in")
	}
	if status, _, _ := victim.get(at); status != http.StatusBadRequest {
		t.Errorf("again: %d", status)
	}
}

// Whatever a link asks for, a person returns to a page of this site.
func TestReturnPath(t *testing.T) {
	w := newWorld(t)
	for to, want := range map[string]string{
		"":                                 "/",
		"/problems?x=%2f#y":                "/problems?x=%2f#y",
		"//evil.example":                   "/",
		"https://evil.example":             "/",
		"/\\evil.example":                  "/\\evil.example", // after our own origin, this is a path
		"javascript:alert(1)":              "/",
		"problems":                         "/",
		"/a\nSet-Cookie: b":                "/",
		"/" + strings.Repeat("a", maxPath): "/",
	} {
		if got := w.pathOf(to); got != want {
			t.Errorf("%q leads to %q, want %q", to, got, want)
		}
		w.person("root")
		_, last, body := w.browser().get(w.site.URL + StartPath + "?to=" + url.QueryEscape(to))
		if !strings.HasPrefix(last.String(), w.site.URL+"/") {
			t.Errorf("%q leads to %s: %s", to, last, body)
		}
	}
	below := newWorld(t, func(o *Options) { o.URL += "/sibyl" })
	for to, want := range map[string]string{
		"/other": "/sibyl/", "/sibyl/status": "/sibyl/status", "/sibyl": "/sibyl/",
	} {
		if got := below.pathOf(to); got != want {
			t.Errorf("%q leads to %q, want %q", to, got, want)
		}
	}
}

// The page for a person without a role says which claim Sibyl read, what it contains, and whom to ask.
func TestNoRole(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	w.person("team", "<b>x</b>")
	status, _, body := b.get(w.site.URL + StartPath)
	for _, want := range []string{
		"ann@example.com", "claim groups", "team, &lt;b&gt;", "auth.oidc.roles", StartPath + "?again",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %s: %s", want, body)
		}
	}
	if status != http.StatusForbidden || b.loggedIn() {
		t.Errorf("status %d", status)
	}
	w.person("staff") // the person asked
	if b.get(w.site.URL + StartPath); !b.loggedIn() {
		t.Error("not logged in with a role")
	}
	w.options.Roles.Viewer = nil // the role ends with the value in the configuration
	w.restart()
	if _, _, body := b.get(w.site.URL + "/"); !strings.Contains(body, "your role has changed") {
		t.Error(body)
	}
}

// The claim for tenants limits its owner to them. Without values, people enter the default tenant, and admins all.
func TestTenantClaim(t *testing.T) {
	w := newWorld(t)
	tenants := []string{"default", "shop", "pay"}
	w.options.TenantClaim = "access.teams"
	w.options.IsTenant = func(name string) bool { return slices.Contains(tenants, name) }
	w.restart()
	for _, c := range []struct {
		teams, roles any
		enters       string
	}{
		{[]string{"shop", "other"}, "root", "shop"},
		{"pay", "ops", "pay"},
		{[]string{"default", "pay"}, "ops", "default pay"},
		{"other", "root", ""},
		{[]string{"."}, "root", ""},
		{[]string{}, "root", "default shop pay"},
		{nil, "ops", "default"},
	} {
		who, err := w.Program(context.Background(), w.token(func(_, claims map[string]any) {
			claims["groups"], claims["access"] = c.roles, map[string]any{"teams": c.teams}
		}))
		if err != nil {
			t.Fatal(err)
		}
		var enters []string
		for _, name := range tenants {
			if who.Tenants.Enters(strings.TrimPrefix(name, "default"), who.Role) {
				enters = append(enters, name)
			}
		}
		if got := strings.Join(enters, " "); got != c.enters {
			t.Errorf("%v, %v: enters %q, want %q", c.teams, c.roles, got, c.enters)
		}
	}
	w.alter = func(_, claims map[string]any) { claims["access"] = map[string]any{"teams": "shop"} }
	b := w.browser()
	w.person("root")
	b.get(w.site.URL + StartPath)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	address, err := url.Parse(w.site.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range b.Jar.Cookies(address) {
		r.AddCookie(c)
	}
	if who, err := w.Person(r); err != nil || who.Tenants != "shop" {
		t.Errorf("session: %+v, %v", who, err)
	}
}

// A provider that tells groups only when asked is asked.
func TestUserInfo(t *testing.T) {
	w := newWorld(t)
	w.alter = func(_, claims map[string]any) { delete(claims, "groups") }
	b := w.browser()
	w.person("root")
	if _, _, body := b.get(w.site.URL + StartPath); !strings.Contains(body, "ann@example.com admin") {
		t.Error(body)
	}
	w.alter = func(_, claims map[string]any) { delete(claims, "groups"); claims["sub"] = "u2" }
	w.person("root")
	b = w.browser()
	if status, _, body := b.get(w.site.URL + StartPath); status != http.StatusForbidden || b.loggedIn() {
		t.Errorf("groups of another person: %d, %s", status, body)
	}
}

// Programs send tokens of the provider. Forged ones and those for others are refused.
func TestPrograms(t *testing.T) {
	w := newWorld(t)
	set := func(key string, value any) func(_, claims map[string]any) {
		return func(_, claims map[string]any) { claims[key] = value }
	}
	other, err := mockoidc.RandomKeypair(2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		alter func(header, claims map[string]any)
		want  error
	}{
		"valid":            {},
		"one audience":     {alter: set("aud", w.options.ClientID)},
		"foreign audience": {set("aud", "another"), refusal.Unauthenticated},
		"no audience":      {set("aud", nil), refusal.Unauthenticated},
		"foreign issuer":   {set("iss", "https://evil.example"), refusal.Unauthenticated},
		"expired":          {set("exp", time.Now().Add(-time.Second).Unix()), refusal.Unauthenticated},
		"no end":           {set("exp", nil), refusal.Unauthenticated},
		"not yet valid":    {set("nbf", time.Now().Add(time.Hour).Unix()), refusal.Unauthenticated},
		"not signed":       {func(h, _ map[string]any) { h["alg"] = "none" }, refusal.Unauthenticated},
		"symmetric":        {func(h, _ map[string]any) { h["alg"] = "HS256" }, refusal.Unauthenticated},
		"no subject":       {set("sub", nil), refusal.Unauthenticated},
		"no role":          {set("groups", []string{"x"}), refusal.Forbidden},
		"no claim":         {set("groups", nil), refusal.Forbidden},
	} {
		who, err := w.Program(context.Background(), w.token(c.alter))
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		want := access.Principal{
			Name:    "machine",
			Role:    access.Operator,
			Subject: "machine",
			Issuer:  w.options.Issuer,
			Via:     access.ViaJWT,
		}
		if c.want == nil && who != want || c.want != nil && who != (access.Principal{}) {
			t.Errorf("%s: %+v", name, who)
		}
	}
	own := w.provider.Keypair
	id, err := own.KeyID()
	if err != nil {
		t.Fatal(err)
	}
	w.provider.Keypair = other
	forged := []string{w.token(nil), w.token(func(header, _ map[string]any) { header["kid"] = id })}
	w.provider.Keypair = own
	for i, token := range forged {
		if _, err := w.Program(context.Background(), token); !errors.Is(err, refusal.Unauthenticated) {
			t.Errorf("signed by somebody else, %d: %v", i, err)
		}
	}
	w.options.Audience = "https://sibyl.example"
	w.restart()
	if _, err := w.Program(context.Background(), w.token(nil)); !errors.Is(err, refusal.Unauthenticated) {
		t.Errorf("for the client, not for the audience: %v", err)
	}
	if _, err := w.Program(context.Background(), w.token(set("aud", "https://sibyl.example"))); err != nil {
		t.Errorf("for the audience: %v", err)
	}
}

// New keys of the provider are fetched when a token needs them, but not for each token that claims to.
func TestKeyRotation(t *testing.T) {
	w := newWorld(t)
	program := func() error {
		_, err := w.Program(context.Background(), w.token(nil))
		return err
	}
	if err := program(); err != nil {
		t.Fatal(err)
	}
	var err error
	if w.provider.Keypair, err = mockoidc.RandomKeypair(2048); err != nil {
		t.Fatal(err)
	}
	w.ahead += providerInterval
	if err := program(); err != nil {
		t.Errorf("with a new key: %v", err)
	}
	before := w.keys.Load()
	for range 20 {
		unknown := w.token(func(header, _ map[string]any) { header["kid"] = rand.Text() })
		if _, err := w.Program(context.Background(), unknown); !errors.Is(err, refusal.Unauthenticated) {
			t.Errorf("with an unknown key: %v", err)
		}
	}
	if n := w.keys.Load() - before; n != 0 {
		t.Errorf("%d requests for keys within %v of the last", n, providerInterval)
	}
	if err := program(); err != nil {
		t.Errorf("after tokens with unknown keys: %v", err)
	}
}

// While the provider is down, log-in says so; it works once the provider answers.
func TestProviderDown(t *testing.T) {
	w := newWorld(t)
	w.down.Store(true)
	w.Discover(context.Background())
	if !strings.Contains(w.log.String(), "people cannot log in") {
		t.Errorf("log: %s", w.log.String())
	}
	b := w.browser()
	if status, _, body := b.get(w.site.URL + StartPath); status != http.StatusServiceUnavailable ||
		!strings.Contains(body, "does not answer") {
		t.Errorf("%d, %s", status, body)
	}
	if _, err := w.Program(context.Background(), w.token(nil)); !errors.Is(err, refusal.Overloaded) {
		t.Errorf("program: %v", err)
	}
	w.down.Store(false)
	w.ahead = providerInterval
	w.person("staff")
	at := b.back()
	w.down.Store(true)
	if status, _, _ := b.get(at); status != http.StatusServiceUnavailable || b.loggedIn() {
		t.Errorf("provider down at the end of a log-in: %d", status)
	}
	w.down.Store(false)
	w.person("staff")
	if b.get(w.site.URL + StartPath); !b.loggedIn() {
		t.Error("not logged in")
	}
}

// Only the service itself makes sessions: no changed cookie is one, nor a cookie of another kind, key or client.
func TestForgedCookies(t *testing.T) {
	w := newWorld(t)
	sealedBy := func(s *Service, k kind, v any) *http.Cookie {
		out := httptest.NewRecorder()
		if err := s.write(out, k, v); err != nil {
			t.Fatal(err)
		}
		c := out.Result().Cookies()[0]
		c.Name = s.cookie(sessionCookie).Name
		return c
	}
	person := func(c *http.Cookie) error {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.AddCookie(c)
		_, err := w.Person(r)
		return err
	}
	ann := session{Subject: "u1", Name: "ann", Value: "root"}
	good := sealedBy(w.Service, sessionCookie, ann)
	if err := person(good); err != nil {
		t.Fatal(err)
	}
	for i := range good.Value {
		bad := *good
		bad.Value = good.Value[:i] + string(good.Value[i]^1) + good.Value[i+1:]
		if packed, err := base64.RawURLEncoding.DecodeString(bad.Value); err == nil {
			if same, _ := base64.RawURLEncoding.DecodeString(good.Value); bytes.Equal(packed, same) {
				continue // a bit that base64 doesn't use
			}
		}
		if err := person(&bad); !errors.Is(err, refusal.Unauthenticated) {
			t.Fatalf("changed at %d: %v", i, err)
		}
	}
	own := w.options
	own.Dir = t.TempDir()
	otherKey, err := New(own)
	if err != nil {
		t.Fatal(err)
	}
	own = w.options
	own.ClientID = "another"
	otherClient, err := New(own)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*http.Cookie{
		"of another key":    sealedBy(otherKey, sessionCookie, ann),
		"of another client": sealedBy(otherClient, sessionCookie, ann),
		"of another kind":   sealedBy(w.Service, attemptCookie, ann),
		"empty":             {Name: good.Name},
	} {
		if err := person(c); !errors.Is(err, refusal.Unauthenticated) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Cookies can't be read by scripts, sent from other sites or, over TLS, set by other hosts.
func TestCookieAttributes(t *testing.T) {
	for address, want := range map[string]string{
		"https://sibyl.example":   "__Host-sibyl-session-983e3b28=; Path=/; HttpOnly; Secure; SameSite=Lax",
		"http://127.0.0.1:8321/x": "sibyl-session-85ea3f36=; Path=/; HttpOnly; SameSite=Lax",
	} {
		s, err := New(Options{URL: address, Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.cookie(sessionCookie).String(); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

// The key is made once, and only its owner can read it. One that others can read is refused.
func TestKey(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, KeyFile)
	var keys [2][]byte
	for i := range keys {
		_, err := newSealer(dir)
		if err == nil {
			keys[i], err = os.ReadFile(file)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 || len(keys[0]) != keySize ||
		!bytes.Equal(keys[0], keys[1]) {
		t.Errorf("%v, %d bytes: %v", info.Mode(), len(keys[0]), err)
	}
	for mode, want := range map[os.FileMode]bool{0o604: false, 0o602: false, 0o660: true, 0o400: true} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := newSealer(dir); (err == nil) != want || err != nil && !strings.Contains(err.Error(), "remove it") {
			t.Errorf("mode %04o: %v", mode, err)
		}
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newSealer(dir); err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("short key: %v", err)
	}
}

// People leave the provider, too, if it has an address for that.
func TestFarewell(t *testing.T) {
	w := newWorld(t)
	p, err := w.discover(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	p.logout = "https://id.example/end?a=b"
	want := "https://id.example/end?a=b&client_id=" + w.options.ClientID + "&post_logout_redirect_uri=" +
		url.QueryEscape(w.site.URL+"/")
	if got := w.farewell(context.Background()); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestRoles(t *testing.T) {
	for _, c := range []struct {
		claim, claims string
		role          access.Role
		value         string
	}{
		{"groups", `{"groups": ["staff", "root", "ops"]}`, access.Admin, "root"},
		{"groups", `{"groups": "ops"}`, access.Operator, "ops"},
		{"groups", `{"groups": ["ops staff"]}`, "", ""},
		{"groups", `{"groups": ["Root", "root "]}`, "", ""},
		{"groups", `{"groups": [1, true, null, ["root"], {"root": "root"}]}`, "", ""},
		{"groups", `{"groups": {"root": true}}`, "", ""},
		{"groups", `{}`, "", ""},
		{"realm_access.roles", `{"realm_access": {"roles": ["staff"]}}`, access.Viewer, "staff"},
		{"realm_access.roles", `{"realm_access": ["staff"]}`, "", ""},
		{"https://a.example/roles", `{"https://a.example/roles": ["staff"]}`, access.Viewer, "staff"},
	} {
		var all claims
		if err := json.Unmarshal([]byte(c.claims), &all); err != nil {
			t.Fatal(err)
		}
		r := testRoles(c.claim)
		if role, value := r.of(all); role != c.role || value != c.value {
			t.Errorf("%s in %s: %q by %q", c.claim, c.claims, role, value)
		}
	}
}

func TestNames(t *testing.T) {
	for text, want := range map[string]string{
		`{"sub": "1", "name": "Ann", "preferred_username": "ann", "email": "a@b"}`:               "ann",
		`{"sub": "1", "name": "Ann", "preferred_username": "boss@b", "email": "boss@b"}`:         "Ann",
		`{"sub": "1", "name": "boss＠b", "preferred_username": "boss@b"}`:                         "1",
		`{"sub": "1@b", "preferred_username": "boss@b", "email": "a@b", "email_verified": true}`: "a@b",
		`{"sub": "1@b"}`: "1@b",
		`{"sub": "1", "name": "Ann", "email": "a@b", "email_verified": false}`:  "Ann",
		`{"sub": "1", "name": "Ann", "email": "a@b", "email_verified": "true"}`: "a@b",
		`{"sub": "1", "preferred_username": "an\n\u202en", "name": "x"}`:        "ann",
		`{"sub": "1", "name": ""}`: "1",
		`{}`:                       "",
		`{"name": "` + strings.Repeat("é", maxName+1) + `"}`: strings.Repeat("é", maxName),
	} {
		var all claims
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, all.name()); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}
