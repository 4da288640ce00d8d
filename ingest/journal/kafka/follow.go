package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sibyl-trace/sibyl/ingest/journal"
)

// follower reads the topic on behalf of Follow.
type follower struct {
	*Journal

	replay   func(journal.Record) error
	client   *kgo.Client
	heard    time.Time        // when the leader last showed a sign of life
	patience time.Duration    // after which this replica claims the lead
	position int64            // offset of the next record of the topic
	seen     uint64           // number of the last record of the journal seen in the topic; 0 before the first
	claimed  int64            // offset of this replica's claim; -1 if there is none
	claim    int64            // offset of the last claim seen in the topic; -1 before the first
	part     *journal.Packed  // record whose data continues
	ready    []journal.Packed // records of the present poll that are new to this replica
	behind   bool             // the topic goes on before the end of this replica's journal
}

// Follow passes the records that other replicas append to replay, in order and once each, after it has added them to
// the journal of this replica. It returns nil once this replica leads and has read the whole topic. It returns the
// cause if ctx ends, and an error if the topic doesn't continue the journal.
func (j *Journal) Follow(ctx context.Context, replay func(journal.Record) error) error {
	j.resign()
	j.lasting = context.WithoutCancel(ctx)
	defer func() { j.started = true }()
	offset := kgo.NewOffset().AtStart()
	if next := j.Next(); next > 1 {
		if last, err := j.Get(next-1, nil); err == nil {
			offset = kgo.NewOffset().AfterMilli(time.Unix(0, int64(last.At)).UnixMilli())
		}
	}
	c, err := kgo.NewClient(append(j.client(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{j.options.Topic: {0: offset}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(pollTimeout),
		kgo.KeepRetryableFetchErrors(),
	)...)
	if err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	defer c.CloseAllowingRebalance()
	f := &follower{Journal: j, replay: replay, client: c, claimed: -1, claim: -1}
	for {
		err := j.createTopic(ctx, c)
		if err == nil {
			break
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errPartitions):
			return err
		}
		j.complain(err)
		sleep(ctx, time.Second)
	}
	f.wait(j.options.Patience)
	if j.Next() == 1 {
		f.wait(time.Second) // if the topic is empty, all replicas are new
	}
	defer j.leader.Store(new(string))
	for {
		idle, err := f.poll(ctx)
		if err != nil {
			return err
		}
		if f.claimed >= 0 && f.position > f.claimed {
			if f.claim == f.claimed {
				j.options.Log.InfoContext(ctx, "this replica leads", slog.String("topic", j.options.Topic))
				return nil
			}
			f.resign() // another replica claimed the lead afterwards
			f.claimed = -1
		}
		if idle && f.claimed < 0 && time.Since(f.heard) > f.patience {
			f.take()
		}
	}
}

// sleep waits for d or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// wait starts to wait for a sign of life of the leader, for at most d and a random part of it, so that two replicas
// rarely claim the lead at the same time.
func (f *follower) wait(d time.Duration) {
	f.heard, f.patience = time.Now(), d+rand.N(d/4)
}

// take claims the lead.
func (f *follower) take() {
	offset, err := f.Journal.claim()
	if err != nil {
		f.complain(fmt.Errorf("no replica leads, and this one can't take over: %w", err))
		f.wait(f.options.Patience)
		return
	}
	f.claimed = offset
}

// poll reads some records of the topic. idle reports whether there were none.
func (f *follower) poll(ctx context.Context) (idle bool, err error) {
	polling, cancel := context.WithTimeout(ctx, pollTimeout)
	fetches := f.client.PollFetches(polling)
	cancel()
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	idle = true
	fetches.EachError(func(_ string, _ int32, err error) {
		idle = idle && errors.Is(err, context.DeadlineExceeded)
		if !idle {
			f.complain(fmt.Errorf("read the topic: %w", err))
		}
	})
	f.ready = f.ready[:0]
	fetches.EachRecord(func(r *kgo.Record) {
		idle = false
		if err == nil {
			err = f.read(r)
		}
	})
	switch {
	case err != nil:
		return false, err
	case idle && f.behind && f.seen < f.Next()-1:
		return false, fmt.Errorf("this replica has records that the topic %s lacks, and another one "+
			"continued without them: move its data directory away and restore a backup of the leader",
			f.options.Topic)
	}
	return idle, f.pass()
}

// read reads a record of the topic.
func (f *follower) read(r *kgo.Record) error {
	f.position = r.Offset + 1
	x, ok := parse(r)
	if !ok {
		return fmt.Errorf("the topic %s contains records of another program or of a later version of "+
			"Sibyl: name another topic in cluster.topic, or update this replica", f.options.Topic)
	}
	f.wait(f.options.Patience)
	next := f.Next() + uint64(len(f.ready))
	if x.Seq > next {
		return fmt.Errorf("the topic %s no longer has the records %d to %d, which this replica lacks: "+
			"move its data directory away and restore a backup of the leader", f.options.Topic, next, x.Seq-1)
	}
	switch {
	case x.Kind < leadClaimed:
		f.add(&x, next)
		return nil
	case x.Kind == leadLeft:
		f.wait(time.Second)
		f.leader.Store(new(string))
		return nil
	case x.Kind == leadClaimed:
		f.claim = r.Offset
	}
	f.follow(x.url)
	f.behind = x.Seq < next
	return nil
}

// add adds x, which belongs to a record of the journal, to f.ready, once the record is complete and unless it is older
// than next, the number of the next record.
func (f *follower) add(x *entry, next uint64) {
	if f.part != nil && f.part.Seq == x.Seq {
		f.part.Data = append(slices.Clip(f.part.Data), x.Data...) // the client owns the memory after it
	} else {
		f.part = &x.Packed
	}
	if x.more {
		return
	}
	if f.seen = x.Seq; x.Seq == next {
		f.ready = append(f.ready, *f.part)
	}
	f.part = nil
}

// follow takes note that the replica at url leads.
func (f *follower) follow(url string) {
	if url == f.options.URL {
		if !f.started {
			f.wait(time.Second) // this replica led before it was restarted, and perhaps nobody has taken over
		}
		return
	}
	if f.Leader() != url {
		f.options.Log.Info("another replica leads", slog.String("leader", url))
		f.leader.Store(&url)
	}
}

// pass adds the new records to the journal of this replica, and then passes them to replay.
func (f *follower) pass() error {
	if len(f.ready) == 0 {
		return nil
	}
	first := f.Next()
	if err := f.keep(f.ready); err != nil {
		return err
	}
	for r, err := range f.Read(first) {
		if err == nil {
			err = f.replay(r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
