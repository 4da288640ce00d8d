package file_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetext"
	"github.com/sibyl-trace/sibyl/trace"
)

// requests returns n requests with two services each. Traces extend over several requests.
func requests(n int) []ptrace.Traces {
	var all []ptrace.Traces
	for i := range n {
		traces := ptrace.NewTraces()
		for service := range 2 {
			rs := traces.ResourceSpans().AppendEmpty()
			rs.Resource().Attributes().PutStr("service.name", fmt.Sprintf("service-%d", service))
			spans := rs.ScopeSpans().AppendEmpty().Spans()
			for k := range 3 {
				s := spans.AppendEmpty()
				s.SetTraceID(pcommon.TraceID{0: byte(k + 1), 15: byte(i % 3)})
				s.SetSpanID(pcommon.SpanID{0: byte(service), 1: byte(k), 7: byte(i + 1)})
				s.SetName("do \"it\" {[")
				s.SetStartTimestamp(pcommon.Timestamp(1000 + i))
				s.SetEndTimestamp(pcommon.Timestamp(2000 + i))
				s.Attributes().PutStr("text", "brackets }]\\ and \"quotes\"")
			}
		}
		all = append(all, traces)
	}
	return all
}

func marshalJSON(traces ptrace.Traces) []byte {
	data, _ := (&ptrace.JSONMarshaler{}).MarshalTraces(traces)
	return data
}

func marshalProtobuf(traces ptrace.Traces) []byte {
	data, _ := (&ptrace.ProtoMarshaler{}).MarshalTraces(traces)
	return data
}

// forms returns the requests in all, by format.
func forms(all []ptrace.Traces) map[string][]byte {
	merged := ptrace.NewTraces()
	var lines, concatenated, pretty, delimited, prefixed, prefixedText, framed, framedText bytes.Buffer
	z, _ := zstd.NewWriter(nil)
	for _, traces := range all {
		text, wire := marshalJSON(traces), marshalProtobuf(traces)
		lines.Write(text)
		lines.WriteByte('\n')
		concatenated.Write(text)
		_ = json.Indent(&pretty, text, "", "  ")
		pretty.WriteByte('\n')
		delimited.Write(binary.AppendUvarint(nil, uint64(len(wire))))
		delimited.Write(wire)
		prefixed.Write(binary.BigEndian.AppendUint32(nil, uint32(len(wire))))
		prefixed.Write(wire)
		prefixedText.Write(binary.BigEndian.AppendUint32(nil, uint32(len(text))))
		prefixedText.Write(text)
		for into, data := range map[*bytes.Buffer][]byte{&framed: wire, &framedText: text} {
			packed := z.EncodeAll(data, nil)
			into.Write(binary.BigEndian.AppendUint32(nil, uint32(len(packed))))
			into.Write(packed)
		}
		for _, rs := range traces.ResourceSpans().All() {
			rs.CopyTo(merged.ResourceSpans().AppendEmpty())
		}
	}
	one := marshalJSON(merged)
	return map[string][]byte{
		"lines":              lines.Bytes(),
		"lines-without-end":  bytes.TrimSpace(lines.Bytes()),
		"lines-crlf":         bytes.ReplaceAll(lines.Bytes(), []byte("\n"), []byte("\r\n\r\n")),
		"lines-bom":          append([]byte("\xef\xbb\xbf"), lines.Bytes()...),
		"one-document":       one,
		"envelope":           []byte(`{"result":` + string(one) + `}`),
		"concatenated":       concatenated.Bytes(),
		"pretty":             pretty.Bytes(),
		"pretty-after-space": append([]byte("\n\n "), pretty.Bytes()...),
		"list":               []byte("[" + strings.ReplaceAll(strings.TrimSpace(lines.String()), "\n", ",") + "]"),
		"protobuf":           marshalProtobuf(merged),
		"delimited":          delimited.Bytes(),
		"prefixed":           prefixed.Bytes(),
		"prefixed-zstd":      framed.Bytes(),
		"prefixed-json":      prefixedText.Bytes(),
		"prefixed-json-zstd": framedText.Bytes(),
		"library-lines":      library(lines.Bytes()),
		"library-pretty":     library(pretty.Bytes()),
		"tempo":              bytes.ReplaceAll(library(one), []byte("resourceSpans"), []byte("batches")),
		"tempo-api":          []byte(`{"trace":` + string(one) + `,"metrics":{"x":[1]}}`),
	}
}

// library returns data, a document, with the names of OTLP before 0.19.
func library(data []byte) []byte {
	data = bytes.ReplaceAll(data, []byte(`"scopeSpans"`), []byte(`"instrumentationLibrarySpans"`))
	return bytes.ReplaceAll(data, []byte(`"scope"`), []byte(`"instrumentationLibrary"`))
}

