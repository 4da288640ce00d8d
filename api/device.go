package api

import (
	"encoding/json"
	"net/http"

	"github.com/sibyl-trace/sibyl/api/access"
)

// startDevice starts the log-in of a program. It refuses web pages: a visitor's browser may reach services that the
// author of the page can't, and the client that starts a log-in gets the session of the person who confirms it.
func (a *API) startDevice(w http.ResponseWriter, r *http.Request) {
	if FromPage(r) {
		a.fail(w, r, errForeign)
		return
	}
	answer, err := a.options.Login.StartDevice(r)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeSecret(w, http.StatusOK, answer)
}

// endDevice responds with the session of a program, or with 202 if the person hasn't confirmed the log-in yet. The
// bearer token of the request is the handle of the log-in.
func (a *API) endDevice(w http.ResponseWriter, r *http.Request) access.Principal {
	answer, who, err := a.options.Login.DeviceToken(r.Context(), bearer(r))
	switch {
	case err != nil:
		a.fail(w, r, err)
	case answer.Token == "":
		writeSecret(w, http.StatusAccepted, answer)
	default:
		writeSecret(w, http.StatusOK, answer)
	}
	return who
}

// writeSecret writes a response that contains x as JSON and must not be cached.
func writeSecret(w http.ResponseWriter, status int, x any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(x) // fails only if the client has disconnected
}
