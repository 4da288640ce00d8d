package explain

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/gonum/floats"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// columnKind is the source of the values of a variable. If variables are equivalent, the variable with the lowest kind
// represents the others.
type columnKind uint8

const (
	attribute   columnKind = iota
	errorCount             // number of failed spans of a context
	presence               // whether a context was executed
	spanCount              // number of executions of a context
	concurrency            // number of other requests at arrival
	structure              // the skeleton
)

var columnNames = [...]string{"", "errors", "present", "count", "concurrency", "skeleton"}

// columnID identifies a variable.
type columnID struct {
	context trace.Context
	key     trace.Symbol
	kind    columnKind
}

// isAttribute reports whether c is, or is equivalent to, an attribute with the given key.
func (c *column) isAttribute(key trace.Symbol) bool {
	is := func(id columnID) bool { return id.kind == attribute && id.key == key && key != 0 }
	return is(c.id) || slices.ContainsFunc(c.copies, is)
}

// name returns the name of the variable id.
func (s *study) name(id columnID) string {
	if id.kind == attribute {
		return s.table.Text(id.key)
	}
	return columnNames[id.kind]
}

// column is a variable over all requests, categorical or numeric.
type column struct {
	id         columnID
	depth      int // of the context
	tracepoint trace.Symbol
	copies     []columnID // equivalent variables

	codes  []int32  // the category of each request, -1 if unknown; nil if the column is numeric
	labels []string // by category

	values []float64 // of a numeric column, by request; NaN without a value
	ranks  []float64 // of the values, centred; 0 without a value
}

// Limits on columns.
const (
	maxCategories = 24   // maximum number of categories: the most frequent are kept, and the others pooled
	fewValues     = 10   // numbers with at most this many values are also tested as categories: status codes, shards
	maxColumns    = 2048 // maximum number of columns: the first in order of preference are kept
)

// Labels of categories that do not stand for a single value.
const (
	labelNone  = "(none)"  // requests without the attribute
	labelOther = "(other)" // values with too few requests each
)

// cell is the value of a variable in one request.
type cell struct {
	some    bool // whether there is a value
	unknown bool // whether the value is unknown: the tracepoint was not enabled, or the span is not on the path
	numeric bool
	number  float64
	text    trace.Symbol
}

// rawColumn holds the values of a variable before they are divided into categories or ranked.
type rawColumn struct {
	id         columnID
	depth      int
	tracepoint trace.Symbol
	cells      []cell
}

// collect sets s.columns: one column for each variable that varies, in order of preference. Equivalent variables share
// a column.
func (s *study) collect() {
	s.held = make([]bool, len(s.requests))
	for i, o := range s.requests {
		s.held[i] = stats.HeldOut(o.Key())
	}
	raw := s.raw()
	sorting.Slice(raw, func(a, b *rawColumn) int {
		return cmp.Or(cmp.Compare(a.id.kind, b.id.kind), cmp.Compare(a.depth, b.depth),
			cmp.Compare(s.name(a.id), s.name(b.id)),
			cmp.Compare(a.id.context, b.id.context), cmp.Compare(a.id.key, b.id.key))
	})
	first := make(map[analysis.Hash]int)
	for _, r := range raw {
		if s.isDuration(r) || s.isConstant(r) {
			continue
		}
		for _, c := range s.columnsOf(r) {
			if k, ok := first[c.signature()]; ok {
				s.columns[k].copies = append(s.columns[k].copies, c.id)
			} else if len(s.columns) < maxColumns {
				first[c.signature()] = len(s.columns)
				s.columns = append(s.columns, c)
			}
		}
	}
}

// collector collects the values of requests by variable.
type collector struct {
	n        int
	columns  map[columnID]*rawColumn
	contexts map[trace.Context]*contextTally
}

// contextTally counts the executions of a context by request.
type contextTally struct {
	tracepoint trace.Symbol
	depth      int
	counts     []int32
	errors     []int32 // may be nil
}

