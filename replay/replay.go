// Package replay sends recorded traces to an OTLP endpoint as if they happened now.
//
// The whole recording is read first, because files need not be in the order of time. Then each trace is shifted as a whole: durations and
// what lies between its spans stay, so that it means the same; the first trace begins now, and times between the beginnings of traces are
// divided by the speed. A trace is sent when, at that speed, it has ended; in one piece, but for large ones.
package replay

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/ingest/file"
)

// Options say what is replayed, and how.
type Options struct {
	Files  []string
	Input  file.Options // Keys and Workers mean nothing
	Speed  float64      // above 0; 1: as it was
	Loop   bool         // begin anew at the end, with other IDs, until the context is done
	NewIDs bool         // other IDs from the beginning, so that a recording can be replayed again soon

	// Started is called when a round begins, with how many traces it has and how long it takes; Sent with how many of them were sent. One
	// goroutine calls them. Nil: nobody is told.
	Started func(traces int64, length time.Duration)
	Sent    func(traces int64)
}

// Summary says what was sent.
type Summary struct {
	Traces   int64        `json:"traces"`
	Spans    int64        `json:"spans"`    // that the endpoint took
	Rejected int64        `json:"rejected"` // spans that it did not take
	Why      string       `json:"why,omitempty"`
	Requests int64        `json:"requests"`
	Retries  int64        `json:"retries"`
	Input    file.Summary `json:"-"`
}

// sender sends requests.
type sender interface {
	// send sends one request and returns what became of it. An error is not worth another try, unless it is a *again.
	send(ctx context.Context, traces ptrace.Traces) (answer, error)
}

// answer says how many spans of a request were rejected, and why.
type answer struct {
	rejected int64
	why      string
}

// Replay sends what options name to an endpoint. It returns an error if the input cannot be read, if the endpoint refuses all, or cannot be
// reached for a minute, and if ctx is done; the summary holds what was sent until then.
func Replay(ctx context.Context, to *Endpoint, options Options) (s Summary, err error) {
	t, err := newTape(options.Input.TempDir)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	if s.Input, err = file.ReadOTLP(ctx, options.Files, options.Input, t.add); err != nil {
		return s, err
	}
	connection, err := to.connect()
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, connection.close()) }()
	p := &player{tape: t, to: connection, options: options, summary: &s}
	return s, p.play(ctx)
}

// player sends what is on a tape.
type player struct {
	tape    *tape
	to      sender
	options Options
	summary *Summary

	pending ptrace.Traces // the request that is being filled
	bytes   int64
	whole   int64 // traces that are complete with it
	sent    int64 // traces, in this round
}

func (p *player) play(ctx context.Context) error {
	order, first, err := p.tape.rewind()
	if err != nil || len(order) == 0 {
		return err
	}
	seed := rand.Text()
	for round := 0; ; round++ {
		var m mask
		if round > 0 || p.options.NewIDs {
			m = newMask(seed, round)
		}
		if err := p.round(ctx, order, first, m); err != nil || !p.options.Loop {
			return err
		}
	}
}

// round sends all of order once.
func (p *player) round(ctx context.Context, order []*recorded, first uint64, m mask) error {
	p.pending, p.bytes, p.whole, p.sent = ptrace.NewTraces(), 0, 0, 0
	began := time.Now()
	if p.options.Started != nil {
		p.options.Started(int64(len(order)), p.after(order[len(order)-1].end-first))
	}
	for _, r := range order {
		if due := began.Add(p.after(r.end - first)); time.Until(due) > 0 {
			if err := p.flush(ctx); err != nil {
				return err
			}
			if err := sleep(ctx, time.Until(due)); err != nil {
				return err
			}
		}
		shift := began.UnixNano() + p.after(r.start-first).Nanoseconds() - int64(r.start)
		for _, x := range r.pieces {
			traces, err := p.tape.read(x)
			if err != nil {
				return err
			}
			move(traces, shift, m)
			if p.bytes > 0 && p.bytes+int64(x.size) > maxRequest {
				if err := p.flush(ctx); err != nil {
					return err
				}
			}
			traces.ResourceSpans().MoveAndAppendTo(p.pending.ResourceSpans())
			p.bytes += int64(x.size)
		}
		p.whole++
	}
	return p.flush(ctx)
}

