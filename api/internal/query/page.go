// Package query reads the parameters of requests and uses them to select pages of sorted lists. It refuses invalid
// parameters.
package query

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// entry is an entry of a list sorted by key, ascending with NaN last, and then by ID.
type entry[ID any] struct {
	key float64
	id  ID
	at  int32 // index of the item
}

// List is a sorted list. Its cursors hold the key and the ID of the last item of a page, so that the page boundaries
// don't shift if items appear or disappear between two pages.
type List[ID any] struct {
	entries []entry[ID]
	compare func(a, b ID) int
	text    func(ID) string
	parse   func(string) (ID, error)
}

// Add adds the item with the index `at`. Items are sorted by key, then by id.
func (l *List[ID]) Add(key float64, id ID, at int32) {
	l.entries = append(l.entries, entry[ID]{key, id, at})
}

func (l *List[ID]) order(a, b entry[ID]) int {
	return cmp.Or(CompareKeys(a.key, b.key), l.compare(a.id, b.id))
}

// CompareKeys compares the keys a and b in ascending order, with NaN last.
func CompareKeys(a, b float64) int {
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

// Sort sorts the list. It must be called once, after the last Add.
func (l *List[ID]) Sort() { sorting.Slice(l.entries, l.order) }

// NewList returns an empty list. The arguments compare, format and parse the IDs of its items.
func NewList[ID any](compare func(a, b ID) int, text func(ID) string, parse func(string) (ID, error)) *List[ID] {
	return &List[ID]{compare: compare, text: text, parse: parse}
}

// NewHashList returns an empty list of items identified by hashes.
func NewHashList() *List[analysis.Hash] {
	return NewList(analysis.Hash.Compare, analysis.Hash.String, analysis.ParseHash)
}

// NewNameList returns an empty list of items identified by names.
func NewNameList() *List[string] {
	verbatim := func(s string) string { return s }
	return NewList(strings.Compare, verbatim, func(s string) (string, error) { return s, nil })
}

// Cursor is the end of a page. It's opaque to clients.
type Cursor struct {
	Sort string `json:"s"` // order of the list
	Key  uint64 `json:"k"` // bits of the float, which may be infinite
	ID   string `json:"i"`
}

func (c Cursor) String() string {
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // can't fail for text and numbers
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// ErrCursor is the refusal for a cursor that belongs to another list or order.
var ErrCursor = refusal.New(refusal.Malformed, "the cursor is from another list or order", "start without a cursor")

// ParseCursor parses a text returned by String. It returns ErrCursor if the cursor belongs to another order.
func ParseCursor(text, sort string) (Cursor, error) {
	var c Cursor
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(data, &c) != nil || c.Sort != sort {
		return Cursor{}, ErrCursor
	}
	return c, nil
}

// Page selects a part of a list.
type Page struct {
	Limit  int
	Cursor *string // nil: the first page
	Sort   string
}

// DefaultLimit is the default length of pages.
const DefaultLimit = 100

// PageOf returns the page selected by the parameters limit and cursor. Both may be nil. sort is the order of the list.
func PageOf(limit *int, cursor *string, sort string) Page {
	p := Page{DefaultLimit, cursor, sort}
	if limit != nil {
		p.Limit = *limit
	}
	return p
}

// Page returns the page p of the items that keep accepts, and the cursor of the next page, or nil if this is the last
// page. It returns ErrCursor if the cursor belongs to another list or order.
func (l *List[ID]) Page(p Page, keep func(at int32) bool) (items []int32, next *string, err error) {
	from := 0
	if p.Cursor != nil && *p.Cursor != "" {
		c, err := ParseCursor(*p.Cursor, p.Sort)
		if err != nil {
			return nil, nil, err
		}
		id, err := l.parse(c.ID)
		if err != nil {
			return nil, nil, ErrCursor
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
		if len(items) == p.Limit {
			return items, new(l.End(p, last.key, last.id)), nil
		}
		items, last = append(items, e.at), e
	}
	return items, nil, nil
}

// End returns the cursor of a page whose last item has the given key and ID.
func (l *List[ID]) End(p Page, key float64, id ID) string {
	return Cursor{p.Sort, math.Float64bits(key), l.text(id)}.String()
}

// Count returns the number of items that keep accepts.
func (l *List[ID]) Count(keep func(at int32) bool) (n int) {
	for i := range l.entries {
		if keep(l.entries[i].at) {
			n++
		}
	}
	return n
}

// Index returns the index of the first item of the page, for lists with a fixed order. It returns ErrCursor if the
// cursor belongs to another list.
func (p Page) Index() (int, error) {
	if p.Cursor == nil || *p.Cursor == "" {
		return 0, nil
	}
	c, err := ParseCursor(*p.Cursor, p.Sort)
	if err != nil {
		return 0, err
	}
	i, err := strconv.Atoi(c.ID)
	if err != nil || i < 0 {
		return 0, ErrCursor
	}
	return i, nil
}

// At returns a cursor that makes [Page.Index] return i.
func (p Page) At(i int) string { return Cursor{Sort: p.Sort, ID: strconv.Itoa(i)}.String() }
