package otlp_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/trace"
)

// sameBatch compares batches except the texts of rejections. NaN equals NaN.
var sameBatch = cmp.Options{
	cmpopts.EquateEmpty(),
	cmpopts.EquateNaNs(),
	cmpopts.IgnoreFields(ingest.Rejection{}, "Detail"),
	cmpopts.SortSlices(func(a, b ingest.Rejection) bool { return a.Reason < b.Reason }),
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
