package explain

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Limits and thresholds of splits.
const (
	splitAlpha  = 0.02 // probability of splitting a group by a variable that does not matter
	splitEffect = 0.5  // minimum η² for splitting a group
	splitBins   = 4    // maximum number of bins of one variable
)

// minBin is the minimum number of sampled requests in a bin. A bin becomes a group of its own, so it must not be too
// small.
const minBin = 8

// Splits refines groups. If one variable explains the variance of a group, requests with different values are not
// expected to perform alike, and form groups of their own. A group is split by at most one variable.
//
// Only attributes of baseline spans, and the presence and counts of baseline contexts, can split a group, so enabling a
// tracepoint never changes the group of a request. Splits is not safe for concurrent use.
type Splits struct {
	rules map[analysis.Hash]*Split
}

// Split divides a group by the values of a variable.
type Split struct {
	Group    analysis.Hash
	Variable string // as in [detect.Explanation]
	Where    trace.Context
	Effect   float64 // η² of the bins in the sample
	Bins     []SplitBin

	id     columnID
	values map[cell]uint64 // bins of categories; nil for numbers
	limits []float64       // for numbers: the bin of a number is the number of limits below it
}

// SplitBin is one bin of a split. Bins of numbers ascend by value. Bins of categories ascend by their mean duration in
// the sample that the split was learned from.
type SplitBin struct {
	Values []string // categories, ascending, or nil for numbers; other categories belong to bin 0
	Low    float64  // the bin contains the numbers in (Low, High]
	High   float64
}

// NewSplits returns empty Splits.
func NewSplits() *Splits { return &Splits{rules: make(map[analysis.Hash]*Split)} }

// Keep deletes the splits of the groups for which kept returns false.
func (s *Splits) Keep(kept func(group analysis.Hash) bool) {
	maps.DeleteFunc(s.rules, func(group analysis.Hash, _ *Split) bool { return !kept(group) })
}

// Bins returns the bins of the group with identity whole, by the result of Bin, or nil if the group is not split.
func (s *Splits) Bins(whole analysis.Hash) map[uint64]group.VariableBin {
	r := s.rules[whole]
	if r == nil {
		return nil
	}
	bins := make(map[uint64]group.VariableBin, len(r.Bins))
	for i := range r.Bins {
		bins[r.hash(uint64(i))] = group.VariableBin{Variable: r.Variable, Value: r.Bins[i].String(), Where: r.Where}
	}
	return bins
}

// Bin returns a hash of the variable and the bin of o, to be mixed into the identity of the group. It returns 0 if the
// group is not split, and for bin 0, which thus keeps the identity and the history of the group. group is the identity
// without bins. Bin takes time O(log n) in the number of contexts and variables of o.
func (s *Splits) Bin(o *observation.Observation, group analysis.Hash) uint64 {
	r := s.rules[group]
	if r == nil {
		return 0
	}
	return r.hash(r.bin(o))
}

// hash returns the hash of bin that is mixed into the identity of its group, or 0 for bin 0.
func (r *Split) hash(bin uint64) uint64 {
	if bin == 0 {
		return 0
	}
	return trace.Mix(trace.Mix(uint64(r.id.context), uint64(r.id.key)), trace.Mix(uint64(r.id.kind), bin))
}

// Learn splits group by the variable that best explains the durations of requests, a uniform sample of the group. The
// variable must be significant and explain enough. Learn reports whether it split the group. It does nothing if there
// are fewer than 64 requests.
func (s *Splits) Learn(group analysis.Hash, requests []*observation.Observation, table *trace.Table) bool {
	if len(requests) < manyRequests {
		return false
	}
	r := s.find(requests, table)
	if r == nil {
		return false
	}
	r.Group = group
	s.rules[group] = r
	return true
}

// find returns a split learned from requests, a sample of a group, or nil if no variable explains enough.
func (s *Splits) find(requests []*observation.Observation, table *trace.Table) *Split {
	st := newStudy(Options{Alpha: splitAlpha}, table, requests)
	st.splits = true
	st.collect()
	st.columns = slices.DeleteFunc(st.columns, func(c column) bool {
		return c.tracepoint != 0 || c.id.kind != attribute && c.id.kind != presence && c.id.kind != spanCount
	})
	st.addTargets(&detect.Problem{})
	if len(st.targets) == 0 {
		return nil
	}
	st.testAll()
	t := &st.targets[0]
	for _, x := range st.causes(t) {
		if r := s.divide(st, t, &st.columns[x.column]); r.Effect >= splitEffect {
			return r
		}
	}
	return nil
}

// divide divides the values of c into bins. Numbers are ordered by value, categories by their mean time. It repeatedly
// adds the boundary that explains most, as long as the boundary explains enough of the bin that it divides.
func (s *Splits) divide(st *study, t *target, c *column) *Split {
	units := unitsOf(c, t.nanos)
	bounds := []int{0, len(units)}
	for len(bounds) <= splitBins {
		at := s.bestBound(units, bounds)
		if at == 0 {
			break
		}
		i, _ := slices.BinarySearch(bounds, at)
		bounds = slices.Insert(bounds, i, at)
	}
	r := &Split{Variable: st.name(c.id), Where: c.id.context, id: c.id}
	if c.codes == nil {
		for _, at := range bounds[1 : len(bounds)-1] {
			r.limits = append(r.limits, units[at-1].value)
		}
		r.numberBins()
	} else {
		r.values = make(map[cell]uint64)
		for b := range len(bounds) - 1 {
			r.addCategories(st, c, units[bounds[b]:bounds[b+1]])
		}
	}
	codes := make([]int32, len(st.requests))
	for i, o := range st.requests {
		codes[i] = int32(r.bin(o))
	}
	r.Effect, _, _ = between(codes, len(r.Bins), t.nanos)
	return r
}

