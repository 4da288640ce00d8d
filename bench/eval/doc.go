// Package eval measures how well the engine finds causes: it plays simulated faults against it, epoch by epoch, and asks it
// about recorded windows with labelled faults. It gives the engine what a deployment would: spans, catalogues, times. Truth is
// used for scoring only.
package eval
