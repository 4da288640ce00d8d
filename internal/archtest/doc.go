// Package archtest holds the architecture as tests: which package may import which, what the pure core must not touch, how
// packages are called, and what the text of the repository must not mention. It has nothing but tests.
//
// The files are parsed in this process. A test that asked the go command instead would pass from Go's test cache after a
// violation, because the cache does not know what the command read.
package archtest
