package api

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
)

// object is an object in JSON.
type object = map[string]any

// deployment returns a webhook of GitHub about a deployment.
func deployment(state, ref string, at time.Time) object {
	return object{
		"action":     "created",
		"deployment": object{"ref": ref, "sha": "0123abcdef", "id": 7},
		"deployment_status": object{
			"state": state, "environment": "production", "created_at": at, "log_url": "https://github.example/runs/1",
		},
		"repository": object{"name": "cart", "full_name": "shop/cart"},
	}
}

// Successful deployments and published releases of GitHub, and notifications of Argo CD become deploys. Everything else
// that GitHub sends changes nothing.
func TestReceivers(t *testing.T) {
	w := newHarness(t)
	now := w.clock()
	release := object{
		"action":     "published",
		"release":    object{"tag_name": "v2.1", "html_url": "https://github.example/v2.1", "published_at": now},
		"repository": object{"name": "shop"},
	}
	for _, c := range []struct {
		path    string
		body    object
		want    string // empty: no annotation
		version string
	}{
		{
			"/github", deployment("success", "v2.0", now),
			"cart v2.0: GitHub deployed v2.0 (0123abc) to production", "v2.0",
		},
		{
			"/github?service=basket&environment=production", deployment("success", "main", now),
			"basket: GitHub deployed main (0123abc) to production", "",
		},
		{"/github?environment=staging", deployment("success", "v3", now), "", ""},
		{"/github", deployment("in_progress", "v3", now), "", ""},
		{"/github", object{"zen": "Design for failure.", "hook_id": 1}, "", ""},
		{"/github", release, "shop v2.1: GitHub released it", "v2.1"},
		{"/github", object{"action": "edited", "release": release["release"]}, "", ""},
		{
			"/argocd",
			object{
				"app": "cart", "revision": "0123abcdef", "images": []string{"registry.example:5000/cart:2.2@sha256:00"},
				"time": now, "link": "https://argocd.example/applications/cart",
			},
			"cart 2.2: Argo CD synced cart to 0123abc", "2.2",
		},
		{"/argocd", object{"app": "mail", "images": nil, "link": ""}, "mail: Argo CD synced mail", ""},
		{"/argocd", object{"app": "a", "service": "b", "images": []string{"x:1", "y:2"}}, "b: Argo CD synced a", ""},
	} {
		out := w.call(t, http.MethodPost, "/api/v1/annotations"+c.path, c.body)
		if c.want == "" {
			if out.Code != http.StatusNoContent {
				t.Errorf("%s: got %d: %s", c.path, out.Code, out.Body)
			}
			continue
		}
		x := decode[contract.Annotation](t, out)
		if x.Title != c.want || x.Version != c.version || !x.At.Equal(now) || string(x.Source) != c.path[1:7] {
			t.Errorf("%s: %+v, want %s", c.path, x, c.want)
		}
	}
	known := len(w.core.View().Annotations)
	w.expect(t, http.StatusOK, http.MethodPost, "/api/v1/annotations/github", deployment("success", "v2.0", now))
	if got := len(w.core.View().Annotations); got != known {
		t.Errorf("%d annotations after a webhook was delivered twice, want %d", got, known)
	}
}

// A signed webhook of GitHub needs no token if the secret is configured, and the signature must be right.
func TestGitHubSignature(t *testing.T) {
	w := newHarness(t)
	if _, _, err := w.tokens.Create(access.Token{Role: access.Admin}, w.clock()); err != nil {
		t.Fatal(err)
	}
	body := deployment("success", "v2.0", w.clock())
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	sign := func(secret string) string {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write(text)
		return "sha256=" + hex.EncodeToString(mac.Sum(nil))
	}
	const path = "/api/v1/annotations/github"
	w.expect(t, http.StatusUnauthorized, http.MethodPost, path, body, signatureHeader, sign("")) // no secret
	w.options.GitHubSecret = "secret"
	w.expect(t, http.StatusUnauthorized, http.MethodPost, path, body)
	for signature, want := range map[string]int{
		sign("secret"): http.StatusOK, sign("other"): http.StatusUnauthorized, sign(""): http.StatusUnauthorized,
		"sha256=": http.StatusUnauthorized, "sha1=00": http.StatusUnauthorized,
	} {
		w.expect(t, want, http.MethodPost, path, body, signatureHeader, signature)
	}
	w.expect(t, http.StatusUnauthorized, http.MethodPost, "/api/v1/annotations/argocd", object{"app": "cart"},
		signatureHeader, sign("secret"))
}

