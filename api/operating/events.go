package operating

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
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/decisionlog"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/notify"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Limits on event streams.
const (
	bufferedEvents    = 1024             // events kept for readers that are slow or reconnect
	maxStreams        = 256              // concurrent readers
	heartbeatInterval = 15 * time.Second // between comments on an idle stream
	WriteTimeout      = 10 * time.Second // for a write to a client
)

// hub buffers the latest events and wakes the streams that are waiting for more.
type hub struct {
	mu      sync.Mutex // guards the fields up to slow
	run     string     // identifies this run of the service; event numbers from other runs are invalid
	next    uint64     // number of the next event
	ring    [bufferedEvents]string
	changed chan struct{} // closed at the next event
	streams int
	slow    uint64 // number of readers that were too slow

	closed chan struct{} // closed when the streams must end

	// State as of the last epoch. Only the goroutine that owns the core uses it.
	known     map[analysis.Hash]search.Status // problems; nil until the first epoch has ended
	incidents map[uint64]knownIncident
	annotated map[uint64]bool // IDs of annotations
}

// start initializes h for a run of the service that starts now.
func (h *hub) start(now time.Time) {
	h.run, h.changed, h.closed = strconv.FormatInt(now.UnixNano(), 36), make(chan struct{}), make(chan struct{})
}

