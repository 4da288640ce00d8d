package client

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/internal/terminal"
)

// TestShowTrace: a trace shows the spans of its critical path, failed ones and unusually long ones, with control
// characters escaped, and survives spans that are their own ancestors.
func TestShowTrace(t *testing.T) {
	trace := &contract.Trace{ID: "abc", Start: time.Unix(0, 0), DurationNs: 100e6, Spans: []contract.Span{
		{ID: "1", Service: "shop", Name: "GET /cart", Kind: "server", DurationNs: 100e6, ExclusiveNs: 10e6},
		{ID: "2", Parent: "1", Service: "shop", Name: "quick", Kind: "internal", DurationNs: 1e3},
		{
			ID: "3", Parent: "1", Service: "cart", Name: "GET\x1b", Kind: "server", DurationNs: 90e6, ExclusiveNs: 90e6, Percentile: new(99.0),
			Attributes: []contract.Attribute{{Key: "k", Value: "v"}},
		},
		{ID: "4", Parent: "3", Service: "cart", Name: "SELECT", Kind: "client", DurationNs: 1e3, Error: true},
		{ID: "5", Parent: "6", Service: "loop", Name: "a", Kind: "client", DurationNs: 1e3, Error: true},
		{ID: "6", Parent: "5", Service: "loop", Name: "b", Kind: "client", DurationNs: 1e3},
	}}
	var b strings.Builder
	if err := ShowTrace(&b, trace, terminal.Style{}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	want := `trace abc  1970-01-01T00:00:00Z, 100 ms, 6 spans
shop GET /cart (server)  100 ms, 10 ms of its own on the critical path (10 % of the request)
  cart GET· (server)  90 ms, 90 ms of its own on the critical path (90 % of the request), longer than 99 % of such spans  [k=v]
    cart SELECT (client)  1 µs, FAILED
  loop a (client)  1 µs, FAILED
… and 2 more spans off the critical path, as long as usual
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Error(d)
	}
}
