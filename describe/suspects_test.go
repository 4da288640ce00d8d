package describe

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

func TestComparison(t *testing.T) {
	s := newShop()
	n := s.names()
	bank, payment, shop := s.table.Symbol("bank"), s.table.Symbol("payment"), s.table.Symbol("shop")
	type suspects = []compare.Suspect
	for _, c := range []struct {
		name string
		of   Comparison
		want string
	}{
		{
			"times to and from",
			Comparison{Types: 20, Slower: 12, Suspects: suspects{
				{Service: bank, Score: 0.86, In: 0.61, Out: 0.25}, {Service: shop, Score: 0.14, Own: 0.14},
			}},
			"12 request types are slower since 02:41; 86 % of the added latency is time to and from bank (to it 61 %, from it 25 %).",
		},
		{
			"time on the way",
			Comparison{Types: 3, Slower: 1, Suspects: suspects{{Service: bank, Score: 0.4, In: 0.4, From: shop}}, Usual: []float64{0.1}},
			"1 request type is slower since 02:41; all of the added latency is time between shop and bank, outside of the spans of both.",
		},
		{
			"failures on the way",
			Comparison{Types: 3, Suspects: suspects{{Service: bank, Score: 0.1, Unanswered: 0.1, From: shop}}, Usual: []float64{0.01}},
			"No request type is clearly slower since 02:41, but 10 more calls per 100 requests fail between shop and bank, which answers the others.",
		},
		{
			"own time, usual scores",
			Comparison{Types: 3, Slower: 1, Suspects: suspects{{Service: bank, Score: 0.4, Own: 0.4}}, Usual: []float64{0.9, 0.1, 0.3, 0.2}},
			"1 request type is slower since 02:41; all of the added latency is time in bank.",
		},
		{
			"errors and time in, to and from",
			Comparison{Types: 3, Suspects: suspects{{Service: bank, Score: 0.62, Own: 0.2, Rest: 0.1, Out: 0.2, Errors: 0.12}}},
			"No request type is clearly slower since 02:41, but all of the added latency is time in, to and from bank (in it 40 %, to it 20 %, " +
				"from it 40 %); errors begin in bank, 12 more per 100 requests. This may be chance: the baseline is too short to tell how much " +
				"such scores vary.",
		},
		{
			"a score that is rounded to 0",
			Comparison{Types: 3, Suspects: suspects{{Service: bank, Score: 0.004, Own: 0.004}}},
			"Nothing stands out: no request type is clearly slower since 02:41, and no service takes longer or behaves otherwise than the " +
				"baseline explains.",
		},
		{
			"calls to a service without spans",
			Comparison{Types: 3, Slower: 1, Suspects: suspects{
				{Service: payment, Score: 0.5, Own: 0.5, Shared: []compare.SharedPart{{Service: bank, Score: 0.5}}},
				{Service: bank, Opaque: true, Score: 0.48, Rest: 0.48},
			}},
			"1 request type is slower since 02:41; all of the added latency is time in payment, in calls to bank, which emits no spans.",
		},
		{
			"shape and unanswered calls",
			Comparison{Types: 3, Suspects: suspects{{Service: bank, Score: 0.06, Unanswered: 0.05, Shape: 0.01, Own: 1e-5}}, Usual: []float64{0.01, 0.07, 0.08}},
			"No request type is clearly slower since 02:41, but bank does not answer 5.0 more calls per 100 requests; bank makes other calls " +
				"than in the baseline, 1.0 times per 100 requests. This may be chance: half of the baseline scores as much.",
		},
		{
			"added calls",
			Comparison{Types: 3, Slower: 1, Suspects: suspects{{
				Service: shop, Score: 3, Own: 0.5, Added: 1.5, Shape: 1,
				AddedCalls: []compare.AddedCall{{
					Op:     s.table.Op(bank, s.table.Symbol("GET /rates"), trace.Server),
					Before: 2, Now: 41, Nanos: 232e6,
				}},
			}}, Usual: []float64{0.1, 0.1, 0.1, 0.1}},
			"1 request type is slower since 02:41; all of the added latency is time in shop and in calls that it adds (in it 25 %, in added calls 75 %); " +
				"shop calls bank GET /rates 41 times instead of 2, +232 ms.",
		},
		{
			"a service without spans is counted once",
			Comparison{Types: 3, Slower: 2, Unjudged: 1, Suspects: suspects{
				{Service: bank, Opaque: true, Score: 0.5, Rest: 0.5}, {Service: payment, Score: 0.5, Own: 0.5},
			}},
			"2 request types are slower since 02:41; all of the added latency is time to bank, which emits no spans. " +
				"1 other request type has too few requests to compare.",
		},
		{
			"nothing",
			Comparison{Types: 3, Unjudged: 2, Suspects: suspects{{Service: bank}}},
			"Nothing stands out: no request type is clearly slower since 02:41, and no service takes longer or behaves otherwise than the " +
				"baseline explains. 2 other request types have too few requests to compare.",
		},
		{
			"no suspect",
			Comparison{Types: 3, Slower: 2},
			"2 request types are slower since 02:41, but no service accounts for it.",
		},
		{
			"nothing to compare",
			Comparison{Types: 2, Unjudged: 2, Suspects: suspects{{Service: bank}}},
			"Nothing can be compared: no request type has enough requests both in the window and in the baseline.",
		},
	} {
		c.of.When = "since 02:41"
		if diff := cmp.Diff(c.want, c.of.Sentence(n).String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestIncident(t *testing.T) {
	s := newShop()
	n := s.names()
	bank, shop := s.table.Symbol("bank"), s.table.Symbol("shop")
	version := s.table.Symbol("service.version")
	for _, c := range []struct {
		suspects []compare.Suspect
		longer   float64
		want     string
	}{
		{
			[]compare.Suspect{{Service: bank, Score: 0.36, In: 0.23, Out: 0.1, Errors: 0.03}, {Service: shop, Score: 0.05, Own: 0.05}},
			0.3,
			"All requests take 38 % longer on average since 02:41; 87 % of the added latency is time to and from bank (to it 61 %, from it 26 %); errors begin in bank, 3.0 more per 100 requests.",
		},
		{
			[]compare.Suspect{{Service: bank, Score: 0.24, Errors: 0.12, Unanswered: 0.08, Own: 0.04}},
			0.06,
			"More requests fail since 02:41: all of the added latency is time in bank; errors begin in bank, 12 more per 100 requests; bank does not " +
				"answer 8.0 more calls per 100 requests.",
		},
		{
			[]compare.Suspect{{Service: bank, Score: 0.24, Errors: 0.08, Unanswered: 0.12, Own: 0.04}},
			-0.1,
			"More calls get no answer since 02:41: errors begin in bank, 8.0 more per 100 requests; bank does not answer 12 more calls per 100 requests.",
		},
		{
			[]compare.Suspect{{
				Service: shop, Score: 1.3, Added: 0.3, Shape: 1,
				AddedCalls: []compare.AddedCall{{
					Op:     s.table.Op(bank, s.table.Symbol("GET /rates"), trace.Server),
					Before: 1, Now: 2.5, Nanos: 30e6,
				}},
			}},
			0.3,
			"All requests take 30 % longer on average since 02:41; all of the added latency is time in calls that shop adds; shop calls bank GET /rates " +
				"2.5 times instead of once, +30 ms.",
		},
		{
			[]compare.Suspect{{
				Service: shop, Score: 0.3, Added: 0.3,
				AddedCalls: []compare.AddedCall{{
					Op:  s.table.Op(bank, s.table.Symbol("GET /rates"), trace.Server),
					Now: 1, Nanos: 30e6,
				}},
			}},
			0.3,
			"All requests take 30 % longer on average since 02:41; all of the added latency is time in calls that shop adds; shop calls bank GET /rates " +
				"once, which it did not call before, +30 ms.",
		},
		{
			[]compare.Suspect{{Service: bank, Score: 0.3, Own: 0.3, Shape: 0.1}},
			0.3,
			"All requests take 30 % longer on average since 02:41; all of the added latency is time in bank; bank makes other calls than before, " +
				"10 times per 100 requests.",
		},
		{
			[]compare.Suspect{{Service: bank, Score: 0.3, Own: 0.3, Instances: []compare.InstancePart{
				{Key: version, Value: s.table.Symbol("1.8.2"), Part: 0.98, Of: 2},
				{Key: s.table.Symbol("service.instance.id"), Value: s.table.Symbol("bank-7"), Part: 0.95, Of: 12},
				{Key: s.table.Symbol("host.name"), Value: s.table.Symbol("node-3"), Part: 0.9, Of: 4},
			}}},
			0.3,
			"All requests take 30 % longer on average since 02:41; all of the added latency is time in bank, on bank-7, 1 of its 12 instances, only version 1.8.2.",
		},
		{
			[]compare.Suspect{{Service: bank, Score: 0.3, Own: 0.3, Instances: []compare.InstancePart{
				{Key: s.table.Symbol("cloud.availability_zone"), Value: s.table.Symbol("zone-b"), Part: 0.85, Of: 3},
				{Key: version, Value: s.table.Symbol("1.8.2"), Part: 0.7, Of: 2},
			}}},
			0.3,
			"All requests take 30 % longer on average since 02:41; all of the added latency is time in bank, in zone-b, 1 of its 3 zones.",
		},
		{nil, 0, "Requests are slower or fail more often since 02:41, but no service accounts for it."},
	} {
		if got := n.Incident(&Incident{When: "since 02:41", Suspects: c.suspects, Longer: c.longer}).String(); got != c.want {
			t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
		}
	}
}

// The sentence about an incident that is over uses the past tense.
func TestIncidentThatIsOver(t *testing.T) {
	s := newShop()
	n, bank := s.names(), s.table.Symbol("bank")
	for want, x := range map[string]compare.Suspect{
		"All requests took 30 % longer on average between 02:41 and 02:50; all of the added latency is time in bank.": {Service: bank, Score: 0.3, Own: 0.3},
		"More requests failed between 02:41 and 02:50: errors began in bank, 12 more per 100 requests.":               {Service: bank, Score: 0.12, Errors: 0.12},
		"More calls got no answer between 02:41 and 02:50: bank did not answer 12 more calls per 100 requests.":       {Service: bank, Score: 0.12, Unanswered: 0.12},
	} {
		if got := n.Incident(&Incident{
			When:     "between 02:41 and 02:50",
			Suspects: []compare.Suspect{x}, Over: true,
		}).String(); got != want {
			t.Errorf("got:\n%s\nwant:\n%s", got, want)
		}
	}
}

// The sentence names a request type if the mean of all requests represents no single type.
func TestIncidentOfUnlikeTypes(t *testing.T) {
	s := newShop()
	n := s.names()
	type types = []SlowerType
	const ms = 1e6
	for _, c := range []struct {
		name   string
		slower types
		want   string
	}{
		{"no type", nil, "All requests take 39 % longer on average since 02:41"},
		{"alike", types{{"shop B", 100, 140 * ms, 100 * ms}, {"shop A", 100, 130 * ms, 100 * ms}}, "Requests of shop A and shop B take 35 % longer since 02:41"},
		{
			"one carries most",
			types{{"shop B", 100, 82 * ms, 80 * ms}, {"shop A", 100, 2080 * ms, 80 * ms}, {"shop C", 900, 79 * ms, 80 * ms}},
			"Requests of shop A take 26 times as long since 02:41",
		},
		{"the only one", types{{"shop A", 10, 180 * ms, 100 * ms}}, "Requests of shop A take 80 % longer since 02:41"},
		{
			"several",
			types{{"shop A", 100, 300 * ms, 100 * ms}, {"shop B", 100, 290 * ms, 100 * ms}, {"shop C", 100, 280 * ms, 100 * ms}},
			"Requests of 3 types, most of all shop A, take 2.9 times as long since 02:41",
		},
		{
			"several, one of them far more",
			types{{"shop A", 100, 300 * ms, 100 * ms}, {"shop B", 400, 145 * ms, 100 * ms}, {"shop C", 400, 140 * ms, 100 * ms}},
			"Requests of 3 types take longer since 02:41, those of shop A 3.0 times as long",
		},
		{
			"an extreme one that hardly counts",
			types{{"shop A", 1, 900 * ms, 10 * ms}, {"shop B", 1000, 140 * ms, 100 * ms}},
			"Requests of shop A and shop B take 41 % longer since 02:41",
		},
	} {
		x := &Incident{
			When:     "since 02:41",
			Longer:   0.39,
			Slower:   c.slower,
			Suspects: []compare.Suspect{{Service: s.table.Symbol("bank"), Score: 0.39, Own: 0.39}},
		}
		if got, want := n.Incident(x).String(), c.want+"; all of the added latency is time in bank."; got != want {
			t.Errorf("%s: got:\n%s\nwant:\n%s", c.name, got, want)
		}
	}
}

func TestPeriod(t *testing.T) {
	at := func(text string) trace.Nanos {
		x, err := time.Parse(time.DateTime, text)
		if err != nil {
			t.Fatal(err)
		}
		return trace.Nanos(x.UnixNano())
	}
	night := history.Interval{From: at("2026-01-01 02:41:00"), To: at("2026-01-01 03:05:07")}
	midnight := history.Interval{From: at("2026-01-01 23:00:00"), To: at("2026-01-02 00:00:00")}
	over := history.Interval{From: at("2026-01-01 23:00:00"), To: at("2026-01-02 01:00:00")}
	for want, got := range map[string]string{
		"since 02:41":                                   Period(night, true, false),
		"between 02:41 and 03:05:07":                    Period(night, false, false),
		"since 2026-01-01 02:41":                        Period(night, true, true),
		"between 2026-01-01 02:41 and 03:05:07":         Period(night, false, true),
		"between 2026-01-01 23:00 and 2026-01-02 01:00": Period(over, false, true),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if !OneDay(night, midnight) || OneDay(night, over) {
		t.Errorf("one day: got %v and %v, want true and false", OneDay(night, midnight), OneDay(night, over))
	}
}

func TestSuspect(t *testing.T) {
	s := newShop()
	query := s.table.Op(s.table.Symbol("payment"), s.table.Symbol("SELECT"), trace.Client)
	got := NewSuspect(s.names(), &compare.Suspect{
		Service: s.table.Symbol("db"), Opaque: true, Score: 0.5, Own: 0.1, In: 0.2, Rest: 0.2,
		Operations: []compare.SuspectOperation{{Op: query, Score: 0.4}, {Op: s.charge, Score: 0.1}},
		AddedCalls: []compare.AddedCall{{Op: query, Caller: s.charge, Before: 1, Now: 3, Nanos: 2e6}},
	})
	want := Suspect{
		Service: "db", Score: 0.5, Parts: SuspectParts{Own: 0.1, In: 0.2, Rest: 0.2},
		Operations: []SuspectOperation{
			{Op: query, Service: "payment", Operation: "SELECT", Kind: "client", Score: 0.4},
			{Op: s.charge, Service: "payment", Operation: "POST", Kind: "client", Target: &Target{Service: "bank", Operation: "POST /charge"}, Score: 0.1},
		},
		AddedCalls: []AddedCall{{
			Name:   s.names().Op(query),
			Caller: s.names().Op(s.charge), Before: 1, Now: 3, Added: 2e6,
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The service of spans without service.name has no name.
func TestUnnamedService(t *testing.T) {
	s := newShop()
	n := s.names()
	of := []compare.Suspect{{Service: s.table.Symbol(""), Score: 0.4, Own: 0.4}}
	const want = "All requests take 40 % longer on average since 02:41; all of the added latency is time in (unnamed service)."
	if got := n.Incident(&Incident{When: "since 02:41", Suspects: of}).String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := n.Advice(&Advice{Suspects: of}), "Look at the slow traces through (unnamed service)."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The sentence describes an operation if the total of all requests hardly changes, and also describes requests that
// have stopped.
func TestOperationSentence(t *testing.T) {
	s := newShop()
	n := s.names()
	stock := s.table.Op(s.table.Symbol("store"), s.table.Symbol("GET /stock"), trace.Server)
	query := s.table.Op(s.table.Symbol("payment"), s.table.Symbol("SELECT"), trace.Client)
	of := func(service string, x compare.Suspect, o compare.SuspectOperation) *Incident {
		x.Service, x.Operations = s.table.Symbol(service), []compare.SuspectOperation{o}
		return &Incident{When: "since 02:41", Suspects: []compare.Suspect{x}}
	}
	slow := compare.SuspectOperation{Op: stock, Score: 0.004, Calls: 40, Excess: 8.1e6, Usual: 3.9e6}
	crept := of("store", compare.Suspect{Score: 0.004, Own: 0.004}, slow)
	crept.Weeks = 1
	month := *crept
	month.Weeks = 4
	orders := s.table.Op(s.table.Symbol("orders"), s.table.Symbol("orders"), trace.External)
	late := of("billing", compare.Suspect{Score: 383, Own: 383},
		compare.SuspectOperation{Op: orders, Queue: true, Score: 383, Calls: 40, Excess: 29.98e9, Usual: 20e6})
	over, weekly := *late, *late
	over.Over, weekly.Weeks = true, 1
	for want, x := range map[string]struct {
		of   *Incident
		kind IncidentKind
	}{
		"Messages wait 30 s in orders since 02:41, usually 20 ms, until billing takes them.":    {late, Slow},
		"Messages waited 30 s in orders since 02:41, usually 20 ms, until billing took them.":   {&over, Slow},
		"Messages wait 30 s in orders since 02:41, 20 ms a week ago, until billing takes them.": {&weekly, Crept},
		"Messages wait longer in orders since 02:41 until billing takes them.": {of("billing", compare.Suspect{Score: 0.3, Own: 0.3},
			compare.SuspectOperation{Op: orders, Queue: true, Score: 0.2}), Slow},
		"All requests take 30 % longer on average since 02:41; all of the added latency is time in billing.": {of("billing", compare.Suspect{Score: 0.3, Own: 0.3},
			compare.SuspectOperation{Op: orders, Queue: true, Score: 0.1}), Slow},
		"store GET /stock takes 3.1 times as long since 02:41: 12 ms a call, 3.9 ms before.":               {of("store", compare.Suspect{Score: 0.004, Own: 0.004}, slow), Slow},
		"store GET /stock takes 3.1 times as long since 02:41: 12 ms a call, 3.9 ms a week ago.":           {crept, Crept},
		"store GET /stock takes 3.1 times as long since 02:41: 12 ms a call, 3.9 ms 4 weeks ago.":          {&month, Crept},
		"All requests take 40 % longer on average since 02:41; all of the added latency is time in store.": {of("store", compare.Suspect{Score: 0.4, Own: 0.4}, slow), Slow},
		"payment SELECT waits 50 % longer since 02:41: 3 ms a call, 2 ms before, for db, which emits no spans.": {of("db", compare.Suspect{Score: 0.004, Rest: 0.004, Opaque: true},
			compare.SuspectOperation{Op: query, Score: 0.004, Calls: 40, Excess: 1e6, Usual: 2e6}), Slow},
		"15 % of the calls of store GET /stock fail since 02:41.": {of("store", compare.Suspect{Score: 0.004, Errors: 0.004},
			compare.SuspectOperation{Op: stock, Score: 0.004, Calls: 40, Failed: 6}), Failing},
		"store GET /stock gets no requests since 02:41; 12.5/s came steadily before.": {of("store", compare.Suspect{Score: 0.3, Silent: 0.3},
			compare.SuspectOperation{Op: stock, Score: 0.3, Calls: 40, Failed: 40, Stopped: 12.5}), Silent},
		"store GET /stock gets no requests since 02:41; they came steadily before.": {of("store", compare.Suspect{Score: 0.3, Silent: 0.3},
			compare.SuspectOperation{Op: stock, Score: 0.3, Calls: 40, Failed: 40}), Silent},
	} {
		if got := x.of.Kind(); got != x.kind {
			t.Errorf("%s: kind %s, want %s", want, got, x.kind)
		}
		if got := n.Incident(x.of).String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// The sentence about an instance that differs from its siblings describes the larger difference.
func TestUnequalSentence(t *testing.T) {
	s := newShop()
	u := compare.UnequalInstance{
		Service: s.table.Symbol("cart"), Key: s.table.Symbol("k8s.pod.name"), Value: s.table.Symbol("cart-1"), Siblings: 5, Calls: 100, Nanos: 50e6, Usual: 10e6,
	}
	failing := u
	failing.Nanos, failing.Failed, failing.UsualFailed = 10e6, 0.3, 0.01
	for want, u := range map[string]*compare.UnequalInstance{
		"cart-1 (k8s.pod.name) of cart takes 5.0 times as long as its 5 siblings: 50 ms a call, they 10 ms.": &u,
		"30 % of the calls of cart-1 (k8s.pod.name) of cart fail, and 1 % of those of its 5 siblings.":       &failing,
	} {
		if got := Unequal(s.names(), u); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// The size of an incident counts slower requests only. Slower requests come first, and a changed call flow only
// explains them.
func TestSizeOfIncident(t *testing.T) {
	const ms = 1e6
	s := newShop()
	n := s.names()
	x := &Incident{
		When:     "since 02:41",
		Suspects: []compare.Suspect{{Service: s.table.Symbol("bank"), Score: 0.5, Own: 0.1, Shape: 0.4}},
		Slower:   []SlowerType{{"shop A", 300, 32 * ms, 10 * ms}, {"shop B", 100, 9 * ms, 10 * ms}},
	}
	if size := x.Size(); size.Ratio() != 3.2 || size.Before != 10*ms || size.Now != 32*ms || size.Types != 1 {
		t.Errorf("size %+v, ratio %g", size, size.Ratio())
	}
	const want = "Requests of shop A take 3.2 times as long since 02:41; "
	if got := n.Incident(x).String(); x.Kind() != Slow ||
		!strings.HasPrefix(got, want) || !strings.Contains(got, "other calls") {
		t.Errorf("%s: %q, want %q first", x.Kind(), got, want)
	}
	x.Slower = nil
	if size := x.Size(); size != (Size{}) || size.Ratio() != 0 {
		t.Errorf("size %+v without a slower type", size)
	}
}

// A sentence states that an incident affects few of the requests.
func TestIncidentOfFewRequests(t *testing.T) {
	table := &trace.Table{}
	n := New(table, Verbatim)
	for _, c := range []struct {
		affected float64
		over     bool
		end      string
	}{
		{0, false, "orders."},
		{0.1, false, "orders."},
		{0.031, false, "orders. It affects 3.1 % of the requests."},
		{0.002, true, "orders. It affected 0.2 % of the requests."},
	} {
		x := &Incident{
			When:     "since 09:00",
			Suspects: []compare.Suspect{{Service: table.Symbol("orders"), Score: 1, Own: 1}},
			Affected: c.affected,
			Over:     c.over,
			Slower:   []SlowerType{{Name: "GET /cart", Requests: 100, Mean: 2e8, Usual: 1e8}},
		}
		if got := n.Incident(x).String(); !strings.HasSuffix(got, c.end) {
			t.Errorf("%v: %q, want it to end in %q", c.affected, got, c.end)
		}
	}
}

// Only the rate is known for requests that have stopped. The durations and number of other requests say nothing about
// them.
func TestStopped(t *testing.T) {
	x := &Incident{
		When:     "since 02:41",
		Affected: 0.05,
		Slower:   []SlowerType{{Name: "GET /cart", Requests: 100, Mean: 2e6, Usual: 1e6}},
		Suspects: []compare.Suspect{{
			Score:      0.3,
			Silent:     0.3,
			Operations: []compare.SuspectOperation{{Calls: 40, Failed: 40, Stopped: 12.5}},
		}},
	}
	text := New(&trace.Table{}, Verbatim).Incident(x).String()
	if size := x.Size(); x.Stopped() != 12.5 || size.Types != 0 || strings.Contains(text, "affects") {
		t.Errorf("%g requests per second came before, size %+v: %q", x.Stopped(), size, text)
	}
	x.Suspects[0] = compare.Suspect{Score: 0.3, Own: 0.3}
	if size := x.Size(); x.Stopped() != 0 || size.Types != 1 {
		t.Errorf("slow: %g requests per second came before, size %+v", x.Stopped(), size)
	}
}