// column returns the column of the variable id, creating it if necessary.
func (c *collector) column(id columnID) *rawColumn {
	r := c.columns[id]
	if r == nil {
		r = &rawColumn{id: id, cells: make([]cell, c.n)}
		c.columns[id] = r
	}
	return r
}

// raw returns the columns of all variables, in no particular order.
func (s *study) raw() []*rawColumn {
	c := collector{
		n:        len(s.requests),
		columns:  make(map[columnID]*rawColumn),
		contexts: make(map[trace.Context]*contextTally),
	}
	for i, o := range s.requests {
		c.count(i, o)
		for _, v := range o.Variables {
			c.column(columnID{v.Context, v.Key, attribute}).cells[i] = cell{
				some:    true,
				numeric: v.Numeric,
				number:  v.Number,
				text:    v.Text,
			}
		}
		c.column(columnID{kind: structure}).cells[i] = cell{some: true, text: trace.Symbol(o.Skeleton.Lo)}
		if s.options.Concurrency != nil {
			x := s.options.Concurrency(o)
			c.column(columnID{kind: concurrency}).cells[i] = cell{
				some:    x == x,
				unknown: x != x,
				numeric: true,
				number:  x,
			}
		}
	}
	c.derive()
	out := make([]*rawColumn, 0, len(c.columns))
	for _, r := range c.columns {
		if t := c.contexts[r.id.context]; t != nil {
			r.tracepoint, r.depth = t.tracepoint, t.depth
			s.setUnknown(r, t)
		}
		if r.id.kind == attribute && r.tracepoint == 0 && !s.splits {
			s.setAbsent(r)
		}
		out = append(out, r)
	}
	return out
}

// count adds the executions and errors of the contexts of o, which is request i.
func (c *collector) count(i int, o *observation.Observation) {
	for k := range o.Contexts {
		x := &o.Contexts[k]
		t := c.contexts[x.Context]
		if t == nil {
			t = &contextTally{tracepoint: x.Tracepoint, depth: c.depth(o, x), counts: make([]int32, c.n)}
			c.contexts[x.Context] = t
		}
		t.tracepoint = min(t.tracepoint, x.Tracepoint) // 0 if the context is a baseline context in any request
		t.counts[i] = x.Count
		if x.Errors > 0 {
			if t.errors == nil {
				t.errors = make([]int32, c.n)
			}
			t.errors[i] = x.Errors
		}
	}
}

// depth returns the depth of x, a context of o.
func (c *collector) depth(o *observation.Observation, x *observation.ContextCount) int {
	for depth := 0; ; depth++ {
		if known := c.contexts[x.Context]; known != nil {
			return depth + known.depth
		}
		up := o.Context(x.Parent)
		if up == nil || depth > len(o.Contexts) {
			return depth
		}
		x = up
	}
}

// derive adds the variables that derive from contexts, if they vary.
func (c *collector) derive() {
	for context, t := range c.contexts {
		add := func(kind columnKind, counts []int32, most int32) {
			r := c.column(columnID{context: context, kind: kind})
			for i, n := range counts {
				r.cells[i] = cell{some: true, numeric: true, number: float64(min(n, most))}
			}
		}
		low, high := slices.Min(t.counts), slices.Max(t.counts)
		if low == 0 && high > 0 {
			add(presence, t.counts, 1)
		}
		if low < high && high > 1 {
			add(spanCount, t.counts, high)
		}
		if t.errors != nil {
			add(errorCount, t.errors, slices.Max(t.errors))
		}
	}
}

// setUnknown makes the value of r unknown for the requests that did not execute its context and did not have the
// tracepoint of the context enabled.
func (s *study) setUnknown(r *rawColumn, t *contextTally) {
	if t.tracepoint == 0 {
		return
	}
	for i, n := range t.counts {
		if n == 0 && (s.options.On == nil || !s.options.On(s.requests[i], t.tracepoint)) {
			r.cells[i] = cell{unknown: true}
		}
	}
}

