package live

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// sum counts the requests that a test sent in one period.
type sum struct {
	n     uint64
	nanos int64
}

// The windows of yesterday and last week contain the requests sent then, even if the service was killed in between.
// Last week's windows are long. Windows beyond the age limit are deleted.
func TestYesterdayAndLastWeek(t *testing.T) {
	c := &clock{}
	const monday = start - start%trace.Nanos(group.Day) // of an arbitrary week
	c.set(monday)
	dir := t.TempDir()
	change := func(o *Options) {
		o.Retention.Age, o.Core.Retention = 7*group.Day, 7*group.Day
		o.Assembly.MaxAge = 15 * time.Second
	}
	r := run(t, dir, c, change)
	app := sim.New(sim.Config{Seed: 3, Fault: sim.SlowPath, Rate: 20, Messages: -1})
	sent := make(map[trace.Nanos]*sum) // by period
	send := func(epochs int) {
		t.Helper()
		for range epochs {
			for range 2 {
				from := c.at()
				bodies, _ := requests(t, app, from, from.Add(stretchSpan))
				r.send(bodies)
				c.add(stretchSpan)
				r.settle()
			}
		}
	}
	// count adds the requests in the core's windows, which are exact for the last epoch.
	count := func() {
		t.Helper()
		err := r.Ask(t.Context(), func(core *engine.View) {
			at := group.PeriodOf(core.Ended)
			s := &sum{}
			for g := range core.Groups.Each() {
				for _, w := range g.Windows() {
					if g.Level == group.LevelRequestType && w.From >= at {
						s.n += w.Total.N
						s.nanos += int64(w.Total.Mean() * float64(w.Total.N))
					}
				}
			}
			sent[at] = s
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	// at sends requests in three periods at noon of a day. It kills the service in the second period.
	at := func(day int) {
		t.Helper()
		c.set(max(c.at(), monday.Add(time.Duration(day)*group.Day+12*time.Hour)))
		r.settle()
		for period := range 3 {
			send(4)
			for range 4 { // until all traces are closed
				c.add(10 * time.Second)
				r.settle()
			}
			count()
			if period == 1 {
				dir = r.crash(dir)
				r = run(t, dir, c, change)
			}
			c.set(c.at() - c.at()%trace.Nanos(group.Period) + trace.Nanos(group.Period))
			r.settle()
		}
	}
	send(12) // learning period
	const weeks = 9
	for day := range weeks {
		if day == 6 {
			app.Inject(c.at())
		}
		at(day)
	}
	for r.Counts().Checkpoints.Load() == 0 {
		c.add(10 * time.Second)
		r.settle()
	}
	r.end() // stops the goroutines that pack and delete
	r = run(t, dir, c, change)
	defer r.end()

	types := make(map[analysis.Hash]bool)
	err := r.Ask(t.Context(), func(core *engine.View) {
		for g := range core.Groups.Each() {
			if g.Level == group.LevelRequestType {
				types[g.ID] = true
			}
		}
	})
	if err != nil || len(types) == 0 {
		t.Fatal(types, err)
	}
	stored := func(day int) (got, want sum, shortest time.Duration) {
		t.Helper()
		from := monday.Add(time.Duration(day) * group.Day)
		shortest = math.MaxInt64
		for id := range types {
			all, err := r.store.Past.Windows(id, from, from.Add(group.Day), false)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range all {
				got.n += w.Count
				got.nanos += int64(w.Mean * float64(w.Count))
				shortest = min(shortest, w.To.Sub(w.From))
			}
		}
		for at, s := range sent {
			if at >= from && at < from.Add(group.Day) {
				want.n += s.n
				want.nanos += s.nanos
			}
		}
		return got, want, shortest
	}
	for _, day := range []int{1, 2, 5, 6, 7} {
		got, want, shortest := stored(day)
		length := group.Period
		if day <= 5 {
			length = group.LongPeriod
		}
		if want.n == 0 || got.n != want.n || math.Abs(float64(got.nanos)/float64(want.nanos)-1) > 1e-3 ||
			shortest != length {
			t.Errorf("day %d has %+v in windows of %v, want %+v in %v", day, got, shortest, want, length)
		}
	}
	slow, _, _ := stored(7)
	fast, _, _ := stored(1)
	if slow.nanos/int64(slow.n) < fast.nanos/int64(fast.n)*11/10 {
		t.Errorf("yesterday's mean is %d ns, last week's %d: the fault does not show",
			slow.nanos/int64(slow.n), fast.nanos/int64(fast.n))
	}
}

// The exemplars of a closed problem are kept until they reach the age limit, even after its group has new ones.
func TestExemplarsAreKept(t *testing.T) {
	c := &clock{}
	c.set(start)
	r := run(t, t.TempDir(), c, func(o *Options) { o.Retention = Retention{Exemplars: 2} })
	defer r.end()
	of, id := search.OfProblem(analysis.Hash{Lo: 1}), analysis.Hash{Lo: 2}
	refs := make(map[trace.ID]int)
	k := &exemplarStore{options: r.options, retained: &r.retained, counts: &r.counts}
	exemplar := func(i int, d time.Duration) store.Exemplar {
		e := store.Exemplar{
			Trace: trace.ID{15: byte(i)}, Root: 1, Start: start.Add(time.Duration(i) * time.Minute), Duration: int64(d),
		}
		if err := r.store.Traces.Put(e.Trace, []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		return e
	}
	present := func(slow ...store.Exemplar) {
		t.Helper()
		for i := range slow {
			refs[slow[i].Trace]++ // as apply does for the copied trace
		}
		e := &store.Exemplars{Slow: slow}
		if err := k.apply(&change{group: id, exemplars: e}, refs); err != nil {
			t.Fatal(err)
		}
		for i := range slow {
			refs[slow[i].Trace]--
		}
	}
	slow := func() (all []int) {
		t.Helper()
		e, err := r.store.Kept.Of(of, id)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range e.Slow {
			all = append(all, int(x.Trace[15]))
		}
		return all
	}
	keepNow := func(since int) {
		t.Helper()
		for range 2 { // a journal that is read again keeps them twice
			err := k.keepExemplars(keep{of: of, group: id, since: start.Add(time.Duration(since) * time.Minute)}, refs)
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	present(exemplar(1, 9*time.Second), exemplar(2, 5*time.Second), exemplar(3, 4*time.Second))
	keepNow(2)
	if got := slow(); !slices.Equal(got, []int{2, 3}) {
		t.Errorf("kept %d, want the slowest since the second minute", got)
	}
	present(exemplar(4, 8*time.Second))
	keepNow(2)
	if got := slow(); !slices.Equal(got, []int{4, 2}) {
		t.Errorf("kept %d, want the slowest of both times", got)
	}
	present(exemplar(5, time.Second))
	there := func() (all []int) {
		for i := range 6 {
			if b, err := r.store.Traces.Get(trace.ID{15: byte(i)}); err == nil && b != nil {
				all = append(all, i)
			}
		}
		return all
	}
	if got := there(); !slices.Equal(got, []int{2, 4, 5}) {
		t.Errorf("the traces %d are stored", got)
	}
	if want := map[trace.ID]int{{15: 2}: 1, {15: 4}: 1, {15: 5}: 1}; !maps.Equal(refs, want) {
		t.Errorf("references %v, want %v", refs, want)
	}
	if err := k.deleteAged(&cleanup{before: start.Add(3 * time.Minute)}, refs); err != nil {
		t.Fatal(err)
	}
	if got, left := slow(), there(); !slices.Equal(got, []int{4}) || !slices.Equal(left, []int{4, 5}) {
		t.Errorf("after deletion by age %d are kept, the traces %d stored", got, left)
	}
}

// If the store exceeds the byte limit, the oldest days of windows are deleted with other history of the same time.
func TestEnforceDeletesDays(t *testing.T) {
	c := &clock{}
	c.set(start)
	r := run(t, t.TempDir(), c, func(o *Options) { o.Retention = Retention{} })
	defer r.end()
	const days, groups = 8, 300
	for day := range days {
		for k := range 20 {
			from := trace.Nanos((20_000+time.Duration(day))*group.Day + time.Duration(k)*group.Period)
			err := r.store.Past.Put(store.NewPeriod(from, func(yield func(analysis.Hash, *group.Past) bool) {
				for i := range uint64(groups) {
					var p group.Past
					for n := range uint64(9) {
						d := int64(trace.Mix(i, uint64(from)+n) >> 20)
						p.Total.Add(d)
						p.Latency.Add(d, 1)
					}
					if !yield(analysis.Hash{Hi: trace.Mix(i, 1), Lo: i}, &p) {
						return
					}
				}
			}))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := r.store.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	takes, err := r.store.EstimateSize()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.loop.exemplars.enforce(t.Context(), &cleanup{bytes: takes / 2}, make(map[trace.ID]int)); err != nil {
		t.Fatal(err)
	}
	left, err := r.store.Past.Days()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(left); n < 2 || n > days/2 || left[n-1].Day != trace.Nanos((20_000+days-1)*group.Day) {
		t.Errorf("of %d days these are left: %+v", days, left)
	}
}

// The exemplars of an open incident are kept when it opens, and every ten minutes after that.
func TestKeepDue(t *testing.T) {
	opened := start.Add(3 * time.Second)
	var got []time.Duration
	for last := start.Add(-time.Minute); last < start.Add(25*time.Minute); last = last.Add(10 * time.Second) {
		now := last.Add(10 * time.Second)
		if now >= opened && keepDue(opened, last, now) {
			got = append(got, now.Sub(start))
		}
	}
	want := []time.Duration{10 * time.Second, 10*time.Minute + 10*time.Second, 20*time.Minute + 10*time.Second}
	if !slices.Equal(got, want) {
		t.Errorf("kept after %v, want %v", got, want)
	}
}

// A problem that is in only one of two lists has opened or closed.
func TestProblemsWithout(t *testing.T) {
	list := func(ids ...uint64) (all []detect.Problem) {
		for _, id := range ids {
			all = append(all, detect.Problem{ID: analysis.Hash{Lo: id}})
		}
		return all
	}
	text := func(all []detect.Problem) (s string) {
		for i := range all {
			s += fmt.Sprint(all[i].ID.Lo, " ")
		}
		return s
	}
	before, after := list(1, 2, 3), list(3, 4, 1)
	opened, closed := text(problemsWithout(after, before)), text(problemsWithout(before, after))
	if opened != "4 " || closed != "2 " {
		t.Errorf("opened %s, closed %s", opened, closed)
	}
}
