//go:build linux && !race

package kernel

// manyThreads is the number of threads of the threads workload.
const manyThreads = 10_000
