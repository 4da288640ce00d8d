package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/engine/live"
)

// load sends traces of a tenant, one after the other, until stop is closed. ended receives the first status that isn't
// 200, or 200.
func (h *house) load(token string, stop <-chan struct{}) (ended chan int) {
	ended = make(chan int, 1)
	request := oneSpan(h.t)
	go func() {
		code := http.StatusOK
		for code == http.StatusOK {
			select {
			case <-stop:
				ended <- code
				return
			default:
				code = h.send(token, "", request)
			}
		}
		ended <- code
	}()
	return ended
}

// An admin of the process creates and deletes tenants while others have traffic, of which no request is refused.
func TestCreateTenantUnderLoad(t *testing.T) {
	dir := t.TempDir()
	h := newHouse(t, map[string]string{"SIBYL_DATA_DIR": dir})
	stop := make(chan struct{})
	var others []chan int
	for _, token := range []string{"agent", "a agent", "b agent"} {
		others = append(others, h.load(h.tokens[token], stop))
	}
	const path = "/api/v1/tenants"
	const body = `{"name":"c","spans_per_second":1000}`
	for _, c := range []struct {
		method, path, token, body string
		code                      int
	}{
		{http.MethodPost, path, "operator", body, http.StatusForbidden},
		{http.MethodPost, path, "a admin", body, http.StatusForbidden},
		{http.MethodPost, "/t/a" + path, "a admin", body, http.StatusForbidden},
		{http.MethodPost, "/t/a" + path, "admin", body, http.StatusForbidden},
		{http.MethodGet, "/t/a" + path, "a admin", "", http.StatusForbidden},
		{http.MethodDelete, "/t/a" + path + "/b", "a admin", "", http.StatusForbidden},
		{http.MethodDelete, path + "/a", "operator", "", http.StatusForbidden},
		{http.MethodDelete, path + "/c", "admin", "", http.StatusNotFound},
		{http.MethodPost, path, "admin", `{"name":"default"}`, http.StatusUnprocessableEntity},
		{http.MethodPost, path, "admin", `{"name":"../c"}`, http.StatusUnprocessableEntity},
		{http.MethodPost, path, "admin", `{"name":"a"}`, http.StatusConflict},
		{http.MethodPost, path, "admin", `{"name":"c","memory_percent":0.01}`, http.StatusConflict},
		{http.MethodPost, path, "admin", body, http.StatusNoContent},
		{http.MethodPost, path, "admin", body, http.StatusConflict},
	} {
		if code, text := h.do(c.method, c.path, h.tokens[c.token], c.body); code != c.code {
			t.Errorf("%s: %s %s %s: %d %s, want %d", c.token, c.method, c.path, c.body, code, text, c.code)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "tenants", "c", tenantFile)); err != nil {
		t.Error(err)
	}
	token := h.token(dir, access.Token{Role: access.Operator, Tenant: "c"})
	if code := h.send(token, "", oneSpan(t)); code != http.StatusOK {
		t.Errorf("traces of c: %d", code)
	}
	for path, want := range map[string]string{
		path:             `"name":"c","path":"/t/c","spans_per_second":1000`,
		"/metrics":       `sibyl_ingest_requests_total{tenant="c"} 1`,
		"/api/v1/me":     `"path":"/t/c"`,
		"/api/v1/audit":  `createTenant`,
		"/readyz":        "ok",
		"/t/c/readyz":    "ok",
		"/t/c/api/v1/me": `"name":"local"`,
	} {
		if strings.HasPrefix(path, "/t/c/api") {
			want = `"role":"admin"`
		}
		if code, text := h.do(http.MethodGet, path, h.tokens["admin"], ""); !strings.Contains(text, want) {
			t.Errorf("%s: %d %s, want %s", path, code, text, want)
		}
	}
	if code, text := h.do(http.MethodDelete, path+"/c", h.tokens["admin"], ""); code != http.StatusNoContent {
		t.Errorf("deleted: %d %s", code, text)
	}
	if code := h.send(token, "", oneSpan(t)); code != http.StatusUnauthorized {
		t.Errorf("traces of the deleted tenant: %d", code)
	}
	if _, text := h.do(http.MethodGet, "/metrics", h.tokens["admin"], ""); strings.Contains(text, `tenant="c"`) {
		t.Error("metrics have the deleted tenant")
	}
	close(stop)
	for _, ended := range others {
		if code := <-ended; code != http.StatusOK {
			t.Errorf("a request of another tenant: %d", code)
		}
	}
}

