// Package cct maintains calling-context trees. The tree of a request type holds every calling context that its requests
// have executed or that an agent's catalogue announces. Package search searches these trees. The package is pure: no
// clock, no I/O, no goroutines.
package cct
