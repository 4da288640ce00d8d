// Package archtest tests the architecture: the imports of packages, the restrictions of pure packages, the names of
// packages, the dependencies, the language of comments, and the width of lines. It contains only tests.
//
// The tests parse the files themselves. If they ran the go command instead, Go's test cache would hide violations,
// because it does not track the files that a command reads.
package archtest
