package live

import (
	"context"
	"iter"

	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/trace"
)

// Journal stores the records from which the state follows. [journal.Journal] implements it for a process that has its
// journal to itself. Several processes can share a journal; only one of them leads at a time, and only that one
// appends.
type Journal interface {
	Add(at trace.Nanos, kind journal.Kind, packed []byte) uint64
	// Append makes the added records durable. An error that wraps [journal.ErrNotLeading] means that another process
	// may lead by now, and that the records may or may not be durable.
	Append() error
	// Follow passes the records of the leading process to replay, in order, and returns nil once this process leads. It
	// returns the cause if ctx ends first.
	Follow(ctx context.Context, replay func(journal.Record) error) error
	// Beat tells the other processes that this one still leads. It must be called about once a second while nothing is
	// appended. For errors, see Append.
	Beat() error
	// Leader returns the URL of the leading process while this process follows it, or "" if it is unknown or this
	// process leads.
	Leader() string

	Next() uint64
	First() uint64
	Continue(last uint64)
	Get(seq uint64, buf []byte) (journal.Record, error)
	Read(from uint64) iter.Seq2[journal.Record, error]
	Since(at trace.Nanos, from uint64) (uint64, error)
	Trim(ctx context.Context, before uint64) error
	Stats() journal.Stats
	Close() error
}
