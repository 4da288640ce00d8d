package waits

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
)

// The records have the layout of bpf/wait.bpf.c, for little-endian machines. Times are in ns of the monotonic clock.

// NoSyscall is the system call of an interval outside any system call.
const NoSyscall = -1

// Buckets is the number of buckets of a histogram. The first bucket holds durations below 2^10 ns, the bounds of the
// following ones are powers of two, and the last bucket is unbounded.
const Buckets = 28

// firstBucketBits is the binary logarithm of the first bucket's bound.
const firstBucketBits = 10

// BucketBound returns the upper bound of bucket i in ns. The last bucket has no upper bound; for it, BucketBound
// returns the next power of two.
func BucketBound(i int) uint64 { return 1 << (firstBucketBits + i) }

// Key identifies a sum.
type Key struct {
	TGID, TID uint32
	Syscall   int32
	Class     Class
}

// Thread identifies a thread.
type Thread struct{ TGID, TID uint32 }

// Thread returns the thread of the sum.
func (k Key) Thread() Thread { return Thread{k.TGID, k.TID} }

// Comm is the name of a thread, with a terminating zero unless it has the full length.
type Comm [16]uint8

// String returns the name.
func (c Comm) String() string {
	name, _, _ := bytes.Cut(c[:], []byte{0})
	return string(name)
}

// Sum is the sum of the intervals of a thread since its observation started.
type Sum struct {
	Count     uint64
	TotalNs   uint64
	MaxNs     uint64
	RunqNs    uint64 // time on run queues, after the wake-ups that ended the intervals
	MaxRunqNs uint64
	Last      uint64 // end of the last interval, including its run-queue part
	Over      uint32 // intervals above the threshold
	RunqOver  uint32 // run-queue parts above the threshold of [RunQueue]
	Comm      Comm
	Buckets   [Buckets]uint32
}

// Add adds another sum with the same key. It doesn't change Last and Comm.
func (s *Sum) Add(o *Sum) {
	s.Count += o.Count
	s.TotalNs += o.TotalNs
	s.MaxNs = max(s.MaxNs, o.MaxNs)
	s.RunqNs += o.RunqNs
	s.MaxRunqNs = max(s.MaxRunqNs, o.MaxRunqNs)
	s.Over += o.Over
	s.RunqOver += o.RunqOver
	for i, n := range o.Buckets {
		s.Buckets[i] += n
	}
}

// Event is one interval above a threshold, or several shorter intervals of the same span with a sum above the
// threshold.
type Event struct {
	End       uint64 // of the run-queue part
	WaitNs    uint64
	RunqNs    uint64
	TGID, TID uint32
	Syscall   int32
	Class     Class
	Stack     int32 // negative without a stack
	Found     Found
	More      uint16 // number of further intervals that the event includes
	Comm      Comm
	Trace     [32]uint8 // see Found
	Span      [16]uint8
}

// Found is the result of the search for the span of an event.
type Found uint16

// The values are defined in bpf/wait.bpf.c.
const (
	NotSought   Found = iota // the agent does not know how to search in this process
	Hex                      // Trace and Span hold hexadecimal digits
	Binary                   // Trace and Span start with their bytes
	NoGoroutine              // a thread of Go's runtime
	NoSpan                   // the thread works for no span
	Unreadable               // memory of the process was paged out
	Unsampled                // a span that is not exported
	NumFound    = iota
)

// MissingKey identifies a sum of individual intervals that are missing.
type MissingKey struct {
	TGID  uint32
	Class Class
	Cause Cause
}

// Missed holds the number and the total duration of individual intervals that are missing.
type Missed struct{ Count, TotalNs uint64 }

// Cause is a reason why individual intervals are missing.
type Cause uint32

// The values are defined in bpf/wait.bpf.c.
const (
	RingFull Cause = iota // the ring buffer was full
	Limited               // there were more than the probes may record for the process
	Unknown               // the memory with the span's ID was paged out
	Cramped               // short intervals did not fit into their span next to other intervals
	NumCauses
)

var causeTexts = [NumCauses]string{
	"the ring buffer is full", "the process is over its limit",
	"the memory with the span's ID is paged out",
	"short ones did not fit in their span next to others",
}

// String returns the cause as a sentence.
func (c Cause) String() string {
	if c >= NumCauses {
		return fmt.Sprintf("cause %d", uint32(c))
	}
	return causeTexts[c]
}

