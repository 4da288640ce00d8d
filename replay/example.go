package replay

import (
	_ "embed" // the example
	"time"
)

// Example is a recording of a shop's traces, for showing an incident without other software. It is OTLP in JSON lines,
// compressed with zstd. Twenty minutes after the start, one instance of the service payment gets a new version, which
// is slow.
//
//go:embed example.otlp.jsonl.zst
var Example []byte

// ExamplePast is the length of the first part of [Example], which lies in the past when Example is replayed. The
// incident opens within seconds, because requests have been slow for most of a window at the end of that part. Its
// place is located in the traffic that follows.
const ExamplePast = 22*time.Minute + 30*time.Second
