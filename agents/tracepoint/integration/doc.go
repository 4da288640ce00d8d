// Package integration tests the tracepoint library with the instrumentation that applications use, and with random programs. It is
// a module of its own, so that applications do not get what only these tests need.
package integration
