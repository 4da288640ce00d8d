package engine

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// quietApp is a healthy application with requestTypes request types of very different frequencies. Each type calls
// three of 200 operations in other services, and each operation queries a database.
type quietApp struct {
	*rand.Rand
	table    *trace.Table
	traces   []*trace.Trace // one for each request type
	until    []float64      // by request type: cumulative share of the requests
	requests uint64
}

func newQuietApp() *quietApp {
	a := &quietApp{Rand: rand.New(rand.NewPCG(1, 2)), table: &trace.Table{}}
	sum := 0.0
	for i := range requestTypes {
		x := &trace.Trace{}
		span := func(service int, name string, kind trace.Kind, parent trace.SpanID) trace.SpanID {
			s := a.table.Symbol(fmt.Sprintf("service%d", service))
			x.Spans = append(x.Spans, trace.Span{
				ID:      trace.SpanID(len(x.Spans) + 1),
				Parent:  parent,
				Service: s,
				Op:      a.table.Op(s, a.table.Symbol(name), kind),
				Kind:    kind,
			})
			return trace.SpanID(len(x.Spans))
		}
		root := span(i%4, fmt.Sprintf("GET /entry%d", i), trace.Server, 0)
		for range 3 {
			n := a.IntN(200)
			client := span(i%4, "GET", trace.Client, root)
			server := span(4+n%36, fmt.Sprintf("GET /%d", n), trace.Server, client)
			query := span(4+n%36, "SELECT", trace.Client, server)
			x.Spans[query-1].Peer = a.table.Op(a.table.Symbol("postgresql"), 0, trace.External)
		}
		a.traces = append(a.traces, x)
		sum += math.Pow(float64(i+1), -0.7)
		a.until = append(a.until, sum)
	}
	return a
}

// request returns a request, which is valid until the next one of its type.
func (a *quietApp) request(at trace.Nanos) *trace.Trace {
	random, i := a.Float64()*a.until[requestTypes-1], 0
	for a.until[i] < random {
		i++
	}
	x := a.traces[i]
	a.requests++
	binary.BigEndian.PutUint64(x.ID[:], trace.Mix(1, a.requests))
	binary.BigEndian.PutUint64(x.ID[8:], a.requests)
	// Each call takes an exponential time before, during and after the query.
	pass := func() trace.Nanos {
		at = at.Add(time.Duration(a.ExpFloat64() * 1e6))
		return at
	}
	x.Spans[0].Start = at
	for k := 1; k < len(x.Spans); k += 3 {
		client, server, query := &x.Spans[k], &x.Spans[k+1], &x.Spans[k+2]
		client.Start, server.Start = pass(), pass()
		query.Start, query.End = pass(), pass()
		server.End, client.End = pass(), pass()
	}
	pass()
	x.Spans[0].End = at
	return x
}

// BenchmarkQuietEpoch measures the end of an epoch with 100 requests and three hours of history, for the whole core and
// for incidents only.
func BenchmarkQuietEpoch(b *testing.B) {
	for name, incidentsOnly := range map[string]bool{"whole": false, "incidents": true} {
		b.Run(name, func(b *testing.B) {
			options := DefaultOptions()
			options.IncidentsOnly = incidentsOnly
			a := newQuietApp()
			c := NewCore(a.table, options)
			now := trace.Nanos(1_700_000_000_000_000_000)
			play := func() {
				for range 100 {
					c.Ingest(a.request(now.Add(time.Duration(a.Int64N(int64(options.Epoch))))))
				}
				now = now.Add(options.Epoch)
			}
			for end := now.Add(3 * time.Hour); now < end; {
				play()
				c.Epoch(now)
			}
			b.ReportAllocs()
			var used time.Duration
			for b.Loop() {
				b.StopTimer()
				play()
				before := cpuTime(b)
				b.StartTimer()
				c.Epoch(now)
				used += cpuTime(b) - before
			}
			b.ReportMetric(float64(used.Nanoseconds())/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(c.View().History.Len()), "sites")
			b.ReportMetric(float64(len(c.View().Problems.Open())), "problems")
			b.ReportMetric(float64(len(c.View().Incidents.All())), "incidents")
		})
	}
}
