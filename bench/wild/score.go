package wild

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/trace"
)

// watch follows the incidents of a seed. For each fault it keeps the incidents that opened or returned in its window.
type watch struct {
	gen   *generator
	table *trace.Table
	known map[uint64]engine.Incident           // by ID: as of the last look
	in    []map[uint64]sighting                // by fault and ID
	open  []map[uint64]engine.Incident         // by fault: opened before its window, and still open in it
	spans struct{ received, judgeable uint64 } // judgeable: see [Report.Coverage]
}

// sighting is an incident that opened or returned in the window of a fault. Its state is as of its end, or as of the
// end of the window and its grace.
type sighting struct {
	engine.Incident
	at trace.Nanos // when it opened or returned
}

func newWatch(g *generator, table *trace.Table) *watch {
	return &watch{gen: g, table: table, known: make(map[uint64]engine.Incident)}
}

// see takes the incidents as of time at.
func (w *watch) see(at trace.Nanos, incidents map[uint64]engine.Incident) {
	for len(w.in) < len(w.gen.faults) {
		w.in = append(w.in, make(map[uint64]sighting))
		w.open = append(w.open, make(map[uint64]engine.Incident))
	}
	for i, f := range w.gen.faults {
		if at < f.window.From || at > f.window.To.Add(backtest.Grace+time.Minute) {
			continue
		}
		for id, x := range incidents {
			w.take(i, id, &x, at)
		}
	}
	maps.Copy(w.known, incidents)
}

// take takes an incident within the time of fault i.
func (w *watch) take(i int, id uint64, x *engine.Incident, at trace.Nanos) {
	f := w.gen.faults[i]
	opened := x.LastOpened()
	switch before, judged := w.in[i][id]; {
	case judged && (!before.IsOpen() || at > f.window.To.Add(backtest.Grace)):
	case judged:
		w.in[i][id] = sighting{*x, before.at}
	case f.covers(opened):
		w.in[i][id] = sighting{*x, opened}
	case x.Opened() < f.window.From && (x.IsOpen() || x.Closed() > f.window.From):
		w.open[i][id] = *x
	}
}

// covers reports whether an incident that opened at time at counts for f.
func (f *fault) covers(at trace.Nanos) bool {
	return f.window.From <= at && at <= f.window.To.Add(backtest.Grace)
}

// count counts the spans of a trace.
func (w *watch) count(t *recorded) {
	w.spans.received += uint64(len(t.spans))
	w.spans.judgeable += uint64(t.attached())
}

// attached returns the number of spans that start before their parent ends, and whose ancestors all do. It is 0 if any
// parent is missing in the trace.
func (w *recorded) attached() (n int) {
	index := make(map[uint64]int, len(w.spans))
	for i := range w.spans {
		index[w.spans[i].id] = i
	}
	detached := make([]bool, len(w.spans))
	for i := range w.spans { // parents come first
		s := &w.spans[i]
		if s.parent == 0 {
			n++
			continue
		}
		p, ok := index[s.parent]
		if !ok {
			return 0
		}
		if detached[i] = detached[p] || w.spans[p].end < s.start; !detached[i] {
			n++
		}
	}
	return n
}

// right reports whether a suspect is the true place of a fault.
//
// A name is right if it is a service of the place, or if it contains the address of the backend or the name of the
// queue. If a backend is called by an IP address, its system and port are right, unless the application has another one
// with both. A node is right if the suspect is the node itself, or if the first of the suspect's instances is the node:
// the incident then says which machine to drain.
func (w *watch) right(p *place, s *compare.Suspect) bool {
	name := w.table.Text(s.Service)
	switch {
	case slices.Contains(p.services, name):
		return true
	case p.queue != nil:
		return strings.Contains(name, p.queue.name)
	case p.node != nil:
		first := len(s.Instances) > 0 && w.table.Text(s.Instances[0].Value) == p.node.name
		return first || strings.Contains(name, p.node.name)
	case p.backend != nil:
		return w.namesBackend(p.backend, name)
	}
	return false
}

func (w *watch) namesBackend(b *backend, name string) bool {
	if strings.Contains(name, b.host) || b.ip != "" && strings.Contains(name, b.ip) {
		return true
	}
	same := 0
	for _, other := range w.gen.app.databases {
		if other.system == b.system {
			same++
		}
	}
	return b.system != "" && same == 1 && strings.HasPrefix(name, b.system)
}

// answer is the result of a seed.
type answer struct {
	seed                uint64
	app                 Application
	faults              []Fault
	false               []False
	skipped             []string
	healthy             time.Duration
	received, judgeable uint64
}

