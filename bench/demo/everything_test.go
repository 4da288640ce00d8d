package demo

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// exchange sends a request to the server of plans. If there is an answer, it decodes it.
func exchange(t *testing.T, e *everything, method, path, etag, body string, answer any) int {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, e.url()+protocol.Path+"a"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("If-None-Match", `"`+etag+`"`)
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	if answer != nil {
		if err := json.NewDecoder(r.Body).Decode(answer); err != nil {
			t.Fatal(err)
		}
	}
	return r.StatusCode
}

// An agent that has sent all pages of its catalogue gets a valid plan that enables everything in it.
func TestEverything(t *testing.T) {
	e, err := startEverything(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.close() }()
	var all []protocol.Tracepoint
	for i := range protocol.PageSize + 1 {
		id := fmt.Sprintf("catalog/m%05d", i)
		all = append(all, protocol.Tracepoint{
			ID:        id,
			Layer:     protocol.Runtime,
			Kind:      protocol.SpanPoint,
			Service:   "catalog",
			Scope:     "s",
			Operation: "m",
			SpanKind:  protocol.Internal,
		})
	}
	register := func(page int) (answer protocol.Registered) {
		r := protocol.Registration{
			Protocol: protocol.Version, Session: "s", Resource: map[string]string{"service.name": "catalog"},
			Catalogue: protocol.Catalogue{Hash: protocol.HashCatalogue(all), Size: len(all)},
		}
		if page >= 0 {
			r.Page = &protocol.Page{
				Number:      page,
				Tracepoints: all[page*protocol.PageSize : min(len(all), (page+1)*protocol.PageSize)],
			}
		}
		body, err := json.Marshal(&r)
		if err != nil {
			t.Fatal(err)
		}
		if code := exchange(t, e, http.MethodPut, "", "", string(body), &answer); code != http.StatusOK {
			t.Fatalf("status %d", code)
		}
		return answer
	}
	for _, c := range []struct{ page, missing int }{{-1, 2}, {1, 1}, {0, 0}} {
		if answer := register(c.page); len(answer.Missing) != c.missing {
			t.Errorf("after page %d the missing ones are %v, want %d", c.page, answer.Missing, c.missing)
		}
	}
	var raw json.RawMessage
	exchange(t, e, http.MethodGet, protocol.PlanPath+"?wait=1h", "old", "", &raw)
	p, err := protocol.DecodePlan(raw)
	if err != nil || len(p.Arms) != 1 || len(p.Arms[0].Tracepoints) != len(all) || p.Arms[0].Share != 1 {
		t.Errorf("%s, %v; want a plan with one arm of %d tracepoints", raw, err, len(all))
	}
	code := exchange(t, e, http.MethodGet, protocol.PlanPath+"?wait=0s", p.Hash, "", nil)
	if code != http.StatusNotModified {
		t.Errorf("status %d for an unchanged plan", code)
	}
	if code := exchange(t, e, http.MethodPut, "", "", "{}", nil); code != http.StatusUnprocessableEntity {
		t.Errorf("status %d for an invalid registration", code)
	}
	if code := exchange(t, e, http.MethodPost, protocol.StatusPath, "", "{}", nil); code != http.StatusNoContent {
		t.Errorf("status %d for a status", code)
	}
}
