package audit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
)

// clock is a clock for tests. It advances by a second with each call.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Second)
	return c.now
}

// begin is the time at the start of a test.
var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// openLog returns the log in a data directory, with small files.
func openLog(dir string) *Log {
	l := Open(dir, (&clock{now: begin}).Now, slog.New(slog.DiscardHandler))
	l.changes.file, l.changes.total = 2000, 10000
	l.logins.file, l.logins.total = 2000, 10000
	l.counted.file, l.counted.total = 2000, 10000
	return l
}

// mute writes the entry of a change and, unless status is 0, its outcome.
func mute(t testing.TB, l *Log, who, on string, status int) {
	t.Helper()
	id, err := l.Start(Entry{Who: who, Operation: "muteIncident", On: on})
	if err != nil {
		t.Fatal(err)
	}
	if status != 0 {
		l.Finish(id, status, "")
	}
}

// list returns the entries that q selects, from pages of the given length.
func list(t testing.TB, l *Log, q Query, length int) (all []Entry) {
	t.Helper()
	q.Limit = length
	for {
		p, err := l.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if p.Unreadable != 0 || len(p.Entries) > length {
			t.Errorf("%d entries, %d unreadable", len(p.Entries), p.Unreadable)
		}
		all = append(all, p.Entries...)
		if q.After = p.Next; q.After == "" {
			return all
		}
	}
}

// texts describes entries in one line each.
func texts(all []Entry) (lines []string) {
	for _, e := range all {
		lines = append(lines, fmt.Sprint(e.Who, " ", e.Operation, " ", e.On, " ", e.Status, " ", e.Count))
	}
	return lines
}

// Entries are listed with their outcomes, latest first, and are selected by time, caller and operation.
func TestList(t *testing.T) {
	l := openLog(t.TempDir())
	if got := list(t, l, Query{}, 10); len(got) != 0 {
		t.Errorf("a new log has entries: %v", got)
	}
	mute(t, l, "ann", "1", 204)
	first, err := l.Start(Entry{Who: "bob", Subject: "b-17", Operation: "saveView"})
	if err != nil {
		t.Fatal(err)
	}
	mute(t, l, "ann", "2", 0)
	l.Count(Entry{From: "192.0.2.1", Operation: "muteIncident", Status: 401})
	l.Count(Entry{From: "192.0.2.1", Operation: "muteIncident", Status: 401})
	l.Flush()
	l.Finish(first, 201, "view 7")
	l.Finish("", 201, "ignored")
	all := list(t, l, Query{}, 10)
	want := []string{
		" muteIncident  401 2", "ann muteIncident 2 0 0", "bob saveView view 7 201 0", "ann muteIncident 1 204 0",
	}
	if diff := cmp.Diff(want, texts(all)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, c := range []struct {
		q    Query
		want []Entry
	}{
		{Query{Who: "ann"}, []Entry{all[1], all[3]}},
		{Query{Who: "b-17"}, all[2:3]},
		{Query{Operation: "muteIncident", To: all[0].At}, []Entry{all[1], all[3]}},
		{Query{From: all[1].At}, all[:2]},
		{Query{From: all[2].At, To: all[1].At}, all[2:3]},
		{Query{Who: "nobody"}, nil},
	} {
		if diff := cmp.Diff(c.want, list(t, l, c.q, 10), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c.q, diff)
		}
	}
	if _, err := l.List(t.Context(), Query{Limit: 1, After: "1.x"}); !errors.Is(err, ErrCursor) {
		t.Errorf("with a foreign cursor: got %v", err)
	}
}

