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

// watcher hears what the server tells, says it in words, and remembers what the result needs. Its fields are guarded by lock.
type watcher struct {
	server *server
	out    io.Writer

	lock     sync.Mutex
	since    time.Time         // when the fault was made; zero: it was not
	epochs   int               // since then
	problems int               // that were raised
	open     map[string]string // diagnoses of the open ones, as they were raised
	ever     map[string]bool
	names    map[string]string // operations of the tracepoints that were picked
	peak, on int               // tracepoints
	largest  *contract.Plan    // in which peak were on; nil: nothing was
	found    *finding
	located  chan struct{} // closed when found is set
}

// finding is the first answer after the fault was made.
type finding struct {
	edge    shop.Edge
	seconds float64
	epochs  int
}

func newWatcher(s *server, out io.Writer) *watcher {
	return &watcher{
		server: s, out: out, open: make(map[string]string), ever: make(map[string]bool), names: make(map[string]string), located: make(chan struct{}),
	}
}

// begin is called when the fault is made.
func (w *watcher) begin() {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.since, w.epochs = time.Now(), 0
}

// say tells something that happened now.
func (w *watcher) say(format string, arguments ...any) {
	at := "        "
	if !w.since.IsZero() {
		at = fmt.Sprintf("%6.1f s", time.Since(w.since).Seconds())
	}
	fmt.Fprintf(w.out, "%s  %s\n", at, terminal.Printable(fmt.Sprintf(format, arguments...)))
}

// tell is say for others.
func (w *watcher) tell(format string, arguments ...any) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.say(format, arguments...)
}

// hear takes an event.
func (w *watcher) hear(ctx context.Context, e contract.Event) {
	w.lock.Lock()
	defer w.lock.Unlock()
	switch e.Type {
	case "epoch":
		w.epochs++
		w.readPlan(ctx)
		w.readAnswer(ctx, false)
	case "problem.opened":
		w.problems++
		w.open[word(e.Problem)] = word(e.Diagnosis)
		w.say("problem: %s", word(e.Diagnosis))
	case "problem.closed":
		w.say("gone: %s", w.open[word(e.Problem)])
		delete(w.open, word(e.Problem))
	case "decision":
		w.readDecision(ctx, word(e.Decision))
	}
}

func word(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// readPlan counts what is on.
func (w *watcher) readPlan(ctx context.Context) {
	r, err := w.server.client.GetPlanWithResponse(ctx)
	if err != nil || r.JSON200 == nil {
		return // the next epoch tells
	}
	on := make(map[string]bool)
	for i := range r.JSON200.Arms {
		for _, t := range r.JSON200.Arms[i].Tracepoints {
			on[t.ID], w.ever[t.ID] = true, true
		}
	}
	if w.on = len(on); w.on > w.peak {
		w.peak, w.largest = w.on, r.JSON200
	}
}

// readDecision says what was decided, what that shows so far, and why.
func (w *watcher) readDecision(ctx context.Context, id string) {
	r, err := w.server.client.GetDecisionWithResponse(ctx, id)
	if err != nil || r.JSON200 == nil {
		return // it is only not told
	}
	d := r.JSON200
	w.say("%s", d.Text)
	for i := range d.Picks {
		w.names[d.Picks[i].Tracepoint] = d.Picks[i].Operation
	}
	if names := pickNames(d.Picks); names != "" {
		w.say("  on: %s", names)
	}
	if names := w.offNames(d.Off); names != "" {
		w.say("  off: %s", names)
	}
	if len(d.Suspects) > 0 && d.Suspects[0].Share.Value != nil {
		s := &d.Suspects[0]
		w.say("  it shows: %s carries %s of what is wrong", s.Operation, units.Share(*s.Share.Value))
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

// end takes what was located until now, if there was no answer.
func (w *watcher) end(ctx context.Context) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.readAnswer(ctx, true)
}

// readAnswer takes the first answer: the place that was located for the problem that ranks first, leaving out those that nobody searches
// any more without having located them and, where time is over, those that are still searched.
func (w *watcher) readAnswer(ctx context.Context, over bool) {
	if w.found != nil || w.since.IsZero() {
		return
	}
	r, err := w.server.client.ListProblemsWithResponse(ctx, nil)
	if err != nil || r.JSON200 == nil {
		return // the next epoch tells
	}
	for i := range r.JSON200.Items {
		switch p := &r.JSON200.Items[i]; p.State {
		case contract.StateLocated, contract.StateExplained:
			w.readPlace(ctx, p.ID)
			return
		case contract.StateNone, contract.StateExhausted, contract.StateGone:
		case contract.StateOpened, contract.StateInvestigating:
			if !over {
				return
			}
		}
	}
}

// readPlace takes the place that an investigation located.
func (w *watcher) readPlace(ctx context.Context, problem string) {
	r, err := w.server.client.GetInvestigationWithResponse(ctx, problem)
	if err != nil || r.JSON200 == nil || len(r.JSON200.Investigation.Suspects) == 0 {
		return // the next epoch tells
	}
	s := &r.JSON200.Investigation.Suspects[0]
	service, operation, _ := strings.Cut(s.Operation, " ")
	w.found = &finding{edge: shop.Edge{Service: service, Operation: operation}, seconds: time.Since(w.since).Seconds(), epochs: w.epochs}
	w.say("located: %s", s.Operation)
	close(w.located)
}

// settled reports whether nothing is on any more.
func (w *watcher) settled() bool {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.on == 0
}
