package api

import (
	"context"
	"errors"
	"log/slog"
	"strconv"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/store"
)

// lettersOrder is the only order of dead letters, for cursors.
const lettersOrder = "number"

// ListDeadLetters implements contract.StrictServerInterface.
func (a *API) ListDeadLetters(_ context.Context, r contract.ListDeadLettersRequestObject) (contract.ListDeadLettersResponseObject, error) {
	p := pageOf(r.Params.Limit, r.Params.Cursor, lettersOrder)
	after := uint64(0)
	if p.cursor != nil && *p.cursor != "" {
		c, err := parseCursor(*p.cursor, p.sort)
		if err != nil {
			return nil, err
		}
		if after, err = strconv.ParseUint(c.ID, 10, 64); err != nil {
			return nil, errCursor
		}
	}
	letters := a.options.Letters.List(true, after, p.limit+1)
	list := contract.ListDeadLetters200JSONResponse{Items: []contract.DeadLetter{}}
	if len(letters) > p.limit {
		letters = letters[:p.limit]
		list.NextCursor = new(cursor{Sort: p.sort, ID: decimal(letters[p.limit-1].Number)}.String())
	}
	for i := range letters {
		list.Items = append(list.Items, letter(&letters[i]))
	}
	return list, nil
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

func letter(m *store.Message) contract.DeadLetter {
	return contract.DeadLetter{
		Number: decimal(m.Number), Event: m.ID, Type: m.Event, Endpoint: m.Endpoint, Format: m.Format, Problem: problemID(m.Problem),
		At: at(m.At), Put: at(m.Put), Attempts: m.Attempts, Error: m.Error, Bytes: m.Size,
	}
}

// ListWebhooks implements contract.StrictServerInterface.
func (a *API) ListWebhooks(context.Context, contract.ListWebhooksRequestObject) (contract.ListWebhooksResponseObject, error) {
	all := a.options.Webhooks()
	list := contract.ListWebhooks200JSONResponse{Items: make([]contract.Webhook, len(all))}
	for i := range all {
		w := &all[i]
		events := make([]string, len(w.Events))
		for k, t := range w.Events {
			events[k] = string(t)
		}
		list.Items[i] = contract.Webhook{
			Name: w.Name, Origin: w.Origin, Format: w.Format, Events: events, Signed: w.Signed, Disabled: w.Count.Disabled,
			Delivered: int64(w.Count.Delivered), Failed: int64(w.Count.Failed), LastDelivered: instant(w.Count.Last), LastError: w.Count.LastError,
			Waiting: w.Waiting, Dead: w.Dead,
		}
	}
	return list, nil
}

// letterNumber reads what the contract has checked the form of.
func letterNumber(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, notFound("dead letter")
	}
	return n, nil
}

// lost makes of the outbox's error that there is no such message what callers are told.
func lost(err error) error {
	if errors.Is(err, store.ErrNoMessage) {
		return notFound("dead letter")
	}
	return err
}

// GetDeadLetter implements contract.StrictServerInterface.
func (a *API) GetDeadLetter(_ context.Context, r contract.GetDeadLetterRequestObject) (contract.GetDeadLetterResponseObject, error) {
	n, err := letterNumber(r.Letter)
	if err != nil {
		return nil, err
	}
	m, err := a.options.Letters.Dead(n)
	if err != nil {
		return nil, lost(err)
	}
	return contract.GetDeadLetter200JSONResponse{Letter: letter(&m), Body: string(m.Body)}, nil
}

// ResendDeadLetter implements contract.StrictServerInterface.
func (a *API) ResendDeadLetter(ctx context.Context, r contract.ResendDeadLetterRequestObject) (contract.ResendDeadLetterResponseObject, error) {
	m, err := a.onLetter(r.Letter, a.options.Resend)
	if err != nil {
		return nil, err
	}
	a.options.Log.LogAttrs(ctx, slog.LevelInfo, "somebody had a dead letter sent again", slog.String("endpoint", m.Endpoint),
		slog.String("event", m.ID), slog.String("by", caller(ctx).name))
	return contract.ResendDeadLetter204Response{}, nil
}

// DropDeadLetter implements contract.StrictServerInterface.
func (a *API) DropDeadLetter(ctx context.Context, r contract.DropDeadLetterRequestObject) (contract.DropDeadLetterResponseObject, error) {
	m, err := a.onLetter(r.Letter, a.options.Letters.Drop)
	if err != nil {
		return nil, err
	}
	a.options.Log.LogAttrs(ctx, slog.LevelInfo, "somebody dropped a dead letter", slog.String("endpoint", m.Endpoint),
		slog.String("event", m.ID), slog.String("by", caller(ctx).name))
	return contract.DropDeadLetter204Response{}, nil
}

// onLetter does something to a dead letter, and returns what that was.
func (a *API) onLetter(text string, do func(uint64) error) (*store.Message, error) {
	n, err := letterNumber(text)
	if err != nil {
		return nil, err
	}
	m, err := a.options.Letters.Dead(n)
	if err == nil {
		err = do(n)
	}
	return &m, lost(err)
}
