package waits

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var rewrite = flag.Bool("rewrite", false, "write golden files")

// The recordings are of the workload of agents/kernel/truth_test.go: go test ./agents/kernel -run Record -rewrite.
func recorded(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".bin"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func recordedReading(t *testing.T) Reading {
	t.Helper()
	open, err := DecodeOpen(recorded(t, "open"))
	if err != nil {
		t.Fatal(err)
	}
	r := Reading{Open: open, Sums: make(map[Key]Sum)}
	for b := bytes.NewReader(recorded(t, "sums")); b.Len() > 0; {
		var k Key
		var s Sum
		if err := binary.Read(b, binary.LittleEndian, &k); err != nil {
			t.Fatal(err)
		}
		if err := binary.Read(b, binary.LittleEndian, &s); err != nil {
			t.Fatal(err)
		}
		r.Sums[k] = s
	}
	return r
}

// Recorded bytes yield the golden report and events.
func TestRecorded(t *testing.T) {
	c := NewCollector()
	changes, ended := NewLedger(Thresholds{}, All).Update(recordedReading(t))
	c.Add(changes)
	if len(ended) > 0 {
		t.Errorf("threads have ended: %v", ended)
	}
	var b strings.Builder
	for _, p := range c.Processes() {
		fmt.Fprintf(&b, "%s: %d threads, %d ns\n", p.Comm, len(p.Threads), p.Totals.Ns())
		for _, call := range p.Calls {
			fmt.Fprintf(&b, "  %s %d: %+v\n", call.Class, call.Syscall, call.Total)
		}
		for _, x := range p.Threads {
			fmt.Fprintf(&b, "  %s %d\n", x.Comm, x.TID)
			for class, total := range x.Totals {
				if total != (Total{}) {
					fmt.Fprintf(&b, "    %s %+v\n", Class(class), total)
				}
			}
		}
	}
	for record := range slices.Chunk(recorded(t, "events"), EventSize) {
		e, err := DecodeEvent(record)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %d: %d+%d ns, %s %d\n", e.Comm, e.TID, e.WaitNs, e.RunqNs, e.Class, e.Syscall)
	}
	name := filepath.Join("testdata", "recorded.txt")
	if *rewrite {
		if err := os.WriteFile(name, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(b.String(), "\n")); d != "" {
		t.Errorf("run go test ./agents/kernel/waits -rewrite and review: %s", d)
	}
}

// All threads that measure their own waits were observed for the same time: their classes add up to it.
func TestRecordedAddsUp(t *testing.T) {
	c := NewCollector()
	changes, _ := NewLedger(Thresholds{}, All).Update(recordedReading(t))
	c.Add(changes)
	var all []uint64
	for _, x := range c.Processes()[0].Threads {
		all = append(all, x.Totals.Ns())
	}
	slices.Sort(all)
	most := all[len(all)-1]
	if least := all[len(all)-24]; most-least > most/50 {
		t.Errorf("threads were observed for %d to %d ns", least, most)
	}
}

// The state of a thread is followed by the sum of its time on CPUs.
func TestThreads(t *testing.T) {
	want := recordedReading(t)
	var b bytes.Buffer
	var sums []Sum
	for k, s := range want.Sums {
		if len(sums) == len(want.Open) {
			break
		}
		s.Comm[0] += byte(k.Class) // the sums differ
		sums = append(sums, s)
	}
	for i := range sums {
		for _, x := range []any{want.Open[i], sums[i]} {
			if err := binary.Write(&b, binary.LittleEndian, x); err != nil {
				t.Fatal(err)
			}
		}
	}
	open, onCPU, err := DecodeThreads(b.Bytes())
	if d := cmp.Diff(want.Open[:len(sums)], open); err != nil || d != "" {
		t.Error(err, d)
	}
	if d := cmp.Diff(sums, onCPU); d != "" {
		t.Error(d)
	}
}

// Truncated and impossible records are errors, and never panic.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{})
	for _, name := range []string{"events", "open"} {
		b, err := os.ReadFile(filepath.Join("testdata", name+".bin"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[:EventSize])
		f.Add(b[:OpenSize])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeEvent(b)
		if (err != nil) != (e == Event{}) && len(bytes.Trim(b, "\x00")) > 0 {
			t.Errorf("error %v with event %+v", err, e)
		}
		if err == nil && (len(b) != EventSize || !e.Class.Valid()) {
			t.Errorf("%d bytes decode to %+v", len(b), e)
		}
		if open, onCPU, err := DecodeThreads(b); len(open) != len(onCPU) || err != nil && open != nil {
			t.Errorf("%d states and %d sums: %v", len(open), len(onCPU), err)
		}
		open, err := DecodeOpen(b)
		if err != nil {
			return
		}
		c := NewCollector()
		changes, _ := NewLedger(Thresholds{}, All).Update(Reading{Open: open})
		c.Add(changes)
		_ = c.Processes()
	})
}

// world is a thread that goes through random states from time 1 on, counted like the probes would count them.
type world struct {
	now  uint64
	open Open
	sums map[Key]Sum
}

func (w *world) reading() Reading {
	o := w.open
	o.Now = w.now
	return Reading{Open: []Open{o}, Sums: maps.Clone(w.sums)}
}

// change ends the current state now, after a last part on a run queue, and starts the next state.
func (w *world) change(runq uint64, next Class) {
	k := Key{w.open.TGID, w.open.TID, w.open.Syscall, w.open.Class}
	ns := w.now - w.open.Since
	s := w.sums[k]
	s.Count++
	s.TotalNs += ns - runq
	s.MaxNs = max(s.MaxNs, ns-runq)
	s.RunqNs += runq
	s.MaxRunqNs = max(s.MaxRunqNs, runq)
	s.Last = w.now
	w.sums[k] = s
	w.open.Since, w.open.Class = w.now, next
}

// The changes add up to the elapsed time and to one count for each state, however often and whenever the sums are
// read. A state that ends between the two readings isn't counted twice.
func TestLedgerAddsUp(t *testing.T) {
	class := rapid.Custom(func(t *rapid.T) Class { return Class(rapid.IntRange(0, NumClasses-1).Draw(t, "class")) })
	rapid.Check(t, func(t *rapid.T) {
		w := &world{now: 1, open: Open{TGID: 7, TID: 8, Since: 1, Syscall: NoSyscall}, sums: make(map[Key]Sum)}
		l, c := NewLedger(Thresholds{}, All), NewCollector()
		states := uint64(1)
		change := func() {
			ns := rapid.Uint64Range(1, 1000).Draw(t, "ns")
			w.now += ns
			w.change(rapid.Uint64Range(0, ns).Draw(t, "runq"), class.Draw(t, "next")) // not observed on the run queue
			states++
		}
		read := func(r Reading) {
			changes, ended := l.Update(r)
			c.Add(changes)
			if len(ended) > 0 {
				t.Fatalf("ended: %v", ended)
			}
		}
		for range rapid.IntRange(1, 20).Draw(t, "readings") {
			for range rapid.IntRange(0, 3).Draw(t, "changes") {
				change()
			}
			w.now += rapid.Uint64Range(1, 1000).Draw(t, "later")
			r := w.reading()
			for range rapid.IntRange(0, 2).Draw(t, "changes between the readings") {
				change()
			}
			r.Sums = maps.Clone(w.sums)
			read(r)
		}
		w.now++
		read(w.reading())
		p := c.Processes()
		if len(p) != 1 || len(p[0].Threads) != 1 {
			t.Fatalf("%+v", p)
		}
		var count, parts uint64
		for i := range p[0].Calls {
			count += p[0].Calls[i].Count
			parts += p[0].Calls[i].TotalNs + p[0].Calls[i].RunqNs
		}
		if want := w.now - 1; p[0].Totals.Ns() != want || parts != want {
			t.Errorf("the classes add up to %d ns, the calls to %d, want %d", p[0].Totals.Ns(), parts, want)
		}
		if count != states {
			t.Errorf("%d intervals, want %d", count, states)
		}
	})
}

// The sums of a thread that ends are reported once and then released.
func TestLedgerEnds(t *testing.T) {
	k := Key{1, 2, NoSyscall, OnCPU}
	sums := map[Key]Sum{k: {Count: 1, TotalNs: 5, MaxNs: 5, Last: 10}}
	l := NewLedger(Thresholds{}, All)
	// The thread isn't known yet: it started and ended after the threads were listed, or it still runs.
	if changes, ended := l.Update(Reading{Sums: sums}); len(changes) != 1 || len(ended) != 0 {
		t.Errorf("%v, %v", changes, ended)
	}
	if changes, ended := l.Update(Reading{Sums: sums}); len(changes) != 0 || !slices.Equal(ended, []Key{k}) {
		t.Errorf("%v, %v", changes, ended)
	}
	if len(l.state) != 0 {
		t.Errorf("%v", l.state)
	}
}

// A state that lasts counts as too long once, before it ends.
func TestOpenOverThreshold(t *testing.T) {
	k := Key{1, 2, 3, Futex}
	l := NewLedger(Thresholds{Futex: 100}, All)
	over := uint64(0)
	for _, r := range []Reading{
		{Open: []Open{{Now: 150, Since: 10, TGID: 1, TID: 2, Syscall: 3, Class: Futex}}},
		{Open: []Open{{Now: 250, Since: 10, TGID: 1, TID: 2, Syscall: 3, Class: Futex}}},
		{
			Open: []Open{{Now: 300, Since: 290, TGID: 1, TID: 2, Syscall: NoSyscall}},
			Sums: map[Key]Sum{k: {Count: 1, TotalNs: 280, MaxNs: 280, Over: 1, Last: 290}},
		},
	} {
		changes, _ := l.Update(r)
		for i := range changes {
			over += changes[i].Over
		}
	}
	if over != 1 {
		t.Errorf("%d intervals are too long, want 1", over)
	}
}

// A collector sums up threads beyond its limit by process without losing time.
func TestCollectorIsBounded(t *testing.T) {
	c := NewCollector()
	const n = 3 * maxThreads
	for i := range uint32(n) {
		c.Add([]Row{{Key: Key{TGID: i, TID: i, Syscall: NoSyscall}, Count: 1, TotalNs: 10}})
	}
	if len(c.threads) > 2*maxThreads+1 || len(c.calls) > maxThreads+1 {
		t.Errorf("%d threads, %d calls", len(c.threads), len(c.calls))
	}
	var ns uint64
	for _, p := range c.Processes() {
		ns += p.Totals.Ns()
	}
	if ns != n*10 {
		t.Errorf("%d ns, want %d", ns, n*10)
	}
}

func TestClasses(t *testing.T) {
	for c := range Class(NumClasses) {
		if got, err := ParseClass(c.String()); got != c || err != nil {
			t.Errorf("%s: %v, %v", c, got, err)
		}
		if (c.Group() == Rest) != (c == Other) {
			t.Errorf("%s belongs to %s", c, c.Group())
		}
	}
	if _, err := ParseClass("disk"); err == nil || !strings.Contains(err.Error(), "file") {
		t.Errorf("%v: want the names of the classes", err)
	}
}

// An interval that continues counts once in each report, including the one in which it ends.
func TestCountsGoOn(t *testing.T) {
	l := NewLedger(Thresholds{}, All)
	key := Key{TGID: 1, TID: 1, Syscall: NoSyscall, Class: Futex}
	open := func(now uint64) Reading {
		return Reading{Open: []Open{{TGID: 1, TID: 1, Syscall: NoSyscall, Class: Futex, Since: 5, Now: now}}}
	}
	ended := open(40)
	ended.Open[0].Class = Epoll
	ended.Open[0].Since = 38
	ended.Sums = map[Key]Sum{key: {Count: 1, TotalNs: 33, Last: 38}}
	for i, x := range []struct {
		begins  bool
		reading Reading
		count   uint64
	}{{true, open(10), 1}, {false, open(20), 0}, {true, open(30), 1}, {true, ended, 1}} {
		if x.begins {
			l.Begin()
		}
		changes, _ := l.Update(x.reading)
		count := uint64(0)
		for j := range changes {
			if changes[j].Key == key {
				count += changes[j].Count
			}
		}
		if count != x.count {
			t.Errorf("reading %d: %d intervals, want %d", i, count, x.count)
		}
	}
}

// A process has the name of its first thread, even if nothing else is known about this thread.
func TestNamesOfProcesses(t *testing.T) {
	c := NewCollector()
	worker, server := Comm{'w', 'o', 'r', 'k', 'e', 'r'}, Comm{'s', 'e', 'r', 'v', 'e', 'r'}
	c.Add([]Row{{Key: Key{TGID: 7, TID: 8, Class: File}, Comm: worker, TotalNs: 1}})
	c.Name([]Open{{TGID: 7, TID: 8, Comm: worker}, {TGID: 7, TID: 7, Comm: server}})
	if p := c.Processes(); len(p) != 1 || p[0].Comm != "server" || p[0].Threads[0].Comm != "worker" {
		t.Errorf("%+v", p)
	}
}

// Classes that aren't observed have no current intervals: these would vanish from the sums when they end.
func TestOnlyWantedClasses(t *testing.T) {
	l := NewLedger(Thresholds{}, Set(0).With(File))
	changes, _ := l.Update(Reading{Open: []Open{
		{TGID: 1, TID: 1, Class: Futex, Since: 5, Now: 9},
		{TGID: 1, TID: 2, Class: File, Since: 5, Now: 9},
	}})
	if len(changes) != 1 || changes[0].Class != File || changes[0].TotalNs != 4 {
		t.Errorf("%+v", changes)
	}
}
