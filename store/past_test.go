package store

import (
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/internal/pebbledb"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// firstDay is a Wednesday.
const firstDay = trace.Nanos(20_000 * group.Day)

// written holds the windows that were stored, by group and start.
type written map[analysis.Hash]map[trace.Nanos]group.Past

// numbers returns the windows of the group with the given id that start in [from, to), joined to windows of the given
// length.
func (w written) numbers(id analysis.Hash, from, to trace.Nanos, length time.Duration) []group.Numbers {
	var all []group.Numbers
	joined := make(map[trace.Nanos]group.Past)
	for at, p := range w[id] {
		at -= at % trace.Nanos(length)
		x := joined[at]
		x.Merge(p)
		joined[at] = x
	}
	for _, at := range slices.Sorted(maps.Keys(joined)) {
		if p := joined[at]; at.Add(length) > from && at < to {
			all = append(all, p.Numbers(at, at.Add(length)))
		}
	}
	return all
}

// put stores the windows of the period that starts at `from`, for each group with a probability of one half.
func (w written) put(t *testing.T, r *rand.Rand, s *Store, from trace.Nanos) {
	t.Helper()
	all := make(map[analysis.Hash]*group.Past)
	for _, id := range pastGroups {
		if r.IntN(2) == 0 {
			continue
		}
		p := &group.Past{}
		for range 1 + r.IntN(5) {
			d := int64(math.Exp(28 * r.Float64()))
			p.Total.Add(d)
			p.Latency.Add(d, 1)
		}
		p.Failed = r.Uint64N(p.Total.N + 1)
		all[id] = p
		if w[id] == nil {
			w[id] = make(map[trace.Nanos]group.Past)
		}
		w[id][from] = *p
	}
	must(t, s.Past.Put(NewPeriod(from, maps.All(all))))
}

// pastGroups has groups whose keys are neighbours.
var pastGroups = []analysis.Hash{{Hi: 1, Lo: 255}, {Hi: 1, Lo: 256}, {Hi: math.MaxUint64, Lo: math.MaxUint64}}

// nearly accepts the rounding of packed windows.
var nearly = cmp.Comparer(func(x, y float64) bool {
	return x == y || math.IsNaN(x) && math.IsNaN(y) || math.Abs(x-y) <= 5e-4*max(x, y)+1e-3
})

// The store returns the windows that were written, even after a kill. Short windows are exact; windows of packed days
// are joined. Recent days keep their short windows, and old days are deleted.
func TestWindowsAreRestored(t *testing.T) {
	exact := cmp.Comparer(func(x, y float64) bool { return x == y || math.IsNaN(x) && math.IsNaN(y) })
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 0))
		dir := t.TempDir()
		s, err := openIn(t, dir)
		must(t, err)
		w := make(written)
		for day := range 4 {
			for _, k := range []int{0, 1, 2, 7, 268, 269} {
				w.put(t, r, s, firstDay.Add(time.Duration(day)*group.Day+time.Duration(k)*group.Period))
			}
		}
		packed := firstDay.Add(time.Duration(r.IntN(4))*group.Day + time.Hour)
		must(t, s.Past.Pack(packed))
		must(t, s.Past.Pack(packed)) // it changes nothing
		deleted := firstDay.Add(time.Duration(r.IntN(3))*group.Day + time.Hour)
		must(t, s.Past.DeleteBefore(deleted))
		must(t, s.Checkpoints.Save(&Checkpoint{Seq: 1, State: []byte("state")}, 0)) // makes the windows durable
		killed := t.TempDir()
		must(t, os.CopyFS(killed, os.DirFS(dir)))
		must(t, s.Close())
		s, err = openIn(t, killed)
		must(t, err)
		packed, deleted = packed-packed%trace.Nanos(group.Day), deleted-deleted%trace.Nanos(group.Day)
		end := firstDay.Add(4 * group.Day)
		for _, id := range pastGroups {
			for _, c := range []struct {
				from, to trace.Nanos
				long     bool
				length   time.Duration
				equal    cmp.Option
			}{
				{max(packed, deleted), end, false, group.Period, exact},
				{max(packed, deleted), end, true, group.LongPeriod, exact},
				{deleted, packed, false, group.LongPeriod, nearly},
				{deleted, end, true, group.LongPeriod, nearly},
				{
					firstDay.Add(3*group.Day + group.Period + 1),
					firstDay.Add(3*group.Day + 3*group.Period),
					false,
					group.Period,
					exact,
				},
			} {
				got, err := s.Past.Windows(id, c.from, c.to, c.long)
				must(t, err)
				diff := cmp.Diff(w.numbers(id, c.from, c.to, c.length), got, c.equal, cmpopts.EquateEmpty())
				if diff != "" {
					t.Errorf("seed %d, group %v in [%d, %d), long %t:\n%s", seed, id, c.from, c.to, c.long, diff)
				}
			}
			if got, err := s.Past.Windows(id, 0, deleted, false); err != nil || len(got) > 0 {
				t.Errorf("%d windows of deleted days are left, error %v", len(got), err)
			}
		}
		must(t, s.Close())
	}
}

