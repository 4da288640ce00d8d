package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/objectives"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// An objective that burns has an incident that names it in its sentence, its next step and its evidence. An objective
// that is met has no incident.
func TestObjectives(t *testing.T) {
	w := newHarnessOf(t, sim.None)
	entry := w.app.Entries()[0]
	name := w.app.Table().ServiceName(entry) + " " + w.app.Table().OpName(entry)
	options := *w.core.View().Options
	options.Objectives = []incident.Objective{
		{Name: "Pages are instant", Entry: name, Below: time.Microsecond, Percentile: 99},
		{Entry: name, Errors: 0.4},
		{Entry: "unused", Below: time.Second, Percentile: 99.9},
	}
	w.configured.Objectives = options.Objectives
	settings := options.Settings()
	if !w.core.Apply(&engine.Change{Settings: &settings}) {
		t.Fatal("the settings were refused")
	}
	w.play(t, 90, func() bool { return len(w.core.View().Incidents.All()) > 0 })
	list := w.get(t, "/api/v1/objectives")
	compareGolden(t, "listObjectives", list.Body.Bytes())
	items := decode[contract.ObjectiveList](t, list).Items
	id := w.incidentID()
	if len(items) != 3 || items[0].Incident == nil || *items[0].Incident != id || items[0].Burning == nil ||
		items[0].Remaining >= 0 {
		t.Errorf("objectives %+v, want the first one with the incident %s", items, id)
	}
	if items[1].Incident != nil || items[1].Burning != nil || items[1].Requests != items[0].Requests ||
		items[2].Requests != 0 || items[2].From != nil {
		t.Errorf("objectives %+v", items[1:])
	}
	d := w.incident(t)
	const want = "Pages are instant: 100 % of the requests took 1 µs or longer in the last hour (objective: 1 %)."
	if x := d.Incident; !strings.HasPrefix(x.Sentence, want) || len(x.Objectives) != 1 ||
		x.Objectives[0].Sentence != want || len(x.Suspects) == 0 {
		t.Errorf("%q, objectives %+v", x.Sentence, x.Objectives)
	}
	if !strings.Contains(d.Next, name) && d.Incident.Score == 0 {
		t.Errorf("next step %q", d.Next)
	}
}

// addObjective adds an objective with the API and returns it.
func (w *harness) addObjective(t testing.TB, body map[string]any) contract.Objective {
	t.Helper()
	out := w.call(t, http.MethodPost, "/api/v1/objectives", body)
	var x contract.Objective
	if err := json.Unmarshal(out.Body.Bytes(), &x); out.Code != http.StatusCreated || err != nil {
		t.Fatal(out.Code, out.Body)
	}
	return x
}

// inEffect returns the objectives of the core.
func (w *harness) inEffect() []incident.Objective { return w.core.View().Options.Objectives }

// People add, change and delete objectives, with effect at once, also after a restart.
func TestEditObjectives(t *testing.T) {
	w := newHarnessOf(t, sim.None)
	w.configured.Objectives = []incident.Objective{{Entry: "shop", Errors: 0.01}}
	x := w.addObjective(t, map[string]any{"entry": " shop GET /cart ", "below_ns": 3e8, "percentile": 99})
	if x.ID == nil || *x.ID != 1 || x.By == nil || *x.By != "local" || x.Name != "shop GET /cart" || x.Requests != 0 ||
		len(x.Windows) != 4 {
		t.Errorf("added %+v", x)
	}
	want := incident.Objective{Entry: "shop GET /cart", Below: 300 * time.Millisecond, Percentile: 99}
	if got := w.inEffect(); len(got) != 2 || got[1] != want {
		t.Errorf("in effect: %+v", got)
	}
	w.expect(t, http.StatusOK, http.MethodPut, "/api/v1/objectives/1",
		map[string]any{"name": "Cart", "entry": "shop GET /cart", "below_ns": 3e8, "percentile": 95})
	want.Name, want.Percentile = "Cart", 95
	if got := w.inEffect(); len(got) != 2 || got[1] != want {
		t.Errorf("after the change: %+v", got)
	}
	items := fetch[contract.ObjectiveList](t, w, "/api/v1/objectives").Items
	if len(items) != 2 || items[0].ID != nil || items[1].Name != "Cart" || items[1].Budget != 0.05 {
		t.Errorf("listed %+v", items)
	}
	reopened, err := objectives.Open(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	o := w.configured
	if reopened.Complete(&o); !slices.Equal(o.Objectives, w.inEffect()) {
		t.Errorf("after a restart: %+v", o.Objectives)
	}
	w.expect(t, http.StatusNoContent, http.MethodDelete, "/api/v1/objectives/1", nil)
	if got := w.inEffect(); len(got) != 1 {
		t.Errorf("after the deletion: %+v", got)
	}
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		w.expect(t, http.StatusNotFound, method, "/api/v1/objectives/1",
			map[string]any{"entry": "shop", "below_ns": 3e8, "percentile": 95})
	}
	if next := w.addObjective(t, map[string]any{"entry": "cart", "errors": 0.1}); *next.ID != 2 {
		t.Errorf("the ID %d was used before", *next.ID)
	}
}