// A signed webhook of GitHub that is repeated later is still one annotation. Without a time, it would be another one.
func TestGitHubReplay(t *testing.T) {
	w := newHarness(t)
	w.options.GitHubSecret = "secret"
	post := func(want int, body object) {
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		w.expect(t, want, http.MethodPost, "/api/v1/annotations/github", body, signatureHeader, gitHubSignature(text))
	}
	known := len(w.core.View().Annotations)
	body := deployment("success", "v2.0", w.clock())
	delete(body["deployment_status"].(object), "created_at")
	post(http.StatusUnprocessableEntity, body)
	body = deployment("success", "v2.0", w.clock())
	for range 3 {
		post(http.StatusOK, body)
		w.options.Clock = func() time.Time { return w.clock().Add(time.Hour) }
	}
	if got := len(w.core.View().Annotations) - known; got != 1 {
		t.Errorf("%d annotations, want 1", got)
	}
}

// gitHubSignature signs a webhook with "secret".
func gitHubSignature(text []byte) string {
	mac := hmac.New(sha256.New, []byte("secret"))
	mac.Write(text)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// Webhooks of GitHub have the notes of a release. Only a few of these large bodies may arrive at a time, and other
// requests have no large bodies.
func TestLargeBodies(t *testing.T) {
	w := newHarness(t)
	w.options.GitHubSecret = "secret"
	release := func(notes int) object {
		return object{"action": "published", "repository": object{"name": "shop"}, "release": object{
			"tag_name": "v2.1", "published_at": w.clock(), "body": strings.Repeat("x", notes),
		}}
	}
	const path = "/api/v1/annotations/github"
	w.expect(t, http.StatusOK, http.MethodPost, path, release(maxLargeBody-1000))
	w.expect(t, http.StatusRequestEntityTooLarge, http.MethodPost, path, release(maxLargeBody))
	w.expect(t, http.StatusRequestEntityTooLarge, http.MethodPost, "/api/v1/annotations/argocd",
		object{"app": strings.Repeat("x", maxBody)})
	body, end := io.Pipe()
	var sending sync.WaitGroup
	for range maxLarge {
		sending.Go(func() {
			r := httptest.NewRequest(http.MethodPost, path, body)
			r.ContentLength, r.RemoteAddr, r.Host = maxBody+1, "127.0.0.1:4711", "localhost"
			w.ServeHTTP(httptest.NewRecorder(), r)
		})
	}
	for w.large.Load() < maxLarge {
		time.Sleep(time.Millisecond)
	}
	w.expect(t, http.StatusServiceUnavailable, http.MethodPost, path, release(maxBody))
	w.expect(t, http.StatusOK, http.MethodPost, path, release(0))
	end.Close()
	sending.Wait()
	w.expect(t, http.StatusOK, http.MethodPost, path, release(maxBody))
}

// An acknowledgement at PagerDuty or Opsgenie is one in Sibyl, by the same person, and so is its end. An assignment is
// a comment. What was done before, or is about something else, changes nothing.
func TestAcknowledgements(t *testing.T) {
	w := newIncident(t)
	key := "sibyl-incident-" + w.incidentID()
	pagerDuty := func(what, key string) object {
		return object{"event": object{
			"id": "01", "event_type": what, "agent": object{"summary": "Ann", "type": "user_reference"},
			"data": object{"incident_key": key, "assignees": []object{{"summary": "Bob"}, {"summary": "Cy"}}},
		}}
	}
	opsgenie := func(what string) object {
		return object{"action": what, "alert": object{"alias": key, "username": "dora@shop.example", "owner": "Eve"}}
	}
	for i, c := range []struct {
		path     string
		body     object
		by       string // empty: not acknowledged
		comments int
	}{
		{"pagerduty", pagerDuty("incident.acknowledged", "sibyl-incident-00000000000000ff"), "", 0},
		{"pagerduty", pagerDuty("incident.acknowledged", "other"), "", 0},
		{"pagerduty", pagerDuty("incident.resolved", key), "", 0},
		{"pagerduty", pagerDuty("incident.acknowledged", key), "Ann (PagerDuty)", 0},
		{"opsgenie", opsgenie("Acknowledge"), "Ann (PagerDuty)", 0}, // she was first
		{"pagerduty", pagerDuty("incident.unacknowledged", key), "", 0},
		{"opsgenie", opsgenie("Acknowledge"), "dora@shop.example (Opsgenie)", 0},
		{"opsgenie", opsgenie("UnAcknowledge"), "", 0},
		{"pagerduty", pagerDuty("incident.reassigned", key), "", 1},
		{"pagerduty", pagerDuty("incident.reassigned", key), "", 1}, // delivered twice
		{"opsgenie", opsgenie("AssignOwnership"), "", 2},
		{"pagerduty", object{"event": object{
			"event_type": "incident.acknowledged", "agent": nil, "data": object{"incident_key": key},
		}}, "PagerDuty", 2},
	} {
		w.expect(t, http.StatusNoContent, http.MethodPost, "/api/v1/acknowledgements/"+c.path, c.body)
		d, by := w.incident(t), ""
		if x := d.Incident.Notes.Acknowledged; x != nil {
			by = x.By
		}
		if by != c.by || len(d.Comments) != c.comments {
			t.Errorf("%d: acknowledged by %q, %+v; want %+v", i, by, d.Comments, c)
		}
	}
	if x := w.incident(t).Comments[0]; x.By != "Ann (PagerDuty)" || x.Text != "Assigned to Bob, Cy" {
		t.Errorf("assigned: %+v", x)
	}
	entries := fetch[contract.AuditList](t, w, "/api/v1/audit").Items
	want := "event.event_type=incident.acknowledged event.data.incident_key=" + key + " event.agent.summary=Ann"
	if !slices.ContainsFunc(entries, func(e contract.AuditEntry) bool { return e.Detail == want }) {
		t.Errorf("no entry %q in the audit log: %+v", want, entries)
	}
}

// PagerDuty signs its webhooks, with two secrets while one is being replaced. The audit log names it as the caller.
func TestPagerDutySignature(t *testing.T) {
	w := newHarness(t)
	secret, _, err := w.tokens.Create(access.Token{Role: access.Admin}, w.clock())
	if err != nil {
		t.Fatal(err)
	}
	body := object{"event": object{"event_type": "incident.resolved", "data": object{}}}
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	sign := func(secret string) string {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write(text)
		return "v1=" + hex.EncodeToString(mac.Sum(nil))
	}
	const path, header = "/api/v1/acknowledgements/pagerduty", "X-PagerDuty-Signature"
	w.expect(t, http.StatusUnauthorized, http.MethodPost, path, body, header, sign("")) // no secret
	w.options.PagerDutySecret = "secret"
	for signature, want := range map[string]int{
		sign("secret"): http.StatusNoContent, sign("old") + "," + sign("secret"): http.StatusNoContent,
		sign("old"): http.StatusUnauthorized, sign(""): http.StatusUnauthorized, "v1=": http.StatusUnauthorized,
		sign("secret")[3:]: http.StatusUnauthorized,
	} {
		w.expect(t, want, http.MethodPost, path, body, header, signature)
	}
	w.expect(t, http.StatusUnauthorized, http.MethodPost, "/api/v1/acknowledgements/opsgenie",
		object{"action": "Close", "alert": object{}}, header, sign("secret"))
	entries := decode[contract.AuditList](t, w.call(t, http.MethodGet, "/api/v1/audit", nil,
		"Authorization", "Bearer "+secret)).Items
	if !slices.ContainsFunc(entries, func(e contract.AuditEntry) bool {
		return e.Who == "PagerDuty" && e.Operation == "acknowledgeFromPagerDuty"
	}) {
		t.Errorf("no entry of PagerDuty: %+v", entries)
	}
}

// A click on a button in Slack acknowledges the incident, or silences its service for an hour. Slack sends it as a form
// with a signature that covers the time. The audit log says who clicked on which button.
func TestSlack(t *testing.T) {
	w := newIncident(t)
	const path, to = "/api/v1/acknowledgements/slack", "https://hooks.slack.com/actions/T0/1/x"
	key := "sibyl-incident-" + w.incidentID()
	w.options.SlackSecret = "secret"
	click := func(action, value string) object {
		return object{
			"type": "block_actions", "user": object{"id": "U1", "username": "ann"}, "response_url": to,
			"actions": []object{{"action_id": action, "value": value, "type": "button"}},
		}
	}
	send := func(body object, secret string, at time.Time) int {
		t.Helper()
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		form := url.Values{"payload": {string(text)}}.Encode()
		stamp := strconv.FormatInt(at.Unix(), 10)
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte("v0:" + stamp + ":" + form))
		r := httptest.NewRequest(http.MethodPost, "http://localhost:8321"+path, strings.NewReader(form))
		r.RemoteAddr = "127.0.0.1:4711"
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("X-Slack-Request-Timestamp", stamp)
		r.Header.Set("X-Slack-Signature", "v0="+hex.EncodeToString(mac.Sum(nil)))
		out := httptest.NewRecorder()
		w.ServeHTTP(out, r)
		return out.Code
	}
	now := w.clock()
	for i, c := range []struct {
		body   object
		secret string
		at     time.Time
		want   int
	}{
		{click("acknowledge", key), "other", now, http.StatusUnauthorized},
		{click("acknowledge", key), "secret", now.Add(-6 * time.Minute), http.StatusUnauthorized},
		{click("acknowledge", key), "secret", now.Add(6 * time.Minute), http.StatusUnauthorized},
		{object{"user": object{}}, "secret", now, http.StatusUnprocessableEntity},
		{click("acknowledge", "sibyl-incident-00000000000000ff"), "secret", now, http.StatusOK},
		{click("other", key), "secret", now, http.StatusOK},
		{object{"type": "view_closed"}, "secret", now, http.StatusOK},
	} {
		if got := send(c.body, c.secret, c.at); got != c.want {
			t.Errorf("%d: got %d, want %d", i, got, c.want)
		}
	}
	x := w.incident(t).Incident
	if x.Notes.Acknowledged != nil || x.Silenced != nil || len(w.replies) > 0 {
		t.Errorf("acknowledged %+v, silenced %+v, replies %q", x.Notes.Acknowledged, x.Silenced, w.replies)
	}
	for _, action := range []string{"acknowledge", "silence"} {
		if got := send(click(action, key), "secret", now.Add(-4*time.Minute)); got != http.StatusOK {
			t.Errorf("%s: got %d", action, got)
		}
	}
	x = w.incident(t).Incident
	if x.Notes.Acknowledged == nil || x.Notes.Acknowledged.By != "ann (Slack)" {
		t.Errorf("acknowledged: %+v", x.Notes.Acknowledged)
	}
	until := now.Add(time.Hour)
	if x.Silenced == nil || x.Silenced.By != "ann (Slack)" || !x.Silenced.Until.Equal(until) {
		t.Errorf("silenced: %+v", x.Silenced)
	}
	want := to + " ann (Slack) silenced incidents of " + x.Service + " until " + until.UTC().Format("15:04") + " UTC."
	if !slices.Equal(w.replies, []string{want}) {
		t.Errorf("replies %q, want %q", w.replies, want)
	}
	entries := fetch[contract.AuditList](t, w, "/api/v1/audit").Items
	detail := "user.username=ann actions.0.action_id=silence actions.0.value=" + key
	if e := entries[0]; e.Who != "Slack" || e.Operation != "acknowledgeFromSlack" || e.Detail != detail {
		t.Errorf("%+v, want %s", e, detail)
	}
	w.options.SlackSecret = ""
	if _, _, err := w.tokens.Create(access.Token{Role: access.Admin}, now); err != nil {
		t.Fatal(err)
	}
	if got := send(click("acknowledge", key), "", now); got != http.StatusUnauthorized {
		t.Errorf("without a secret: got %d", got)
	}
}

