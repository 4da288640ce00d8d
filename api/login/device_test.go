package login

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oauth2-proxy/mockoidc"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/internal/testkit/device"
)

// request returns a request from an address. The values of header are of the field X-Forwarded-For.
func request(from string, forwarded ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, DevicePath, nil)
	r.RemoteAddr = net.JoinHostPort(from, "1234")
	r.Header["X-Forwarded-For"] = forwarded
	return r
}

// start starts the log-in of a program.
func (w *world) start() *contract.DeviceLogin {
	w.t.Helper()
	started, err := w.StartDevice(request("192.0.2.1"))
	if err != nil {
		w.t.Fatal(err)
	}
	return started
}

// poll asks for the session of a log-in when it is time to ask.
func (w *world) poll(started *contract.DeviceLogin) (*contract.DeviceToken, error) {
	w.t.Helper()
	w.ahead += time.Duration(started.Interval) * time.Second
	answer, who, err := w.DeviceToken(context.Background(), started.Handle)
	if err == nil && answer.Token != "" && (who.Name != answer.Name || string(who.Role) != answer.Role) {
		w.t.Errorf("the log has %v, the program %v", who, answer)
	}
	return answer, err
}

// sessionToken returns the session of a program that the next person has logged in.
func (w *world) sessionToken() string {
	w.t.Helper()
	started := w.start()
	w.device.Change(func(e *device.Endpoint) { e.Answer = "" })
	answer, err := w.poll(started)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer.Token
}

// A person logs a program in, which waits as long as the provider wants. The session is like a browser's.
func TestDeviceFlow(t *testing.T) {
	w := newWorld(t)
	started := w.start()
	if started.UserCode != device.UserCode || started.VerificationURI != device.Page ||
		!strings.HasSuffix(started.VerificationURIComplete, device.UserCode) || started.Interval != device.Interval ||
		started.ExpiresIn < 290 || started.ExpiresIn > 300 {
		t.Errorf("start: %+v", started)
	}
	early, _, err := w.DeviceToken(context.Background(), started.Handle)
	if err != nil || early.Interval <= 0 || early.Interval > device.Interval || w.device.Polls != 0 {
		t.Errorf("too early: %+v, %v, %d requests to the provider", early, err, w.device.Polls)
	}
	for _, c := range []struct {
		answer string
		want   float64
	}{{answerPending, 5}, {answerSlowDown, 10}, {answerPending, 10}, {answerSlowDown, 15}} {
		w.device.Change(func(e *device.Endpoint) { e.Answer = c.answer })
		got, err := w.poll(started)
		if err != nil || got.Token != "" || got.Interval != c.want {
			t.Errorf("%s: %+v, %v; want %v s", c.answer, got, err, c.want)
		}
		started.Interval = c.want
	}
	if w.device.Polls != 4 {
		t.Errorf("%d requests to the provider, want 4", w.device.Polls)
	}
	w.person("team", "ops")
	w.device.Change(func(e *device.Endpoint) { e.Answer = "" })
	got, err := w.poll(started)
	if err != nil || got.Name != "ann@example.com" || got.Role != "operator" || got.Interval != 0 ||
		!IsSession(got.Token) || IsJWT(got.Token) {
		t.Fatalf("%+v, %v", got, err)
	}
	if life := got.Expires.Sub(w.options.Clock()); life > sessionCookie.life || life < sessionCookie.life-time.Minute {
		t.Errorf("it lasts %v", life)
	}
	want := access.Principal{
		Name:    "ann@example.com",
		Role:    access.Operator,
		Subject: "u1",
		Issuer:  w.options.Issuer,
		Via:     access.ViaLogin,
	}
	w.restart()
	if who, err := w.Session(got.Token); err != nil || who != want {
		t.Errorf("%v, %v", who, err)
	}
	w.ahead += sessionCookie.life
	if _, err := w.Session(got.Token); !errors.Is(err, refusal.Unauthenticated) {
		t.Errorf("the session has no end: %v", err)
	}
}

