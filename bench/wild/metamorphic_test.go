package wild

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/trace"
)

// The recording of the metamorphic tests: an application with two faults, one after the other. Incidents are reported
// after nine minutes.
const (
	metamorphicSeed  = 7
	healthyFirst     = 14 * time.Minute
	faultLasts       = 5 * time.Minute
	healthyAfter     = 7 * time.Minute
	recordingLasts   = healthyFirst + 2*(faultLasts+healthyAfter)
	spansOfRecording = 45e3
)

// openingTolerance bounds how much earlier or later an incident may open in a changed recording.
const openingTolerance = time.Minute

// recording is a short run of an application.
type recording struct {
	app    *app
	traces []*recorded // in the order of their ends
}

// record runs the application of seed with faults, one after the other. prepare may change the application.
func record(t *testing.T, seed uint64, prepare func(*app), faults ...string) recording {
	t.Helper()
	g := &generator{seed: seed, app: newApp(seed), now: begin, end: begin.Add(recordingLasts)}
	prepare(g.app)
	at := begin.Add(healthyFirst)
	for _, kind := range faults {
		g.items = append(g.items, item{at, faultLasts, kind, true})
		at = at.Add(faultLasts + healthyAfter)
	}
	g.app.limit(spansOfRecording, recordingLasts)
	g.enc = newEncoder(g.app)
	r := recording{app: g.app}
	err := g.run(func(_ trace.Nanos, w *recorded, _ []byte) error {
		r.traces = append(r.traces, w)
		return nil
	})
	if err != nil || len(g.skipped) > 0 {
		t.Fatalf("seed %d: error %v, no place for %v", seed, err, g.skipped)
	}
	return r
}

func unchanged(*app) {}

// changed returns a copy of r with each trace changed.
func (r *recording) changed(change func(*recorded)) recording {
	c := recording{app: r.app}
	for _, w := range r.traces {
		w := &recorded{id: w.id, spans: slices.Clone(w.spans)}
		change(w)
		c.traces = append(c.traces, w)
	}
	return c
}

// arrival is a trace, or a part of one, with its time of arrival.
type arrival struct {
	at trace.Nanos
	*trace.Trace
}

// told is the part of an incident that the tests compare.
type told struct {
	opened trace.Nanos
	first  string // service
	kind   string
}

func (x told) String() string {
	return fmt.Sprintf("%s %s after %v", x.first, x.kind, x.opened.Sub(begin).Round(time.Second))
}

// player decodes and plays recordings.
type player struct {
	t       *testing.T
	options backtest.Options
	decoder *otlp.Decoder
}

