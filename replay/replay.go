// Package replay sends recorded traces to an OTLP endpoint as if they happened now.
//
// It reads the whole recording first, because files need not be in time order. Then it shifts each trace as a whole, so
// that durations and gaps between its spans stay the same. The first trace starts now, and the times between the starts
// of traces are divided by the speed. Each trace is sent at the time when it ends at that speed, in one piece unless it
// is large.
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

// Options configures a replay.
type Options struct {
	Files  []string
	Input  file.Options  // Keys and Workers are ignored
	Speed  float64       // above 0; 1 is the recorded speed
	Past   time.Duration // length of the part of the recording that is sent at once, with times before now
	Loop   bool          // repeat with new IDs until the context is done
	NewIDs bool          // use new IDs in the first round, too, so that a recording can be replayed again soon

	// Started is called at the start of each round with the number of traces and the length of the round. Sent is
	// called with the number of traces sent in this round. One goroutine makes the calls. Both may be nil.
	Started func(traces int64, length time.Duration)
	Sent    func(traces int64)
}

// Summary counts the traces, spans and requests that a replay has sent.
type Summary struct {
	Traces   int64 `json:"traces"`
	Spans    int64 `json:"spans"`    // accepted by the endpoint
	Rejected int64 `json:"rejected"` // spans rejected by the endpoint
	// Duplicates counts the accepted spans that Sibyl ignored because they had arrived before. It is nil if unknown.
	// Replay does not set Duplicates, because OTLP does not report duplicates.
	Duplicates *int64       `json:"duplicates,omitempty"`
	Why        string       `json:"why,omitempty"`
	Requests   int64        `json:"requests"`
	Retries    int64        `json:"retries"`
	Input      file.Summary `json:"-"`
}

// sender sends requests to an endpoint.
type sender interface {
	// send sends traces as one request. It returns a *retryError if the request may be sent again.
	send(ctx context.Context, traces ptrace.Traces) (answer, error)
}

// answer holds the number of rejected spans of a request and the endpoint's message about them.
type answer struct {
	rejected int64
	why      string
}

// Replay sends the recording in options to the endpoint `to`. It returns an error if the input cannot be read, if the
// endpoint refuses a request or cannot be reached for a minute, or if ctx is done. In these cases, the summary counts
// the data sent until then.
func Replay(ctx context.Context, to *Endpoint, options Options) (s Summary, err error) {
	t, err := newRecording(options.Input.TempDir)
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
	p := &player{recording: t, to: connection, options: options, summary: &s}
	return s, p.play(ctx)
}

// player sends the traces of a recording.
type player struct {
	recording *recording
	to        sender
	options   Options
	summary   *Summary

	pending  ptrace.Traces // spans of the next request
	bytes    int64
	complete int64 // traces whose last span is in pending
	sent     int64 // traces sent in this round
}

func (p *player) play(ctx context.Context) error {
	order, first, err := p.recording.finish()
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

// round sends the traces in order once, with IDs changed by m. first is the start of the recording in nanoseconds since
// the epoch.
func (p *player) round(ctx context.Context, order []*recorded, first uint64, m mask) error {
	p.pending, p.bytes, p.complete, p.sent = ptrace.NewTraces(), 0, 0, 0
	past := p.after(uint64(p.options.Past))
	began := time.Now().Add(-past) // start of the recording, as the endpoint sees it
	if p.options.Started != nil {
		p.options.Started(int64(len(order)), max(0, p.after(order[len(order)-1].end-first)-past))
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
			traces, err := p.recording.read(x)
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
		p.complete++
	}
	return p.flush(ctx)
}

// maxRequest is the size in bytes at which a request is sent. Receivers usually accept 4 MiB.
const maxRequest = 1 << 20

// after returns the time that ns nanoseconds of the recording take at the replay's speed.
func (p *player) after(ns uint64) time.Duration {
	return time.Duration(min(float64(ns)/p.options.Speed, math.MaxInt64/2))
}

// flush sends the pending request, if there is one, and counts it.
func (p *player) flush(ctx context.Context) error {
	if p.bytes == 0 {
		return nil
	}
	n := int64(p.pending.SpanCount())
	a, err := p.sendWithRetry(ctx)
	if err != nil {
		return err
	}
	p.summary.Requests++
	p.summary.Spans += n - a.rejected
	if p.summary.Rejected += a.rejected; p.summary.Why == "" {
		p.summary.Why = a.why
	}
	p.summary.Traces += p.complete
	p.sent += p.complete
	p.pending, p.bytes, p.complete = ptrace.NewTraces(), 0, 0
	if p.options.Sent != nil {
		p.options.Sent(p.sent)
	}
	return nil
}

// Times for retries.
const (
	firstPause = 250 * time.Millisecond // doubled each time
	maxPause   = 10 * time.Second
	giveUp     = time.Minute // without success
)

// sendWithRetry sends the pending request. It retries for up to giveUp while send returns a *retryError. It doesn't
// retry the first request if nothing listens at the address, or not with this protocol.
func (p *player) sendWithRetry(ctx context.Context) (answer, error) {
	began := time.Now()
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		a, err := p.to.send(ctx, p.pending)
		later, ok := errors.AsType[*retryError](err)
		if !ok {
			return a, err
		}
		if p.summary.Requests == 0 && later.wrong {
			return a, later.err
		}
		if time.Since(began) > giveUp {
			return a, fmt.Errorf("no request was accepted for a minute: %w", later.err)
		}
		p.summary.Retries++
		if err := sleep(ctx, max(pause, later.after)); err != nil {
			return a, err
		}
	}
}

// retryError is the error for a request that may be sent again.
type retryError struct {
	err   error
	after time.Duration // requested by the endpoint; 0 if not specified
	wrong bool          // nothing listens at the address, or not with this protocol
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

// sleep waits for d. If ctx is done first, sleep returns the cause.
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

// mask is XORed with trace IDs to change them. The zero mask doesn't change them.
type mask pcommon.TraceID

// newMask returns a mask that is unique to seed and round.
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

// move shifts all times of traces by shift nanoseconds and applies m to the trace IDs.
func move(traces ptrace.Traces, shift int64, m mask) {
	for s := range Spans(traces) {
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

// shifted returns t plus `by` nanoseconds. It returns unknown and impossible times unchanged.
func shifted(t pcommon.Timestamp, by int64) pcommon.Timestamp {
	if t == 0 || t > math.MaxInt64 {
		return t
	}
	return pcommon.Timestamp(max(0, int64(t)+by))
}

// Spans yields all spans of traces.
func Spans(traces ptrace.Traces) iter.Seq[ptrace.Span] {
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