// The days of windows are listed with their sizes, whether or not they are packed.
func TestPastDays(t *testing.T) {
	s := opened(t)
	for day := range 3 {
		for k := range 270 {
			from := firstDay.Add(time.Duration(day)*group.Day + time.Duration(k)*group.Period)
			must(t, s.Past.Put(NewPeriod(from, func(yield func(analysis.Hash, *group.Past) bool) {
				for i := range uint64(10) {
					var p group.Past
					p.Total.Add(int64(trace.Mix(i, uint64(from)) >> 20))
					p.Latency.Add(1e6, 1)
					if !yield(analysis.Hash{Lo: i}, &p) {
						return
					}
				}
			})))
		}
	}
	must(t, s.Past.Pack(firstDay.Add(group.Day)))
	must(t, s.Compact(t.Context()))
	days, err := s.Past.Days()
	must(t, err)
	if len(days) != 3 || days[0].Day != firstDay || days[2].Day != firstDay.Add(2*group.Day) {
		t.Fatalf("days %+v", days)
	}
	if days[0].Size == 0 || days[0].Size > days[1].Size/2 {
		t.Errorf("a packed day takes %d bytes, another %d", days[0].Size, days[1].Size)
	}
}

// Closed problems are listed latest first, can be read by identity, and are deleted by age and by number.
func TestClosedProblems(t *testing.T) {
	s := opened(t)
	id := func(i int) analysis.Hash { return analysis.Hash{Hi: 5, Lo: uint64(i)} }
	problem := func(at trace.Nanos, i int, evidence string) ClosedProblem {
		return ClosedProblem{at, id(i), fmt.Appendf(nil, "row %d at %d", i, at), []byte(evidence)}
	}
	must(t, s.Closed.Put([]ClosedProblem{problem(10, 1, "first"), problem(10, 2, "")}))
	must(t, s.Closed.Put([]ClosedProblem{problem(20, 1, "second")}))
	must(t, s.Closed.Put([]ClosedProblem{problem(20, 1, "second")})) // read again after a restart
	all, err := s.Closed.All()
	must(t, err)
	var rows []string
	for _, p := range all {
		rows = append(rows, string(p.Row))
	}
	if want := []string{"row 1 at 20", "row 2 at 10", "row 1 at 10"}; !slices.Equal(rows, want) {
		t.Errorf("rows %q, want %q", rows, want)
	}
	for i, want := range map[int]string{1: "second", 2: ""} {
		p, err := s.Closed.Get(id(i))
		must(t, err)
		if p == nil || string(p.Evidence) != want {
			t.Errorf("problem %d: %+v, want evidence %q", i, p, want)
		}
	}
	if p, err := s.Closed.Get(id(3)); p != nil || err != nil {
		t.Errorf("a problem that never closed: %+v, %v", p, err)
	}
	must(t, s.Closed.Trim(11))
	if p, err := s.Closed.Get(id(2)); p != nil || err != nil {
		t.Errorf("a deleted problem: %+v, %v", p, err)
	}
	var many []ClosedProblem
	for i := range MaxClosed + 5 {
		many = append(many, problem(trace.Nanos(30+i), i, "evidence"))
	}
	must(t, s.Closed.Put(many))
	must(t, s.Closed.Trim(0))
	all, err = s.Closed.All()
	if err != nil || len(all) != MaxClosed || all[0].At != 30+MaxClosed+4 || all[MaxClosed-1].At != 35 {
		t.Errorf("%d problems are left, error %v", len(all), err)
	}
	if p, err := s.Closed.Get(id(0)); p != nil || err != nil {
		t.Errorf("the oldest problem of too many: %+v, %v", p, err)
	}
}

