package replay

import (
	_ "embed" // the example
	"time"
)

// Example is a recording of a shop that shows an incident without further software. It is OTLP in JSON lines,
// compressed with zstd. Twenty minutes after the start, one instance of the service payment gets a new version, which
// is slow.
//
//go:embed example.otlp.jsonl.zst
var Example []byte

// ExamplePast is the length of the first part of [Example], which lies in the past when it is replayed. The incident
// opens within seconds, because its requests have by then been slow for most of a window, and is located in the traffic
// that follows.
const ExamplePast = 22*time.Minute + 30*time.Second
