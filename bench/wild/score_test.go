package wild

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/trace"
)

// TestScore plays incidents of testdata/score against faults. Times are minutes after the start.
//
// A line "fault FROM TO PLACE" is a fault; PLACE is service:NAME, wire:NAME:NAME, node:NAME, queue:NAME or
// database:SYSTEM:HOST:IP. "event AT KIND SERVICE" is a harmless event. Each line "AT ID OPENED CLOSED SUSPECT…" is an
// incident as seen at a time. It is open if CLOSED is a dash; if OPENED is "REOPENED/OPENED", it returned. A suspect
// may name its first instance, as in cart@node-1.
func TestScore(t *testing.T) {
	datadriven.RunTest(t, "testdata/score", func(t *testing.T, d *datadriven.TestData) string {
		s := newScoreTest()
		var last trace.Nanos
		for line := range strings.SplitSeq(strings.TrimSpace(d.Input), "\n") {
			if at := s.line(strings.Fields(line)); at != 0 {
				last = at
			}
		}
		r := backtest.Result{Learned: at("30"), To: max(last, at("100"))}
		for _, x := range s.incidents {
			r.Incidents = append(r.Incidents, x)
		}
		return describeAnswer(s.watch.judge(&r))
	})
}

type scoreTest struct {
	watch     *watch
	incidents map[uint64]engine.Incident
}

func newScoreTest() *scoreTest {
	g := &generator{app: &app{}}
	return &scoreTest{newWatch(g, &trace.Table{}), make(map[uint64]engine.Incident)}
}

// at returns the time that is minutes after the start.
func at(minutes string) trace.Nanos {
	n, err := strconv.ParseFloat(minutes, 64)
	if err != nil {
		panic(err)
	}
	return begin.Add(time.Duration(n * float64(time.Minute)))
}

// line takes a line. It returns the time of a look at the incidents, and 0 for other lines.
func (s *scoreTest) line(fields []string) trace.Nanos {
	g := s.watch.gen
	switch fields[0] {
	case "fault":
		f := &fault{kind: "slow-code", after: g.lastEvent(), detail: fields[3], all: 1}
		f.window = history.Interval{From: at(fields[1]), To: at(fields[2])}
		f.place = s.place(strings.Split(fields[3], ":"))
		g.faults = append(g.faults, f)
		return 0
	case "event":
		g.events = append(g.events, happened{fields[2], at(fields[1]), &service{name: fields[3]}})
		return 0
	}
	table := s.watch.table
	id, _ := strconv.ParseUint(fields[1], 10, 64)
	x := engine.Incident{Incident: incident.Incident{ID: id}}
	reopened, opened, back := strings.Cut(fields[2], "/")
	if !back {
		opened = reopened
	}
	x.Enter(incident.Transition{At: at(opened)})
	if back {
		x.Enter(incident.Transition{At: at(reopened), Why: incident.Returned})
	}
	if fields[3] != "-" {
		x.Enter(incident.Transition{At: at(fields[3]), State: incident.Closed})
	}
	for _, name := range fields[4:] {
		name, instance, found := strings.Cut(strings.ReplaceAll(name, "_", " "), "@")
		suspect := compare.Suspect{Service: table.Symbol(name)}
		if found {
			suspect.Instances = []compare.InstancePart{{Value: table.Symbol(instance)}}
		}
		x.Suspects = append(x.Suspects, suspect)
	}
	s.incidents[id] = x
	s.watch.see(at(fields[0]), s.incidents)
	return at(fields[0])
}

func (s *scoreTest) place(words []string) (p place) {
	switch words[0] {
	case "node":
		p.node = &node{name: words[1]}
	case "queue":
		p.queue = &queue{name: words[1]}
	case "database":
		p.backend = &backend{system: words[1], host: words[2], ip: words[3]}
		s.watch.gen.app.databases = append(s.watch.gen.app.databases, p.backend)
	default:
		p.services = words[1:]
	}
	return p
}

func describeAnswer(a answer) string {
	var out strings.Builder
	for i := range a.faults {
		f := &a.faults[i]
		fmt.Fprintf(&out, "%s after %s: raised %t, seconds %s, rank %s, others %d",
			f.Place, f.After, f.Raised, number(f.Seconds, "%.0f"),
			number(f.Rank, "%d"), f.Others)
		if len(f.Instead) > 0 {
			fmt.Fprintf(&out, "; instead %s", strings.Join(f.Instead, "; "))
		}
		out.WriteString("\n")
	}
	for i := range a.false {
		f := &a.false[i]
		fmt.Fprintf(&out, "false: %s, %s s after %s\n", f.Suspects, number(f.Seconds, "%.0f"), f.After)
	}
	fmt.Fprintf(&out, "healthy %.0f min\n", a.healthy.Minutes())
	return out.String()
}

// TestReport sums up the answers of two seeds.
func TestReport(t *testing.T) {
	one, two := 1, 2
	seconds := 60.0
	r := newReport([]answer{
		{
			seed: 1,
			faults: []Fault{
				{Kind: "a", After: "none", Raised: true, Seconds: &seconds, Rank: &one},
				{Kind: "b", After: "deploy"},
			},
			healthy:   time.Hour,
			received:  100,
			judgeable: 50,
		},
		{
			seed:      2,
			faults:    []Fault{{Kind: "a", After: "deploy", Raised: true, Seconds: &seconds, Rank: &two}},
			false:     []False{{}},
			healthy:   2 * time.Hour,
			received:  100,
			judgeable: 100,
		},
	})
	if r.Raised != 2.0/3 || r.First != 1.0/3 || r.FalseIncidents != 1 || r.HealthyHours != 3 || r.Coverage != 0.75 {
		t.Errorf("raised %.2f, first %.2f, %d false in %.0f h, coverage %.2f",
			r.Raised, r.First, r.FalseIncidents, r.HealthyHours, r.Coverage)
	}
	for name, sum := range map[string][2]Sum{
		"kind a": {r.ByKind["a"], {Raised: 2, First: 1, Of: 2}},
		"kind b": {r.ByKind["b"], {Of: 1}},
		"after":  {r.AfterHarmless, {Raised: 1, Of: 2}},
		"before": {r.BeforeHarmless, {Raised: 1, First: 1, Of: 1}},
	} {
		got, want := sum[0], sum[1]
		got.Seconds = nil
		if got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	var table strings.Builder
	if err := r.Table(&table); err != nil || !strings.Contains(table.String(), "not raised") {
		t.Errorf("table: %v\n%s", err, table.String())
	}
}
