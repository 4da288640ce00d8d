// Package integration tests the tracepoint library with the OpenTelemetry SDK, with the instrumentation libraries that
// applications use, and with random programs. It is a separate module, so that the library does not require the
// dependencies of these tests.
package integration