// Pages of any length contain each entry once and with its outcome, although files end and outcomes are late. Entries
// written while a client reads the pages aren't on them.
func TestPages(t *testing.T) {
	l := openLog(t.TempDir())
	var open []string
	for i := range 60 {
		id, err := l.Start(Entry{Who: "ann", Operation: "muteIncident", On: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, id)
		for len(open) > 3 {
			l.Finish(open[0], 204, "")
			open = open[1:]
		}
		if i%7 == 0 {
			l.Count(Entry{From: fmt.Sprint(i), Operation: "backUp", Status: 403})
			l.Flush()
		}
	}
	all := list(t, l, Query{}, 1000)
	if len(all) < 50 || !slices.IsSortedFunc(all, func(a, b Entry) int { return b.At.Compare(a.At) }) {
		t.Errorf("%d entries, or not in order", len(all))
	}
	for _, length := range []int{1, 2, 7, 30} {
		if diff := cmp.Diff(all, list(t, l, Query{}, length)); diff != "" {
			t.Errorf("pages of %d entries (-whole +pages):\n%s", length, diff)
		}
	}
	page, err := l.List(t.Context(), Query{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	mute(t, l, "late", "", 204)
	if rest := list(t, l, Query{After: page.Next}, 1000); cmp.Diff(all[1:], rest) != "" {
		t.Errorf("the second page differs after an entry was written")
	}
}

// A flood of refused requests takes a bounded number of lines per minute and loses no count. It neither fills the disk
// nor displaces changes.
func TestFlood(t *testing.T) {
	dir := t.TempDir()
	l := openLog(dir)
	mute(t, l, "ann", "1", 204)
	const most = maxKinds + 2 // two statuses
	var sum int64
	for minute := range 100 {
		for i := range 500 {
			from := fmt.Sprintf("2001:db8::%x:%x", minute, i)
			l.Count(Entry{Who: strings.Repeat("x", 10000), From: from, Operation: "backUp", Status: 401 + i%2*2})
			sum++
		}
		l.Flush()
		if minute == 0 {
			got := list(t, l, Query{}, 1000)
			var counted int64
			for i := range got {
				counted += got[i].Count
			}
			if len(got) > most+1 || counted != sum {
				t.Errorf("the first minute has %d entries that count %d requests, want %d", len(got), counted, sum)
			}
		}
	}
	size := int64(0)
	numbers, err := l.counted.numbers()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range numbers {
		info, err := os.Stat(l.counted.path(n))
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if size > l.counted.total+2*(l.counted.file+most*700) {
		t.Errorf("%d bytes on disk", size)
	}
	if got := texts(list(t, l, Query{Who: "ann"}, 10)); len(got) != 1 {
		t.Errorf("after a flood, the change is %q", got)
	}
}

// Log-ins in a loop displace other log-ins, but no changes.
func TestLoginsInLoop(t *testing.T) {
	l := openLog(t.TempDir())
	mute(t, l, "ann", "1", 204)
	for range 200 {
		if err := l.LogIn(Entry{Who: "bob", Operation: "login", Status: 303}); err != nil {
			t.Fatal(err)
		}
	}
	all := list(t, l, Query{}, 7)
	if n := len(all); n < 40 || n > 150 || all[0].Status != 303 || all[n-1].Who != "ann" {
		t.Errorf("%d entries: %q", n, texts(all))
	}
}

// A flood of requests without a token does not hide what known callers try.
func TestUnknownCallers(t *testing.T) {
	l := openLog(t.TempDir())
	for i := range 100 {
		l.Count(Entry{ForwardedFor: fmt.Sprintf("10.0.0.%d", i), Operation: "backUp", Status: 401})
	}
	l.Count(Entry{Who: "ann", Operation: "listAudit", Status: 200})
	l.Flush()
	all := list(t, l, Query{}, 1000)
	if len(all) != maxUnknown+2 || len(list(t, l, Query{Who: "ann"}, 10)) != 1 {
		t.Errorf("%d entries: %q", len(all), texts(all))
	}
}

// The oldest file is deleted when the log is full.
func TestRotation(t *testing.T) {
	l := openLog(t.TempDir())
	for i := range 200 {
		mute(t, l, "ann", fmt.Sprint(i), 204)
	}
	got := list(t, l, Query{}, 1000)
	if len(got) < 40 || len(got) > 90 || got[0].On != "199" || got[len(got)-1].Status != 204 {
		t.Errorf("%d entries, from %v to %v", len(got), got[len(got)-1], got[0])
	}
}

// Entries are deleted once the service has run for their age, at most a part of it later. Restarts don't change that.
func TestAge(t *testing.T) {
	dir := t.TempDir()
	left := make(map[string]int) // hours until the entry was deleted
	for hour := range 100 {
		l := openLog(dir)
		l.Keep(24 * time.Hour)
		if hour < 30 {
			mute(t, l, "ann", fmt.Sprint(hour), 204)
		}
		l.trim()
		for _, e := range list(t, l, Query{}, 100) {
			left[e.On] = hour
		}
	}
	for i := range 30 {
		if hours := left[fmt.Sprint(i)] + 1 - i; hours < 24 || hours > 24+24/parts+2 {
			t.Errorf("entry %d was deleted after %d hours, want 24 or a little more", i, hours)
		}
	}
	numbers, err := openLog(dir).changes.numbers()
	if err != nil || len(numbers) != 1 {
		t.Errorf("files %v are left, %v; want one, which is empty", numbers, err)
	}
}

// A wrong clock deletes nothing.
func TestWrongClock(t *testing.T) {
	l := openLog(t.TempDir())
	l.Keep(24 * time.Hour)
	for i, years := range []int{0, 50, -50, 0} {
		l.clock = func() time.Time { return begin.AddDate(years, 0, 0) }
		for range 3 {
			l.trim()
		}
		mute(t, l, "ann", fmt.Sprint(i), 204)
		numbers, err := l.changes.numbers()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(l.changes.path(numbers[len(numbers)-1]), l.clock(), l.clock()); err != nil {
			t.Fatal(err)
		}
	}
	if got := texts(list(t, l, Query{}, 10)); len(got) != 4 {
		t.Errorf("%q are left, want all four", got)
	}
}

// An incomplete line at the end is cut off and counted. Damaged lines are skipped and counted, and fields of later
// versions are ignored.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	l := openLog(dir)
	mute(t, l, "ann", "1", 204)
	path := l.changes.path(1)
	add := func(text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString(text)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	add(`{"at":"2026-01-02T03:04:05Z","id":"0`)
	if got := list(t, l, Query{}, 10); len(got) != 1 {
		t.Errorf("with an incomplete line: %v", got)
	}
	mute(t, l, "ann", "2", 204)
	if got := list(t, l, Query{}, 10); len(got) != 2 || l.Torn() != 1 {
		t.Errorf("%d entries, %d lines cut off, want 2 and 1", len(got), l.Torn())
	}
	add("{\"at\":\"2026-01-02T03:04:05Z\",\"id\":\"0\x00\n")
	add("[]\n\n")
	add(`{"at":"2026-01-02T03:04:05Z","id":"7","who":"new","operation":"fly","height":{"m":3}}` + "\n")
	p, err := l.List(t.Context(), Query{Limit: 10})
	if err != nil || p.Unreadable != 3 || len(p.Entries) != 3 || p.Entries[0].Who != "new" {
		t.Errorf("got %+v, %v", p, err)
	}
}

// Files with any contents can be read page by page, and written to.
func FuzzFiles(f *testing.F) {
	lines := `{"at":"2026-01-02T03:04:05Z","id":"1"}` + "\n" + `{"done":"1","status":204}` + "\n" + `{"id":"2`
	f.Add([]byte(lines), "1.40-0.0-0.0")
	f.Add([]byte("\n\n[]\n\x00"), "9223372036854775807.0-0.0-1.x")
	f.Fuzz(func(t *testing.T, data []byte, after string) {
		l := openLog(t.TempDir())
		if err := os.MkdirAll(l.changes.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(l.changes.path(1), data, 0o600); err != nil {
			t.Fatal(err)
		}
		whole, err := l.List(t.Context(), Query{Limit: len(data) + 1})
		if err != nil || whole.Next != "" {
			t.Fatal(whole, err)
		}
		n := 0
		for q := (Query{Limit: 1}); ; n++ {
			p, err := l.List(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if q.After = p.Next; q.After == "" {
				n += len(p.Entries)
				break
			}
		}
		if n != len(whole.Entries) {
			t.Errorf("%d entries page by page, %d at once", n, len(whole.Entries))
		}
		if _, err := l.List(t.Context(), Query{Limit: 1, After: after}); err != nil && !errors.Is(err, ErrCursor) {
			t.Error(err)
		}
		mute(t, l, "ann", "1", 204)
		p, err := l.List(t.Context(), Query{Limit: 1})
		if err != nil || len(p.Entries) != 1 || p.Entries[0].Status != 204 {
			t.Errorf("after an entry: %+v, %v", p, err)
		}
	})
}

// Texts are shortened, so that an entry is a line of bounded length.
func TestBounded(t *testing.T) {
	l := openLog(t.TempDir())
	long := strings.Repeat("é\n", 100_000)
	e := Entry{Who: long, Role: long, Subject: long, Via: long, From: long, ForwardedFor: long, On: long, Detail: long}
	if _, err := l.Start(e); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(l.changes.path(1))
	if err != nil || len(text) > 5000 || strings.Count(string(text), "\n") != 1 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// Concurrent writers of several processes, each with a log of its own, lose nothing.
func TestConcurrentWriters(t *testing.T) {
	dir := t.TempDir()
	var done sync.WaitGroup
	for i := range 4 {
		l := Open(dir, time.Now, slog.New(slog.DiscardHandler))
		l.changes.file = 8000 // more than 16 concurrent entries with their outcomes
		for k := range 4 {
			done.Go(func() {
				for n := range 5 {
					mute(t, l, "ann", fmt.Sprint(i, k, n), 204)
					l.Count(Entry{Operation: "backUp"})
					l.Flush()
				}
			})
		}
	}
	done.Wait()
	seen := make(map[string]bool)
	var counted int64
	for _, e := range list(t, openLog(dir), Query{}, 9) {
		if counted += e.Count; e.Count == 0 && e.Status == 204 {
			seen[e.On] = true
		}
	}
	if len(seen) != 80 || counted != 80 {
		t.Errorf("%d changes and %d counted requests, want 80 of each", len(seen), counted)
	}
}

// Run writes counted requests every minute and at its end.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := openLog(t.TempDir())
		done := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { l.Run(ctx); close(done) }()
		l.Count(Entry{Operation: "a"})
		synctest.Wait()
		if got := list(t, l, Query{}, 10); len(got) != 0 {
			t.Errorf("before the minute is over: %v", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		l.Count(Entry{Operation: "b"})
		if got := list(t, l, Query{}, 10); len(got) != 1 {
			t.Errorf("after a minute: %v", got)
		}
		cancel()
		<-done
		if got := list(t, l, Query{}, 10); len(got) != 2 {
			t.Errorf("after the end: %v", got)
		}
	})
}

// If the disk is full, Start fails, counts and leaves no trace, and counted requests wait for space.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("mounting a small disk needs root: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	l := openLog(dir)
	mute(t, l, "ann", "1", 204)
	filler := filepath.Join(dir, "filler")
	err := os.WriteFile(filler, make([]byte, 1<<20), 0o600)
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	for err = nil; err == nil; {
		_, err = l.Start(Entry{Who: "bob", Operation: "muteIncident", Detail: strings.Repeat("x", 500)})
	}
	if !errors.Is(err, unix.ENOSPC) || l.Failed() != 1 {
		t.Errorf("got %v, %d failures", err, l.Failed())
	}
	for i := range 100 {
		l.Count(Entry{Operation: "backUp", From: fmt.Sprint(i)})
		l.Flush()
	}
	if len(l.minute) > maxKinds+1 {
		t.Errorf("%d kinds of requests wait for space", len(l.minute))
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	l.Flush()
	var counted int64
	for _, e := range list(t, l, Query{}, 100) {
		counted += e.Count
	}
	if counted != 100 {
		t.Errorf("counted %d requests, want 100", counted)
	}
	mute(t, l, "ann", "2", 204)
	if got := texts(list(t, l, Query{Who: "ann"}, 10)); len(got) != 2 || l.Torn() != 0 {
		t.Errorf("%q, %d lines cut off", got, l.Torn())
	}
}

// killedVariable makes TestKilled the process that is killed.
const killedVariable = "SIBYL_TEST_AUDIT_DIR"

// Links are not followed: they could make root write elsewhere.
func TestLinks(t *testing.T) {
	for _, name := range []string{DirName, DirName + "/changes-000001.jsonl"} {
		dir, elsewhere := t.TempDir(), t.TempDir()
		link, target := filepath.Join(dir, name), filepath.Join(elsewhere, filepath.Base(name))
		if name == DirName {
			target = elsewhere
		}
		if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		if _, err := openLog(dir).Start(Entry{Operation: "createToken"}); err == nil {
			t.Errorf("%s is a link: no error", name)
		}
		if made, err := os.ReadDir(elsewhere); err != nil || len(made) > 0 {
			t.Errorf("%s is a link: %v, %v", name, made, err)
		}
	}
}

// After a kill, the log has every entry whose Start returned.
func TestKilled(t *testing.T) {
	if dir := os.Getenv(killedVariable); dir != "" {
		l := openLog(dir)
		for i := 0; ; i++ {
			mute(t, l, "ann", fmt.Sprint(i), 204)
			fmt.Println("acknowledged", i)
		}
	}
	dir := t.TempDir()
	for range 3 {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilled$")
		c.Env = append(os.Environ(), killedVariable+"="+dir)
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		last := ""
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if last = lines.Text(); last == "acknowledged 17" {
				_ = c.Process.Kill()
			}
		}
		_ = c.Wait() // it was killed
		on := strings.TrimPrefix(last, "acknowledged ")
		got := list(t, openLog(dir), Query{}, 1000)
		if !slices.ContainsFunc(got[:2], func(e Entry) bool { return e.On == on && e.Status == 204 }) {
			t.Errorf("%s was acknowledged last, but the log ends with %q", on, texts(got[:2]))
		}
	}
}
