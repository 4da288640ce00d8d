package backtest

import (
	"cmp"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/trace"
)

// untidy generates traces that aren't tidy trees, with one request per second for forty minutes. In the last ten
// minutes, something takes longer.
type untidy struct {
	table  *trace.Table
	rng    *rand.Rand
	traces []*trace.Trace
	spans  trace.SpanID // number of spans so far

	t      *trace.Trace  // current trace
	faulty bool          // whether the fault is active
	unseen string        // a service that exports no spans
	skew   time.Duration // of the clock of mobile-app
}

const (
	untidyLasts = 40 * time.Minute
	faultAfter  = 30 * time.Minute
	untidyFrom  = trace.Nanos(1_700_000_000_000_000_000)
	ms          = time.Millisecond
)

func newUntidy() *untidy { return &untidy{table: &trace.Table{}, rng: rand.New(rand.NewPCG(1, 2))} }

// begin starts a trace.
func (u *untidy) begin() {
	u.t = &trace.Trace{}
	binary.BigEndian.PutUint64(u.t.ID[:], u.rng.Uint64())
	binary.BigEndian.PutUint64(u.t.ID[8:], u.rng.Uint64()|1)
	u.traces = append(u.traces, u.t)
}

// id returns the ID of the next span.
func (u *untidy) id() trace.SpanID {
	u.spans++
	return u.spans
}

// span adds a span to the current trace, unless its service doesn't export spans.
func (u *untidy) span(id, parent trace.SpanID, service, name string, kind trace.Kind, from, to trace.Nanos) {
	if service == u.unseen {
		return
	}
	symbol := u.table.Symbol(service)
	s := trace.Span{
		ID:      id,
		Parent:  parent,
		Start:   from,
		End:     to,
		Service: symbol,
		Kind:    kind,
	}
	s.Op = u.table.Op(symbol, u.table.Symbol(name), kind)
	if kind == trace.Producer {
		s.Peer = u.table.Op(u.table.Symbol("orders"), u.table.Symbol("orders"), trace.External)
	}
	if service == "mobile-app" {
		s.Start, s.End = from.Add(u.skew), to.Add(u.skew)
	}
	u.t.Spans = append(u.t.Spans, s)
}

// about returns a duration that varies by ±20 %.
func (u *untidy) about(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*u.rng.Float64()))
}

// either returns usual, or faulty while the fault is active.
func (u *untidy) either(usual, faulty time.Duration) time.Duration {
	if u.faulty {
		return u.about(faulty)
	}
	return u.about(usual)
}

// serve adds the span of service, which is called at time `at` and works for work, and returns the end of the call.
// body adds the spans inside and returns when they end; it may be nil.
func (u *untidy) serve(
	parent trace.SpanID, service, name string, at trace.Nanos, work time.Duration,
	body func(id trace.SpanID, at trace.Nanos) trace.Nanos,
) (end trace.Nanos) {
	id, from := u.id(), at.Add(ms)
	end = from.Add(u.about(work / 2))
	if body != nil {
		end = body(id, end)
	}
	end = end.Add(u.about(work / 2))
	u.span(id, parent, service, name, trace.Server, from, end)
	return end.Add(ms)
}

// call adds a CLIENT span and the service that it calls.
func (u *untidy) call(
	parent trace.SpanID, service string, at trace.Nanos, serve func(id trace.SpanID, at trace.Nanos) trace.Nanos,
) (end trace.Nanos) {
	id := u.id()
	end = serve(id, at)
	u.span(id, parent, service, "GET", trace.Client, at, end)
	return end
}

// api adds the span of api below a call. The fault is in its database.
func (u *untidy) api(parent trace.SpanID, at trace.Nanos) (end trace.Nanos) {
	return u.serve(parent, "api", "GET /cart", at, 8*ms, func(id trace.SpanID, at trace.Nanos) trace.Nanos {
		end := at.Add(u.either(20*ms, 120*ms))
		u.span(u.id(), id, "api", "SELECT", trace.Client, at, end)
		return end
	})
}