// unit represents the requests with one value, which always belong to the same bin.
type unit struct {
	code      int32   // category
	value     float64 // number; −Inf if there is no number
	count     float64
	sum, sum2 float64 // of the times minus their overall mean
}

// unitsOf returns the units of c: numbers in ascending order, after the requests without a number, or categories in
// ascending order of their mean time.
func unitsOf(c *column, nanos []float64) []unit {
	mean := 0.0
	for _, x := range nanos {
		mean += x / float64(len(nanos))
	}
	index := make(map[uint64]int)
	var units []unit
	for i, x := range nanos {
		u := unit{}
		var id uint64
		if c.codes != nil {
			u.code = c.codes[i]
			id = uint64(u.code)
		} else {
			if u.value = c.values[i]; u.value != u.value {
				u.value = math.Inf(-1)
			}
			id = math.Float64bits(u.value)
		}
		k, ok := index[id]
		if !ok {
			k = len(units)
			index[id] = k
			units = append(units, u)
		}
		d := x - mean
		units[k].count++
		units[k].sum += d
		units[k].sum2 += d * d
	}
	sorting.Slice(units, func(a, b unit) int {
		if c.codes != nil {
			return cmp.Or(cmp.Compare(a.sum/a.count, b.sum/b.count), cmp.Compare(a.code, b.code))
		}
		return cmp.Compare(a.value, b.value)
	})
	return units
}

// squares returns the sum of squared deviations of the times in units from their mean.
func squares(units []unit) float64 {
	var n, sum, sum2 float64
	for _, u := range units {
		n, sum, sum2 = n+u.count, sum+u.sum, sum2+u.sum2
	}
	return sum2 - sum*sum/n
}

// bestBound returns the index of the boundary that explains most, or 0 if no boundary qualifies. It considers
// boundaries that explain enough of the bin that they divide and leave enough requests on both sides.
func (s *Splits) bestBound(units []unit, bounds []int) int {
	best, most := 0, 0.0
	for b := range len(bounds) - 1 {
		part := units[bounds[b]:bounds[b+1]]
		at, gain := boundOf(part)
		if gain > most && gain >= splitEffect*squares(part) {
			best, most = bounds[b]+at, gain
		}
	}
	return best
}

// boundOf returns the index of the unit after the best boundary, and the part of the sum of squares that the boundary
// explains, or 0, 0 if no boundary leaves enough requests on both sides.
func boundOf(units []unit) (at int, gain float64) {
	var n, sum float64
	for _, u := range units {
		n, sum = n+u.count, sum+u.sum
	}
	var below, belowSum float64
	for i, u := range units {
		if above := n - below; below >= minBin && above >= minBin {
			aboveSum := sum - belowSum
			if g := belowSum*belowSum/below + aboveSum*aboveSum/above - sum*sum/n; g > gain {
				at, gain = i, g
			}
		}
		below, belowSum = below+u.count, belowSum+u.sum
	}
	return at, gain
}

// numberBins adds the bins that r.limits separates.
func (r *Split) numberBins() {
	low := math.Inf(-1)
	for _, limit := range r.limits {
		r.Bins = append(r.Bins, SplitBin{Low: low, High: limit})
		low = limit
	}
	r.Bins = append(r.Bins, SplitBin{Low: low, High: math.Inf(1)})
}

// addCategories adds a bin that contains the categories of units.
func (r *Split) addCategories(st *study, c *column, units []unit) {
	number := uint64(len(r.Bins))
	bin := SplitBin{}
	in := make([]bool, len(c.labels))
	for _, u := range units {
		if in[u.code] = number == 0 || c.labels[u.code] != labelOther; in[u.code] {
			bin.Values = append(bin.Values, c.labels[u.code])
		}
	}
	slices.Sort(bin.Values)
	r.Bins = append(r.Bins, bin)
	for i, code := range c.codes {
		if in[code] {
			r.values[categoryOf(cellOf(st.requests[i], c.id))] = number
		}
	}
}

// bin returns the number of the bin of o. Values that were not in the sample of the split belong to bin 0.
func (r *Split) bin(o *observation.Observation) uint64 {
	x := cellOf(o, r.id)
	if r.values != nil {
		return r.values[categoryOf(x)]
	}
	if !x.some || !x.numeric {
		return 0
	}
	var bin uint64
	for _, limit := range r.limits {
		if x.number > limit {
			bin++
		}
	}
	return bin
}

// cellOf returns the value of the variable id in o.
func cellOf(o *observation.Observation, id columnID) cell {
	if id.kind != attribute {
		x := cell{some: true, numeric: true}
		if c := o.Context(id.context); c != nil {
			x.number = float64(c.Count)
			if id.kind == presence {
				x.number = 1
			}
		}
		return x
	}
	v := o.Variable(id.context, id.key)
	if v == nil {
		return cell{}
	}
	return cell{some: true, numeric: v.Numeric, number: v.Number, text: v.Text}
}

// String returns the values of the bin as text.
func (b SplitBin) String() string {
	if b.Values == nil {
		number := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
		switch {
		case math.IsInf(b.High, -1):
			return labelNone
		case math.IsInf(b.Low, -1):
			return "up to " + number(b.High)
		case math.IsInf(b.High, 1):
			return "over " + number(b.Low)
		}
		return "over " + number(b.Low) + " up to " + number(b.High)
	}
	return strings.Join(b.Values, ", ")
}
