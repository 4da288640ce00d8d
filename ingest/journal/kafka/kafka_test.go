package kafka_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/ingest/journal/kafka"
	"github.com/sibyl-trace/sibyl/internal/pebbledb"
	"github.com/sibyl-trace/sibyl/trace"
)

const patience = 400 * time.Millisecond

// brokers starts a Kafka cluster in this process and returns the addresses of its brokers.
func brokers(t *testing.T) []string {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(3))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c.ListenAddrs()
}

// replica is a journal that the test reads and writes.
type replica struct {
	*kafka.Journal

	t      *testing.T
	closed bool
}

// join opens the journal in dir as the replica with the given URL.
func join(t *testing.T, at []string, dir, url string) *replica {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	disk, err := pebbledb.NewDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	own, err := journal.Open(journal.Options{Dir: filepath.Join(dir, "journal"), Disk: disk, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	j, err := kafka.New(own, kafka.Options{Brokers: at, Topic: "sibyl", URL: url, Patience: patience, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{Journal: j, t: t}
	t.Cleanup(r.close)
	return r
}

func (r *replica) close() {
	if !r.closed {
		r.closed = true
		if err := r.Close(); err != nil {
			r.t.Error(err)
		}
	}
}

// lead follows until r leads, and returns the records that it received.
func (r *replica) lead() (received []journal.Record) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	err := r.Follow(ctx, func(x journal.Record) error {
		received = append(received, x)
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return received
}

// write appends a record with the given data.
func (r *replica) write(data []byte) error {
	r.Add(trace.Nanos(1e18), journal.Protobuf, journal.Pack(nil, data))
	return r.Append()
}

// all returns the data of all records in the journal of r.
func (r *replica) all() (all [][]byte) {
	for x, err := range r.Read(1) {
		if err != nil {
			r.t.Fatal(err)
		}
		if want := uint64(len(all)) + 1; x.Seq != want {
			r.t.Fatalf("record %d instead of %d", x.Seq, want)
		}
		all = append(all, x.Data)
	}
	return all
}

// noise returns n bytes that can't be compressed.
func noise(n int) []byte {
	r := rand.NewChaCha8([32]byte{1})
	b := make([]byte, n)
	_, _ = r.Read(b)
	return b
}

// TestFollow passes a journal from one replica to the next, with records that exceed the limit of Kafka.
func TestFollow(t *testing.T) {
	t.Parallel()
	at := brokers(t)
	records := [][]byte{[]byte("one"), noise(3 << 20), []byte("three"), {}}
	a := join(t, at, t.TempDir(), "http://a")
	a.lead()
	for _, x := range records[:3] {
		if err := a.write(x); err != nil {
			t.Fatal(err)
		}
	}
	b := join(t, at, t.TempDir(), "http://b")
	var got []journal.Record
	led := make(chan struct{})
	go func() {
		defer close(led)
		got = b.lead()
	}()
	for b.Next() < 4 { // b has all records
		time.Sleep(time.Millisecond)
		if err := a.Beat(); err != nil {
			t.Fatal(err)
		}
	}
	if url := b.Leader(); url != "http://a" {
		t.Errorf("b follows %q", url)
	}
	a.close()
	<-led
	if err := b.write(records[3]); err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || !bytes.Equal(got[1].Data, records[1]) || got[1].At != 1e18 {
		t.Errorf("b received %d records", len(got))
	}
	if len(b.all()) != 4 || b.Leader() != "" {
		t.Errorf("b has %d records and follows %q", len(b.all()), b.Leader())
	}
}

// TestTakeOver checks that a leader that seems dead can't append any more once another replica leads, and that it
// follows then.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	at := brokers(t)
	a, b := join(t, at, t.TempDir(), "http://a"), join(t, at, t.TempDir(), "http://b")
	a.lead()
	if err := a.write([]byte("a")); err != nil {
		t.Fatal(err)
	}
	if n := len(b.lead()); n != 1 { // a shows no sign of life
		t.Errorf("b received %d records", n)
	}
	if err := a.write([]byte("lost")); !errors.Is(err, journal.ErrNotLeading) {
		t.Errorf("a could still append: %v", err)
	}
	if err := b.write([]byte("b")); err != nil {
		t.Fatal(err)
	}
	received := a.lead()
	if len(received) != 1 || string(received[0].Data) != "b" {
		t.Errorf("a received %v", received)
	}
	if err := b.Beat(); !errors.Is(err, journal.ErrNotLeading) {
		t.Errorf("b could still append: %v", err)
	}
}

// TestRestart checks that a leader that was restarted goes on where it was.
func TestRestart(t *testing.T) {
	t.Parallel()
	at, dir := brokers(t), t.TempDir()
	for i := range 3 {
		a := join(t, at, dir, "http://a")
		if n := len(a.lead()); n != 0 {
			t.Errorf("received %d records that it had", n)
		}
		if err := a.write(fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
		a.close()
	}
	b := join(t, at, t.TempDir(), "http://b")
	if n := len(b.lead()); n != 3 {
		t.Errorf("b received %d records", n)
	}
}

// TestLostRecords checks that a replica refuses a topic that doesn't continue its journal.
func TestLostRecords(t *testing.T) {
	t.Parallel()
	dir, other := t.TempDir(), t.TempDir()
	at := brokers(t)
	a := join(t, at, dir, "http://a")
	a.lead()
	for range 3 {
		if err := a.write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	a.close()
	at = brokers(t) // a new topic
	a = join(t, at, dir, "http://a")
	a.lead()
	if err := a.write([]byte("y")); err != nil {
		t.Fatal(err)
	}
	refused := func(r *replica) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := r.Follow(ctx, func(journal.Record) error { return nil }); err == nil || ctx.Err() != nil {
			t.Errorf("followed: %v", err)
		}
	}
	refused(join(t, at, other, "http://new"))
	longer := t.TempDir()
	own := brokers(t)
	b := join(t, own, longer, "http://b")
	b.lead()
	for range 9 {
		if err := b.write([]byte("z")); err != nil {
			t.Fatal(err)
		}
	}
	b.close()
	refused(join(t, at, longer, "http://b"))
}

// TestChaos lets replicas lead, append, fall silent, stop and start at random. Every record whose Append succeeded must
// be in every journal, once, in the order of the appends of each replica, and all journals must be equal.
func TestChaos(t *testing.T) {
	t.Parallel()
	at := brokers(t)
	var mu sync.Mutex
	appended := make(map[string]bool)
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	end := time.Now().Add(8 * time.Second)
	var running sync.WaitGroup
	for i, dir := range dirs {
		running.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for n := 0; time.Now().Before(end); {
				j := join(t, at, dir, fmt.Sprint("http://", i))
				for time.Now().Before(end) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+r.IntN(3))*time.Second)
					err := j.Follow(ctx, func(journal.Record) error { return nil })
					cancel()
					for err == nil && r.IntN(20) > 0 {
						n++
						data := fmt.Sprint(i, " ", n)
						if err = j.write([]byte(data)); err == nil {
							mu.Lock()
							appended[data] = true
							mu.Unlock()
						}
					}
					if r.IntN(2) == 0 {
						time.Sleep(time.Duration(r.IntN(int(patience) * 3))) // silent, but it believes that it leads
						if err == nil {
							_ = j.write(fmt.Appendf(nil, "%d late %d", i, n))
						}
					}
					if r.IntN(3) == 0 {
						break
					}
				}
				j.close()
			}
		})
	}
	running.Wait()
	var want [][]byte
	for i, dir := range dirs {
		j := join(t, at, dir, fmt.Sprint("http://", i))
		j.lead()
		got := j.all()
		if i == 0 {
			want = got
		}
		if len(got) != len(want) {
			t.Fatalf("replica %d has %d records, not %d", i, len(got), len(want))
		}
		for k := range got {
			if !bytes.Equal(got[k], want[k]) {
				t.Fatalf("replica %d: record %d is %q, not %q", i, k+1, got[k], want[k])
			}
		}
		j.close()
	}
	count := make(map[string]int)
	for _, x := range want {
		count[string(x)]++
	}
	for x := range appended {
		if count[x] != 1 {
			t.Errorf("%q was appended and is there %d times", x, count[x])
		}
	}
	t.Logf("%d records of %d in all", len(appended), len(want))
	if len(appended) < 20 {
		t.Error("too few records were appended to show anything")
	}
}