// Exemplars are kept by problem and group.
func TestKeptExemplars(t *testing.T) {
	s := opened(t)
	a, b, of := analysis.Hash{Lo: 1}, analysis.Hash{Lo: 2}, search.OfProblem(analysis.Hash{Hi: 9, Lo: 255})
	e := &Exemplars{Slow: []Exemplar{{Trace: trace.ID{1}, Duration: 3, Start: 7}}}
	must(t, s.Kept.Put(of, a, e))
	got, err := s.Kept.Of(of, a)
	must(t, err)
	if diff := cmp.Diff(e, got); diff != "" {
		t.Error(diff)
	}
	n := 0
	must(t, s.Kept.Each(func(x search.Subject, group analysis.Hash, _ *Exemplars) error {
		if n++; x != of || group != a {
			t.Errorf("exemplars of %v and %v", x, group)
		}
		return nil
	}))
	var groups []analysis.Hash
	must(t, s.Kept.EachFor(of, func(group analysis.Hash, _ *Exemplars) error {
		groups = append(groups, group)
		return nil
	}))
	if !slices.Equal(groups, []analysis.Hash{a}) {
		t.Errorf("groups with exemplars of the problem: %v, want %v", groups, a)
	}
	if got, err = s.Kept.Of(of, b); err != nil || n != 1 || len(got.Slow) > 0 {
		t.Errorf("another group: %+v, %v; %d in all", got, err, n)
	}
	must(t, s.Kept.Put(of, a, &Exemplars{}))
	if got, err = s.Kept.Of(of, a); err != nil || len(got.Slow) > 0 {
		t.Errorf("deleted: %+v, %v", got, err)
	}
}

func newBenchStore(b *testing.B) *Store {
	dir := b.TempDir()
	disk, err := pebbledb.NewDisk(dir)
	if err != nil {
		b.Fatal(err)
	}
	s, err := Open(Options{Dir: dir, Disk: disk, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return s
}

// BenchmarkPast measures windows of 10 000 request types with a group each, which have 30 requests in every tenth
// period of two days. It reports the time to encode a period, which blocks the core, the time to store it, the size of
// a window, the time to pack the windows of a day, the size of a long window, and the time to read a day of a group.
func BenchmarkPast(b *testing.B) {
	const groups = 20_000
	s := newBenchStore(b)
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	r := rand.New(rand.NewPCG(1, 1))
	past := make([]group.Past, 512) // shared by the groups
	for i := range past {
		for range 30 {
			d := int64(1e7 * math.Exp(3*r.Float64()+0.5*r.NormFloat64()))
			past[i].Total.Add(d)
			past[i].Latency.Add(d, 1)
		}
	}
	size := func() int64 {
		must(s.Compact(b.Context()))
		days, err := s.Past.Days()
		must(err)
		return days[0].Size
	}
	var encoding, storing time.Duration
	periods := 0
	for b.Loop() {
		for k := range 2 * 27 {
			at, began := firstDay.Add(time.Duration(10*k)*group.Period), time.Now()
			p := NewPeriod(at, func(yield func(analysis.Hash, *group.Past) bool) {
				for i := range uint64(groups) {
					if !yield(analysis.Hash{Hi: trace.Mix(i, 1), Lo: i}, &past[(i*7+uint64(k)*31)%512]) {
						return
					}
				}
			})
			encoding += time.Since(began)
			began = time.Now()
			must(s.Past.Put(p))
			storing += time.Since(began)
			periods++
		}
	}
	short := size()
	began := time.Now()
	must(s.Past.Pack(firstDay.Add(group.Day)))
	packing := time.Since(began)
	b.ReportMetric(encoding.Seconds()*1e3/float64(periods), "encode-ms")
	b.ReportMetric(storing.Seconds()*1e3/float64(periods), "store-ms")
	b.ReportMetric(float64(short)/(27*groups), "B/window")
	b.ReportMetric(packing.Seconds()*1e6/(27*groups), "pack-µs/window")
	b.ReportMetric(float64(size())/(27*groups), "B/long-window")
	for _, x := range []struct {
		day  trace.Nanos
		name string
	}{{firstDay, "read-packed-ms"}, {firstDay.Add(group.Day), "read-ms"}} {
		began := time.Now()
		all, err := s.Past.Windows(analysis.Hash{Hi: trace.Mix(7, 1), Lo: 7}, x.day, x.day.Add(group.Day), false)
		must(err)
		b.ReportMetric(time.Since(began).Seconds()*1e3, x.name)
		if len(all) != 27 {
			b.Fatalf("%d windows", len(all))
		}
	}
}