// Slow bodies occupy no slots of other requests, and slow senders without a token don't keep out senders with one.
func TestSlowBodies(t *testing.T) {
	w := newHarness(t)
	token, _, err := w.tokens.Create(access.Token{Role: access.Operator}, w.clock())
	if err != nil {
		t.Fatal(err)
	}
	w.options.GitHubSecret = "secret"
	var sending sync.WaitGroup
	slow := func(n int, header, value string) *io.PipeWriter {
		body, end := io.Pipe()
		for range n {
			sending.Go(func() {
				r := httptest.NewRequest(http.MethodPost, "/api/v1/annotations/github", body)
				r.Header.Set(header, value)
				w.ServeHTTP(httptest.NewRecorder(), r)
			})
		}
		return end
	}
	unknown := slow(maxServing, signatureHeader, "sha256=00")
	for w.arriving.unknown.Load() < maxUnknown {
		time.Sleep(time.Millisecond)
	}
	authorization := []string{"Authorization", "Bearer " + token}
	const path = "/api/v1/annotations"
	w.expect(t, http.StatusOK, http.MethodPost, path, object{"kind": "other", "text": "x"}, authorization...)
	known := slow(maxArriving, authorization[0], authorization[1])
	for w.arriving.known.Load() < maxArriving {
		time.Sleep(time.Millisecond)
	}
	w.expect(t, http.StatusServiceUnavailable, http.MethodPost, path, object{}, authorization...)
	w.expect(t, http.StatusOK, http.MethodGet, path, nil, authorization...)
	unknown.Close()
	known.Close()
	sending.Wait()
	w.expect(t, http.StatusOK, http.MethodPost, path, object{"kind": "other", "text": "y"}, authorization...)
}
