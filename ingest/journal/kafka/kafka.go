// Package kafka shares a journal among several processes, the replicas, by a Kafka topic with one partition.
//
//	the leader:  Append ─▶ topic ─▶ its own journal
//	the others:  topic ─▶ their own journals ─▶ Follow
//
// Each replica keeps a journal of its own, with the same records under the same numbers, so that all of them compute
// the same state, and any of them can go on. A record is durable once Kafka has committed the transaction that contains
// it.
//
// One replica leads: the one whose claim is the last one in the topic. A claim is a transaction with the
// transactional ID of the topic, so Kafka refuses all later transactions of the replica that led before. A replica
// claims the lead when it has heard nothing from the leader for Options.Patience. A wrong clock changes how soon a
// replica takes over, never the contents of the journal.
//
// If the leader can't tell whether a transaction was committed, it stops leading and reads the topic, which tells.
package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/trace"
)

// Options configure a [Journal]. Zero durations mean the defaults.
type Options struct {
	Brokers        []string // addresses of some brokers
	Topic          string   // created if it doesn't exist
	TLS            *tls.Config
	User, Password string // SCRAM-SHA-512; empty means no log-in
	// URL of this replica's API. The other replicas send their callers there while this replica leads. It also
	// identifies the replica, so it must be unique.
	URL string
	// Retention is the minimum time for which the topic keeps records; it takes effect when the topic is created. A
	// replica that was away for longer must be restored from a backup of another one. The default is a day.
	Retention time.Duration
	Patience  time.Duration // silence of the leader after which another replica takes over; the default is 8 s
	Log       *slog.Logger
}

const (
	defaultRetention = 24 * time.Hour
	defaultPatience  = 8 * time.Second
	// beatsPerPatience is the number of signs of life that the leader sends within Options.Patience.
	beatsPerPatience = 8
	// replicas is the replication factor of a new topic, unless there are fewer brokers.
	replicas = 3
	// callTimeout limits each call to Kafka. It is longer than the time that a cluster takes to replace a broker.
	callTimeout = 15 * time.Second
	// transactionTimeout is the age at which Kafka aborts the transaction of a dead leader.
	transactionTimeout = 20 * time.Second
	// pollTimeout is the time between two looks at the silence of the leader.
	pollTimeout = 250 * time.Millisecond
	// complainEvery is the interval between log messages while Kafka can't be reached.
	complainEvery = 30 * time.Second
)

// Journal is a journal that replicas share. It is safe for concurrent use, except that only one goroutine may call Add,
// Append, Beat and Follow.
type Journal struct {
	*journal.Journal // this replica's own, with the same records

	options Options
	added   []journal.Packed // since the last Append
	leader  atomic.Pointer[string]
	// lasting is the context of the last call of Follow, without its end.
	lasting   context.Context //nolint:containedctx // Append takes none, because a journal on disk needs none
	producer  *kgo.Client     // not nil while this replica leads
	started   bool            // Follow was called before
	appended  time.Time       // when this replica, as the leader, last committed a transaction
	complains time.Time       // when a failure was last logged
}

// New returns a journal that shares the records of own, which it takes over. It doesn't connect to Kafka yet.
func New(own *journal.Journal, o Options) (*Journal, error) {
	o.Retention, o.Patience = cmp.Or(o.Retention, defaultRetention), cmp.Or(o.Patience, defaultPatience)
	j := &Journal{Journal: own, options: o}
	j.leader.Store(new(string))
	if err := kgo.ValidateOpts(j.client()...); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	return j, nil
}

// client returns the options of all clients.
func (j *Journal) client() []kgo.Opt {
	all := []kgo.Opt{
		kgo.SeedBrokers(j.options.Brokers...),
		kgo.ClientID("sibyl"),
		kgo.RetryTimeout(callTimeout),
		kgo.DialTimeout(callTimeout / 3),
		kgo.MetadataMinAge(pollTimeout),
		kgo.WithLogger(logger{j.options.Log}),
	}
	if j.options.TLS != nil {
		all = append(all, kgo.DialTLSConfig(j.options.TLS))
	}
	if j.options.User != "" {
		login := scram.Auth{User: j.options.User, Pass: j.options.Password}
		all = append(all, kgo.SASL(login.AsSha512Mechanism()))
	}
	return all
}

// logger passes on the client's warnings and errors. Those that repeat while brokers restart are only for debugging.
type logger struct{ log *slog.Logger }

// Level implements [kgo.Logger].
func (logger) Level() kgo.LogLevel { return kgo.LogLevelWarn }

// Log implements [kgo.Logger].
func (l logger) Log(_ kgo.LogLevel, message string, values ...any) {
	l.log.Debug("the client of Kafka reports", slog.String("message", message), slog.Any("values", values))
}

// complain logs a failure of Kafka, at most once every complainEvery.
func (j *Journal) complain(err error) {
	if now := time.Now(); now.Sub(j.complains) >= complainEvery {
		j.complains = now
		j.options.Log.Warn("Kafka can't be used at present", slog.Any("error", err))
	}
}

// Leader returns the URL of the replica that leads, or "" if it is unknown or this one.
func (j *Journal) Leader() string { return *j.leader.Load() }

// Add adds a record, which the next call to Append writes, and returns the record's number.
func (j *Journal) Add(at trace.Nanos, kind journal.Kind, packed []byte) uint64 {
	seq := j.Next() + uint64(len(j.added))
	j.added = append(j.added, journal.Packed{Seq: seq, At: at, Kind: kind, Data: packed})
	return seq
}

