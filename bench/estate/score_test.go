package estate

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// at returns a time in seconds since the epoch as Unix nanoseconds.
func at(seconds int64) int64 { return seconds * time.Second.Nanoseconds() }

// faultAt returns a case whose window is [start, end), in seconds.
func faultAt(name, service string, start, end int64, accept ...string) Case {
	return Case{
		Name:          name,
		Fault:         latency,
		Target:        Target{Service: service},
		StartUnixNano: at(start),
		EndUnixNano:   at(end),
		accept:        append(accept, service),
	}
}

func suspects(services ...string) (list []Suspect) {
	for _, s := range services {
		list = append(list, Suspect{Service: s})
	}
	return list
}

// An incident counts if it opens in the window or within the grace. Any other incident is false.
func TestScoreWindows(t *testing.T) {
	for _, x := range []struct {
		name   string
		opened int64
		raised bool
	}{
		{"before the window", 99, false},
		{"at its start", 100, true},
		{"at the end of the grace", 340, true},
		{"after the grace", 341, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			cases := []Case{faultAt("a", "cart", 100, 280)}
			l := newIncidentLog()
			l.add(at(x.opened+1), []Incident{{ID: "1", Opened: at(x.opened), Suspects: suspects("cart")}}, cases)
			r := l.score(cases, period{}, time.Unix(0, 0), time.Unix(1000, 0))
			if r.Cases[0].Raised != x.raised || r.FalseIncidents == 1 == x.raised {
				t.Errorf("raised %t with %d false incidents, want raised %t",
					r.Cases[0].Raised, r.FalseIncidents, x.raised)
			}
			if got, want := r.HealthyHours, (1000-240.)/3600; got < want-1e-9 || got > want+1e-9 {
				t.Errorf("%g healthy hours, want %g", got, want)
			}
		})
	}
}

// Suspects are judged as of 60 s after the window.
func TestScoreJudgement(t *testing.T) {
	cases := []Case{faultAt("a", "cart", 100, 280)}
	l := newIncidentLog()
	for _, seen := range []struct {
		at       int64
		services []string
	}{{150, []string{"shop"}}, {339, []string{"shop", "shop", "cart"}}, {400, []string{"cart"}}} {
		l.add(at(seen.at), []Incident{{ID: "1", Opened: at(130), Suspects: suspects(seen.services...)}}, cases)
	}
	c := l.score(cases, period{}, time.Unix(0, 0), time.Unix(1000, 0)).Cases[0]
	if c.RankService == nil || *c.RankService != 2 || *c.SecondsToRaise != 30 {
		t.Errorf("got %+v, want rank 2 after 30 s", c)
	}
}

// Suspects of an incident that closed early are judged as of its end.
func TestScoreClosed(t *testing.T) {
	cases := []Case{faultAt("a", "cart", 100, 280)}
	l := newIncidentLog()
	closed := at(200)
	l.add(at(190), []Incident{{ID: "1", Opened: at(130), Suspects: suspects("cart")}}, cases)
	l.add(at(205), []Incident{{ID: "1", Opened: at(130), Closed: &closed, Suspects: suspects("cart", "shop")}}, cases)
	l.add(at(210), []Incident{{ID: "1", Opened: at(130), Closed: &closed, Suspects: suspects("shop")}}, cases)
	c := l.score(cases, period{}, time.Unix(0, 0), time.Unix(1000, 0)).Cases[0]
	if diff := cmp.Diff([]string{"cart", "shop"}, c.Suspects); diff != "" {
		t.Error(diff)
	}
}

// The first incident of a window is judged, and further ones are false. A database may be named by any of its names,
// with or without its address.
func TestScoreRank(t *testing.T) {
	cases := []Case{
		faultAt("a", "cart", 100, 280), faultAt("b", "kinto", 1000, 1180, postgresNames...),
		faultAt("c", "cart", 2000, 2180),
	}
	cases[2].Addresses, cases[2].Seen = "ip", "well"
	l := newIncidentLog()
	l.add(at(3000), []Incident{
		{ID: "2", Opened: at(160), Suspects: suspects("cart")},
		{ID: "1", Opened: at(110), Suspects: suspects("a", "b", "c", "cart")},
		{ID: "3", Opened: at(1200), Suspects: suspects("postgresql {ip}:5432")},
		{ID: "4", Opened: at(1500), Sentence: "nothing happened"},
	}, cases)
	r := l.score(cases, period{}, time.Unix(0, 0), time.Unix(3600, 0))
	if *r.Cases[0].RankService != 4 || *r.Cases[1].RankService != 1 || r.Cases[2].Raised {
		t.Errorf("got %+v, want ranks 4 and 1, and the last one not raised", r.Cases)
	}
	if r.Raised != 2./3 || r.Top1 != 1./3 || r.Top3 != 1./3 || r.FalseIncidents != 2 {
		t.Errorf("raised %g, first %g, in three %g, %d false; want 2/3, 1/3, 1/3, 2",
			r.Raised, r.Top1, r.Top3, r.FalseIncidents)
	}
	var table strings.Builder
	if err := r.Table(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"raised 67 %, first 33 %, in three 33 % of 3 faults; 2 false incidents", "nothing happened", "200 s",
		"miss: c (by ip): not raised; 0 of 0 requests failed, mean 0 ms, healthy 0 ms; sibyl on cart: well",
		"open before: nothing happened",
	} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &table)
		}
	}
}

// A report without cases has empty lists and no NaN.
func TestScoreQuiet(t *testing.T) {
	r := newIncidentLog().score(nil, period{}, time.Unix(0, 0), time.Unix(7200, 0))
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"cases":[],"raised":0,"top1":0,"top3":0,"false_incidents":0,"healthy_hours":2,` +
		`"false":[],"changing":[],"skipped":[],"requests":0,"failed_healthy":0}`
	if string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

func TestEffect(t *testing.T) {
	var c Case
	c.effect([]sent{
		{took: 60 * time.Millisecond, ok: true},
		{took: 10 * time.Millisecond},
		{took: 20 * time.Millisecond, ok: true},
	}, nil)
	if c.Requests != 3 || c.Failed != 1 || c.MeanMS != 30 || c.HealthyMeanMS != 0 {
		t.Errorf("got %+v, want 3 requests, 1 failed, mean 30 ms, healthy 0 ms", c)
	}
}

// The API's answer decodes, and a refusal is an error.
func TestIncidents(t *testing.T) {
	answer := `{"items": [{"id": "i1", "opened": "1970-01-01T00:00:05Z", "closed": null, "sentence": "slow",
		"suspects": [{"service": "cart", "operations": [{"operation": "GET /cart", "score": 0.5}], "score": 0.5}]}], "next_cursor": null}`
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/incidents" {
			t.Errorf("path %s", r.URL.Path)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(answer))
	}))
	defer server.Close()
	s := &sibyl{api: strings.TrimPrefix(server.URL, "http://")}
	got, err := s.incidents(t.Context())
	want := []Incident{{
		ID:       "i1",
		Opened:   5e9,
		Sentence: "slow",
		Suspects: []Suspect{{Service: "cart", Operation: "GET /cart", Score: 0.5}},
	}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	status = http.StatusNotFound
	if _, err := s.incidents(t.Context()); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("error %v, want one of status 404", err)
	}
}
