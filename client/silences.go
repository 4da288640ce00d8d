package client

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// Silences returns all silences.
func (c *Client) Silences(ctx context.Context) (*contract.SilenceList, error) {
	return Get[contract.SilenceList](ctx, c, nil, "silences")
}

// AddSilence adds a silence.
func (c *Client) AddSilence(ctx context.Context, r *contract.SilenceRequest) (*contract.Silence, error) {
	return send[contract.Silence](ctx, c, http.MethodPost, r, "silences")
}

// PreviewSilence returns the incidents that a silence would match.
func (c *Client) PreviewSilence(ctx context.Context, m *contract.SilenceMatch) (*contract.SilencePreview, error) {
	return send[contract.SilencePreview](ctx, c, http.MethodPost, m, "silences", "preview")
}

// EndSilence ends the silence with the given ID now.
func (c *Client) EndSilence(ctx context.Context, id string) error {
	return c.tell(ctx, http.MethodDelete, nil, "silences", id)
}

// ShowSilences writes a list of silences, each with its ID, state, conditions and author.
func ShowSilences(w io.Writer, list *contract.SilenceList, style terminal.Style, now time.Time) error {
	p := &page{style: style, now: now}
	if len(list.Items) == 0 {
		p.printf("There are no silences: sibyl silence create adds one.\n")
	}
	for i := range list.Items {
		p.silence(&list.Items[i])
	}
	return p.flush(w)
}

// ShowSilence writes a silence.
func ShowSilence(w io.Writer, x *contract.Silence, style terminal.Style, now time.Time) error {
	p := &page{style: style, now: now}
	p.silence(x)
	return p.flush(w)
}

func (p *page) silence(x *contract.Silence) {
	p.printf("%s %s %s\n", p.bold(terminal.PadLeft(strconv.FormatInt(x.ID, 10), 5)),
		strings.ReplaceAll(string(x.State), "_", " "), clean(conditions(&x.Match)))
	text := "from " + x.From.Local().Format(time.DateTime) + " until " + x.Until.Local().Format(time.DateTime)
	if w := x.Weekly; w != nil {
		var days []string
		for _, day := range w.Days {
			days = append(days, string(day))
		}
		zone := w.Zone
		if zone == "" {
			zone = "UTC"
		}
		text += ", only " + strings.Join(days, ", ") + " at " + w.Start + " (" + zone + ") for " +
			units.Span(time.Duration(w.LengthNs))
	}
	if text += ", by " + x.By; x.Text != "" {
		text += ": " + x.Text
	}
	p.printf("%s", p.style.Wrap(clean(text), 6))
}

// conditions returns the conditions of m as text.
func conditions(m *contract.SilenceMatch) string {
	var all []string
	if m.Service != "" {
		all = append(all, "service "+m.Service)
	}
	if m.RequestType != "" {
		all = append(all, "request type "+m.RequestType)
	}
	return strings.Join(append(all, m.Tags...), ", ")
}

// ShowSilencePreview writes the incidents that a silence would match.
func ShowSilencePreview(w io.Writer, d *contract.SilencePreview, style terminal.Style, now time.Time) error {
	p := &page{style: style, now: now}
	p.printf("It would match %s, and %d of the last 7 days that ended.\n", units.Plural(d.Open, "open incident"),
		len(d.Items)-d.Open)
	for i := range d.Items {
		x := &d.Items[i]
		p.printf("%s%s%s\n", terminal.PadRight(x.ID[:8], incidentWidth),
			terminal.PadRight(string(x.Severity), severityWidth), x.Onset.Local().Format(time.DateTime))
		p.printf("%s", p.style.Wrap(clean(x.Sentence), 2))
	}
	return p.flush(w)
}
