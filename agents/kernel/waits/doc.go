// Package waits accounts for the time when threads did not run. It decodes the records of the kernel agent's probes,
// and converts readings of their sums to reports by process, thread, class and system call.
//
// The time of a thread is divided without gaps into intervals of a [Class]. An interval of waiting ends with the
// wake-up. The time from the wake-up until the thread gets a CPU, the run-queue part of the interval, is kept
// separately, and reports count it as [RunQueue]. The totals of all classes therefore add up to the time that a thread
// was observed.
package waits
