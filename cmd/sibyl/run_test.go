package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/internal/cli"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracegen"
)

// result holds the exit code and the output of a run.
type result struct {
	code     int
	out, err string
}

// sibyl runs the program in an empty environment.
func sibyl(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	return sibylIn(t, stdin, nil, args...)
}

// sibylIn runs the program with the environment variables env.
func sibylIn(t *testing.T, stdin string, env map[string]string, args ...string) result {
	t.Helper()
	var out, err bytes.Buffer
	code := run(t.Context(), args, func(key string) string { return env[key] }, strings.NewReader(stdin), &out, &err)
	return result{code, out.String(), err.String()}
}

// request returns the traces in texts as one OTLP request in JSON.
func request(t *testing.T, texts ...string) string {
	t.Helper()
	doc, err := tracegen.FromText(texts...)
	if err != nil {
		t.Fatal(err)
	}
	return string(doc)
}

const cart = `
a shop "GET /cart" server 1000..1100
  b shop Cart.Get client 1010..1050
`

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		err  string // part of the error message
	}{
		{"", 0, ""},
		{"--help", 0, ""},
		{"trace --help", 0, ""},
		{"version", 0, ""},
		{"--version", 0, ""},
		{"version -o json", 0, ""},
		{"completion", 0, ""},
		{"completion bash", 0, ""},
		{"completion foo", 2, `unknown command "foo" for "sibyl completion"`},
		{"completion bsh", 2, "did you mean bash"},
		{"help", 0, ""},
		{"help webhook resend", 0, ""},
		{"help nosuch", 2, `unknown command "nosuch" for "sibyl"`},
		{"help nosuch", 2, "\nSee sibyl --help.\n"},
		{"help analyse", 2, "did you mean analyze?"},
		{"help webhook resent", 2, "did you mean resend?"},
		{"help analyze more", 2, `unknown command "more" for "sibyl analyze"`},
		{"nonsense", 2, "unknown command"},
		{"analyse", 2, `unknown command "analyse" for "sibyl"; did you mean analyze?`},
		{"webhook resent", 2, "did you mean resend?"},
		{"--nonsense", 2, "unknown flag"},
		{"version more", 2, `sibyl version takes no arguments, but got "more"`},
		{"analyze", 2, "FILE is missing"},
		{"analyze --help", 0, ""},
		{"analyze -o text -", 2, "table, json, pprof, folded, html"},
		{"analyze --attributes=" + strings.Repeat("a,b,c,d,e,f,g,", 5) + "z -", 0, ""},
		{"analyze --min-samples=-1 -", 2, "--min-samples"},
		{"analyze nowhere", 1, "sibyl: read nowhere: no such file or directory"},
		{"incidents accept", 2, "got 0 arguments, want: sibyl incidents accept ID"},
		{"incidents a b", 2, "got 2 arguments, want: sibyl incidents [ID]"},
		{"webhook dead 1 2", 2, "got 2 arguments, want: sibyl webhook dead [NUMBER]"},
		{"analyze --fail-on-problem -", 0, ""},
		{"replay", 2, "FILE is missing"},
		{"replay --to=nowhere -", 2, "--to"},
		{"replay --to=ftp://x:1 -", 2, "--to"},
		{"replay --speed=0 -", 2, "--speed"},
		{"replay --speed=NaN -", 2, "--speed"},
		{"replay nowhere.json", 1, "nowhere.json"},
		{"replay --to=http://127.0.0.1:1/%zz -", 2, "--to"},
		{"trace", 2, "FILE is missing"},
		{"trace -o svg -", 2, "waterfall, json"},
		{"trace --async=never -", 2, "clamp, ignore"},
		{"trace --tie=x -", 2, "earliest-start"},
		{"trace --touching=x -", 2, "inclusive"},
		{"trace --overlap-tolerance=1.5 -", 2, "from 0 to 1"},
		{"trace --workers=-5 -", 2, "from 0 to 1024"},
		{"trace --workers=1000000000 -", 2, "from 0 to 1024"},
		{"trace --max-spans=-1 -", 2, "--max-spans"},
		{"trace --memory=0 -", 2, "512MiB"},
		{"trace --memory=many -", 2, "512MiB"},
		{"trace --trace-id=xyz -", 2, "--trace-id"},
		{"trace nowhere.json", 1, "nowhere.json"},
		{"trace -", 0, ""},
		{"trace --trace-id=000000000000000000000000000000ff -", 1, "no trace"},
		{"trace --async=ignore --tie=latest-start --touching=strict --overlap-tolerance=0.1 --memory=1MiB -", 0, ""},
	} {
		r := sibyl(t, request(t, cart), strings.Fields(c.args)...)
		if r.code != c.code || !strings.Contains(r.err, c.err) || (c.err == "" && r.err != "") {
			t.Errorf("sibyl %s: exit code %d, %q; want %d, %q", c.args, r.code, r.err, c.code, c.err)
		}
	}
}

