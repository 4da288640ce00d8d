package engine

import (
	"cmp"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sibyl-trace/sibyl/search"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/saved_names")

// savedNames adds the field names that saved state contains for t and the types in it, by type. Fields of embedded
// structs count as fields of the struct.
func savedNames(t reflect.Type, names map[string][]string) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		savedNames(t.Elem(), names)
	case reflect.Map:
		savedNames(t.Key(), names)
		savedNames(t.Elem(), names)
	case reflect.Struct:
		if names[t.String()] != nil {
			return
		}
		names[t.String()] = []string{}
		for _, f := range reflect.VisibleFields(t) {
			tag, _, _ := strings.Cut(cmp.Or(f.Tag.Get("cbor"), f.Tag.Get("json")), ",")
			if !f.IsExported() || tag == "-" {
				continue
			}
			if !f.Anonymous {
				names[t.String()] = append(names[t.String()], cmp.Or(tag, f.Name))
			}
			savedNames(f.Type, names)
		}
		slices.Sort(names[t.String()])
	}
}

// Saved state contains field names. If a field is renamed without a tag of its old name, its value is lost after an
// update. You may add a new name to testdata/saved_names (go test ./engine -run SavedNames -rewrite), but only delete
// an old one with its field.
func TestSavedNames(t *testing.T) {
	names := make(map[string][]string)
	for _, v := range []any{savedCore{}, search.State{}, Change{}, search.Decision{}} {
		savedNames(reflect.TypeOf(v), names)
	}
	var lines []string
	for _, typ := range slices.Sorted(maps.Keys(names)) {
		if len(names[typ]) > 0 {
			lines = append(lines, strings.Join(names[typ], " "))
		}
	}
	slices.Sort(lines) // types may be renamed
	got, file := strings.Join(lines, "\n")+"\n", filepath.Join("testdata", "saved_names")
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("names of saved fields:\n%s\nwant:\n%s", got, want)
	}
}
