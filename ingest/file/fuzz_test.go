package file_test

import (
	"bytes"
	"testing"

	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/trace"
)

// Reading ends on any input, and every trace has spans.
func FuzzRead(f *testing.F) {
	for _, data := range forms(requests(2)) {
		f.Add(data)
		f.Add(gzipped(data))
		f.Add(zstandard(data))
	}
	f.Add([]byte(`{"data":[{"spans":[{"traceID":"1","spanID":"2"}]}],"result":{"result":{}}}`))
	f.Add([]byte("{\n\"a\\\"\":\"\\\n[{]}"))
	f.Add([]byte(`[[{"traceId":"1","id":"2","timestamp":3}],[{"spanId":1}],{"trace":{"trace":{}}}]`))
	f.Add(append([]byte{0, 0, 0, 9}, "\x28\xb5\x2f\xfdxxxxx"...))
	f.Fuzz(func(t *testing.T, data []byte) {
		in, err := file.Read(t.Context(), []string{file.Stdin}, file.Options{Stdin: bytes.NewReader(data), Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		spans := int64(0)
		var last trace.ID
		for tr, err := range in.All() {
			if err != nil || len(tr.Spans) == 0 || tr.ID.Compare(last) <= 0 {
				t.Fatalf("trace %v after %s, error %v", tr, last, err)
			}
			last = tr.ID
			spans += int64(len(tr.Spans))
		}
		if spans != in.Summary.Spans {
			t.Fatalf("%d spans in traces, %d counted", spans, in.Summary.Spans)
		}
	})
}
