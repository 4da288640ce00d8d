package control

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

const (
	writeWithin = 20 * time.Second // an answer
	retryAfter  = 10               // seconds, at most, that agents are told to wait; each another time
)

// Refusal is an answer that refuses a request, and what to do.
type Refusal struct {
	Status int
	Detail string
	Header http.Header // nil: nothing special
}

// Error returns the detail.
func (r *Refusal) Error() string { return r.Detail }

// Handler returns the handler of everything below [protocol.Path]. Identify returns who vouches for the sender of a request, or a
// [*Refusal].
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

// serve answers with what f returns if that is an error.
func (h *handler) serve(f func(http.ResponseWriter, *http.Request, Caller) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		principal, err := h.identify(r)
		if err == nil {
			c := Caller{ID: r.PathValue("id"), Session: r.URL.Query().Get("session"), Principal: principal, Transport: "http"}
			if c.ID != protocol.Printable(c.ID, protocol.MaxText) || len(c.Session) > protocol.MaxText {
				err = &Refusal{Status: http.StatusNotFound, Detail: "an id is a printable text of at most " + strconv.Itoa(protocol.MaxText) + " bytes"}
			} else {
				err = f(w, r, c)
			}
		}
		if err != nil {
			h.refuse(w, r, err)
		}
	}
}

// problem is a body of an error: as RFC 9457 has it, and as the protocol does.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	protocol.Problem
}

func (h *handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	h.counts.Refused.Add(1)
	f := refusalOf(err, r.PathValue("id"))
	if f.Status == http.StatusInternalServerError {
		h.options.Log.LogAttrs(r.Context(), slog.LevelError, "a request of an agent failed", slog.String("path", r.URL.Path), slog.Any("error", err))
	}
	maps.Copy(w.Header(), f.Header)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(f.Status)
	_ = json.NewEncoder(w).Encode(problem{"about:blank", http.StatusText(f.Status), f.Status, f.Detail, protocol.Problem{Error: f.Detail}}) // whoever left is told nothing
}

// refusalOf says what an agent is told about an error.
func refusalOf(err error, id string) *Refusal {
	later := func() http.Header {
		return http.Header{"Retry-After": {strconv.Itoa(1 + int(spread(id)*retryAfter))}}
	}
	if f, ok := errors.AsType[*Refusal](err); ok {
		return f
	}
	if _, ok := errors.AsType[*protocol.InvalidError](err); ok {
		return &Refusal{Status: http.StatusUnprocessableEntity, Detail: err.Error()}
	}
	switch {
	case errors.Is(err, ErrUnknown):
		return &Refusal{http.StatusNotFound, err.Error(), later()}
	case errors.Is(err, ErrConflict):
		return &Refusal{http.StatusConflict, err.Error(), later()}
	case errors.Is(err, ErrPages), errors.Is(err, protocol.ErrVersion):
		return &Refusal{Status: http.StatusUnprocessableEntity, Detail: err.Error()}
	case errors.Is(err, ErrFull), errors.Is(err, ErrStarting):
		return &Refusal{http.StatusServiceUnavailable, err.Error(), later()}
	case errors.Is(err, errBusy), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.Canceled):
		return &Refusal{http.StatusServiceUnavailable, errBusy.Error(), later()}
	}
	return &Refusal{Status: http.StatusInternalServerError, Detail: "this should not happen: the log says more"}
}

func nothing(http.ResponseWriter, *http.Request, Caller) error {
	return &Refusal{Status: http.StatusNotFound, Detail: "nothing is here: agents PUT " + protocol.Path + "{id}, GET " + protocol.Path + "{id}" + protocol.PlanPath +
		" and POST " + protocol.Path + "{id}" + protocol.StatusPath}
}

// read decodes the body of a request, with decode, when it is its turn.
func (h *handler) read(w http.ResponseWriter, r *http.Request, decode func([]byte) error) error {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return &Refusal{Status: http.StatusUnsupportedMediaType, Detail: "send the body as Content-Type: application/json"}
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

func noJSON(err error) error {
	return &Refusal{Status: http.StatusBadRequest, Detail: "no JSON of the protocol: " + err.Error()}
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
			return &Refusal{Status: http.StatusBadRequest, Detail: "wait: want a duration like 30s"}
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
	told := h.published.Load().told
	select {
	case <-told:
		return
	default:
		if told == nil {
			return
		}
	}
	timer := time.NewTimer(plansFirst)
	defer timer.Stop()
	select {
	case <-told:
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
