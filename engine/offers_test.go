package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// The samples of a service's stacks are in the saved state, and go with its tracepoints.
func TestSamples(t *testing.T) {
	table := new(trace.Table)
	offers := newOffers(table, 10)
	stacks := []search.Stacks{{
		Service: "shop", Operation: "GET /", Kind: trace.Server, Requests: 8, Time: time.Second,
		Tracepoints: []search.StackTime{{ID: "shop/a", Total: time.Second, Own: time.Millisecond}},
	}}
	offers.apply(&search.Feedback{At: 1, Stacks: stacks})
	if len(offers.samples) > 0 {
		t.Error("a service without tracepoints has samples")
	}
	catalogue := search.Catalogue{Service: "shop", Tracepoints: []search.Announced{{ID: "shop/a", Name: "a"}}}
	offers.apply(&search.Feedback{At: 2, Catalogues: []search.Catalogue{catalogue}, Stacks: stacks})
	offers.apply(&search.Feedback{At: 3, Stacks: stacks})
	op := table.Op(table.Symbol("shop"), table.Symbol("GET /"), trace.Server)
	if x := offers.samples[op]; x == nil || x.Requests != 12 || x.Time != 1.5e9 || x.At != 3 {
		t.Errorf("sample %+v; want the first report with half its weight, and the second", x)
	}
	for i := range maxSampled {
		// Names that differ only in numbers would be the same operation.
		operation := strings.Map(func(digit rune) rune { return digit - '0' + 'g' }, fmt.Sprint(i))
		offers.apply(&search.Feedback{At: trace.Nanos(4 + i), Stacks: []search.Stacks{{
			Service: "shop", Operation: operation, Kind: trace.Server, Requests: 1, Time: time.Second,
		}}})
	}
	if n := len(offers.samples); n != maxSampled || offers.samples[op] != nil {
		t.Errorf("%d samples, the oldest %v; want %d without the oldest", n, offers.samples[op], maxSampled)
	}
	var saved savedCore
	offers.save(&saved)
	restored := newOffers(table, 10)
	if err := restored.restore(&saved); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(offers.samples, restored.samples); d != "" {
		t.Error(d)
	}
	offers.apply(&search.Feedback{At: 9999, Catalogues: []search.Catalogue{{Service: "shop"}}})
	if len(offers.samples) > 0 {
		t.Error("samples remain without tracepoints")
	}
}