func gzipped(data []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(data)
	_ = z.Close()
	return b.Bytes()
}

func zstandard(data []byte) []byte {
	z, _ := zstd.NewWriter(nil)
	return z.EncodeAll(data, nil)
}

// read returns all traces of paths as text, and the summary.
func read(t testing.TB, options file.Options, paths ...string) (string, file.Summary) {
	t.Helper()
	in, err := file.Read(t.Context(), paths, options)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var b strings.Builder
	for tr, err := range in.All() {
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n%s", tr.ID, tracetext.Format(tr, in.Table))
	}
	return b.String(), in.Summary
}

func write(t testing.TB, dir, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Equal spans give equal traces in all formats, compressed or not, from a file or standard input, with one worker or
// several, in memory or with spilling to disk.
func TestFormsAreEqual(t *testing.T) {
	all := requests(20)
	want := ""
	for name, data := range forms(all) {
		for compression, packed := range map[string][]byte{"": data, ".gz": gzipped(data), ".zst": zstandard(data)} {
			t.Run(name+compression, func(t *testing.T) {
				path := write(t, t.TempDir(), "file", packed)
				for _, options := range []file.Options{{Workers: 1}, {Workers: 3, Memory: 1, TempDir: t.TempDir()}} {
					options.Report = func(b file.InputError) { t.Error(b) }
					got, summary := read(t, options, path)
					if want == "" {
						want = got
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Fatal(diff)
					}
					if summary.Spans != 120 || summary.Files != 1 {
						t.Errorf("summary %+v", summary)
					}
				}
				got, _ := read(t, file.Options{Stdin: bytes.NewReader(packed)}, file.Stdin)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("standard input:\n%s", diff)
				}
			})
		}
	}
}

// Spans of Zipkin are read from a single list, a list per line, lists of traces, and one span per line, and can be
// mixed with OTLP.
func TestZipkin(t *testing.T) {
	span := func(trace, id, service string) string {
		return fmt.Sprintf(`{"traceId":%q,"id":%q,"name":"get","kind":"SERVER","timestamp":5,"duration":"3",`+
			`"localEndpoint":{"serviceName":%q}}`, trace, id, service)
	}
	a, b, c := span("a", "1", "web"), span("a", "2", "api"), span("463ac35c9f6413ad48485a3953bb6124", "3", "web")
	want := ""
	for name, data := range map[string]string{
		"list":           "[" + a + "," + b + "," + c + "]",
		"pretty":         "[\n  " + a + ",\n" + b + ",\n" + c + "\n]\n",
		"lists":          "[" + a + "," + b + "]\n[" + c + "]\n",
		"traces":         "[[" + a + "," + b + "],[" + c + "]]",
		"pretty traces":  "[\n[\n" + a + ",\n" + b + "],\n[" + c + "]\n]",
		"traces by line": "[[" + a + "," + b + "]]\n[[" + c + "]]\n",
		"spans by line":  a + "\n" + b + "\n" + c + "\n",
		"with others":    "[" + a + "," + b + "]\n{\"resourceLogs\":[]}\n[" + c + "]\n[]\n",
	} {
		path := write(t, t.TempDir(), "f.json", []byte(data))
		got, summary := read(t, file.Options{Report: func(b file.InputError) { t.Errorf("%s: %v", name, b) }}, path)
		if want == "" {
			want = got
		}
		if summary.Spans != 3 || got != want || strings.Count(got, "web") != 2 {
			t.Errorf("%s: %d spans:\n%s", name, summary.Spans, got)
		}
		n := 0
		if _, err := file.ReadOTLP(t.Context(), []string{path},
			file.Options{Strict: true}, func(traces ptrace.Traces) error {
				n += traces.SpanCount()
				return nil
			}); err != nil || n != 3 {
			t.Errorf("%s: %d spans as OTLP, %v", name, n, err)
		}
	}
	mixed := "[" + a + "]\n" + string(marshalJSON(requests(1)[0])) + "\n"
	if _, summary := read(t, file.Options{}, write(t, t.TempDir(), "f", []byte(mixed))); summary.Spans != 7 {
		t.Errorf("%d spans of both formats, want 7", summary.Spans)
	}
}

