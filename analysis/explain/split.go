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
	"github.com/sibyl-trace/sibyl/trace"
)

// SplitOptions say when a group is split by a variable. The zero value takes the defaults.
type SplitOptions struct {
	Alpha float64 // probability of splitting a group by a variable that does not matter; 0: 0.02
	Split float64 // η² from which a variable splits its group; 0: 0.5
	Undo  float64 // η² under which a split no longer explains; 0: 0.25
	// Patience is how many samples in a row a split must fail to explain before it is undone; 0: 3.
	Patience int
	Bins     int // at most, of one variable; 0: 4
}

// leastBin is the number of sampled requests that a bin needs: a group of its own will have to be judged by its share of the
// requests.
const leastBin = 8

// Splits refines groups: where one variable explains the variance of a group, requests with different values of it are not expected
// to perform alike, and form groups of their own. A group is split by one variable at most.
//
// Only attributes of baseline spans, and presence and counts of baseline contexts, split a group: what is switched on never
// changes the group of a request. It is not safe for concurrent use.
type Splits struct {
	options SplitOptions
	rules   map[analysis.Hash]*Split
}

// Split is the variable by which a group is split, and how.
type Split struct {
	Group    analysis.Hash
	Variable string // as in [detect.Explanation]
	Where    trace.Context
	Effect   float64 // η² of the bins, in the latest sample
	Misses   int     // samples in a row that it did not explain
	Bins     []SplitBin

	id     columnID
	values map[cell]uint64 // bins of categories; nil for a number
	any    bool            // whatever its value, it is one category
	limits []float64       // a number is in the bin numbered by how many of these are below it
}

// SplitBin is one bin of a split, by rising mean duration in the sample it was learned from if it is of categories, else by
// rising value.
type SplitBin struct {
	Values []string // categories, ascending; other categories count as of bin 0. Nil for numbers
	Low    float64  // of numbers: in (Low, High]
	High   float64
}

// NewSplits returns Splits that split nothing yet.
func NewSplits(o SplitOptions) *Splits {
	o.Alpha = cmp.Or(o.Alpha, 0.02)
	o.Split = cmp.Or(o.Split, 0.5)
	o.Undo = cmp.Or(o.Undo, 0.25)
	o.Patience = cmp.Or(o.Patience, 3)
	o.Bins = cmp.Or(o.Bins, 4)
	return &Splits{options: o, rules: make(map[analysis.Hash]*Split)}
}

// Of returns the split of a group, nil if it is not split. It is valid until the group is learned again.
func (s *Splits) Of(group analysis.Hash) *Split { return s.rules[group] }

// Keep forgets the splits of groups that are not kept.
func (s *Splits) Keep(kept func(group analysis.Hash) bool) {
	maps.DeleteFunc(s.rules, func(group analysis.Hash, _ *Split) bool { return !kept(group) })
}

// Bins returns what the requests of a group have in common, by what Bin returns for them; nil if it is not split.
func (s *Splits) Bins(whole analysis.Hash) map[uint64]group.VariableBin {
	r := s.rules[whole]
	if r == nil {
		return nil
	}
	bins := make(map[uint64]group.VariableBin, len(r.Bins))
	for i := range r.Bins {
		bins[r.mixed(uint64(i))] = group.VariableBin{Variable: r.Variable, Value: r.Bins[i].String(), Where: r.Where}
	}
	return bins
}

// Bin returns the bin of o within a group, given by the identity that it has without bins: 0 for bin 0 and in a group that is not
// split, else a hash of the variable and the number of the bin, to be mixed into the group's identity. Bin 0 keeps the identity, and
// with it the history, of the group. It takes time O(log n) in the number of o's contexts and variables.
func (s *Splits) Bin(o *observation.Observation, group analysis.Hash) uint64 {
	r := s.rules[group]
	if r == nil {
		return 0
	}
	return r.mixed(r.bin(o))
}

// mixed returns what a bin adds to the identity of a group; 0: nothing.
func (r *Split) mixed(bin uint64) uint64 {
	if bin == 0 {
		return 0
	}
	return trace.Mix(trace.Mix(uint64(r.id.context), uint64(r.id.key)), trace.Mix(uint64(r.id.kind), bin))
}

// Learn judges the split of a group by a uniform sample of its requests, whatever bins they are in, and reports whether it changed: a
// group that is not split is split by the variable that explains its durations best, if that is certain and enough; a split that
// explains too little in several samples in a row is undone. Samples that are too small change nothing.
func (s *Splits) Learn(group analysis.Hash, requests []*observation.Observation, table *trace.Table) bool {
	if len(requests) < manyRequests {
		return false
	}
	if r := s.rules[group]; r != nil {
		return s.judge(r, requests)
	}
	r := s.find(requests, table)
	if r == nil {
		return false
	}
	r.Group = group
	s.rules[group] = r
	return true
}

// judge updates a split and undoes it when it no longer explains.
func (s *Splits) judge(r *Split, requests []*observation.Observation) bool {
	requests = sortedRequests(requests)
	codes, nanos := make([]int32, len(requests)), make([]float64, len(requests))
	for i, o := range requests {
		codes[i], nanos[i] = int32(r.bin(o)), float64(o.Duration)
	}
	r.Effect, _, _ = between(codes, len(r.Bins), nanos)
	if r.Effect >= s.options.Undo {
		r.Misses = 0
		return false
	}
	if r.Misses++; r.Misses < s.options.Patience {
		return false
	}
	delete(s.rules, r.Group)
	return true
}

