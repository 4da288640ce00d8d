package report

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/pprof/profile"

	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
	"github.com/sibyl-trace/sibyl/internal/terminal"
)

// waitsReport is a report of a process with two threads, whose name is hostile.
func waitsReport() *waits.Report {
	c := waits.NewCollector()
	comm := waits.Comm([]byte("a<b>\x1b[2J\xff\x00\x00\x00\x00\x00\x00\x00"))
	c.Add([]waits.Row{
		{
			Key:     waits.Key{TGID: 7, TID: 7, Syscall: waits.NoSyscall},
			Comm:    comm,
			Count:   3,
			TotalNs: 2e6,
			MaxNs:   1e6,
		},
		{
			Key:       waits.Key{TGID: 7, TID: 8, Syscall: 0, Class: waits.File},
			Comm:      comm,
			Count:     2,
			TotalNs:   30e6,
			MaxNs:     20e6,
			RunqNs:    5e6,
			MaxRunqNs: 4e6,
			Over:      1,
		},
	})
	return &waits.Report{
		From:      time.Unix(1, 5),
		Duration:  40 * time.Millisecond,
		Processes: c.Processes(),
		Losses:    waits.Losses{Stacks: 2, Limited: 9},
		Stacks: []waits.Stack{{
			PID:     7,
			Comm:    comm.String(),
			Class:   waits.File,
			Frames:  []string{"read;it", "main\n"},
			Count:   1,
			TotalNs: 20e6,
		}},
		Longest: []waits.Longest{
			{Event: waits.Event{
				WaitNs: 20e6,
				RunqNs: 4e6,
				TGID:   7,
				TID:    8,
				Class:  waits.File,
				Comm:   comm,
			}, WaitTooLong: true, Frames: []string{"read", "main"}},
			{Event: waits.Event{
				WaitNs: 9e6,
				RunqNs: 3e6,
				TGID:   7,
				TID:    8,
				Class:  waits.File,
				Comm:   comm,
			}, TurnTooLong: true},
		},
		Cost:     waits.Cost{Hits: 5000, NsPerHit: 400, CPUShare: 0.002},
		Syscalls: map[int32]string{0: "read"},
	}
}

// The JSON form has exactly the fields in docs/kernel.md. runqueue sums up the run-queue parts.
func TestWaitsJSON(t *testing.T) {
	var out bytes.Buffer
	if err := WaitsJSON(&out, waitsReport()); err != nil {
		t.Fatal(err)
	}
	const comm = `"comm":"a\u003cb\u003e\u001b[2J�"`
	want := `{"from_unix_nano":1000000005,"duration_ns":40000000,"lost_events":2,` +
		`"programs":[{` + comm + `,"text":"The 2 working threads of a\u003cb\u003e\u001b[2J� (7) spent ` +
		`81 % of the time waiting for the disk (reading or writing files), 14 % of the time waiting for a CPU, ` +
		`5.4 % of the time running.","processes":1,"working_processes":1,"working_threads":2,"classes":{` +
		`"oncpu":{"count":3,"total_ns":2000000,"max_ns":1000000,"runq_ns":0,"over_threshold":0},` +
		`"file":{"count":2,"total_ns":30000000,"max_ns":20000000,"runq_ns":5000000,"over_threshold":1},` +
		`"runqueue":{"count":2,"total_ns":5000000,"max_ns":4000000,"runq_ns":0,"over_threshold":0}}}],` +
		`"processes":[{"pid":7,` + comm + `,"threads":[{"tid":8,` + comm + `,"classes":{` +
		`"file":{"count":2,"total_ns":30000000,"max_ns":20000000,"runq_ns":5000000,"over_threshold":1},` +
		`"runqueue":{"count":2,"total_ns":5000000,"max_ns":4000000,"runq_ns":0,"over_threshold":0}}},` +
		`{"tid":7,` + comm + `,"classes":{` +
		`"oncpu":{"count":3,"total_ns":2000000,"max_ns":1000000,"runq_ns":0,"over_threshold":0}}}]}],` +
		`"cost":{"hits":5000,"ns_per_hit":400,"cpu_share":0.002}}`
	var got, wanted any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(wanted, got); d != "" {
		t.Error(d)
	}
}