func newPlayer(t *testing.T) *player {
	t.Helper()
	defaults, err := config.Load(config.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := ingest.NewKeys(defaults.Config.AttributeKeys()...)
	if err != nil {
		t.Fatal(err)
	}
	table := &trace.Table{}
	return &player{
		t:       t,
		options: backtest.Options{Table: table, Core: defaults.Config.Engine(), Assembly: defaults.Config.OpenTraces()},
		decoder: otlp.NewDecoder(table, keys),
	}
}

// arrivals returns the traces of a recording, which arrive as they end.
func (p *player) arrivals(r recording) (all []arrival) {
	p.t.Helper()
	enc := newEncoder(r.app)
	for _, w := range r.traces {
		var batch ingest.Batch
		if err := p.decoder.Protobuf(enc.append(nil, w), &batch); err != nil || len(batch.Rejected) > 0 {
			p.t.Fatalf("error %v, rejected %v", err, batch.Rejected)
		}
		all = append(all,
			arrival{w.end(), &trace.Trace{ID: w.id, Spans: batch.Spans, Attrs: batch.Attrs, Joins: batch.Joins}})
	}
	return all
}

// play returns the incidents that arrivals raise.
func (p *player) play(all []arrival) (incidents []told) {
	slices.SortStableFunc(all, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	player := backtest.NewPlayer(nil, p.options)
	for _, x := range all {
		player.Play(x.Trace)
	}
	r := player.Finish()
	for i := range r.Incidents {
		x := &r.Incidents[i]
		incidents = append(incidents, told{opened: x.Opened(), kind: string(describe.KindOf(x))})
		if len(x.Suspects) > 0 {
			incidents[i].first = r.Table.Text(x.Suspects[0].Service)
		}
	}
	return incidents
}

// TestMetamorphic changes a recording in ways that leave its faults alone. The incidents must have the same first
// services and the same kinds, and open at the same times, give or take a minute.
//
// The recording comes from one application, with faults that are also found in unchanged traces.
func TestMetamorphic(t *testing.T) {
	whole := record(t, metamorphicSeed, unchanged, "slow-code", "errors")
	p := newPlayer(t)
	want := p.play(p.arrivals(whole))
	if len(want) != 2 || want[0].kind != "slow" || want[1].kind != "failing" {
		t.Fatalf("incidents %v, want a slow service and then a failing one", want)
	}
	const later = 5*time.Hour + 3*time.Minute + 7300*time.Millisecond
	for name, change := range map[string]func(p *player) []arrival{
		"healthy traffic of another application": func(p *player) []arrival {
			return append(p.arrivals(whole), p.arrivals(record(t, metamorphicSeed+500, rename))...)
		},
		"event streams": func(p *player) []arrival {
			return append(p.arrivals(whole), p.arrivals(streamsBeside(&whole))...)
		},
		"other names": func(p *player) []arrival {
			return p.arrivals(record(t, metamorphicSeed, rename, "slow-code", "errors"))
		},
		"twice as many pods":       func(p *player) []arrival { return p.arrivals(whole.changed(splitPods())) },
		"an inner span everywhere": func(p *player) []arrival { return p.arrivals(whole.changed(addInnerSpans)) },
		"every other trace":        func(p *player) []arrival { return p.arrivals(half(&whole)) },
		"all clocks shifted": func(p *player) []arrival {
			return p.arrivals(whole.changed(shiftClocks(later, 0)))
		},
		"the clock of each pod wrong": func(p *player) []arrival {
			return p.arrivals(whole.changed(shiftClocks(0, 2*time.Second)))
		},
		"parts that arrive out of order": func(p *player) []arrival { return permuted(p.arrivals(whole)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlayer(t)
			got := p.play(change(p))
			if name == "all clocks shifted" {
				for i := range got {
					got[i].opened = got[i].opened.Add(-later)
				}
			}
			if !slices.EqualFunc(want, got, sameIncident) {
				t.Errorf("incidents %v, want %v", got, want)
			}
		})
	}
}

// sameIncident reports whether two incidents are equal. The service of the second one may have its new name.
func sameIncident(a, b told) bool {
	return a.first == strings.TrimPrefix(b.first, newName) &&
		a.kind == b.kind && a.opened.Sub(b.opened).Abs() <= openingTolerance
}

// newName is the prefix of names given by rename.
const newName = "new-"

// rename gives all services, operations, databases and queues other names.
func rename(a *app) {
	for _, s := range a.services {
		s.name = newName + s.name
		for _, o := range s.ops {
			renameOperation(o)
		}
	}
	for _, b := range slices.Concat(a.databases, a.parties) {
		b.host = newName + b.host
	}
	for _, q := range a.queues {
		q.name = newName + q.name
		renameOperation(q.consumer)
	}
}

func renameOperation(o *operation) {
	if path, ok := strings.CutPrefix(o.route, "/"); ok {
		o.route = "/new/" + path
	} else {
		o.route = "new" + o.route
	}
	renameInner(o.steps)
}

// renameInner renames the inner spans of steps.
func renameInner(steps []step) {
	for i := range steps {
		if s := &steps[i]; s.inner != "" {
			s.inner = "new " + s.inner
		}
		renameInner(steps[i].steps)
	}
}

// half returns a recording of every other trace, by ID.
func half(r *recording) recording {
	c := recording{app: r.app}
	for _, w := range r.traces {
		if binary.BigEndian.Uint64(w.id[:])&1 == 0 {
			c.traces = append(c.traces, w)
		}
	}
	return c
}

// splitPods returns a change that gives each pod a twin on its node, which serves half of the requests.
func splitPods() func(*recorded) {
	twins := make(map[*pod]*pod)
	return func(w *recorded) {
		for i := range w.spans {
			p := w.spans[i].pod
			if w.id[0]&1 == 0 || p.node == nil { // phones have no node
				continue
			}
			if twins[p] == nil {
				twin := *p
				twin.name, twin.uid = p.name+"-twin", p.uid+"-twin"
				twin.ip = strings.Replace(p.ip, "10.", "11.", 1)
				twins[p] = &twin
			}
			w.spans[i].pod = twins[p]
		}
	}
}

// addInnerSpans adds an INTERNAL span inside each SERVER and CONSUMER span, around its whole content. The new span
// never fails: instrumentation sets the status where the error leaves the service.
func addInnerSpans(w *recorded) {
	const other = 0x5a5a5a5a5a5a // gives another ID
	inside := make(map[uint64]bool)
	for i := range w.spans {
		if k := w.spans[i].kind; k == trace.Server || k == trace.Consumer {
			inside[w.spans[i].id] = true
		}
	}
	var all []span
	for _, s := range w.spans {
		if inside[s.parent] && !s.remote {
			s.parent ^= other
		}
		all = append(all, s)
		if inside[s.id] {
			all = append(all, span{
				id: s.id ^ other, parent: s.id, pod: s.pod,
				name: "handle", kind: trace.Internal, start: s.start, end: s.end,
			})
		}
	}
	w.spans = all
}

// shiftClocks returns a change that shifts all clocks by `by`, and each pod's clock by an additional random error of at
// most wrong.
func shiftClocks(by, wrong time.Duration) func(*recorded) {
	rng := rand.New(rand.NewPCG(1, 1))
	offsets := make(map[*pod]time.Duration)
	return func(w *recorded) {
		for i := range w.spans {
			s := &w.spans[i]
			offset, known := offsets[s.pod]
			if !known {
				offset = by + time.Duration((2*rng.Float64()-1)*float64(wrong))
				offsets[s.pod] = offset
			}
			s.start, s.end = s.start.Add(offset), s.end.Add(offset)
		}
	}
}

// streamsBeside returns event streams of the first service of a recording. One starts every twenty seconds, and lasts
// for a minute and a half on average.
func streamsBeside(r *recording) recording {
	live := newApp(metamorphicSeed)
	live.rng = rand.New(rand.NewPCG(3, 3)) // other IDs
	t := &requestType{
		nature: stream,
		op:     &operation{service: live.services[0], method: "GET", route: "/live", own: 90e9, cv: 0.8},
	}
	all := recording{app: live}
	for at := begin; at < begin.Add(recordingLasts); at = at.Add(20 * time.Second) {
		w := live.execute(t, at).traces[0]
		if w.end() < r.traces[len(r.traces)-1].end() {
			all.traces = append(all.traces, w)
		}
	}
	return all
}

// permuted returns traces in parts, one for each service, as the services export their spans. A part is up to four
// seconds late; the service waits six for further spans.
func permuted(all []arrival) (parts []arrival) {
	rng := rand.New(rand.NewPCG(2, 2))
	for _, x := range all {
		of := make(map[trace.Symbol]*trace.Trace)
		index := make([]int32, len(x.Spans)) // in the part
		for i := range x.Spans {
			s := &x.Spans[i]
			part := of[s.Service]
			if part == nil {
				part = &trace.Trace{ID: x.ID}
				of[s.Service] = part
				parts = append(parts, arrival{x.at.Add(time.Duration(rng.Int64N(int64(4 * time.Second)))), part})
			}
			index[i] = int32(len(part.Spans))
			part.Spans = append(part.Spans, *s)
		}
		for _, a := range x.Attrs {
			part := of[x.Spans[a.Span].Service]
			a.Span = index[a.Span]
			part.Attrs = append(part.Attrs, a)
		}
		for _, j := range x.Joins {
			part := of[x.Spans[j.Span].Service]
			j.Span = index[j.Span]
			part.Joins = append(part.Joins, j)
		}
	}
	return parts
}
