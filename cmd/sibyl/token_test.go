package main

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/audit"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/internal/cli"
)

// On a full disk, a token can be revoked, though the audit log can't have it. None can be created.
func TestTokenFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("mounting a small disk needs root: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	_, made, err := access.Open(dir).Create(access.Token{Role: access.Admin, Name: "lost"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if r := sibyl(t, "", "token", "create", "--role", "viewer", "--data-dir", dir); r.code != 1 {
		t.Errorf("created: %+v", r)
	}
	r := sibyl(t, "", "token", "revoke", made.ID, "--data-dir", dir)
	if r.code != 0 || !strings.Contains(r.err, "not in the audit log") {
		t.Errorf("revoked: %+v", r)
	}
	if all, err := access.Open(dir).List(); len(all) != 0 || err != nil {
		t.Errorf("%v are left, %v", all, err)
	}
}

// Tokens can be created, listed and revoked, and wrong usage is reported.
func TestToken(t *testing.T) {
	dir := t.TempDir()
	if r := sibyl(t, "", "token", "list", "--data-dir", dir); r.code != 0 || !strings.Contains(r.out, "No token in ") {
		t.Errorf("no token: %+v", r)
	}
	made := sibyl(t, "", "token", "create", "--role", "viewer", "--name", "grafana", "--expires", "1h",
		"--data-dir", dir)
	secret := strings.TrimSpace(made.out)
	if made.code != 0 || !strings.HasPrefix(secret, "sibyl_") || strings.Contains(made.err, secret) {
		t.Fatalf("made: %+v", made)
	}
	for _, output := range []string{"table", "json"} {
		list := sibyl(t, "", "token", "list", "-o", output, "--data-dir", dir)
		if list.code != 0 || !strings.Contains(list.out, "grafana") || strings.Contains(list.out, secret) ||
			strings.Contains(list.out, "sha256") {
			t.Errorf("listed: %+v", list)
		}
	}
	id := strings.Fields(made.err)[2]
	if r := sibyl(t, "", "token", "revoke", id, "--data-dir", dir); r.code != 0 {
		t.Errorf("revoked: %+v", r)
	}
	if r := sibyl(t, "", "token", "revoke", id, "--data-dir", dir); r.code != 1 ||
		!strings.Contains(r.err, "no such token") {
		t.Errorf("revoked again: %+v", r)
	}
	page, err := audit.Open(dir, time.Now, slog.New(slog.DiscardHandler)).List(t.Context(), audit.Query{Limit: 10})
	if err != nil || len(page.Entries) != 3 {
		t.Fatalf("audit log: %+v, %v", page, err)
	}
	for i, want := range []audit.Entry{
		{Operation: "revokeToken", On: id, Status: 404},
		{Operation: "revokeToken", On: id, Status: 200},
		{Operation: "createToken", On: id, Status: 200},
	} {
		e := page.Entries[i]
		if got := (audit.Entry{Operation: e.Operation, On: e.On, Status: e.Status}); got != want || e.Who == "" ||
			e.Via != "command" || strings.Contains(e.Detail, secret) {
			t.Errorf("audit log: %+v, want %+v", e, want)
		}
	}
	for _, c := range []struct {
		args string
		code int
		err  string
	}{
		{"token create --role root", 2, "viewer, operator, admin or agent"},
		{"token create", 2, "--role"},
		{"token create --role viewer --services shop", 2, "--services"},
		{"token revoke", 2, "ID is missing"},
		{"problems --server nowhere", 2, "want a URL like"},
		{"problems --server http://127.0.0.1:1", 1, "sibyl serve"},
		{"incidents --server nowhere", 2, "want a URL like"},
		{"incidents --limit=-1", 2, "--limit"},
		{"incidents --state some", 2, "open"},
		{"incidents 101885cb --server http://127.0.0.1:1", 1, "sibyl serve"},
		{"incidents accept", 2, "arg"},
		{"incidents accept 101885cb --server http://127.0.0.1:1", 1, "sibyl serve"},
		{"incidents mute 101885cb --text known --server http://127.0.0.1:1", 1, "sibyl serve"},
		{"problems --limit=-1", 2, "--limit"},
		{"explain", 2, "PROBLEM is missing"},
		{"explain 1 --server http://127.0.0.1:1", 1, "sibyl serve"},
		{"tracepoints pin", 2, "TRACEPOINT is missing"},
		{"tracepoints withdraw x --server http://127.0.0.1:1", 1, "sibyl serve"},
		{"tracepoints list --state gone", 2, "all, on, pending"},
	} {
		if r := sibyl(t, "", strings.Fields(c.args)...); r.code != c.code || !strings.Contains(r.err, c.err) {
			t.Errorf("%s: %+v, want %d with %s", c.args, r, c.code, c.err)
		}
	}
}

// The container refuses to start without a token, as its file says, and listens on the ports that it exposes.
func TestContainer(t *testing.T) {
	text, err := os.ReadFile("../../deploy/Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if vars, ok := strings.CutPrefix(line, "ENV "); ok {
			for v := range strings.FieldsSeq(vars) {
				key, value, _ := strings.Cut(v, "=")
				env[key] = value
			}
		}
	}
	e, err := config.Load(config.Sources{Getenv: func(key string) string { return env[key] }})
	if err != nil {
		t.Fatal(err)
	}
	if len(e.Config.Exposed()) != 3 || e.RequireTokens() == nil {
		t.Errorf("listens on %v without a token", e.Config.Exposed())
	}
	ports := "EXPOSE"
	for _, address := range []string{e.Config.OTLP.GRPC, e.Config.OTLP.HTTP, e.Config.HTTP} {
		_, port, _ := net.SplitHostPort(address)
		ports += " " + port
	}
	if !strings.Contains(string(text), "\n"+ports+"\n") {
		t.Errorf("the Containerfile lacks %s", ports)
	}
	env["SIBYL_DATA_DIR"] = t.TempDir()
	getenv := func(key string) string { return env[key] }
	code := run(t.Context(), []string{"token", "create", "--role", "admin"}, getenv, nil, io.Discard, io.Discard)
	if code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
	if all, err := access.Open(env["SIBYL_DATA_DIR"]).List(); len(all) != 1 || err != nil {
		t.Errorf("%v, %v", all, err)
	}
}
