// Package sorting sorts slices of large elements with one compiled sort. The functions of package slices are compiled
// again for each type of element, each time to 10 to 20 KB of code; the functions here take 1 KB per type. They give
// the same results but are slower, so use package slices in code that runs for every request.
package sorting

import (
	"iter"
	"slices"
	"sort"
)

// Slice sorts s in the order of compare, like slices.SortFunc.
func Slice[E any](s []E, compare func(a, b E) int) { sort.Sort(&list[E]{s, compare}) }

// SliceStable sorts s in the order of compare, like slices.SortStableFunc. It keeps the order of equal elements.
func SliceStable[E any](s []E, compare func(a, b E) int) { sort.Stable(&list[E]{s, compare}) }

// Sorted collects the values of a sequence and sorts them, like slices.SortedFunc.
func Sorted[E any](seq iter.Seq[E], compare func(a, b E) int) []E {
	s := slices.Collect(seq)
	Slice(s, compare)
	return s
}

// list implements [sort.Interface].
type list[E any] struct {
	elements []E
	compare  func(a, b E) int
}

func (l *list[E]) Len() int           { return len(l.elements) }
func (l *list[E]) Less(i, j int) bool { return l.compare(l.elements[i], l.elements[j]) < 0 }
func (l *list[E]) Swap(i, j int)      { l.elements[i], l.elements[j] = l.elements[j], l.elements[i] }
