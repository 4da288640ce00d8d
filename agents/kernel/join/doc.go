// Package join finds the span that a thread worked for when it waited, and the service that the span belongs to. It
// never guesses: if the span of a wait is uncertain, it counts the reason instead.
//
// The probes read per-thread data of a process at the start of the wait:
//   - Go: the labels trace_id and span_id of the goroutine that the thread runs, which the library agents/tracepoint
//     sets on request ([Context] says where they are).
//   - Any other program: the record of OTEP 4947, to which the thread-local variable otel_thread_ctx_v1 points.
//   - JVMs: the table of threads that the JVM agent keeps on request. Java cannot export a thread-local variable.
package join

// Kind identifies how a process stores the spans of its threads. The values are defined in bpf/wait.bpf.c.
type Kind uint32

// The kinds.
const (
	None Kind = iota
	GoLabels
	ThreadRecord
	ThreadTable
)

// Context locates the span that a thread of a process works for. All fields but Kind, Table and Slots are offsets in
// bytes.
type Context struct {
	Kind   Kind
	TLS    int32  // of the pointer to the goroutine or record, relative to the thread pointer
	M      uint16 // of the thread in a goroutine (g.m)
	Curg   uint16 // of the current goroutine in Go's thread (m.curg)
	Labels uint16 // of the labels in a goroutine (g.labels)
	Table  uint64 // address of the table of threads
	Slots  uint32 // number of slots in the table
}
