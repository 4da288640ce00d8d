// Package benchreport writes the results of `sibylbench localize`, for recorded case sets and for simulated faults, as
// tables, JSON, CSV and SVG plots.
package benchreport
