// Package report writes the report of an analysis: as a table for a terminal, as an HTML page, as JSON, as a pprof
// profile, or as folded stacks.
//
// The output is a function of the report alone: equal reports give equal bytes. The package computes no statistics;
// every number comes from the report. Each writer escapes text from traces for its format.
package report