// web adds the span of web, which calls api, below a call.
func (u *untidy) web(parent trace.SpanID, at trace.Nanos) (end trace.Nanos) {
	return u.serve(parent, "web", "GET /cart", at, 14*ms, func(id trace.SpanID, at trace.Nanos) trace.Nanos {
		return u.call(id, "web", at, u.api)
	})
}

// request adds a tidy request.
func (u *untidy) request(at trace.Nanos) { u.web(0, at) }

// streams returns requests that run while n event streams of web, of about the given length, are open.
func (u *untidy) streams(n int, length time.Duration) func(at trace.Nanos) {
	return func(at trace.Nanos) {
		u.request(at)
		if u.rng.Float64() < float64(n)/untidyLasts.Seconds() {
			u.begin()
			u.span(u.id(), 0, "web", "GET /events", trace.Server, at,
				at.Add(time.Duration(u.rng.ExpFloat64()*float64(length))))
		}
	}
}

// behindIngress adds a request through an ingress whose spans all have the same name. One request in ten is a stream.
func (u *untidy) behindIngress(at trace.Nanos) {
	u.serve(0, "ingress", "proxy", at, ms, func(id trace.SpanID, at trace.Nanos) trace.Nanos {
		if u.rng.IntN(10) > 0 {
			return u.web(id, at)
		}
		end := at.Add(u.about(40 * time.Second))
		u.span(u.id(), id, "web", "GET /events", trace.Server, at, end)
		return end
	})
}

// gateway adds a request through a gateway that exports no spans.
func (u *untidy) gateway(at trace.Nanos) {
	u.unseen = "gateway"
	u.serve(0, "web", "GET /cart", at, 14*ms, func(id trace.SpanID, at trace.Nanos) trace.Nanos {
		return u.call(id, "web", at, func(id trace.SpanID, at trace.Nanos) trace.Nanos {
			return u.serve(id, "gateway", "GET", at, ms, func(id trace.SpanID, at trace.Nanos) trace.Nanos {
				return u.call(id, "gateway", at, u.api)
			})
		})
	})
}

// lambdas adds a request with two functions below segments of a cloud, which are exported to another system.
func (u *untidy) lambdas(at trace.Nanos) {
	u.serve(u.id(), "web", "GET /cart", at, 14*ms, func(id trace.SpanID, at trace.Nanos) trace.Nanos {
		return u.call(id, "web", at, func(_ trace.SpanID, at trace.Nanos) trace.Nanos { return u.api(u.id(), at) })
	})
}

// phone returns requests from phones. The given share of them have clocks that are wrong by up to two minutes.
func (u *untidy) phone(share float64) func(at trace.Nanos) {
	return func(at trace.Nanos) {
		u.skew = 0
		if u.rng.Float64() < share {
			u.skew = time.Duration((u.rng.Float64()*4 - 2) * float64(time.Minute))
		}
		u.call(0, "mobile-app", at, u.web)
	}
}

// ledger adds the work of billing, which calls ledger, below a span that has ended. Both take longer during the fault.
func (u *untidy) ledger(parent trace.SpanID, kind trace.Kind, at trace.Nanos) {
	id := u.id()
	end := u.call(id, "billing", at.Add(ms), func(id trace.SpanID, at trace.Nanos) trace.Nanos {
		return u.serve(id, "ledger", "POST /book", at, u.either(20*ms, 400*ms), nil)
	})
	u.span(id, parent, "billing", "process orders", kind, at, end.Add(ms))
}

// receive adds a request with a message that is received and, after the receive span has ended, processed.
func (u *untidy) receive(at trace.Nanos) {
	producer, receive := u.id(), u.id()
	u.serve(0, "orders", "POST /order", at, 2*ms, func(id trace.SpanID, at trace.Nanos) trace.Nanos {
		u.span(producer, id, "orders", "send orders", trace.Producer, at, at.Add(ms))
		return at.Add(ms)
	})
	got := at.Add(u.about(20 * ms))
	u.span(receive, producer, "billing", "receive orders", trace.Consumer, got, got.Add(ms))
	u.ledger(receive, trace.Consumer, got.Add(2*ms))
}

