// Package eval measures how well the engine finds causes. It runs simulated faults against the engine, epoch by epoch;
// package recorded does the same with recorded faults. The engine receives the same inputs as in a deployment: spans,
// catalogues and times. We use the truth for scoring only.
//
// # Simulated faults
//
// For each seed, fault and strategy, an application of package sim runs against the engine: five minutes of learning,
// one healthy minute, then the fault. In every epoch of ten seconds the application emits only spans of the baseline
// and of enabled tracepoints. The engine's decisions apply in the next epoch. A run ends when the engine reports a
// located cause or has no candidate left, after 36 epochs without an alarm, or after 36 more without an answer. All
// strategies run on the same applications; random and breadth-first are baselines. A tenth of the caller hints of the
// catalogue are missing.
//
// # Scores
//
// A fault is locatable if it would show without tracepoints. To find out, we execute two minutes of requests with and
// without the fault. In some request type whose responses wait for the target, the fault must add at least 10 % to the
// healthy mean, and more than three standard errors. The minute-to-minute variation of latencies hides smaller effects.
// Rates are over the locatable cases, with Wilson's 95 % intervals.
//
// A fault is found if the investigation ranks a correct tracepoint or operation first, or among the first three.
// Enabling it is not enough. A suspect that is a call is correct only if its operation and its target single out the
// faulty call. The fractions ever enabled and at the peak are over the tracepoints that requests executed. Extra spans
// are per 1 000 requests, and epochs are from the alarm to the answer; all these are medians. False alarms are per
// 1 000 hours of a monitored group, before any fault.
package eval
