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

// signatureHeader has the HMAC of the body of GitHub's webhooks, which cannot send a token.
const signatureHeader = "X-Hub-Signature-256"

// isSigned reports whether a request is a webhook of GitHub whose signature takes the place of a token.
func (a *API) isSigned(r *http.Request) bool {
	op, _, _ := a.operation(r)
	return op.OperationID == "annotateFromGitHub" && a.options.GitHubSecret != "" && r.Header.Get(signatureHeader) != ""
}

// verify refuses signed requests whose signature is wrong. It needs the body, so it comes after limit.
func (a *API) verify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.isSigned(r) {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			a.fail(w, r, invalid(err))
			return
		}
		mac := hmac.New(sha256.New, []byte(a.options.GitHubSecret))
		mac.Write(body)
		got, _ := hex.DecodeString(strings.TrimPrefix(r.Header.Get(signatureHeader), "sha256="))
		if !hmac.Equal(got, mac.Sum(nil)) {
			a.fail(w, r, refusal.New(refusal.Unauthenticated, "the signature in "+signatureHeader+" is wrong",
				"set the secret in annotations.github-secret-file at GitHub, too"))
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		who := access.Principal{Name: "GitHub", Role: access.Agent, Via: access.ViaSignature}
		next.ServeHTTP(w, r.WithContext(access.WithCaller(r.Context(), who)))
	})
}
