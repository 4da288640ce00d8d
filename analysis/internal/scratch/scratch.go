// Package scratch reuses the memory of slices from one computation to the next.
package scratch

import "slices"

// Sized returns a slice of n elements with arbitrary values, in the memory of s if that is large enough.
func Sized[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }

// Filled returns a slice of n elements equal to v, in the memory of s if that is large enough.
func Filled[T any](s []T, n int, v T) []T {
	s = Sized(s, n)
	for i := range s {
		s[i] = v
	}
	return s
}
