package store

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/pebbledb"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// outboxIn opens the store in dir, and its outbox, until the test ends.
func outboxIn(t *testing.T, dir string, limits OutboxLimits) *Outbox {
	t.Helper()
	disk, err := pebbledb.NewDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(Options{Dir: filepath.Join(dir, "store"), Disk: disk, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, s.Close()) })
	o, err := s.OpenOutbox(limits)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// put adds the event with the given id for endpoints and reports whether it was new. The event is about incident, or
// about nothing if that is 0.
func put(t *testing.T, o *Outbox, at int, id string, incident uint64, endpoints ...string) bool {
	t.Helper()
	var messages []Message
	subject := search.Subject{}
	if incident != 0 {
		subject = search.OfIncident(incident)
	}
	for _, e := range endpoints {
		messages = append(messages, Message{
			ID:       id,
			Endpoint: e,
			Event:    "decision",
			Format:   "sibyl",
			Subject:  subject,
			At:       seconds(at),
			Body:     []byte("body of " + id),
		})
	}
	added, err := o.Put(seconds(at), messages)
	must(t, err)
	return added
}

func seconds(n int) trace.Nanos { return trace.Nanos(n) * trace.Nanos(time.Second) }

// take takes up to n due messages for endpoint.
func take(t *testing.T, o *Outbox, endpoint string, at, n int) ([]Message, trace.Nanos) {
	t.Helper()
	due, again, err := o.Take(endpoint, seconds(at), n)
	must(t, err)
	return due, again
}

// ids returns the IDs of messages, in order.
func ids(messages []Message) string {
	var list []string
	for _, m := range messages {
		list = append(list, m.ID)
	}
	return strings.Join(list, " ")
}

func check(t *testing.T, name, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", name, got, want)
	}
}

func TestOutboxOrdersByProblemAndEndpoint(t *testing.T) {
	o := outboxIn(t, t.TempDir(), DefaultOutboxLimits())
	put(t, o, 1, "p1", 1, "a", "b")
	put(t, o, 2, "p1-later", 1, "a", "b")
	put(t, o, 3, "p2", 2, "a")
	put(t, o, 4, "none", 0, "a")
	put(t, o, 5, "none-later", 0, "a")

	due, _ := take(t, o, "a", 10, 2)
	check(t, "two of a", ids(due), "p1 p2")
	if !bytes.Equal(due[0].Body, []byte("body of p1")) {
		t.Errorf("body %q", due[0].Body)
	}
	more, _ := take(t, o, "a", 10, 9)
	check(t, "the rest of a", ids(more), "none none-later")
	other, _ := take(t, o, "b", 10, 9)
	check(t, "b", ids(other), "p1")

	must(t, o.Retry(&due[0], seconds(30), "busy"))
	none, again := take(t, o, "a", 20, 9)
	if len(none) != 0 || again != seconds(30) {
		t.Errorf("behind a waiting message: %q, again at %d", ids(none), again)
	}
	due, _ = take(t, o, "a", 30, 9)
	check(t, "when it is time", ids(due), "p1")
	if due[0].Attempts != 1 || due[0].Error != "busy" {
		t.Errorf("%+v", due[0])
	}
	must(t, o.Done(&due[0]))
	due, _ = take(t, o, "a", 31, 9)
	check(t, "then the later one", ids(due), "p1-later")
	o.Release(&due[0])
	due, _ = take(t, o, "a", 31, 9)
	check(t, "given back", ids(due), "p1-later")
}

