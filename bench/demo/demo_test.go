package demo

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/bench/demo/shop"
	"github.com/sibyl-trace/sibyl/client"
)

// events are the events of the server of TestWatcher, in two streams of four.
var events = []string{
	`{"type": "problem.opened", "problem": "00000000000000000000000000000004", "diagnosis": "carts are slow"}`,
	`{"type": "incident.opened", "incident": "0000000000000123", "service": "stock",` +
		` "sentence": "Requests take 5 % longer; all of it is time in stock."}`,
	`{"type": "incident.opened", "incident": "0000000000000abc", "service": "cart",` +
		` "sentence": "Requests take 2× longer; all of it is time in cart."}`,
	`{"type": "epoch"}`,
	`{"type": "decision", "decision": "1-1", "incident": "0000000000000abc"}`,
	`{"type": "incident.located", "incident": "0000000000000123"}`,
	`{"type": "decision", "decision": "1-2", "problem": "00000000000000000000000000000004"}`,
	`{"type": "incident.located", "incident": "0000000000000abc"}`,
}

// TestWatcher: a watcher reports the incident of the fault, mentions others, resumes a broken stream, takes the place
// located for the fault, and counts enabled tracepoints, overall and for incidents.
func TestWatcher(t *testing.T) {
	streams := 0
	api := http.NewServeMux()
	api.HandleFunc("GET /api/v1/events", func(w http.ResponseWriter, r *http.Request) {
		if want := []string{"", "run-3"}[min(streams, 1)]; streams > 1 || r.Header.Get("Last-Event-ID") != want {
			<-r.Context().Done()
			return
		}
		for i := range 4 {
			fmt.Fprintf(w, "id: run-%d\nevent: x\ndata: %s\n\n", i, events[4*streams+i])
		}
		streams++
	})
	for path, body := range map[string]string{
		"/plan": `{"version": 2, "arms": [
			{"name": "a", "tracepoints": [
				{"id": "1", "name": "cart/total", "lease": {"incident": "0000000000000abc"}},
				{"id": "2", "name": "cart/tax"}]},
			{"name": "b", "tracepoints": [{"id": "1", "name": "cart/total"}]}]}`,
		"/decisions/1-1": `{"id": "1-1", "text": "2 tracepoints on", "incident": "0000000000000abc",
			"picks": [{"tracepoint": "1", "operation": "cart total"}, {"operation": "b"}, {"operation": "c"},
				{"operation": "d"}, {"operation": "e"}, {"operation": "f"}],
			"off": [{"tracepoint": "1", "tracepoint_name": "cart/sum"}, {"tracepoint": "3", "tracepoint_name": "cart/read"}],
			"suspects": [{"operation": "cart total", "share": {"value": 0.5}}]}`,
		"/incidents/0000000000000abc": `{"incident": {
			"sentence": "80 % of the added latency is waiting for a lock in cart total, on host b.",
			"wait": {"class": "futex", "text": "waiting for a lock", "share": 0.8, "service": "cart",
				"function": "cart total", "host": "b"}}}`,
		"/investigations/0000000000000abc": `{"investigation": {"suspects": [
			{"operation": "cart POST /tax\u001b", "share": {"value": 0.9}}]}}`,
		"/investigations/0000000000000123": `{"investigation": {"suspects": [
			{"operation": "stock SELECT → sqlite stock.items", "share": {"value": 0.9}}]}}`,
	} {
		api.HandleFunc("GET /api/v1"+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, body)
		})
	}
	h := httptest.NewServer(api)
	defer h.Close()

	var printed strings.Builder
	asked, err := client.New(h.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{
		child: &child{exited: make(chan struct{})},
		api:   strings.TrimPrefix(h.URL, "http://"), client: asked, stream: h.Client(),
	}
	w := newWatcher(s, &printed)
	w.begin()
	w.expect(&shop.Truth{Edge: shop.Edge{Service: "cart", Operation: "tax"}})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.events(ctx, func(e contract.Event) { w.handle(ctx, e) }) }()
	<-w.located
	stop()
	w.handle(t.Context(), contract.Event{Type: "incident.opened", Incident: new("0000000000000def")})
	if err := <-ended; err != nil {
		t.Error(err)
	}
	want := []string{
		"An incident opened. Requests take 5 % longer; all of it is time in stock.",
		h.URL + "/incidents/0000000000000123",
		"An incident opened. Requests take 2× longer; all of it is time in cart.",
		h.URL + "/incidents/0000000000000abc",
		"The kernel agent explained it: 80 % of the added latency is waiting for a lock in cart total, on host", "b.",
		"Sibyl enabled 6 tracepoints and disabled 2, because 50 % of the slowdown is in cart total: cart total,",
		"b, c, d, 2 more",
		"Sibyl located another slowdown: stock SELECT → sqlite stock.items, of", h.URL + "/incidents/0000000000000123",
		"Sibyl located the slowdown: cart POST /tax·, with 90 % of it",
		"Another incident opened: " + h.URL + "/incidents/0000000000000def",
	}
	var got []string
	for line := range strings.Lines(printed.String()) {
		got = append(got, strings.TrimSuffix(line[storyIndent:], "\n")) // without the time
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if len(w.incidents) != 3 || w.incidents[0].OfFault || w.incidents[0].Edge == nil || !w.incidents[1].OfFault ||
		w.incidents[1].Seconds <= 0 || w.incidents[2].OfFault {
		t.Errorf("incidents %+v, want three, only the second of the fault in cart", w.incidents)
	}
	if w.found == nil || w.found.edge.Service != "cart" {
		t.Errorf("found %+v, want a place in cart", w.found)
	}
	if x := w.reason; x == nil || x.Class != "futex" || x.Service != "cart" || x.Host != "b" ||
		x.Function != "cart total" || x.Seconds <= 0 {
		t.Errorf("%+v, want a lock in cart total on b", x)
	}
	if w.epochs != 1 || len(w.ever) != 2 || w.peak != 2 || w.held != 1 || w.allOff() {
		t.Errorf("%+v; want 1 epoch, 2 tracepoints enabled, 1 for the incident", w)
	}
}

