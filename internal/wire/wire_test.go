package wire

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/trace"
)

// text uses whole microseconds, which is all that Jaeger has.
const text = `a shop "GET /cart" server 1000..100000 host=one
  b shop Cart.Get client 10000..50000 host=one user=me size=7.5
    c cart Get server 12000..48000 host=two error
      d cart parse internal 13000..14000 host=two tp=cart.parse
`

// TestReadBack reads in every format what was written.
func TestReadBack(t *testing.T) {
	var table trace.Table
	written, err := trace.ParseText(text, &table)
	if err != nil {
		t.Fatal(err)
	}
	want := trace.Format(written, &table)
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
	in, err := file.Read(t.Context(), []string{file.Stdin}, file.Options{Keys: ingest.AllKeys(), Strict: true, Stdin: bytes.NewReader(data)})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var tr trace.Trace
	if err := in.Next(&tr); err != nil {
		t.Fatal(err)
	}
	if err := in.Next(&trace.Trace{}); !errors.Is(err, io.EOF) {
		t.Fatalf("a second trace, %v", err)
	}
	said := []string{"host.name", "service.name", "span.kind", "error", trace.KeyTracepoint} // by the spans themselves
	tr.Attrs = slices.DeleteFunc(tr.Attrs, func(a trace.Attr) bool { return slices.Contains(said, in.Table.Text(a.Key)) })
	return trace.Format(&tr, in.Table)
}
