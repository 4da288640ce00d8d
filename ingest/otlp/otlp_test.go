package otlp_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/trace"
)

// sameBatch compares batches except for the texts of rejections and the hashes of addresses, which have their own
// test. NaN equals NaN.
var sameBatch = cmp.Options{
	cmpopts.EquateEmpty(),
	cmpopts.EquateNaNs(),
	cmpopts.IgnoreFields(ingest.Rejection{}, "Detail"),
	cmpopts.IgnoreFields(trace.Span{}, "Address"),
	cmpopts.SortSlices(func(a, b ingest.Rejection) bool { return a.Reason < b.Reason }),
}

// Attributes of any length are read, with the key before the value and after it.
func TestLengthsOfAttributes(t *testing.T) {
	const overhead = 6 // tags and lengths of a short pair
	for _, key := range []int{1, 20, 100, 120, 126, 127, 128, 1000} {
		for _, value := range []int{0, 1, 127 - overhead - key, 128 - overhead - key, 120, 125, 126, 127, 128, 1000} {
			if value < 0 {
				continue
			}
			traces := oneBad(func(_ ptrace.ResourceSpans, s ptrace.Span) {
				s.Attributes().PutStr(strings.Repeat("k", key), strings.Repeat("v", value))
			})
			backwards, _ := (&ptrace.ProtoMarshaler{}).MarshalTraces(traces)
			for order, wire := range map[string][]byte{"value first": backwards, "key first": ascending(backwards)} {
				var want, got ingest.Batch
				if err := errors.Join(
					newReference(&trace.Table{}, true).Protobuf(wire, &want),
					otlp.NewDecoder(&trace.Table{}, ingest.AllKeys()).Protobuf(wire, &got),
				); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got, sameBatch); diff != "" || len(got.Attrs) != 1 {
					t.Errorf("key of %d bytes, value of %d, %s (-pdata +decoder):\n%s", key, value, order, diff)
				}
			}
		}
	}
}

// The decoder gives the same result as the collector's decoder, in both encodings.
func TestEqualsReference(t *testing.T) {
	keySets := map[string]struct {
		names []string
		all   bool
	}{
		"none": {},
		"some": {names: []string{"http.route", "http.response.status_code", "otel.scope.name", "service.version"}},
		"all":  {all: true},
	}
	for name, k := range keySets {
		t.Run(name, func(t *testing.T) {
			traces := request(7, 200, 16)
			protobuf, _ := (&ptrace.ProtoMarshaler{}).MarshalTraces(traces)
			text, _ := (&ptrace.JSONMarshaler{}).MarshalTraces(traces)
			keys := wanted(t, k.names...)
			if k.all {
				keys = ingest.AllKeys()
			}
			var want, got, gotJSON ingest.Batch
			table := &trace.Table{}
			if err := newReference(table, k.all, k.names...).Protobuf(protobuf, &want); err != nil {
				t.Fatal(err)
			}
			d := otlp.NewDecoder(&trace.Table{}, keys)
			if err := d.Protobuf(protobuf, &got); err != nil {
				t.Fatal(err)
			}
			if err := d.JSON(text, &gotJSON); err != nil {
				t.Fatal(err)
			}
			if len(want.Versions) < 2 {
				t.Errorf("%d versions", len(want.Versions))
			}
			if diff := cmp.Diff(want, got, sameBatch); diff != "" {
				t.Errorf("protobuf (-pdata +decoder):\n%s", diff)
			}
			if diff := cmp.Diff(want, gotJSON, sameBatch); diff != "" {
				t.Errorf("JSON (-pdata +decoder):\n%s", diff)
			}
		})
	}
}
