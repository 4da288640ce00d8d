package cases

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/datafile"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// Comments stores people's comments on incidents in a file in the data directory. It is safe for concurrent use.
type Comments struct {
	path string
	mu   sync.Mutex                    // guards all
	all  map[string][]contract.Comment // by incident ID, oldest first; immutable; changes replace it
}

// CommentsFile is the name of the comment file in the data directory.
const CommentsFile = "comments.json"

// Limits on comments.
const (
	maxComments         = 5000
	maxIncidentComments = 200
)

// OpenComments reads the comments in the data directory dir. The file needn't exist.
func OpenComments(dir string) (*Comments, error) {
	c := &Comments{path: filepath.Join(dir, CommentsFile), all: make(map[string][]contract.Comment)}
	if err := datafile.Read(c.path, &c.all); err != nil {
		return nil, err
	}
	for id := range c.all {
		if len(id) != render.IncidentDigits || !noteID.MatchString(id) {
			return nil, datafile.Unreadable(c.path, fmt.Errorf("%q is not the ID of an incident", id))
		}
	}
	return c, nil
}

// Reload reads the file again, which another replica has changed.
func (c *Comments) Reload() error {
	again, err := OpenComments(filepath.Dir(c.path))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = again.all
	return nil
}

// Of returns the comments on an incident, oldest first.
func (c *Comments) Of(incident string) []contract.Comment {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[incident]
}

// Add adds a comment on an incident and returns it with its ID. If there are too many comments, it first deletes the
// comments on incidents that aren't known. It returns a refusal if there is still no room, or if the incident itself
// has too many comments. The comment is on disk when Add returns. If Add returns an error, nothing has changed.
func (c *Comments) Add(
	incident string, comment contract.Comment, known func(incident string) bool,
) (contract.Comment, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next, total := maps.Clone(c.all), 0
	for _, list := range next {
		total += len(list)
	}
	if total >= maxComments {
		maps.DeleteFunc(next, func(id string, list []contract.Comment) bool {
			if known(id) {
				return false
			}
			total -= len(list)
			return true
		})
	}
	list := next[incident]
	switch {
	case total >= maxComments:
		return comment, refusal.New(refusal.Conflict, "there are too many comments", "delete some")
	case len(list) >= maxIncidentComments:
		return comment, refusal.New(refusal.Conflict, "the incident has too many comments", "delete some")
	}
	comment.ID = 1
	if len(list) > 0 {
		comment.ID = list[len(list)-1].ID + 1
	}
	next[incident] = append(slices.Clip(list), comment)
	return comment, c.replace(next)
}

// Delete deletes the comment with the given ID on an incident, if it exists.
func (c *Comments) Delete(incident string, id int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, found := slices.BinarySearchFunc(c.all[incident], id,
		func(x contract.Comment, id int64) int { return cmp.Compare(x.ID, id) })
	if !found {
		return nil
	}
	next := maps.Clone(c.all)
	if list := slices.Delete(slices.Clone(next[incident]), i, i+1); len(list) > 0 {
		next[incident] = list
	} else {
		delete(next, incident)
	}
	return c.replace(next)
}

// replace writes all to the file of c, then sets c.all. The caller must hold c.mu.
func (c *Comments) replace(all map[string][]contract.Comment) error {
	if err := datafile.Replace(c.path, all); err != nil {
		return err
	}
	c.all = all
	return nil
}

// AddComment implements contract.StrictServerInterface.
func (a *Cases) AddComment(
	ctx context.Context, r contract.AddCommentRequestObject,
) (contract.AddCommentResponseObject, error) {
	s, err := a.reader.Current(ctx)
	if err != nil {
		return nil, err
	}
	if !has(s, aboutIncident, r.Incident) {
		return nil, query.NotFound(string(aboutIncident))
	}
	text := strings.TrimSpace(r.Body.Text)
	if text == "" {
		return nil, refusal.New(refusal.Invalid, "text: the comment is empty", "")
	}
	by := access.Caller(ctx).Name
	comment := contract.Comment{By: by, At: a.options.Clock().UTC(), Text: text, Helped: r.Body.Helped}
	known := func(id string) bool { return has(s, aboutIncident, id) }
	comment, err = a.options.Comments.Add(r.Incident, comment, known)
	if err != nil {
		return nil, err
	}
	a.options.Log.LogAttrs(ctx, slog.LevelInfo, "comment added", slog.String("incident", r.Incident),
		slog.String("by", by))
	return contract.AddComment201JSONResponse(comment), nil
}

// DeleteComment implements contract.StrictServerInterface.
func (a *Cases) DeleteComment(
	ctx context.Context, r contract.DeleteCommentRequestObject,
) (contract.DeleteCommentResponseObject, error) {
	err := a.options.Comments.Delete(r.Incident, r.Comment)
	if err == nil {
		a.options.Log.LogAttrs(ctx, slog.LevelInfo, "comment deleted", slog.String("incident", r.Incident),
			slog.String("by", access.Caller(ctx).Name))
	}
	return contract.DeleteComment204Response{}, err
}
