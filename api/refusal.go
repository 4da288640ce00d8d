package api

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"strconv"

	"github.com/sibyl-trace/sibyl/api/contract"
)

// fault is an error that callers are told.
type fault struct {
	status int
	detail string // what is wrong and what to do
	header http.Header
}

// Error returns the detail.
func (f *fault) Error() string { return f.detail }

func refuse(status int, detail string) *fault { return &fault{status: status, detail: detail} }

// notFound says that there is no such thing, or no longer.
func notFound(what string) *fault {
	return refuse(http.StatusNotFound, "there is no such "+what+", or no longer")
}

// busy says that the engine did not answer in time.
func busy() *fault {
	return &fault{http.StatusServiceUnavailable, "the engine did not answer in time: try again", http.Header{"Retry-After": {"1"}}}
}

// problemJSON is the media type of errors.
const problemJSON = "application/problem+json"

// fail answers with an error. What is no [fault] is logged, and told without its text.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	instance := "urn:sibyl:request:" + strconv.FormatUint(a.answers.Add(1), 10)
	f, ok := errors.AsType[*fault](err)
	switch {
	case ok:
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		f = busy()
	default:
		f = refuse(http.StatusInternalServerError, "this should not happen: the log says more")
		a.options.Log.LogAttrs(r.Context(), slog.LevelError, "a request failed", slog.String("instance", instance),
			slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.Any("error", err))
	}
	maps.Copy(w.Header(), f.header)
	w.Header().Set("Content-Type", problemJSON)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Del("ETag")
	w.WriteHeader(f.status)
	_ = json.NewEncoder(w).Encode(contract.Error{ // whoever left is told nothing
		Type: "about:blank", Title: http.StatusText(f.status), Status: f.status, Detail: f.detail, Instance: instance,
	})
}
