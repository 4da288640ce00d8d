package backtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

const second = trace.Nanos(1e9)

// fakeCore records its calls and reports scripted incidents.
type fakeCore struct {
	table    *trace.Table
	ingested []trace.Nanos // starts of the traces, in the order of calls
	epochs   []trace.Nanos
	versions []engine.VersionSeen
	script   func(now trace.Nanos) []engine.Incident
}

func (c *fakeCore) Ingest(t *trace.Trace) int {
	c.ingested = append(c.ingested, t.Spans[0].Start)
	return 1
}

func (c *fakeCore) ObserveVersions(seen []engine.VersionSeen) {
	c.versions = append(c.versions, seen...)
}

func (c *fakeCore) Epoch(now trace.Nanos) []search.Decision {
	c.epochs = append(c.epochs, now)
	return nil
}

func (c *fakeCore) now() trace.Nanos { return c.epochs[len(c.epochs)-1] }

func (c *fakeCore) Watching() bool { return c.now() >= 60*second }

func (c *fakeCore) Coverage() *trace.Coverage { return new(trace.Coverage) }

func (c *fakeCore) AffectedTypes() []group.Summary { return nil }

func (c *fakeCore) Incidents() []engine.Incident {
	if c.script == nil {
		return nil
	}
	return c.script(c.now())
}

func (c *fakeCore) player(labels []Label) *Player {
	if c.table == nil {
		c.table = &trace.Table{}
	}
	return newPlayer(c, labels,
		Options{Table: c.table, Core: engine.DefaultOptions(), Assembly: assemble.DefaultOnlineOptions()})
}

// request returns a trace of one span. Its ID consists of its times.
func request(from, to trace.Nanos) *trace.Trace {
	t := &trace.Trace{Spans: []trace.Span{{ID: 1, Start: from, End: to}}}
	for i := range 8 {
		t.ID[i], t.ID[8+i] = byte(from>>(8*i)), byte(to>>(8*i)+1)
	}
	return t
}

