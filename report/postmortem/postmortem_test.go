package postmortem

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/api/contract"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// sample returns a report with every section, and with hostile text in each field.
func sample(t *testing.T) *Report {
	t.Helper()
	data, err := os.ReadFile("testdata/incident.json")
	if err != nil {
		t.Fatal(err)
	}
	d := new(contract.IncidentDetail)
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(d); err != nil {
		t.Fatal(err)
	}
	r := &Report{Detail: d, UI: "https://sibyl.example", At: time.Date(2026, 3, 1, 5, 0, 0, 0, time.UTC)}
	for i := range 12 {
		mean, p99 := 20e6+float64(i/6)*60e6, 90e6+float64(i/6)*200e6
		w := contract.PastWindow{
			From:   d.Incident.Onset.Add(time.Duration(i-6) * 5 * time.Minute),
			MeanNs: &mean,
			P99Ns:  &p99,
		}
		if w.To = w.From.Add(5 * time.Minute); i == 3 {
			w.MeanNs, w.P99Ns = nil, nil // no request came
		}
		r.Latency = append(r.Latency, w)
	}
	return r
}

var formats = map[string]func(io.Writer, *Report) error{"md": Markdown, "html": HTML}

func render(t *testing.T, format string, r *Report) string {
	t.Helper()
	var b strings.Builder
	if err := formats[format](&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestGolden(t *testing.T) {
	for format := range formats {
		got, file := render(t, format, sample(t)), "testdata/incident."+format
		if *rewrite {
			if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}

// What an incident costs is told in words if no request waits.
func TestLost(t *testing.T) {
	for want, x := range map[string]contract.Incident{
		"little": {},
		"68 ms of waiting per second, beyond the usual": {
			Impact: contract.IncidentImpact{LostNsPerSecond: 68e6},
			Queue:  &contract.IncidentQueue{Name: "mails"},
		},
		"2/s of requests, which no longer come":       {StoppedPerSecond: new(2.)},
		"no request waits, but messages do, in mails": {Queue: &contract.IncidentQueue{Name: "mails"}},
		"no request waits, but a message does: 20 ms → 26 s in mails": {
			Queue: &contract.IncidentQueue{Name: "mails", BeforeNs: new(20e6), NowNs: new(26e9)},
		},
	} {
		if got := Lost(&x); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// An incident that has just opened has no evidence yet.
func TestSparse(t *testing.T) {
	x := contract.Incident{
		ID:       "00000000000000aa",
		Severity: contract.SeverityMinor,
		Sentence: "More requests fail since 04:41.",
		Onset:    time.Unix(0, 0),
		Opened:   time.Unix(60, 0),
	}
	r := &Report{Detail: &contract.IncidentDetail{Incident: x, Next: "Wait."}, At: time.Unix(90, 0)}
	for format := range formats {
		got := render(t, format, r)
		for _, part := range []string{"Suspects", "Latency", "Comments", "Earlier", "Page", "http"} {
			if strings.Contains(strings.ReplaceAll(got, "http-equiv", ""), part) {
				t.Errorf("%s has %s: %s", format, part, got)
			}
		}
		if !strings.Contains(got, "open for 90 s") || !strings.Contains(got, "little") {
			t.Errorf("%s: %s", format, got)
		}
	}
}

// Once the place is located, documents list the places as measured then, like the page and the command line.
func TestLocatedPlaces(t *testing.T) {
	r := sample(t)
	value := 0.42
	r.Detail.Investigation.Investigation = contract.Investigation{
		State:    contract.StateGone,
		Suspects: []contract.Suspect{{Operation: "cart measured-later", Share: contract.Interval{Value: &value}}},
	}
	r.Detail.Located = &contract.LocatedPlace{
		Frames: []contract.LocatedFrame{{Operation: "cart measured-then", Share: contract.Interval{Value: &value}}},
	}
	for format := range formats {
		got := render(t, format, r)
		if !strings.Contains(got, "measured-then") || strings.Contains(got, "measured-later") {
			t.Errorf("%s has other places than the located ones", format)
		}
	}
	if got := render(t, "md", r); !strings.Contains(got, "| Place | Share of the added latency |\n") {
		t.Errorf("columns without a value: %s", got)
	}
	r.Detail.Investigation.Investigation.State = contract.StateInvestigating
	if got := render(t, "md", r); !strings.Contains(got, "measured-later") {
		t.Error("while it searches, a document lists places of earlier")
	}
}

// A single window is drawn as a dot. Times without requests interrupt the lines. If there are no windows, the report
// says why it has no chart.
func TestLatency(t *testing.T) {
	r := sample(t)
	lines := func() int { return strings.Count(render(t, "html", r), "<polyline") }
	all := r.Latency
	if r.Latency = all[:1]; lines() != 2 {
		t.Errorf("one window: %d lines", lines())
	}
	if r.Latency = append(all[:1:1], all[2]); lines() != 4 {
		t.Errorf("two windows apart: %d lines", lines())
	}
	r.Latency = nil
	for format := range formats {
		if got := render(t, format, r); !strings.Contains(got, "around the incident are no longer kept") {
			t.Errorf("%s does not say why it has no chart", format)
		}
	}
}

// Text from traces and people is never interpreted as markup, in either format.
func TestHostile(t *testing.T) {
	r := sample(t)
	data, err := json.Marshal(r.Detail)
	if err != nil {
		t.Fatal(err)
	}
	hostile := `<img src=x onerror=alert(1)>](javascript:alert(1))|\u001b[31m` + "`"
	for _, known := range []string{"cart", "rolled back", "POST /checkout"} {
		if data = bytes.ReplaceAll(data, []byte(known), []byte(hostile)); !bytes.Contains(data, []byte("onerror")) {
			t.Fatalf("the sample does not mention %s", known)
		}
	}
	r.Detail = new(contract.IncidentDetail)
	if err := json.Unmarshal(data, r.Detail); err != nil {
		t.Fatal(err)
	}
	if html := render(t, "html", r); strings.Contains(html, "<img") || strings.Contains(html, "<script") {
		t.Error("an element of a text became one of the page")
	}
	markdown := render(t, "md", r)
	for i := range len(markdown) {
		if strings.ContainsRune("<>]`", rune(markdown[i])) && markdown[i-1] != '\\' && !strings.HasPrefix(markdown[i:],
			"](https://sibyl.example/") && (markdown[i] != '>' || markdown[i-1] != '\n') {
			t.Fatalf("not escaped: %s", markdown[max(0, i-40):i+10])
		}
	}
	if strings.Contains(markdown, "\x1b") {
		t.Error("a control character")
	}
}
