// Package benchreport writes what `sibylbench localize` found, about recorded case sets and about simulated faults: as
// tables for people, as JSON and CSV for programs, as a plot in SVG.
package benchreport