// TestWatcherFollows: an incident also belongs to the fault once its first suspect or its place is in the service of
// the fault.
func TestWatcherFollows(t *testing.T) {
	api := http.NewServeMux()
	api.HandleFunc("GET /api/v1/investigations/0000000000000abc", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"investigation": {"suspects": [{"operation": "cart POST /tax", "share": {"value": 0.9}}]}}`)
	})
	h := httptest.NewServer(api)
	defer h.Close()
	asked, err := client.New(h.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, last := range []contract.Event{
		{Type: "incident.changed", Incident: new("0000000000000abc"), Service: new("cart")},
		{Type: "incident.located", Incident: new("0000000000000abc"), Service: new("cart")},
	} {
		w := newWatcher(&server{client: asked}, io.Discard)
		w.begin()
		w.expect(&shop.Truth{Edge: shop.Edge{Service: "cart", Operation: "tax"}})
		for _, e := range []contract.Event{
			{Type: "incident.opened", Incident: new("0000000000000abc"), Service: new("gateway")},
			{Type: "incident.changed", Incident: new("0000000000000abc"), Service: new("stock")},
			last,
		} {
			if w.incidents != nil && w.incidents[0].OfFault {
				t.Errorf("%s: of the fault before the event", last.Type)
			}
			w.handle(t.Context(), e)
		}
		if !w.incidents[0].OfFault || (w.found != nil) != (last.Type == "incident.located") {
			t.Errorf("%s: %+v, found %+v; want an incident of the fault, located by the event only",
				last.Type, w.incidents[0], w.found)
		}
	}
}

// TestResult: an answer is correct if it is the location of the fault. No answer is correct if there is no fault.
func TestResult(t *testing.T) {
	edge := shop.Edge{Service: "cart", Operation: "total"}
	truth := &shop.Truth{Edge: edge, Table: "items"}
	one := []Incident{{
		Seconds:  70,
		Service:  "cart",
		Sentence: "cart is slow",
		URL:      "http://sibyl/incidents/1",
		OfFault:  true,
	}}
	two := append(one, Incident{
		Seconds:  90,
		Service:  "stock",
		Sentence: "stock is slow",
		URL:      "http://sibyl/incidents/2",
		Edge:     &shop.Edge{Service: "stock", Operation: "SELECT"},
	})
	for _, c := range []struct {
		fault     shop.Fault
		found     *finding
		incidents []Incident
		correct   bool
		text      string
	}{
		{shop.Disk, &finding{edge: edge}, one, true, "Answer: cart total. This is correct"},
		{
			shop.Disk, &finding{edge: shop.Edge{Service: "cart", Operation: "tax"}}, one, false,
			"This is wrong: the fault is disk in cart total",
		},
		{
			shop.Replica, &finding{edge: shop.Edge{Service: "cart", Operation: "SELECT", Target: "sqlite cart.items"}},
			one, true, "Answer: cart SELECT → sqlite cart.items. This is correct",
		},
		{shop.Replica, &finding{edge: shop.Edge{Service: "cart", Operation: "SELECT"}}, one, false, "This is wrong"},
		{shop.Disk, nil, one, false, "not located"},
		{
			shop.Disk, nil, two, false,
			"Another incident after 90 s: http://sibyl/incidents/2\n  stock is slow\n  Sibyl located stock SELECT.\n",
		},
		{shop.None, nil, nil, true, "no incident opened"},
		{
			shop.None, nil, one, false,
			"1 incident opened.\nIncident after 70 s: http://sibyl/incidents/1\n  cart is slow\n",
		},
	} {
		d := &demo{Options: &Options{Fault: c.fault}, watcher: newWatcher(nil, nil)}
		d.watcher.found, d.watcher.incidents, d.watcher.truth = c.found, c.incidents, truth
		r := d.result(&shop.Report{Spans: 100, Extra: 10}, &shop.Report{Spans: 200, Extra: 35, Tracepoints: 7})
		if len(c.incidents) > 0 && c.fault != shop.None && strings.Contains(r.String(), c.incidents[0].Sentence) {
			t.Errorf("%q repeats the sentence of the story", r)
		}
		if r.Correct != c.correct || r.Located != (c.found != nil) || r.ExtraSpans != 0.25 || r.Tracepoints != 7 ||
			!strings.Contains(r.String(), c.text) {
			t.Errorf("%s %v: %+v, %q; want correct %t, %q", c.fault, c.found, r, r, c.correct, c.text)
		}
	}
}

// TestExplained: an explanation is correct if it names the class and service of the fault.
func TestExplained(t *testing.T) {
	truth := filepath.Join(t.TempDir(), "truth.json")
	if err := os.WriteFile(truth, []byte(`{"service": "cart", "operation": "total", "waits": ["futex"]}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	expected, err := readTruth(truth)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		reason  *Wait
		correct bool
		text    string
	}{
		{
			&Wait{
				Class:   "futex",
				Text:    "waiting for a lock",
				Share:   0.8,
				Service: "cart",
				Seconds: 90,
			}, true,
			"The kernel agent explained it after 90 s: 80 % of the added latency is waiting for a lock in cart.\n",
		},
		{
			&Wait{
				Class:    "sync",
				Text:     "waiting for the disk (fsync)",
				Share:    0.8,
				Service:  "cart",
				Function: "cart total",
				Host:     "b",
				Seconds:  90,
			}, false,
			"after 90 s, wrongly: 80 % of the added latency is waiting for the disk (fsync) in cart total, " +
				"on host b.\n",
		},
		{&Wait{Class: "futex", Service: "orders", Seconds: 90, Sentence: "orders waits."}, false, "wrongly"},
		{nil, false, "did not explain it: the cause is waiting for a lock.\n"},
	} {
		d := &demo{Options: &Options{Fault: shop.Lock}, watcher: newWatcher(nil, nil), observesKernel: true}
		d.watcher.reason, d.watcher.truth = c.reason, expected
		r := d.result(&shop.Report{}, &shop.Report{})
		if correct := r.Wait != nil && r.Wait.Correct; correct != c.correct || !strings.Contains(r.String(), c.text) {
			t.Errorf("%+v: %q; want correct %t, %q", c.reason, r, c.correct, c.text)
		}
	}
}

