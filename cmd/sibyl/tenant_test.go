package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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
		{"tenant delete shop --yes", 0, "deleted shop and its tokens"},
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

// With --server, a running service is asked instead.
func TestTenantOfService(t *testing.T) {
	var asked []string
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = append(asked, strings.TrimSpace(fmt.Sprint(r.Method, " ", r.URL.Path, " ", string(body))))
		if r.Method == http.MethodGet {
			fmt.Fprint(w, `{"items":[{"name":"default","path":"","memory_percent":0,"spans_per_second":0},`+
				`{"name":"shop","path":"/t/shop","created":"2026-11-30T12:00:00Z","memory_percent":40,"spans_per_second":9}]}`)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer service.Close()
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"tenant create shop --memory 40 --spans 9", 0, "created shop"},
		{"tenant list", 0, "shop     40 %         9"},
		{"tenant delete shop", 2, "confirm it with --yes"},
		{"tenant delete shop --yes", 0, "deleted shop and its tokens"},
		{"tenant list --data-dir .", 2, "exclude each other"},
	} {
		r := sibyl(t, "", append(strings.Fields(c.args), "--server", service.URL)...)
		if r.code != c.code || !strings.Contains(r.out+r.err, c.says) {
			t.Errorf("%s: %+v, want %d and %q", c.args, r, c.code, c.says)
		}
	}
	want := []string{
		`POST /api/v1/tenants {"memory_percent":40,"name":"shop","spans_per_second":9}`,
		"GET /api/v1/tenants",
		"DELETE /api/v1/tenants/shop",
	}
	if fmt.Sprint(asked) != fmt.Sprint(want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
}