// The configuration wins over objectives that people add.
func TestConfiguredObjectives(t *testing.T) {
	w := newHarnessOf(t, sim.None)
	w.configured.Objectives = []incident.Objective{{Entry: "shop", Errors: 0.01}}
	w.expect(t, http.StatusConflict, http.MethodPost, "/api/v1/objectives",
		map[string]any{"entry": "shop", "errors": 0.1})
	w.addObjective(t, map[string]any{"entry": "cart", "errors": 0.1})
	w.expect(t, http.StatusConflict, http.MethodPost, "/api/v1/objectives",
		map[string]any{"entry": "cart", "errors": 0.2})
	w.configured.Objectives = append(w.configured.Objectives, incident.Objective{Entry: "cart", Errors: 0.2})
	w.addObjective(t, map[string]any{"entry": "pay", "errors": 0.1})
	if got := w.inEffect(); len(got) != 3 || got[1].Errors != 0.2 {
		t.Errorf("in effect: %+v", got)
	}
	items := fetch[contract.ObjectiveList](t, w, "/api/v1/objectives").Items
	if len(items) != 4 || items[1].Replaced || !items[2].Replaced || items[3].Replaced {
		t.Errorf("listed %+v", items)
	}
}

// Objectives without exactly one valid limit are refused.
func TestInvalidObjectives(t *testing.T) {
	w := newHarnessOf(t, sim.None)
	for _, body := range []map[string]any{
		{"entry": "shop"},
		{"entry": "  ", "errors": 0.1},
		{"entry": "shop", "below_ns": 3e8},
		{"entry": "shop", "percentile": 99},
		{"entry": "shop", "below_ns": 3e8, "percentile": 99, "errors": 0.1},
		{"entry": "shop", "errors": 0.6},
		{"entry": "shop", "errors": 0.1, "other": 1},
	} {
		for _, path := range []string{"/api/v1/objectives", "/api/v1/objectives/preview"} {
			if out := w.call(t, http.MethodPost, path, body); out.Code != http.StatusUnprocessableEntity &&
				out.Code != http.StatusBadRequest {
				t.Errorf("%s %v: %d: %s", path, body, out.Code, out.Body)
			}
		}
	}
}

// If the engine refuses a change, nothing is stored.
func TestRefusedEdit(t *testing.T) {
	w := newHarnessOf(t, sim.None)
	full := objectives.New(w.reader, w.store.Ticks, objectives.Options{
		Edits:    w.options.Edits,
		Settings: w.options.Settings,
		Settle:   func(context.Context) error { return refusal.New(refusal.Overloaded, "the disk is full", "") },
		Clock:    w.clock,
	})
	_, err := full.AddObjective(t.Context(), contract.AddObjectiveRequestObject{
		Body: &contract.ObjectiveRequest{Entry: "shop", Errors: 0.1},
	})
	if !errors.Is(err, refusal.Overloaded) {
		t.Error(err)
	}
	if items := fetch[contract.ObjectiveList](t, w, "/api/v1/objectives").Items; len(items) != 0 {
		t.Errorf("stored %+v", items)
	}
}

// storePast stores requests of the first request type for each of the last minutes: a hundred fast ones and as many
// slow ones as missed says.
func (w *harness) storePast(t testing.TB, minutes int, missed func(minute int) int) (entry string) {
	t.Helper()
	var typ *group.Group
	for g := range w.core.View().Groups.Each() {
		if g.Level == group.LevelRequestType {
			typ = g
			break
		}
	}
	all := make(map[store.Tick]*group.Past)
	for i := range minutes {
		p := &group.Past{}
		add := func(d time.Duration) {
			p.Total.Add(d.Nanoseconds())
			p.Latency.Add(d.Nanoseconds(), 1)
		}
		for range 100 {
			add(time.Millisecond)
		}
		for range missed(i) {
			add(time.Second)
		}
		at := w.now - w.now%trace.Nanos(time.Minute)
		all[store.Tick{Group: typ.ID, From: at.Add(time.Duration(i-minutes) * time.Minute)}] = p
	}
	if err := w.store.Ticks.Add(all); err != nil {
		t.Fatal(err)
	}
	names := w.app.Table()
	return names.ServiceName(typ.Entry) + " " + names.OpName(typ.Entry)
}

