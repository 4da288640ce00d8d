package demo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/bench/demo/shop"
	"github.com/sibyl-trace/sibyl/client"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// watcher reports the incident of the fault, and collects figures of the result. It is safe for concurrent use.
type watcher struct {
	server    *server
	located   chan struct{} // closed when found is set
	explained chan struct{} // closed when reason is set

	mu        sync.Mutex // guards the fields below
	out       io.Writer
	since     time.Time   // of the injection of the fault; zero before
	truth     *shop.Truth // nil unless a fault was injected
	epochs    int         // since the injection
	incidents []Incident
	told      string          // ID of the incident of the story; empty before it opens
	ever      map[string]bool // tracepoints that were ever enabled
	peak      int             // largest number of tracepoints enabled at once
	held      int             // tracepoints enabled for incidents
	largest   *contract.Plan  // with peak tracepoints; nil if all plans were empty
	found     *finding
	reason    *Wait // of the incident of the story; may be nil
}

// finding is the first place that was located for the incident of the fault.
type finding struct {
	edge    shop.Edge
	seconds float64
	epochs  int
}

func newWatcher(s *server, out io.Writer) *watcher {
	return &watcher{
		server:    s,
		out:       out,
		ever:      make(map[string]bool),
		located:   make(chan struct{}),
		explained: make(chan struct{}),
	}
}

// begin marks the injection of the fault.
func (w *watcher) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since, w.epochs = time.Now(), 0
}

// expect sets the location of the injected fault.
func (w *watcher) expect(t *shop.Truth) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.truth = t
}

// storyIndent is the width of the times before the lines of the story.
const storyIndent = 7

// print prints a paragraph after the time since the injection. It requires w.mu.
func (w *watcher) print(format string, arguments ...any) {
	at := ""
	if !w.since.IsZero() {
		seconds := int(time.Since(w.since).Seconds())
		at = fmt.Sprintf("%2d:%02d", seconds/60, seconds%60)
	}
	text := terminal.Style{Width: storyWidth}.Wrap(terminal.Printable(fmt.Sprintf(format, arguments...)), storyIndent)
	fmt.Fprint(w.out, terminal.PadRight(at, storyIndent)+text[storyIndent:])
}

// storyWidth is the width of the lines of the story.
const storyWidth = 110

// report is print for callers without w.mu.
func (w *watcher) report(format string, arguments ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.print(format, arguments...)
}

// handle handles an event. It leaves out problems, which are chronic or parts of incidents, and reports one incident.
func (w *watcher) handle(ctx context.Context, e contract.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e.Type {
	case "epoch":
		w.epochs++
		w.readPlan(ctx)
		w.readReason(ctx)
	case "incident.opened":
		w.opened(Incident{id: deref(e.Incident), Service: deref(e.Service), Sentence: deref(e.Sentence)})
	case "incident.changed":
		if x := w.incident(deref(e.Incident)); x != nil && e.Service != nil {
			x.OfFault = x.OfFault || w.isAbout(*e.Service)
		}
	case "incident.located":
		if !w.since.IsZero() {
			w.readPlace(ctx, deref(e.Incident))
		}
	case "incident.closed":
		if deref(e.Incident) == w.told {
			w.print("The incident closed: %s", deref(e.Sentence))
		}
	case "decision":
		if e.Incident != nil && *e.Incident == w.told {
			w.readDecision(ctx, deref(e.Decision))
		}
	}
}

// opened adds an incident. The story is about the first incident after the fault, until an incident of the fault opens.
func (w *watcher) opened(x Incident) {
	if !w.since.IsZero() {
		x.Seconds, x.OfFault = time.Since(w.since).Seconds(), w.isAbout(x.Service)
	}
	x.URL = w.server.url() + "/incidents/" + x.id
	told := w.incident(w.told)
	w.incidents = append(w.incidents, x)
	if w.since.IsZero() || told != nil && (told.OfFault || !x.OfFault) {
		w.print("Another incident opened: %s", x.URL)
		return
	}
	w.told = x.id
	w.print("An incident opened. %s", x.Sentence)
	fmt.Fprintln(w.out, strings.Repeat(" ", storyIndent)+x.URL)
}

// incident returns an incident, or nil if it has not opened.
func (w *watcher) incident(id string) *Incident {
	for i := range w.incidents {
		if w.incidents[i].id == id {
			return &w.incidents[i]
		}
	}
	return nil
}

// isAbout reports whether an incident with the given first suspect belongs to the fault. All incidents do if there is
// no fault.
func (w *watcher) isAbout(suspect string) bool { return w.truth == nil || suspect == w.truth.Service }

