package backtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/trace"
)

// lossy generates requests of a shop that loses some of its spans. frontend calls catalog and orders, orders calls
// stock and payment, and most of them call a database. Requests arrive at random. There may be a hop between frontend
// and orders.
type lossy struct {
	untidy
	loss  float64       // share of the spans that get lost
	after time.Duration // when the loss starts
	names bool          // whether CLIENT spans name the callee
	hop   bool          // whether there is a hop between frontend and orders that creates spans but doesn't export them

	// The fault affects a share of the requests. slow is the service that takes 300 ms longer, "hop", or its "answer".
	// fails is the service, or "hop", that doesn't answer.
	slow, fails string
	share       float64
	mute        string // service that loses all its spans during the fault, although it works

	at  time.Duration // of the current request
	hit bool          // whether it has the fault
}

// part adds the spans of a part of a request below a parent. It returns when the part ended and whether it failed.
type part func(parent trace.SpanID, at trace.Nanos) (end trace.Nanos, failed bool)

// lossyRate is the number of requests per second.
const lossyRate = 10

// emit adds a span unless it gets lost.
func (l *lossy) emit(
	id, parent trace.SpanID, service, name string, kind trace.Kind, from, to trace.Nanos, failed bool,
) *trace.Span {
	if l.loss > 0 && l.at >= l.after && l.rng.Float64() < l.loss || l.hit && l.mute == service {
		return &trace.Span{}
	}
	l.span(id, parent, service, name, kind, from, to)
	s := &l.t.Spans[len(l.t.Spans)-1]
	if failed {
		s.Flags |= trace.Error
	}
	return s
}

// work returns the time that service takes, about usual without a fault.
func (l *lossy) work(service string, usual time.Duration) time.Duration {
	if l.hit && l.slow == service {
		return l.about(usual) + l.about(300*ms)
	}
	return l.about(usual)
}

// serve returns the work of service for a request, including calls, the calls that it makes.
func (l *lossy) serve(service, name string, calls ...part) part {
	return func(parent trace.SpanID, at trace.Nanos) (end trace.Nanos, failed bool) {
		id := l.id()
		end = at.Add(l.work(service, 6*ms))
		for _, call := range calls {
			if end, failed = call(id, end.Add(l.about(ms))); failed {
				break
			}
		}
		end = end.Add(l.about(2 * ms))
		l.emit(id, parent, service, name, trace.Server, at, end, failed)
		return end, failed
	}
}

// call returns a call between the services `from` and `to`.
func (l *lossy) call(from, to, name string, calls ...part) part {
	return func(parent trace.SpanID, at trace.Nanos) (end trace.Nanos, failed bool) {
		id, below := l.id(), trace.SpanID(0)
		if below = id; l.hop && to == "orders" {
			below = l.id()
		}
		end = at.Add(l.between(to, "hop"))
		if failed = l.hit && (l.fails == to || to == "orders" && l.fails == "hop"); !failed {
			end, failed = l.serve(to, name, calls...)(below, end)
		}
		end = end.Add(l.between(to, "answer"))
		s := l.emit(id, parent, from, "GET", trace.Client, at, end, failed)
		if l.names {
			s.Peer = l.external(to + ".shop.svc:8080")
		}
		return end, failed
	}
}

// between returns the time from a call of service `to` to its work, or from its work to the answer.
func (l *lossy) between(to, what string) time.Duration {
	if to != "orders" {
		return l.about(ms)
	}
	return l.work(what, ms)
}

// db returns a call of the service `from` to the database.
func (l *lossy) db(from string) part {
	return func(parent trace.SpanID, at trace.Nanos) (end trace.Nanos, failed bool) {
		end = at.Add(l.work("postgresql", 5*ms))
		l.emit(l.id(), parent, from, "SELECT", trace.Client, at, end, false).Peer = l.external("postgresql")
		return end, false
	}
}

func (l *lossy) external(name string) trace.Op {
	return l.table.Op(l.table.Symbol(name), l.table.Symbol(name), trace.External)
}

// request adds a request of one of three kinds.
func (l *lossy) request(at trace.Nanos) {
	l.hit = l.faulty && l.rng.Float64() < l.share
	requests := []part{
		l.serve("frontend", "GET /catalog", l.call("frontend", "catalog", "GET /items", l.db("catalog"))),
		l.serve("frontend", "GET /orders", l.call("frontend", "orders", "GET /orders", l.db("orders"))),
		l.serve("frontend", "POST /order", l.call("frontend", "orders", "POST /orders",
			l.call("orders", "stock", "POST /reserve", l.db("stock")), l.call("orders", "payment", "POST /pay"),
			l.db("orders"))),
	}
	requests[l.rng.IntN(len(requests))](0, at)
}

func (l *lossy) run() *Result {
	l.untidy = *newUntidy()
	const from = trace.Nanos(1_700_000_000_000_000_000)
	p := NewPlayer(nil,
		Options{Table: l.table, Core: engine.DefaultOptions(), Assembly: assemble.DefaultOnlineOptions()})
	for l.at = 0; l.at < untidyLasts; l.at += time.Duration(l.rng.ExpFloat64() / lossyRate * float64(time.Second)) {
		l.faulty = l.at >= faultAfter
		l.begin()
		if l.request(from.Add(l.at)); len(l.t.Spans) > 0 {
			p.Play(l.t)
		}
	}
	return p.Finish()
}

