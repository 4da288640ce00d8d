// Package cct keeps calling-context trees: for each request type every calling context that was ever seen or that an agent's
// catalogue announces, which is the space that package search looks in. It is pure: no clock, no I/O, no goroutines.
package cct
