// Package archtest tests the architecture: the imports of packages, the restrictions of pure packages, names of
// packages, dependencies, and the language of comments. It only contains tests.
//
// The tests parse the files themselves. If they ran the go command instead, Go's test cache would hide violations,
// because it does not track the files that a command reads.
package archtest
