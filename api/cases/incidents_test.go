package cases

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/pebbledb"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// An incident lists the closed incidents before it with the same first suspect, those of its place first, with what
// helped.
func TestEarlierIncidents(t *testing.T) {
	row := func(id, service, place string, closed bool) epoch.IncidentRow {
		x := epoch.IncidentRow{
			Incident: contract.Incident{
				ID: id, Service: service, Place: &place, Kind: contract.IncidentKindSlow,
			},
			Listed: true,
		}
		if closed {
			x.Ended, x.Closed, x.End = new(time.Time), new(time.Time), new(contract.IncidentEnd)
		}
		return x
	}
	s := &epoch.Snapshot{
		Incidents: []epoch.IncidentRow{
			row("a", "cart", "cart/lock", true), row("b", "shop", "cart/lock", true),
			row("c", "cart", "cart/disk", true),
			row("d", "cart", "cart/lock", false), row("e", "cart", "cart/lock", false),
		},
	}
	comments := map[string][]contract.Comment{
		"a": {
			{Text: "restarted", Helped: new(true)},
			{Text: "rolled back", Helped: new(true)},
			{Text: "see ticket 42"},
		},
		"c": {{Text: "why?"}},
	}
	all := earlier(s, 4, func(incident string) []contract.Comment { return comments[incident] })
	if len(all) != 2 || all[0].ID != "a" || !all[0].Alike || *all[0].Helped != "rolled back" ||
		all[1].ID != "c" || all[1].Alike || all[1].Helped != nil {
		t.Errorf("earlier: %+v", all)
	}
}

// A place is located once. If another place is located later, that is a change.
func TestTimelineOfPlaces(t *testing.T) {
	r := newRenderer()
	x := engine.Incident{Incident: incident.Incident{Onset: 10}}
	x.Enter(incident.Transition{At: 20, State: incident.Open})
	places := r.Table
	a, b := places.Op(places.Symbol("cart"), places.Symbol("a"), trace.Internal),
		places.Op(places.Symbol("cart"), places.Symbol("b"), trace.Internal)
	x.Milestones = []engine.Milestone{
		{At: x.Opened(), Place: a},
		{At: x.Opened() + 1, Place: b},
		{
			At:          x.Opened() + 2,
			Problem:     analysis.Hash{Lo: 9},
			RequestType: analysis.Hash{Lo: 5},
			Group:       analysis.Hash{Hi: 0x3f2a91c0 << 32},
			Kind:        detect.KindSlow,
		},
	}
	var texts []string
	for _, e := range r.timeline(&x) {
		if e.Kind == contract.TimelineEntryKindProblem || e.Kind == contract.TimelineEntryKindLocated {
			texts = append(texts, e.Text)
		}
	}
	want := []string{
		"Sibyl located the place: cart a.", "The place changed to cart b.",
		"A problem opened: request type 00000000 (group 3f2a91c0) takes longer than usual.",
	}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Failed traces come first, latest first, but only if a request type loses more by failures than by time.
func TestSampleTraces(t *testing.T) {
	of := func(n byte, start trace.Nanos, took time.Duration) store.Exemplar {
		return store.Exemplar{Trace: trace.ID{n}, Start: start, Duration: took.Nanoseconds()}
	}
	failing, slow := analysis.Hash{Lo: 1}, analysis.Hash{Lo: 2}
	dir := t.TempDir()
	disk, err := pebbledb.NewDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	h, err := store.Open(store.Options{Dir: dir, Disk: disk, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.Close() }()
	err = errors.Join(
		h.Exemplars.Put(failing, &store.Exemplars{
			Slow:   []store.Exemplar{of(1, 30, 3)},
			Failed: []store.Exemplar{of(2, 5, 1), of(3, 20, 1), of(4, 40, 1)},
		}),
		h.Exemplars.Put(slow, &store.Exemplars{
			Slow:   []store.Exemplar{of(5, 30, 900), of(3, 20, 1)},
			Failed: []store.Exemplar{of(6, 30, 1)},
		}),
		h.Kept.Put(search.OfIncident(0), slow, &store.Exemplars{Slow: []store.Exemplar{of(8, 20, 700)}}),
	)
	if err != nil {
		t.Fatal(err)
	}
	types := []engine.AffectedType{
		{
			RequestType: failing,
			Requests:    10,
			Mean:        1,
			Usual:       1,
			Failed:      0.5,
		}, {
			RequestType: slow,
			Requests:    10,
			Mean:        300,
			Usual:       100,
			Failed:      0.1,
		},
	}
	found, err := SampleTraces(h, 0, types, 10, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, x := range found {
		got = append(got, fmt.Sprint(x.Trace[0], x.Failed))
	}
	if want := []string{"4 true", "3 true", "5 false", "8 false", "1 false"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if closed, err := SampleTraces(h, 0, types, 10, 50); err != nil || len(closed) != 1 || closed[0].Trace[0] != 8 {
		t.Errorf("of the closed incident: %v, %v; want only those that are kept for it", closed, err)
	}
	// the slowest, but the least slow relative to its type
	found = append(found, SampleTrace{Exemplar: of(7, 50, 2000), RequestType: slow})
	all := exemplarsOf(found)
	got = nil
	for _, x := range all {
		got = append(got, x.Trace[:2])
	}
	if want := []string{"04", "03", "07", "05", "08", "01"}; !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}
	if all[0].Stratum != contract.ExemplarStratumFailed || all[2].Stratum != contract.ExemplarStratumSlow {
		t.Errorf("strata %s, %s", all[0].Stratum, all[2].Stratum)
	}
}