// A log-in that ends without a session says why, and has ended for good.
func TestDeviceFlowEnds(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		before func(w *world)
		want   refusal.Reason
		text   string
	}{
		"denied":  {answer: "access_denied", want: refusal.Forbidden, text: "access_denied: of the test"},
		"expired": {answer: answerExpired, want: refusal.NotFound, text: "has expired"},
		"invalid": {answer: "invalid_grant", want: refusal.Forbidden, text: "invalid_grant"},
		"too late": {
			before: func(w *world) { w.ahead += 300 * time.Second }, want: refusal.NotFound, text: "has expired",
		},
		"without role": {
			before: func(w *world) { w.person("team") }, want: refusal.Forbidden, text: "no role in Sibyl",
		},
		"forged": {
			before: func(w *world) { w.alter = func(h, _ map[string]any) { h["alg"] = "none" } },
			want:   refusal.Forbidden,
			text:   "not valid",
		},
		"for another": {
			before: func(w *world) { w.alter = func(_, claims map[string]any) { claims["aud"] = "another" } },
			want:   refusal.Forbidden,
			text:   "not valid",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			started := w.start()
			w.device.Change(func(e *device.Endpoint) { e.Answer = c.answer })
			if c.before != nil {
				c.before(w)
			}
			_, err := w.poll(started)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v, want %v with %q", err, c.want, c.text)
			}
			w.device.Change(func(e *device.Endpoint) { e.Answer = "" })
			w.person("root")
			if _, err := w.poll(started); !errors.Is(err, refusal.NotFound) {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// The audit log learns who has no role.
func TestDeviceFlowNamesPeopleWithoutRole(t *testing.T) {
	w := newWorld(t)
	started := w.start()
	w.person("team")
	w.device.Change(func(e *device.Endpoint) { e.Answer = "" })
	w.ahead += device.Interval * time.Second
	_, who, err := w.DeviceToken(context.Background(), started.Handle)
	if who.Name != "ann@example.com" || who.Role != "" || err == nil {
		t.Errorf("%v, %v", who, err)
	}
}

// A session belongs to one handle, and works once and as its own kind only.
func TestSessionsOfPrograms(t *testing.T) {
	w := newWorld(t)
	started := w.start()
	for _, handle := range []string{"", "x", started.UserCode, started.Handle + "x", strings.ToLower(started.Handle)} {
		if _, _, err := w.DeviceToken(context.Background(), handle); !errors.Is(err, refusal.NotFound) {
			t.Errorf("handle %q: %v", handle, err)
		}
	}
	w.person("root")
	w.device.Change(func(e *device.Endpoint) { e.Answer = "" })
	answer, err := w.poll(started)
	if err != nil {
		t.Fatal(err)
	}
	token := answer.Token
	if _, err := w.poll(started); !errors.Is(err, refusal.NotFound) {
		t.Errorf("the handle again: %v", err)
	}
	if _, _, err := w.DeviceToken(context.Background(), token); !errors.Is(err, refusal.NotFound) {
		t.Errorf("a session as a handle: %v", err)
	}
	if who, err := w.Session(token); err != nil || who.Role != access.Admin {
		t.Fatalf("%v, %v", who, err)
	}
	ann := session{Subject: "u1", Name: "Ann", Value: "root"}
	forged := func(s *Service, k kind) string {
		text, err := s.seal(k, ann)
		if err != nil {
			t.Fatal(err)
		}
		return tokenPrefix + text
	}
	for name, text := range map[string]string{
		"empty":           tokenPrefix,
		"a handle":        tokenPrefix + w.start().Handle,
		"changed":         token[:len(token)-5] + "AAAAA",
		"of a cookie":     forged(w.Service, sessionCookie),
		"of an attempt":   forged(w.Service, attemptCookie),
		"without prefix ": strings.TrimPrefix(token, tokenPrefix) + "=",
	} {
		if _, err := w.Session(text); !errors.Is(err, refusal.Unauthenticated) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r, err := http.NewRequest(http.MethodGet, w.site.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := w.cookie(sessionCookie)
	c.Value = strings.TrimPrefix(token, tokenPrefix)
	r.AddCookie(c)
	if _, err := w.Person(r); !errors.Is(err, refusal.Unauthenticated) {
		t.Errorf("as a cookie: %v", err)
	}
	w.options.Roles.Admin = nil
	w.restart()
	if _, err := w.Session(token); err == nil || !strings.Contains(err.Error(), "your role has changed") {
		t.Errorf("without a role: %v", err)
	}
	w.options.Roles.Admin = []string{"root"}
	if err := os.Remove(filepath.Join(w.options.Dir, KeyFile)); err != nil {
		t.Fatal(err)
	}
	w.restart()
	if _, err := w.Session(token); !errors.Is(err, refusal.Unauthenticated) {
		t.Errorf("with a new key: %v", err)
	}
}

// A provider that changes its keys or is down for a while doesn't end a log-in.
func TestDeviceFlowWaitsForTheProvider(t *testing.T) {
	w := newWorld(t)
	w.person("root")
	w.sessionToken() // its keys are known
	started := w.start()
	w.down.Store(true)
	if _, err := w.poll(started); !errors.Is(err, refusal.Overloaded) {
		t.Errorf("the provider is down: %v", err)
	}
	w.down.Store(false)
	other, err := mockoidc.RandomKeypair(2048)
	if err != nil {
		t.Fatal(err)
	}
	w.provider.Keypair = other
	w.person("root")
	if got, err := w.poll(started); err != nil || got.Token == "" {
		t.Errorf("with a new key: %+v, %v", got, err)
	}
}

// A log-in that can't start says why.
func TestDeviceFlowRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world)
		status int
		text   string
	}{
		"no device flow": {
			func(w *world) { w.device.Missing = true }, http.StatusNotImplemented, "sibyl token create",
		},
		"not allowed": {
			func(w *world) { w.device.Proof = "never" }, http.StatusForbidden, "invalid_client",
		},
		"provider down": {func(w *world) { w.down.Store(true) }, http.StatusServiceUnavailable, "does not answer"},
	} {
		w := newWorld(t, func(o *Options) { o.ClientSecret = "wrong" })
		c.change(w)
		_, err := w.StartDevice(request("192.0.2.1"))
		refused, ok := errors.AsType[*refusal.Error](err)
		if !ok || refused.Code() != c.status || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Anybody may start log-ins, but not so many that they burden the provider, nor that others can start none.
func TestStartsAreLimited(t *testing.T) {
	w := newWorld(t)
	now := time.Now() // stands still
	w.options.Clock = func() time.Time { return now.Add(w.ahead) }
	w.restart()
	start := func(r *http.Request, want bool) {
		t.Helper()
		if _, err := w.StartDevice(r); (err == nil) != want || err != nil && !errors.Is(err, refusal.Overloaded) {
			t.Errorf("from %s for %q: %v", r.RemoteAddr, r.Header["X-Forwarded-For"], err)
		}
	}
	for i := range clientBurst {
		start(request("2001:db8::1"), true)
		start(request("192.0.2.1", fmt.Sprint("198.51.100.", i)), true) // claims to be a proxy
		start(request("10.0.0.1", "198.51.100.1, 203.0.113.7"), true)
	}
	start(request("2001:db8:0:ff::2"), false) // the same network
	start(request("192.0.2.1", "198.51.100.99"), false)
	start(request("10.0.0.1", "203.0.113.7"), false)
	start(request("2001:db8:0:100::1"), true)
	start(request("192.0.2.2"), true)
	start(request("10.0.0.1", "203.0.113.8"), true)
	w.ahead += clientInterval
	start(request("192.0.2.1"), true)
	start(request("192.0.2.1"), false)
	admitted := startBurst - 3*clientBurst - 3 - 1 + int(clientInterval/startInterval)
	for i := range admitted {
		start(request(fmt.Sprint("203.0.113.", 10+i)), true)
	}
	start(request("203.0.113.9"), false)
	w.ahead += deviceLife
	w.start()
	if n, known := len(w.devices.flows), len(w.starts.clients); n != 1 || known != 1 {
		t.Errorf("%d log-ins and %d clients are kept, want 1", n, known)
	}
}

// A client proves who it is in the way that the provider wants, and asks once.
func TestProofsOfTheClient(t *testing.T) {
	for _, proof := range []string{device.InHeader, device.InBody, device.Public} {
		w := newWorld(t, func(o *Options) {
			if proof == device.Public {
				o.ClientSecret = ""
			}
		})
		w.device.Proof = proof
		started := w.start()
		if answer, err := w.poll(started); err != nil || answer.Interval != device.Interval || w.device.Polls != 1 {
			t.Errorf("in the %s: %+v, %v, %d requests", proof, answer, err, w.device.Polls)
		}
		w.person("staff")
		if _, err := w.Session(w.sessionToken()); err != nil {
			t.Errorf("in the %s: %v", proof, err)
		}
	}
}