// publish adds events and wakes the streams that are waiting for them.
func (h *hub) publish(events []contract.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range events {
		data, err := json.Marshal(&events[i])
		if err != nil {
			panic(err) // can't fail for text, numbers and times
		}
		h.ring[h.next%bufferedEvents] = fmt.Sprintf("id: %s-%d\nevent: %s\ndata: %s\n\n",
			h.run, h.next, events[i].Type, data)
		h.next++
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

// since returns the events from number on, the number of the next event, and a channel that is closed at the next
// event. If the buffer no longer holds all of the events, lost is true and events is empty.
func (h *hub) since(number uint64) (events string, next uint64, changed <-chan struct{}, lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if oldest := h.next - min(h.next, bufferedEvents); number < oldest {
		return "", h.next, h.changed, true
	}
	var b strings.Builder
	for n := number; n < h.next; n++ {
		b.WriteString(h.ring[n%bufferedEvents])
	}
	return b.String(), h.next, h.changed, false
}

// resume returns the number of the event after the event with the given ID. If the ID is empty, it returns the number
// of the next event. If the ID belongs to another run, or the buffer no longer holds the event after it, resume also
// returns the number of the next event, and sets missed.
func (h *hub) resume(id string) (number uint64, missed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if id == "" {
		return h.next, false
	}
	run, text, _ := strings.Cut(id, "-")
	last, err := strconv.ParseUint(text, 10, 64)
	if err != nil || run != h.run || last >= h.next || h.next-last > bufferedEvents {
		return h.next, true
	}
	return last + 1, false
}

// enter counts a reader. It returns false if there are too many readers.
func (h *hub) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams >= maxStreams {
		return false
	}
	h.streams++
	return true
}

// leave removes a reader from the count. slow is set if the reader was disconnected for being too slow.
func (h *hub) leave(slow bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams--
	if slow {
		h.slow++
	}
}

// readers returns the number of readers, and the number of readers disconnected so far because they were too slow.
func (h *hub) readers() (streams int, slow uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.streams, h.slow
}

// Close ends all event streams. It must be called only once.
func (a *Operating) Close() { close(a.hub.closed) }

// PublishEpoch publishes the events of an epoch with the given decisions. Only the goroutine that owns the core may
// call PublishEpoch, after the end of the epoch.
func (a *Operating) PublishEpoch(c *engine.View, decisions []search.Decision) {
	a.hub.publish(a.epochEvents(c, c.Ended, decisions))
}

// Streaming reports whether anyone is reading events.
func (a *Operating) Streaming() bool {
	streams, _ := a.hub.readers()
	return streams > 0
}

// epochEvents returns the events of an epoch: changes of incidents and problems, decisions and annotations.
func (a *Operating) epochEvents(c *engine.View, ended trace.Nanos, decisions []search.Decision) []contract.Event {
	problems := c.Problems.Open()
	incidents := a.incidentEvents(c, ended)
	events := []contract.Event{
		{Type: "epoch", At: render.At(ended), Problems: new(len(problems)), Incidents: new(len(a.hub.incidents))},
	}
	events = append(events, incidents...)
	s := a.reader.Latest()
	add := func(kind string, problem, requestType analysis.Hash) {
		e := contract.Event{Type: "problem." + kind, At: render.At(ended), Problem: new(problem.String())}
		if !requestType.IsZero() {
			e.RequestType = new(requestType.String())
		}
		if s != nil {
			if i, ok := s.ByID[problem.String()]; ok {
				e.Diagnosis = new(s.Problems[i].Diagnosis)
			}
		}
		events = append(events, e)
	}
	first := a.hub.known == nil
	status := make(map[search.Subject]search.Status)
	for i := range c.Searches.State().Investigations {
		status[c.Searches.State().Investigations[i].Subject] = c.Searches.State().Investigations[i].Status
	}
	open := make(map[analysis.Hash]search.Status, len(problems))
	for i := range problems {
		p := &problems[i]
		now := status[search.OfProblem(p.ID)] // Opened if there is no investigation
		before, known := a.hub.known[p.ID]
		open[p.ID] = now
		if !known && !first {
			add("opened", p.ID, p.RequestType)
		}
		if now != before && now != search.Opened && now != search.Gone && !first {
			add(now.String(), p.ID, p.RequestType)
		}
	}
	for id := range a.hub.known {
		if _, ok := open[id]; !ok {
			add("closed", id, analysis.Hash{})
		}
	}
	a.hub.known = open
	for _, d := range decisionlog.WithIDs(decisions) {
		problem, incident := render.Subject(d.Decision.Subject)
		events = append(events, contract.Event{
			Type:     "decision",
			At:       render.At(d.ID.At),
			Decision: new(d.ID.String()),
			Problem:  render.Optional(problem),
			Incident: incident,
		})
	}
	return append(events, a.hub.annotationEvents(c)...)
}

// knownIncident is an open incident as shown in the latest event about it.
type knownIncident struct {
	suspect trace.Symbol
	types   int
	located bool // its place is known
}

// changeOf returns the kind of event for the change of an incident since the latest event about it, or "" if it hasn't
// changed. wasOpen and `before` describe the incident as of the latest event.
func changeOf(isOpen, wasOpen bool, now, before knownIncident) string {
	switch {
	case !isOpen && wasOpen:
		return "closed"
	case !isOpen:
		return ""
	case !wasOpen:
		return "opened"
	case now.suspect != before.suspect || now.types != before.types:
		return "changed"
	}
	return ""
}

// incidentEvents returns events for the incidents that opened, changed, were located or closed in an epoch. It returns
// no events in the first epoch of a run.
func (a *Operating) incidentEvents(c *engine.View, ended trace.Nanos) []contract.Event {
	first := a.hub.incidents == nil
	known := make(map[uint64]knownIncident)
	var events []contract.Event
	all := c.Incidents.All()
	for i := range all {
		x := &all[i]
		before, wasOpen := a.hub.incidents[x.ID]
		v := c.Searches.Investigation(search.OfIncident(x.ID))
		now := knownIncident{x.Suspects[0].Service, len(x.Types), v.Answer() != 0}
		kind := changeOf(x.IsOpen(), wasOpen, now, before)
		if x.IsOpen() {
			known[x.ID] = now
		}
		if first {
			continue
		}
		if kind == "opened" {
			a.opened.Add(1)
		}
		if kind != "" {
			events = append(events, contract.Event{
				Type:     "incident." + kind,
				At:       render.At(ended),
				Incident: new(render.Hex16(x.ID)),
				Service:  new(c.Table.Text(now.suspect)),
				Sentence: new(describe.NewIncident(namesOfAffected(c), x, ended).Sentence.String()),
			})
		}
		if now.located && !before.located && x.IsOpen() {
			events = append(events, locatedEvent(c, x.ID, v, ended))
		}
	}
	a.hub.incidents = known
	return events
}

// namesOfAffected returns names that include the request types of incidents.
func namesOfAffected(c *engine.View) *describe.Names {
	names := describe.New(c.Table, describe.Verbatim)
	for _, s := range c.AffectedTypes() {
		names.Add(&s)
	}
	return names
}

// locatedEvent returns the event for an incident whose place became known in this epoch: either its own investigation
// has just located the place, or the investigation of one of its problems had already done so.
func locatedEvent(c *engine.View, id uint64, v *search.Investigation, ended trace.Nanos) contract.Event {
	top := &v.Suspects[0]
	share := 0.
	for _, x := range c.Incidents.All() {
		if x.ID == id {
			share = x.ShareOf(v, top.Share)
		}
	}
	names := describe.New(c.Table, describe.Verbatim)
	return contract.Event{
		Type:     string(notify.IncidentLocated),
		At:       render.At(ended),
		Incident: new(render.Hex16(id)),
		Service:  new(c.Table.ServiceName(top.Op)),
		Sentence: new(describe.Located(names, top.Op, share, engine.Reason{}).String() + "."),
	}
}

// annotationEvents returns events for the annotations that were added since the previous call, oldest first. It returns
// no events in the first epoch of a run.
func (h *hub) annotationEvents(c *engine.View) (events []contract.Event) {
	first, known := h.annotated == nil, make(map[uint64]bool)
	for i := range c.Annotations {
		x := &c.Annotations[i]
		if !first && !h.annotated[x.ID] {
			told := render.Annotation(c.Table, x)
			events = append(events, contract.Event{
				Type:       "annotation",
				At:         told.At,
				Service:    render.Optional(told.Service),
				Annotation: &told,
			})
		}
		known[x.ID] = true
	}
	h.annotated = known
	return events
}

// StreamEvents serves events until the reader disconnects, is too slow or is no longer allowed to read them, or the
// service stops. If it returns an error, it hasn't written anything.
func (a *Operating) StreamEvents(w http.ResponseWriter, r *http.Request, allowed func() bool) error {
	if !a.hub.enter() {
		return refusal.New(refusal.Overloaded, "too many concurrent event streams", "").Later(10 * time.Second)
	}
	slow := false
	defer func() { a.hub.leave(slow) }()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies must forward every event immediately
	if r.Method == http.MethodHead {
		return nil
	}
	mayRead := func() bool { return !a.stopping() && allowed() }
	out := http.NewResponseController(w)
	write := func(text string) bool {
		_ = out.SetWriteDeadline(a.options.Clock().Add(WriteTimeout)) // only fails for recorders in tests
		_, err := bytes.NewBufferString(text).WriteTo(w)
		if err == nil {
			err = out.Flush()
		}
		return err == nil
	}
	number, missed := a.hub.resume(r.Header.Get("Last-Event-ID"))
	hello := ": events follow\n\n"
	if missed {
		now := a.options.Clock().UTC().Format(time.RFC3339Nano)
		hello = "event: reset\ndata: " + `{"type":"reset","at":"` + now + `"}` + "\n\n"
	}
	for alive := write(hello); alive; {
		events, next, changed, lost := a.hub.since(number)
		switch {
		case lost:
			slow = true
			return nil
		case events != "":
			number = next
			alive = mayRead() && write(events)
		default:
			alive = a.await(r, changed) || r.Context().Err() == nil && mayRead() && write(": still here\n\n")
		}
	}
	return nil
}

// await waits for the next event, and reports whether there is one. It returns false after heartbeatInterval, or if the
// reader disconnects or the service stops.
func (a *Operating) await(r *http.Request, changed <-chan struct{}) bool {
	ctx, cancel := context.WithTimeout(r.Context(), heartbeatInterval)
	defer cancel()
	select {
	case <-changed:
		return true
	case <-a.hub.closed:
		return false
	case <-ctx.Done():
		return false
	}
}

// stopping reports whether the streams must end.
func (a *Operating) stopping() bool {
	select {
	case <-a.hub.closed:
		return true
	default:
		return false
	}
}
