package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

const (
	writeTimeout  = 20 * time.Second // for writing an answer
	maxRetryAfter = 10               // in seconds; each agent gets a different fraction of it
)

// Identity describes the token that a request carries.
type Identity struct {
	Token    string   // name of the token; empty if no token is needed
	Services []string // services that its agents may speak for; all if empty; a final * matches any suffix
}

// Handler returns a handler for all paths below [protocol.Path]. identify must return the token that a request carries,
// or a [*refusal.Error].
func (p *Plane) Handler(identify func(*http.Request) (Identity, error)) http.Handler {
	h := &handler{plane: p, identify: identify}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT "+protocol.Path+"{id}", h.serve(h.register))
	mux.HandleFunc("GET "+protocol.Path+"{id}"+protocol.PlanPath, h.serve(h.plan))
	mux.HandleFunc("POST "+protocol.Path+"{id}"+protocol.StatusPath, h.serve(h.status))
	mux.HandleFunc("/", h.serve(notFound))
	return mux
}

// handler serves agents over HTTP.
type handler struct {
	plane    *Plane
	identify func(*http.Request) (Identity, error)
}

// serve returns a handler that identifies the caller, calls f, and writes an error as a refusal.
func (h *handler) serve(f func(http.ResponseWriter, *http.Request, Caller) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		who, err := h.identify(r)
		if err == nil {
			c := Caller{
				ID:        r.PathValue("id"),
				Session:   r.URL.Query().Get("session"),
				Principal: who.Token,
				Services:  who.Services,
				Transport: overHTTP,
			}
			if c.ID != protocol.Printable(c.ID, protocol.MaxText) || len(c.Session) > protocol.MaxText {
				err = errID
			} else {
				err = f(w, r, c)
			}
		}
		if err != nil {
			h.refuse(w, r, err)
		}
	}
}

var errID = refusal.New(refusal.NotFound,
	fmt.Sprintf("an ID is printable text of at most %d bytes", protocol.MaxText), "")

// problem is the body of a refusal: both a [refusal.Problem] and a [protocol.Problem].
type problem struct {
	refusal.Problem
	Error string `json:"error"`
}

func (h *handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	h.plane.counts.Refused.Add(1)
	refused := refusalOf(err, r.PathValue("id"))
	if refused.Reason == refusal.Failed {
		h.plane.options.Log.LogAttrs(r.Context(), slog.LevelError, "a request of an agent failed",
			slog.String("path", r.URL.Path), slog.Any("error", err))
	}
	refused.Write(w, problem{refused.Problem(), refused.Error()})
}

// refusalOf converts err to the refusal of a request from the agent with the given ID. The delay before a retry
// depends on the ID, so that many agents don't return at once.
func refusalOf(err error, id string) *refusal.Error {
	refused, ok := errors.AsType[*refusal.Error](err)
	invalid, isInvalid := errors.AsType[*protocol.InvalidError](err)
	switch {
	case ok:
	case isInvalid:
		refused = refusal.New(refusal.Invalid, invalid.Error(), "")
	case errors.Is(err, protocol.ErrVersion):
		refused = refusal.New(refusal.Invalid, err.Error(), "")
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.Canceled):
		refused = errBusy
	default:
		refused = refusal.Failure()
	}
	if errors.Is(refused, refusal.Overloaded) || errors.Is(refused, ErrUnknown) || errors.Is(refused, ErrConflict) {
		refused = refused.Later(time.Duration(1+int(jitter(id)*maxRetryAfter)) * time.Second)
	}
	return refused
}

func notFound(http.ResponseWriter, *http.Request, Caller) error {
	const agent = protocol.Path + "{id}"
	return refusal.New(refusal.NotFound, "no such resource",
		"agents PUT "+agent+", GET "+agent+protocol.PlanPath+" and POST "+agent+protocol.StatusPath)
}

