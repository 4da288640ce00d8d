package api

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// signatureHeader is the header with the HMAC of the body of a GitHub webhook.
const signatureHeader = "X-Hub-Signature-256"

// annotateFromGitHub is the operation that receives webhooks of GitHub.
const annotateFromGitHub = "annotateFromGitHub"

// signer is a system that signs its webhooks, because it cannot send a token.
type signer struct {
	name   string
	header string // contains the signatures, separated by commas
	prefix string // of a signature
	stamp  string // header with the time, in seconds since 1970, that the signature covers; empty: there is none
	form   string // field of a form that contains the body; empty: the body is JSON
	secret string
	key    string // configuration key of the file with the secret
	role   access.Role
}

// maxStampAge is the largest difference between the time in a signature and ours. It limits for how long a request that
// somebody has recorded can be repeated.
const maxStampAge = 5 * time.Minute

// signer returns the system whose signature in r takes the place of a token, or nil if there is no such signature or no
// secret to check it.
func (a *API) signer(r *http.Request) *signer {
	op, _, _ := a.operation(r)
	var s signer
	switch op.OperationID {
	case annotateFromGitHub:
		s = signer{
			name:   "GitHub",
			header: signatureHeader,
			prefix: "sha256=",
			secret: a.options.GitHubSecret,
			key:    "annotations.github-secret-file",
			role:   access.Agent,
		}
	case "acknowledgeFromPagerDuty":
		s = signer{
			name:   "PagerDuty",
			header: "X-PagerDuty-Signature",
			prefix: "v1=",
			secret: a.options.PagerDutySecret,
			key:    "acknowledgements.pagerduty-secret-file",
			role:   access.Operator,
		}
	case "acknowledgeFromSlack":
		s = signer{
			name:   "Slack",
			header: "X-Slack-Signature",
			prefix: "v0=",
			stamp:  "X-Slack-Request-Timestamp",
			form:   "payload",
			secret: a.options.SlackSecret,
			key:    "acknowledgements.slack-secret-file",
			role:   access.Operator,
		}
	}
	if s.secret == "" || r.Header.Get(s.header) == "" {
		return nil
	}
	return &s
}

// current reports whether the time that the signature of r covers is close to now, or the signature covers none.
func (s *signer) current(r *http.Request, now time.Time) bool {
	if s.stamp == "" {
		return true
	}
	seconds, err := strconv.ParseInt(r.Header.Get(s.stamp), 10, 64)
	return err == nil && now.Sub(time.Unix(seconds, 0)).Abs() <= maxStampAge
}

// signed reports whether r carries a valid signature of body. Requests carry two signatures while the secret is being
// replaced.
func (s *signer) signed(r *http.Request, body []byte) bool {
	mac := hmac.New(sha256.New, []byte(s.secret))
	if s.stamp != "" {
		version := strings.TrimSuffix(s.prefix, "=")
		_, _ = io.WriteString(mac, version+":"+r.Header.Get(s.stamp)+":") // a hash never fails
	}
	mac.Write(body)
	want := mac.Sum(nil)
	for signature := range strings.SplitSeq(r.Header.Get(s.header), ",") {
		text, known := strings.CutPrefix(strings.TrimSpace(signature), s.prefix)
		if got, err := hex.DecodeString(text); known && err == nil && hmac.Equal(got, want) {
			return true
		}
	}
	return false
}

// verify refuses requests whose signature is wrong. It needs the body, so it must come after limit.
func (a *API) verify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := a.signer(r)
		if s == nil {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			a.fail(w, r, invalid(err))
			return
		}
		if !s.current(r, a.options.Clock()) {
			a.fail(w, r, refusal.New(refusal.Unauthenticated, "the time in "+s.stamp+" is not that of Sibyl's machine",
				"set the clock of Sibyl's machine"))
			return
		}
		if !s.signed(r, body) {
			a.fail(w, r, refusal.New(refusal.Unauthenticated, "the signature in "+s.header+" is wrong",
				"set the secret in "+s.key+" at "+s.name+", too"))
			return
		}
		if s.form != "" {
			form, _ := url.ParseQuery(string(body)) // an incomplete form lacks the field, or its JSON is invalid
			body = []byte(form.Get(s.form))
			r.ContentLength = int64(len(body))
			r.Header.Set("Content-Type", "application/json")
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		who := access.Principal{Name: s.name, Role: s.role, Via: access.ViaSignature}
		if e := attempt(r); e != nil {
			setCaller(e, who)
		}
		next.ServeHTTP(w, r.WithContext(access.WithCaller(r.Context(), who)))
	})
}
