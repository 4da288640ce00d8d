package client

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/internal/terminal"
)

// Annotations returns up to `most` annotations that match q, latest first. If `most` is 0, it returns all.
func (c *Client) Annotations(
	ctx context.Context, q contract.ListAnnotationsParams, most int,
) (*contract.AnnotationList, error) {
	return getPages(ctx, c, q, most, func(l *contract.AnnotationList) (*[]contract.Annotation, *string) {
		return &l.Items, l.NextCursor
	}, "annotations")
}

// Annotate reports an event.
func (c *Client) Annotate(ctx context.Context, r contract.AnnotationRequest) error {
	return c.tell(ctx, http.MethodPost, r, "annotations")
}

// ShowAnnotations writes annotations, latest first.
func ShowAnnotations(w io.Writer, l *contract.AnnotationList, style terminal.Style, now time.Time) error {
	p := &page{style: style, now: now}
	if len(l.Items) == 0 {
		p.printf("%s", p.hint("No annotations. Sibyl detects deploys by service.version of the spans; "+
			"report others with sibyl annotate.", 0))
	}
	for i := range l.Items {
		p.annotation("", &l.Items[i])
	}
	return p.flush(w)
}

// annotations writes the section with deploys and other events. It writes nothing if `all` is empty.
func (p *page) annotations(all []contract.Annotation) {
	if len(all) == 0 {
		return
	}
	p.printf("\n%s\n", p.bold("Annotations"))
	for i := range all {
		p.annotation("  ", &all[i])
	}
}

func (p *page) annotation(indent string, x *contract.Annotation) {
	p.printf("%s%s  %-6s  %s\n", indent, x.At.Local().Format(time.DateTime), x.Kind, clean(x.Title))
}
