package operating

import (
	"context"
	"errors"
	"log/slog"
	"strconv"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/store"
)

// deadLettersOrder names the only order of dead letters in cursors.
const deadLettersOrder = "number"

// ListDeadLetters implements contract.StrictServerInterface.
func (a *Operating) ListDeadLetters(
	_ context.Context, r contract.ListDeadLettersRequestObject,
) (contract.ListDeadLettersResponseObject, error) {
	p := query.PageOf(r.Params.Limit, r.Params.Cursor, deadLettersOrder)
	after := uint64(0)
	if p.Cursor != nil && *p.Cursor != "" {
		c, err := query.ParseCursor(*p.Cursor, p.Sort)
		if err != nil {
			return nil, err
		}
		if after, err = strconv.ParseUint(c.ID, 10, 64); err != nil {
			return nil, query.ErrCursor
		}
	}
	messages := a.options.DeadLetters.List(true, after, p.Limit+1)
	list := contract.ListDeadLetters200JSONResponse{Items: []contract.DeadLetter{}}
	if len(messages) > p.Limit {
		messages = messages[:p.Limit]
		list.NextCursor = new(query.Cursor{Sort: p.Sort, ID: decimal(messages[p.Limit-1].Number)}.String())
	}
	for i := range messages {
		list.Items = append(list.Items, deadLetter(&messages[i]))
	}
	return list, nil
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

func deadLetter(m *store.Message) contract.DeadLetter {
	x := contract.DeadLetter{
		Number: decimal(m.Number), Event: m.ID, Type: m.Event, Endpoint: m.Endpoint, Format: m.Format,
		At: render.At(m.At), Put: render.At(m.Put), Attempts: m.Attempts, Error: m.Error, Bytes: m.Size,
	}
	x.Problem, x.Incident = render.Subject(m.Subject)
	return x
}

// ListWebhooks implements contract.StrictServerInterface.
func (a *Operating) ListWebhooks(
	context.Context, contract.ListWebhooksRequestObject,
) (contract.ListWebhooksResponseObject, error) {
	all := a.options.Webhooks()
	list := contract.ListWebhooks200JSONResponse{Items: make([]contract.Webhook, len(all))}
	for i := range all {
		w := &all[i]
		events := make([]string, len(w.Events))
		for k, t := range w.Events {
			events[k] = string(t)
		}
		list.Items[i] = contract.Webhook{
			Name:          w.Name,
			Origin:        w.Origin,
			Format:        w.Format,
			Events:        events,
			Signed:        w.Signed,
			Disabled:      w.Count.Disabled,
			Delivered:     int64(w.Count.Delivered),
			Failed:        int64(w.Count.Failed),
			LastDelivered: render.Instant(w.Count.Last),
			LastError:     w.Count.LastError,
			Waiting:       w.Waiting,
			Dead:          w.Dead,
		}
	}
	return list, nil
}

// deadLetterNumber parses the number of a dead letter, whose form has been checked against the contract. It returns a
// refusal if the number doesn't fit into 64 bits, because there can be no such dead letter.
func deadLetterNumber(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, query.NotFound("dead letter")
	}
	return n, nil
}

// outboxError replaces [store.ErrNoMessage] with a refusal.
func outboxError(err error) error {
	if errors.Is(err, store.ErrNoMessage) {
		return query.NotFound("dead letter")
	}
	return err
}

// GetDeadLetter implements contract.StrictServerInterface.
func (a *Operating) GetDeadLetter(
	_ context.Context, r contract.GetDeadLetterRequestObject,
) (contract.GetDeadLetterResponseObject, error) {
	n, err := deadLetterNumber(r.Letter)
	if err != nil {
		return nil, err
	}
	m, err := a.options.DeadLetters.Dead(n)
	if err != nil {
		return nil, outboxError(err)
	}
	return contract.GetDeadLetter200JSONResponse{Letter: deadLetter(&m), Body: string(m.Body)}, nil
}

// ResendDeadLetter implements contract.StrictServerInterface.
func (a *Operating) ResendDeadLetter(
	ctx context.Context, r contract.ResendDeadLetterRequestObject,
) (contract.ResendDeadLetterResponseObject, error) {
	m, err := a.withDeadLetter(r.Letter, a.options.Resend)
	if err != nil {
		return nil, err
	}
	a.options.Log.LogAttrs(ctx, slog.LevelInfo, "dead letter resent", slog.String("endpoint", m.Endpoint),
		slog.String("event", m.ID), slog.String("by", access.Caller(ctx).Name))
	return contract.ResendDeadLetter204Response{}, nil
}

// DropDeadLetter implements contract.StrictServerInterface.
func (a *Operating) DropDeadLetter(
	ctx context.Context, r contract.DropDeadLetterRequestObject,
) (contract.DropDeadLetterResponseObject, error) {
	m, err := a.withDeadLetter(r.Letter, a.options.DeadLetters.Drop)
	if err != nil {
		return nil, err
	}
	a.options.Log.LogAttrs(ctx, slog.LevelInfo, "dead letter dropped", slog.String("endpoint", m.Endpoint),
		slog.String("event", m.ID), slog.String("by", access.Caller(ctx).Name))
	return contract.DropDeadLetter204Response{}, nil
}

// withDeadLetter calls do with the number in text, and returns the dead letter as it was before the call. It returns a
// refusal if there is no such dead letter.
func (a *Operating) withDeadLetter(text string, do func(uint64) error) (*store.Message, error) {
	n, err := deadLetterNumber(text)
	if err != nil {
		return nil, err
	}
	m, err := a.options.DeadLetters.Dead(n)
	if err == nil {
		err = do(n)
	}
	return &m, outboxError(err)
}
