package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/api/internal/render"
)

// infinity is the recorded contract of Grafana's Infinity data source.
type infinity struct {
	Query             []string          `json:"query"`
	URLOptions        []string          `json:"url_options"`
	Column            []string          `json:"column"`
	Type              []string          `json:"type"`
	Source            []string          `json:"source_values"`
	Format            []string          `json:"format"`
	Parser            []string          `json:"parser"`
	Method            []string          `json:"method"`
	ColumnType        []string          `json:"column_type"`
	AnnotationColumns map[string]string `json:"annotation_columns"`
}

// target is a query in the dashboard.
type target struct {
	Type, Source, Format, Parser, URL, Expr string
	Datasource                              struct{ Type, UID string }
	Options                                 struct {
		Method string
		Params []struct{ Key, Value string }
	} `json:"url_options"`
	Root    string `json:"root_selector"`
	Columns []struct{ Selector, Text, Type string }
	raw     map[string]json.RawMessage
}

func (q *target) UnmarshalJSON(data []byte) error {
	type plain target
	if err := json.Unmarshal(data, (*plain)(q)); err != nil {
		return err
	}
	return json.Unmarshal(data, &q.raw)
}

type dashboard struct {
	Panels []struct {
		Title   string
		Targets []target
	}
	Annotations struct {
		List []struct {
			Name   string
			Target target
		}
	}
}

func readJSON(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatal(file, err)
	}
}

// field returns the part of an object at a path of field names.
func field(x any, path string) (any, bool) {
	for name := range strings.SplitSeq(path, ".") {
		object, ok := x.(map[string]any)
		if !ok {
			return nil, false
		}
		if x, ok = object[name]; !ok {
			return nil, false
		}
	}
	return x, true
}

// The dashboard's queries conform to the contract of the data source, and the API answers them with values that match
// the types of their columns.
func TestGrafanaQueries(t *testing.T) {
	var contract infinity
	var d dashboard
	readJSON(t, "testdata/infinity.json", &contract)
	readJSON(t, "../deploy/grafana/dashboard.json", &d)
	w := newMeasured(t)
	queries := make(map[string]*target)
	for i := range d.Panels {
		for k := range d.Panels[i].Targets {
			queries[fmt.Sprint(d.Panels[i].Title, " ", k)] = &d.Panels[i].Targets[k]
		}
	}
	for i := range d.Annotations.List {
		a := &d.Annotations.List[i]
		queries["annotation "+a.Name] = &a.Target
		for _, c := range a.Target.Columns {
			if contract.AnnotationColumns[c.Text] != c.Type {
				t.Errorf("%s: column %s is a %s, want a %q", a.Name, c.Text, c.Type, contract.AnnotationColumns[c.Text])
			}
		}
	}
	asked := 0
	for name, q := range queries {
		if q.Datasource.Type != "yesoreyeram-infinity-datasource" {
			continue
		}
		asked++
		for key := range q.raw {
			if !slices.Contains(contract.Query, key) {
				t.Errorf("%s: unknown field %s", name, key)
			}
		}
		for value, known := range map[string][]string{
			q.Type: contract.Type, q.Source: contract.Source, q.Format: contract.Format, q.Parser: contract.Parser,
			q.Options.Method: contract.Method,
		} {
			if !slices.Contains(known, value) {
				t.Errorf("%s: %q, want one of %v", name, value, known)
			}
		}
		w.checkColumns(t, name, q, contract.ColumnType)
	}
	if asked < 4 {
		t.Errorf("%d queries of the API", asked)
	}
}

