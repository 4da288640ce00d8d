package main

import (
	"strings"
	"testing"
)

// TestToken makes, lists and revokes a token.
func TestToken(t *testing.T) {
	dir := t.TempDir()
	if r := sibyl(t, "", "token", "list", "--data-dir", dir); r.code != 0 || !strings.Contains(r.out, "There is no token") {
		t.Errorf("no token: %+v", r)
	}
	made := sibyl(t, "", "token", "create", "--role", "viewer", "--name", "grafana", "--expires", "1h", "--data-dir", dir)
	secret := strings.TrimSpace(made.out)
	if made.code != 0 || !strings.HasPrefix(secret, "sibyl_") || strings.Contains(made.err, secret) {
		t.Fatalf("made: %+v", made)
	}
	for _, output := range []string{"table", "json"} {
		list := sibyl(t, "", "token", "list", "-o", output, "--data-dir", dir)
		if list.code != 0 || !strings.Contains(list.out, "grafana") || strings.Contains(list.out, secret) || strings.Contains(list.out, "sha256") {
			t.Errorf("listed: %+v", list)
		}
	}
	id := strings.Fields(made.err)[2]
	if r := sibyl(t, "", "token", "revoke", id, "--data-dir", dir); r.code != 0 {
		t.Errorf("revoked: %+v", r)
	}
	if r := sibyl(t, "", "token", "revoke", id, "--data-dir", dir); r.code != 1 || !strings.Contains(r.err, "no such token") {
		t.Errorf("revoked again: %+v", r)
	}
	for _, c := range []struct {
		args string
		code int
		err  string
	}{
		{"token create --role root", 2, "viewer, operator, admin or agent"},
		{"token create", 2, "--role"},
		{"token revoke", 2, "which ID?"},
		{"problems --server nowhere", 2, "want a URL like"},
		{"problems --server http://127.0.0.1:1", 1, "sibyl serve"},
		{"problems --limit=-1", 2, "--limit"},
		{"explain", 2, "which PROBLEM?"},
		{"explain 1 --server http://127.0.0.1:1", 1, "sibyl serve"},
		{"tracepoints pin", 2, "which TRACEPOINT?"},
		{"tracepoints withdraw x --server http://127.0.0.1:1", 1, "sibyl serve"},
		{"tracepoints list --state gone", 2, "any, on, wanted"},
	} {
		if r := sibyl(t, "", strings.Fields(c.args)...); r.code != c.code || !strings.Contains(r.err, c.err) {
			t.Errorf("%s: %+v, want %d with %s", c.args, r, c.code, c.err)
		}
	}
}
