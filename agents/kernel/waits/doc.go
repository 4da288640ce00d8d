// Package waits sums up why threads did not run. It decodes the records of the kernel agent's probes, and turns
// readings of their sums into reports by process, thread, class and system call.
//
// The time of a thread is divided without gaps into intervals of a [Class]. An interval of waiting ends with the
// wake-up. The time from the wake-up to the CPU, its run-queue part, is kept separately, and reports count it as
// [RunQueue]. The totals of all classes therefore add up to the time for which a thread was observed.
package waits
