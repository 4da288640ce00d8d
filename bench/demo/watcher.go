package demo

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/bench/demo/shop"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// watcher prints the events of the server and collects figures of the result. It is safe for concurrent use.
type watcher struct {
	server  *server
	located chan struct{} // closed when found is set

	mu        sync.Mutex // guards the fields below
	out       io.Writer
	since     time.Time // of the injection of the fault; zero before
	epochs    int       // since then
	incidents []Incident
	ever      map[string]bool   // tracepoints that were ever enabled
	names     map[string]string // operations of picked tracepoints, by ID
	peak      int               // most tracepoints enabled at once
	held      int               // tracepoints that are enabled for incidents
	largest   *contract.Plan    // with peak tracepoints; nil: no plan had any
	found     *finding
}

// finding is the first place that was located after the injection of the fault.
type finding struct {
	edge    shop.Edge
	seconds float64
	epochs  int
}

func newWatcher(s *server, out io.Writer) *watcher {
	return &watcher{
		server: s, out: out, ever: make(map[string]bool), names: make(map[string]string), located: make(chan struct{}),
	}
}

// begin marks the injection of the fault.
func (w *watcher) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since, w.epochs = time.Now(), 0
}

// print prints a line with the time since the injection. It requires w.mu.
func (w *watcher) print(format string, arguments ...any) {
	at := "        "
	if !w.since.IsZero() {
		at = fmt.Sprintf("%6.1f s", time.Since(w.since).Seconds())
	}
	fmt.Fprintf(w.out, "%s  %s\n", at, terminal.Printable(fmt.Sprintf(format, arguments...)))
}

// report is print for callers without w.mu.
func (w *watcher) report(format string, arguments ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.print(format, arguments...)
}

// handle handles an event. It leaves out problems, which are chronic or parts of incidents.
func (w *watcher) handle(ctx context.Context, e contract.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e.Type {
	case "epoch":
		w.epochs++
		w.readPlan(ctx)
	case "incident.opened":
		x := Incident{Service: deref(e.Service), Sentence: deref(e.Sentence), URL: w.server.url() + "/incidents/" + deref(e.Incident)}
		if !w.since.IsZero() {
			x.Seconds = time.Since(w.since).Seconds()
		}
		w.incidents = append(w.incidents, x)
		w.print("incident: %s", x.Sentence)
		w.print("          %s", x.URL)
	case "incident.located":
		if w.found == nil && !w.since.IsZero() {
			w.readPlace(ctx, deref(e.Incident))
		}
	case "incident.closed":
		w.print("closed: %s", deref(e.Sentence))
	case "decision":
		if e.Incident != nil {
			w.readDecision(ctx, deref(e.Decision))
		}
	}
}

// deref returns *s, "" if s is nil.
func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// readPlan counts the enabled tracepoints: all, and those for incidents.
func (w *watcher) readPlan(ctx context.Context) {
	r, err := w.server.client.GetPlanWithResponse(ctx)
	if err != nil || r.JSON200 == nil {
		return // the next epoch retries
	}
	enabled, held := make(map[string]bool), make(map[string]bool)
	for i := range r.JSON200.Arms {
		for _, t := range r.JSON200.Arms[i].Tracepoints {
			enabled[t.ID], w.ever[t.ID] = true, true
			if t.Lease.Incident != nil {
				held[t.ID] = true
			}
		}
	}
	w.held = len(held)
	if len(enabled) > w.peak {
		w.peak, w.largest = len(enabled), r.JSON200
	}
}

// readDecision prints a decision with the evidence for it.
func (w *watcher) readDecision(ctx context.Context, id string) {
	r, err := w.server.client.GetDecisionWithResponse(ctx, id)
	if err != nil || r.JSON200 == nil {
		return // the result does not depend on it
	}
	d := r.JSON200
	w.print("%s", d.Text)
	for i := range d.Picks {
		w.names[d.Picks[i].Tracepoint] = d.Picks[i].Operation
	}
	if names := pickNames(d.Picks); names != "" {
		w.print("  on: %s", names)
	}
	if names := w.offNames(d.Off); names != "" {
		w.print("  off: %s", names)
	}
	if len(d.Suspects) > 0 && d.Suspects[0].Share.Value != nil {
		s := &d.Suspects[0]
		w.print("  first suspect: %s, with %s of the problem", s.Operation, units.Share(*s.Share.Value))
	}
}

func pickNames(picks []contract.Pick) string {
	names := make([]string, len(picks))
	for i := range picks {
		names[i] = picks[i].Operation
	}
	return strings.Join(names, ", ")
}

func (w *watcher) offNames(off []contract.Judged) string {
	names := make([]string, len(off))
	for i := range off {
		names[i] = cmp.Or(w.names[off[i].Tracepoint], off[i].TracepointName)
	}
	return strings.Join(names, ", ")
}

// readPlace takes the place located by the investigation of an incident.
func (w *watcher) readPlace(ctx context.Context, incident string) {
	r, err := w.server.client.GetInvestigationWithResponse(ctx, incident)
	if err != nil || r.JSON200 == nil || len(r.JSON200.Investigation.Suspects) == 0 {
		return // it is not located
	}
	s := &r.JSON200.Investigation.Suspects[0]
	w.found = &finding{edge: edgeOf(s.Operation), seconds: time.Since(w.since).Seconds(), epochs: w.epochs}
	w.print("located: %s", s.Operation)
	close(w.located)
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