// Append commits all records added since the last call to the topic, and then adds them to the journal of this replica.
func (j *Journal) Append() error {
	added := j.added
	j.added = nil
	var records []*kgo.Record
	for i := range added {
		records = appendRecord(records, &added[i])
	}
	if err := j.commit(records); err != nil {
		return err
	}
	return j.keep(added)
}

// keep adds records to the journal of this replica.
func (j *Journal) keep(records []journal.Packed) error {
	for i := range records {
		r := &records[i]
		if seq := j.Journal.Add(r.At, r.Kind, r.Data); seq != r.Seq {
			return fmt.Errorf("the journal is at record %d, not %d", seq, r.Seq)
		}
	}
	return j.Journal.Append()
}

// Beat commits a sign of life unless this replica, as the leader, has committed something lately.
func (j *Journal) Beat() error {
	if time.Since(j.appended) < j.options.Patience/beatsPerPatience {
		return nil
	}
	return j.commit([]*kgo.Record{control(leadAlive, j.Next(), j.options.URL)})
}

// commit commits records in one transaction. If it fails, this replica no longer leads.
func (j *Journal) commit(records []*kgo.Record) error {
	if j.producer == nil {
		return journal.ErrNotLeading
	}
	err := j.transact(j.producer, records)
	if err != nil {
		j.resign()
		return fmt.Errorf("%w: %w", journal.ErrNotLeading, err)
	}
	j.appended = time.Now()
	return nil
}

// transact commits records in one transaction of p. After an error, they may or may not be committed, and p must be
// closed.
func (j *Journal) transact(p *kgo.Client, records []*kgo.Record) error {
	ctx, cancel := context.WithTimeout(j.lasting, callTimeout)
	defer cancel()
	if err := p.BeginTransaction(); err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	if err := p.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	if err := p.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	return nil
}

// resign stops leading, without telling the others.
func (j *Journal) resign() {
	if j.producer != nil {
		j.producer.CloseAllowingRebalance()
		j.producer = nil
	}
	j.added = nil
}

// claim makes this replica the leader as soon as it has read the topic up to the returned offset.
func (j *Journal) claim() (offset int64, err error) {
	p, err := kgo.NewClient(append(j.client(),
		kgo.TransactionalID(j.options.Topic),
		kgo.TransactionTimeout(transactionTimeout),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.DefaultProduceTopic(j.options.Topic),
		kgo.ProducerBatchCompression(kgo.NoCompression()), // records are packed
		kgo.ProducerLinger(0),
		kgo.MaxBufferedRecords(1<<20),
	)...)
	if err != nil {
		return 0, fmt.Errorf("kafka: %w", err)
	}
	r := control(leadClaimed, j.Next(), j.options.URL)
	if err := j.transact(p, []*kgo.Record{r}); err != nil {
		p.CloseAllowingRebalance()
		return 0, err
	}
	j.producer, j.appended = p, time.Now()
	return r.Offset, nil
}

// Close tells the other replicas that this one no longer leads, and closes the journal of this replica.
func (j *Journal) Close() error {
	if j.producer != nil {
		if err := j.transact(j.producer, []*kgo.Record{control(leadLeft, j.Next(), j.options.URL)}); err != nil {
			j.options.Log.Warn("the other replicas could not be told that this one stops: one of them will lead "+
				"in some seconds", slog.Any("error", err))
		}
	}
	j.resign()
	return j.Journal.Close()
}

// createTopic creates the topic, unless it exists, and checks it.
func (j *Journal) createTopic(ctx context.Context, c *kgo.Client) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Topics = []kmsg.MetadataRequestTopic{{Topic: new(j.options.Topic)}}
	known, err := metadata.RequestWith(ctx, c)
	if err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	for i := range known.Topics {
		t := &known.Topics[i]
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case err == nil && len(t.Partitions) == 1:
			return nil
		case err == nil:
			return fmt.Errorf("topic %s with %d partitions: %w", j.options.Topic, len(t.Partitions), errPartitions)
		case !errors.Is(err, kerr.UnknownTopicOrPartition):
			return fmt.Errorf("kafka: topic %s: %w", j.options.Topic, err)
		}
	}
	copies := int16(min(replicas, len(known.Brokers)))
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = j.options.Topic, 1, copies
	for name, value := range map[string]string{
		"cleanup.policy":         "delete",
		"retention.ms":           fmt.Sprint(j.options.Retention.Milliseconds()),
		"min.insync.replicas":    fmt.Sprint(min(2, copies)),
		"message.timestamp.type": "CreateTime",
	} {
		x := kmsg.NewCreateTopicsRequestTopicConfig()
		x.Name, x.Value = name, new(value)
		t.Configs = append(t.Configs, x)
	}
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Topics = append(create.Topics, t)
	created, err := create.RequestWith(ctx, c)
	if err != nil {
		return fmt.Errorf("kafka: create topic %s: %w", j.options.Topic, err)
	}
	for i := range created.Topics {
		err := kerr.ErrorForCode(created.Topics[i].ErrorCode)
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return fmt.Errorf("kafka: create topic %s: %w", j.options.Topic, err)
		}
	}
	return nil
}

// errPartitions is returned for a topic that Sibyl can't use.
var errPartitions = errors.New("the topic must have one partition: name another one in cluster.topic, which Sibyl " +
	"then creates")