// maxRequest bounds the bytes of requests: receivers usually take 4 MiB.
const maxRequest = 1 << 20

// after returns how long after the beginning something is due that came so many nanoseconds after it.
func (p *player) after(ns uint64) time.Duration {
	return time.Duration(min(float64(ns)/p.options.Speed, math.MaxInt64/2))
}

// flush sends what is pending.
func (p *player) flush(ctx context.Context) error {
	if p.bytes == 0 {
		return nil
	}
	n := int64(p.pending.SpanCount())
	a, err := p.insist(ctx)
	if err != nil {
		return err
	}
	p.summary.Requests++
	p.summary.Spans += n - a.rejected
	if p.summary.Rejected += a.rejected; p.summary.Why == "" {
		p.summary.Why = a.why
	}
	p.summary.Traces += p.whole
	p.sent += p.whole
	p.pending, p.bytes, p.whole = ptrace.NewTraces(), 0, 0
	if p.options.Sent != nil {
		p.options.Sent(p.sent)
	}
	return nil
}

// Bounds of trying again.
const (
	firstPause = 250 * time.Millisecond // doubled each time
	mostPause  = 10 * time.Second
	giveUp     = time.Minute // without an answer other than to try again
)

// insist sends what is pending until it is answered.
func (p *player) insist(ctx context.Context) (answer, error) {
	began := time.Now()
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		a, err := p.to.send(ctx, p.pending)
		later, ok := errors.AsType[*again](err)
		if !ok {
			return a, err
		}
		if time.Since(began) > giveUp {
			return a, fmt.Errorf("for a minute nothing was taken: %w", later.err)
		}
		p.summary.Retries++
		if err := sleep(ctx, max(pause, later.after)); err != nil {
			return a, err
		}
	}
}

// again says that a request was not taken for now.
type again struct {
	err   error
	after time.Duration // as the endpoint asks for; 0: it does not say
}

func (a *again) Error() string { return a.err.Error() }
func (a *again) Unwrap() error { return a.err }

// sleep waits, unless ctx is done.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// mask changes the IDs of traces. The zero mask leaves them as they are.
type mask pcommon.TraceID

// newMask returns a mask for a round that no other has.
func newMask(seed string, round int) (m mask) {
	for i := range m {
		m[i] = byte(xxhash.Sum64String(fmt.Sprint(seed, round, i)))
	}
	return m
}

func (m mask) change(id pcommon.TraceID) pcommon.TraceID {
	if id.IsEmpty() {
		return id
	}
	for i := range id {
		id[i] ^= m[i]
	}
	return id
}

// move shifts all times of traces by some nanoseconds, and changes the IDs.
func move(traces ptrace.Traces, shift int64, m mask) {
	for s := range spans(traces) {
		s.SetStartTimestamp(shifted(s.StartTimestamp(), shift))
		s.SetEndTimestamp(shifted(s.EndTimestamp(), shift))
		s.SetTraceID(m.change(s.TraceID()))
		for _, e := range s.Events().All() {
			e.SetTimestamp(shifted(e.Timestamp(), shift))
		}
		for _, l := range s.Links().All() {
			l.SetTraceID(m.change(l.TraceID()))
		}
	}
}

// shifted leaves times that are not known, and impossible ones, as they are.
func shifted(t pcommon.Timestamp, by int64) pcommon.Timestamp {
	if t == 0 || t > math.MaxInt64 {
		return t
	}
	return pcommon.Timestamp(max(0, int64(t)+by))
}

// spans yields all spans of traces.
func spans(traces ptrace.Traces) iter.Seq[ptrace.Span] {
	return func(yield func(ptrace.Span) bool) {
		for _, rs := range traces.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					if !yield(s) {
						return
					}
				}
			}
		}
	}
}
