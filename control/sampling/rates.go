// Package sampling sets the sampling rates of OpenTelemetry SDKs with Jaeger's remote sampling protocol. Entry
// operations under investigation get higher rates, within a budget; all others get the default. The package chooses
// traces, not tracepoints.
//
// [RatesOf] derives rates from the operations under investigation; [Strategies] serves them.
package sampling

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Rates are the shares of requests that services trace. Rates are immutable once published. With the zero value,
// services trace nothing.
type Rates struct {
	Default  float64                // share of requests, 0–1, for operations without their own rate
	Services map[string][]Operation // by name of the service; ascending by name of the operation
}

// Operation is an entry operation with its own rate.
type Operation struct {
	Name  string
	Share float64 // share of its requests, 0–1
}

// Options configures [RatesOf].
type Options struct {
	Default float64 // minimum share of requests, in (0, 1]
	Budget  float64 // traces per second above the default, in total
}

// DefaultOptions returns Jaeger's default share, and a budget for ten investigations at a time.
func DefaultOptions() Options { return Options{Default: 0.001, Budget: 10 * wanted} }

// wanted is the number of traces per second to aim at for each entry operation under investigation. It gives an
// investigation enough traces for a decision each epoch. More would only shift the budget to fewer operations.
const wanted = 10

// RatesOf returns rates for entries, the entry operations under investigation. entries may contain duplicates. seen
// holds the received traces per second by entry operation, and before the rates at which they were sampled; if before
// is nil, that was the default rate. RatesOf computes the request rates from both. If the budget is too small, earlier
// entries take precedence. The result depends only on the arguments.
func RatesOf(entries []trace.Op, table *trace.Table, seen map[trace.Op]float64, before *Rates, o Options) *Rates {
	r := &Rates{Default: o.Default, Services: make(map[string][]Operation)}
	left := o.Budget
	done := make(map[trace.Op]bool)
	for _, entry := range entries {
		if done[entry] {
			continue
		}
		done[entry] = true
		service, name := table.ServiceName(entry), table.OpName(entry)
		requests := seen[entry] / before.share(service, name, o.Default)
		if !(requests > 0) {
			continue // the cost of a higher rate is unknown
		}
		more := max(0, min(min(1, wanted/requests)*requests-o.Default*requests, left))
		if more == 0 {
			continue
		}
		left -= more
		r.Services[service] = append(r.Services[service], Operation{name, min(1, o.Default+more/requests)})
	}
	for name, list := range r.Services {
		sorting.Slice(list, func(a, b Operation) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.Share, a.Share))
		})
		sameName := func(a, b Operation) bool { return a.Name == b.Name } // they differ in kind
		r.Services[name] = slices.CompactFunc(list, sameName)
	}
	return r
}

// share returns the fraction of the requests to the given operation of service that are traced. If r is nil, it returns
// otherwise.
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
