package notify

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/sibyl-trace/sibyl/store"
)

// worker delivers the messages of one endpoint. Its goroutine starts another one for each call.
type worker struct {
	notifier *Notifier
	caller   *caller
	woken    chan struct{} // signals that there may be a new message; holds one
	finished chan struct{} // signals the end of a call; holds all calls
	stopped  chan struct{} // closed to stop starting calls
	busy     int           // calls in progress
}

// run delivers messages until ctx is done or the worker is stopped. It returns when all calls have ended.
func (w *worker) run(ctx context.Context) {
	defer w.caller.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-w.woken:
		case <-timer.C:
		case <-w.finished:
			w.busy--
		case <-w.stopped:
			w.wait()
			return
		case <-ctx.Done():
			w.wait()
			return
		}
		if again := w.begin(ctx); again > 0 {
			timer.Reset(again)
		}
	}
}

// wait waits for the calls in progress.
func (w *worker) wait() {
	for ; w.busy > 0; w.busy-- {
		<-w.finished
	}
}

// begin starts calls for due messages. It returns the delay after which it must be called again, or 0 if there is
// nothing to do before the next signal.
func (w *worker) begin(ctx context.Context) time.Duration {
	name := w.caller.endpoint.Name
	if w.notifier.disabled(name) || w.busy >= callsAtOnce {
		return 0
	}
	now := w.notifier.now()
	due, again, err := w.notifier.options.Outbox.Take(name, now, callsAtOnce-w.busy)
	for i := range due {
		w.busy++
		go func() {
			w.deliver(ctx, &due[i])
			w.finished <- struct{}{}
		}()
	}
	switch {
	case err != nil:
		w.notifier.options.Log.ErrorContext(ctx, "webhooks: the outbox cannot be read", slog.String("endpoint", name),
			slog.Any("error", err))
		return outboxDelay
	case again == 0:
		return 0
	}
	return max(again.Sub(now), time.Millisecond)
}

// deliver makes one attempt to deliver m and records the result. If ctx ends during the attempt, the attempt doesn't
// count.
func (w *worker) deliver(ctx context.Context, m *store.Message) {
	if m.Format != w.caller.endpoint.Format {
		w.giveUp(m, "the format of the webhook has changed")
		return
	}
	answer, err := w.caller.call(ctx, m)
	if ctx.Err() != nil && err != nil {
		w.notifier.options.Outbox.Release(m) // the shutdown interrupted the call
		return
	}
	if err == nil {
		err = answer.Err()
	}
	if err == nil {
		problem := ""
		if answer.Partly {
			problem = "refused recipients: " + answer.Text
			w.notifier.options.Log.WarnContext(ctx, "webhooks: a mail server refused some recipients",
				slog.String("endpoint", m.Endpoint), slog.String("refused", answer.Text))
		}
		w.notifier.count(m.Endpoint, func(c *Count) { c.Delivered++; c.Last, c.LastError = w.notifier.now(), problem })
		w.logError(w.notifier.options.Outbox.Done(m))
		if delivered := w.notifier.options.Delivered; delivered != nil {
			delivered(ctx, m.ID, m.Endpoint)
		}
		return
	}
	w.failed(ctx, m, answer, err)
}

// failed records that an attempt failed with err. It schedules the next attempt, or gives up m if the next attempt
// would be later than giveUpAfter. answer may be nil.
func (w *worker) failed(ctx context.Context, m *store.Message, answer *Answer, err error) {
	gone := answer != nil && answer.Status == http.StatusGone
	level := slog.LevelDebug
	w.notifier.count(m.Endpoint, func(c *Count) {
		if c.LastError == "" { // later failures until a success are usually the same
			level = slog.LevelWarn
		}
		c.Failed++
		c.LastError, c.Disabled = err.Error(), c.Disabled || gone
	})
	log := w.notifier.options.Log.With(slog.String("endpoint", m.Endpoint), slog.String("event", m.ID),
		slog.Any("error", err))
	if gone {
		log.WarnContext(ctx, "webhooks: the endpoint is gone; it is not called until a restart or reload")
	}
	now, deadline := w.notifier.now(), m.Put.Add(giveUpAfter)
	next := min(now.Add(delay(m.Attempts+1)), deadline)
	if answer != nil &&
		(answer.Status == http.StatusTooManyRequests || answer.Status == http.StatusServiceUnavailable) {
		next = max(next, now.Add(answer.After))
	}
	if now < deadline && next <= deadline {
		log.Log(ctx, level, "webhooks: a call failed and will be repeated", slog.Duration("wait", next.Sub(now)))
		w.logError(w.notifier.options.Outbox.Retry(m, next, err.Error()))
		return
	}
	log.WarnContext(ctx, "webhooks: a message was given up; it can be sent again")
	w.giveUp(m, err.Error())
}

// giveUp makes m a dead letter, with why as its error.
func (w *worker) giveUp(m *store.Message, why string) {
	w.notifier.count(m.Endpoint, func(c *Count) { c.Dead++ })
	w.logError(w.notifier.options.Outbox.MoveToDeadLetters(m, why))
}

// logError logs err, unless it is nil, as an error from writing the outbox. The message is then sent again after the
// next start.
func (w *worker) logError(err error) {
	if err != nil {
		w.notifier.options.Log.Error("webhooks: the outbox cannot be written", slog.Any("error", err))
	}
}
