package requests

import (
	"bytes"
	"cmp"
	"net/http"
	"strings"
	"unicode"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// profiledTypes limits the number of request types in a profile.
const profiledTypes = 1000

// WriteProfile serves a profile of critical paths, in the format of pprof or as folded stacks. If it returns an error,
// it hasn't written anything.
func (a *Requests) WriteProfile(w http.ResponseWriter, r *http.Request) error {
	s, err := a.reader.Current(r.Context())
	if err != nil {
		return err
	}
	params := r.URL.Query()
	text := params.Get("request_type")
	requestType, unknown := s.TypeParameter(&text)
	if unknown {
		return query.NotFound("request type")
	}
	types := busiest(s, requestType)
	var profiles []describe.Profile
	err = a.reader.Ask(r.Context(), func(c *engine.View) {
		names := s.Names(c)
		names.Clean, names.Types = printable, make(map[analysis.Hash]string, len(types))
		for _, id := range types {
			names.Types[id] = printable(s.Types[id])
			if g := c.Groups.Group(id); g != nil {
				summary := c.Groups.Summarize(g)
				profiles = append(profiles, describe.NewProfile(names, &summary))
			}
		}
	})
	if err != nil {
		return err
	}
	var body bytes.Buffer
	write, media, name := describe.Pprof, "application/octet-stream", "critical-path.pb.gz"
	if params.Get("format") == "folded" {
		write, media, name = describe.Folded, "text/plain; charset=utf-8", "critical-path.folded"
	}
	if err := write(&body, profiles); err != nil {
		return err
	}
	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	_, _ = body.WriteTo(w)
	return nil
}

// busiest returns up to profiledTypes request types, most requests first. If wanted isn't zero, it only returns wanted.
func busiest(s *epoch.Snapshot, wanted analysis.Hash) []analysis.Hash {
	if !wanted.IsZero() {
		return []analysis.Hash{wanted}
	}
	var rows []*epoch.GroupRow
	for i := range s.Groups {
		if s.Groups[i].Level == group.LevelRequestType {
			rows = append(rows, &s.Groups[i])
		}
	}
	sorting.Slice(rows, func(x, y *epoch.GroupRow) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), x.ID.Compare(y.ID))
	})
	var ids []analysis.Hash
	for _, row := range rows[:min(len(rows), profiledTypes)] {
		ids = append(ids, row.ID)
	}
	return ids
}

// printable replaces unprintable characters with dots, as in reports, because a folded stack is a line of text, which
// curl writes to a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '·'
		}
		return r
	}, s)
}
