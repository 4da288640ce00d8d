//go:build linux && race

package kernel

// manyThreads is the number of threads of the threads workload. The race detector allows 8 128 goroutines.
const manyThreads = 4_000