// find returns the split that the requests ask for, nil if they ask for none.
func (s *Splits) find(requests []*observation.Observation, table *trace.Table) *Split {
	st := newStudy(Options{Alpha: s.options.Alpha}, table, requests)
	st.collect()
	st.columns = slices.DeleteFunc(st.columns, func(c column) bool {
		return c.tracepoint != 0 || c.id.kind != attribute && c.id.kind != presence && c.id.kind != spanCount
	})
	st.aim(&detect.Problem{})
	if len(st.targets) == 0 {
		return nil
	}
	st.testAll()
	t := &st.targets[0]
	for _, x := range st.causes(t) {
		if r := s.cut(st, t, &st.columns[x.column]); r.Effect >= s.options.Split {
			return r
		}
	}
	return nil
}

// cut divides the values of c, in order (categories by their mean), where it explains most, again and again as long as a cut explains
// enough of the bin that it divides.
func (s *Splits) cut(st *study, t *target, c *column) *Split {
	units := unitsOf(c, t.nanos)
	cuts := []int{0, len(units)}
	for len(cuts) <= s.options.Bins {
		at := s.bestCut(units, cuts)
		if at == 0 {
			break
		}
		i, _ := slices.BinarySearch(cuts, at)
		cuts = slices.Insert(cuts, i, at)
	}
	r := &Split{Variable: st.name(c.id), Where: c.id.context, id: c.id, any: c.any}
	if c.codes == nil {
		for _, at := range cuts[1 : len(cuts)-1] {
			r.limits = append(r.limits, units[at-1].value)
		}
		r.numberBins()
	} else {
		r.values = make(map[cell]uint64)
		for b := range len(cuts) - 1 {
			r.addCategories(st, c, units[cuts[b]:cuts[b+1]])
		}
	}
	codes := make([]int32, len(st.requests))
	for i, o := range st.requests {
		codes[i] = int32(r.bin(o))
	}
	r.Effect, _, _ = between(codes, len(r.Bins), t.nanos)
	return r
}

// unit is the requests with one value, which no cut divides.
type unit struct {
	code      int32   // of a category
	value     float64 // of a number; −Inf where there is none
	count     float64
	sum, sum2 float64 // of the times, less their mean over all
}

// unitsOf returns the values of c: numbers ascending, none first; categories by rising mean time.
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
	slices.SortFunc(units, func(a, b unit) int {
		if c.codes != nil {
			return cmp.Or(cmp.Compare(a.sum/a.count, b.sum/b.count), cmp.Compare(a.code, b.code))
		}
		return cmp.Compare(a.value, b.value)
	})
	return units
}

// squares returns the sum of squares of the times about their mean.
func squares(units []unit) float64 {
	var n, sum, sum2 float64
	for _, u := range units {
		n, sum, sum2 = n+u.count, sum+u.sum, sum2+u.sum2
	}
	return sum2 - sum*sum/n
}

// bestCut returns the cut that explains most of those that explain enough of the bin they divide; 0 if there is none that leaves
// enough requests on both sides.
func (s *Splits) bestCut(units []unit, cuts []int) int {
	best, most := 0, 0.0
	for b := range len(cuts) - 1 {
		part := units[cuts[b]:cuts[b+1]]
		at, gain := cutOf(part)
		if gain > most && gain >= s.options.Split*squares(part) {
			best, most = cuts[b]+at, gain
		}
	}
	return best
}

// cutOf returns before which unit a cut explains most, and the sum of squares that it explains.
func cutOf(units []unit) (at int, gain float64) {
	var n, sum float64
	for _, u := range units {
		n, sum = n+u.count, sum+u.sum
	}
	var below, belowSum float64
	for i, u := range units {
		if above := n - below; below >= leastBin && above >= leastBin {
			aboveSum := sum - belowSum
			if g := belowSum*belowSum/below + aboveSum*aboveSum/above - sum*sum/n; g > gain {
				at, gain = i, g
			}
		}
		below, belowSum = below+u.count, belowSum+u.sum
	}
	return at, gain
}

// numberBins fills in the bins that the limits make.
func (r *Split) numberBins() {
	low := math.Inf(-1)
	for _, limit := range r.limits {
		r.Bins = append(r.Bins, SplitBin{Low: low, High: limit})
		low = limit
	}
	r.Bins = append(r.Bins, SplitBin{Low: low, High: math.Inf(1)})
}

// addCategories makes the units the next bin.
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
			r.values[categoryOf(cellOf(st.requests[i], c.id), c.any)] = number
		}
	}
}

// bin returns the number of o's bin. What was not seen when the split was learned is in bin 0.
func (r *Split) bin(o *observation.Observation) uint64 {
	x := cellOf(o, r.id)
	if r.values != nil {
		return r.values[categoryOf(x, r.any)]
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

// cellOf returns the value of a variable in one request.
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

// All returns the splits of all groups, by group.
func (s *Splits) All() []*Split {
	all := make([]*Split, 0, len(s.rules))
	for _, r := range s.rules {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *Split) int { return a.Group.Compare(b.Group) })
	return all
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
