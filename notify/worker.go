package notify

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/sibyl-trace/sibyl/store"
)

// worker delivers the messages of one endpoint. Its own goroutine decides what is called next; every call has one more.
type worker struct {
	*Notifier
	caller   *caller
	woken    chan struct{} // there may be something new; holds one
	finished chan struct{} // a call ended; holds all of them
	stopped  chan struct{} // no call is to be begun any more
	busy     int           // calls under way
}

// run delivers messages until ctx is done or the worker is stopped. It returns when no call is under way.
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

// wait waits for the calls under way.
func (w *worker) wait() {
	for ; w.busy > 0; w.busy-- {
		<-w.finished
	}
}

// begin calls with what is due, and returns when to look again; 0: when something happens.
func (w *worker) begin(ctx context.Context) time.Duration {
	name := w.caller.endpoint.Name
	if w.disabled(name) || w.busy >= callsAtOnce {
		return 0
	}
	now := w.now()
	due, again, err := w.options.Outbox.Take(name, now, callsAtOnce-w.busy)
	for i := range due {
		w.busy++
		go func() {
			w.deliver(ctx, &due[i])
			w.finished <- struct{}{}
		}()
	}
	switch {
	case err != nil:
		w.options.Log.ErrorContext(ctx, "webhooks: the outbox cannot be read", slog.String("endpoint", name), slog.Any("error", err))
		return afterTrouble
	case again == 0:
		return 0
	}
	return max(again.Sub(now), time.Millisecond)
}

// deliver calls once, and says what became of the message.
func (w *worker) deliver(ctx context.Context, m *store.Message) {
	if m.Format != w.caller.endpoint.Format {
		w.bury(m, "the webhook has another format now")
		return
	}
	answer, err := w.caller.call(ctx, m.ID, m.Body)
	if ctx.Err() != nil && err != nil {
		w.options.Outbox.Release(m) // it was not the endpoint's fault
		return
	}
	if err == nil {
		err = answer.err()
	}
	if err == nil {
		w.count(m.Endpoint, func(c *Count) { c.Delivered++; c.Last, c.LastError = w.now(), "" })
		w.note(w.options.Outbox.Done(m))
		return
	}
	w.failed(m, answer, err)
}

// failed says when a message is tried again, if it is.
func (w *worker) failed(m *store.Message, answer *Answer, err error) {
	gone := answer != nil && answer.Status == http.StatusGone
	w.count(m.Endpoint, func(c *Count) { c.Failed++; c.LastError = err.Error(); c.Disabled = c.Disabled || gone })
	log := w.options.Log.With(slog.String("endpoint", m.Endpoint), slog.String("event", m.ID), slog.Any("error", err))
	if gone {
		log.Warn("webhooks: the endpoint is gone; it is not called until a restart or reload")
	}
	now, deadline := w.now(), m.Put.Add(giveUpAfter)
	next := min(now.Add(delay(m.Attempts+1)), deadline)
	if answer != nil && (answer.Status == http.StatusTooManyRequests || answer.Status == http.StatusServiceUnavailable) {
		next = max(next, now.Add(answer.After))
	}
	if now < deadline && next <= deadline {
		log.Debug("webhooks: a call failed and will be repeated", slog.Duration("wait", next.Sub(now)))
		w.note(w.options.Outbox.Retry(m, next, err.Error()))
		return
	}
	log.Warn("webhooks: a message was given up; it can be sent again")
	w.bury(m, err.Error())
}

func (w *worker) bury(m *store.Message, why string) {
	w.count(m.Endpoint, func(c *Count) { c.Dead++ })
	w.note(w.options.Outbox.Bury(m, why))
}

// note logs that the outbox could not be written. The message is told again after the next start.
func (w *worker) note(err error) {
	if err != nil {
		w.options.Log.Error("webhooks: the outbox cannot be written", slog.Any("error", err))
	}
}