// checkColumns sends a query and compares the types of its columns with the answer.
func (w *harness) checkColumns(t *testing.T, name string, q *target, types []string) {
	t.Helper()
	const layout = "2006-01-02T15:04:05.000Z"
	now := w.clock().UTC()
	times := strings.NewReplacer(
		"${__from:date:iso}", now.Add(-6*time.Hour).Format(layout), "${__to:date:iso}", now.Format(layout))
	params := url.Values{}
	for _, p := range q.Options.Params {
		params.Set(p.Key, times.Replace(p.Value))
	}
	out := w.get(t, q.URL+"?"+params.Encode())
	var answer any
	if err := json.Unmarshal(out.Body.Bytes(), &answer); err != nil || out.Code != http.StatusOK {
		t.Errorf("%s: %d: %s", name, out.Code, out.Body)
		return
	}
	found, _ := field(answer, q.Root)
	rows, ok := found.([]any)
	if !ok || len(rows) == 0 {
		t.Errorf("%s: no rows at %s", name, q.Root)
		return
	}
	for _, c := range q.Columns {
		if !slices.Contains(types, c.Type) {
			t.Errorf("%s: %s: type %q", name, c.Text, c.Type)
		}
		known := false
		for _, row := range rows {
			x, present := field(row, c.Selector)
			known = known || present
			if x != nil && !hasType(x, c.Type) {
				t.Errorf("%s: %s = %v, want a %s", name, c.Selector, x, c.Type)
			}
		}
		if !known {
			t.Errorf("%s: no row has %s", name, c.Selector)
		}
	}
}

// hasType reports whether a JSON value has the type of a column.
func hasType(x any, kind string) bool {
	switch kind {
	case "number":
		_, ok := x.(float64)
		return ok
	case "timestamp":
		text, _ := x.(string)
		_, err := time.Parse(time.RFC3339Nano, text)
		return err == nil
	}
	_, ok := x.(string)
	return ok
}

// While an incident is open, every metric in the dashboard is served with the labels that queries and legends use.
func TestGrafanaMetrics(t *testing.T) {
	var d dashboard
	readJSON(t, "../deploy/grafana/dashboard.json", &d)
	text := newMeasured(t).callUnchecked(http.MethodGet, "/metrics").Body.String()
	names := make(map[string]bool)
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			for _, name := range regexp.MustCompile(`\bsibyl_\w+`).FindAllString(q.Expr, -1) {
				names[name] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !strings.Contains(text, "\n"+name+"{") && !strings.Contains(text, "\n"+name+" ") {
			t.Errorf("/metrics lacks %s", name)
		}
	}
	if len(names) < 10 {
		t.Errorf("the dashboard has %d metrics: %v", len(names), names)
	}
	for _, want := range []string{
		`sibyl_incident_info{incident="[0-9a-f]{16}",owner="Money",service="checkout",severity="[a-z]+"} 1`,
		`sibyl_incident_open{severity="critical"} [01]`,
		`sibyl_incident_lost_seconds_per_second{incident="[0-9a-f]{16}",service="checkout"} [0-9.]+`,
		`sibyl_objective_burn_rate{below="1s",entry="cart",kind="latency",objective="Carts",window="5m"} 0`,
		`sibyl_objective_burn_rate_alert{below="",entry="cart",kind="errors",objective="cart",window="6h"} 6`,
		`sibyl_objective_burning{below="",entry="cart",kind="errors",objective="cart"} 0`,
	} {
		if !regexp.MustCompile("(?m)^" + want + "$").MatchString(text) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

// Open incidents above the limit have no metrics of their own, but they are counted.
func TestMeteredIncidents(t *testing.T) {
	w := newHarness(t)
	s := w.reader.Refresh(w.core.View())
	const meteredIncidents = 50
	for i := range 2 * meteredIncidents {
		x := contract.Incident{ID: render.Hex16(uint64(i)), Severity: contract.SeverityMinor, Service: "a\xffb"}
		s.Incidents = append(s.Incidents, epoch.IncidentRow{Incident: x, Listed: true})
	}
	text := w.callUnchecked(http.MethodGet, "/metrics").Body.String()
	n := strings.Count(text, "\nsibyl_incident_score{")
	open := strings.Contains(text, `sibyl_incident_open{severity="minor"} 100`+"\n")
	if n != meteredIncidents || !open || !strings.Contains(text, "a�b") {
		t.Errorf("%d incidents with metrics", n)
	}
}
