package api

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// entry is an entry of a sorted list: ascending by key, NaN last, then by ID.
type entry[ID any] struct {
	key float64
	id  ID
	at  int32 // index of the item
}

// list is a sorted list whose cursors hold the key and the ID of the last item of a page, so that items that appear or
// vanish between two pages do not shift the others.
type list[ID any] struct {
	entries []entry[ID]
	compare func(a, b ID) int
	text    func(ID) string
	parse   func(string) (ID, error)
}

func (l *list[ID]) order(a, b entry[ID]) int {
	return cmp.Or(compareKeys(a.key, b.key), l.compare(a.id, b.id))
}

func compareKeys(a, b float64) int {
	switch {
	case a != a && b != b:
		return 0
	case a != a:
		return 1
	case b != b:
		return -1
	}
	return cmp.Compare(a, b)
}

func (l *list[ID]) sort() { slices.SortFunc(l.entries, l.order) }

// newHashList returns an empty list of items identified by hashes.
func newHashList() *list[analysis.Hash] {
	return &list[analysis.Hash]{compare: analysis.Hash.Compare, text: analysis.Hash.String, parse: analysis.ParseHash}
}

// newNameList returns an empty list of items identified by names.
func newNameList() *list[string] {
	verbatim := func(s string) string { return s }
	return &list[string]{compare: strings.Compare, text: verbatim, parse: func(s string) (string, error) { return s, nil }}
}

// cursor is the end of a page. Clients treat it as opaque.
type cursor struct {
	Sort string `json:"s"` // order of the list
	Key  uint64 `json:"k"` // bits of the float, which may be infinite
	ID   string `json:"i"`
}

func (c cursor) String() string {
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // it holds text and numbers
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

var errCursor = refusal.New(refusal.Malformed, "the cursor does not belong to this list and order", "begin without one")

// parseCursor parses the text that String returns. It returns errCursor if the cursor belongs to another order.
func parseCursor(text, sort string) (cursor, error) {
	var c cursor
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(data, &c) != nil || c.Sort != sort {
		return cursor{}, errCursor
	}
	return c, nil
}

// page selects a part of a list.
type page struct {
	limit  int
	cursor *string // nil: from the beginning
	sort   string
}

// defaultLimit is the default length of pages.
const defaultLimit = 100

func pageOf(limit *int, cursor *string, sort string) page {
	p := page{defaultLimit, cursor, sort}
	if limit != nil {
		p.limit = *limit
	}
	return p
}

// page returns the items of a page, among those that keep returns true for, and the cursor of the next page; nil if
// this is the last one.
func (l *list[ID]) page(p page, keep func(at int32) bool) (items []int32, next *string, err error) {
	from := 0
	if p.cursor != nil && *p.cursor != "" {
		c, err := parseCursor(*p.cursor, p.sort)
		if err != nil {
			return nil, nil, err
		}
		id, err := l.parse(c.ID)
		if err != nil {
			return nil, nil, errCursor
		}
		last := entry[ID]{key: math.Float64frombits(c.Key), id: id}
		at, found := slices.BinarySearchFunc(l.entries, last, l.order)
		if from = at; found {
			from++
		}
	}
	var last entry[ID]
	for _, e := range l.entries[from:] {
		if !keep(e.at) {
			continue
		}
		if len(items) == p.limit {
			text := cursor{p.sort, math.Float64bits(last.key), l.text(last.id)}.String()
			return items, &text, nil
		}
		items, last = append(items, e.at), e
	}
	return items, nil, nil
}

// count returns the number of items that keep returns true for.
func (l *list[ID]) count(keep func(at int32) bool) (n int) {
	for i := range l.entries {
		if keep(l.entries[i].at) {
			n++
		}
	}
	return n
}

// matches reports whether text contains the query q, ignoring case. Every text matches nil and "".
func matches(text string, q *string) bool {
	return q == nil || *q == "" || strings.Contains(strings.ToLower(text), strings.ToLower(*q))
}

// value returns *p, or fallback if p is nil.
func value[T any](p *T, fallback T) T {
	if p == nil {
		return fallback
	}
	return *p
}
