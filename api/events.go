package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Bounds of streams of events.
const (
	keptEvents  = 1024             // that a reader who comes again, or is slow, can still get
	maxStreams  = 256              // readers at a time
	heartbeat   = 15 * time.Second // after which a silent stream says that it lives
	writeWithin = 10 * time.Second // or the reader is cut off
)

// hub holds the latest events and wakes those who wait for more.
type hub struct {
	mu      sync.Mutex // guards all below
	began   string     // names this run: numbers of another one mean nothing
	next    uint64     // number of the next event
	ring    [keptEvents]string
	changed chan struct{} // closed at the next event
	streams int
	cut     uint64 // readers that were too slow

	ended chan struct{} // closed when nobody is told anything any more

	// As of the last epoch, for the core's owner only.
	known    map[analysis.Hash]search.Status // problems; nil: none ended
	deployed engine.Deploy                   // the latest; zero: none
}

// begin starts a run.
func (h *hub) begin(now time.Time) {
	h.began, h.changed, h.ended = strconv.FormatInt(now.UnixNano(), 36), make(chan struct{}), make(chan struct{})
}

// publish adds events.
func (h *hub) publish(events []contract.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range events {
		data, err := json.Marshal(&events[i])
		if err != nil {
			panic(err) // it holds text, numbers and times
		}
		h.ring[h.next%keptEvents] = fmt.Sprintf("id: %s-%d\nevent: %s\ndata: %s\n\n", h.began, h.next, events[i].Type, data)
		h.next++
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

// since returns the events from a number on, the number after them, and what is closed at the next one. Lost says that the first of them
// are gone.
func (h *hub) since(number uint64) (events string, next uint64, changed <-chan struct{}, lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if oldest := h.next - min(h.next, keptEvents); number < oldest {
		return "", h.next, h.changed, true
	}
	var b strings.Builder
	for n := number; n < h.next; n++ {
		b.WriteString(h.ring[n%keptEvents])
	}
	return b.String(), h.next, h.changed, false
}

// resume returns the number of the event after the one with the given ID, and whether events may be missing between.
func (h *hub) resume(id string) (number uint64, missed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if id == "" {
		return h.next, false
	}
	run, text, _ := strings.Cut(id, "-")
	last, err := strconv.ParseUint(text, 10, 64)
	if err != nil || run != h.began || last >= h.next || h.next-last > keptEvents {
		return h.next, true
	}
	return last + 1, false
}

// enter counts a reader; it returns false where there are too many.
func (h *hub) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams >= maxStreams {
		return false
	}
	h.streams++
	return true
}

// leave uncounts a reader that was, or was not, too slow.
func (h *hub) leave(slow bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams--
	if slow {
		h.cut++
	}
}

// readers returns how many there are, and how many were too slow.
func (h *hub) readers() (streams int, cut uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.streams, h.cut
}

// Close ends all streams of events, which would last as long as their readers want; these come again. It is called once.
func (a *API) Close() { close(a.hub.ended) }

// Epoch is called by the owner of the core when an epoch has ended, with what was decided. It is quick, and keeps nothing of the core.
func (a *API) Epoch(c *engine.Core, decisions []search.Decision) {
	ended := c.Ended()
	streams, _ := a.hub.readers()
	if a.snapshot.wanted.Swap(false) || streams > 0 {
		a.refresh(c)
	}
	a.snapshot.before.Store(a.snapshot.ended.Swap(int64(ended)))
	a.hub.publish(a.happened(c, ended, decisions))
}

// happened returns the events of an epoch.
func (a *API) happened(c *engine.Core, ended trace.Nanos, decisions []search.Decision) []contract.Event {
	problems := c.Problems()
	events := []contract.Event{{Type: "epoch", At: at(ended), Problems: new(len(problems))}}
	s := a.snapshot.last.Load()
	add := func(kind string, problem, requestType analysis.Hash) {
		e := contract.Event{Type: "problem." + kind, At: at(ended), Problem: new(problem.String())}
		if !requestType.IsZero() {
			e.RequestType = new(requestType.String())
		}
		if s != nil {
			if i, ok := s.byID[problem.String()]; ok {
				e.Diagnosis = new(s.problems[i].Diagnosis)
			}
		}
		events = append(events, e)
	}
	first := a.hub.known == nil
	status := make(map[analysis.Hash]search.Status)
	for i := range c.State().Investigations {
		status[c.State().Investigations[i].Problem] = c.State().Investigations[i].Status
	}
	open := make(map[analysis.Hash]search.Status, len(problems))
	for i := range problems {
		p := &problems[i]
		now := status[p.ID] // opened where it is not investigated
		before, known := a.hub.known[p.ID]
		open[p.ID] = now
		if !known && !first {
			add("opened", p.ID, p.RequestType)
		}
		if now != before && now != search.Opened && !first {
			add(now.String(), p.ID, p.RequestType)
		}
	}
	for id := range a.hub.known {
		if _, ok := open[id]; !ok {
			add("closed", id, analysis.Hash{})
		}
	}
	a.hub.known = open
	for _, d := range located(decisions) {
		e := contract.Event{Type: "decision", At: at(d.At), Decision: new(d.place.String())}
		if !d.Investigation.IsZero() {
			e.Problem = new(d.Investigation.String())
		}
		events = append(events, e)
	}
	for _, d := range a.hub.newDeploys(c.Deploys(), first) {
		x := deployOf(c.Table(), d)
		events = append(events, contract.Event{Type: "deploy", At: x.At, Service: &x.Service, Version: &x.Version, Before: &x.Before})
	}
	return events
}

// newDeploys returns those of the deploys, the oldest first, that were not there when the last epoch ended; none when the first did.
func (h *hub) newDeploys(deploys []engine.Deploy, first bool) []engine.Deploy {
	n := len(deploys)
	for n > 0 && deploys[n-1] != h.deployed {
		n--
	}
	if len(deploys) > 0 {
		h.deployed = deploys[len(deploys)-1]
	}
	if first {
		return nil
	}
	return deploys[n:]
}

// streamEvents serves events until the reader leaves, is too slow, or may not read any more, or the service stops.
func (a *API) streamEvents(w http.ResponseWriter, r *http.Request) {
	if !a.hub.enter() {
		a.fail(w, r, refusal.New(refusal.Overloaded, "too many readers of events at a time", "").Later(10*time.Second))
		return
	}
	slow := false
	defer func() { a.hub.leave(slow) }()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies must not wait for more
	if r.Method == http.MethodHead {
		return // no event would come, and whoever asked believes that this is over
	}
	out := http.NewResponseController(w)
	write := func(text string) bool {
		_ = out.SetWriteDeadline(a.options.Clock().Add(writeWithin)) // what has none is no network
		_, err := bytes.NewBufferString(text).WriteTo(w)
		if err == nil {
			err = out.Flush()
		}
		return err == nil
	}
	number, missed := a.hub.resume(r.Header.Get("Last-Event-ID"))
	hello := ": events follow\n\n"
	if missed {
		hello = "event: reset\ndata: {\"type\":\"reset\",\"at\":\"" + a.options.Clock().UTC().Format(time.RFC3339Nano) + "\"}\n\n"
	}
	for alive := write(hello); alive; {
		events, next, changed, lost := a.hub.since(number)
		switch {
		case lost:
			slow = true
			return
		case events != "":
			number = next
			alive = a.mayStay(r) && write(events)
		default:
			alive = a.await(r, changed) || r.Context().Err() == nil && a.mayStay(r) && write(": still here\n\n")
		}
	}
}

// await waits for the next event; it returns false where none comes for long, the reader leaves, or the service stops.
func (a *API) await(r *http.Request, changed <-chan struct{}) bool {
	ctx, cancel := context.WithTimeout(r.Context(), heartbeat)
	defer cancel()
	select {
	case <-changed:
		return true
	case <-a.hub.ended:
		return false
	case <-ctx.Done():
		return false
	}
}

// mayStay reports whether the reader's token is still good and the service goes on.
func (a *API) mayStay(r *http.Request) bool {
	select {
	case <-a.hub.ended:
		return false
	default:
	}
	who, err := a.identify(r)
	return err == nil && who.role.Allows(access.Viewer)
}
