package query

import (
	"slices"
	"testing"
)

// A page starts after the last item of the previous page, even if items have appeared or disappeared in between.
func TestPageAfterChange(t *testing.T) {
	l := NewNameList()
	for i, name := range []string{"a", "c", "e", "g"} {
		l.Add(float64(i/2), name, int32(i))
	}
	l.Sort()
	every := func(int32) bool { return true }
	items, next, err := l.Page(Page{2, nil, "name"}, every)
	if err != nil || len(items) != 2 || next == nil {
		t.Fatalf("%v, %v, %v", items, next, err)
	}
	changed := NewNameList() // without c, but with b and d
	changed.entries = []entry[string]{{0, "a", 0}, {0, "b", 1}, {0, "d", 2}, {1, "e", 3}, {1, "g", 4}}
	if items, next, err = changed.Page(Page{2, next, "name"}, every); err != nil ||
		!slices.Equal(items, []int32{2, 3}) || next == nil {
		t.Errorf("after the change: %v, %v, %v", items, next, err)
	}
	if _, _, err := l.Page(Page{2, next, "size"}, every); err == nil {
		t.Error("a cursor of another order was accepted")
	}
}
