package describe

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/trace"
)

func TestNumber(t *testing.T) {
	for _, c := range []struct {
		x    float64
		want string
	}{
		{0, "0"},
		{-1.5, "-1.5"},
		{1e300, "1e+300"},
		{math.NaN(), "null"},
		{math.Inf(1), "null"},
		{math.Inf(-1), "null"},
	} {
		x := Number(c.x)
		got, err := json.Marshal(map[string]Number{"x": x})
		if want := `{"x":` + c.want + `}`; err != nil || string(got) != want {
			t.Errorf("%v: %s, %v, want %s", c.x, got, err, want)
		}
		if p := x.Pointer(); x.Known() != (p != nil) || p != nil && *p != c.x {
			t.Errorf("%v: known %v, pointer %v", c.x, x.Known(), p)
		}
	}
}

// A problem without explanations and quantiles has this JSON form.
func TestProblem(t *testing.T) {
	s := newShop()
	p := s.slow()
	p.Impact, p.Rate = 7.4e8, math.NaN()
	got, err := json.MarshalIndent(struct {
		Problem
		Findings
	}{NewProblem(s.names(), p, 0, 0), NewFindings(s.names(), p)}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
 "id": "00000000000000080000000000000000",
 "kind": "slow",
 "onset": "changed",
 "level": "request_type",
 "group": "00000000000000000000000000000002",
 "request_type": "shop GET /",
 "request_type_id": "00000000000000000000000000000002",
 "service": "shop",
 "operation": "GET /",
 "diagnosis": "shop GET / takes 35 ms on average, 2.3× the expected 15 ms; 95 % of the slowdown is in shop render page.",
 "requests": 3490,
 "rate": null,
 "mean_ns": 35000000,
 "expected_ns": 15000000,
 "p50_ns": null,
 "p99_ns": null,
 "cov": 0.09,
 "cov_low": null,
 "cov_high": null,
 "impact": 740000000,
 "edge": {
  "name": "shop render page",
  "context": [
   "shop GET /",
   "shop render page"
  ],
  "service": "shop",
  "operation": "render page",
  "kind": "internal",
  "mean_ns": 28000000,
  "share_mean": 0,
  "share_variance": 0.9,
  "share_low": 0,
  "share_high": 0,
  "tail_lift_ns": 0,
  "excess_ns": 19000000,
  "excess_low_ns": 0,
  "excess_high_ns": 0,
  "affected": 0,
  "score": 0.95
 },
 "edges": [
  {
   "name": "shop render page",
   "context": [
    "shop GET /",
    "shop render page"
   ],
   "service": "shop",
   "operation": "render page",
   "kind": "internal",
   "mean_ns": 28000000,
   "share_mean": 0,
   "share_variance": 0.9,
   "share_low": 0,
   "share_high": 0,
   "tail_lift_ns": 0,
   "excess_ns": 19000000,
   "excess_low_ns": 0,
   "excess_high_ns": 0,
   "affected": 0,
   "score": 0.95
  }
 ],
 "explanations": []
}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestFindings(t *testing.T) {
	s := newShop()
	f := NewFindings(s.names(), s.variable())
	if f.Edge != &f.Edges[0] || *f.Edge.Target != (Target{Service: "bank", Operation: "POST /charge"}) ||
		f.Edge.ExcessNS.Known() {
		t.Errorf("leading edge %+v", f.Edge)
	}
	want := Place{Name: OtherPlaces, Context: []string{}, Operation: OtherPlaces}
	if diff := cmp.Diff(want, f.Edges[1].Place); diff != "" {
		t.Errorf("remainder: -want +got\n%s", diff)
	}
	if x := f.Explanations[0]; x.Name != "bank.route = fallback at payment → bank POST /charge" || x.Target != nil {
		t.Errorf("explanation of the duration %+v", x)
	}
	if x := f.Explanations[1]; x.Name != "concurrency" || x.Target == nil || x.Target.Name != f.Edge.Name ||
		x.Remains.Known() {
		t.Errorf("explanation of an edge %+v", x)
	}
	if f := NewFindings(s.names(), &detect.Problem{}); f.Edge != nil || f.Edges == nil || f.Explanations == nil {
		t.Errorf("no findings: %+v", f)
	}
}

// A problem with only its identity has unknown numbers.
func TestIdentify(t *testing.T) {
	s := newShop()
	p := IdentifyProblem(s.names(), analysis.Hash{Hi: 9}, analysis.Hash{Lo: 1}, analysis.Hash{Lo: 4}, s.checkout)
	if p.RequestType != "shop POST /checkout" || p.Service != "shop" || p.Operation != "POST /checkout" ||
		p.Kind != "" || p.CoV.Known() || p.MeanNS != nil {
		t.Errorf("%+v", p)
	}
}

func TestNames(t *testing.T) {
	s := newShop()
	n := New(s.table, Verbatim)
	for _, id := range []uint64{1, 2} {
		n.Add(&group.Summary{
			ID:          analysis.Hash{Hi: id << 32},
			Level:       group.LevelRequestType,
			RequestType: analysis.Hash{Hi: id << 32},
			Entry:       s.checkout,
			Distinct:    []trace.Op{s.rendered, s.pay},
		})
	}
	n.SetName(analysis.Hash{Lo: 7}, "Home")
	for id, want := range map[analysis.Hash]string{
		{Hi: 1 << 32}: "shop POST /checkout (render page, payment Pay)",
		{Hi: 2 << 32}: "shop POST /checkout (render page, payment Pay) #00000002",
		{Lo: 7}:       "Home",
		{Lo: 8}:       "shop POST /checkout", // not added
	} {
		if got := n.RequestType(id, s.checkout); got != want {
			t.Errorf("request type %v: %q, want %q", id, got, want)
		}
	}
	loud := New(s.table, func(s string) string { return "<" + s + ">" })
	loud.Add(&group.Summary{Level: group.LevelRequestType, Entry: s.checkout, Name: "Buy"})
	if got := loud.RequestType(analysis.Hash{}, 0); got != "<Buy>" {
		t.Errorf("got %q, want the cleaned name <Buy>", got)
	}
}

func TestEdgeNames(t *testing.T) {
	s := newShop()
	n := s.names()
	at := s.context(s.checkout, s.pay)
	for want, e := range map[string]*group.EdgeShare{
		"other":       {},
		"payment Pay": {Edge: 1, Context: at},
		"payment Pay, between bank POST /charge and render page": {
			Edge:    1,
			Context: at,
			Before:  s.charge,
			After:   s.rendered,
		},
		"payment Pay, after bank POST /charge":             {Edge: 1, Context: at, Before: s.charge},
		"payment Pay, before render page":                  {Edge: 1, Context: at, After: s.rendered},
		"payment → bank POST /charge (wire or queue)":      {Edge: 1, Context: s.toBank},
		"payment → bank POST /charge (answer on the wire)": {Edge: 1, Context: s.toBank, Before: s.bank},
	} {
		if got := n.Edge(e); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestBins(t *testing.T) {
	s := newShop()
	bins := []group.VariableBin{
		{Variable: "cache.hit", Value: "false", Where: s.toPage},
		{Variable: "present", Value: "true", Where: s.toBank},
	}
	got, want := s.names().Bins(&group.Summary{Bins: bins}), "cache.hit = false, payment → bank POST /charge is called"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