// setAbsent makes the value of r, an attribute, unknown for the requests without its span on their critical path.
// Otherwise, they would count as requests without the value, and an attribute of spans that are on the path of slow
// requests only would seem to explain that the requests are slow.
func (s *study) setAbsent(r *rawColumn) {
	for i := range r.cells {
		if c := &r.cells[i]; !c.some && !hasVariables(s.requests[i], r.id.context) {
			*c = cell{unknown: true}
		}
	}
}

// isConstant reports whether a baseline attribute has the same value on all spans of its context on critical paths,
// like the name of the service. Such an attribute is equivalent to the presence of the context.
func (s *study) isConstant(r *rawColumn) bool {
	if r.id.kind != attribute || r.tracepoint != 0 { // attributes of tracepoints are always of interest
		return false
	}
	var only cell
	for i, c := range r.cells {
		if !c.some {
			if hasVariables(s.requests[i], r.id.context) {
				return false
			}
			continue
		}
		if only.some && c != only {
			return false
		}
		only = c
	}
	return true
}

// hasVariables reports whether the critical path of o has a span of context with attributes.
func hasVariables(o *observation.Observation, context trace.Context) bool {
	_, found := slices.BinarySearchFunc(o.Variables, context,
		func(v observation.Variable, x trace.Context) int { return cmp.Compare(v.Context, x) })
	return found
}

// durationUnits are the units, in ns, of durations in attributes.
var durationUnits = [...]float64{1, 1e3, 1e6, 1e9}

// isDuration reports whether the values of an attribute are, in some unit, the durations of its spans or of the
// requests. Such an attribute explains nothing. Values may be rounded, and may be up to 3 % shorter, because they are
// measured before the span ends.
func (s *study) isDuration(r *rawColumn) bool {
	if r.id.kind != attribute {
		return false
	}
	for _, unit := range durationUnits {
		if s.measures(r, unit, func(o *observation.Observation) float64 { return float64(o.Duration) }) ||
			s.measures(r, unit, func(o *observation.Observation) float64 { return totalAt(o, r.id.context) }) {
			return true
		}
	}
	return false
}

// measures reports whether the values of r, in the given unit, are the times that nanos returns.
func (s *study) measures(r *rawColumn, unit float64, nanos func(o *observation.Observation) float64) bool {
	rounded := unit
	for _, c := range r.cells {
		if c.some && c.number != math.Trunc(c.number) {
			rounded = 0
		}
	}
	low, high := math.Inf(1), 0.0
	for i, c := range r.cells {
		if !c.some {
			continue
		}
		d := nanos(s.requests[i])
		if x := c.number * unit; !c.numeric || !(x <= 1.001*d+rounded && x >= 0.97*d-rounded) {
			return false
		}
		low, high = min(low, c.number*unit), max(high, c.number*unit)
	}
	return high > low+max(1, 2*rounded) // one or two distinct rounded values are no evidence
}

// totalAt returns the total duration of the spans of o in context, or 0 if o did not execute it.
func totalAt(o *observation.Observation, context trace.Context) float64 {
	if c := o.Context(context); c != nil {
		return float64(c.Total)
	}
	return 0
}

// columnsOf returns the numeric column of r, the categorical column, both or neither.
func (s *study) columnsOf(r *rawColumn) []column {
	base := column{id: r.id, depth: r.depth, tracepoint: r.tracepoint}
	var distinct []float64 // at most fewValues+1
	present := 0
	for _, c := range r.cells {
		if !c.some {
			continue
		}
		present++
		if !c.numeric || c.number != c.number {
			return s.categorical(base, r)
		}
		if len(distinct) <= fewValues && !slices.Contains(distinct, c.number) {
			distinct = append(distinct, c.number)
		}
	}
	var out []column
	if len(distinct) <= fewValues {
		out = s.categorical(base, r)
	}
	if len(distinct) > 2 && present >= max(8, 2*s.minCount()) {
		out = append(out, numericColumn(base, r))
	}
	return out
}