// A compressed file that ends early gives the result of everything before the end, followed by an exit code.
func TestCutFile(t *testing.T) {
	whole, err := os.ReadFile("../../testdata/shop.otlp.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x.otlp.jsonl.gz")
	if err := os.WriteFile(path, whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	_, address := serve(t)
	replay := "replay --speed 1e9 --to " + address
	for _, args := range []string{"analyze", "analyze -o json", "analyze -o html", replay, "trace"} {
		r := sibyl(t, "", append(strings.Fields(args), path)...)
		const want = "the file is truncated"
		if r.code != cli.ExitError || strings.Contains(r.out, want) != (args != "trace") ||
			!strings.Contains(r.err, want) || strings.Contains(r.out, "malformed") {
			t.Errorf("%s: exit code %d, %q, %q", args, r.code, r.out, r.err)
		}
	}
}

func TestTraceJSON(t *testing.T) {
	r := sibyl(t, request(t, cart, cart), "trace", "-o", "json", "--trace-id", "00000000000000000000000000000002", "-")
	const want = `{"trace_id":"00000000000000000000000000000002","flags":[],` +
		`"coverage":{"received":{"spans":2,"ns":140},"requests":{"spans":2,"ns":140},` +
		`"requests_of_their_own":{"spans":0,"ns":0},"left_out":{},"long":{"spans":0,"ns":0}},` +
		`"roots":[{"span_id":"000000000000000a","duration_ns":100,` +
		`"sections":[{"span_id":"000000000000000a","start_ns":0,"end_ns":10},` +
		`{"span_id":"000000000000000b","start_ns":10,"end_ns":50},` +
		`{"span_id":"000000000000000a","start_ns":50,"end_ns":100}],` +
		`"exclusive_ns":{"000000000000000a":60,"000000000000000b":40},"origin":"parentless"}]}` + "\n"
	if r.out != want || r.code != 0 {
		t.Errorf("exit code %d, got\n%swant\n%s", r.code, r.out, want)
	}
}

func TestBrokenRecords(t *testing.T) {
	file := filepath.Join(t.TempDir(), "traces.jsonl")
	lines := request(t, cart) + "\n{broken\n" + request(t, cart) + "\n"
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	r := sibyl(t, "", "trace", "-o", "json", file)
	if r.code != 0 || !strings.Contains(r.err, "traces.jsonl:2: malformed") || strings.Count(r.out, "\n") != 1 {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
	r = sibyl(t, "", "trace", "--strict", file)
	if r.code != 1 || !strings.Contains(r.err, "traces.jsonl:2: malformed") || r.out != "" {
		t.Errorf("with --strict: exit code %d\n%s%s", r.code, r.out, r.err)
	}
}

func TestManyBrokenRecordsAreSummedUp(t *testing.T) {
	r := sibyl(t, request(t, cart)+"\n"+strings.Repeat("{broken\n", 150), "trace", "-")
	if n := strings.Count(r.err, "\n"); n != cli.MostBroken+1 || !strings.Contains(r.err, "50 more broken records") {
		t.Errorf("%d lines, the last %q", n, r.err[max(0, len(r.err)-200):])
	}
}

func TestVersionJSON(t *testing.T) {
	var v version
	if err := json.Unmarshal([]byte(sibyl(t, "", "version", "-o", "json").out), &v); err != nil || v.Go == "" ||
		v.Platform == "" {
		t.Errorf("%+v, %v", v, err)
	}
}

// The critical paths of the same traces are equal in every format.
func TestFormats(t *testing.T) {
	small := filepath.Join("..", "..", "testdata", "small.")
	want := sibyl(t, "", "trace", "-o", "json", small+"otlp.jsonl")
	if strings.Count(want.out, "\n") != 12 {
		t.Fatalf("%d traces, want 12: %s", strings.Count(want.out, "\n"), want.err)
	}
	for _, file := range []string{"otlp.jsonl.gz", "otlp.pb", "otlp.pb.zst"} {
		if got := sibyl(t, "", "trace", "-o", "json", small+file); got != want {
			t.Errorf("%s: the paths differ from those of the JSON lines; exit code %d, %s", file, got.code, got.err)
		}
	}
	got := sibyl(t, "", "trace", "-o", "json", small+"jaeger.json.gz")
	if onPath(t, got.out) != onPath(t, want.out) { // Jaeger's times are in microseconds
		t.Errorf("Jaeger: spans on the paths:\n%s\nwant\n%s", onPath(t, got.out), onPath(t, want.out))
	}
}

// onPath returns the spans of every section of every path, without times.
func onPath(t *testing.T, lines string) string {
	t.Helper()
	var all strings.Builder
	for line := range strings.Lines(lines) {
		var doc struct {
			Roots []struct {
				Sections []struct {
					SpanID string `json:"span_id"`
				}
			}
		}
		if err := json.Unmarshal([]byte(line), &doc); err != nil {
			t.Fatal(err)
		}
		for _, r := range doc.Roots {
			for _, s := range r.Sections {
				all.WriteString(s.SpanID + " ")
			}
		}
		all.WriteByte('\n')
	}
	return all.String()
}

const shopTraces = "../../testdata/shop.otlp.jsonl.gz"

// The report finds the fault in the corpus; see testdata/README.md.
func TestAnalyzeFindsTheFault(t *testing.T) {
	r := sibyl(t, "", "analyze", "-o", "json", "--fail-on-problem", shopTraces)
	if r.code != 4 || r.err != "" {
		t.Fatalf("exit code %d, %s", r.code, r.err)
	}
	var doc struct {
		Traces, Spans, Complete int
		Problems                []struct {
			Edge         struct{ Service, Operation string }
			Explanations []struct{ Variable, Value string }
		}
	}
	if err := json.Unmarshal([]byte(r.out), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Traces != 1198 || doc.Spans != 14840 || doc.Complete != 1198 || len(doc.Problems) == 0 {
		t.Fatalf("%+v", doc)
	}
	p := doc.Problems[0]
	if p.Edge.Service != "search" || len(p.Explanations) == 0 || p.Explanations[0].Variable != "host.name" ||
		p.Explanations[0].Value != "search-d" {
		t.Errorf("the first problem is %+v, want search, slow where host.name = search-d", p)
	}
}

func TestAnalyzeFormats(t *testing.T) {
	for format, want := range map[string]string{
		"table": "host.name = search-d", "json": `"problems"`, "pprof": "\x1f\x8b", "folded": "payment UpdateToken;",
		"html": "<!DOCTYPE html>",
	} {
		if r := sibyl(t, "", "analyze", "-o", format, shopTraces); r.code != 0 || !strings.Contains(r.out, want) {
			t.Errorf("-o %s: exit code %d, %q, does not contain %q: %.300s", format, r.code, r.err, want, r.out)
		}
	}
}

// Input without a readable trace is an error that is reported once, because a script must not mistake it for a healthy
// system.
func TestNoTrace(t *testing.T) {
	if r := sibyl(t, "", "trace", "-"); r.code != 1 || r.err != "sibyl: the input holds no trace that could be read\n" {
		t.Errorf("trace: exit code %d, %q", r.code, r.err)
	}
	_, address := serve(t)
	if r := sibyl(t, "no trace", "replay", "--to", address, "-"); r.code != 1 || r.out != "" ||
		!strings.Contains(r.err, "no trace that could be read") {
		t.Errorf("replay: exit code %d, %q, output %q", r.code, r.err, r.out)
	}
	for _, format := range []string{"table", "json"} {
		r := sibyl(t, "no trace", "analyze", "-o", format, "-")
		if r.code != 1 || r.out != "" || !strings.Contains(r.err, "no trace that could be read") {
			t.Errorf("analyze -o %s: exit code %d, %q, output %q; want 1 and no output", format, r.code, r.err, r.out)
		}
	}
}

func TestAnalyzeOptions(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		err  string
	}{
		{[]string{"--min-samples=10000", "--fail-on-problem"}, 0, ""},
		{[]string{"--cov-threshold=9", "--fail-on-problem"}, 0, ""},
		{[]string{"--cov-threshold=NaN"}, 2, "--cov-threshold"},
		{[]string{"--top=-1"}, 2, "--top"},
		{[]string{"--overlap-tolerance=0.5"}, 1, "overlap tolerance"},
		{[]string{"--objective=payment UpdateToken=50ms"}, 0, ""},
		{[]string{"--objective=payment Nonsense=50ms"}, 1, "no request enters there"},
		{[]string{"--objective=payment UpdateToken"}, 2, "--objective"},
		{[]string{"--objective=payment UpdateToken=-5ms"}, 2, "--objective"},
		{[]string{"--group-by=host.name,tenant", "--attributes=http.route", "--split"}, 0, ""},
		{[]string{"--size=http.response.body.size", "--attributes=http.route", "--size-timeout=2s"}, 0, ""},
		{[]string{"--size-timeout=2s"}, 2, "--size-timeout"},
		{[]string{"--attributes=host.name,tenant", "--workers=1", "--top=0"}, 0, ""},
	} {
		r := sibyl(t, "", append([]string{"analyze", shopTraces}, c.args...)...)
		if r.code != c.code || !strings.Contains(r.err, c.err) {
			t.Errorf("%q: exit code %d, %q; want %d, %q", c.args, r.code, r.err, c.code, c.err)
		}
	}
}

// The configuration of the service applies unless a flag overrides it.
func TestAnalyzeConfig(t *testing.T) {
	file := func(text string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "sibyl.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	rules := file("rules:\n  - {entry: payment UpdateToken, name: token, objective: 1ms}\n")
	strict := file("thresholds: {cov: 9}\nmin-samples: 10000\n")
	for _, c := range []struct {
		args     []string
		code     int
		out, err string
	}{
		{[]string{"--config=" + rules}, 0, "token", ""},
		{[]string{"--config=" + strict, "--fail-on-problem"}, 0, "", ""},
		{
			[]string{"--config=" + strict, "--cov-threshold=0.2", "--min-samples=30", "--fail-on-problem"},
			int(exitProblems), "", "",
		},
		{[]string{"--config=" + rules, "--attributes=http.route"}, 0, "token", ""},
		{[]string{"--config=" + file("rulez: []\n")}, cli.ExitError, "", "sibyl.yaml:1"},
		{[]string{"--config=" + rules + "x"}, cli.ExitError, "", "cannot be read"},
	} {
		r := sibyl(t, "", append([]string{"analyze", shopTraces}, c.args...)...)
		if r.code != c.code || !strings.Contains(r.out, c.out) || !strings.Contains(r.err, c.err) {
			t.Errorf("%q: exit code %d, %q; want %d, %q, and %q in\n%s",
				c.args, r.code, r.err, c.code, c.err, c.out, r.out)
		}
	}
}

// The report doesn't depend on the order of the input or the number of workers.
func TestAnalyzeIgnoresOrder(t *testing.T) {
	zipped, err := os.Open(shopTraces)
	if err != nil {
		t.Fatal(err)
	}
	defer zipped.Close()
	plain, err := gzip.NewReader(zipped)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(plain)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	slices.Reverse(lines)
	backwards := sibyl(t, strings.Join(lines, "\n"), "analyze", "-o", "json", "--workers=3", "--memory=1MiB", "-")
	forwards := sibyl(t, "", "analyze", "-o", "json", "--workers=1", shopTraces)
	if backwards != forwards {
		t.Errorf("the reports differ (-forwards +backwards):\n%s",
			cmp.Diff(forwards, backwards, cmp.AllowUnexported(result{})))
	}
}
