// Package jvm contains the agent for the JVM, a jar that is built from the Java sources in this folder, and loads it
// into running JVMs.
package jvm

import _ "embed"

// Jar is the agent: a Java agent for -javaagent, and an extension of OpenTelemetry's Java agent.
//
//go:embed dist/sibyl-agent.jar
var Jar []byte
