package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Tenants can be created, listed, exported and deleted, and tokens are for existing ones only.
func TestTenant(t *testing.T) {
	dir, copied := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"tenant list", 0, "default  equal share  unlimited"},
		{"tenant create shop --memory 40 --spans 500", 0, "restart the service to open it"},
		{"tenant create shop", 1, "there is such a tenant"},
		{"tenant create Shop", 1, "at most 40 characters"},
		{"tenant create default", 1, "is not default"},
		{"tenant create pay --memory 60", 1, "more than 95 %"},
		{"tenant create pay --memory NaN", 1, "more than 95 %"},
		{"tenant create pay --spans -1", 1, "at least 0"},
		{"tenant list", 0, "shop     40 %         500"},
		{"token create --role agent --tenant shop", 0, "sibyl_"},
		{"token create --role agent --tenant pay", 1, "there is no such tenant"},
		{"token create --role agent --any-tenant", 0, "sibyl_"},
		{"token create --role viewer --any-tenant", 2, "--any-tenant: only tokens"},
		{"token create --role agent --tenant shop --any-tenant", 2, "--any-tenant: only tokens"},
		{"token list", 0, "all       shop"},
		{"token list", 0, "all       any"},
		{"tenant export pay " + copied, 1, "there is no such tenant"},
		{"tenant export shop " + dir, 1, "name a new directory"},
		{"tenant export shop " + copied, 0, ""},
		{"tenant delete shop", 2, "confirm it with --yes"},
		{"tenant delete pay --yes", 1, "there is no such tenant"},
		{"tenant delete shop --yes", 0, "revoke its tokens, too"},
		{"tenant delete shop --yes", 1, "there is no such tenant"},
	} {
		r := sibyl(t, "", append(strings.Fields(c.args), "--data-dir", dir)...)
		if r.code != c.code || !strings.Contains(r.out+r.err, c.says) {
			t.Errorf("%s: %+v, want %d and %q", c.args, r, c.code, c.says)
		}
	}
	if _, err := os.Stat(filepath.Join(copied, "tenant.json")); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "tenants")); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}