// minCount returns the minimum number of requests in a category.
func (s *study) minCount() int { return max(3, len(s.requests)/64) }

// numericColumn returns c with the numbers in r.
func numericColumn(c column, r *rawColumn) column {
	c.values = make([]float64, len(r.cells))
	for i, x := range r.cells {
		c.values[i] = math.NaN()
		if x.some {
			c.values[i] = x.number
		}
	}
	c.ranks = ranksOf(c.values)
	return c
}

// ranksOf returns the rank of each value, centred. Equal values get the mean of their ranks, and NaN gets 0.
func ranksOf(values []float64) []float64 {
	order := make([]int, 0, len(values))
	for i, v := range values {
		if v == v {
			order = append(order, i)
		}
	}
	sorting.Slice(order, func(a, b int) int { return cmp.Compare(values[a], values[b]) })
	ranks := make([]float64, len(values))
	middle := float64(len(order)-1) / 2
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && values[order[j]] == values[order[i]] {
			j++
		}
		for _, k := range order[i:j] {
			ranks[k] = float64(i+j-1)/2 - middle
		}
		i = j
	}
	return ranks
}

// categorical returns the column of the categories of r, or nil unless at least two categories have enough requests.
func (s *study) categorical(c column, r *rawColumn) []column {
	numbers, categories := s.number(r.cells)
	order := make([]int32, len(categories))
	for i := range order {
		order[i] = int32(i)
	}
	sorting.Slice(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(categories[b].count, categories[a].count),
			compareCells(categories[a].cell, categories[b].cell))
	})
	least, most := s.minCount(), max(2, min(maxCategories, len(r.cells)/8))
	codes := make([]int32, len(categories))
	rare := 0 // requests of rare categories
	for i, k := range order {
		if x := &categories[k]; i < most && x.count >= least {
			codes[k] = int32(i)
			c.labels = append(c.labels, s.label(r.id.kind, x.cell))
		} else {
			codes[k] = -1
			rare += x.count
		}
	}
	other := int32(0) // if there are few of them, they join the most frequent category, which they change least
	if rare >= least {
		other = int32(len(c.labels))
		c.labels = append(c.labels, labelOther)
	}
	if len(c.labels) < 2 {
		return nil
	}
	c.codes = numbers
	for i, k := range numbers {
		if k >= 0 {
			if c.codes[i] = codes[k]; codes[k] < 0 {
				c.codes[i] = other
			}
		}
	}
	return []column{c}
}

// category is a value with the number of requests that have it.
type category struct {
	cell  cell
	count int
}

// number returns the index of the category of each cell, or -1 if the cell is unknown, and the categories, in no
// particular order.
func (s *study) number(cells []cell) ([]int32, []category) {
	numbers := make([]int32, len(cells))
	var categories []category
	clear(s.known)
	for i := range cells {
		if cells[i].unknown {
			numbers[i] = -1
			continue
		}
		x := categoryOf(cells[i])
		k, known := s.known[x.key()]
		if !known {
			k = int32(len(categories))
			s.known[x.key()] = k
			categories = append(categories, category{cell: x})
		}
		categories[k].count++
		numbers[i] = k
	}
	return numbers, categories
}

// cellKey identifies the value of a cell. Hashing it is much faster than hashing a cell.
type cellKey [3]uint64

func (c *cell) key() cellKey {
	flags := uint64(0)
	if c.some {
		flags |= 1
	}
	if c.numeric {
		flags |= 2
	}
	return cellKey{math.Float64bits(c.number + 0), uint64(c.text), flags} // +0 replaces negative zero
}

// categoryOf returns the value that stands for the category of c. All NaNs are in one category, and so are all cells
// without a value.
func categoryOf(c cell) cell {
	if !c.some || c.number != c.number {
		return cell{some: c.some}
	}
	return c
}