// Open is the current state of a thread.
type Open struct {
	Now, Since uint64
	Woken      uint64 // 0 if not woken yet
	TGID, TID  uint32
	Syscall    int32
	Class      Class
	Comm       Comm
}

// StackKey identifies a sum of sampled stacks.
type StackKey struct {
	TGID    uint32
	Stack   int32
	Syscall int32
	Class   Class
}

// StackSum holds the number of samples of a stack, and the total time that they represent.
type StackSum struct {
	Count   uint64
	TotalNs uint64
}

// Sizes of records in bytes.
const (
	EventSize = 112
	OpenSize  = 56
	SumSize   = 72 + 4*Buckets
)

// DecodeEvent decodes a record of the ring buffer.
func DecodeEvent(record []byte) (Event, error) {
	var e Event
	if len(record) != EventSize {
		return e, fmt.Errorf("decode event: %d bytes, want %d", len(record), EventSize)
	}
	in := fields(record) // many times faster than binary.Decode
	e.End, e.WaitNs, e.RunqNs = in.u64(), in.u64(), in.u64()
	e.TGID, e.TID, e.Syscall, e.Class = in.u32(), in.u32(), int32(in.u32()), Class(in.u32())
	e.Stack = int32(in.u32())
	e.Found, e.More = Found(in.u16()), in.u16()
	in.bytes(e.Comm[:])
	in.bytes(e.Trace[:])
	in.bytes(e.Span[:])
	if !e.Class.Valid() || e.Found >= NumFound {
		return Event{}, fmt.Errorf("decode event: %s, span found: %d", e.Class, e.Found)
	}
	return e, nil
}

// DecodeThreads decodes the output of the task iterator, which consists of the state and the sum of the time on CPUs of
// each thread.
func DecodeThreads(records []byte) (open []Open, onCPU []Sum, err error) {
	const size = OpenSize + SumSize
	if len(records)%size != 0 {
		return nil, nil, fmt.Errorf("decode states of threads: %d bytes, want a multiple of %d", len(records), size)
	}
	open, onCPU = make([]Open, 0, len(records)/size), make([]Sum, 0, len(records)/size)
	for record := range slices.Chunk(records, size) {
		state, err := DecodeOpen(record[:OpenSize])
		if err != nil {
			return nil, nil, err
		}
		open, onCPU = append(open, state...), append(onCPU, decodeSum(record[OpenSize:]))
	}
	return open, onCPU, nil
}

func decodeSum(record []byte) (s Sum) {
	in := fields(record)
	s.Count, s.TotalNs = in.u64(), in.u64()
	s.MaxNs, s.RunqNs, s.MaxRunqNs, s.Last = in.u64(), in.u64(), in.u64(), in.u64()
	s.Over, s.RunqOver = in.u32(), in.u32()
	in.bytes(s.Comm[:])
	for i := range s.Buckets {
		s.Buckets[i] = in.u32()
	}
	return s
}

// DecodeOpen decodes consecutive thread states.
func DecodeOpen(records []byte) ([]Open, error) {
	if len(records)%OpenSize != 0 {
		return nil, fmt.Errorf("decode states of threads: %d bytes, want a multiple of %d", len(records), OpenSize)
	}
	open := make([]Open, len(records)/OpenSize)
	in := fields(records)
	for i := range open {
		o := &open[i]
		o.Now, o.Since, o.Woken = in.u64(), in.u64(), in.u64()
		o.TGID, o.TID, o.Syscall, o.Class = in.u32(), in.u32(), int32(in.u32()), Class(in.u32())
		in.bytes(o.Comm[:])
		if !o.Class.Valid() || o.Since > o.Now || o.Woken > o.Now {
			return nil, fmt.Errorf("decode states of threads: thread %d: %s from %d to %d",
				o.TID, o.Class, o.Since, o.Now)
		}
	}
	return open, nil
}

// fields holds the bytes of a record that are not decoded yet.
type fields []byte

func (f *fields) u64() uint64 {
	x := binary.LittleEndian.Uint64(*f)
	*f = (*f)[8:]
	return x
}

func (f *fields) u32() uint32 {
	x := binary.LittleEndian.Uint32(*f)
	*f = (*f)[4:]
	return x
}

func (f *fields) u16() uint16 {
	x := binary.LittleEndian.Uint16(*f)
	*f = (*f)[2:]
	return x
}

func (f *fields) bytes(to []byte) { *f = (*f)[copy(to, *f):] }