// Deleting a tenant ends its agents' and readers' connections, refuses its senders, and removes its data and tokens.
// The others go on, and a new tenant of the same name starts afresh.
func TestDeleteTenantUnderLoad(t *testing.T) {
	dir := t.TempDir()
	h := newHouse(t, map[string]string{"SIBYL_DATA_DIR": dir})
	stop := make(chan struct{})
	other := h.load(h.tokens["b agent"], stop)
	var senders []chan int
	for range 4 {
		senders = append(senders, h.load(h.tokens["a agent"], stop))
	}
	var readers sync.WaitGroup
	for _, path := range []string{"/t/a/api/v1/status", "/t/a/metrics", "/metrics", "/t/a/api/v1/groups"} {
		readers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					h.do(http.MethodGet, path, h.tokens["admin"], "")
				}
			}
		})
	}
	streamed, polled := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(streamed)
		h.do(http.MethodGet, "/t/a/api/v1/events", h.tokens["a viewer"], "")
	}()
	agent := protocol.Path + "one"
	hello := `{"protocol":"` + fmt.Sprint(protocol.Version) + `"}`
	h.do(http.MethodPut, agent+"?session=1", h.tokens["a agent"], hello)
	go func() {
		defer close(polled)
		h.do(http.MethodGet, agent+"/plan?session=1&wait=60s", h.tokens["a agent"], "")
	}()
	eventually(t, "traffic of a arrives", func() bool { return h.requests()[1] > 20 })
	if code, text := h.do(http.MethodDelete, "/api/v1/tenants/a", h.tokens["admin"], ""); code != http.StatusNoContent {
		t.Fatalf("deleted: %d %s", code, text)
	}
	for _, ended := range senders {
		if code := <-ended; code != http.StatusForbidden && code != http.StatusUnauthorized {
			t.Errorf("a sender of the deleted tenant: %d", code)
		}
	}
	<-streamed
	<-polled
	if _, err := os.Stat(filepath.Join(dir, "tenants", "a")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of a: %v", err)
	}
	tokens, err := access.Open(dir).List()
	for _, x := range tokens {
		if x.Tenant == "a" {
			t.Errorf("token %s is still valid", x.ID)
		}
	}
	if err != nil {
		t.Error(err)
	}
	if code, text := h.do(http.MethodPost, "/api/v1/tenants", h.tokens["admin"], `{"name":"a"}`); code != 204 {
		t.Errorf("created again: %d %s", code, text)
	}
	if n := h.requests()[1]; n != 0 {
		t.Errorf("the new tenant has %d requests", n)
	}
	close(stop)
	readers.Wait()
	if code := <-other; code != http.StatusOK {
		t.Errorf("a request of b: %d", code)
	}
}

