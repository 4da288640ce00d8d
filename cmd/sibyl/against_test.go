package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// normalCart is a normal request in text form. Times are in ms.
const normalCart = `
a shop "GET /cart" server 0ms..100ms
  b shop GET client 10ms..90ms
    c cart "GET /items" server 20ms..80ms
      d cart "SELECT items" client 30ms..70ms
`

// againstCases lists traces to compare with normalCart.
var againstCases = []struct{ name, text string }{
	{"healthy", normalCart},
	{"slow", `
a shop "GET /cart" server 0ms..912ms
  b shop GET client 10ms..902ms
    c cart "GET /items" server 192ms..892ms
      d cart "SELECT items" client 202ms..242ms
`},
	{"failed", `
a shop "GET /cart" server 0ms..60ms error
  b shop GET client 10ms..50ms error
    c cart "GET /items" server 20ms..40ms error
      d cart "SELECT items" client 30ms..35ms error
`},
	{"missing", `
a shop "GET /cart" server 0ms..100ms
  b shop GET client 10ms..90ms
    c cart "GET /items" server 20ms..80ms
`},
	{"unanswered", `
a shop "GET /cart" server 0ms..100ms
  b shop GET client 10ms..90ms
`},
	{"new", `
a shop "GET /cart" server 0ms..130ms
  b shop GET client 10ms..90ms
    c cart "GET /items" server 20ms..80ms
      d cart "SELECT items" client 30ms..70ms
  e shop POST client 90ms..120ms
    f audit "POST /log" server 95ms..115ms
`},
	{"unknown request type", `
a shop "GET /orders" server 0ms..300ms
  b shop GET client 10ms..290ms
    c cart "GET /items" server 20ms..280ms
      d cart "SELECT items" client 30ms..270ms
`},
}

// normalFile writes n normal traces, whose times vary, to a file.
func normalFile(t *testing.T, n int) string {
	t.Helper()
	var texts []string
	for i := range n {
		end := 70 + i%5
		texts = append(texts, strings.NewReplacer("70ms", fmt.Sprintf("%dms", end), "80ms", fmt.Sprintf("%dms", end+10),
			"90ms", fmt.Sprintf("%dms", end+20), "100ms", fmt.Sprintf("%dms", end+30)).Replace(normalCart))
	}
	path := filepath.Join(t.TempDir(), "normal.jsonl")
	if err := os.WriteFile(path, []byte(request(t, texts...)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestTraceAgainst checks the text, the JSON and the waterfall of traces that differ from normal ones in each way.
func TestTraceAgainst(t *testing.T) {
	normal := normalFile(t, 40)
	var all strings.Builder
	for _, c := range againstCases {
		in := request(t, c.text)
		text := sibyl(t, in, "trace", "--against", normal, "-")
		doc := sibyl(t, in, "trace", "--against", normal, "-o", "json", "-")
		if text.code != 0 || doc.code != 0 || text.err+doc.err != "" || strings.Count(doc.out, "\n") != 1 ||
			!json.Valid([]byte(doc.out)) {
			t.Errorf("%s: exit codes %d and %d, %s%s", c.name, text.code, doc.code, text.err, doc.err)
		}
		fmt.Fprintf(&all, "# %s\n%s%s\n", c.name, text.out, doc.out)
	}
	golden(t, "against.txt", all.String())
	drawn := sibyl(t, request(t, againstCases[1].text), "trace", "--against", normal,
		"--trace-id", "00000000000000000000000000000001", "-")
	if drawn.code != 0 {
		t.Errorf("exit code %d, %s", drawn.code, drawn.err)
	}
	golden(t, "against-waterfall.txt", drawn.out)
}

// Normal traces can come from several files, from a directory and in other formats. If a trace is compared with
// itself, it is usual.
func TestTraceAgainstItself(t *testing.T) {
	r := sibyl(t, "", "trace", "--against", shopTraces, "-o", "json", shopTraces)
	if r.code != 0 {
		t.Fatalf("exit code %d, %s", r.code, r.err)
	}
	type doc struct {
		TraceID  string `json:"trace_id"`
		ExcessNS *int64 `json:"excess_ns"`
		UsualNS  int64  `json:"usual_ns"`
		Suspects []struct{ Service, Operation, Kind, Reason string }
	}
	longer, shorter := 0, 0
	for line := range strings.Lines(r.out) {
		var d doc
		if err := json.Unmarshal([]byte(line), &d); err != nil {
			t.Fatal(err)
		}
		switch {
		case d.TraceID == "" || d.ExcessNS == nil || d.Suspects == nil:
			t.Errorf("incomplete: %s", line)
		case *d.ExcessNS > 0:
			longer++
		default:
			shorter++
		}
	}
	if n := longer + shorter; n < 100 || longer > n*55/100 || shorter > n*55/100 {
		t.Errorf("%d requests are longer than usual, %d are not: want about half of at least 100", longer, shorter)
	}
	small := filepath.Join("..", "..", "testdata", "small.")
	one := sibyl(t, "", "trace", "--against", small+"otlp.jsonl", "-o", "json", small+"otlp.jsonl")
	for _, format := range []string{"otlp.pb", "otlp.pb.zst"} {
		two := sibyl(t, "", "trace", "--against", small+format, "-o", "json", small+"otlp.jsonl")
		if two != one {
			t.Errorf("%s: got %+v, want %+v", format, two, one)
		}
	}
	several := sibyl(t, "", "trace", "--against", normalFile(t, 20), "--against", small+"otlp.jsonl", "-o", "json",
		small+"otlp.jsonl")
	if several != one {
		t.Errorf("with an unrelated file: %+v, want %+v", several, one)
	}
}

func TestTraceAgainstUsage(t *testing.T) {
	small := filepath.Join("..", "..", "testdata", "small.otlp.jsonl")
	empty := filepath.Join(t.TempDir(), "empty.jsonl")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		err  string
	}{
		{"trace --against " + empty + " F", 1, "--against: no trace has a root span"},
		{"trace --against nowhere F", 1, "nowhere"},
		{"trace --against - -", 2, "standard input"},
		{"trace --against F", 2, "FILE is missing"},
		{"trace --against F --overlap-tolerance=0.5 F", 1, "overlap tolerance"},
		{"trace --against F --trace-id 000000000000000000000000000000ff F", 1, "no trace"},
		{"trace --against F -", 1, "no trace that could be read"},
		{"trace --against F nowhere", 1, "nowhere"},
	} {
		r := sibyl(t, "", strings.Fields(strings.ReplaceAll(c.args, "F", small))...)
		if r.code != c.code || !strings.Contains(r.err, c.err) || r.out != "" {
			t.Errorf("sibyl %s: exit code %d, %q, output %q; want %d, %q and no output",
				c.args, r.code, r.err, r.out, c.code, c.err)
		}
	}
}

// Names from traces can't control the terminal, and broken records are skipped.
func TestTraceAgainstHostile(t *testing.T) {
	hostile := strings.ReplaceAll(request(t, againstCases[1].text), "SELECT items", `SELECT \u001b[31m items`)
	for _, args := range [][]string{{}, {"-o", "json"}, {"--trace-id", "00000000000000000000000000000001"}} {
		args = append([]string{"trace", "--against", normalFile(t, 20)}, append(args, "-")...)
		r := sibyl(t, hostile+"\n{broken\n", args...)
		if r.code != 0 || !strings.Contains(r.err, "malformed") || strings.Contains(r.out, "\x1b") {
			t.Errorf("%q: exit code %d, %q: %q", args, r.code, r.err, r.out)
		}
	}
}
