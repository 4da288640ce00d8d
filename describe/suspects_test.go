package describe

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
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
			Comparison{
				Types:    3,
				Slower:   1,
				Suspects: suspects{{Service: bank, Score: 0.4, In: 0.4, From: shop}},
				Usual:    []float64{0.1},
			},
			"1 request type is slower since 02:41; all of the added latency is time between shop and bank, outside of the spans of both.",
		},
		{
			"failures on the way",
			Comparison{
				Types:    3,
				Suspects: suspects{{Service: bank, Score: 0.1, Unanswered: 0.1, From: shop}},
				Usual:    []float64{0.01},
			},
			"No request type is clearly slower since 02:41, but 10 more calls per 100 requests fail between shop and bank, which answers the others.",
		},
		{
			"own time, usual scores",
			Comparison{
				Types:    3,
				Slower:   1,
				Suspects: suspects{{Service: bank, Score: 0.4, Own: 0.4}},
				Usual:    []float64{0.9, 0.1, 0.3, 0.2},
			},
			"1 request type is slower since 02:41; all of the added latency is time in bank.",
		},
		{
			"errors and time in, to and from",
			Comparison{Types: 3, Suspects: suspects{{
				Service: bank,
				Score:   0.62,
				Own:     0.2,
				Rest:    0.1,
				Out:     0.2,
				Errors:  0.12,
			}}},
			"No request type is clearly slower since 02:41, but all of the added latency is time in, to and from bank (in it 40 %, to it 20 %, " +
				"from it 40 %); errors begin in bank, 12 more per 100 requests. This may be chance: the baseline is too short to tell how much " +
				"such scores vary.",
		},
		{
			"a score that is rounded to 0",
			Comparison{Types: 3, Suspects: suspects{{Service: bank, Score: 0.004, Own: 0.004}}},
			"Nothing stands out: no request type is clearly slower since 02:41, and no service takes longer or behaves otherwise than the " +
				"baseline explains. The waits of messages, and requests that stopped, are not compared.",
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
			Comparison{Types: 3, Suspects: suspects{{
				Service:    bank,
				Score:      0.06,
				Unanswered: 0.05,
				Shape:      0.01,
				Own:        1e-5,
			}}, Usual: []float64{0.01, 0.07, 0.08}},
			"No request type is clearly slower since 02:41, but bank does not answer 5.0 more calls per 100 requests; bank makes other calls " +
				"than in the baseline, 1.0 times per 100 requests. This may be chance: half of the baseline scores as much.",
		},
		{
			"added calls",
			Comparison{Types: 3, Slower: 1, Suspects: suspects{{
				Service: shop,
				Score:   3,
				Own:     0.5,
				Added:   1.5,
				Shape:   1,
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
				"baseline explains. The waits of messages, and requests that stopped, are not compared. 2 other request types have " +
				"too few requests to compare.",
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
			[]compare.Suspect{{
				Service: bank,
				Score:   0.36,
				In:      0.23,
				Out:     0.1,
				Errors:  0.03,
			}, {Service: shop, Score: 0.05, Own: 0.05}},
			0.3,
			"All requests take 38 % longer on average since 02:41; 87 % of the added latency is time to and from bank (to it 61 %, from it 26 %); errors begin in bank, 3.0 more per 100 requests.",
		},
		{
			[]compare.Suspect{{
				Service:    bank,
				Score:      0.24,
				Errors:     0.12,
				Unanswered: 0.08,
				Own:        0.04,
			}},
			0.06,
			"More calls fail since 02:41: all of the added latency is time in bank; errors begin in bank, 12 more per 100 requests; bank does not " +
				"answer 8.0 more calls per 100 requests.",
		},
		{
			[]compare.Suspect{{
				Service:    bank,
				Score:      0.24,
				Errors:     0.08,
				Unanswered: 0.12,
				Own:        0.04,
			}},
			-0.1,
			"More calls get no answer since 02:41: errors begin in bank, 8.0 more per 100 requests; bank does not answer 12 more calls per 100 requests.",
		},
		{
			[]compare.Suspect{{
				Service: shop,
				Score:   1.3,
				Added:   0.3,
				Shape:   1,
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
		if got := n.sentenceOf(incidentOf(c.longer, c.suspects...)); got != c.want {
			t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
		}
	}
}

// Requests fail only if a request type is known to fail more often: others may succeed without the failed call.
func TestRequestsFail(t *testing.T) {
	s := newShop()
	n, bank := s.names(), s.table.Symbol("bank")
	n.SetName(shopA, "shop A")
	n.SetName(shopB, "shop B")
	n.SetName(shopC, "shop C")
	fails := func(id analysis.Hash, requests uint64, failed float64) engine.AffectedType {
		return engine.AffectedType{
			RequestType: id, Requests: requests, Mean: 1e6, Usual: 1e6, Failed: failed, UsualFailed: 0.01,
		}
	}
	a, b, c := fails(shopA, 90, 0.13), fails(shopB, 90, 0.23), fails(shopC, 10, 0.99)
	down := compare.Suspect{Service: bank, Score: 0.2, Unanswered: 0.2}
	between := down
	between.From = s.table.Symbol("shop")
	for _, x := range []struct {
		of    compare.Suspect
		types []engine.AffectedType
		want  string
	}{
		{
			compare.Suspect{Service: bank, Score: 0.12, Errors: 0.12},
			[]engine.AffectedType{a},
			"13 % of the requests of shop A fail since 02:41, usually 1 %: errors begin in bank.",
		},
		{
			down,
			[]engine.AffectedType{b, a},
			"18 % of the requests of shop A and shop B fail since 02:41, usually 1 %: calls to bank get no answer.",
		},
		{
			between,
			[]engine.AffectedType{a, c, b},
			"22 % of the requests of 3 types, most of all shop B, fail since 02:41, usually 1 %: calls fail between shop and bank, " +
				"which answers the others.",
		},
	} {
		i := incidentOf(0, x.of)
		i.Types = x.types
		if got := n.sentenceOf(i); got != x.want {
			t.Errorf("got:\n%s\nwant:\n%s", got, x.want)
		}
	}
}

// The sentence about an incident that is over uses the past tense.
func TestIncidentThatIsOver(t *testing.T) {
	s := newShop()
	n, bank := s.names(), s.table.Symbol("bank")
	for _, c := range []struct {
		x    compare.Suspect
		want string
	}{
		{
			compare.Suspect{Service: bank, Score: 0.3, Own: 0.3},
			"All requests took 30 % longer on average between 02:41 and 02:50; all of the added latency is time in bank.",
		},
		{
			compare.Suspect{Service: bank, Score: 0.12, Errors: 0.12},
			"More calls failed between 02:41 and 02:50: errors began in bank, 12 more per 100 requests.",
		},
		{
			compare.Suspect{Service: bank, Score: 0.12, Unanswered: 0.12},
			"More calls got no answer between 02:41 and 02:50: bank did not answer 12 more calls per 100 requests.",
		},
	} {
		if got := n.sentenceOf(closed(incidentOf(0, c.x))); got != c.want {
			t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
		}
	}
}

// The sentence names a request type if the mean of all requests represents no single type.
func TestIncidentOfUnlikeTypes(t *testing.T) {
	s := newShop()
	n := s.names()
	n.SetName(shopA, "shop A")
	n.SetName(shopB, "shop B")
	n.SetName(shopC, "shop C")
	type types = []engine.AffectedType
	for _, c := range []struct {
		name   string
		slower types
		want   string
	}{
		{"no type", nil, "All requests take 39 % longer on average since 02:41"},
		{
			"alike",
			types{slower(shopB, 100, 140, 100), slower(shopA, 100, 130, 100)},
			"Requests of shop A and shop B take 35 % longer since 02:41",
		},
		{
			"one carries most",
			types{slower(shopB, 100, 82, 80), slower(shopA, 100, 2080, 80), slower(shopC, 900, 79, 80)},
			"Requests of shop A take 26 times as long since 02:41",
		},
		{"the only one", types{slower(shopA, 10, 180, 100)}, "Requests of shop A take 80 % longer since 02:41"},
		{
			"several",
			types{slower(shopA, 100, 300, 100), slower(shopB, 100, 290, 100), slower(shopC, 100, 280, 100)},
			"Requests of 3 types, most of all shop A, take 2.9 times as long since 02:41",
		},
		{
			"several, one of them far more",
			types{slower(shopA, 100, 300, 100), slower(shopB, 400, 145, 100), slower(shopC, 400, 140, 100)},
			"Requests of 3 types take longer since 02:41, those of shop A 3.0 times as long",
		},
		{
			"an extreme one that hardly counts",
			types{slower(shopA, 1, 900, 10), slower(shopB, 1000, 140, 100)},
			"Requests of shop A and shop B take 41 % longer since 02:41",
		},
	} {
		x := incidentOf(0.39, compare.Suspect{Service: s.table.Symbol("bank"), Score: 0.39, Own: 0.39})
		x.Types = c.slower
		if got, want := n.sentenceOf(x), c.want+"; all of the added latency is time in bank."; got != want {
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
	for want, got := range map[string]Sentence{
		"since 02:41":                                   Period(night, true, false),
		"between 02:41 and 03:05:07":                    Period(night, false, false),
		"since 2026-01-01 02:41":                        Period(night, true, true),
		"between 2026-01-01 02:41 and 03:05:07":         Period(night, false, true),
		"between 2026-01-01 23:00 and 2026-01-02 01:00": Period(over, false, true),
	} {
		if got.String() != want {
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
		Service:    s.table.Symbol("db"),
		Opaque:     true,
		Score:      0.5,
		Own:        0.1,
		In:         0.2,
		Rest:       0.2,
		Operations: []compare.SuspectOperation{{Op: query, Score: 0.4}, {Op: s.charge, Score: 0.1}},
		AddedCalls: []compare.AddedCall{{
			Op:     query,
			Caller: s.charge,
			Before: 1,
			Now:    3,
			Nanos:  2e6,
		}},
	})
	want := Suspect{
		Service: "db",
		Score:   0.5,
		Parts:   SuspectParts{Own: 0.1, In: 0.2, Rest: 0.2},
		Operations: []SuspectOperation{
			{
				Op:        query,
				Service:   "payment",
				Operation: "SELECT",
				Kind:      "client",
				Score:     0.4,
			},
			{
				Op:        s.charge,
				Service:   "payment",
				Operation: "POST",
				Kind:      "client",
				Target:    &Target{Service: "bank", Operation: "POST /charge"},
				Score:     0.1,
			},
		},
		AddedCalls: []AddedCall{{
			Name:   s.names().Op(query),
			Caller: s.names().Op(s.charge),
			Before: 1,
			Now:    3,
			Added:  2e6,
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
	const want = "All requests take 40 % longer on average since 02:41; all of the added latency is time in " +
		"(unnamed service)."
	if got := n.sentenceOf(incidentOf(0, of...)); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	const advice = "Look at the slow traces through (unnamed service)."
	if got := Advice(n, incidentOf(0, of...), nil, nil).String(); got != advice {
		t.Errorf("got %q, want %q", got, advice)
	}
}

// The sentence describes an operation if the total of all requests hardly changes, and also describes requests that
// have stopped.
func TestOperationSentence(t *testing.T) {
	s := newShop()
	n := s.names()
	stock := s.table.Op(s.table.Symbol("store"), s.table.Symbol("GET /stock"), trace.Server)
	query := s.table.Op(s.table.Symbol("payment"), s.table.Symbol("SELECT"), trace.Client)
	of := func(service string, x compare.Suspect, o compare.SuspectOperation) *engine.Incident {
		x.Service, x.Operations = s.table.Symbol(service), []compare.SuspectOperation{o}
		return incidentOf(0, x)
	}
	slow := compare.SuspectOperation{
		Op:     stock,
		Score:  0.004,
		Calls:  40,
		Excess: 8.1e6,
		Usual:  3.9e6,
	}
	crept := of("store", compare.Suspect{Score: 0.004, Own: 0.004}, slow)
	crept.Weeks = 1
	month := *crept
	month.Weeks = 4
	orders := s.table.Op(s.table.Symbol("orders"), s.table.Symbol("orders"), trace.External)
	late := of("billing", compare.Suspect{Score: 383, Own: 383},
		compare.SuspectOperation{
			Op:     orders,
			Queue:  true,
			Score:  383,
			Calls:  40,
			Excess: 29.98e9,
			Usual:  20e6,
		})
	over, weekly := closed(late), *late
	weekly.Weeks = 1
	for _, c := range []struct {
		of   *engine.Incident
		kind IncidentKind
		want string
	}{
		{late, Slow, "Messages wait 30 s in orders since 02:41, usually 20 ms, until billing takes them."},
		{
			over, Slow,
			"Messages waited 30 s in orders between 02:41 and 02:50, usually 20 ms, until billing took them.",
		},
		{&weekly, Crept, "Messages wait 30 s in orders since 02:41, 20 ms a week ago, until billing takes them."},
		{
			of("billing", compare.Suspect{Score: 0.3, Own: 0.3},
				compare.SuspectOperation{Op: orders, Queue: true, Score: 0.2}), Slow,
			"Messages wait longer in orders since 02:41 until billing takes them.",
		},
		{
			of("billing", compare.Suspect{Score: 0.3, Own: 0.3},
				compare.SuspectOperation{Op: orders, Queue: true, Score: 0.1}), Slow,
			"All requests take 30 % longer on average since 02:41; all of the added latency is time in billing.",
		},
		{
			of("store", compare.Suspect{Score: 0.004, Own: 0.004}, slow), Slow,
			"store GET /stock takes 3.1 times as long since 02:41: 12 ms a call, 3.9 ms before.",
		},
		{crept, Crept, "store GET /stock takes 3.1 times as long since 02:41: 12 ms a call, 3.9 ms a week ago."},
		{&month, Crept, "store GET /stock takes 3.1 times as long since 02:41: 12 ms a call, 3.9 ms 4 weeks ago."},
		{
			of("store", compare.Suspect{Score: 0.4, Own: 0.4}, slow), Slow,
			"All requests take 40 % longer on average since 02:41; all of the added latency is time in store.",
		},
		{
			of("db", compare.Suspect{Score: 0.004, Rest: 0.004, Opaque: true},
				compare.SuspectOperation{
					Op:     query,
					Score:  0.004,
					Calls:  40,
					Excess: 1e6,
					Usual:  2e6,
				}), Slow,
			"payment SELECT waits 50 % longer since 02:41: 3 ms a call, 2 ms before, for db, which emits no spans.",
		},
		{
			of("store", compare.Suspect{Score: 0.004, Errors: 0.004},
				compare.SuspectOperation{Op: stock, Score: 0.004, Calls: 40, Failed: 6}), Failing,
			"15 % of the calls of store GET /stock fail since 02:41.",
		},
		{
			of("store", compare.Suspect{Score: 0.3, Silent: 0.3},
				compare.SuspectOperation{
					Op:      stock,
					Score:   0.3,
					Calls:   40,
					Failed:  40,
					Stopped: 12.5,
				}), Silent,
			"store GET /stock gets no requests since 02:41; 12.5/s came steadily before.",
		},
		{
			of("store", compare.Suspect{Score: 0.3, Silent: 0.3},
				compare.SuspectOperation{Op: stock, Score: 0.3, Calls: 40, Failed: 40}), Silent,
			"store GET /stock gets no requests since 02:41; they came steadily before.",
		},
	} {
		got := NewIncident(n, c.of, beginning.Add(10*time.Minute))
		if got.Kind != c.kind {
			t.Errorf("%s: kind %s, want %s", c.want, got.Kind, c.kind)
		}
		if got := got.Sentence.String(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// The sentence about an instance that differs from its siblings describes the larger difference.
func TestUnequalSentence(t *testing.T) {
	s := newShop()
	u := compare.UnequalInstance{
		Service:  s.table.Symbol("cart"),
		Key:      s.table.Symbol("k8s.pod.name"),
		Value:    s.table.Symbol("cart-1"),
		Siblings: 5,
		Calls:    100,
		Nanos:    50e6,
		Usual:    10e6,
	}
	failing := u
	failing.Nanos, failing.Failed, failing.UsualFailed = 10e6, 0.3, 0.01
	for want, u := range map[string]*compare.UnequalInstance{
		"cart-1 (k8s.pod.name) of cart takes 5.0 times as long as its 5 siblings: 50 ms a call, they 10 ms.": &u,
		"30 % of the calls of cart-1 (k8s.pod.name) of cart fail, and 1 % of those of its 5 siblings.":       &failing,
	} {
		if got := Unequal(s.names(), u).String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// The size of an incident counts slower requests only. Slower requests come first, and a changed call flow only
// explains them.
func TestSizeOfIncident(t *testing.T) {
	s := newShop()
	n := s.names()
	n.SetName(shopA, "shop A")
	x := incidentOf(0, compare.Suspect{Service: s.table.Symbol("bank"), Score: 0.5, Own: 0.1, Shape: 0.4})
	x.Types = []engine.AffectedType{slower(shopA, 300, 32, 10), slower(shopB, 100, 9, 10)}
	d := NewIncident(n, x, beginning)
	if size := d.Size; size.Ratio() != 3.2 || size.Before != 10e6 || size.Now != 32e6 || size.Types != 1 {
		t.Errorf("size %+v, ratio %g", size, size.Ratio())
	}
	const want = "Requests of shop A take 3.2 times as long since 02:41; "
	if got := d.Sentence.String(); d.Kind != Slow || !strings.HasPrefix(got, want) ||
		!strings.Contains(got, "other calls") {
		t.Errorf("%s: %q, want %q first", d.Kind, got, want)
	}
	stream := slower(shopC, 20, 90e3, 60e3)
	stream.Long = true
	x.Types = append([]engine.AffectedType{stream}, x.Types...)
	if size := NewIncident(n, x, beginning).Size; size.Types != 1 || size.Now != 32e6 {
		t.Errorf("size %+v with a stream, want only the short requests", size)
	}
	x.Types = x.Types[:1]
	if size := NewIncident(n, x, beginning).Size; size.Types != 1 || size.Ratio() != 1.5 {
		t.Errorf("size %+v of a stream alone, want 1.5 times", size)
	}
	slight := incidentOf(0, compare.Suspect{Service: s.table.Symbol("bank"), Score: 0.004, Own: 0.004})
	if got := n.sentenceOf(slight); !strings.HasPrefix(got, "Requests take slightly longer since 02:41; ") {
		t.Errorf("a growth that rounds to nothing: %q", got)
	}
	x.Types = nil
	if size := NewIncident(n, x, beginning).Size; size != (Size{}) || size.Ratio() != 0 {
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
		x := incidentOf(0, compare.Suspect{Service: table.Symbol("orders"), Score: 1, Own: 1})
		x.Share, x.Types = c.affected, []engine.AffectedType{slower(shopA, 100, 200, 100)}
		if c.over {
			x = closed(x)
		}
		if got := n.sentenceOf(x); !strings.HasSuffix(got, c.end) {
			t.Errorf("%v: %q, want it to end in %q", c.affected, got, c.end)
		}
	}
}

// Only the rate is known for requests that have stopped. The durations and number of other requests say nothing about
// them.
func TestStopped(t *testing.T) {
	n := New(&trace.Table{}, Verbatim)
	x := incidentOf(0, compare.Suspect{
		Score:      0.3,
		Silent:     0.3,
		Operations: []compare.SuspectOperation{{Calls: 40, Failed: 40, Stopped: 12.5}},
	})
	x.Share, x.Types = 0.05, []engine.AffectedType{slower(shopA, 100, 2, 1)}
	d := NewIncident(n, x, beginning)
	if d.Stopped != 12.5 || d.Size.Types != 0 || strings.Contains(d.Sentence.String(), "affects") {
		t.Errorf("%g requests per second came before, size %+v: %q", d.Stopped, d.Size, d.Sentence)
	}
	x.Suspects[0] = compare.Suspect{Score: 0.3, Own: 0.3}
	if d := NewIncident(n, x, beginning); d.Stopped != 0 || d.Size.Types != 1 {
		t.Errorf("slow: %g requests per second came before, size %+v", d.Stopped, d.Size)
	}
}

// The phrases of a sentence that are data say so: names, numbers and times.
func TestPhrases(t *testing.T) {
	s := newShop()
	n := s.names()
	n.SetName(shopA, "shop since 02:41")
	x := closed(incidentOf(0, compare.Suspect{Service: s.table.Symbol("bank"), Score: 0.5, Own: 0.5}))
	x.Types = []engine.AffectedType{slower(shopA, 300, 32, 10)}
	want := Sentence{
		{Text: "Requests of ", Kind: WordsPhrase},
		{Text: "shop since 02:41", Kind: NamePhrase},
		{Text: " took ", Kind: WordsPhrase},
		{Text: "3.2 times as long", Kind: NumberPhrase},
		{Text: " between ", Kind: WordsPhrase},
		{Text: "02:41", Kind: TimePhrase, At: beginning},
		{Text: " and ", Kind: WordsPhrase},
		{Text: "02:50", Kind: TimePhrase, At: beginning.Add(9 * time.Minute)},
		{Text: "; ", Kind: WordsPhrase},
		{Text: "all", Kind: NumberPhrase},
		{Text: " of the added latency is time in ", Kind: WordsPhrase},
		{Text: "bank", Kind: NamePhrase},
		{Text: ".", Kind: WordsPhrase},
	}
	d := NewIncident(n, x, beginning)
	if diff := cmp.Diff(want, d.Sentence.Parts()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !strings.Contains(d.Sentence.String(), "all of the added latency") || d.Ending.String() != "back to normal" {
		t.Errorf("got %q, and it closed: %q", d.Sentence, d.Ending)
	}
}

// beginning is the onset of incidents in tests.
const beginning = trace.Nanos((2*60 + 41) * time.Minute)

// Request types in tests.
var shopA, shopB, shopC = analysis.Hash{Lo: 11}, analysis.Hash{Lo: 12}, analysis.Hash{Lo: 13}

// slower returns an affected request type; its times are in ms.
func slower(id analysis.Hash, requests uint64, mean, usual float64) engine.AffectedType {
	return engine.AffectedType{RequestType: id, Requests: requests, Mean: mean * 1e6, Usual: usual * 1e6}
}

// incidentOf returns an open incident during which requests take longer by a share.
func incidentOf(longer float64, suspects ...compare.Suspect) *engine.Incident {
	return &engine.Incident{Incident: incident.Incident{
		Onset: beginning, Suspects: suspects, Duration: 100e6, Mean: 100e6 * (1 + longer),
	}}
}

// closed returns x after it ended, nine minutes after its onset.
func closed(x *engine.Incident) *engine.Incident {
	over := *x
	over.Seen = beginning.Add(9 * time.Minute)
	over.History = nil
	over.Enter(incident.Transition{At: beginning})
	over.Enter(incident.Transition{At: over.Seen.Add(time.Minute), State: incident.Closed, Why: incident.Recovered})
	return &over
}

func (n *Names) sentenceOf(x *engine.Incident) string {
	return NewIncident(n, x, beginning.Add(10*time.Minute)).Sentence.String()
}
