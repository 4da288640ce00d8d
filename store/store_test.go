package store

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// opened opens an empty store until the test ends.
func opened(t *testing.T) *Store {
	t.Helper()
	s, err := openIn(t, t.TempDir())
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// A checkpoint replaces the last one, in as many pieces as necessary. Its closed traces are added to the existing ones
// that aren't deleted.
func TestCheckpointIsReplaced(t *testing.T) {
	s := opened(t)
	if c, err := s.Checkpoints.Load(); c != nil || err != nil {
		t.Errorf("without a checkpoint: %v, %v", c, err)
	}
	state := make([]byte, 2*pieceSize+1) // random bytes don't compress: three pieces
	if _, err := rand.NewChaCha8([32]byte{}).Read(state); err != nil {
		t.Fatal(err)
	}
	first := &Checkpoint{
		Seq:    300,
		At:     10,
		Oldest: 200,
		State:  state,
		Closed: []Closed{{At: 4, Hashes: []uint64{1}}, {At: 5}, {At: 6, Hashes: []uint64{2, 1 << 60}}},
	}
	must(t, s.Checkpoints.Save(first, 0))
	first.Closed = slices.Delete(first.Closed, 1, 2) // it has no traces
	loaded(t, s, first)

	second := &Checkpoint{
		Seq:    400,
		At:     20,
		Oldest: 300,
		State:  []byte("small"),
		Closed: []Closed{{At: 16, Hashes: []uint64{3}}},
	}
	must(t, s.Checkpoints.Save(second, 6))
	second.Closed = []Closed{first.Closed[1], second.Closed[0]}
	loaded(t, s, second)
}

// A crash while a checkpoint is being saved leaves the last one, and the next one replaces both.
func TestInterruptedSave(t *testing.T) {
	s := opened(t)
	first := &Checkpoint{Seq: 1, State: []byte("first")}
	must(t, s.Checkpoints.Save(first, 0))
	last, err := s.Checkpoints.head()
	must(t, err)
	for i := range uint64(2) {
		must(t, s.db.Set(numbered(keyState, last.first+last.pieces+i), []byte("interrupted"), pebble.Sync))
	}
	loaded(t, s, first)
	second := &Checkpoint{Seq: 2, State: []byte("second")}
	must(t, s.Checkpoints.Save(second, 0))
	loaded(t, s, second)
	pieces := 0
	must(t, s.db.each([]byte{keyState}, func(_, _ []byte) error { pieces++; return nil }))
	if pieces != 1 {
		t.Errorf("%d pieces of states, want 1", pieces)
	}
}

// A head is damaged if the numbers of its pieces exceed the largest number.
func TestDamagedHead(t *testing.T) {
	_, err := decodeHead((&head{pieces: 2, first: math.MaxUint64}).append(nil))
	if !errors.Is(err, ErrCheckpoint) {
		t.Errorf("pieces beyond the last number: %v", err)
	}
}

func loaded(t *testing.T, s *Store, want *Checkpoint) {
	t.Helper()
	got, err := s.Checkpoints.Load()
	must(t, err)
	if !bytes.Equal(got.State, want.State) {
		t.Errorf("state of %d bytes, want %d", len(got.State), len(want.State))
	}
	g, w := *got, *want
	g.State, w.State = nil, nil
	if !reflect.DeepEqual(g, w) {
		t.Errorf("checkpoint %+v, want %+v", g, w)
	}
}

func TestDamagedCheckpoint(t *testing.T) {
	for _, c := range []struct {
		name  string
		key   []byte
		value []byte // nil if missing
	}{
		{"a head that ends early", []byte{keyCheckpoint}, []byte{1, 2}},
		{"a piece is missing", numbered(keyState, 0), nil},
		{"a piece that does not unpack", numbered(keyState, 0), []byte("damaged")},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := opened(t)
			must(t, s.Checkpoints.Save(&Checkpoint{Seq: 1, State: []byte("state")}, 0))
			if c.value == nil {
				must(t, s.db.Delete(c.key, pebble.Sync))
			} else {
				must(t, s.db.Set(c.key, c.value, pebble.Sync))
			}
			if got, err := s.Checkpoints.Load(); got != nil || !errors.Is(err, ErrCheckpoint) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// Decisions are returned in whole epochs, from either end, until they reach the limit.
func TestDecisions(t *testing.T) {
	s := opened(t)
	epochs := map[trace.Nanos][]string{10: {"a", "b"}, 20: {"c"}, 30: {"d", "e"}}
	for at, reasons := range epochs {
		must(t, s.Decisions.Put(at, decisions(reasons...)))
	}
	must(t, s.Decisions.Put(20, decisions("C")))
	for _, c := range []struct {
		from, to trace.Nanos
		limit    int
		newest   bool
		want     string
	}{
		{-1, 100, 100, false, "a b C d e"},
		{0, 100, 100, true, "a b C d e"},
		{10, 30, 100, false, "a b C"}, // from is included, to isn't
		{11, 31, 100, false, "C d e"},
		{0, 100, 1, false, "a b"},
		{0, 100, 2, false, "a b"},
		{0, 100, 3, false, "a b C"},
		{0, 100, 2, true, "d e"},
		{0, 100, 3, true, "C d e"},
		{0, 100, 0, false, ""},
		{-2, -1, 100, false, ""},
	} {
		got, err := s.Decisions.Between(c.from, c.to, c.limit, c.newest)
		must(t, err)
		check(t, fmt.Sprintf("%+v", c), reasons(got), c.want)
	}

	check(t, "epochs", summarized(t, s, 100), "10:2 20:1 30:2")
	check(t, "the first two epochs", summarized(t, s, 2), "10:2 20:1")
	must(t, s.Decisions.Delete(20))
	check(t, "without the second epoch", summarized(t, s, 100), "10:2 30:2")
	must(t, s.Decisions.DeleteBefore(-1))
	check(t, "before 1970", summarized(t, s, 100), "10:2 30:2")
	must(t, s.Decisions.DeleteBefore(30))
	check(t, "without those before the last epoch", summarized(t, s, 100), "30:2")

	must(t, s.db.Set(numbered(keyDecisions, 40), []byte("damaged"), pebble.Sync))
	if _, err := s.Decisions.Between(0, 100, 100, false); err == nil ||
		!strings.Contains(err.Error(), "decisions of 40:") {
		t.Errorf("damaged decisions: %v", err)
	}
	var last error
	for _, err := range s.Decisions.Epochs() {
		last = err
	}
	if last == nil {
		t.Error("Epochs yields no error for damaged decisions")
	}
}

// decisions returns one decision per reason, each about a different problem.
func decisions(reasons ...string) (all []search.Decision) {
	for i, r := range reasons {
		all = append(all, search.Decision{Reason: r, Subject: search.OfIncident(uint64(i) + 1)})
	}
	return all
}

func reasons(all []search.Decision) string {
	var list []string
	for i := range all {
		list = append(list, all[i].Reason)
	}
	return strings.Join(list, " ")
}

// summarized returns the ends of the first n epochs with the number of subjects of each.
func summarized(t *testing.T, s *Store, n int) string {
	t.Helper()
	var list []string
	for d, err := range s.Decisions.Epochs() {
		must(t, err)
		if d.Size <= 0 {
			t.Errorf("epoch %d has %d bytes, want some", d.At, d.Size)
		}
		list = append(list, fmt.Sprintf("%d:%d", d.At, len(d.Subjects)))
		if len(list) == n {
			break
		}
	}
	return strings.Join(list, " ")
}

func TestExemplars(t *testing.T) {
	s := opened(t)
	a, b := analysis.Hash{Hi: 1, Lo: 2}, analysis.Hash{Hi: 2, Lo: 1}
	of := func(root byte) *Exemplars {
		return &Exemplars{
			Slow: []Exemplar{{Trace: trace.ID{root}, Duration: 5, Records: []uint64{7, 8}}},
			Fast: []Exemplar{{Trace: trace.ID{root, 1}, Duration: 1}},
		}
	}
	must(t, s.Exemplars.Put(a, of(1)))
	must(t, s.Exemplars.Put(b, of(2)))
	must(t, s.Exemplars.Put(b, of(3)))
	got := map[analysis.Hash]*Exemplars{}
	must(t, s.Exemplars.Each(func(group analysis.Hash, e *Exemplars) error { got[group] = e; return nil }))
	if want := map[analysis.Hash]*Exemplars{a: of(1), b: of(3)}; !reflect.DeepEqual(got, want) {
		t.Errorf("all exemplars: %+v, want %+v", got, want)
	}
	if e, err := s.Exemplars.Of(b); err != nil || !reflect.DeepEqual(e, of(3)) {
		t.Errorf("exemplars: %+v, %v", e, err)
	}
	must(t, s.Exemplars.Delete(b))
	if e, err := s.Exemplars.Of(b); err != nil || !reflect.DeepEqual(e, &Exemplars{}) {
		t.Errorf("deleted exemplars: %+v, %v", e, err)
	}
	must(t, s.db.Set(groupKey(b), []byte("damaged"), pebble.Sync))
	if err := s.Exemplars.Each(func(analysis.Hash, *Exemplars) error { return nil }); err == nil {
		t.Error("no error for damaged exemplars")
	}
}

func TestTraces(t *testing.T) {
	s, id := opened(t), trace.ID{1}
	request := bytes.Repeat([]byte("span "), 1000)
	must(t, s.Traces.Put(id, request))
	if got, err := s.Traces.Get(id); err != nil || !bytes.Equal(got, request) {
		t.Errorf("%d bytes, %v; want %d", len(got), err, len(request))
	}
	if size, err := s.Traces.Size(id); err != nil || size <= 0 || size >= int64(len(request)) {
		t.Errorf("size %d, error %v, want fewer than %d bytes", size, err, len(request))
	}
	must(t, s.db.Set(traceKey(id), []byte("damaged"), pebble.Sync))
	if got, err := s.Traces.Get(id); got != nil || err == nil || !strings.Contains(err.Error(), id.String()) {
		t.Errorf("damaged: %q, %v", got, err)
	}
	must(t, s.Traces.Delete(id))
	if got, err := s.Traces.Get(id); got != nil || err != nil {
		t.Errorf("deleted: %q, %v", got, err)
	}
}

// Compact frees the space of deleted values.
func TestCompact(t *testing.T) {
	s := opened(t)
	noise := make([]byte, 1<<20)
	if _, err := rand.NewChaCha8([32]byte{}).Read(noise); err != nil {
		t.Fatal(err)
	}
	must(t, s.Traces.Put(trace.ID{1}, noise))
	must(t, s.db.Flush())
	if n, err := s.EstimateSize(); err != nil || n < int64(len(noise)) {
		t.Errorf("size %d, error %v, want at least %d bytes", n, err, len(noise))
	}
	must(t, s.Traces.Delete(trace.ID{1}))
	must(t, s.Compact(t.Context()))
	if n, err := s.EstimateSize(); err != nil || n > 1<<16 {
		t.Errorf("size %d, error %v, after compaction", n, err)
	}
}

// Count counts messages for one endpoint.
func TestOutboxCountsByEndpoint(t *testing.T) {
	o := outboxIn(t, t.TempDir(), DefaultOutboxLimits())
	put(t, o, 1, "one", 1, "a", "b")
	put(t, o, 2, "two", 2, "a")
	put(t, o, 3, "three", 3, "a")
	check(t, "first page", ids(o.List(false, 0, 2)), "one one")
	due, _ := take(t, o, "a", 4, 2) // two of three
	check(t, "due", ids(due), "one two")
	rest, again := take(t, o, "a", 4, 2)
	check(t, "due next", fmt.Sprint(ids(rest), again), "three0")
	must(t, o.MoveToDeadLetters(&due[0], "no"))
	must(t, o.Retry(&due[1], seconds(9), "not yet"))
	must(t, o.Retry(&rest[0], seconds(8), "not yet"))
	for endpoint, want := range map[string]string{"a": "2 1", "b": "1 0", "c": "0 0"} {
		waiting, dead := o.Count(endpoint)
		check(t, endpoint, fmt.Sprint(waiting, dead), want)
	}
	none, again := take(t, o, "a", 7, 9)
	check(t, "before the next attempt", fmt.Sprint(ids(none), again), fmt.Sprint("", seconds(8)))
	now, again := take(t, o, "a", 8, 9)
	check(t, "at the next attempt", fmt.Sprint(ids(now), again), fmt.Sprint("three", seconds(9)))
}

// A message that doesn't expire doesn't prevent later messages from expiring.
func TestOutboxExpiresBehindOthers(t *testing.T) {
	o := outboxIn(t, t.TempDir(), DefaultOutboxLimits())
	put(t, o, 1, "taken", 1, "a")
	put(t, o, 2, "old", 2, "a")
	put(t, o, 5, "as old as may be", 3, "a")
	take(t, o, "a", 6, 1)
	died, err := o.Expire(seconds(6), seconds(5), func(string) bool { return true })
	check(t, "expired", fmt.Sprint(died, err), "1 <nil>")
	check(t, "waiting", ids(o.List(false, 0, 9)), "taken as old as may be")
	check(t, "dead", ids(o.List(true, 0, 9)), "old")
}

// The identity of an event is kept for a day, longer than a restart could replay the event. The next Expire, at most
// an hour later, deletes it.
func TestOutboxForgetsEvents(t *testing.T) {
	o := outboxIn(t, t.TempDir(), DefaultOutboxLimits())
	const hour, start = 3600, 100 * 3600
	put(t, o, start, "event", 1, "a")
	for _, c := range []struct {
		at  int
		new bool
	}{
		{start + hour, false},
		{start + 24*hour, false},
		{start + 25*hour - 1, false},
		{start + 25*hour, true},
	} {
		_, err := o.Expire(seconds(c.at), 0, func(string) bool { return true })
		must(t, err)
		if got := put(t, o, c.at, "event", 1, "a"); got != c.new {
			t.Errorf("%ds after the event: new: %t, want %t", c.at-start, got, c.new)
		}
	}
}

// A resent dead letter gets a new number, which no later message uses.
func TestResentLetterIsNotOverwritten(t *testing.T) {
	o := outboxIn(t, t.TempDir(), DefaultOutboxLimits())
	put(t, o, 1, "first", 1, "a")
	put(t, o, 2, "second", 2, "a")
	due, _ := take(t, o, "a", 3, 1)
	must(t, o.MoveToDeadLetters(&due[0], "no"))
	_, err := o.Resend(due[0].Number, seconds(4))
	must(t, err)
	put(t, o, 5, "third", 3, "a")
	put(t, o, 6, "fourth", 4, "a")
	due, _ = take(t, o, "a", 7, 9)
	check(t, "due", ids(due), "second first third fourth")
	for i := range due {
		check(t, "body", string(due[i].Body), "body of "+due[i].ID)
		must(t, o.Done(&due[i]))
	}
	check(t, "waiting", ids(o.List(false, 0, 9)), "")
}
