package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// problem is the body of a refusal.
type problem struct {
	refusal.Problem
	Login string `json:"login,omitempty"` // address at which the caller, if it is a person, can log in
}

// fail responds with err if err is a refusal. It logs any other error, and doesn't show its text to the client.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	instance := "urn:sibyl:request:" + strconv.FormatUint(a.failures.Add(1), 10)
	refused, ok := errors.AsType[*refusal.Error](err)
	switch {
	case ok:
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		refused = epoch.ErrBusy
	default:
		refused = refusal.Failure()
		a.options.Log.LogAttrs(r.Context(), slog.LevelError, "a request failed", slog.String("instance", instance),
			slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.Any("error", err))
	}
	body := problem{Problem: refused.Problem()}
	body.Instance = instance
	if people := a.options.Login; people != nil && refused.Reason == refusal.Unauthenticated {
		body.Login = people.Address()
	}
	refused.Write(w, body)
}
