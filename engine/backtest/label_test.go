package backtest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis/history"
)

func TestParseLabels(t *testing.T) {
	labels, err := ParseLabels("f", []byte(`{"name": "a", "fault": "cpu", `+
		`"start_unix_nano": "1700000000000000001", "end_unix_nano": 1700000000000000002, `+
		`"target": {"service": "cart"}}

{"name": "b", "start_unix_nano": 3, "end_unix_nano": 3, "target": {"service": "ad", "operation": "GET"}, "more": 1}
`))
	if err != nil || len(labels) != 2 {
		t.Fatalf("got %v, %v", labels, err)
	}
	if l := labels[0]; l.Name != "a" || l.Fault != "cpu" || l.Window.From != 1700000000000000001 ||
		l.Window.To != 1700000000000000002 || l.Target.Service != "cart" {
		t.Errorf("got %+v", l)
	}
}

// Errors name the line and the field.
func TestBrokenLabels(t *testing.T) {
	const target = `"target": {"service": "cart"}}`
	const good = `{"name": "a", "start_unix_nano": 1, "end_unix_nano": 2, ` + target + "\n"
	for line, want := range map[string]string{
		`{`:                                  "want a JSON object on one line: unexpected end",
		`[{"name": "a"}]`:                    "malformed fault: want a JSON object on one line, got array",
		`{"name": "a", "target": "cart"}`:    "target is of type string, want object",
		strings.Replace(good, `"a"`, "1", 1): "name is of type number, want string",
		`{"start_unix_nano": 1, "end_unix_nano": 2, ` + target:                     "no name",
		`{"name": "a", "start_unix_nano": 1, "end_unix_nano": 2}`:                  "no target.service",
		`{"name": "a", "end_unix_nano": 2, ` + target:                              "no start_unix_nano",
		`{"name": "a", "start_unix_nano": 1, "end_unix_nano": "soon", ` + target:   `end_unix_nano is "soon"`,
		`{"name": "a", "start_unix_nano": -1, "end_unix_nano": 2, ` + target:       "start_unix_nano is -1",
		`{"name": "a", "start_unix_nano": 1.5e9, "end_unix_nano": 2, ` + target:    "start_unix_nano is 1.5e9",
		`{"name": "a", "start_unix_nano": 3, "end_unix_nano": 2, ` + target:        "end_unix_nano 2 lies before",
		strings.Replace(good, `"cart"`, `["cart", "ad"]`, 1):                       "target.service",
		strings.Replace(good, "1,", `"1",`, 1):                                     `fault "a" is a copy of line 1`,
		strings.Replace(good, `"a"`, `"`+strings.Repeat("a", maxLabelLine)+`"`, 1): "too long",
	} {
		_, err := ParseLabels("faults.jsonl", []byte(good+line))
		if err == nil || !strings.Contains(err.Error(), "faults.jsonl:2: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100s: got error %v, want line 2 and %q", line, err, want)
		}
	}
	if _, err := ParseLabels("f", []byte("\n\n")); err == nil {
		t.Error("got no error for a file without labels")
	}
}

// Labels outside the recording are listed separately. It is an error if all labels are outside or if a time is in
// another unit.
func TestLabelsDuring(t *testing.T) {
	const start = 1_790_000_000
	recorded := history.Interval{From: start * second, To: (start + 3600) * second}
	before, first, last, after := label("before", start-20, start-10), label("first", start-20, start),
		label("last", start+3600, start+3700), label("after", start+3601, start+3700)
	within, outside, err := during([]Label{before, first, last, after}, recorded)
	if err != nil || len(within) != 2 || within[0].Name != "first" || within[1].Name != "last" ||
		!cmp.Equal(outside, []string{"before", "after"}) {
		t.Errorf("within %v, outside %v, %v", within, outside, err)
	}
	inSeconds := Label{Name: "seconds", Window: history.Interval{From: start, To: (start + 60) * second}}
	for want, labels := range map[string][]Label{
		`"seconds" begins at 1970-01-01 00:00:01 UTC, and the traces at 2026-09-21 14:13:20: want nanoseconds`: {
			first,
			inSeconds,
		},
		"from 2026-09-21 14:13:20 to 2026-09-21 15:13:20 UTC; the first begins at 2026-09-21 15:13:21": {after, before},
	} {
		if _, _, err := during(labels, recorded); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
	if within, outside, err := during(nil, recorded); within != nil || outside != nil || err != nil {
		t.Errorf("without labels: %v, %v, %v", within, outside, err)
	}
}
