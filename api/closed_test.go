package api

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/api/cases"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// A closed problem is listed as closed, and its page shows it as it was.
func TestClosedProblemIsKept(t *testing.T) {
	w := newTroubled(t)
	open := fetch[contract.ProblemList](t, w, "/api/v1/problems").Items[0]
	closed := func(query string) contract.ProblemList {
		t.Helper()
		return fetch[contract.ProblemList](t, w, "/api/v1/problems?closed=true"+query)
	}
	if n := closed("").Total; n != 0 {
		t.Errorf("%d problems have closed before any did", n)
	}
	w.app.Inject(trace.MaxNanos) // the fault ends
	var last detect.Problem      // before it closed
	w.play(t, 600, func() bool {
		i := slices.IndexFunc(w.problems(), func(p detect.Problem) bool { return p.ID.String() == open.ID })
		if i >= 0 {
			last = w.problems()[i]
		}
		return i < 0
	})
	tells := func(e contract.Event) bool { return e.Type == "problem.closed" && *e.Problem == open.ID }
	if last := w.published(t); !slices.ContainsFunc(last, tells) {
		t.Errorf("no event tells that the problem closed: %v", kindsOf(last))
	}
	list := closed("")
	if list.Total != 1 || list.Items[0].ID != open.ID || list.Items[0].Closed == nil ||
		!list.Items[0].Closed.Equal(render.At(w.now)) {
		t.Fatalf("closed problems: %+v", list)
	}
	if x := &list.Items[0]; last.P99 == 0 || x.P50Ns == nil || *x.P50Ns != last.P50.Nanoseconds() || x.P99Ns == nil ||
		*x.P99Ns != last.P99.Nanoseconds() || x.MeanNs != last.Mean.Nanoseconds() {
		t.Errorf("mean %v, median %v and p99 %v, want those of the time of its mean: %v, %v and %v",
			x.MeanNs, x.P50Ns, x.P99Ns, last.Mean, last.P50, last.P99)
	}
	got := fetch[contract.ProblemDetail](t, w, "/api/v1/problems/"+open.ID)
	if diff := cmp.Diff(list.Items[0], got.Problem); diff != "" {
		t.Errorf("its page (-list +page):\n%s", diff)
	}
	if got.Problem.Diagnosis == "" || len(got.Edges) == 0 || len(got.Decisions) == 0 || got.Problem.Rank != 1 {
		t.Errorf("its page lacks evidence: %+v", got)
	}
	for query, want := range map[string]int{
		"&kind=" + string(open.Kind): 1, "&q=no+such+text": 0, "&request_type=" + open.RequestType: 1, "&muted=true": 0,
		"&request_type=" + fmt.Sprintf("%032x", 1): 0,
	} {
		if n := closed(query).Total; n != want {
			t.Errorf("%s: %d closed problems, want %d", query, n, want)
		}
	}
	w.expect(t, http.StatusNotFound, http.MethodGet, fmt.Sprintf("/api/v1/problems/%032x", 1), nil)
}

