package engine

import (
	"reflect"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/trace"
)

// identities collects all identities in the memory of a core, by type.
type identities struct {
	found   map[reflect.Type]map[uint64]string
	visited map[visit]bool
}

type visit struct {
	at any
	of reflect.Type
}

var identityTypes = []reflect.Type{
	reflect.TypeFor[trace.Symbol](), reflect.TypeFor[trace.Op](), reflect.TypeFor[trace.Context](),
	reflect.TypeFor[trace.Edge](),
}

// skipped lists types and fields whose identities don't need a name: the table itself, scratch memory, and a field that
// samples don't save.
var skipped = map[string]bool{
	"trace.Table": true, "critpath.Extractor": true, "observation.Observer": true,
	"core.scratch": true, "core.simulated": true, "core.objectives.request": true, "core.searches.inside": true,
	"core.problems.causes.samples.Sample.requests.items.Value.Observation.Contexts.Peer": true,
}

func (x *identities) walk(v reflect.Value, path string) {
	t := v.Type()
	if skipped[t.String()] || skipped[path] {
		return
	}
	switch v.Kind() {
	case reflect.Uint64:
		if of := x.found[t]; of != nil && of[v.Uint()] == "" {
			of[v.Uint()] = path
		}
	case reflect.Pointer:
		if k := (visit{v.UnsafePointer(), t}); !v.IsNil() && !x.visited[k] {
			x.visited[k] = true
			x.walk(v.Elem(), path)
		}
	case reflect.Interface:
		if !v.IsNil() {
			x.walk(v.Elem(), path)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			x.walk(v.Field(i), path+"."+t.Field(i).Name)
		}
	case reflect.Slice, reflect.Array:
		switch t.Elem().Kind() {
		case reflect.Uint8, reflect.Float64, reflect.Int32, reflect.Int64:
			return
		}
		for i := range v.Len() {
			x.walk(v.Index(i), path)
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			x.walk(it.Key(), path+" key")
			x.walk(it.Value(), path)
		}
	}
}

// No part of the state is overlooked when the core forgets names: every identity in its memory that had a name still
// has it, both during the learning period and while an incident is investigated.
func TestForgetKeepsNamesOfState(t *testing.T) {
	options := DefaultOptions()
	options.Learning = time.Minute
	app := sim.New(sim.Config{
		Seed:        3,
		Fault:       sim.SlowPath,
		Tracepoints: 100,
		Rate:        20,
		Messages:    -1,
	})
	c := NewCore(app.Table(), options)
	c.Announce(testStart, app.Catalogue())
	now := testStart
	names := func() map[reflect.Type]map[uint64]string {
		x := identities{make(map[reflect.Type]map[uint64]string), make(map[visit]bool)}
		for _, t := range identityTypes {
			x.found[t] = make(map[uint64]string)
		}
		x.walk(reflect.ValueOf(c), "core")
		for of, ids := range x.found {
			for id := range ids {
				if !named(c.table, of, id) {
					delete(ids, id)
				}
			}
		}
		return x.found
	}
	for epoch := range 40 {
		if epoch == 15 {
			app.Inject(now)
		}
		for x := range app.Requests(now, now.Add(options.Epoch), nil) {
			c.Ingest(x)
		}
		now = now.Add(options.Epoch)
		c.Epoch(now)
		if epoch != 3 && epoch != 20 && epoch != 39 {
			continue
		}
		before := names()
		c.table.Symbol("a name that nothing mentions")
		for range 4 {
			c.table.Renew()
		}
		c.forgotten = now.Add(-defaultNamesAge)
		if n, err := c.RenewNames(now, func(func([]byte, error) bool) {}); n == 0 || err != nil {
			t.Errorf("epoch %d: forgot %d names: %v", epoch, n, err)
		}
		for of, ids := range before {
			lost := 0
			for id, path := range ids {
				if !named(c.table, of, id) {
					if lost++; lost < 10 {
						t.Errorf("epoch %d: %s %x of %s lost its name", epoch, of, id, path)
					}
				}
			}
			t.Logf("epoch %d: %d of type %s, %d lost", epoch, len(ids), of, lost)
		}
		c.table.Merge(app.Table())
	}
}

const testStart trace.Nanos = 1_700_000_000_000_000_000

// named reports whether id, an identity of type `of`, has a name.
func named(table *trace.Table, of reflect.Type, id uint64) bool {
	switch of {
	case identityTypes[0]:
		return table.Text(trace.Symbol(id)) != trace.Overflow
	case identityTypes[1]:
		return table.Operation(trace.Op(id)).Service != 0
	case identityTypes[2]:
		return table.Context(trace.Context(id)).Op != 0
	}
	return table.EdgeInfo(trace.Edge(id)).Context != 0
}
