// Package report writes what an analysis found: for people as a table or a page, for programs as JSON, for profilers as pprof
// or folded stacks.
//
// Every writer is a function of the report alone; the same report gives the same bytes. Nothing here computes statistics:
// what is said in words is said from the numbers in the report. Text that came from traces is escaped by whoever writes it.
package report
