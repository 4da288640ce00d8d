package client

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// Audit returns up to `most` entries of the audit log that match q, latest first. If `most` is 0, it returns all.
func (c *Client) Audit(ctx context.Context, q contract.ListAuditParams, most int) (*contract.AuditList, error) {
	unreadable := 0
	list, err := getPages(ctx, c, q, most, func(l *contract.AuditList) (*[]contract.AuditEntry, *string) {
		unreadable += l.Unreadable
		return &l.Items, l.NextCursor
	}, "audit")
	if err == nil {
		list.Unreadable = unreadable
	}
	return list, err
}

// Widths of the columns with the caller, its address and the operation. The caller's column is as wide as the widest
// name, up to maxWhoColumn, because two e-mail addresses may differ anywhere.
const (
	whoColumn       = 16
	maxWhoColumn    = 48
	fromColumn      = 15
	operationColumn = 20
)

// ShowAudit writes entries of the audit log, one per line.
func ShowAudit(w io.Writer, list *contract.AuditList, style terminal.Style, now time.Time) error {
	p := &page{style: style, now: now}
	if len(list.Items) == 0 {
		p.printf("The audit log has no such entry.\n")
		return p.flush(w)
	}
	wide := whoColumn
	for i := range list.Items {
		wide = max(wide, min(terminal.Width(clean(list.Items[i].Who)), maxWhoColumn))
	}
	row := func(at, who, from, operation, status, on string) string {
		line := strings.Join([]string{
			terminal.PadRight(at, len(time.DateTime)), terminal.PadRight(terminal.Shorten(who, wide), wide),
			terminal.PadRight(from, fromColumn), terminal.PadRight(operation, operationColumn),
			terminal.PadLeft(status, len("STATUS")), on,
		}, "  ")
		return strings.TrimRight(line, " ")
	}
	p.printf("%s\n", p.dim(row("AT", "WHO", "FROM", "OPERATION", "STATUS", "ON")))
	for i := range list.Items {
		e := &list.Items[i]
		status := "?"
		if e.Status != 0 {
			status = strconv.Itoa(e.Status)
		}
		p.printf("%s\n", row(e.At.Local().Format(time.DateTime), clean(cmp.Or(e.Who, units.Unknown)),
			clean(cmp.Or(e.From, e.Via, units.Unknown)), clean(e.Operation), status, auditNotes(e)))
	}
	if list.Unreadable > 0 {
		p.printf("%s\n", style.Paint(terminal.Yellow, units.Plural(list.Unreadable, "damaged line")+" skipped"))
	}
	if list.NextCursor != nil {
		p.printf("%s\n", p.dim("… and more: --limit 0 shows all"))
	}
	return p.flush(w)
}

// auditNotes returns the resource of an entry, its detail, and the other fields that have no column in the table.
func auditNotes(e *contract.AuditEntry) string {
	notes := []string{e.On, e.Detail}
	if e.Issuer != "" { // the name doesn't identify a person
		notes = append(notes, "subject "+e.Subject)
	}
	if e.Count > 0 {
		notes = append(notes, fmt.Sprintf("%s in a minute", units.Plural(int(e.Count), "request")))
	}
	if e.ForwardedFor != "" {
		notes = append(notes, "for "+e.ForwardedFor)
	}
	if e.Status == 0 {
		notes = append(notes, "the outcome is unknown")
	}
	var all []string
	for _, note := range notes {
		if note != "" {
			all = append(all, clean(note))
		}
	}
	return strings.Join(all, ", ")
}
