package api

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/directory"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracegen"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetext"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// storeTrace stores a trace, given in the text form of tests, with a number as its ID and a start in seconds after
// begin.
func (w *harness) storeTrace(t testing.TB, number uint64, second int, text string) store.Exemplar {
	t.Helper()
	names := &trace.Table{}
	x, err := tracetext.Parse(text, names)
	if err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint64(x.ID[8:], number)
	start := begin + trace.Nanos(second)*1e9
	for i := range x.Spans {
		x.Spans[i].Start += start
		x.Spans[i].End += start
	}
	request, err := tracegen.Protobuf([]*trace.Trace{x}, names)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.store.Traces.Put(x.ID, request); err != nil {
		t.Fatal(err)
	}
	s := &x.Spans[0]
	return store.Exemplar{Trace: x.ID, Root: s.ID, Start: s.Start, Duration: int64(s.Duration())}
}

// newKept returns a harness with stored traces: 1 to 8 are typical, 9 is slow because of cart, and 10 fails without
// calling cart.
func newKept(t testing.TB) (*harness, analysis.Hash) {
	t.Helper()
	w := newHarness(t)
	w.play(t, 8, w.learned)
	var group analysis.Hash
	for g := range w.core.View().Groups.Each() {
		group = g.ID
		break
	}
	const text = `a shop "GET /cart" server 0..%dms %s tenant=t%d
  b shop GET client 2ms..%dms
    c cart "GET /items" server 3ms..%dms
      d cart redis.get client 4ms..6ms`
	e := &store.Exemplars{}
	for i := range 8 {
		e.Typical = append(e.Typical, w.storeTrace(t, uint64(i+1), i, fmt.Sprintf(text, 20+i, "", i%2, 18+i, 17+i)))
	}
	e.Slow = append(e.Slow, w.storeTrace(t, 9, 9, fmt.Sprintf(text, 320, "", 0, 318, 317)))
	e.Failed = append(e.Failed, w.storeTrace(t, 10, 10, "a shop \"GET /cart\" server 0..5ms error tenant=t1"))
	if err := w.store.Exemplars.Put(group, e); err != nil {
		t.Fatal(err)
	}
	return w, group
}

func (w *harness) traces(t *testing.T, query string) contract.TraceList {
	t.Helper()
	return fetch[contract.TraceList](t, w, "/api/v1/traces"+query)
}

// numbers returns the numbers of the traces in a list.
func numbers(list contract.TraceList) (all []string) {
	for _, x := range list.Items {
		all = append(all, strings.TrimLeft(x.ID, "0"))
	}
	return all
}

