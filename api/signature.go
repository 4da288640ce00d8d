package api

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strings"

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
	secret string
	key    string // configuration key of the file with the secret
	role   access.Role
}

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
	}
	if s.secret == "" || r.Header.Get(s.header) == "" {
		return nil
	}
	return &s
}

// signed reports whether r carries a valid signature of body. Requests carry two signatures while the secret is being
// replaced.
func (s *signer) signed(r *http.Request, body []byte) bool {
	mac := hmac.New(sha256.New, []byte(s.secret))
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
		if !s.signed(r, body) {
			a.fail(w, r, refusal.New(refusal.Unauthenticated, "the signature in "+s.header+" is wrong",
				"set the secret in "+s.key+" at "+s.name+", too"))
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		who := access.Principal{Name: s.name, Role: s.role, Via: access.ViaSignature}
		if e := attempt(r); e != nil {
			setCaller(e, who)
		}
		next.ServeHTTP(w, r.WithContext(access.WithCaller(r.Context(), who)))
	})
}
