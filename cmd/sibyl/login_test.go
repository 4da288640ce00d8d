package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
)

// loginServer is a service at which people log in.
type loginServer struct {
	*httptest.Server
	waits   []string // answers to requests for the session before the last; a status and a body
	expires time.Time
	life    float64 // of a log-in in seconds
	asked   []string
	tokens  []string // of requests to the API
}

func newLoginServer(t *testing.T) *loginServer {
	t.Helper()
	s := &loginServer{expires: time.Now().Add(8 * time.Hour), life: 60}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, ".config"))
	return s
}

// ServeHTTP implements http.Handler.
func (s *loginServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := r.Header.Get("Authorization")
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/login/device":
		_ = json.NewEncoder(w).Encode(contract.DeviceLogin{
			Handle:                  "handle",
			UserCode:                "WDJB-\x1bMJHT",
			VerificationURI:         "https://id.example/device",
			VerificationURIComplete: "https://id.example/device?c=WDJB-MJHT",
			ExpiresIn:               s.life,
			Interval:                0.01,
		})
	case "/login/device/token":
		s.asked = append(s.asked, token)
		if len(s.waits) > 0 {
			status, body := s.waits[0][:3], s.waits[0][4:]
			s.waits = s.waits[1:]
			w.WriteHeader(map[string]int{"202": 202, "403": 403, "503": 503}[status])
			_, _ = io.WriteString(w, body)
			return
		}
		_ = json.NewEncoder(w).Encode(contract.DeviceToken{
			Token: "sibyl_login.x", Name: "ann@example.com", Role: "operator", Expires: s.expires,
		})
	default:
		s.tokens = append(s.tokens, token)
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"status":401,"detail":"the log-in has expired","login":"https://x/login"}`)
	}
}

const waiting, providerDown = `202 {"interval":0.01}`, `503 {"status":503,"detail":"the provider does not answer"}`

// A person sees the address and the code, and is logged in once the code is confirmed. Commands then use the session,
// unless they have a token, until the person logs out.
func TestLogIn(t *testing.T) {
	s := newLoginServer(t)
	s.waits = []string{waiting, providerDown, providerDown, waiting}
	r := sibyl(t, "", "login", "--server", s.URL+"/")
	want := "Open https://id.example/device and enter the code WDJB-·MJHT\n" +
		"or open https://id.example/device?c=WDJB-MJHT and check that it shows this code.\n" +
		"You are logged in at " + s.URL + " as ann@example.com, with the role operator, until " +
		s.expires.Local().Format("15:04") + ".\n"
	if r.code != 0 || r.out != want {
		t.Errorf("exit code %d, got %q, want %q", r.code, r.out, want)
	}
	if strings.Count(r.err, "still waiting") != 1 || !strings.Contains(r.err, "the provider does not answer") {
		t.Errorf("messages: %q", r.err)
	}
	if len(s.asked) != 5 || s.asked[0] != "Bearer handle" {
		t.Errorf("asked with %q", s.asked)
	}
	file, err := loginsFile()
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	r = sibyl(t, "", "problems", "--server", s.URL)
	if hint := "run sibyl login --server " + s.URL; r.code != 1 || !strings.Contains(r.err, hint) {
		t.Errorf("an expired session: %q", r.err)
	}
	sibyl(t, "", "problems", "--server", s.URL, "--token", "t1")
	sibylIn(t, "", map[string]string{"SIBYL_TOKEN": "t2"}, "problems", "--server", s.URL)
	other := httptest.NewServer(s)
	defer other.Close()
	sibyl(t, "", "problems", "--server", other.URL)
	if r := sibyl(t, "", "logout", "--server", s.URL); r.code != 0 || r.out != "You are logged out at "+s.URL+".\n" {
		t.Errorf("log-out: %+v", r)
	}
	r = sibyl(t, "", "logout", "--server", s.URL)
	if r.code != 0 || !strings.HasPrefix(r.out, "You are not logged in") {
		t.Errorf("log-out without a session: %+v", r)
	}
	sibyl(t, "", "problems", "--server", s.URL)
	if want := []string{"Bearer sibyl_login.x", "Bearer t1", "Bearer t2", "", ""}; !slices.Equal(s.tokens, want) {
		t.Errorf("tokens: %q, want %q", s.tokens, want)
	}
}

// Log-ins at several services are kept apart, and expired ones dropped.
func TestSavedLogins(t *testing.T) {
	a, b := newLoginServer(t), newLoginServer(t) // b's home counts
	a.expires = time.Now().Add(-time.Minute)
	for i, s := range []*loginServer{a, b} {
		r := sibylIn(t, "", map[string]string{"SIBYL_SERVER": s.URL, "SIBYL_TOKEN": "x"}, "login")
		if r.code != 0 || !strings.Contains(r.err, "SIBYL_TOKEN is set") {
			t.Errorf("%d: %+v", i, r)
		}
		saved, err := readLogins()
		if _, ok := saved[s.URL]; err != nil || !ok || len(saved) != 1 {
			t.Errorf("saved: %v, %v", saved, err)
		}
	}
	file, err := loginsFile()
	if err == nil {
		err = os.WriteFile(file, []byte("{"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"login", "logout", "problems"} {
		r := sibyl(t, "", command, "--server", b.URL)
		if r.code != 1 || !strings.Contains(r.err, file+" is damaged: remove it") {
			t.Errorf("%s: %+v", command, r)
		}
	}
}

// A log-in that fails says why.
func TestFailedLogIn(t *testing.T) {
	s := newLoginServer(t)
	s.waits = []string{waiting, `403 {"status":403,"detail":"The identity provider refused the log-in"}`}
	r := sibyl(t, "", "login", "--server", s.URL)
	if r.code != 1 || !strings.Contains(r.err, "provider refused the log-in") {
		t.Errorf("refused: %+v", r)
	}
	s.life, s.waits = 0.05, slices.Repeat([]string{waiting}, 100)
	if r := sibyl(t, "", "login", "--server", s.URL); r.code != 1 || !strings.Contains(r.err, "not confirmed in time") {
		t.Errorf("late: %+v", r)
	}
	without := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"status":404,"detail":"no such resource"}`)
	}))
	defer without.Close()
	r = sibyl(t, "", "login", "--server", without.URL)
	if r.code != 1 || !strings.Contains(r.err, "sibyl token create") {
		t.Errorf("without log-in: %+v", r)
	}
	r = sibyl(t, "", "login", "--server", "http://sibyl.example.com")
	if r.code != 2 || !strings.Contains(r.err, "over https") {
		t.Errorf("without TLS: %+v", r)
	}
	if saved, err := readLogins(); err != nil || len(saved) > 0 {
		t.Errorf("saved: %v, %v", saved, err)
	}
}