// A broken record is reported with its position and reason and skipped; intact records are used.
func TestBroken(t *testing.T) {
	line := func(i int) string { return string(marshalJSON(requests(i)[i-1])) }
	wire := func(i int) []byte { return marshalProtobuf(requests(i)[i-1]) }
	cut := func(b []byte) []byte { return b[:len(b)-7] }
	tests := []struct {
		name   string
		data   []byte
		spans  int64
		broken []string
	}{
		{
			"lines", []byte(line(1) + "\n{\"resourceSpans\":[{]}\n" + line(2) + "\n"), 12,
			[]string{"f:2: malformed at byte 2: "},
		},
		{"first-line", []byte("{\"resourceSpans\":[{\n" + line(2) + "\n"), 6, []string{"f:1: malformed at byte 2: "}},
		{
			"garbage-line", []byte("garbage\n" + line(2) + "\n"), 6,
			[]string{"f:1: malformed: not a JSON document with traces"},
		},
		{"torn-line", []byte(line(1) + "\n" + line(2)[:400]), 6, []string{"f:2: malformed at byte "}},
		{
			"zero-id", []byte(strings.Replace(line(1), "01"+strings.Repeat("0", 30), strings.Repeat("0", 32), 1)), 5,
			[]string{"f:byte 18: 1 span left out: trace id is all zero"},
		},
		{
			"element", []byte(strings.Replace(line(1), `"name":`, `"name":x`, 1)), 3,
			[]string{"f:byte 18: malformed at byte "},
		},
		{
			"no-value", []byte(strings.Replace(line(1), `UnixNano":`, `UnixNano":NaN,"x":`, 1) + "\n" + line(2)), 6,
			[]string{"the value is not valid in JSON"},
		},
		{
			"torn-document", []byte(line(1)[:len(line(1))-30]), 3,
			[]string{"f:byte 0: malformed: the data ends within a record"},
		},
		{
			"line-then-garbage", []byte(line(1) + "}}\nx\n" + line(2)), 6,
			[]string{"f:1: malformed at byte ", "f:2: malformed: not a JSON document with traces"},
		},
		{"document-then-garbage", []byte("{\n" + line(1)[1:] + "}}\nx\n" + line(2)), 12, []string{"f:byte "}},
		{"torn-protobuf", cut(wire(1)), 3, []string{"malformed: the data ends within a record"}},
		{"protobuf-then-garbage", append(wire(1), "xyz"...), 6, []string{"malformed: not a field of an OTLP request"}},
		{
			"nothing-known", []byte("what is this\n"), 0,
			[]string{"f:byte 0: malformed: not OTLP (JSON, JSON lines, protobuf), Jaeger JSON or Zipkin JSON"},
		},
		{
			"bare-spans", []byte(strings.Repeat(`{"traceID":"1","spanID":"2","operationName":"a"}`+"\n", 2)), 0,
			[]string{"f:1: malformed at byte ", "f:2: malformed at byte 16: a span outside a trace"},
		},
		{
			"unknown-fields",
			[]byte(`{"a":1,"b":[]}` + "\n" + line(1) + "\n" + `{"resourceSpans":[{"spans":[{}]}]}`), 6,
			[]string{
				`f:1: malformed: no traces in a JSON document that starts with the field "a"; want OTLP`,
				`f:3: malformed at byte 20: unknown field "spans", want scopeSpans`,
			},
		},
		{
			"zipkin-id", []byte(`[{"traceId":"1","id":"x"},{"traceId":"1","id":"2","timestamp":3}]`), 1,
			[]string{`f:byte 1: 1 span left out: id "x": want at most 16 hexadecimal digits`},
		},
		{
			"zipkin-v1", []byte(`[{"traceId":"1","id":"2","binaryAnnotations":[]}]`), 0,
			[]string{"version 1 of Zipkin's JSON: use version 2"},
		},
		{
			"otlp-span", []byte(`{"traceId":"1","spanId":"2"}`), 0,
			[]string{"a span with a spanId outside of resourceSpans"},
		},
		{
			"twice-gzip", gzipped(gzipped([]byte(line(1)))), 0,
			[]string{"f:byte 0 of the decompressed data: malformed: compressed twice: decompress it once"},
		},
		{
			"gzipped-lines", gzipped([]byte(line(1) + "\n{\"resourceSpans\":[{]}\n")), 6,
			[]string{"f:2: malformed at byte 2: "},
		},
		{"utf-16", []byte("\xff\xfe{\x00}\x00"), 0, []string{"f:byte 0: malformed: UTF-16 text: convert it to UTF-8"}},
		{"zip", []byte("PK\x03\x04\x14\x00"), 0, []string{"f:byte 0: malformed: a zip archive: unpack it"}},
		{
			"tar", append(make([]byte, 257), "ustar\x0000"...), 0,
			[]string{"f:byte 0: malformed: a tar archive: unpack it"},
		},
		{
			"torn-gzip", cut(gzipped([]byte(line(1) + "\n" + line(2) + "\n"))), 12,
			[]string{" of the decompressed data: the file is truncated"},
		},
		{
			"gzip-then-garbage", append(gzipped([]byte(line(1)+"\n"+line(2))), "xyz"...), 12,
			[]string{"malformed: ignored trailing data after the gzip data"},
		},
		{
			"gzip-then-a-byte", append(gzipped([]byte(line(1))), 0x1f), 6,
			[]string{"malformed: ignored trailing data after the gzip data"},
		},
		{"two-gzips", append(gzipped([]byte(line(1)+"\n")), gzipped([]byte(line(2)))...), 12, nil},
		{
			"two-gzips-torn", cut(append(gzipped([]byte(line(1)+"\n")), gzipped([]byte(line(2)+"\n"))...)), 12,
			[]string{"the file is truncated"},
		},
		{"no-gzip", []byte{0x1f, 0x8b, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 0, []string{"malformed: decompress: "}},
		{"no-zstd", []byte("\x28\xb5\x2f\xfdxyzxyz"), 0, []string{"malformed: decompress: "}},
		{"empty", nil, 0, nil},
		{"empty-request", []byte("{}\n"), 0, nil},
		{"logs", []byte("{\"resourceLogs\":[]}\n{\"resourceLogs\":[]}\n"), 0, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			write(t, ".", "f", test.data)
			var broken []string
			_, summary := read(t, file.Options{Report: func(b file.InputError) { broken = append(broken, b.Error()) }},
				"f")
			if summary.Spans != test.spans {
				t.Errorf("%d spans, want %d", summary.Spans, test.spans)
			}
			if len(broken) != len(test.broken) {
				t.Fatalf("reported %q, want %q", broken, test.broken)
			}
			for i := range broken {
				if !strings.HasPrefix(broken[i], test.broken[i]) && !strings.Contains(broken[i], test.broken[i]) {
					t.Errorf("reported %q, want %q", broken[i], test.broken[i])
				}
			}
			var strict file.InputError
			in, err := file.Read(t.Context(), []string{"f"}, file.Options{Strict: true})
			if err == nil {
				_ = in.Close()
			}
			if errors.As(err, &strict) != (len(broken) > 0) || len(broken) > 0 && strict.Error() != broken[0] {
				t.Errorf("strict: error %v, want %q", err, broken)
			}
		})
	}
}

