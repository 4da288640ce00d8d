package explain

import (
	"cmp"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// Frequency compares how often requests of two sets have one value of an attribute.
type Frequency struct {
	Where    trace.Context // of the attribute
	Key      string
	Value    string
	A, B     int        // requests of each set with the value
	OfA, OfB int        // requests of each set for which it is known whether they have it
	Duration Difference // of the requests of both sets with the value, against those without; PValue is NaN
	PValue   float64    // of a difference in frequency by Fisher's exact test, corrected for the number of values compared (Holm)
}

// Frequencies compares the attributes of two disjoint sets of requests, such as slow ones and the others: each value that enough
// requests have, by how many have it in either set. It returns all values compared, significant or not, by rising p-value, then by
// falling difference. It returns nil if a set is empty or both together are too few.
//
// It leaves out attributes that do not vary, that repeat the duration or another attribute, and numbers of many values; [Associate]
// tests numbers. Options.Alpha, Edges and Concurrency have no effect.
func Frequencies(a, b []*observation.Observation, table *trace.Table, o Options) []Frequency {
	s := newStudy(o, table, slices.Concat(a, b))
	if len(a) == 0 || len(b) == 0 || len(s.requests) < minRequests {
		return nil
	}
	s.collect()
	ofA := make(map[*observation.Observation]bool, len(a))
	for _, x := range a {
		ofA[x] = true
	}
	var all []Frequency
	for i := range s.columns {
		if c := &s.columns[i]; c.id.kind == attribute && c.codes != nil {
			all = append(all, s.frequencies(c, ofA)...)
		}
	}
	apart := func(x *Frequency) float64 { return math.Abs(share(x.A, x.OfA) - share(x.B, x.OfB)) }
	slices.SortStableFunc(all, func(x, y Frequency) int {
		return cmp.Or(cmp.Compare(x.PValue, y.PValue), cmp.Compare(apart(&y), apart(&x)))
	})
	correctHolm(all)
	return all
}

// share returns n/of; 0 for 0/0.
func share(n, of int) float64 { return float64(n) / float64(max(1, of)) }

// frequencies compares the values of one attribute, with p-values that are not corrected.
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
			if c.codes[i] < 0 { // unknown
				continue
			}
			with := b2i(int(c.codes[i]) == code)
			if ofA[x] {
				f.A, f.OfA = f.A+with, f.OfA+1
			} else {
				f.B, f.OfB = f.B+with, f.OfB+1
			}
			t.nanos, has = append(t.nanos, float64(x.Duration)), append(has, int32(with))
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