// A preview judges the kept requests and changes nothing.
func TestPreviewObjective(t *testing.T) {
	w := newHarnessOf(t, sim.None)
	w.play(t, 30, w.learned)
	w.epoch(t)
	entry := w.storePast(t, 8*60, func(minute int) int {
		if minute >= 120 && minute < 150 || minute >= 400 && minute < 420 {
			return 100
		}
		return 0
	})
	preview := func(body map[string]any) contract.ObjectivePreview {
		return decode[contract.ObjectivePreview](t, w.call(t, http.MethodPost, "/api/v1/objectives/preview", body))
	}
	strict := map[string]any{"entry": entry, "below_ns": 1e8, "percentile": 99}
	d := preview(strict)
	if d.From == nil || d.To.Sub(*d.From) != 8*time.Hour || d.LacksNs != 0 || d.Missed != 5000 ||
		d.Requests != 53_000 || len(d.Burned) != 2 {
		t.Fatalf("%+v", d)
	}
	if began := d.Burned[0].From.Sub(*d.From); began < 120*time.Minute || began > 130*time.Minute ||
		d.Burned[0].Until == nil || d.Burned[0].Incident != nil {
		t.Errorf("the first began %v after the start: %+v", began, d.Burned[0])
	}
	if got := preview(map[string]any{"entry": entry, "errors": 0.01}); got.Missed != 0 || len(got.Burned) != 0 {
		t.Errorf("of failures: %+v", got)
	}
	if got := preview(map[string]any{"entry": "unknown", "errors": 0.01}); got.From != nil ||
		got.LacksNs != (6*time.Hour).Nanoseconds() || got.Requests != 0 {
		t.Errorf("of an unknown entry: %+v", got)
	}
	if items := fetch[contract.ObjectiveList](t, w, "/api/v1/objectives").Items; len(items) != 0 {
		t.Errorf("a preview added %+v", items)
	}
}

// Gates are set, except those of the configuration. A preview lists the incidents that they would have hidden.
func TestGates(t *testing.T) {
	w := newIncident(t)
	w.configured.Gates.Score = 0.03
	g := fetch[contract.Gates](t, w, "/api/v1/gates")
	if g.Growth != 0.1 || len(g.Edited) != 0 || len(g.Configured) != 1 || g.By != nil {
		t.Errorf("before: %+v", g)
	}
	g = decode[contract.Gates](t, w.call(t, http.MethodPut, "/api/v1/gates", map[string]any{"growth": 0.3}))
	if g.Growth != 0.3 || len(g.Edited) != 1 || g.By == nil || w.core.View().Options.Gates.Growth != 0.3 {
		t.Errorf("after: %+v, in effect %+v", g, w.core.View().Options.Gates)
	}
	w.expect(t, http.StatusConflict, http.MethodPut, "/api/v1/gates", map[string]any{"score": 0.5})
	w.expect(t, http.StatusOK, http.MethodPut, "/api/v1/gates", map[string]any{})
	if got := w.core.View().Options.Gates; got != w.configured.Gates {
		t.Errorf("after the reset: %+v", got)
	}
	w.configured.Gates = incident.DefaultGates()
	preview := func(body map[string]any) contract.GatesPreview {
		return decode[contract.GatesPreview](t, w.call(t, http.MethodPost, "/api/v1/gates/preview", body))
	}
	d := preview(map[string]any{})
	if len(d.Items) != 1 || !d.Items[0].Opens || len(d.Lower) != 0 || d.From == nil {
		t.Errorf("the same gates: %+v", d)
	}
	const most = 100
	d = preview(map[string]any{"growth": most, "failing": 1, "score": most, "time_ns": 1000})
	if d.Items[0].Opens || !slices.Equal(d.Lower, []contract.Gate{contract.GateTimeNs}) {
		t.Errorf("high gates: %+v", d)
	}
}