// Closed problems are listed page by page, most recently closed first. A problem that closed twice appears twice.
func TestPagesOfClosedProblems(t *testing.T) {
	w := newTroubled(t)
	p := w.problems()[0]
	var want []string
	for i := range 5 {
		gone := p
		gone.ID.Lo += uint64(1 + i/2)
		ended := w.now.Add(time.Duration(i) * time.Hour)
		w.handlers.StoreClosed(w.core.View(), []detect.Problem{p, gone}, ended)
		want = append(want, gone.ID.String()+" "+render.At(ended).String())
	}
	slices.Reverse(want)
	var got []string
	for cursor, pages := "", 0; pages == 0 || cursor != ""; pages++ {
		list := fetch[contract.ProblemList](t, w, "/api/v1/problems?closed=true&limit=2&cursor="+cursor)
		for i := range list.Items {
			if x := &list.Items[i]; x.Rank == 2 {
				got = append(got, x.ID+" "+x.Closed.String())
			}
		}
		if cursor = ""; list.NextCursor != nil {
			cursor = *list.NextCursor
		}
		if pages > 5 || list.Total != 5 {
			t.Fatalf("page %d, %d problems in all", pages, list.Total)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	const other = "eyJzIjoiY2xvc2VkIiwiayI6MCwiaSI6IngifQ" // with another ID
	w.expect(t, http.StatusBadRequest, http.MethodGet, "/api/v1/problems?closed=true&cursor="+other, nil)
}

// The history of a group has the windows of a time span, the current window, and the windows of the day or week before.
func TestGroupHistory(t *testing.T) {
	w := newTroubled(t)
	id := w.problems()[0].RequestType
	base := group.PeriodOf(w.now)
	put := func(id analysis.Hash, before time.Duration, ns int64) {
		t.Helper()
		var p group.Past
		p.Total.Add(ns)
		p.Latency.Add(ns, 1)
		groups := func(yield func(analysis.Hash, *group.Past) bool) { yield(id, &p) }
		if err := w.store.Past.Put(store.NewPeriod(base.Add(-before), groups)); err != nil {
			t.Fatal(err)
		}
	}
	const hour = 11 * group.Period
	put(id, hour, 1e6)
	put(id, group.Day+hour, 2e6)
	put(id, 7*group.Day+hour, 3e6)
	get := func(id analysis.Hash, query string) contract.GroupHistory {
		t.Helper()
		return fetch[contract.GroupHistory](t, w, "/api/v1/groups/"+id.String()+"/history?"+query)
	}
	means := func(windows []contract.PastWindow) (all []float64) {
		for i := range windows {
			if x := &windows[i]; x.Count == 1 {
				all = append(all, *x.MeanNs)
			}
		}
		return all
	}
	span := fmt.Sprintf("from=%d&to=%d", base.Add(-2*hour), w.now)
	for compare, want := range map[string][]float64{"none": nil, "yesterday": {2e6}, "last_week": {3e6}} {
		h := get(id, span+"&compare="+compare)
		if got := means(h.Windows); !slices.Equal(got, []float64{1e6}) {
			t.Errorf("means %v", got)
		}
		if got := means(h.Compared); !slices.Equal(got, want) {
			t.Errorf("compared with %s: means %v, want %v", compare, got, want)
		}
		last := h.Windows[len(h.Windows)-1]
		if !last.From.Equal(render.At(base)) || !last.To.Equal(render.At(w.now)) || last.Count == 0 {
			t.Errorf("the present window is %+v", last)
		}
	}
	if h := get(id, "resolution=long"); h.Windows[0].To.Sub(h.Windows[0].From) != group.LongPeriod {
		t.Errorf("a long window: %+v", h.Windows[0])
	}
	if h := get(id, fmt.Sprintf("from=%d", base.Add(-10*group.Day))); len(means(h.Windows)) != 3 {
		t.Errorf("ten days: %+v", h.Windows)
	}
	gone := analysis.Hash{Hi: 7, Lo: 7}
	put(gone, hour, 5e6)
	if h := get(gone, ""); !slices.Equal(means(h.Windows), []float64{5e6}) {
		t.Errorf("a group that is gone: %+v", h)
	}
	for query, want := range map[string]int{
		"from=5&to=3": http.StatusBadRequest, "from=1": http.StatusBadRequest, "from=tomorrow": http.StatusBadRequest,
		fmt.Sprintf("from=%d&resolution=short", base.Add(-60*group.Day)): http.StatusBadRequest,
	} {
		if out := w.get(t, "/api/v1/groups/"+id.String()+"/history?"+query); out.Code != want {
			t.Errorf("%s: %d, want %d", query, out.Code, want)
		}
	}
	w.expect(t, http.StatusNotFound, http.MethodGet, fmt.Sprintf("/api/v1/groups/%032x/history", 1), nil)
}

// The page of a closed incident shows the slow traces kept for it.
func TestKeptTraces(t *testing.T) {
	w := newTroubled(t)
	p := w.problems()[0]
	kept := &store.Exemplars{Slow: []store.Exemplar{{Trace: trace.ID{9}, Start: w.now, Duration: 5e9}}}
	for _, of := range []search.Subject{search.OfProblem(p.ID), search.OfIncident(3)} {
		if err := w.store.Kept.Put(of, p.RequestType, kept); err != nil {
			t.Fatal(err)
		}
	}
	path := "/api/v1/exemplars?group=" + p.RequestType.String() + "&problem=" + p.ID.String()
	list := fetch[contract.ExemplarList](t, w, path)
	if len(list.Items) != 1 || list.Items[0].Trace != kept.Slow[0].Trace.String() {
		t.Errorf("exemplars of the problem: %+v", list)
	}
	types := []engine.AffectedType{{RequestType: p.RequestType, Usual: 1e6}}
	slow, err := cases.SampleTraces(w.store, 3, types, w.now.Add(-time.Minute), w.now)
	isKept := func(x cases.SampleTrace) bool { return x.Trace == kept.Slow[0].Trace }
	if err != nil || !slices.ContainsFunc(slow, isKept) {
		t.Errorf("slow traces of the incident: %+v, %v", slow, err)
	}
}