// read reads the body of r, which must be JSON, and passes it to decode. Only a few bodies are decoded at a time.
func (h *handler) read(w http.ResponseWriter, r *http.Request, decode func([]byte) error) error {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return refusal.New(refusal.UnknownType, "the Content-Type of the body is not JSON",
			"send Content-Type: application/json")
	}
	body, done, err := h.plane.Messages.Body(w, r, protocol.MaxBody)
	if err != nil {
		return err
	}
	defer done()
	release, err := h.plane.Messages.acquireDecoder(r)
	if err != nil {
		return err
	}
	defer release()
	return decode(body)
}

// register answers PUT requests, which register an agent.
func (h *handler) register(w http.ResponseWriter, r *http.Request, c Caller) error {
	var missing []int
	err := h.read(w, r, func(body []byte) error {
		registration, err := h.plane.decodeRegistration(body)
		if err != nil {
			return err
		}
		missing, err = h.plane.Register(c, registration)
		return err
	})
	if err != nil {
		return err
	}
	return writeJSON(w, protocol.Registered{Protocol: protocol.Version, Missing: missing})
}

// BadJSON returns the refusal of a body whose decoding failed with err. Unlike err, the refusal mentions neither Go
// types nor callbacks of the decoder.
func BadJSON(err error) error {
	why := strings.ReplaceAll(err.Error(), "callback: ", "")
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		why = strings.TrimSpace(mismatch.Field + " cannot be a " + mismatch.Value)
	}
	return refusal.New(refusal.Malformed, "invalid JSON: "+why, "")
}

// HasCatalogue reports whether all pages of the catalogue with the hash of c have been received.
func (p *Plane) HasCatalogue(c protocol.Catalogue) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.catalogues.byHash[c.Hash]
	return list != nil && list.complete()
}

// plan answers GET requests for the plan of an agent.
func (h *handler) plan(w http.ResponseWriter, r *http.Request, c Caller) error {
	var wait time.Duration
	if text := r.URL.Query().Get("wait"); text != "" {
		var err error
		if wait, err = time.ParseDuration(text); err != nil || wait < 0 {
			return refusal.New(refusal.Malformed, "wait: want a duration like 30s", "")
		}
	}
	has := strings.Trim(strings.TrimPrefix(r.Header.Get("If-None-Match"), "W/"), `"`)
	answer, err := h.plane.Wait(r.Context(), c, has, wait)
	if err != nil {
		return err
	}
	deadline := time.Now().Add(writeTimeout)
	_ = http.NewResponseController(w).SetWriteDeadline(deadline) // fails only in tests without a network
	w.Header().Set("ETag", `"`+answer.Hash+`"`)
	if answer.Unchanged {
		h.plane.counts.Unchanged.Add(1)
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	h.plane.counts.Plans.Add(1)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(answer.JSON)))
	_, _ = w.Write(answer.JSON) // after an error the agent asks again
	return nil
}

// statusDelay is the maximum time that statuses wait while a new plan is being delivered.
const statusDelay = time.Second

// afterDelivery waits until all agents that waited for the current plan have received it, but no longer than
// statusDelay. Statuses are less urgent than plans.
func (h *handler) afterDelivery(ctx context.Context) {
	delivered := h.plane.published.Load().delivered
	select {
	case <-delivered:
		return
	default:
		if delivered == nil {
			return
		}
	}
	timer := time.NewTimer(statusDelay)
	defer timer.Stop()
	select {
	case <-delivered:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// status answers POST requests with the status of an agent.
func (h *handler) status(w http.ResponseWriter, r *http.Request, c Caller) error {
	h.afterDelivery(r.Context())
	err := h.read(w, r, func(body []byte) error {
		s, err := decodeStatus(body)
		if err != nil {
			return err
		}
		return h.plane.Report(c, s)
	})
	if err != nil {
		return err
	}
	if seconds, asked := h.plane.stackSeconds(c.ID); asked {
		return writeJSON(w, protocol.StatusAnswer{StackSeconds: seconds})
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func writeJSON(w http.ResponseWriter, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // after an error the agent asks again
	return nil
}
