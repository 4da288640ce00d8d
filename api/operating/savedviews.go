package operating

import (
	"cmp"
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/datafile"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// Views stores the saved views of the UI in a file in the data directory. It is safe for concurrent use.
type Views struct {
	path string
	mu   sync.Mutex      // guards all
	all  []contract.View // by name; immutable; changes replace it
}

// ViewsFile is the name of the file with the saved views in the data directory.
const ViewsFile = "views.json"

// maxViews limits the number of saved views.
const maxViews = 500

// OpenViews reads the saved views in the data directory dir. The file needn't exist.
func OpenViews(dir string) (*Views, error) {
	v := &Views{path: filepath.Join(dir, ViewsFile), all: []contract.View{}}
	err := datafile.Read(v.path, &v.all)
	return v, err
}

// Reload reads the file again, which another replica has changed.
func (v *Views) Reload() error {
	again, err := OpenViews(filepath.Dir(v.path))
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.all = again.all
	return nil
}

// All returns all views, sorted by name.
func (v *Views) All() []contract.View {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.all
}

// Save saves a view, replacing any view with the same name, and returns it with its ID. It returns a refusal if there
// are too many views. The view is on disk when Save returns. If Save returns an error, nothing has changed.
func (v *Views) Save(x contract.View) (contract.View, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range v.all {
		x.ID = max(x.ID, v.all[i].ID)
	}
	x.ID++
	next := slices.DeleteFunc(slices.Clone(v.all), func(old contract.View) bool { return old.Name == x.Name })
	if len(next) >= maxViews {
		return x, refusal.New(refusal.Conflict, "there are too many saved views", "delete some")
	}
	next = append(next, x)
	sorting.SliceStable(next, func(a, b contract.View) int {
		return cmp.Or(strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)),
			strings.Compare(a.Name, b.Name))
	})
	return x, v.replace(next)
}

// Delete deletes the view with the given ID, if it exists.
func (v *Views) Delete(id int64) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	next := slices.DeleteFunc(slices.Clone(v.all), func(x contract.View) bool { return x.ID == id })
	if len(next) == len(v.all) {
		return nil
	}
	return v.replace(next)
}

// replace writes all to the file of v, then sets v.all. The caller must hold v.mu.
func (v *Views) replace(all []contract.View) error {
	if err := datafile.Replace(v.path, all); err != nil {
		return err
	}
	v.all = all
	return nil
}

// ListViews implements contract.StrictServerInterface.
func (a *Operating) ListViews(
	context.Context, contract.ListViewsRequestObject,
) (contract.ListViewsResponseObject, error) {
	return contract.ListViews200JSONResponse{Items: a.options.Views.All()}, nil
}

// SaveView implements contract.StrictServerInterface.
func (a *Operating) SaveView(
	ctx context.Context, r contract.SaveViewRequestObject,
) (contract.SaveViewResponseObject, error) {
	name, by := strings.TrimSpace(r.Body.Name), access.Caller(ctx).Name
	if name == "" {
		return nil, refusal.New(refusal.Invalid, "name: want a name", "")
	}
	view, err := a.options.Views.Save(contract.View{Name: name, Path: r.Body.Path, By: by, At: a.options.Clock().UTC()})
	if err != nil {
		return nil, err
	}
	a.options.Log.LogAttrs(ctx, slog.LevelInfo, "view saved", slog.String("name", name), slog.String("by", by))
	return contract.SaveView201JSONResponse(view), nil
}

// DeleteView implements contract.StrictServerInterface.
func (a *Operating) DeleteView(
	ctx context.Context, r contract.DeleteViewRequestObject,
) (contract.DeleteViewResponseObject, error) {
	err := a.options.Views.Delete(r.View)
	if err == nil {
		a.options.Log.LogAttrs(ctx, slog.LevelInfo, "view deleted",
			slog.Int64("id", r.View), slog.String("by", access.Caller(ctx).Name))
	}
	return contract.DeleteView204Response{}, err
}
