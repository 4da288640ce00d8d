package tracegen

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetext"
	"github.com/sibyl-trace/sibyl/trace"
)

// text uses whole microseconds, the resolution of Jaeger's format.
const text = `a shop "GET /cart" server 1000..100000 host=one
  b shop Cart.Get client 10000..50000 host=one user=me size=7.5
    c cart Get server 12000..48000 host=two error
      d cart parse internal 13000..14000 host=two tp=cart.parse
`

// TestReadBack checks that encoded traces decode to the same spans in every format.
func TestReadBack(t *testing.T) {
	var table trace.Table
	written, err := tracetext.Parse(text, &table)
	if err != nil {
		t.Fatal(err)
	}
	want := tracetext.Format(written, &table)
	for name, write := range map[string]func([]*trace.Trace, *trace.Table) ([]byte, error){
		"protobuf": Protobuf, "JSON": JSON, "Jaeger": Jaeger,
	} {
		data, err := write([]*trace.Trace{written}, &table)
		if err != nil {
			t.Fatal(name, err)
		}
		if diff := cmp.Diff(want, read(t, data)); diff != "" {
			t.Errorf("%s (-written +read):\n%s", name, diff)
		}
	}
}

// read returns the only trace of data as text.
func read(t *testing.T, data []byte) string {
	t.Helper()
	in, err := file.Read(t.Context(), []string{file.Stdin},
		file.Options{Keys: ingest.AllKeys(), Strict: true, Stdin: bytes.NewReader(data)})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	// These attributes are also fields of the span.
	fields := []string{"host.name", "service.name", "span.kind", "error", trace.KeyTracepoint}
	var texts []string
	for tr, err := range in.All() {
		if err != nil {
			t.Fatal(err)
		}
		tr.Attrs = slices.DeleteFunc(tr.Attrs,
			func(a trace.Attr) bool { return slices.Contains(fields, in.Table.Text(a.Key)) })
		texts = append(texts, tracetext.Format(tr, in.Table))
	}
	if len(texts) != 1 {
		t.Fatalf("%d traces, want one", len(texts))
	}
	return texts[0]
}
