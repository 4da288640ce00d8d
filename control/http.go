package control

import (
	"context"
	"encoding/json"
	"errors"
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
	writeWithin = 20 * time.Second // an answer
	retryAfter  = 10               // seconds, at most, that agents are told to wait; each another time
)

// Handler returns the handler of everything below [protocol.Path]. Identify returns the token that vouches for the
// sender of a request, or a [*refusal.Error].
func (p *Plane) Handler(identify func(*http.Request) (principal string, err error)) http.Handler {
	h := &handler{p, identify}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT "+protocol.Path+"{id}", h.serve(h.register))
	mux.HandleFunc("GET "+protocol.Path+"{id}"+protocol.PlanPath, h.serve(h.plan))
	mux.HandleFunc("POST "+protocol.Path+"{id}"+protocol.StatusPath, h.serve(h.status))
	mux.HandleFunc("/", h.serve(nothing))
	return mux
}

type handler struct {
	*Plane
	identify func(*http.Request) (string, error)
}

// serve answers requests with f, and with a refusal if f returns an error.
func (h *handler) serve(f func(http.ResponseWriter, *http.Request, Caller) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		principal, err := h.identify(r)
		if err == nil {
			c := Caller{ID: r.PathValue("id"), Session: r.URL.Query().Get("session"), Principal: principal, Transport: "http"}
			if c.ID != protocol.Printable(c.ID, protocol.MaxText) || len(c.Session) > protocol.MaxText {
				err = refusal.New(refusal.NotFound, "an id is a printable text of at most "+strconv.Itoa(protocol.MaxText)+" bytes", "")
			} else {
				err = f(w, r, c)
			}
		}
		if err != nil {
			h.refuse(w, r, err)
		}
	}
}

// problem is the body of a refusal, which is also a [protocol.Problem].
type problem struct {
	refusal.Problem
	Error string `json:"error"`
}

func (h *handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	h.counts.Refused.Add(1)
	refused := refusalOf(err, r.PathValue("id"))
	if refused.Reason == refusal.Failed {
		h.options.Log.LogAttrs(r.Context(), slog.LevelError, "a request of an agent failed", slog.String("path", r.URL.Path), slog.Any("error", err))
	}
	refused.Write(w, problem{refused.Problem(), refused.Error()})
}

// refusalOf returns the refusal that tells an agent about err. Agents are told to come back at different times, by
// their id.
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
		refused = refused.Later(time.Duration(1+int(spread(id)*retryAfter)) * time.Second)
	}
	return refused
}

func nothing(http.ResponseWriter, *http.Request, Caller) error {
	return refusal.New(refusal.NotFound, "nothing is here", "agents PUT "+protocol.Path+"{id}, GET "+protocol.Path+"{id}"+protocol.PlanPath+
		" and POST "+protocol.Path+"{id}"+protocol.StatusPath)
}

// read decodes the body of a request, with decode, when it is its turn.
func (h *handler) read(w http.ResponseWriter, r *http.Request, decode func([]byte) error) error {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return refusal.New(refusal.UnknownType, "the body is not announced as JSON", "send Content-Type: application/json")
	}
	body, done, err := h.Body(w, r, protocol.MaxBody)
	if err != nil {
		return err
	}
	defer done()
	next, err := h.turn(r)
	if err != nil {
		return err
	}
	defer next()
	return decode(body)
}

// register answers PUT.
func (h *handler) register(w http.ResponseWriter, r *http.Request, c Caller) error {
	var missing []int
	err := h.read(w, r, func(body []byte) error {
		registration, err := h.decodeRegistration(body)
		if err != nil {
			return err
		}
		missing, err = h.Register(c, registration)
		return err
	})
	if err != nil {
		return err
	}
	return answer(w, protocol.Registered{Protocol: protocol.Version, Missing: missing})
}

// BadJSON returns the refusal of a body that cannot be decoded because of err, without the types of Go that package
// json names.
func BadJSON(err error) error {
	why := err.Error()
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		why = strings.TrimSpace(mismatch.Field + " cannot be a " + mismatch.Value)
	}
	return refusal.New(refusal.Malformed, "no JSON of the protocol: "+why, "")
}

// Knows reports whether all pages of a catalogue have come.
func (p *Plane) Knows(c protocol.Catalogue) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.catalogues[c.Hash]
	return list != nil && list.complete()
}

// plan answers GET plan.
func (h *handler) plan(w http.ResponseWriter, r *http.Request, c Caller) error {
	var wait time.Duration
	if text := r.URL.Query().Get("wait"); text != "" {
		var err error
		if wait, err = time.ParseDuration(text); err != nil || wait < 0 {
			return refusal.New(refusal.Malformed, "wait: want a duration like 30s", "")
		}
	}
	has := strings.Trim(strings.TrimPrefix(r.Header.Get("If-None-Match"), "W/"), `"`)
	t, err := h.Wait(r.Context(), c, has, wait)
	if err != nil {
		return err
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeWithin)) // what has no deadlines is no network
	w.Header().Set("ETag", `"`+t.Hash+`"`)
	if t.Unchanged {
		h.counts.Unchanged.Add(1)
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	h.counts.Plans.Add(1)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(t.JSON)))
	_, _ = w.Write(t.JSON) // whoever left asks again
	return nil
}

// plansFirst is how long statuses wait while agents wait for a plan that is there.
const plansFirst = time.Second

// afterPlans waits until all agents that waited for the present plan have it: what they say about it is not as urgent.
func (h *handler) afterPlans(ctx context.Context) {
	delivered := h.published.Load().delivered
	select {
	case <-delivered:
		return
	default:
		if delivered == nil {
			return
		}
	}
	timer := time.NewTimer(plansFirst)
	defer timer.Stop()
	select {
	case <-delivered:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// status answers POST status.
func (h *handler) status(w http.ResponseWriter, r *http.Request, c Caller) error {
	h.afterPlans(r.Context())
	err := h.read(w, r, func(body []byte) error {
		s, err := decodeStatus(body)
		if err != nil {
			return err
		}
		return h.Report(c, s)
	})
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func answer(w http.ResponseWriter, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // whoever left asks again
	return nil
}