// Offsets and the size of the input count bytes of the decompressed file, however large it is.
func TestOffsets(t *testing.T) {
	good, bad := string(marshalJSON(requests(1)[0])), "{\"resourceSpans\":[{]}\n"
	lines := strings.Repeat(good+strings.Repeat(" ", 1<<20)+"\n", 17) // more than the 16 MiB used to recognise formats
	text := []byte(lines + bad + good)
	for name, data := range map[string][]byte{"plain": text, "gzip": gzipped(text)} {
		var broken []int64
		_, summary := read(t, file.Options{Report: func(b file.InputError) { broken = append(broken, b.Offset) }},
			write(t, t.TempDir(), "f", data))
		if diff := cmp.Diff([]int64{int64(len(lines))}, broken); diff != "" {
			t.Errorf("%s: offsets of broken records (-want +got):\n%s", name, diff)
		}
		if summary.Bytes != int64(len(text)) {
			t.Errorf("%s: %d bytes read, want %d", name, summary.Bytes, len(text))
		}
	}
}

// Hidden files and files of other kinds in directories are skipped.
func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	all := requests(3)
	if err := os.MkdirAll(filepath.Join(dir, "b", ".hidden"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "a.jsonl", marshalJSON(all[0]))
	write(t, dir, "b/unnamed", marshalProtobuf(all[1]))
	write(t, dir, "b/c.json.gz", gzipped(marshalJSON(all[2])))
	write(t, dir, "b/.hidden/x.json", []byte("{"))
	write(t, dir, ".hidden.json", []byte("{"))
	write(t, dir, "README.md", []byte("# Traces\n"))
	write(t, dir, "cases.jsonl", []byte("{\"name\":\"x\"}\n{\"name\":\"y\"}\n"))
	_, summary := read(t, file.Options{Report: func(b file.InputError) { t.Error(b) }}, dir)
	if summary.Files != 3 || summary.Skipped != 2 || summary.Spans != 18 {
		t.Errorf("summary %+v", summary)
	}
}

