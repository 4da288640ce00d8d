// Package search decides where to look next: from ranked problems, calling-context trees, what is switched on and a budget it
// makes the next plan, and it keeps an investigation for each problem until the place is located, explained, exhausted or the
// problem is gone. Every change comes with its evidence.
//
// It is pure: Next reads nothing but its arguments, and the same arguments give the same decisions, byte for byte.
package search
