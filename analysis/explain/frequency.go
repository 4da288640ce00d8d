package explain

import (
	"cmp"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Frequency compares the frequency of one value of an attribute in two sets of requests.
type Frequency struct {
	Where    trace.Context // context of the attribute
	Key      string
	Value    string
	A, B     int        // number of requests of each set with the value
	OfA, OfB int        // number of requests of each set whose value is known
	Duration Difference // requests with the value, in both sets, compared with the others; PValue is NaN
	PValue   float64    // of the frequencies by Fisher's exact test, corrected for the number of values compared (Holm)
}

// Frequencies compares the attributes of two disjoint sets of requests, such as slow ones and the others. It compares
// the fractions of requests with each value that has enough requests. It returns all values compared, significant or
// not, by ascending p-value, then by descending difference. It returns nil if a set has fewer than 5 requests, or if
// both together have fewer than 12. An attribute is compared among the requests that have its span, if there are 5 of
// them in each set, because the presence of a span is not an attribute.
//
// If a value appears in several contexts, as an attribute of the user does in each service, Frequencies returns only
// the context with the smallest p-value. It ignores ports of callers, which are chosen anew for each connection.
//
// Attributes that do not vary, or that repeat the duration or another attribute, are ignored. So are numbers with many
// values, which [Associate] tests. Options.Alpha, Edges and Concurrency have no effect.
func Frequencies(a, b []*observation.Observation, table *trace.Table, o Options) []Frequency {
	s := newStudy(o, table, slices.Concat(a, b))
	if min(len(a), len(b)) < leastOfSide || len(s.requests) < minRequests {
		return nil
	}
	s.collect()
	ofA := make(map[*observation.Observation]bool, len(a))
	for _, x := range a {
		ofA[x] = true
	}
	var all []Frequency
	for i := range s.columns {
		if c := &s.columns[i]; c.id.kind == attribute && c.codes != nil && !callerPorts[s.name(c.id)] {
			all = append(all, s.frequencies(c, ofA)...)
		}
	}
	apart := func(x *Frequency) float64 { return math.Abs(share(x.A, x.OfA) - share(x.B, x.OfB)) }
	sorting.SliceStable(all, func(x, y Frequency) int {
		return cmp.Or(cmp.Compare(x.PValue, y.PValue), cmp.Compare(apart(&y), apart(&x)))
	})
	all = oncePerValue(all)
	correctHolm(all)
	return all
}

// leastOfSide is the minimum number of requests in each set.
const leastOfSide = 5

// callerPorts holds the attributes with the port of a caller.
var callerPorts = map[string]bool{
	"client.port": true, "network.peer.port": true, "net.peer.port": true,
	"net.sock.peer.port": true, "source.port": true,
}

// oncePerValue keeps only the first Frequency of each value of an attribute, whatever its context.
func oncePerValue(all []Frequency) []Frequency {
	type value struct{ key, value string }
	seen := make(map[value]bool, len(all))
	return slices.DeleteFunc(all, func(f Frequency) bool {
		v := value{f.Key, f.Value}
		again := seen[v]
		seen[v] = true
		return again
	})
}

// share returns n/of, or 0 for 0/0.
func share(n, of int) float64 { return float64(n) / float64(max(1, of)) }

// frequencies compares the values of c, an attribute. ofA contains the requests of the first set. The p-values are not
// corrected.
func (s *study) frequencies(c *column, ofA map[*observation.Observation]bool) []Frequency {
	var all []Frequency
	for code, label := range c.labels {
		if label == labelOther || label == labelNone {
			continue
		}
		f := Frequency{Where: c.id.context, Key: s.name(c.id), Value: label}
		var t target
		var has []int32
		for i, x := range s.requests {
			if c.codes[i] < 0 {
				continue
			}
			with := 0
			if int(c.codes[i]) == code {
				with = 1
			}
			if ofA[x] {
				f.A, f.OfA = f.A+with, f.OfA+1
			} else {
				f.B, f.OfB = f.B+with, f.OfB+1
			}
			t.nanos, has = append(t.nanos, float64(x.Duration)), append(has, int32(with))
		}
		if min(f.OfA, f.OfB) < leastOfSide {
			continue
		}
		f.PValue = stats.FisherExact(f.A, f.OfA, f.B, f.OfB)
		f.Duration = difference(&t, has)
		f.Duration.PValue = math.NaN()
		all = append(all, f)
	}
	return all
}

// correctHolm corrects ascending p-values for their number (Holm 1979).
func correctHolm(all []Frequency) {
	least := 0.0
	for i := range all {
		least = max(least, min(1, all[i].PValue*float64(len(all)-i)))
		all[i].PValue = least
	}
}
