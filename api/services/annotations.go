package services

import (
	"context"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/trace"
)

// ListAnnotations implements contract.StrictServerInterface.
func (a *Services) ListAnnotations(
	ctx context.Context, r contract.ListAnnotationsRequestObject,
) (contract.ListAnnotationsResponseObject, error) {
	q := &r.Params
	from, to, err := query.ParseInterval(q.From, q.To)
	if err != nil {
		return nil, err
	}
	var all []contract.Annotation
	order := query.NewNameList()
	err = a.reader.Ask(ctx, func(c *engine.View) {
		for i := range c.Annotations {
			at, x := c.Annotations[i].At, render.Annotation(c.Table, &c.Annotations[i])
			if at < from || to != 0 && at >= to || query.Value(q.Service, x.Service) != x.Service ||
				query.Value(q.Kind, x.Kind) != x.Kind {
				continue
			}
			order.Add(-float64(at), x.ID, int32(len(all)))
			all = append(all, x)
		}
	})
	if err != nil {
		return nil, err
	}
	order.Sort()
	items, next, err := order.Page(query.PageOf(q.Limit, q.Cursor, "annotations"), func(int32) bool { return true })
	list := contract.ListAnnotations200JSONResponse{Items: []contract.Annotation{}, NextCursor: next}
	for _, i := range items {
		list.Items = append(list.Items, all[i])
	}
	return list, err
}

// Limits on the times of reported events.
const (
	mostAge   = 30 * 24 * time.Hour
	mostAhead = 5 * time.Minute // because clocks differ
)

// Annotate implements contract.StrictServerInterface.
func (a *Services) Annotate(
	ctx context.Context, r contract.AnnotateRequestObject,
) (contract.AnnotateResponseObject, error) {
	x, err := a.report(ctx, engine.SourceAPI, r.Body)
	return contract.Annotate200JSONResponse(x), err
}

// report records an event and returns its annotation.
func (a *Services) report(
	ctx context.Context, source engine.AnnotationSource, b *contract.AnnotationRequest,
) (x contract.Annotation, err error) {
	now := a.clock()
	at, end := query.Value(b.Time, now), query.Value(b.End, time.Time{})
	text, service, version := tidy(b.Text), tidy(b.Service), tidy(b.Version)
	switch who := access.Caller(ctx); {
	case text == "" && version == "":
		return x, refusal.New(refusal.Invalid, "text: say what happened, or give the version that was deployed", "")
	case at.After(now.Add(mostAhead)) || at.Before(now.Add(-mostAge)):
		return x, refusal.New(refusal.Invalid, "time: want a time of the last 30 days",
			"report an event when it happens; without a time, it happens now")
	case !end.IsZero() && (end.Before(at) || end.After(at.Add(mostAge))):
		return x, refusal.New(refusal.Invalid, "end: want a time in the 30 days after time", "")
	case !who.SpeaksFor(service):
		return x, refusal.New(refusal.Forbidden, "the token is limited to the services "+who.Services,
			"set service to one of them, or create a token without --service")
	}
	reported := engine.Annotation{
		At:     trace.Nanos(at.UnixNano()),
		Kind:   engine.AnnotationKindNamed(string(b.Kind)),
		Source: source,
		Text:   text,
		Link:   query.Value(b.Link, ""),
		Tags:   query.Value(b.Tags, nil),
	}
	if !end.IsZero() {
		reported.End = trace.Nanos(end.UnixNano())
	}
	report := engine.NewReport(reported, service, version)
	if _, err := a.reader.Change(ctx, engine.Change{Report: report}); err != nil {
		return x, err
	}
	err = a.reader.Ask(ctx, func(c *engine.View) { x = render.Annotation(c.Table, c.Reported(report)) })
	return x, err
}

// tidy returns the text of an optional field as one printable line, or "" if the field is missing.
func tidy(text *string) string {
	return strings.TrimSpace(trace.Clean(query.Value(text, "")))
}
