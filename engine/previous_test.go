package engine

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/sibyl-trace/sibyl/bench/sim"
	"github.com/sibyl-trace/sibyl/trace"
)

// previousState returns the state in testdata/state-5.zst: that of version 5 of the store, written at commit 8c3521a,
// with a located problem, an open incident, an override and a deploy.
func previousState(t *testing.T) []byte {
	t.Helper()
	packed, err := os.ReadFile(filepath.Join("testdata", "state-5.zst"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := r.DecodeAll(packed, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The state of the previous version keeps everything, with its names, and the core goes on with it.
func TestRestorePreviousState(t *testing.T) {
	options := DefaultOptions()
	options.Learning, options.Groups.Sample, options.Groups.LargeSample = time.Minute, 8, 16
	c := NewCore(&trace.Table{}, options)
	if err := c.Restore(previousState(t)); err != nil {
		t.Fatal(err)
	}
	type contents struct {
		learned                            bool
		groups, problems, incidents        int
		investigations, overrides, deploys int
		trees, catalogue                   int
		plan                               int64
	}
	contentsOf := func(c *Core) contents {
		return contents{
			c.Learned() && !c.Relearning(), c.Grouper().Len(), len(c.problems), len(c.Incidents()), len(c.state.Investigations), len(c.state.Overrides),
			len(c.Deploys()), len(c.trees), len(c.catalogue), c.Plan().Version,
		}
	}
	want := contents{true, 5, 1, 1, 2, 1, 1, 2, len(c.catalogue), 7}
	if got := contentsOf(c); got != want || got.catalogue == 0 {
		t.Errorf("restored %+v, want %+v", got, want)
	}
	x := identities{make(map[reflect.Type]map[uint64]string), make(map[visit]bool)}
	for _, of := range identityTypes {
		x.found[of] = make(map[uint64]string)
	}
	x.walk(reflect.ValueOf(c), "core")
	for of, ids := range x.found {
		for id, path := range ids {
			if id != 0 && !c.named(of, id) && !strings.HasSuffix(path, "Arms.Name") { // which is no text
				t.Errorf("%s %x of %s has no name", of, id, path)
			}
		}
	}
	again := NewCore(&trace.Table{}, options) // as saved by this version
	if err := again.Restore(c.AppendState(nil)); err != nil {
		t.Fatal(err)
	}
	if got := contentsOf(again); got != want {
		t.Errorf("restored from this version %+v, want %+v", got, want)
	}
	app := sim.New(sim.Config{Seed: 0, Fault: sim.Host, Tracepoints: 50, Rate: 20})
	now := c.Ended()
	app.Inject(now)
	again.table.Merge(app.Table())
	for range 6 {
		for x := range app.Requests(now, now.Add(options.Epoch), nil) {
			again.Ingest(x)
		}
		now = now.Add(options.Epoch)
		again.Epoch(now)
	}
	if got := contentsOf(again); got.groups < want.groups || got.problems == 0 || got.incidents != 1 {
		t.Errorf("a minute later %+v, want the same groups, problem and incident", got)
	}
}
