package history

import (
	"bytes"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// Series is the history of a site.
type Series struct {
	Times // own times
	// Local holds local times: own times including all INTERNAL spans inside the same call of the service. They don't
	// depend on the number of these spans. Local is nil without such spans, because local times then equal own times.
	Local  *Times
	Shapes []ShapeSeries
	Week   *Week // nil if not yet known

	within Logs // durations of the requests with these calls; each hour has half the weight of the next

	changed uint64 // value of [Changes] after the last change
}

// Times counts calls with their times.
type Times struct {
	Counts
	past pastSum // last result of [Times.Before]
}

// ShapeSeries counts the calls of one shape at a site.
type ShapeSeries struct {
	Shape
	Counts
}

// LocalTimes returns the local times of the calls. If no call has inner spans, they are the same as s.Times.
func (s *Series) LocalTimes() *Times {
	if s.Local != nil {
		return s.Local
	}
	return &s.Times
}

// stillOpen is the maximum time, in typical durations, that a request may have been running without our knowledge. We
// see requests only once they end.
const stillOpen = 4

// StillOpen returns the maximum time for which requests with these calls may have been running without our knowledge.
func (s *Series) StillOpen() time.Duration { return stillOpen * time.Duration(s.within.Nanos()) }

// merge adds c, the calls in slice `at`. It reorders the shapes of c. shapes is the number of shapes of all sites;
// merge increments it for each shape that it adds.
func (s *Series) merge(at Slice, c *tallyCell, shapes *int) {
	s.addTimes(Cell{at, uint32(c.calls), c.nanos, c.beside, c.logs},
		Cell{Nanos: c.inner, Beside: c.innerBeside, logs: c.innerLogs})
	s.within.Calls, s.within.sum = s.within.Calls+c.calls, s.within.sum+c.within
	sorting.Slice(c.shapes, func(a, b shapeCount) int { return a.Shape.compare(b.Shape) })
	for _, x := range c.shapes {
		s.shape(x.Shape, shapes).add(Cell{Slice: at, Calls: uint32(x.calls)})
	}
}

// addTimes adds calls with their own times. inner holds the amounts by which their local times and logarithms exceed x.
func (s *Series) addTimes(x, inner Cell) {
	if s.Local == nil && inner != (Cell{}) {
		s.Local = &Times{Counts: s.clone()}
	}
	s.add(x)
	if s.Local != nil {
		x.Merge(&inner)
		s.Local.add(x)
	}
}

// shape returns the series of shape x, creating it if necessary, or the series of all other shapes if there are too
// many.
func (s *Series) shape(x Shape, shapes *int) *ShapeSeries {
	for i := range s.Shapes {
		if s.Shapes[i].Shape == x {
			return &s.Shapes[i]
		}
	}
	if (len(s.Shapes) >= SiteShapes || *shapes >= maxAllShapes) && x.Hash != 0 {
		x.Hash = 0
		return s.shape(x, shapes)
	}
	*shapes++
	if len(s.Shapes) == cap(s.Shapes) { // grow by one: there are many sites, and their shapes are soon stable
		s.Shapes = append(make([]ShapeSeries, 0, len(s.Shapes)+1), s.Shapes...)
	}
	s.Shapes = append(s.Shapes, ShapeSeries{Shape: x})
	return &s.Shapes[len(s.Shapes)-1]
}

// age applies a, and deletes shapes without cells. It reports whether cells were deleted or joined.
func (s *Series) age(a *aging, shapes *int) (changed bool) {
	if changed = s.Counts.age(a); s.Local != nil && s.Local.age(a) && bytes.Equal(s.Local.bytes, s.bytes) {
		s.Local = nil // the calls with inner spans are gone
	}
	empty := false
	for i := range s.Shapes {
		changed = s.Shapes[i].age(a) || changed
		empty = empty || s.Shapes[i].empty()
	}
	if empty {
		before := len(s.Shapes)
		s.Shapes = slices.DeleteFunc(s.Shapes, func(x ShapeSeries) bool { return x.empty() })
		*shapes -= before - len(s.Shapes)
	}
	return changed
}

// pastSum is the sum of the calls at a site before a window, excluding skipped ones. It is cached because decoding all
// of these calls in each epoch would take most of the time of a comparison while an incident is open.
type pastSum struct {
	changes uint64 // number of changes when the sum was made, plus 1; outdated if the past changes later
	end     mark   // of the summed cells
	calls   uint64
	logs    int64
}

// Before returns the number of calls before slice `at` and the total of their logarithms. It leaves out calls in
// skipped, the skipped times of their service. It caches the sums, because `at` is usually the same as in the previous
// call, or a little later. changes counts the changes of the history; [Changes.Note] must have been called for `at`.
func (s *Times) Before(at Slice, skipped Ranges, changes *Changes) (calls uint64, logs int64) {
	s.seek(at)
	if k := len(skipped); k == 0 || s.earlier == 0 || s.First() >= skipped[k-1].To {
		return s.earlier, s.earlierLogs
	}
	sum := &s.past
	if sum.changes <= changes.past || sum.end.offset > s.window.offset {
		*sum = pastSum{changes: changes.count + 1}
	}
	for sum.end.offset < s.window.offset {
		x, next := decodeCell(s.bytes, int(sum.end.offset), sum.end.before)
		sum.end = mark{int32(next), x.Slice}
		if !skipped.Contains(x.Slice) {
			sum.calls += uint64(x.Calls)
			sum.logs += x.logs
		}
	}
	return sum.calls, sum.logs
}

func (s *Series) appendTo(b []byte) []byte {
	b = codec.AppendUvarints(b, s.within.Calls, uint64(s.within.sum))
	b = s.Counts.appendTo(b, timed|beside|logged)
	b = codec.AppendBools(b, s.Local != nil)
	if s.Local != nil {
		b = s.Local.appendTo(b, timed|beside|logged)
	}
	b = codec.AppendUvarints(b, uint64(len(s.Shapes)))
	for _, x := range sorting.Sorted(slices.Values(s.Shapes),
		func(a, b ShapeSeries) int { return a.Shape.compare(b.Shape) }) {
		b = codec.AppendWords(b, x.Hash)
		b = codec.AppendBools(b, x.Failed, x.answered)
		b = x.appendTo(b, 0)
	}
	return s.Week.appendTo(b)
}

func (s *Series) read(r *codec.Reader) {
	s.within = Logs{r.Uvarint(), int64(r.Below(1 << 63))}
	times := func(x *Cell) { x.Nanos, x.Beside, x.logs = r.Varint(), r.Varint(), int64(r.Below(1<<63)) }
	s.pack(readCells(r, times))
	if r.Bool() {
		s.Local = &Times{}
		s.Local.pack(readCells(r, times))
	}
	n := r.Count(11)
	s.Shapes = make([]ShapeSeries, 0, n)
	for range n {
		x := ShapeSeries{Shape: Shape{r.Word(), r.Bool(), r.Bool()}}
		x.pack(readCells(r, nil))
		s.Shapes = append(s.Shapes, x)
	}
	s.Week = readWeek(r)
}
