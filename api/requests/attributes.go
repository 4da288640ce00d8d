package requests

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// side is a side of a comparison, or neither.
type side int

const (
	neither side = iota
	first
	second
)

// sides holds the requests on each side of a comparison.
type sides [second + 1][]*observation.Observation

// side returns first if o lies in the box, and second otherwise. Unlike contains, it knows the exact start of the
// request.
func (b *box) side(o *observation.Observation) side {
	to := cmp.Or(b.to, trace.MaxNanos)
	if ns := o.Duration.Nanoseconds(); ns >= b.longer && ns < b.shorter && o.Start >= b.from && o.Start < to {
		return first
	}
	return second
}

// slowestSide returns a function that assigns the slowest requests to the first side and all others to the second side.
// part is the fraction of requests on the first side, in [0, 1]. Requests of equal duration are on the same side.
func slowestSide(requests []*observation.Observation, part float64) func(*observation.Observation) side {
	durations := make([]int64, len(requests))
	for i, o := range requests {
		durations[i] = -o.Duration.Nanoseconds()
	}
	slices.Sort(durations)
	least := int64(math.MaxInt64)
	if n := int(math.Ceil(part * float64(len(durations)))); n > 0 {
		least = -durations[n-1]
	}
	return func(o *observation.Observation) side {
		if o.Duration.Nanoseconds() >= least {
			return first
		}
		return second
	}
}

// timesSide returns first if o started in [from, to), second if it started in [baseFrom, baseTo), and neither
// otherwise. An upper bound of 0 means unbounded.
func timesSide(o *observation.Observation, from, to, baseFrom, baseTo trace.Nanos) side {
	switch {
	case o.Start >= from && o.Start < cmp.Or(to, trace.MaxNanos):
		return first
	case o.Start >= baseFrom && o.Start < cmp.Or(baseTo, trace.MaxNanos):
		return second
	}
	return neither
}

// shownAttributes limits the number of attribute values in a comparison.
const shownAttributes = 20

// attributes compares the attributes of the sampled requests of a group on the two sides.
func (r renderer) attributes(group analysis.Hash, requests sides) contract.AttributeComparison {
	return contract.AttributeComparison{
		A: len(requests[first]), B: len(requests[second]),
		Items: attributeDifferences(r.Names, r.Core.Kept.Frequencies(group, requests[first], requests[second])),
	}
}

func attributeDifferences(names *describe.Names, found []explain.Frequency) []contract.AttributeDifference {
	all := make([]contract.AttributeDifference, 0, len(found))
	for i := range found {
		f := &found[i]
		at := names.Last(f.Where)
		all = append(all, contract.AttributeDifference{
			Key:          f.Key,
			Value:        f.Value,
			Where:        names.Context(f.Where),
			Service:      names.Service(at),
			Text:         f.Key + " = " + f.Value + " at " + names.Op(at),
			AShare:       part(f.A, f.OfA),
			BShare:       part(f.B, f.OfB),
			PValue:       f.PValue,
			WithNs:       render.Number(f.Duration.Mean),
			WithoutNs:    render.Number(f.Duration.Rest),
			DifferenceNs: render.Interval(f.Duration.Value, f.Duration.Low, f.Duration.High),
		})
	}
	return all
}

// wholeOfSide limits the number of requests per side that are compared by all of their attributes.
const wholeOfSide = 64

// addUnlisted adds to c the attributes that the setting `keys` doesn't list. It finds them only in requests that are
// kept with all of their attributes. It then limits c to the shownAttributes items with the smallest p-values.
func (a *Requests) addUnlisted(c *contract.AttributeComparison, requests sides, options critpath.Options) error {
	known := make(map[string]bool)
	for i := range c.Items {
		known[c.Items[i].Key] = true
	}
	table := &trace.Table{}
	w := wholeRequests{
		read:      a.options.Whole,
		table:     table,
		failing:   a.options.Failing,
		extractor: critpath.NewExtractor(options),
		observer:  observation.Observer{Everywhere: true},
	}
	var whole [second + 1][]*observation.Observation
	for _, of := range []side{first, second} {
		for _, sampled := range requests[of] {
			if len(whole[of]) == wholeOfSide {
				break
			}
			o, err := w.observe(sampled)
			if err != nil {
				return err
			}
			if o != nil {
				whole[of] = append(whole[of], o)
			}
		}
	}
	c.WholeA, c.WholeB = len(whole[first]), len(whole[second])
	found := explain.Frequencies(whole[first], whole[second], table, explain.Options{})
	for _, x := range attributeDifferences(describe.New(table, describe.Verbatim), found) {
		if !known[x.Key] && !tellsNothing(x.Key) {
			c.Items = append(c.Items, x)
		}
	}
	byP := func(x, y contract.AttributeDifference) int { return cmp.Compare(x.PValue, y.PValue) }
	sorting.SliceStable(c.Items, byP)
	c.Items = c.Items[:min(len(c.Items), shownAttributes)]
	return nil
}

// tellsNothing reports whether the attribute with the given key carries no information, because it differs from request
// to request by nature or is set by Sibyl's agents.
func tellsNothing(key string) bool {
	return key == "thread.id" || key == "thread.name" ||
		strings.HasSuffix(key, ".stacktrace") || strings.HasPrefix(key, "sibyl.")
}

// wholeRequests observes requests with all attributes of their spans.
type wholeRequests struct {
	read      func(id trace.ID) ([]byte, error)
	table     *trace.Table
	failing   ingest.FailureRules
	extractor *critpath.Extractor
	observer  observation.Observer
}

// observe returns the sampled request with all attributes of its spans, or nil if they aren't kept or the trace is
// unusable.
func (w *wholeRequests) observe(sampled *observation.Observation) (*observation.Observation, error) {
	request, err := w.read(sampled.Trace)
	if len(request) == 0 || err != nil {
		return nil, err
	}
	t, err := otlp.DecodeWholeTrace(sampled.Trace, request, w.table, w.failing)
	if err != nil {
		return nil, fmt.Errorf("read trace %s: %w", sampled.Trace, err)
	}
	path := w.extractor.Extract(t)
	for i := range path.Roots {
		if path.Nodes[path.Roots[i].Node].ID == sampled.Root && path.Unusable(i) == "" {
			o := new(observation.Observation)
			w.observer.Observe(path, i, o)
			for _, c := range o.Contexts {
				w.table.AddContext(c.Context, c.Parent, w.table.Step(c.Op, c.Target))
			}
			return o, nil
		}
	}
	return nil, nil
}

// part returns n/of, or 0 for 0/0.
func part(n, of int) float64 { return float64(n) / float64(max(1, of)) }