// TestChildFails: the failure of a process is returned once, with the end of its log.
func TestChildFails(t *testing.T) {
	for script, want := range map[string]string{
		"echo no port >&2; exit 3": "shop: exit status 3: no port",
		"exit 3":                   "shop: exit status 3: its log is empty",
	} {
		c, err := start("shop", "/bin/sh", t.TempDir(), nil, "-c", script)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.send(shop.Command{}, new(shop.Reply)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("send: %v, want %s", err, want)
		}
		if err := c.stop(stopTimeout); err != nil {
			t.Errorf("stop: %v, want nil", err)
		}
	}
}

// TestSupervise: a supervised program is terminated at the end of the input. Its directory is removed, even while an
// exiting process still creates files in it.
func TestSupervise(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	const script = `trap '(for i in $(seq 200); do : >"$1/$i" || exit; sleep 0.001; done) 2>/dev/null & exit 0' TERM
: >"$1/ready"; while :; do sleep 0.01; done`
	input, end := io.Pipe()
	go func() { // ends the input once the script waits for its signal
		defer func() { _ = end.Close() }()
		for {
			if _, err := os.Stat(filepath.Join(dir, "ready")); err == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	err := Supervise(t.Context(), input, os.Stderr, dir, "/bin/sh", "-c", script, "sh", dir)
	if _, statErr := os.Stat(dir); err != nil || !os.IsNotExist(statErr) {
		t.Errorf("error %v, stat %v; want no error and no directory", err, statErr)
	}
}

// TestChildKilled: a process that does not exit in time is killed. The error says so, with the end of its log.
func TestChildKilled(t *testing.T) {
	dir := t.TempDir()
	c, err := start("shop", "/bin/sh", dir, nil, "-c", "echo busy >&2; echo '{}'; exec sleep 60")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.send(shop.Command{}, new(shop.Reply)); err != nil { // the log has its line
		t.Fatal(err)
	}
	if err := os.Remove(c.log.Name()); err != nil {
		t.Fatal(err)
	}
	const want = "shop did not exit within 1ms of the request and was killed: busy"
	if err := c.stop(time.Millisecond); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestSuperviseFails: the failure of a supervised program is returned, and its directory is kept.
func TestSuperviseFails(t *testing.T) {
	dir := t.TempDir()
	input, end := io.Pipe()
	defer func() { _ = end.Close() }()
	err := Supervise(t.Context(), input, os.Stderr, dir, "/bin/sh", "-c", "exit 3")
	if _, statErr := os.Stat(dir); statErr != nil || err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error %v, stat %v; want exit status 3 and a directory", err, statErr)
	}
}

func TestEnvironment(t *testing.T) {
	got := plainEnvironment([]string{"HOME=/h", "SIBYL_CONFIG=x", "OTEL_SDK_DISABLED=true", "PATH=/bin"})
	if !slices.Equal(got, []string{"HOME=/h", "PATH=/bin"}) {
		t.Errorf("%q", got)
	}
}

func TestTable(t *testing.T) {
	var b strings.Builder
	at := func(seconds ...float64) (all []Incident) {
		for _, s := range seconds {
			all = append(all, Incident{Seconds: s})
		}
		return all
	}
	err := Table(&b, []*Result{
		{
			Fault:       shop.Lock,
			Correct:     true,
			Seconds:     10,
			Incidents:   at(8),
			Tracepoints: 200,
			EnabledEver: 4,
			EnabledPeak: 3,
			ExtraSpans:  0.1,
		},
		{
			Fault:            shop.Disk,
			Seconds:          180,
			Tracepoints:      200,
			EnabledEver:      30,
			EnabledPeak:      9,
			ExtraSpans:       0.3,
			RemainingEnabled: 2,
		},
		{
			Fault:       shop.Lock,
			Correct:     true,
			Seconds:     40,
			Incidents:   at(30, 50),
			Tracepoints: 200,
			EnabledEver: 10,
			EnabledPeak: 5,
			ExtraSpans:  0.05,
		},
		{
			Fault:       shop.Lock,
			Seconds:     20,
			Incidents:   at(9),
			Tracepoints: 200,
			EnabledEver: 6,
			EnabledPeak: 4,
			ExtraSpans:  0.2,
		},
	})
	want := `  fault  correct  incidents  max  opened  located    max  ever enabled     max  peak  extra spans  remaining
   lock   2 of 3          1    2     9 s     20 s   40 s         3.0 %   5.0 %     5       10.0 %          0
   disk   0 of 1          0    0       –    180 s  180 s        15.0 %  15.0 %     9       30.0 %          2
`
	if d := cmp.Diff(want, b.String()); err != nil || d != "" {
		t.Error(err, d)
	}
}

// TestOverhead: plans of the API convert to plans of agents, and figures are compared round by round.
func TestOverhead(t *testing.T) {
	half := 0.5
	p, enabled := agentPlan(&contract.Plan{Arms: []contract.Arm{
		{
			Name:        "a",
			Share:       &half,
			Tracepoints: []contract.PlannedTracepoint{{ID: "1", Name: "cart/total"}, {ID: "2", Name: "cart/tax"}},
		},
		{Name: "b", Share: &half, Tracepoints: []contract.PlannedTracepoint{{ID: "2", Name: "cart/tax"}}},
	}})
	if err := p.Validate(); err != nil || enabled != 2 || p.Arms[0].Tracepoints[0].ID != "cart/tax" ||
		p.Arms[1].Share != half {
		t.Errorf("%d enabled, plan %+v, %v; want a valid plan with 2", enabled, p, err)
	}
	for n, want := range map[int]int{1: 0, 5: 0, 6: 0, 8: 0, 9: 1, 20: 5, 25: 7} { // from tables of the sign test
		if got := signTestTrim(n); got != want {
			t.Errorf("signTestTrim(%d) = %d, want %d", n, got, want)
		}
	}
	o := &Overhead{
		Fault:     shop.Lock,
		Seed:      1,
		Rounds:    3,
		Seconds:   4,
		Customers: 16,
		Loads:     []*SelectionResult{{On: Nothing}, {On: Everything, Tracepoints: 7}},
	}
	o.runs = [][]measure{
		{{throughput: 100, p99: 10, cpu: 2}, {throughput: 50, p99: 20, cpu: 4}, {throughput: 200, p99: 5, cpu: 1}},
		{
			{throughput: 80, p99: 12, cpu: 3, extra: 6},
			{throughput: 45, p99: 30, cpu: 4, extra: 7},
			{throughput: 100, p99: 5, cpu: 2, extra: 8},
		},
	}
	o.compare()
	var b strings.Builder
	err := o.Table(&b)
	want := `16 customers without think time, 3 rounds of 4 s; adaptive is the largest plan of a search for lock (seed 1)

  enabled  tracepoints  extra spans/request  requests/s        ratio to none  P99, ms        ratio to none  CPU, ms/request        ratio to none
     none            0                  0.0       100.0  1.000 (1.000–1.000)     10.0  1.000 (1.000–1.000)             2.00  1.000 (1.000–1.000)
      all            7                  7.0        80.0  0.800 (0.500–0.900)     12.0  1.200 (1.000–1.500)             3.00  1.500 (1.000–2.000)
`
	if d := cmp.Diff(want, b.String()); err != nil || d != "" {
		t.Error(err, d)
	}
}
