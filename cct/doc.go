// Package cct maintains calling-context trees: for each request type, every calling context that requests have executed
// or that an agent's catalogue announces. Package search searches these trees. The package is pure: no clock, no I/O,
// no goroutines.
package cct