// label returns the label of the category of c.
func (s *study) label(kind columnKind, c cell) string {
	switch {
	case !c.some:
		return labelNone
	case kind == presence:
		return strconv.FormatBool(c.number != 0)
	case kind == structure:
		return strconv.FormatUint(uint64(c.text), 16)
	case c.numeric:
		return strconv.FormatFloat(c.number, 'g', -1, 64)
	}
	return s.table.Text(c.text)
}

// signature returns a hash that is equal for equivalent columns. Columns are equivalent if their categories are the
// same sets of requests, or if their numbers are in the same or in the opposite order.
func (c *column) signature() analysis.Hash {
	words := make([]uint64, 0, 1+len(c.codes)+len(c.ranks))
	if c.codes == nil {
		words = append(words, 0)
	} else {
		words = append(words, 1)
	}
	numbers := make(map[int32]uint64)
	for _, code := range c.codes {
		if _, ok := numbers[code]; !ok {
			numbers[code] = uint64(len(numbers))
		}
		words = append(words, numbers[code])
	}
	sign := 0.0
	for _, rank := range c.ranks {
		if sign == 0 {
			sign = rank
		}
		words = append(words, math.Float64bits(math.Copysign(1, sign)*rank+0)) // +0 replaces negative zero
	}
	return analysis.HashOf(words...)
}

// controls returns columns that together account for the effect of c, if it is smooth. Unless curved is true, the
// effect of a numeric column is assumed to be linear in its ranks, which takes fewer degrees of freedom.
func (c *column) controls(curved bool) [][]float64 {
	if c.codes != nil {
		out := make([][]float64, len(c.labels))
		for i := range out {
			out[i] = make([]float64, len(c.codes))
		}
		parts := partsOf(c.codes, len(c.labels))
		for i, code := range c.codes {
			if code >= 0 {
				out[code][i] = 1
				continue
			}
			for k, part := range parts {
				out[k][i] = part
			}
		}
		return out
	}
	n := len(c.ranks)
	out := [][]float64{c.ranks}
	if !curved {
		return out
	}
	half := floats.Norm(c.ranks, math.Inf(1))
	for degree := 2; degree <= 3; degree++ {
		v := make([]float64, n)
		for i, rank := range c.ranks {
			v[i] = math.Pow(rank/half, float64(degree))
		}
		out = append(out, v)
	}
	var sum, count float64
	for _, v := range c.values {
		if v == v {
			sum, count = sum+math.Abs(v), count+1
		}
	}
	mean := sum / count
	plain, log := make([]float64, n), make([]float64, n)
	for i, v := range c.values {
		if v == v && !math.IsInf(mean, 0) && mean > 0 {
			plain[i] = v / mean
			log[i] = math.Copysign(math.Log1p(100*math.Abs(v)/mean), v)
		}
	}
	return append(out, plain, log)
}

// partsOf returns the fraction of each category among the requests with a known category. A request with an unknown
// category belongs to every category with that fraction, so that it doesn't affect differences between categories.
func partsOf(codes []int32, categories int) []float64 {
	parts := make([]float64, categories)
	known := 0.0
	for _, code := range codes {
		if code >= 0 {
			parts[code]++
			known++
		}
	}
	if known > 0 {
		floats.Scale(1/known, parts)
	}
	return parts
}

// of returns c restricted to the requests with the indices in rows.
func (c *column) of(rows []int) column {
	out := *c
	if c.codes != nil {
		out.codes = pick(c.codes, rows)
		return out
	}
	out.values = pick(c.values, rows)
	out.ranks = ranksOf(out.values)
	return out
}

// pick returns the elements of xs with the given indices.
func pick[T any](xs []T, rows []int) []T {
	out := make([]T, len(rows))
	for i, r := range rows {
		out[i] = xs[r]
	}
	return out
}

func compareCells(a, b cell) int {
	return cmp.Or(cmp.Compare(a.text, b.text), cmp.Compare(a.number, b.number),
		trace.CompareBools(a.some, b.some), trace.CompareBools(a.numeric, b.numeric))
}