// Control characters or markup in names never reach the output of any format.
func TestWaitsAreSafe(t *testing.T) {
	r, thresholds := waitsReport(), waits.Thresholds{waits.File: 10e6}
	for name, write := range map[string]func(io.Writer) error{
		"table": func(w io.Writer) error {
			return WaitsTable(w, r, thresholds, terminal.Style{Width: 120}, 0)
		},
		"html":   func(w io.Writer) error { return WaitsHTML(w, r, thresholds) },
		"folded": func(w io.Writer) error { return WaitsFolded(w, r) },
	} {
		var out strings.Builder
		if err := write(&out); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "\x1b") || !utf8.ValidString(out.String()) {
			t.Errorf("%s has control characters: %q", name, out.String())
		}
		if name == "html" && strings.Contains(out.String(), "a<b>") {
			t.Errorf("%s has markup of a name", name)
		}
	}
}

// The table names classes, system calls, losses, reasons and stacks.
func TestWaitsTable(t *testing.T) {
	var out strings.Builder
	err := WaitsTable(&out, waitsReport(), waits.Thresholds{waits.File: 10e6}, terminal.Style{Width: 120}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"1 process, 2 threads in 40 ms", "5,000 hits of 400 ns, 0.2 % of a CPU", "missing: 9 single intervals", "file",
		"30 ms", "81 %", "read",
		"too long: file 1 time from 10 ms on, up to 20 ms", "… and 1 more thread", "20 ms file read and 4 ms for a CPU",
		"read ← main", "… and 1 more wait",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}

// Idle threads don't hide active ones. A single system call is next to its class. Processes that have ended are
// named.
func TestIdleThreads(t *testing.T) {
	c := waits.NewCollector()
	comm := waits.Comm([]byte("pool\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	for tid := range uint32(5) {
		c.Add([]waits.Row{{
			Key:     waits.Key{TGID: 7, TID: 10 + tid, Syscall: 202, Class: waits.Futex},
			Comm:    comm,
			Count:   1,
			TotalNs: 1e9,
			MaxNs:   1e9,
		}})
	}
	c.Add([]waits.Row{{
		Key:     waits.Key{TGID: 7, TID: 7, Syscall: 202, Class: waits.Futex},
		Comm:    comm,
		Count:   9,
		TotalNs: 5e8,
		MaxNs:   1e8,
	}})
	c.Add([]waits.Row{{
		Key:     waits.Key{TGID: 7, TID: 7, Syscall: 74, Class: waits.Sync},
		Comm:    comm,
		Count:   3,
		TotalNs: 4e8,
		MaxNs:   2e8,
	}})
	r := &waits.Report{
		Processes: c.Processes(),
		Ended:     []uint32{7, 9},
		Syscalls:  map[int32]string{202: "futex", 74: "fsync"},
	}
	var out strings.Builder
	if err := WaitsTable(&out, r, waits.Thresholds{}, terminal.Style{Width: 120}, 1); err != nil {
		t.Fatal(err)
	}
	got := out.String()
	for _, want := range []string{
		"ended meanwhile: process 7, 9\n", "  sync fsync  ", "5 threads in a single wait throughout: futex 5\n",
		"pool                            7  futex 56 %, sync 44 %\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Contains(got, "    fsync") || strings.Contains(got, "    futex") ||
		strings.Contains(got, "more thread") {
		t.Errorf("a class is repeated in\n%s", got)
	}
}

// A sentence says first what the processes that work wait for. They are listed before those that idle, which share a
// line, although these are off the CPU for longer.
func TestWorkBeforeIdling(t *testing.T) {
	c := waits.NewCollector()
	comm := waits.Comm([]byte("postgres\x00\x00\x00\x00\x00\x00\x00\x00"))
	add := func(pid uint32, class waits.Class, ns uint64) {
		c.Add([]waits.Row{{
			Key: waits.Key{TGID: pid, TID: pid, Class: class, Syscall: waits.NoSyscall}, Comm: comm,
			Count: 2, TotalNs: ns, MaxNs: ns,
		}})
	}
	for pid := range uint32(12) {
		add(100+pid, waits.Epoll, 10e9)
		add(100+pid, waits.OnCPU, 1e6) // wakes up now and then
	}
	for _, pid := range []uint32{7, 8} {
		add(pid, waits.Sync, 6e9)
		add(pid, waits.OnCPU, 1e9)
		add(pid, waits.RunQueue, 2e9)
		add(pid, waits.Preempted, 1e9)
	}
	r := &waits.Report{Processes: c.Processes()}
	var out strings.Builder
	if err := WaitsTable(&out, r, waits.Thresholds{}, terminal.Style{Width: 120}, 1); err != nil {
		t.Fatal(err)
	}
	got, at := strings.Join(strings.Fields(out.String()), " "), 0
	for _, want := range []string{
		"2 of the 14 processes of postgres worked: they spent 60 % of the time waiting for the disk (fsync), " +
			"30 % of the time waiting for a CPU, 10 % of the time running.",
		"postgres (7)", "… and 1 process more", "12 processes idle: epoll 12",
	} {
		next := strings.Index(got[at:], want)
		if next < 0 {
			t.Fatalf("%q is missing or too early in\n%s", want, got)
		}
		at += next
	}
	var page strings.Builder
	if err := WaitsHTML(&page, r, waits.Thresholds{}); err != nil || !strings.Contains(page.String(), "2 of the 14") {
		t.Error(err, "the page has no sentence")
	}
}

// Where the system call only says epoll or futex, the stacks tell what the threads waited for. Threads that wait for
// work are not counted.
func TestNamedWaits(t *testing.T) {
	c := waits.NewCollector()
	add := func(class waits.Class, ns uint64) {
		c.Add([]waits.Row{{
			Key: waits.Key{TGID: 7, TID: 7, Class: class}, Comm: waits.Comm{'p', 'g'}, Count: 2,
			TotalNs: ns, MaxNs: ns,
		}})
	}
	add(waits.OnCPU, 5e8)
	add(waits.Epoll, 10e9)
	add(waits.Futex, 1e9)
	r := &waits.Report{
		Processes: c.Processes(),
		Stacks: []waits.Stack{
			{PID: 7, Class: waits.Epoll, Frames: []string{"WaitLatch", "ProcSleep", "XactLockTableWait"}, TotalNs: 3e9},
			{PID: 7, Class: waits.Epoll, Frames: []string{"WaitLatch", "secure_read", "PostgresMain"}, TotalNs: 1e9},
			{PID: 7, Class: waits.Epoll, Frames: []string{"epoll_wait", "main"}, TotalNs: 1e9},
			{PID: 8, Class: waits.Epoll, Frames: []string{"XactLockTableWait"}, TotalNs: 90e9}, // another process
			{PID: 7, Class: waits.Epoll, TotalNs: 2e9},
		},
	}
	want := "The 1 working thread of pg (7) spent 63 % of the time waiting for a row lock (without 17 % of " +
		"waiting for work), 21 % of the time waiting for one of many connections (epoll), 11 % of the time " +
		"waiting for a lock."
	if got := programText(&r.Programs()[0]); got != want {
		t.Errorf("%q", got)
	}
}

// A CPU limit that stops threads is named, in the table, on the page and in JSON.
func TestThrottled(t *testing.T) {
	r := waitsReport()
	r.Throttles = []waits.Throttle{{Cgroup: "/pods/a\x1b", Periods: 50, Stopped: 49, Ns: 3.9e9}}
	var table, page, object strings.Builder
	if err := WaitsTable(&table, r, waits.Thresholds{}, terminal.Style{Width: 200}, 1); err != nil {
		t.Fatal(err)
	}
	if err := WaitsHTML(&page, r, waits.Thresholds{}); err != nil {
		t.Fatal(err)
	}
	if err := WaitsJSON(&object, r); err != nil {
		t.Fatal(err)
	}
	want := "The CPU limit of cgroup /pods/a· stopped its threads in 49 of 50 periods, for 3.9 s in all"
	for _, got := range []string{table.String(), page.String()} {
		if !strings.Contains(strings.Join(strings.Fields(got), " "), want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	want = `"throttled":[{"cgroup":"/pods/a\u001b","periods":50,"stopped_periods":49,"stopped_ns":3900000000}]`
	if !strings.Contains(object.String(), want) {
		t.Errorf("%s is missing in\n%s", want, object.String())
	}
}

// If nothing worked, all is shown, and a sentence says that it was idle.
func TestAllIdle(t *testing.T) {
	idle := waits.Program{Comm: "nginx", PID: 3, Processes: 1}
	idle.Totals[waits.Epoll] = waits.Total{Count: 1, TotalNs: 1e9}
	want := "nginx (3) was idle: it spent 100 % of the time waiting for one of many connections (epoll)."
	if got := programText(&idle); got != want {
		t.Errorf("%q", got)
	}
	idle.PID, idle.Processes = 0, 2
	if got := programText(&idle); !strings.HasPrefix(got, "All 2 processes of nginx were idle: they spent 100 %") {
		t.Errorf("%q", got)
	}
}

// The list says which part of a wait is above its threshold.
func TestLongestWaits(t *testing.T) {
	var out strings.Builder
	err := WaitsTable(&out, waitsReport(), waits.Thresholds{waits.File: 10e6, waits.RunQueue: 1e6},
		terminal.Style{Width: 120}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if want := "3 ms runqueue after 9 ms of file read"; !strings.Contains(out.String(), want) {
		t.Errorf("%q is missing in\n%s", want, out.String())
	}
}

// Profiles contain all the time: with stacks where they are known, and the rest without.
func TestWaitsProfiles(t *testing.T) {
	var out bytes.Buffer
	if err := WaitsFolded(&out, waitsReport()); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"a<b>·[2J\uFFFD (7);[no stack];[file " +
			"read] 10000000", "a<b>·[2J\uFFFD (7);[no stack];[oncpu] 2000000",
		"a<b>·[2J\uFFFD (7);[no stack];[runqueue] 5000000", "a<b>·[2J\uFFFD (7);main·;read:it;[file read] 20000000",
	}
	got := strings.Split(strings.TrimSpace(out.String()), "\n")
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	out.Reset()
	if err := WaitsPprof(&out, waitsReport()); err != nil {
		t.Fatal(err)
	}
	p, err := profile.Parse(&out)
	if err != nil {
		t.Fatal(err)
	}
	var ns int64
	for _, s := range p.Sample {
		ns += s.Value[1]
	}
	if ns != 37e6 || len(p.Sample) != 4 || p.Sample[0].Label["class"] == nil {
		t.Errorf("%d ns in %d samples", ns, len(p.Sample))
	}
}

// Losses are reported in their actual units.
func TestLosses(t *testing.T) {
	if got := lossText(&waits.Losses{Switches: 1, Threads: 1, Stacks: 2}); !strings.HasPrefix(got,
		"missing: 1 time slice of threads (") ||
		!strings.Contains(got, "; 2 stacks (") || !strings.Contains(got, "; 1 part of the time of threads (") {
		t.Errorf("%q", got)
	}
	got := lossText(&waits.Losses{Gaps: 2})
	if !strings.Contains(got, "2 parts of the time (this program was stopped for more than ten seconds)") {
		t.Errorf("%q", got)
	}
	got = joinText(&waits.Joins{Missing: [waits.NumReasons]uint64{waits.MissingUnreadable: 3}})
	if !strings.Contains(got,
		"3 of processes whose memory could not be read (swapped out, or not where the agent looks)") {
		t.Errorf("%q", got)
	}
}