// A trace reaches the core when the service would close it, that is, six seconds after the trace has ended.
func TestEpochs(t *testing.T) {
	c := &fakeCore{}
	p := c.player(nil)
	p.Play(request(101*second, 102*second))
	p.Play(request(103*second, 105*second))
	p.Play(request(104*second, 142*second))
	r := p.Finish()
	if diff := cmp.Diff([]trace.Nanos{
		110 * second, 120 * second, 130 * second, 140 * second, 150 * second,
		160 * second,
	}, c.epochs); diff != "" {
		t.Errorf("epochs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]trace.Nanos{101 * second, 103 * second, 104 * second}, c.ingested); diff != "" {
		t.Errorf("traces (-want +got):\n%s", diff)
	}
	if r.Traces != 3 || r.From != 101*second || r.To != 142*second || r.Learned != 110*second || r.Incidents == nil ||
		r.Score != nil {
		t.Errorf("got %+v", r)
	}
}

// Epochs end in a gap of a day. The rest of a longer gap is skipped.
func TestLongGap(t *testing.T) {
	c := &fakeCore{}
	p := c.player(nil)
	p.Play(request(101*second, 102*second))
	p.Play(request(1e9*second, 1e9*second+1))
	p.Finish()
	perDay := int(longestGap / engine.DefaultOptions().Epoch)
	if n := len(c.epochs); n < perDay || n > perDay+10 || len(c.ingested) != 2 {
		t.Errorf("got %d epochs and %d traces, want about %d and 2", n, len(c.ingested), perDay)
	}
	if c.now() < 1e9*second {
		t.Errorf("the last epoch ended at %d, want one after the last trace", c.now())
	}
	for i, at := range c.epochs[1:] {
		if at <= c.epochs[i] {
			t.Fatalf("epoch %d ended at %d, not after %d", i+1, at, c.epochs[i])
		}
	}
}

// A player leaves out the search, which has no effect on incidents.
func TestWithoutSearch(t *testing.T) {
	const from = trace.Nanos(1_700_000_000_000_000_000)
	app := sim.New(sim.Config{
		Seed:        3,
		Fault:       sim.CPU,
		Tracepoints: 60,
		Rate:        5,
		Messages:    -1,
	})
	o := Options{Table: app.Table(), Core: engine.DefaultOptions(), Assembly: assemble.DefaultOnlineOptions()}
	fast, whole := NewPlayer(nil, o), newPlayer(engineCore{engine.NewCore(app.Table(), o.Core)}, nil, o)
	play := func(from, to trace.Nanos) {
		for x := range app.Requests(from, to, nil) {
			fast.Play(x)
			whole.Play(x)
		}
	}
	fault := from.Add(20 * time.Minute)
	play(from, fault)
	app.Inject(fault)
	play(fault, fault.Add(10*time.Minute))
	got, want := fast.Finish(), whole.Finish()
	if len(want.Incidents) == 0 || len(want.Incidents[0].Types) == 0 || len(want.Incidents[0].Problems) == 0 {
		t.Fatalf("got %+v, want an incident with request types and problems", want.Incidents)
	}
	if diff := cmp.Diff([]any{want.Incidents, want.Types}, []any{got.Incidents, got.Types}); diff != "" {
		t.Errorf("with and without the search (-with +without):\n%s", diff)
	}
}

// A trace with a missing parent reaches the core, as in the service, which leaves it to the analysis to decide whether
// the trace is useful. A trace that was cut off at a limit doesn't reach it.
func TestIncompleteTrace(t *testing.T) {
	c := &fakeCore{}
	p := c.player(nil)
	p.Play(&trace.Trace{ID: trace.ID{1}})
	x := request(101*second, 102*second)
	x.Spans = append(x.Spans, trace.Span{ID: 2, Parent: 3, Start: 101 * second, End: 102 * second})
	p.Play(x)
	large := request(103*second, 104*second)
	for i := range p.options.Assembly.MaxSpans {
		large.Spans = append(large.Spans,
			trace.Span{ID: trace.SpanID(i + 2), Parent: 1, Start: 103 * second, End: 104 * second})
	}
	p.Play(large)
	if r := p.Finish(); len(c.ingested) != 1 || r.Traces != 2 {
		t.Errorf("%d of %d traces reached the core, want 1 of 2", len(c.ingested), r.Traces)
	}
}

func TestVersions(t *testing.T) {
	c := &fakeCore{table: &trace.Table{}}
	p := c.player(nil)
	key, service := c.table.Symbol(versionKey), c.table.Symbol("cart")
	for _, at := range []trace.Nanos{101, 103, 111} {
		x := request(at*second, at*second)
		x.Spans[0].Service = service
		x.Attrs = []trace.Attr{{Key: key, Text: c.table.Symbol("1.8.2")}}
		p.Play(x)
	}
	p.Finish()
	if len(c.versions) != 2 || c.versions[0].First != 101*second || c.versions[0].Last != 103*second ||
		c.versions[1].First != 111*second {
		t.Errorf("got %+v, want the version in two epochs", c.versions)
	}
}

// play plays an empty request every 10 s for seconds, with the scripted incidents.
func (c *fakeCore) play(labels []Label, seconds trace.Nanos) *Result {
	p := c.player(labels)
	for at := second; at < seconds*second; at += 10 * second {
		p.Play(request(at, at+1))
	}
	return p.Finish()
}

func label(name string, from, to trace.Nanos) Label {
	return Label{
		Name: name, Fault: "cpu",
		Window: history.Interval{From: from * second, To: to * second}, Target: Target{Service: name},
	}
}

// open makes a script with the given incidents. Each has its opening and end in seconds, and its suspects.
func (c *fakeCore) open(all ...opening) {
	c.table = &trace.Table{}
	c.script = func(now trace.Nanos) (list []engine.Incident) {
		for i, x := range all {
			if now < x.from*second {
				continue
			}
			n := engine.Incident{Incident: incident.Incident{
				ID:      uint64(i + 1),
				Onset:   (x.from - 5) * second,
				Seen:    now,
				History: []incident.Transition{{At: x.from * second}},
			}}
			if now >= x.to*second {
				n.Enter(incident.Transition{At: x.to * second, State: incident.Closed})
			}
			if x.merged && !n.IsOpen() {
				continue
			}
			names := x.suspects
			if x.later != nil && now > x.changes*second {
				names = x.later
			}
			for _, name := range names {
				n.Suspects = append(n.Suspects, compare.Suspect{Service: c.table.Symbol(name), Score: 1})
			}
			list = append(list, n)
		}
		return list
	}
}

type opening struct {
	from, to trace.Nanos
	suspects []string
	changes  trace.Nanos // when the suspects change to later
	later    []string
	merged   bool // it disappears at its end
}

func TestScore(t *testing.T) {
	c := &fakeCore{}
	c.open(
		opening{from: 100, to: 250, suspects: []string{"cart"}}, // before the window of cart
		opening{
			from:     300,
			to:       600,
			suspects: []string{"a", "cart"},
			changes:  460,
			later:    []string{"x", "y", "z"},
		}, // judged at 460
		opening{from: 320, to: 330, suspects: []string{"cart"}}, // the window has already been raised
		opening{from: 760, to: 900, suspects: []string{"ship"}}, // in the minute after the window
		opening{from: 1000, to: 1100, suspects: []string{"ad"}, merged: true},
	)
	r := c.play([]Label{
		label("early", -30, -1), label("cart", 200, 400), label("ship", 600, 700),
		label("pay", 1200, 1300),
	}, 1400)
	want := &Score{
		Cases: []Case{
			{
				Name:           "cart",
				Service:        "cart",
				Fault:          "cpu",
				Raised:         true,
				SecondsToRaise: new(100.),
				RankService:    new(2),
				Incident:       2,
			},
			{
				Name:           "ship",
				Service:        "ship",
				Fault:          "cpu",
				Raised:         true,
				SecondsToRaise: new(160.),
				RankService:    new(1),
				Incident:       4,
			},
			{Name: "pay", Service: "pay", Fault: "cpu"},
		},
		All:          Sum{3, 2. / 3, 1. / 3, 2. / 3},
		ByFault:      map[string]Sum{"cpu": {3, 2. / 3, 1. / 3, 2. / 3}},
		False:        []uint64{1, 3, 5},
		HealthyHours: (140 + 140 + 440 + 31) / 3600.,
		Outside:      []string{"early"}, // it ends a minute before incidents are reported
	}
	got := *r.Score
	if diff := got.HealthyHours - want.HealthyHours; diff > 1e-3 || diff < -1e-3 {
		t.Errorf("got %g healthy hours, want %g", got.HealthyHours, want.HealthyHours)
	}
	got.HealthyHours = want.HealthyHours
	if diff := cmp.Diff(want, &got); diff != "" {
		t.Errorf("score (-want +got):\n%s", diff)
	}
	if len(r.Incidents) != 5 || r.Incidents[4].Closed() != 1100*second {
		t.Errorf("got %+v, want five incidents, all closed", r.Incidents)
	}
}

// If two incidents are in overlapping windows, each is credited to the window of its own suspect.
func TestOverlappingWindows(t *testing.T) {
	c := &fakeCore{}
	c.open(
		opening{from: 320, to: 500, suspects: []string{"ship", "cart"}},
		opening{from: 350, to: 500, suspects: []string{"cart", "ship"}},
	)
	labels := []Label{label("cart", 300, 400), label("ship", 310, 410)}
	s := c.play(labels, 600).Score
	if s.Cases[0].Incident != 2 || s.Cases[1].Incident != 1 || s.All.Top1 != 1 || len(s.False) != 0 {
		t.Errorf("got %+v, want each incident credited to its own window", s)
	}
	c = &fakeCore{}
	c.open(opening{from: 320, to: 500, suspects: []string{"ship", "cart"}})
	s = c.play(labels, 600).Score
	if s.All.Raised != 1 || s.All.Top1 != 0.5 || *s.Cases[0].RankService != 2 || len(s.False) != 0 {
		t.Errorf("got %+v, want both windows raised by the only incident", s)
	}
	if want := (300 - 60 + 600 - 470 - 9) * time.Second; s.HealthyHours-want.Hours() > 1e-3 ||
		want.Hours()-s.HealthyHours > 1e-3 {
		t.Errorf("got %g healthy hours, want %g", s.HealthyHours, want.Hours())
	}
}

// oneSpan returns a line of OTLP with one span of 1 ns at the given second since 1970.
func oneSpan(service string, traceID, id, second int) string {
	return fmt.Sprintf(`{"resourceSpans":[{`+
		`"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"%s"}}]},`+
		`"scopeSpans":[{"spans":[{"traceId":"%032x","spanId":"%016x","name":"GET",`+
		`"startTimeUnixNano":"%d000000000","endTimeUnixNano":"%[4]d000000001"}]}]}]}`+"\n",
		service, traceID, id, second)
}

// Labels that end before incidents are reported aren't cases. It is an error if no case is left.
func TestEarlyLabels(t *testing.T) {
	path := filepath.Join(t.TempDir(), "traces.jsonl")
	if err := os.WriteFile(path, []byte(oneSpan("cart", 1, 1, 1_790_000_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Files(t.Context(), []string{path}, []Label{label("cart", 1790000000, 1790000001)}, file.Options{},
		Options{Core: engine.DefaultOptions(), Assembly: assemble.DefaultOnlineOptions()})
	if want := "need nine minutes of history, and the traces begin at 2026-09-21 14:13:20 UTC"; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want %q", err, want)
	}
}

// TestUnreadRecords plays a file with lines that aren't traces. They are counted by reason.
func TestUnreadRecords(t *testing.T) {
	span := oneSpan("cart", 1, 1, 1_790_000_000)
	path := filepath.Join(t.TempDir(), "traces.jsonl")
	if err := os.WriteFile(path, []byte(span+"no JSON\n"+span[:100]+"\n"+span), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Files(t.Context(), []string{path}, nil, file.Options{},
		Options{Core: engine.DefaultOptions(), Assembly: assemble.DefaultOnlineOptions()})
	if err != nil {
		t.Fatal(err)
	}
	if c := &r.Coverage; c.Records != 2 || c.Unread[trace.Malformed] != 2 || len(c.Unread) != 1 {
		t.Errorf("%d records read, %v not, want 2 and 2 malformed", c.Records, c.Unread)
	}
}

// TestMisdated plays a file with traces from hosts with wrong clocks. They are counted, and don't affect the engine's
// clock.
func TestMisdated(t *testing.T) {
	const now = 1_790_000_000
	var lines strings.Builder
	for i, at := range []int{now, 5, now + 1, now - 2*365*24*3600, now + 2, 2 * now} {
		lines.WriteString(oneSpan("cart", i+1, i+1, at))
	}
	path := filepath.Join(t.TempDir(), "traces.jsonl")
	if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Files(t.Context(), []string{path}, nil, file.Options{},
		Options{Core: engine.DefaultOptions(), Assembly: assemble.DefaultOnlineOptions()})
	if err != nil {
		t.Fatal(err)
	}
	if r.Traces != 3 || r.Misdated != 3 || r.From != now*second || r.To != (now+2)*second+1 {
		t.Errorf("%d traces and %d misdated from %d to %d, want 3 and 3 from %d to %d",
			r.Traces, r.Misdated, r.From, r.To, now*second, (now+2)*second+1)
	}
}