// judge judges the incidents.
func (w *watch) judge(r *backtest.Result) answer {
	a := answer{
		seed:      w.gen.seed,
		app:       w.gen.describe(r.Traces),
		skipped:   w.gen.skipped,
		received:  w.spans.received,
		judgeable: w.spans.judgeable,
	}
	for i := range w.gen.faults {
		a.faults = append(a.faults, w.answer(i))
	}
	for i := range r.Incidents {
		x := &r.Incidents[i]
		if !slices.ContainsFunc(w.gen.faults, func(f *fault) bool { return f.covers(x.Opened()) }) {
			a.false = append(a.false, w.falseIncident(x))
		}
	}
	if r.Learned != 0 {
		a.healthy = r.To.Sub(r.Learned)
		for _, f := range w.gen.faults {
			a.healthy -= max(0, f.window.To.Add(backtest.Grace).Sub(max(r.Learned, f.window.From)))
		}
	}
	return a
}

// answer returns the answer to fault i, from the first incident that opened or returned in its window.
func (w *watch) answer(i int) Fault {
	f := w.gen.faults[i]
	out := Fault{
		Seed:    w.gen.seed,
		Name:    fmt.Sprintf("%02d-%s", i+1, f.kind),
		Kind:    f.kind,
		After:   f.after,
		Place:   f.detail,
		Share:   float64(f.touched) / float64(max(1, f.all)),
		Touch:   f.touched,
		Ratio:   f.ratio,
		From:    int64(f.window.From),
		To:      int64(f.window.To),
		Others:  w.others(i),
		Instead: []string{},
	}
	var first *sighting
	for _, x := range w.in[i] {
		if first == nil || cmp.Or(cmp.Compare(x.at, first.at), cmp.Compare(x.ID, first.ID)) < 0 {
			first = &x
		}
	}
	if first == nil {
		for _, x := range w.open[i] {
			out.Instead = append(out.Instead, "open since before: "+w.names(&x))
		}
		slices.Sort(out.Instead)
		return out
	}
	out.Raised = true
	out.Seconds = new(first.at.Sub(f.window.From).Seconds())
	for x, merged := w.in[i][first.Into()]; merged; x, merged = w.in[i][first.Into()] {
		first = &x // the UI shows this one instead of the merged one
	}
	for k := range first.Suspects {
		if w.right(&f.place, &first.Suspects[k]) {
			out.Rank = new(k + 1)
			break
		}
	}
	if out.Rank == nil || *out.Rank > 1 {
		out.Instead = []string{w.names(&first.Incident)}
	}
	return out
}

// others returns the number of further incidents in the window of fault i that were not merged into one of them.
func (w *watch) others(i int) (n int) {
	for _, x := range w.in[i] {
		if _, merged := w.in[i][x.Into()]; !merged {
			n++
		}
	}
	return max(0, n-1)
}

// names returns the first suspects of an incident, each with the largest part of its score.
func (w *watch) names(x *engine.Incident) string {
	var names []string
	for i := range x.Suspects[:min(3, len(x.Suspects))] {
		s := &x.Suspects[i]
		part, most := "own", s.Own
		for _, p := range []struct {
			name string
			size float64
		}{
			{"added", s.Added},
			{"in", s.In + s.Rest},
			{"out", s.Out},
			{"errors", s.Errors},
			{"unanswered", s.Unanswered},
			{"silent", s.Silent},
			{"shape", s.Shape},
		} {
			if p.size > most {
				part, most = p.name, p.size
			}
		}
		names = append(names, fmt.Sprintf("%s %.2f %s", w.table.Text(s.Service), s.Score, part))
	}
	return strings.Join(names, ", ")
}

func (w *watch) falseIncident(x *engine.Incident) False {
	f := False{Seed: w.gen.seed, Opened: int64(x.Opened()), After: "none", Suspects: w.names(x)}
	var since trace.Nanos
	for _, e := range w.gen.events {
		if e.at <= x.Opened() {
			f.After, since = e.kind+" of "+e.service.name, e.at
		}
	}
	for _, e := range w.gen.faults {
		if e.window.To <= x.Opened() && e.window.To > since {
			f.After, since = "end of "+e.kind+" at "+e.detail, e.window.To
		}
	}
	if since > 0 {
		f.Seconds = new(x.Opened().Sub(since).Seconds())
	}
	if !x.IsOpen() {
		f.Minutes = new(x.Closed().Sub(x.Opened()).Minutes())
	}
	return f
}