// TestLossy loses spans of a healthy shop and of a shop with a fault. The loss is counted, but it is neither an
// incident nor a hop, and the fault is the only incident.
func TestLossy(t *testing.T) {
	const begins = faultAfter // the loss starts together with the fault
	for name, test := range map[string]struct {
		lossy
		first string // empty: no incident
	}{
		"1 %":                                  {lossy{loss: 0.01}, ""},
		"3 %":                                  {lossy{loss: 0.03}, ""},
		"5 %":                                  {lossy{loss: 0.05}, ""},
		"1 %, suddenly":                        {lossy{loss: 0.01, after: begins}, ""},
		"3 %, suddenly":                        {lossy{loss: 0.03, after: begins}, ""},
		"5 %, suddenly":                        {lossy{loss: 0.05, after: begins}, ""},
		"3 %, and orders is slow":              {lossy{loss: 0.03, slow: "orders", share: 1}, "orders"},
		"3 %, suddenly, and orders is slow":    {lossy{loss: 0.03, after: begins, slow: "orders", share: 1}, "orders"},
		"3 %, and orders is slow at times":     {lossy{loss: 0.03, slow: "orders", share: 0.3}, "orders"},
		"3 %, and stock is slow":               {lossy{loss: 0.03, slow: "stock", share: 1}, "stock"},
		"3 %, and payment does not answer":     {lossy{loss: 0.03, fails: "payment", share: 1}, "payment"},
		"3 %, and payment fails at times":      {lossy{loss: 0.03, fails: "payment", share: 0.2}, "payment"},
		"10 %, suddenly":                       {lossy{loss: 0.1, after: begins}, ""},
		"20 %, suddenly":                       {lossy{loss: 0.2, after: begins}, ""},
		"10 %":                                 {lossy{loss: 0.1}, ""},
		"some of payment":                      {lossy{mute: "payment", share: 0.3}, ""},
		"all of payment":                       {lossy{mute: "payment", share: 1}, "payment"},
		"some of orders":                       {lossy{mute: "orders", share: 0.3}, ""},
		"all of orders":                        {lossy{mute: "orders", share: 1}, "orders"},
		"some of stock":                        {lossy{mute: "stock", share: 0.3}, ""},
		"all of stock":                         {lossy{mute: "stock", share: 1}, "stock"},
		"3 % behind a hop":                     {lossy{loss: 0.03, hop: true}, ""},
		"3 % behind a hop, and orders is slow": {lossy{loss: 0.03, hop: true, slow: "orders", share: 1}, "orders"},
	} {
		for _, names := range []bool{false, true} {
			if names && testing.Short() { // so many goroutines take half of the time
				continue
			}
			l := test.lossy
			l.names = names
			t.Run(name+map[bool]string{true: ", named"}[names], func(t *testing.T) {
				t.Parallel()
				r := l.run()
				l.expect(t, r, test.first)
				var hops []string
				for h := range r.Coverage.Hops(l.table, &r.Coverage) {
					hops = append(hops, l.table.Text(h.Caller)+" → "+l.table.Text(h.Callee))
				}
				if l.mute != "" {
					return
				}
				if want := []string{"frontend → orders"}; l.hop != (len(hops) > 0) ||
					l.hop && !slices.Equal(hops, want) {
					t.Errorf("hops without spans: %s", strings.Join(hops, ", "))
				}
				lost := float64(r.Coverage.Lost(l.table)) / float64(r.Coverage.Traces)
				if share := l.loss * (1 - l.after.Seconds()/untidyLasts.Seconds()); lost < share/2 || lost > 5*share {
					t.Errorf("%.3f of the traces lost spans, with %.3f of the spans", lost, share)
				}
			})
		}
	}
}

// TestHop makes either orders or a hop without spans between frontend and orders slow or failing. The incident
// distinguishes the two. If no call gets through, they look the same.
func TestHop(t *testing.T) {
	for name, test := range map[string]struct {
		lossy
		from string // other end of the hop if the hop is at fault; empty if orders is
	}{
		"slow":                    {lossy{slow: "hop", share: 1}, "frontend"},
		"slow at times":           {lossy{slow: "hop", share: 0.3}, "frontend"},
		"slow, and spans lost":    {lossy{slow: "hop", share: 1, loss: 0.03}, "frontend"},
		"slow answers":            {lossy{slow: "answer", share: 1}, "frontend"},
		"slow answers at times":   {lossy{slow: "answer", share: 0.3}, "frontend"},
		"fails at times":          {lossy{fails: "hop", share: 0.3}, "frontend"},
		"fails":                   {lossy{fails: "hop", share: 1}, ""},
		"orders is slow":          {lossy{slow: "orders", share: 1}, ""},
		"orders is slow at times": {lossy{slow: "orders", share: 0.3}, ""},
	} {
		for _, names := range []bool{false, true} {
			for _, hop := range []bool{false, true} {
				l := test.lossy
				l.names, l.hop = names, hop
				t.Run(fmt.Sprintf("%s, named %v, with IDs %v", name, names, hop), func(t *testing.T) {
					t.Parallel()
					r := l.run()
					l.expect(t, r, "orders")
					for i := range r.Incidents {
						if from := l.table.Text(r.Incidents[i].Suspects[0].From); from != test.from {
							t.Errorf("on the way from %q, want %q", from, test.from)
						}
					}
				})
			}
		}
	}
}

// expect checks that r has one incident, with first as its first suspect, or no incident if first is empty.
func (l *lossy) expect(t *testing.T, r *Result, first string) {
	t.Helper()
	var names, want []string
	for i := range r.Incidents {
		names = append(names, l.table.Text(r.Incidents[i].Suspects[0].Service))
	}
	if first != "" {
		want = []string{first}
	}
	if !slices.Equal(names, want) {
		t.Errorf("incidents of %q, want %q", names, want)
	}
}