// A record beyond the limit is rejected as too large and doesn't affect others.
func TestTooLarge(t *testing.T) {
	long := `{"resourceSpans":[{"x":"` + strings.Repeat("x", 1<<20) + `"}]}`
	short := string(marshalJSON(requests(1)[0]))
	for name, data := range map[string]string{
		"lines":    short + "\n" + long + "\n" + short,
		"document": strings.TrimSuffix(long, "]}") + "," + strings.TrimPrefix(short, `{"resourceSpans":[`) + short,
	} {
		t.Run(name, func(t *testing.T) {
			var broken []trace.Reason
			report := func(b file.InputError) { broken = append(broken, b.Reason) }
			path := write(t, t.TempDir(), "f", []byte(data))
			_, summary := read(t, file.Options{MaxRecord: 1, Report: report}, path)
			if diff := cmp.Diff([]trace.Reason{trace.TooLarge}, broken); diff != "" || summary.Spans != 12 {
				t.Errorf("%+v\n%s", summary, diff)
			}
		})
	}
}

// Records far below the limit are read, wherever they lie in a window that has grown to the limit.
func TestRecordsAtTheEndOfTheWindow(t *testing.T) {
	const lines = 1000 // of 1.8 KB: several windows
	line := string(marshalJSON(requests(1)[0]))
	_, summary := read(t, file.Options{MaxRecord: 1, Report: func(b file.InputError) { t.Error(b) }},
		write(t, t.TempDir(), "f", []byte(strings.Repeat(line+"\n", lines))))
	if summary.Spans != 6*lines {
		t.Errorf("%d spans, want %d", summary.Spans, 6*lines)
	}
}

// I/O errors and cancellation stop reading.
func TestErrors(t *testing.T) {
	if _, err := file.Read(t.Context(), []string{"missing"}, file.Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := file.Read(t.Context(), []string{t.TempDir()}, file.Options{}); err == nil {
		t.Error("empty directory: no error")
	}
	path := write(t, t.TempDir(), "f", marshalJSON(requests(1)[0]))
	full := file.Options{Memory: 1, TempDir: "/missing/dir"}
	if _, err := file.Read(t.Context(), []string{path}, full); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no room on disk: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	r, w := io.Pipe()
	defer w.Close()
	_, err := file.Read(ctx, []string{file.Stdin}, file.Options{Stdin: r})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("cancelled: %v", err)
	}
}

// Reading a pipe without a writer, or standard input without data, ends with its context.
func TestWaitingEnds(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if out, err := exec.Command("mkfifo", pipe).CombinedOutput(); err != nil {
		t.Skipf("no named pipes here: %v, %s", err, out)
	}
	writer, err := os.OpenFile(pipe, os.O_RDWR, 0) // opening it for reading doesn't block, reading does
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	unopened := filepath.Join(t.TempDir(), "unopened")
	if err := exec.Command("mkfifo", unopened).Run(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, unopened} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := file.Read(ctx, []string{path}, file.Options{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, want deadline exceeded", filepath.Base(path), err)
		}
	}
	late, err := os.OpenFile(unopened, os.O_RDWR, 0) // releases the goroutine that waits to open it
	if err != nil {
		t.Fatal(err)
	}
	_ = late.Close()
}

// A directory may be given by a symbolic link.
func TestLinkToDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("dir", 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, "dir", "f.json", marshalJSON(requests(1)[0]))
	if err := os.Symlink("dir", "link"); err != nil {
		t.Skipf("no links here: %v", err)
	}
	if _, summary := read(t, file.Options{Workers: 1 << 30}, "link"); summary.Spans != 6 {
		t.Errorf("%+v, want 6 spans", summary)
	}
}

// Requested attributes have names, whichever worker decoded them.
func TestKeys(t *testing.T) {
	keys, err := ingest.NewKeys("text")
	if err != nil {
		t.Fatal(err)
	}
	got, _ := read(t, file.Options{Keys: keys}, write(t, t.TempDir(), "f", marshalJSON(requests(1)[0])))
	if n := strings.Count(got, `text="brackets }]\ and 'quotes'"`); n != 6 {
		t.Errorf("%d attributes, want 6, in\n%s", n, got)
	}
}

func TestProgress(t *testing.T) {
	path := write(t, t.TempDir(), "f", bytes.Repeat(append(marshalJSON(requests(1)[0]), '\n'), 2000))
	var last file.Progress
	calls := 0
	read(t, file.Options{Progress: func(p file.Progress) {
		if p.Read < last.Read || p.Total != last.Total && calls > 0 || p.Path != path {
			t.Errorf("%+v after %+v", p, last)
		}
		last = p
		calls++
	}}, path)
	if calls < 2 || last.Read != last.Total || last.Total == 0 {
		t.Errorf("%d calls, the last with %+v", calls, last)
	}
}
