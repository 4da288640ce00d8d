package requests

import (
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracegen"
	"github.com/sibyl-trace/sibyl/trace"
)

// keepWhole returns requests of one type. A third of them are on the first side and have the attribute customer=whale.
// The stored requests have this attribute, but their observations don't.
func keepWhole(t *testing.T) (requests sides, whole map[trace.ID][]byte) {
	t.Helper()
	app := sim.New(sim.Config{Tracepoints: 100, Seed: 3, Fault: sim.ThirdParty})
	whole = make(map[trace.ID][]byte)
	table, extractor := app.Table(), critpath.NewExtractor(critpath.DefaultOptions())
	const begin = trace.Nanos(1_700_000_000_000_000_000)
	var observer observation.Observer
	var entry trace.Op
	n := 0
	for x := range app.Requests(begin, begin.Add(time.Minute), &sim.Plan{}) {
		if entry == 0 {
			entry = x.Spans[0].Op
		}
		if x.Spans[0].Op != entry {
			continue
		}
		o := new(observation.Observation)
		observer.Observe(extractor.Extract(x), 0, o)
		n++
		side, customer := first, "whale"
		if n%3 > 0 {
			side, customer = second, "usual"
		}
		requests[side] = append(requests[side], o)
		x.Attrs = append(x.Attrs, trace.Attr{Key: table.Symbol("customer"), Text: table.Symbol(customer)})
		request, err := tracegen.Protobuf([]*trace.Trace{x}, table)
		if err != nil {
			t.Fatal(err)
		}
		whole[x.ID] = request
	}
	return requests, whole
}

// An attribute that isn't listed in the setting keys is compared among the requests that are kept with it.
func TestUnlistedAttributes(t *testing.T) {
	requests, whole := keepWhole(t)
	a := New(nil, nil, Options{
		Whole:   func(id trace.ID) ([]byte, error) { return whole[id], nil },
		Failing: ingest.AllFailureRules,
	})
	var c contract.AttributeComparison
	if err := a.addUnlisted(&c, requests, critpath.DefaultOptions()); err != nil {
		t.Fatal(err)
	}
	if want := min(wholeOfSide, len(requests[first])); c.WholeA != want ||
		c.WholeB != min(wholeOfSide, len(requests[second])) || want < 10 {
		t.Errorf("compared %d and %d of %d and %d requests",
			c.WholeA, c.WholeB, len(requests[first]), len(requests[second]))
	}
	if len(c.Items) == 0 || c.Items[0].Key != "customer" || c.Items[0].PValue > 0.001 || c.Items[0].Service == "" {
		t.Fatalf("found %+v, want the customer first", c.Items)
	}
	if x := c.Items[0]; x.Value == "whale" && (x.AShare != 1 || x.BShare != 0) {
		t.Errorf("%v of the first and %v of the second side have %s", x.AShare, x.BShare, x.Value)
	}

	known := contract.AttributeComparison{
		Items: []contract.AttributeDifference{{Key: "customer", Value: "usual", PValue: 0.5}},
	}
	if err := a.addUnlisted(&known, requests, critpath.DefaultOptions()); err != nil {
		t.Fatal(err)
	}
	for _, x := range known.Items {
		if x.Key == "customer" && x.PValue != 0.5 {
			t.Errorf("a listed attribute is compared again: %+v", x)
		}
	}

	clear(whole)
	var none contract.AttributeComparison
	if err := a.addUnlisted(&none, requests, critpath.DefaultOptions()); err != nil ||
		none.WholeA+none.WholeB+len(none.Items) > 0 {
		t.Errorf("without whole traces: %+v, %v", none, err)
	}
}

// Attributes that naturally vary aren't compared.
func TestTellsNothing(t *testing.T) {
	for key, want := range map[string]bool{
		"thread.id": true, "code.stacktrace": true, "sibyl.wait.count": true, "customer": false, "sibyllant": false,
	} {
		if tellsNothing(key) != want {
			t.Errorf("%s: %t", key, !want)
		}
	}
}
