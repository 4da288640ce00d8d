package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/cases"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/operating"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// created returns the object in an answer.
func created[T any](t *testing.T, out *httptest.ResponseRecorder) (x T) {
	t.Helper()
	if err := json.Unmarshal(out.Body.Bytes(), &x); err != nil || out.Code != http.StatusCreated {
		t.Fatalf("%d: %s", out.Code, out.Body)
	}
	return x
}

// A comment appears in the incident, its timeline and its number in lists, until it is deleted, even after a restart.
func TestComments(t *testing.T) {
	w := newIncident(t)
	path := "/api/v1/incidents/" + w.incidentID()
	for i, text := range []string{" first\n\nline ", "second <b>"} {
		out := w.call(t, http.MethodPost, path+"/comments", map[string]string{"text": text})
		c := created[contract.Comment](t, out)
		if c.ID != int64(i+1) || c.By != "local" || c.Text != strings.TrimSpace(text) || !c.At.Equal(w.clock()) {
			t.Errorf("%+v", c)
		}
	}
	d := w.incident(t)
	if len(d.Comments) != 2 || d.Incident.Comments != 2 || w.incidents(t, "").Items[0].Comments != 2 {
		t.Errorf("comments %+v", d.Comments)
	}
	if last := d.Timeline[len(d.Timeline)-1]; last.Kind != contract.TimelineEntryKindCommented ||
		last.Text != "local: second <b>" {
		t.Errorf("timeline ends with %+v", last)
	}
	for _, wrong := range []string{"", "  \n", strings.Repeat("x", 4097)} {
		out := w.call(t, http.MethodPost, path+"/comments", map[string]string{"text": wrong})
		if out.Code != http.StatusBadRequest && out.Code != http.StatusUnprocessableEntity {
			t.Errorf("%.9q: %d: %s", wrong, out.Code, out.Body)
		}
	}
	w.expect(t, http.StatusNotFound, http.MethodPost,
		"/api/v1/incidents/00000000000000ff/comments", map[string]string{"text": "x"})
	for range 2 { // the second time there is nothing to delete
		w.expect(t, http.StatusNoContent, http.MethodDelete, path+"/comments/1", nil)
	}
	reopened, err := cases.OpenComments(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	if left := reopened.Of(d.Incident.ID); len(left) != 1 || left[0].ID != 2 {
		t.Errorf("after a restart: %+v", left)
	}
	w.call(t, http.MethodDelete, path+"/comments/2", nil)
	c := created[contract.Comment](t, w.call(t, http.MethodPost, path+"/comments", map[string]string{"text": "x"}))
	if c.ID != 1 {
		t.Errorf("first of an incident without comments: %+v", c)
	}
}

// A damaged file stops the service, so that people's input isn't lost.
func TestDamagedFiles(t *testing.T) {
	damaged := map[string]string{cases.CommentsFile: `{"../../x":[]}`, operating.ViewsFile: `[{]`, cases.NotesFile: `{`}
	for name, text := range damaged {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := cases.OpenComments(dir)
		_, err2 := operating.OpenViews(dir)
		_, err3 := cases.OpenNotes(dir)
		all := slices.DeleteFunc([]error{err, err2, err3}, func(err error) bool { return err == nil })
		path := filepath.Join(dir, name)
		if len(all) != 1 || !strings.Contains(all[0].Error(), "mv "+path+" "+path+".aside") {
			t.Errorf("%s: %v, want one error with a remedy", name, all)
		}
	}
}

// Views are listed by name and replaced by name. They can only lead to pages of the UI.
func TestViews(t *testing.T) {
	w := newHarness(t)
	save := func(name, path string) int {
		return w.call(t, http.MethodPost, "/api/v1/views", map[string]string{"name": name, "path": path}).Code
	}
	views := [][2]string{{"Worst", "/?severity=critical"}, {"cart", "/services/cart"}, {"Worst", "/problems"}}
	for _, x := range views {
		if code := save(x[0], x[1]); code != http.StatusCreated {
			t.Errorf("%s: %d", x, code)
		}
	}
	names := func() (all []string) {
		for _, v := range fetch[contract.ViewList](t, w, "/api/v1/views").Items {
			all = append(all, fmt.Sprint(v.ID, " ", v.Name, " ", v.Path, " ", v.By))
		}
		return all
	}
	got, want := names(), []string{"2 cart /services/cart local", "3 Worst /problems local"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, path := range []string{
		"", "services", "//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)", "/a b",
		"/" + strings.Repeat("x", 4096),
	} {
		if code := save("x", path); code < 400 || code >= 500 {
			t.Errorf("%.20q: %d", path, code)
		}
	}
	w.call(t, http.MethodDelete, "/api/v1/views/2", nil)
	reopened, err := operating.OpenViews(w.dir)
	if err != nil || len(reopened.All()) != 1 || reopened.All()[0].Name != "Worst" {
		t.Errorf("after a restart: %v, %v", reopened, err)
	}
	secrets := w.secrets(t)
	codes := map[access.Role]int{access.Viewer: http.StatusForbidden, access.Operator: http.StatusCreated}
	for role, want := range codes {
		w.expect(t, want, http.MethodPost, "/api/v1/views", bodies["saveView"],
			"Authorization", "Bearer "+secrets[role])
	}
}

// The report of an incident is a file in either format. Its chart has the stored durations by minute.
func TestIncidentReport(t *testing.T) {
	w := newIncident(t)
	path := "/api/v1/incidents/" + w.incidentID()
	w.call(t, http.MethodPost, path+"/comments", map[string]string{"text": "<script>alert(1)</script>"})
	for format, want := range map[string]string{
		"": "# Requests", "?format=markdown": `\<script\>alert(1)\</script\>`,
		"?format=html": "&lt;script&gt;alert(1)&lt;/script&gt;",
	} {
		out := w.get(t, path+"/report"+format)
		body := out.Body.String()
		if out.Code != http.StatusOK || !strings.Contains(body, want) ||
			strings.Contains(body, "<script") && format == "?format=html" {
			t.Errorf("%s: %d: no %s in %s", format, out.Code, want, body)
		}
		name := out.Header().Get("Content-Disposition")
		if !strings.HasPrefix(name, `attachment; filename="incident-`) {
			t.Errorf("%s: disposition %q", format, name)
		}
	}
	x := w.incidents(t, "").Items[0]
	types, onset := x.RequestTypes, trace.Nanos(x.Onset.UnixNano())
	id, err := analysis.ParseHash(types[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	ticks := make(map[store.Tick]*group.Past)
	for from := store.TickOf(onset.Add(-20 * time.Minute)); from < onset; from = from.Add(stats.Tick) {
		p := &group.Past{}
		p.Total.Add(10e6)
		p.Latency.Add(10e6, 1)
		ticks[store.Tick{Group: id, From: from}] = p
	}
	if err := w.store.Ticks.Add(ticks); err != nil {
		t.Fatal(err)
	}
	body := w.get(t, path+"/report?format=html").Body.String()
	points := regexp.MustCompile(`class="mean" points="([^"]*)"`).FindStringSubmatch(body)
	if points == nil || len(strings.Fields(points[1])) < 20 {
		t.Errorf("the chart does not have the minutes before the onset: %v", points)
	}
	w.expect(t, http.StatusNotFound, http.MethodGet, "/api/v1/incidents/00000000000000ff/report", nil)
}

// Lists can be filtered by severity and time, and show how often the first suspect had an incident before.
func TestIncidentSeverity(t *testing.T) {
	w := newIncident(t)
	x := w.incidents(t, "").Items[0]
	if x.Severity == "" || x.Impact.LostNsPerSecond <= 0 || x.Earlier != 0 {
		t.Errorf("listed: %+v", x)
	}
	stamp := func(offset int) string { return w.clock().UTC().AddDate(0, 0, offset).Format("2006-01-02T15:04:05Z") }
	severities := []string{"critical", "major", "minor"}
	others := slices.DeleteFunc(severities, func(s string) bool { return s == string(x.Severity) })
	for query, want := range map[string]int{
		"?severity=" + string(x.Severity): 1, "?severity=" + others[0]: 0, "?severity=" + others[1]: 0,
		"?from=" + stamp(1): 1, "?to=" + stamp(-1): 0, "?from=" + stamp(-1) + "&to=" + stamp(1): 1,
	} {
		if got := w.incidents(t, query).Total; got != want {
			t.Errorf("%s: %d incidents, want %d", query, got, want)
		}
	}
	w.call(t, http.MethodPost, "/api/v1/incidents/"+x.ID+"/accept", nil)
	w.epoch(t)
	if got := w.incidents(t, "?from="+stamp(1)).Total; got != 0 {
		t.Errorf("%d incidents after it closed", got)
	}
}