// deref returns *s, or "" if s is nil.
func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// readPlan counts the enabled tracepoints, overall and for incidents.
func (w *watcher) readPlan(ctx context.Context) {
	plan, err := client.Get[contract.Plan](ctx, w.server.client, nil, "plan")
	if err != nil {
		return // the next epoch retries
	}
	enabled, held := make(map[string]bool), make(map[string]bool)
	for i := range plan.Arms {
		for _, t := range plan.Arms[i].Tracepoints {
			enabled[t.ID], w.ever[t.ID] = true, true
			if t.Lease.Incident != nil {
				held[t.ID] = true
			}
		}
	}
	w.held = len(held)
	if len(enabled) > w.peak {
		w.peak, w.largest = len(enabled), plan
	}
}

// readDecision prints the tracepoints that a decision of the search switches, and the reason.
func (w *watcher) readDecision(ctx context.Context, id string) {
	d, err := client.Get[contract.Decision](ctx, w.server.client, nil, "decisions", id)
	if err != nil || len(d.Picks) == 0 {
		return // the result does not depend on it; the story reports the end of the search by its place
	}
	text := "Sibyl enabled " + units.Plural(len(d.Picks), "tracepoint")
	if len(d.Off) > 0 {
		text += fmt.Sprintf(" and disabled %d", len(d.Off))
	}
	if len(d.Suspects) > 0 && d.Suspects[0].Share.Value != nil {
		s := &d.Suspects[0]
		text += fmt.Sprintf(", because %s of the slowdown is in %s", units.Share(*s.Share.Value), s.Operation)
	}
	w.print("%s: %s", text, pickNames(d.Picks))
}

// mostNamed bounds the number of tracepoints named in a line of the story.
const mostNamed = 4

func pickNames(picks []contract.Pick) string {
	var names []string
	for i := range picks[:min(len(picks), mostNamed)] {
		names = append(names, picks[i].Operation)
	}
	if more := len(picks) - mostNamed; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// readPlace takes the place located by the investigation of an incident. It is the answer only if the incident belongs
// to the fault: other services may have become slow as well.
func (w *watcher) readPlace(ctx context.Context, id string) {
	search, err := client.Get[contract.InvestigationDetail](ctx, w.server.client, nil, "investigations", id)
	x := w.incident(id)
	if err != nil || len(search.Investigation.Suspects) == 0 || x == nil || x.Edge != nil {
		return // it is not located, or its place is known
	}
	s := &search.Investigation.Suspects[0]
	edge := edgeOf(s.Operation)
	x.Edge, x.OfFault = &edge, x.OfFault || w.isAbout(edge.Service) || w.truth.Located(&edge)
	if !x.OfFault {
		w.print("Sibyl located another slowdown: %s, of %s", s.Operation, x.URL)
		return
	}
	if w.found != nil {
		return
	}
	w.found = &finding{edge: edge, seconds: time.Since(w.since).Seconds(), epochs: w.epochs}
	if !strings.Contains(x.Sentence, s.Operation) { // otherwise the sentence has named it
		text := "Sibyl located the slowdown: " + s.Operation
		if s.Share.Value != nil {
			text += ", with " + units.Share(*s.Share.Value) + " of it"
		}
		w.print("%s", text)
	}
	close(w.located)
}

// readReason takes the waits in the kernel that explain the incident of the story, once they do.
func (w *watcher) readReason(ctx context.Context) {
	if w.told == "" || w.reason != nil || w.since.IsZero() {
		return
	}
	told, err := client.Get[contract.IncidentDetail](ctx, w.server.client, nil, "incidents", w.told)
	if err != nil || told.Incident.Wait == nil {
		return // the next epoch retries
	}
	x := told.Incident.Wait
	w.reason = &Wait{
		Class:    x.Class,
		Text:     x.Text,
		Share:    x.Share,
		Service:  x.Service,
		Function: deref(x.Function),
		Host:     deref(x.Host),
		Seconds:  time.Since(w.since).Seconds(),
		Sentence: told.Incident.Sentence,
	}
	w.print("The kernel agent explained it: %s.", w.reason)
	close(w.explained)
}

// edgeOf parses the name of a place, "service operation" or "service operation → target".
func edgeOf(name string) shop.Edge {
	caller, target, _ := strings.Cut(name, " → ")
	service, operation, _ := strings.Cut(caller, " ")
	return shop.Edge{Service: service, Operation: operation, Target: target}
}

// allOff reports whether no tracepoint is enabled for an incident.
func (w *watcher) allOff() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held == 0
}
