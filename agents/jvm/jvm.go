// Package jvm contains the agent for the JVM, a jar that is built from the Java sources in this folder, and loads it
// into running JVMs.
package jvm

import (
	_ "embed"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

//go:embed dist/sibyl-agent.jar.zst
var packed []byte

// Jar returns the agent: a Java agent for -javaagent, and an extension of OpenTelemetry's Java agent. Callers must not
// modify the result.
var Jar = sync.OnceValue(func() []byte {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		panic(err) // the options are constant
	}
	defer d.Close()
	jar, err := d.DecodeAll(packed, nil)
	if err != nil {
		panic(fmt.Sprintf("agents/jvm/dist: %v", err)) // it is part of the program
	}
	return jar
})
