package trace

import (
	"cmp"
	"slices"
	"strings"
)

// Family is a set of operations of one service and kind whose names differ only in some parts, such as GET /users/anna
// and GET /users/ben. These parts are probably identifiers.
type Family struct {
	Service Symbol
	Name    string // with "{}" in place of the differing parts
	Names   int
}

// Limits for telling identifiers from words of the code.
const (
	fewestKeys  = 10 // minimum number of different parts with a digit, or a capital within a word
	fewestWords = 50 // minimum number of different parts; few interfaces have this many methods or resources
	mostParts   = 12 // maximum number of parts examined per name
	mostNames   = 1 << 14
	mostVarying = 3 // maximum number of parts replaced per name
)

// separators are the bytes between parts of a name. Words in one part are joined by '.', '-', '_', '@' and '%'.
const separators = "/ :?=&,;()'\"#|"

// familyName is the name of an operation, with parts that differ replaced by "{}".
type familyName struct {
	service Symbol
	kind    Kind
	text    string
}

// place identifies a position within names by the text before it and the part after it.
type place struct {
	service       Symbol
	kind          Kind
	before, after Symbol
}

// distinct counts the different parts at a place.
type distinct struct {
	seen      map[Symbol]struct{}
	keys, all int
}

// Families returns the families among the first mostNames operations of t, largest first.
func (t *Table) Families() (all []Family) {
	var names []familyName
	t.ops.each(func(_ Op, o Operation) {
		if o.Target == 0 && len(names) < mostNames { // a step has the name of its operation
			names = append(names, familyName{o.Service, o.Kind, t.Text(o.Name)})
		}
	})
	before := slices.Clone(names)
	for range mostVarying {
		if !replaceVarying(names) {
			break
		}
	}
	sizes := make(map[familyName]int)
	for i := range names {
		if names[i] != before[i] {
			sizes[names[i]]++
		}
	}
	for n, size := range sizes {
		all = append(all, Family{n.service, n.text, size})
	}
	slices.SortFunc(all, func(a, b Family) int {
		return cmp.Or(cmp.Compare(b.Names, a.Names), cmp.Compare(a.Service, b.Service), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// replaceVarying replaces at most one part of each name with "{}": the first part at a place with many different parts.
// It reports whether it replaced any part.
func replaceVarying(names []familyName) (replaced bool) {
	places := make(map[place]*distinct)
	for i := range names {
		n := &names[i]
		for from, to := range eachPart(n.text) {
			at := n.at(from, to)
			d := places[at]
			if d == nil {
				d = &distinct{seen: make(map[Symbol]struct{})}
				places[at] = d
			}
			d.add(n.text[from:to])
		}
	}
	for i := range names {
		n := &names[i]
		for from, to := range eachPart(n.text) {
			if d := places[n.at(from, to)]; d.all >= fewestWords || d.keys >= fewestKeys {
				n.text, replaced = n.text[:from]+"{}"+n.text[to:], true
				break
			}
		}
	}
	return replaced
}

// at returns the place of the part n.text[from:to].
func (n *familyName) at(from, to int) place {
	rest := n.text[to:]
	for _, end := range eachPart(rest) {
		rest = rest[:end]
		break
	}
	return place{n.service, n.kind, SymbolOf([]byte(n.text[:from])), SymbolOf([]byte(rest))}
}

func (d *distinct) add(part string) {
	sym := SymbolOf([]byte(part))
	if _, known := d.seen[sym]; known {
		return
	}
	d.seen[sym] = struct{}{}
	d.all++
	if isKeyLike(part) {
		d.keys++
	}
}

// eachPart yields the ranges of the first mostParts parts of name that are neither empty nor replaced. It skips a part
// at the start of name, which is a method or a function.
func eachPart(name string) func(yield func(from, to int) bool) {
	return func(yield func(from, to int) bool) {
		parts := 0
		for from := 0; from < len(name) && parts < mostParts; {
			n := strings.IndexAny(name[from:], separators)
			if n < 0 {
				n = len(name) - from
			}
			if n > 0 && from > 0 && name[from:from+n] != "{}" {
				parts++
				if !yield(from, from+n) {
					return
				}
			}
			from += n + 1
		}
	}
}

// isKeyLike reports whether part looks like an identifier rather than like words.
func isKeyLike(part string) bool {
	small := false
	for _, c := range part {
		if '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' && small && !isCamel(part) {
			return true
		}
		small = 'a' <= c && c <= 'z'
	}
	return false
}

// isCamel reports whether each capital in part is followed by at least two lower-case letters, as in getOrderList.
func isCamel(part string) bool {
	for i := range len(part) {
		if c := part[i]; 'A' <= c && c <= 'Z' && (i+2 >= len(part) || !isSmall(part[i+1]) || !isSmall(part[i+2])) {
			return false
		}
	}
	return true
}

func isSmall(c byte) bool { return 'a' <= c && c <= 'z' }