// background adds a request that leaves work for after the response.
func (u *untidy) background(at trace.Nanos) {
	var server trace.SpanID
	end := u.serve(0, "billing", "POST /order", at, 2*ms, func(id trace.SpanID, at trace.Nanos) trace.Nanos {
		server = id
		return at
	})
	u.ledger(server, trace.Internal, end.Add(5*ms))
}

// lag adds a request with a message that waits in its queue.
func (u *untidy) lag(at trace.Nanos) {
	producer := u.id()
	u.serve(0, "shop", "POST /order", at, 2*ms, func(id trace.SpanID, at trace.Nanos) trace.Nanos {
		u.span(producer, id, "shop", "send orders", trace.Producer, at, at.Add(ms))
		return at.Add(ms)
	})
	got := at.Add(u.either(20*ms, 30*time.Second))
	u.span(u.id(), producer, "billing", "process orders", trace.Consumer, got, got.Add(u.about(10*ms)))
}

// links adds a request with a message that waits in its queue until a separate trace takes it, with a link only.
func (u *untidy) links(at trace.Nanos) {
	producer, sender := u.id(), u.t.ID
	u.serve(0, "shop", "POST /order", at, 2*ms, func(id trace.SpanID, at trace.Nanos) trace.Nanos {
		u.span(producer, id, "shop", "send orders", trace.Producer, at, at.Add(ms))
		return at.Add(ms)
	})
	got := at.Add(u.either(20*ms, 30*time.Second))
	u.begin()
	u.span(u.id(), 0, "billing", "process orders", trace.Consumer, got, got.Add(u.about(10*ms)))
	u.t.Joins = append(u.t.Joins, trace.Join{Message: true, Linked: trace.MessageID(sender, producer)})
}

// items adds a request that calls items twice, or 41 times during the fault.
func (u *untidy) items(at trace.Nanos) {
	n := 2
	if u.faulty {
		n = 41
	}
	u.serve(0, "gateway", "GET /cart", at, 14*ms, func(id trace.SpanID, at trace.Nanos) trace.Nanos {
		for range n {
			at = u.call(id, "gateway", at, func(id trace.SpanID, at trace.Nanos) trace.Nanos {
				return u.serve(id, "items", "GET /items", at, 4*ms, nil)
			})
		}
		return at
	})
}

