package replay

import (
	_ "embed" // the example
	"time"
)

// Example is a recording of a shop, as OTLP in JSON lines compressed with zstd, that needs no other software to show an
// incident. One instance of its service payment gets a new version half an hour after the beginning, which is slow.
//
//go:embed example.otlp.jsonl.zst
var Example []byte

// ExamplePast is the part of [Example] that has happened already when it is replayed: the incident opens within
// seconds, because its requests have been slow for most of a window, and is located in the traffic that follows.
const ExamplePast = 32*time.Minute + 30*time.Second
