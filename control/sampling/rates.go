// Package sampling tells the OpenTelemetry SDKs of others how many requests to trace, by Jaeger's remote sampling: more of those under
// investigation, within a budget. It chooses traces, not tracepoints.
//
// [RatesOf] makes rates of the state of the search; a [Strategies] that they are published to answers SDKs over HTTP and gRPC. Who is
// not under investigation gets the default, and so does everybody once nothing is.
package sampling

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Rates say which share of their requests services trace. They are immutable once published. The zero Rates trace nothing.
type Rates struct {
	Default  float64                // share of the requests, 0–1, where nothing else is said
	Services map[string][]Operation // by name of the service; each ascending by name
}

// Operation is an entry operation with a rate of its own.
type Operation struct {
	Name  string
	Share float64 // of its requests, 0–1
}

// Options say how rates are made.
type Options struct {
	Default float64 // share of the requests that are traced in any case, in (0, 1]
	Wanted  float64 // traces per second of each entry operation under investigation
	Budget  float64 // traces per second beyond the default, all together
}

// DefaultOptions returns the default of Jaeger, and enough traces of what is under investigation for a decision an epoch.
func DefaultOptions() Options { return Options{Default: 0.001, Wanted: 10, Budget: 100} }

// RatesOf returns the rates that state of the search asks for. Seen holds the traces per second that came in by entry operation, under
// the rates before, which may be nil: how many requests there are follows from both. Investigations that were opened first go first
// when the budget does not do for all. It reads nothing but its arguments.
func RatesOf(s *search.State, table *trace.Table, seen map[trace.Op]float64, before *Rates, o Options) *Rates {
	r := &Rates{Default: o.Default, Services: make(map[string][]Operation)}
	left := o.Budget
	done := make(map[trace.Op]bool)
	for i := range s.Investigations {
		v := &s.Investigations[i]
		if !v.Status.Active() || done[v.Entry] {
			continue
		}
		done[v.Entry] = true
		service, name := table.ServiceName(v.Entry), table.OpName(v.Entry)
		requests := seen[v.Entry] / before.share(service, name, o.Default)
		if !(requests > 0) {
			continue // nobody knows what more of them would cost
		}
		more := max(0, min(min(1, o.Wanted/requests)*requests-o.Default*requests, left))
		if more == 0 {
			continue
		}
		left -= more
		r.Services[service] = append(r.Services[service], Operation{name, min(1, o.Default+more/requests)})
	}
	for name, list := range r.Services {
		slices.SortFunc(list, func(a, b Operation) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.Share, a.Share)) })
		r.Services[name] = slices.CompactFunc(list, func(a, b Operation) bool { return a.Name == b.Name }) // of different kinds
	}
	return r
}

// share returns which share of an operation's requests was traced; of nil rates otherwise.
func (r *Rates) share(service, operation string, otherwise float64) float64 {
	if r == nil {
		return otherwise
	}
	for _, o := range r.Services[service] {
		if o.Name == operation {
			return o.Share
		}
	}
	return r.Default
}