func TestSearchTraces(t *testing.T) {
	w, _ := newKept(t)
	for query, want := range map[string]string{
		"":                                        "a 9 8 7 6 5 4 3 2 1",
		"?sort=slowest":                           "9 8 7 6 5 4 3 2 1 a",
		"?service=cart":                           "9 8 7 6 5 4 3 2 1",
		"?service=none":                           "",
		"?operation=redis.get":                    "9 8 7 6 5 4 3 2 1",
		"?error=true":                             "a",
		"?error=false":                            "9 8 7 6 5 4 3 2 1", // a span without an error is enough
		"?longer_ns=100000000":                    "9",
		"?shorter_ns=10000000":                    "a",
		"?attribute=tenant%3Dt1":                  "a 8 6 4 2",
		"?attribute=tenant":                       "a 9 8 7 6 5 4 3 2 1",
		"?attribute=tenant%3Dt1&error=true":       "a",
		"?service=cart&attribute=tenant%3Dt1":     "", // the attribute belongs to shop
		"?attribute=service.name%3Dcart":          "9 8 7 6 5 4 3 2 1",
		"?trace=0000000000000000000000000000000A": "a",
		"?from=1700000008500000000":               "a 9",
		"?to=1700000002000000000":                 "2 1",
	} {
		if got := strings.Join(numbers(w.traces(t, query)), " "); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	x := w.traces(t, "?operation=redis.get&limit=1").Items[0]
	if x.Service != "shop" || x.Operation != "GET /cart" || x.Spans != 4 || x.Services != 2 ||
		x.Span != tracetext.ID("d").String() || !slices.Equal(x.Strata, []string{"slow"}) {
		t.Errorf("found %+v", x)
	}
}

// Pages contain every trace once, no matter how few match.
func TestSearchTracesByPages(t *testing.T) {
	w, _ := newKept(t)
	var all []string
	for cursor := ""; ; {
		list := w.traces(t, "?attribute=tenant%3Dt1&limit=2&cursor="+url.QueryEscape(cursor))
		if list.Kept != 10 {
			t.Errorf("%d kept", list.Kept)
		}
		all = append(all, numbers(list)...)
		if list.NextCursor == nil {
			break
		}
		cursor = *list.NextCursor
	}
	if got := strings.Join(all, " "); got != "a 8 6 4 2" {
		t.Errorf("by pages: %s", got)
	}
}

// The links to backends contain the same query.
func TestSearchLinksOfTraces(t *testing.T) {
	w, _ := newKept(t)
	link, err := directory.NewSearchLink("Tempo", "https://tempo.invalid/?q={traceql}")
	if err != nil {
		t.Fatal(err)
	}
	w.SetDirectory(directory.Directory{Searches: []directory.Link{link}})
	links := w.traces(t, "?service=cart&longer_ns=5000000&attribute=tenant%3Dt1&error=true").Links
	if len(links) != 1 {
		t.Fatalf("%d links", len(links))
	}
	got, err := url.PathUnescape(links[0].URL)
	want := "https://tempo.invalid/?q=" +
		`{ resource.service.name = "cart" && status = error && .tenant = "t1" && traceDuration >= 5000us }`
	if err != nil || got != want || links[0].Name != "Tempo" {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A stored trace is explained by its difference from normal traces of the same type. Its usual duration comes from all
// healthy requests of the type.
func TestTraceComparison(t *testing.T) {
	w, group := newKept(t)
	get := func(number string) *contract.TraceComparison {
		return fetch[contract.Trace](t, w, "/api/v1/traces/"+strings.Repeat("0", 32-len(number))+number).Comparison
	}
	slow := get("9")
	if slow == nil || slow.Normal != 8 || slow.UsualNs == nil || len(slow.Findings) == 0 {
		t.Fatalf("the slow trace: %+v", slow)
	}
	usual := w.core.View().Groups.Group(group).Parent().Reference.Latency
	if want := usual.Quantile(0.5); math.Abs(float64(*slow.UsualNs)-want) > 1 || want < 1 {
		t.Errorf("such requests usually take %d ns, want %.0f", *slow.UsualNs, want)
	}
	if f := slow.Findings[0]; f.Reason != contract.TraceFindingReasonSlow || f.Service != "cart" ||
		f.Span != tracetext.ID("c").String() || f.ExcessNs < 250e6 {
		t.Errorf("its first finding: %+v", f)
	}
	if !strings.Contains(slow.Sentence, "longer than such requests usually do") {
		t.Error(slow.Sentence)
	}
	if err := w.store.Traces.Delete(trace.ID{15: 8}); err != nil {
		t.Fatal(err)
	}
	if got := get("9"); got == nil || got.Normal != 7 {
		t.Errorf("without a normal trace that was just deleted: %+v", got)
	}
	failed := get("a")
	reasons := []string{}
	for _, f := range failed.Findings {
		reasons = append(reasons, string(f.Reason))
		if f.Text == "" {
			t.Errorf("no text: %+v", f)
		}
	}
	if !slices.Contains(reasons, "failed") && !slices.Contains(reasons, "missing") {
		t.Errorf("the failed trace: %v, %s", reasons, failed.Sentence)
	}
}
