package cases

import (
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/epoch"
)

// A weekly window begins on its days in its zone, also across midnight and a change of the clock, and lasts no longer
// than the silence.
func TestWeekly(t *testing.T) {
	at := func(text string) time.Time {
		t.Helper()
		x, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	x := &contract.Silence{
		From:  at("2026-03-20T00:00:00Z"),
		Until: at("2026-04-05T22:00:00Z"),
		Weekly: &contract.Weekly{
			Days:     []contract.Weekday{contract.WeekdayFriday, contract.WeekdaySunday},
			Start:    "22:00",
			LengthNs: int64(4 * time.Hour),
			Zone:     "Europe/Berlin",
		},
	}
	if _, err := time.LoadLocation(x.Weekly.Zone); err != nil {
		t.Skip("this machine knows no time zones")
	}
	for now, until := range map[string]string{
		"2026-03-20T20:59:00Z": "",
		"2026-03-20T21:00:00Z": "2026-03-21T01:00:00Z",
		"2026-03-21T00:59:00Z": "2026-03-21T01:00:00Z", // Saturday, the window of Friday
		"2026-03-21T21:00:00Z": "",
		"2026-03-29T20:00:00Z": "2026-03-30T00:00:00Z", // an hour earlier in summer
		"2026-04-05T20:00:00Z": "2026-04-05T22:00:00Z", // its last window is cut short
		"2026-04-10T20:00:00Z": "",
		"2026-03-13T21:00:00Z": "",
	} {
		got, covers := windowAt(x, at(now))
		if covers != (until != "") || covers && got.Format(time.RFC3339) != until {
			t.Errorf("%s: until %s, %t; want %q", now, got, covers, until)
		}
	}
}

// Silences that ended a week ago are forgotten, and there is a limit.
func TestSilencesEnd(t *testing.T) {
	s, err := OpenSilences(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_700_000_000, 0)
	add := func(now time.Time) error {
		_, err := s.add(contract.Silence{From: now, Until: now.Add(time.Hour)}, now)
		return err
	}
	for range maxSilences {
		if err := add(now); err != nil {
			t.Fatal(err)
		}
	}
	if err := add(now); err == nil {
		t.Error("there is no limit")
	}
	if err := s.end(1, "ann", now); err != nil {
		t.Fatal(err)
	}
	if err := add(now); err != nil {
		t.Errorf("silences that ended keep out another: %v", err)
	}
	now = now.Add(silencePast + 2*time.Hour)
	if err := add(now); err != nil {
		t.Error(err)
	}
	if all := s.All(now); len(all) != 1 || all[0].ID != maxSilences+2 {
		t.Errorf("%d silences", len(all))
	}
}

// A condition on request types must hold for all that are affected: others may need somebody.
func TestSilencedTypes(t *testing.T) {
	row := func(names ...string) *epoch.IncidentRow {
		x := &epoch.IncidentRow{}
		for _, name := range names {
			x.RequestTypes = append(x.RequestTypes, contract.IncidentRequestType{Name: name})
		}
		return x
	}
	for pattern, want := range map[string]bool{"shop POST /import": false, "shop POST *": true, "": true} {
		m := &contract.SilenceMatch{RequestType: pattern}
		if got := (&Cases{}).matches(m, row("shop POST /import", "shop POST /checkout")); got != want {
			t.Errorf("%q: %t, want %t", pattern, got, want)
		}
	}
	if (&Cases{}).matches(&contract.SilenceMatch{RequestType: "*"}, row()) {
		t.Error("an incident without known request types is silenced")
	}
}

// An instance that the incident names has its attribute, whatever the samples show.
func TestSilencedInstance(t *testing.T) {
	x := &epoch.IncidentRow{}
	node := []contract.SuspectInstance{{Key: "host.name", Value: "node-7"}}
	x.Suspects = []contract.IncidentSuspect{{Instances: node}}
	if !named(x, "host.name", "node-*") || named(x, "host.name", "node-8") || named(x, "zone", "node-7") {
		t.Error("the instance is not matched")
	}
}
