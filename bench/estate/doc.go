// Package estate judges sibyl serve on programs written by others.
//
// It installs third-party programs from their package registries, runs them under official OpenTelemetry
// instrumentation, sends them requests through a gateway, injects one fault at a time, and compares the incidents of
// sibyl serve with the faults. The service runs with shipping settings.
//
// packages.go pins the programs, programs.go wires them, requests.go lists the requests, and faults.go the faults.
// Everything listens on the loopback interface. Each program runs in its own process group; Reap kills the groups if
// this process dies.
package estate
