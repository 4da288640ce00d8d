package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// notFound returns the refusal of a request for a resource that does not exist or was deleted.
func notFound(resource string) *refusal.Error {
	return refusal.New(refusal.NotFound, "no such "+resource+"; it may no longer exist", "")
}

// errBusy refuses a request that the engine did not answer in time.
var errBusy = refusal.New(refusal.Overloaded, "the engine did not answer in time", "try again").Later(time.Second)

// fail answers with err if it is a refusal. It logs any other error and keeps its text from the client.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	instance := "urn:sibyl:request:" + strconv.FormatUint(a.failures.Add(1), 10)
	refused, ok := errors.AsType[*refusal.Error](err)
	switch {
	case ok:
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		refused = errBusy
	default:
		refused = refusal.Failure()
		a.options.Log.LogAttrs(r.Context(), slog.LevelError, "a request failed", slog.String("instance", instance),
			slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.Any("error", err))
	}
	body := refused.Problem()
	body.Instance = instance
	refused.Write(w, body)
}