func TestOutboxAddsAnEventOnce(t *testing.T) {
	dir := t.TempDir()
	o := outboxIn(t, dir, DefaultOutboxLimits())
	if !put(t, o, 1, "x", 1, "a") || put(t, o, 1, "x", 1, "a") {
		t.Error("the event is not new exactly once")
	}
	due, _ := take(t, o, "a", 1, 1)
	must(t, o.Done(&due[0]))
	again := outboxIn(t, killed(t, dir), DefaultOutboxLimits())
	if put(t, again, 1, "x", 1, "a") {
		t.Error("the event is new after a restart")
	}
	day := int(rememberEvents / time.Second)
	if _, err := again.Expire(seconds(day+2), 0, func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if !put(t, again, 1, "x", 1, "a") {
		t.Error("the event is still known after a day")
	}
}

// killed returns a copy of dir as it would be if the process were killed now.
func killed(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	must(t, os.CopyFS(filepath.Join(to, "store"), os.DirFS(filepath.Join(dir, "store"))))
	return to
}

func TestOutboxSurvivesKill(t *testing.T) {
	dir := t.TempDir()
	o := outboxIn(t, dir, DefaultOutboxLimits())
	for i := range 5 {
		put(t, o, i, fmt.Sprint("e", i), uint64(i+1), "a")
	}
	due, _ := take(t, o, "a", 9, 4)
	must(t, o.Done(&due[0]))
	must(t, o.Retry(&due[1], seconds(50), "no"))
	must(t, o.MoveToDeadLetters(&due[2], "never"))
	o = outboxIn(t, killed(t, dir), DefaultOutboxLimits())

	check(t, "waiting", ids(o.List(false, 0, 9)), "e1 e3 e4")
	check(t, "dead", ids(o.List(true, 0, 9)), "e2")
	dead := o.List(true, 0, 9)[0]
	if dead.Error != "never" || dead.Attempts != 1 {
		t.Errorf("dead letter %+v", dead)
	}
	now, again := take(t, o, "a", 10, 9)
	if ids(now) != "e3 e4" || again != seconds(50) { // e3 was taken but neither delivered nor returned
		t.Errorf("due %q, again at %d", ids(now), again)
	}
	put(t, o, 20, "new", 9, "a")
	if all := o.List(false, 0, 9); all[len(all)-1].ID != "new" || all[len(all)-1].Number <= dead.Number {
		t.Errorf("numbers are reused: %+v", all)
	}
}

func TestDeadLettersAreSentAgain(t *testing.T) {
	dir := t.TempDir()
	o := outboxIn(t, dir, DefaultOutboxLimits())
	put(t, o, 1, "first", 1, "a")
	put(t, o, 2, "second", 1, "a")
	due, _ := take(t, o, "a", 3, 1)
	must(t, o.MoveToDeadLetters(&due[0], "never"))
	if due, _ := take(t, o, "a", 3, 1); ids(due) != "second" {
		t.Errorf("behind a dead letter: %q", ids(due))
	}
	endpoint, err := o.Resend(due[0].Number, seconds(100))
	if endpoint != "a" || err != nil {
		t.Fatalf("resend: %q, %v", endpoint, err)
	}
	if _, err := o.Resend(due[0].Number, seconds(100)); !errors.Is(err, ErrNoMessage) {
		t.Errorf("resend again: %v", err)
	}
	o = outboxIn(t, killed(t, dir), DefaultOutboxLimits())
	all := o.List(false, 0, 9)
	check(t, "order", ids(all), "second first")
	if all[1].Attempts != 0 || all[1].Put != seconds(100) || o.Stats().Dead != 0 {
		t.Errorf("%+v", all[1])
	}
	must(t, o.Retry(&all[0], seconds(500), "no"))
	if _, err := o.Resend(all[0].Number, seconds(101)); err != nil {
		t.Fatal(err)
	}
	due, _ = take(t, o, "a", 101, 1)
	check(t, "resent waiting message", ids(due), "second")
}

func TestDeadLettersAreRead(t *testing.T) {
	dir := t.TempDir()
	o := outboxIn(t, dir, DefaultOutboxLimits())
	put(t, o, 1, "first", 1, "a")
	put(t, o, 2, "second", 1, "a")
	waiting, _ := take(t, o, "a", 3, 1)
	number := waiting[0].Number
	if _, err := o.Dead(number); !errors.Is(err, ErrNoMessage) {
		t.Errorf("a waiting message is read as a dead letter: %v", err)
	}
	if err := o.Drop(number); !errors.Is(err, ErrNoMessage) {
		t.Errorf("a waiting message is dropped as a dead letter: %v", err)
	}
	must(t, o.MoveToDeadLetters(&waiting[0], "never"))
	if m, err := o.Dead(number); err != nil || string(m.Body) != "body of first" || m.Error != "never" {
		t.Errorf("%+v, %v", m, err)
	}
	must(t, o.Drop(number))
	if err := o.Drop(number); !errors.Is(err, ErrNoMessage) {
		t.Errorf("dropped twice: %v", err)
	}
	if s := outboxIn(t, killed(t, dir), DefaultOutboxLimits()).Stats(); s.Dead != 0 || s.Waiting != 1 {
		t.Errorf("after a crash: %+v", s)
	}
}

func TestOutboxIsBounded(t *testing.T) {
	dir := t.TempDir()
	o := outboxIn(t, dir, OutboxLimits{Messages: 3, Bytes: 1000})
	put(t, o, 1, "e1", 1, "a")
	put(t, o, 2, "e2", 2, "b")
	put(t, o, 3, "e3", 3, "a")
	due, _ := take(t, o, "b", 3, 1)
	must(t, o.MoveToDeadLetters(&due[0], "never"))
	put(t, o, 4, "e4", 4, "c")
	check(t, "dead letters go first", ids(o.List(true, 0, 9)), "")
	inFlight, _ := take(t, o, "a", 4, 1)
	put(t, o, 5, "e5", 5, "c")
	check(t, "then the oldest", ids(o.List(false, 0, 9)), "e3 e4 e5")
	must(t, o.Done(&inFlight[0])) // e1, which was dropped in the meantime
	must(t, o.Retry(&inFlight[0], 9, ""))
	if s := o.Stats(); s.Waiting != 3 || s.Dropped != 2 || s.Bytes != 3*int64(len("body of e1")) {
		t.Errorf("%+v", s)
	}
	small := outboxIn(t, killed(t, dir), OutboxLimits{Messages: 100, Bytes: 25})
	put(t, small, 6, "e6", 6, "a")
	check(t, "bytes", ids(small.List(false, 0, 9)), "e5 e6")
}

func TestOutboxExpires(t *testing.T) {
	o := outboxIn(t, t.TempDir(), DefaultOutboxLimits())
	put(t, o, 1, "old", 1, "a", "gone")
	put(t, o, 2, "taken", 2, "b")
	put(t, o, 8, "new", 3, "a")
	take(t, o, "b", 9, 1)
	died, err := o.Expire(seconds(9), seconds(5), func(endpoint string) bool { return endpoint != "gone" })
	if died != 2 || err != nil {
		t.Errorf("%d dead letters, error %v; want 2", died, err)
	}
	check(t, "waiting", ids(o.List(false, 0, 9)), "taken new")
	dead := o.List(true, 0, 9)
	i := slices.IndexFunc(dead, func(m Message) bool { return m.Endpoint == "gone" })
	if i < 0 || !strings.Contains(dead[i].Error, "no webhook") {
		t.Errorf("%+v", dead)
	}
	if page := o.List(true, dead[0].Number, 1); len(page) != 1 || page[0].Number != dead[1].Number {
		t.Errorf("second page: %+v", page)
	}
}

func TestDecodeMessage(t *testing.T) {
	m := Message{
		Number:  7,
		ID:      "x",
		Subject: search.OfProblem(analysis.Hash{Hi: 1, Lo: 1 << 63}),
		At:      5,
		Size:    3,
		Body:    []byte{0, 1, 2},
	}
	encoded := encodeMessage(&m)
	got, err := decodeMessage(encoded)
	if diff := cmp.Diff(m, got); err != nil || diff != "" {
		t.Errorf("error %v, %s", err, diff)
	}
	for _, value := range [][]byte{
		nil, {9}, {2, '{'}, {2, '[', ']'}, bytes.Repeat([]byte{255}, 12), encoded[:1], encoded[:20],
	} {
		if got, err := decodeMessage(value); !errors.Is(err, codec.ErrCorrupt) || !reflect.DeepEqual(got, Message{}) {
			t.Errorf("%q: %+v, error %v, want %v", value, got, err, codec.ErrCorrupt)
		}
	}
}
