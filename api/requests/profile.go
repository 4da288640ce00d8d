package api

import (
	"bytes"
	"cmp"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine"
)

// profiledTypes limits the request types of a profile.
const profiledTypes = 1000

// getProfile serves critical paths as pprof or folded stacks.
func (a *API) getProfile(w http.ResponseWriter, r *http.Request) {
	s, err := a.current(r.Context())
	if err != nil {
		a.fail(w, r, err)
		return
	}
	query := r.URL.Query()
	text := query.Get("request_type")
	requestType, unknown := s.typeParameter(&text)
	if unknown {
		a.fail(w, r, notFound("request type"))
		return
	}
	types := s.busiest(requestType)
	var profiles []describe.Profile
	err = a.ask(r.Context(), func(c *engine.View) {
		names := s.names(c)
		names.Clean, names.Types = printable, make(map[analysis.Hash]string, len(types))
		for _, id := range types {
			names.Types[id] = printable(s.types[id])
			if g := c.Groups.Group(id); g != nil {
				summary := c.Groups.Summarize(g)
				profiles = append(profiles, describe.NewProfile(names, &summary))
			}
		}
	})
	if err != nil {
		a.fail(w, r, err)
		return
	}
	var body bytes.Buffer
	write, media, name := describe.Pprof, "application/octet-stream", "critical-path.pb.gz"
	if query.Get("format") == "folded" {
		write, media, name = describe.Folded, "text/plain; charset=utf-8", "critical-path.folded"
	}
	if err := write(&body, profiles); err != nil {
		a.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	_, _ = body.WriteTo(w)
}

// busiest returns up to profiledTypes request types, most requests first; or only the wanted one, unless it is zero.
func (s *snapshot) busiest(wanted analysis.Hash) []analysis.Hash {
	if !wanted.IsZero() {
		return []analysis.Hash{wanted}
	}
	var rows []*groupRow
	for i := range s.groups {
		if s.groups[i].level == group.LevelRequestType {
			rows = append(rows, &s.groups[i])
		}
	}
	slices.SortFunc(rows, func(x, y *groupRow) int { return cmp.Or(cmp.Compare(y.count, x.count), x.id.Compare(y.id)) })
	var ids []analysis.Hash
	for _, row := range rows[:min(len(rows), profiledTypes)] {
		ids = append(ids, row.id)
	}
	return ids
}

// printable replaces unprintable characters by dots, as reports do: folded stacks are made of lines, and curl writes
// them to terminals.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '·'
		}
		return r
	}, s)
}
