package sim

import (
	"slices"
	"testing"

	"github.com/sibyl-trace/sibyl/trace"
)

// TestCallsAreNamedGenerically checks that names of calls don't identify their callees, but attributes do. Each replica
// of a service has its own address.
func TestCallsAreNamedGenerically(t *testing.T) {
	a := New(Config{Seed: 3, Tracepoints: 1000, Messages: 0.3, AllAttributes: true})
	table := a.Table()
	names := []string{"GET", "POST", "SELECT", "INSERT", "SET", "publish", "send"}
	address, system := table.Symbol("server.address"), table.Symbol("db.system.name")
	destination := table.Symbol("messaging.destination.name")
	hosts := make(map[trace.Symbol]trace.Symbol)             // by address
	replicas := make(map[trace.Op]map[trace.Symbol]struct{}) // addresses by called operation
	answered, unanswered, databases, messages := 0, 0, 0, 0
	for tr := range a.Requests(0, testRun, nil) {
		index := byID(tr)
		addresses := make(map[trace.SpanID]trace.Symbol)
		for _, at := range tr.Attrs {
			switch at.Key {
			case address:
				addresses[tr.Spans[at.Span].ID] = at.Text
			case system:
				databases++
			case destination:
				messages++
			}
		}
		callees := make(map[trace.SpanID]bool)
		for i := range tr.Spans {
			s := &tr.Spans[i]
			if s.Kind == trace.Client || s.Kind == trace.Producer {
				if !slices.Contains(names, table.OpName(s.Op)) || s.Peer == 0 {
					t.Fatalf("a call is named %q with the peer %q", table.OpName(s.Op), table.ServiceName(s.Peer))
				}
			}
			p := index[s.Parent]
			if s.Kind != trace.Server || p == nil {
				continue
			}
			callees[p.ID] = true
			called := addresses[p.ID]
			if known, ok := hosts[called]; called == 0 || ok && known != s.Host {
				t.Fatalf("address %q leads to %s and %s", table.Text(called), table.Text(s.Host), table.Text(known))
			}
			hosts[called] = s.Host
			if replicas[s.Op] == nil {
				replicas[s.Op] = make(map[trace.Symbol]struct{})
			}
			replicas[s.Op][called] = struct{}{}
		}
		for i := range tr.Spans {
			if s := &tr.Spans[i]; s.Kind == trace.Client && callees[s.ID] {
				answered++
			} else if s.Kind == trace.Client {
				unanswered++
			}
		}
	}
	most := 0
	for _, of := range replicas {
		most = max(most, len(of))
	}
	if most < 2 || answered == 0 || unanswered == 0 || databases == 0 || messages == 0 {
		t.Errorf("at most %d addresses of an operation, %d answered and %d unanswered calls, %d of databases, "+
			"%d messages; want several addresses and all kinds of calls",
			most, answered, unanswered, databases, messages)
	}
}

// TestNamesChangeNothingElse checks that an application executes the same requests with both kinds of names.
func TestNamesChangeNothingElse(t *testing.T) {
	eachFault(t, Config{Seed: 5, Tracepoints: 500}, func(t *testing.T, a *App) {
		c := a.Config()
		c.CalleeNames = true
		b := New(c)
		a.Inject(testRun / 2)
		b.Inject(testRun / 2)
		want := collect(a, 0, testRun, nil)
		for i, got := range collect(b, 0, testRun, nil) {
			for k := range got.Spans {
				if x, y := &got.Spans[k], &want[i].Spans[k]; x.ID != y.ID || x.Parent != y.Parent ||
					x.Start != y.Start || x.End != y.End || x.Kind != y.Kind || x.Service != y.Service {
					t.Fatalf("span %+v, want %+v", x, y)
				}
			}
		}
	})
}