// A kill while tenants are created and deleted leaves whole tenants or nothing: each opens at the next start, with the
// tokens that it had, or its directory and tokens are gone.
func TestKilledWhileTenantsChange(t *testing.T) {
	v := newProcess(t, t.TempDir())
	admin, _, err := access.Open(v.dir).Create(access.Token{Role: access.Admin}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	call := func(ctx context.Context, method, path, body string) (int, string) {
		address := "http://" + v.api + "/api/v1/tenants" + path
		r, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		r.Header.Set("Authorization", "Bearer "+admin)
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		return answer.StatusCode, string(text)
	}
	t.Cleanup(func() {
		if v.cmd.ProcessState == nil { // after a failure
			v.end(os.Kill)
		}
	})
	rounds := 4
	if *soak {
		rounds = 60
	}
	for range rounds {
		v.start()
		v.ready()
		_, listed := call(t.Context(), http.MethodGet, "", "")
		entries, err := os.ReadDir(filepath.Join(v.dir, "tenants"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !strings.Contains(listed, `"name":"`+e.Name()+`"`) {
				t.Errorf("%s is on the disk, but isn't a tenant: %s", e.Name(), listed)
			}
		}
		tokens, err := access.Open(v.dir).List()
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range tokens {
			if x.Tenant != "" && !strings.Contains(listed, `"name":"`+x.Tenant+`"`) {
				t.Errorf("there is a token of %s, but no such tenant: %s", x.Tenant, listed)
			}
		}
		var changing sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for _, name := range []string{"one", "two"} {
			changing.Go(func() {
				for ctx.Err() == nil {
					code, text := call(ctx, http.MethodPost, "", `{"name":"`+name+`"}`)
					if code >= 500 {
						t.Errorf("create: %s", text)
					}
					if code == http.StatusNoContent {
						like := access.Token{Role: access.Agent, Tenant: name}
						if _, _, err := access.Open(v.dir).Create(like, time.Now()); err != nil {
							t.Error(err)
						}
					}
					if code, text := call(ctx, http.MethodDelete, "/"+name, ""); code >= 500 {
						t.Errorf("delete: %s", text)
					}
				}
			})
		}
		time.Sleep(time.Duration(300+rand.IntN(1500)) * time.Millisecond)
		v.end(os.Kill)
		cancel()
		changing.Wait()
	}
}

// The next start finishes a deletion that was interrupted at any point, and the tenant doesn't open again.
func TestInterruptedDeletion(t *testing.T) {
	for name, interrupt := range map[string]func(dir string) error{
		"begun": beginDeletion,
		"half": func(dir string) error {
			return errors.Join(beginDeletion(dir), os.RemoveAll(filepath.Join(dir, storeName)))
		},
		"finished": os.RemoveAll,
	} {
		dir := t.TempDir()
		t.Run(name, func(t *testing.T) { newHouse(t, map[string]string{"SIBYL_DATA_DIR": dir}) })
		if err := interrupt(filepath.Join(dir, "tenants", "a")); err != nil {
			t.Fatal(err)
		}
		if err := finishDeletions(dir); err != nil {
			t.Error(err)
		}
		all, err := Tenants(dir)
		if err != nil || len(all) != 1 || all[0].Name != "b" {
			t.Errorf("%s: %v, %v", name, all, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "tenants", "a")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the directory of a: %v", name, err)
		}
		tokens, err := access.Open(dir).List()
		if err != nil {
			t.Error(err)
		}
		for _, x := range tokens {
			if x.Tenant == "a" && name != "finished" {
				t.Errorf("%s: token %s is still valid", name, x.ID)
			}
		}
	}
}

// A start removes what an interrupted creation or deletion left, but no data, even without a description.
func TestLeftoversOfTenants(t *testing.T) {
	dir := t.TempDir()
	for _, file := range []string{"empty", "unfinished/.tenant.json123", "copied/journal/1", "whole/tenant.json"} {
		tenant, name, _ := strings.Cut(file, "/")
		path := filepath.Join(dir, "tenants", tenant, name)
		err := os.MkdirAll(filepath.Join(dir, "tenants", tenant, filepath.Dir(name)), 0o700)
		if err == nil && name != "" {
			err = os.WriteFile(path, []byte("{}"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := finishDeletions(dir); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "tenants", "*"))
	if err != nil || len(left) != 2 || filepath.Base(left[0]) != "copied" || filepath.Base(left[1]) != "whole" {
		t.Errorf("left: %q, %v", left, err)
	}
}

// /readyz tells of the tenant whose decisions are latest.
func TestLatestTenant(t *testing.T) {
	onTime := live.Lag{Overdue: 15 * time.Second}
	late := live.Lag{Overdue: time.Minute, Cause: live.LagDecisions}
	later := live.Lag{Overdue: time.Hour, Cause: live.LagSpace}
	for _, c := range []struct {
		lags []live.Lag
		want int
	}{
		{[]live.Lag{onTime}, 0},
		{[]live.Lag{onTime, onTime}, 0},
		{[]live.Lag{onTime, late}, 1},
		{[]live.Lag{late, later, onTime, late}, 1},
	} {
		if got := latest(c.lags); got != c.want {
			t.Errorf("latest of %v is %d, want %d", c.lags, got, c.want)
		}
	}
}
