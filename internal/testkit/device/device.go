// Package device adds the device flow (RFC 8628) to an identity provider for tests.
package device

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oauth2-proxy/mockoidc"
)

// Values that the endpoints return for each log-in.
const (
	UserCode = "WDJB-MJHT"
	Page     = "https://id.example/device"
	Interval = 5 // in seconds
)

// Ways for clients to authenticate to the provider.
const (
	InHeader = "header"
	InBody   = "body"
	Public   = "" // clients have no secret
)

// Endpoint is the device endpoint of a provider. Use Change to change its fields between requests.
type Endpoint struct {
	// Answer is the error that the token endpoint returns, at first "authorization_pending". Once it is empty, the next
	// user in the provider's queue confirms each log-in.
	Answer string
	// Proof is the way that the provider requires clients to authenticate.
	Proof string
	// Missing hides the endpoint from the provider's metadata.
	Missing bool
	// Starts counts the accepted requests to the device endpoint, and Polls the requests to the token endpoint.
	Starts, Polls int

	provider   *mockoidc.MockOIDC
	server     *httptest.Server
	mu         sync.Mutex
	challenges map[string]string // code challenges, by device code
}

// Add adds the device flow to a provider that hasn't started yet.
func Add(t testing.TB, provider *mockoidc.MockOIDC) *Endpoint {
	t.Helper()
	e := &Endpoint{
		Answer:     "authorization_pending",
		Proof:      InHeader,
		provider:   provider,
		challenges: make(map[string]string),
	}
	e.server = httptest.NewServer(http.HandlerFunc(e.start))
	t.Cleanup(e.server.Close)
	if err := provider.AddMiddleware(e.intercept); err != nil {
		t.Fatal(err)
	}
	return e
}

// Change calls f to change the fields of e while no request is being served.
func (e *Endpoint) Change(f func(*Endpoint)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f(e)
}

// start serves the device endpoint.
func (e *Endpoint) start(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.proven(r) {
		answer(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client"})
		return
	}
	e.Starts++
	code := "device-" + strings.Repeat("x", e.Starts)
	e.challenges[code] = r.FormValue("code_challenge")
	answer(w, http.StatusOK, map[string]any{
		"device_code":               code,
		"user_code":                 UserCode,
		"verification_uri":          Page,
		"verification_uri_complete": Page + "?user_code=" + UserCode,
		"expires_in":                300,
		"interval":                  Interval,
	})
}

// proven reports whether a request is authenticated as the provider's client, in exactly the way that e.Proof requires.
func (e *Endpoint) proven(r *http.Request) bool {
	id, secret, header := r.BasicAuth()
	switch e.Proof {
	case InHeader:
		return header && id == e.provider.ClientID && secret == e.provider.ClientSecret &&
			r.FormValue("client_secret") == ""
	case InBody:
		return !header && r.FormValue("client_id") == e.provider.ClientID &&
			r.FormValue("client_secret") == e.provider.ClientSecret
	}
	return !header && r.FormValue("client_id") == e.provider.ClientID && r.FormValue("client_secret") == ""
}

// intercept adds the device endpoint to the metadata, and serves the device flow at the token endpoint.
func (e *Endpoint) intercept(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		defer e.mu.Unlock()
		switch {
		case r.URL.Path == mockoidc.DiscoveryEndpoint && !e.Missing:
			recorded := httptest.NewRecorder()
			next.ServeHTTP(recorded, r)
			var metadata map[string]any
			_ = json.Unmarshal(recorded.Body.Bytes(), &metadata) // the test fails without metadata
			metadata["device_authorization_endpoint"] = e.server.URL
			answer(w, http.StatusOK, metadata)
		case r.URL.Path == mockoidc.TokenEndpoint &&
			r.FormValue("grant_type") == "urn:ietf:params:oauth:grant-type:device_code":
			e.token(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// token serves the token endpoint for the device flow.
func (e *Endpoint) token(w http.ResponseWriter, r *http.Request) {
	e.Polls++
	challenge, known := e.challenges[r.FormValue("device_code")]
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	refused := e.Answer
	switch {
	case !e.proven(r):
		refused = "invalid_client"
	case !known || challenge != base64.RawURLEncoding.EncodeToString(sum[:]):
		refused = "invalid_grant"
	}
	if refused != "" {
		answer(w, http.StatusBadRequest, map[string]any{"error": refused, "error_description": "of the test"})
		return
	}
	delete(e.challenges, r.FormValue("device_code"))
	now := time.Now()
	session, err := e.provider.SessionStore.NewSession("openid email groups", "", e.provider.UserQueue.Pop(), "", "")
	var access, id string
	if err == nil {
		access, err = session.AccessToken(e.provider.Config(), e.provider.Keypair, now)
	}
	if err == nil {
		id, err = session.IDToken(e.provider.Config(), e.provider.Keypair, now)
	}
	if err != nil {
		answer(w, http.StatusInternalServerError, nil)
		return
	}
	answer(w, http.StatusOK, map[string]any{"access_token": access, "id_token": id, "token_type": "bearer"})
}

func answer(w http.ResponseWriter, status int, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // fails only if the client has disconnected
}
