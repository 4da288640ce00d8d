// Package eval measures how well the engine finds causes. It runs simulated faults against the engine, epoch by
// epoch; package recorded does the same with recorded faults. The engine receives the inputs of a deployment: spans,
// catalogues and times. The truth is used for scoring only.
package eval
