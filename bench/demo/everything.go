package demo

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/bench/demo/shop"
)

// everything serves agents of one service a plan that enables all tracepoints of their catalogue for all requests.
type everything struct {
	listener net.Listener
	server   *http.Server

	mu      sync.Mutex // guards the fields below
	pages   map[int][]protocol.Tracepoint
	hash    string // of the catalogue that the pages belong to
	plan    *protocol.Plan
	changed chan struct{} // closed when plan changes
}

// startEverything starts the server.
func startEverything(ctx context.Context) (*everything, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	e := &everything{listener: listener, changed: make(chan struct{})}
	e.enable(nil)
	mux := http.NewServeMux()
	mux.HandleFunc("PUT "+protocol.Path+"{id}", e.register)
	mux.HandleFunc("GET "+protocol.Path+"{id}"+protocol.PlanPath, e.get)
	mux.HandleFunc("POST "+protocol.Path+"{id}"+protocol.StatusPath,
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	e.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = e.server.Serve(listener) }() // ends with close
	return e, nil
}

func (e *everything) url() string { return "http://" + e.listener.Addr().String() }

func (e *everything) close() error { return e.server.Close() }

// register takes a page of a catalogue, and answers with the missing pages.
func (e *everything) register(w http.ResponseWriter, q *http.Request) {
	var r protocol.Registration
	if err := decodeBody(q, &r); err != nil || r.Validate() != nil {
		http.Error(w, "invalid registration", http.StatusUnprocessableEntity)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.hash != r.Catalogue.Hash {
		e.hash, e.pages = r.Catalogue.Hash, make(map[int][]protocol.Tracepoint)
	}
	if r.Page != nil {
		e.pages[r.Page.Number] = r.Page.Tracepoints
	}
	answer := protocol.Registered{Protocol: protocol.Version}
	var all []protocol.Tracepoint
	for page := range r.Catalogue.Pages() {
		if e.pages[page] == nil {
			answer.Missing = append(answer.Missing, page)
		}
		all = append(all, e.pages[page]...)
	}
	if len(answer.Missing) == 0 {
		e.enable(all)
	}
	_ = json.NewEncoder(w).Encode(answer) // fails if the agent has gone
}

// enable makes a plan of all tracepoints. It requires e.mu, unless no other goroutine knows e.
func (e *everything) enable(all []protocol.Tracepoint) {
	version := int64(0)
	if e.plan != nil {
		version = e.plan.Version + 1
	}
	p := shop.FullPlan(version, all)
	p.Hash = protocol.HashPlan(p)
	e.plan = p
	close(e.changed)
	e.changed = make(chan struct{})
}

// get answers with the plan, once it differs from the agent's.
func (e *everything) get(w http.ResponseWriter, q *http.Request) {
	wait, err := time.ParseDuration(q.URL.Query().Get("wait"))
	if err != nil {
		wait = 0
	}
	deadline := time.After(wait)
	for {
		e.mu.Lock()
		plan, changed := e.plan, e.changed
		e.mu.Unlock()
		if q.Header.Get("If-None-Match") != `"`+plan.Hash+`"` {
			_ = json.NewEncoder(w).Encode(plan) // fails if the agent has gone
			return
		}
		select {
		case <-changed:
		case <-deadline:
			w.WriteHeader(http.StatusNotModified)
			return
		case <-q.Context().Done():
			return
		}
	}
}

// decodeBody decodes a message of an agent, which may be compressed.
func decodeBody(q *http.Request, to any) error {
	body := io.Reader(q.Body)
	if q.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(q.Body)
		if err != nil {
			return err
		}
		body = z
	}
	return json.NewDecoder(io.LimitReader(body, protocol.MaxBody)).Decode(to)
}