// TestUntidy plays common shapes of traffic with one fault. There is one incident with the right service first, and the
// coverage includes each span.
func TestUntidy(t *testing.T) {
	for name, test := range map[string]struct {
		request func(u *untidy) func(at trace.Nanos)
		first   string
	}{
		"tidy": {func(u *untidy) func(trace.Nanos) { return u.request }, "api"},
		"few long streams": {
			func(u *untidy) func(trace.Nanos) { return u.streams(28, 400*time.Second) },
			"api",
		},
		"many long streams": {
			func(u *untidy) func(trace.Nanos) { return u.streams(223, 400*time.Second) },
			"api",
		},
		"shorter streams":          {func(u *untidy) func(trace.Nanos) { return u.streams(29, time.Minute) }, "api"},
		"streams behind one name":  {func(u *untidy) func(trace.Nanos) { return u.behindIngress }, "api"},
		"a hop without spans":      {func(u *untidy) func(trace.Nanos) { return u.gateway }, "api"},
		"two missing parents":      {func(u *untidy) func(trace.Nanos) { return u.lambdas }, "api"},
		"phones":                   {func(u *untidy) func(trace.Nanos) { return u.phone(0) }, "api"},
		"phones with wrong clocks": {func(u *untidy) func(trace.Nanos) { return u.phone(1) }, "api"},
		"some with wrong clocks":   {func(u *untidy) func(trace.Nanos) { return u.phone(0.3) }, "api"},
		"receive, then process":    {func(u *untidy) func(trace.Nanos) { return u.receive }, "ledger"},
		"work after the response":  {func(u *untidy) func(trace.Nanos) { return u.background }, "ledger"},
		"messages that wait":       {func(u *untidy) func(trace.Nanos) { return u.lag }, "billing"},
		"messages by links":        {func(u *untidy) func(trace.Nanos) { return u.links }, "billing"},
		"more calls than before":   {func(u *untidy) func(trace.Nanos) { return u.items }, "gateway"},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUntidy()
			r := u.play(test.request(u))
			var names []string
			for i := range r.Incidents {
				for _, s := range r.Incidents[i].Suspects[:min(1, len(r.Incidents[i].Suspects))] {
					names = append(names, u.table.Text(s.Service))
				}
			}
			if queue := strings.HasPrefix(name, "messages "); queue && len(r.Incidents) == 1 && len(names) == 1 {
				x := r.Incidents[0].Suspects[0].Queue()
				if x == nil || u.table.OpName(x.Op) != "orders" || x.Excess < 20e9 || x.Usual > 100e6 {
					t.Errorf("the operation is %+v, want the queue with its waits",
						r.Incidents[0].Suspects[0].Operations)
				}
			}
			if len(r.Incidents) != 1 || len(names) != 1 || names[0] != test.first {
				t.Errorf("%d incidents of %s, want 1 of %s", len(r.Incidents), strings.Join(names, ", "), test.first)
			}
			total := r.Coverage.Total()
			if all := total.Received(); all.Spans != countSpans(u.traces) {
				t.Errorf("%d spans in the coverage, %d played", all.Spans, countSpans(u.traces))
			}
		})
	}
}

// TestStreamsInRecordings compares the time of the fault with the time before, in recordings with streams. The service
// with the fault is first, and its score is about the same as without streams.
func TestStreamsInRecordings(t *testing.T) {
	for name, request := range map[string]func(u *untidy) func(at trace.Nanos){
		"without":         func(u *untidy) func(at trace.Nanos) { return u.request },
		"few":             func(u *untidy) func(at trace.Nanos) { return u.streams(28, 400*time.Second) },
		"behind one name": func(u *untidy) func(at trace.Nanos) { return u.behindIngress },
	} {
		u := newUntidy()
		u.generate(request(u))
		r, x := compare.NewRecording(u.table), critpath.NewExtractor(critpath.DefaultOptions())
		for _, t := range u.traces {
			r.Add(x.Extract(t), 0)
		}
		fault := untidyFrom.Add(faultAfter)
		first := r.Within(history.Interval{From: 0, To: fault}).Normal().
			Compare(r.Within(history.Interval{From: fault, To: fault.Add(time.Hour)}))[0]
		if u.table.Text(first.Service) != "api" || first.Score < 1 || first.Score > 3 {
			t.Errorf("%s: %s with a score of %.2f is first", name, u.table.Text(first.Service), first.Score)
		}
	}
}

func countSpans(traces []*trace.Trace) (n int64) {
	for _, t := range traces {
		n += int64(len(t.Spans))
	}
	return n
}

// generate generates the traces of requests, one per second.
func (u *untidy) generate(request func(at trace.Nanos)) {
	for at := untidyFrom; at < untidyFrom.Add(untidyLasts); at = at.Add(time.Second) {
		u.faulty = at >= untidyFrom.Add(faultAfter)
		u.begin()
		request(at)
	}
	slices.SortStableFunc(u.traces, func(a, b *trace.Trace) int {
		_, x := Extent(a)
		_, y := Extent(b)
		return cmp.Compare(x, y)
	})
}

// play plays the traces of requests, one per second.
func (u *untidy) play(request func(at trace.Nanos)) *Result {
	u.generate(request)
	p := NewPlayer(nil,
		Options{Table: u.table, Core: engine.DefaultOptions(), Assembly: assemble.DefaultOnlineOptions()})
	for _, t := range u.traces {
		p.Play(t)
	}
	return p.Finish()
}
