package recorded

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/bench/eval"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracegen"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetext"
	"github.com/sibyl-trace/sibyl/trace"
)

// recordedTraceOf returns the trace with the given text.
func recordedTraceOf(t *testing.T, text string, table *trace.Table) *recordedTrace {
	t.Helper()
	tr, err := tracetext.Parse(text, table)
	if err != nil {
		t.Fatal(err)
	}
	return newRecordedTrace(critpath.NewExtractor(critpath.DefaultOptions()).Extract(tr))
}

const cartTrace = `
1 shop "GET /cart" server 0..100
  2 shop call client 10..90
    3 cart Get server 12..88 size=7
      4 cart price internal 20..80 region=x
        5 cart query client 30..70
        6 cart sum internal 70..75`

// TestHiding: disabled operations are hidden, their children belong to the nearest visible span above, and enabled
// spans are marked.
func TestHiding(t *testing.T) {
	for _, c := range []struct {
		baseline Baseline
		on       []string
		want     string
	}{
		{Services, nil, `
1 shop "GET /cart" server 100..200 sibyl.plan=3
  3 cart Get server 112..188 size=7
`},
		{Services, []string{"cart price internal", "cart sum internal", "shop call client"}, `
1 shop "GET /cart" server 100..200 sibyl.plan=3 sibyl.arm=a
  2 shop call client 110..190 tp="shop call client"
    3 cart Get server 112..188 size=7
      4 cart price internal 120..180 tp="cart price internal" region=x
        6 cart sum internal 170..175 tp="cart sum internal"
`},
		{Entries, []string{"cart query client"}, `
1 shop "GET /cart" server 100..200 sibyl.plan=3 sibyl.arm=a
  5 cart query client 130..170 tp="cart query client"
`},
		{OTel, []string{"cart sum internal"}, `
1 shop "GET /cart" server 100..200 sibyl.plan=3 sibyl.arm=a
  2 shop call client 110..190
    3 cart Get server 112..188 size=7
      5 cart query client 130..170
      6 cart sum internal 170..175 tp="cart sum internal"
`},
	} {
		var table trace.Table
		tp := recordedTraceOf(t, cartTrace, &table)
		table.Symbol(trace.KeyPlan) // so that the table contains it
		table.Symbol(trace.KeyArm)
		s := enabled{plan: 3, on: make(map[trace.Symbol]bool)}
		for _, name := range c.on {
			s.arm, s.on[table.Symbol(name)] = table.Symbol("a"), true
		}
		var out trace.Trace
		tp.instrument(newCatalogue([]*recordedTrace{tp}, c.baseline, &table), s, tp.whole.ID, 100, &out)
		if diff := cmp.Diff(strings.TrimPrefix(c.want, "\n"), tracetext.Format(&out, &table)); diff != "" {
			t.Errorf("%s, on %q: %s", c.baseline, c.on, diff)
		}
	}
}

// TestCatalogue: a parent or an owner is in the catalogue only if it is the same in all traces.
func TestCatalogue(t *testing.T) {
	var table trace.Table
	traces := []*recordedTrace{recordedTraceOf(t, cartTrace, &table), recordedTraceOf(t, `
1 cart Put server 0..100
  2 cart query client 10..90`, &table)}
	var got strings.Builder
	c := newCatalogue(traces, Services, &table)
	for _, tp := range c.announce() {
		fmt.Fprintf(&got, "%s: parent %q, owner %q, baseline %v\n",
			table.Text(tp.ID), table.Text(tp.Parent), table.OpName(tp.Owner), tp.Baseline)
	}
	want := `cart Get server: parent "", owner "", baseline true
cart Put server: parent "", owner "", baseline true
cart price internal: parent "cart Get server", owner "Get", baseline false
cart query client: parent "", owner "", baseline false
cart sum internal: parent "cart price internal", owner "Get", baseline false
shop GET /cart server: parent "", owner "", baseline true
shop call client: parent "shop GET /cart server", owner "GET /cart", baseline false
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Error(diff)
	}
	if n := c.switchable(); n != 4 {
		t.Errorf("%d tracepoints, want 4", n)
	}
	call := table.Op(table.Symbol("shop"), table.Symbol("call"), trace.Client)
	always := func(*point) bool { return true }
	if got := table.OpName(c.place(call, always)); got != "Get" {
		t.Errorf("the CLIENT stands for %q, want Get", got)
	}
	if got := c.place(call, func(*point) bool { return false }); got != call {
		t.Errorf("the CLIENT stands for %q, want itself: its callee is hidden", table.OpName(got))
	}
}

// TestDivide: slices start at multiples of the epoch, and empty slices are left out.
func TestDivide(t *testing.T) {
	at := func(ns ...trace.Nanos) []*recordedTrace {
		var traces []*recordedTrace
		for _, n := range ns {
			traces = append(traces, &recordedTrace{start: n})
		}
		return traces
	}
	var got []string
	for _, s := range divide(at(5, 14, 15, 16, 99), 5, 10*time.Nanosecond) {
		got = append(got, fmt.Sprintf("%d: %d", s.start, len(s.traces)))
	}
	if diff := cmp.Diff([]string{"5: 2", "15: 2", "95: 1"}, got); diff != "" {
		t.Error(diff)
	}
}

// wholeShop writes a case set of a shop with five requests per second. The price of its cart is slow from second 300 to
// 360. The second case, from 400 to 430, is healthy.
func wholeShop(t *testing.T) string {
	t.Helper()
	var table trace.Table
	var out strings.Builder
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 5 * 480 {
		at := i * 200
		price, call := 10+rng.IntN(10), 2+rng.IntN(3)
		if second := i / 5; second >= 300 && second < 360 {
			price += 20
		}
		text := fmt.Sprintf(`
1 shop "GET /cart" server %[1]dms..%[4]dms
  2 shop call client %[1]dms..%[4]dms
    3 cart Get server %[2]dms..%[3]dms
      4 cart load internal %[2]dms..%[2]dms
      5 cart price internal %[2]dms..%[3]dms
        6 cart round internal %[2]dms..%[2]dms
      7 cart log internal %[3]dms..%[3]dms`, at, at+call, at+call+price, at+call+price+rng.IntN(3))
		tr, err := tracetext.Parse(text, &table)
		if err != nil {
			t.Fatal(err)
		}
		tr.ID = trace.ID{0: 1, 14: byte(i >> 8), 15: byte(i)}
		line, err := tracegen.JSON([]*trace.Trace{tr}, &table)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(line)
		out.WriteByte('\n')
	}
	return set(t, TracesName, out.String(),
		`{"name": "price", "fault": "slow", "start_unix_nano": "300000000000", "end_unix_nano": "360000000000", "target": {"service": "cart", "operation": "price"}}
{"name": "nothing", "fault": "none", "start_unix_nano": "400000000000", "end_unix_nano": "430000000000", "target": {"service": "shop"}}
{"name": "empty", "fault": "none", "start_unix_nano": "900000000000", "end_unix_nano": "930000000000", "target": {"service": "shop"}}
`)
}

func choose(t *testing.T, dir string, c Choice) (*ChoiceReport, error) {
	t.Helper()
	s, err := Read(t.Context(), dir, Options{Path: critpath.DefaultOptions(), Keep: true})
	if err != nil {
		t.Fatal(err)
	}
	c.Engine, c.Slices = engine.DefaultOptions(), 12
	return s.Choose(t.Context(), c, nil)
}

// TestChoose: a slow operation below the baseline is located with tracepoints, and only raised without them. Runs
// repeat.
func TestChoose(t *testing.T) {
	dir := wholeShop(t)
	for _, baseline := range []Baseline{Services, Entries, OTel} {
		choice := Choice{Baseline: baseline, Strategies: []string{"adaptive", "random"}}
		r, err := choose(t, dir, choice)
		if err != nil {
			t.Fatal(err)
		}
		for name, s := range r.Strategies {
			price, nothing, empty := &s.Cases[0], &s.Cases[1], &s.Cases[2]
			searched := name != NoStrategy
			if found := price.Rank != nil && *price.Rank == 1; price.Raised == nil || price.Repeated ||
				found != searched || price.Visible != searched ||
				price.Enabled > 0 != searched || price.SpanHits > 0 != searched {
				t.Errorf("%s, %s, price: %+v; want it first and visible by enabled tracepoints only",
					baseline, name, price)
			}
			if nothing.Raised != nil || nothing.Slices != 12 || nothing.Recorded != 3 || nothing.SpanHits != 0 {
				t.Errorf("%s, %s, nothing: %+v; want 12 slices of 3 and no problem", baseline, name, nothing)
			}
			if empty.Raised != nil || empty.Slices != 0 || empty.Ranking == nil {
				t.Errorf("%s, %s, empty: %+v; want no slices, no problem and an empty ranking", baseline, name, empty)
			}
			if want := s.Top1 * 3; s.Count != 3 || s.Raised*3 != 1 || searched && want != 1 ||
				s.ByFault["none"].Count != 2 {
				t.Errorf("%s, %s: %+v; want one of three raised", baseline, name, s.ChoiceSum)
			}
		}
		if r.FalseAlarms != 0 || r.ControlSlices == 0 || r.History != 5*(480-90) {
			t.Errorf("%s: %+v; want no false alarm and the whole history", baseline, r)
		}
		again, err := choose(t, dir, choice)
		if err != nil {
			t.Fatal(err)
		}
		same := cmp.Comparer(func(a, b eval.Rate) bool {
			return a == b || math.IsNaN(float64(a)) && math.IsNaN(float64(b))
		})
		if diff := cmp.Diff(r, again, same); diff != "" {
			t.Errorf("%s: two runs differ: %s", baseline, diff)
		}
	}
}

// TestLabelsOnlyScoreChoices changes everything in the labels except the windows. The answers must stay the same.
func TestLabelsOnlyScoreChoices(t *testing.T) {
	dir := wholeShop(t)
	choice := Choice{Baseline: Services, Strategies: []string{"adaptive"}}
	a, err := choose(t, dir, choice)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, CasesName)
	labels, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other := strings.NewReplacer("cart", "nobody", "shop", "somebody", "slow", "else",
		`"price"`, `"other"`).Replace(string(labels))
	if err := os.WriteFile(path, []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := choose(t, dir, choice)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range a.Strategies["adaptive"].Cases {
		d := b.Strategies["adaptive"].Cases[i]
		if d.Rank != nil {
			t.Errorf("rank %d for a service without spans, want none", *d.Rank)
		}
		if diff := cmp.Diff(c.Ranking, d.Ranking); diff != "" || c.Requests != d.Requests || c.SpanHits != d.SpanHits {
			t.Errorf("%s: %+v with other labels, want %+v", c.Name, d, c)
		}
	}
}

func TestChooseWithoutHistory(t *testing.T) {
	var b strings.Builder
	requests(&b, 1, 10, 0)
	dir := set(t, TracesName, b.String(),
		`{"name": "a", "fault": "slow", "start_unix_nano": 1, "end_unix_nano": 9000000000000, "target": {"service": "cart"}}`)
	if _, err := choose(t, dir, Choice{Baseline: Services}); err == nil ||
		!strings.Contains(err.Error(), "nothing to learn from") {
		t.Error(err)
	}
}
