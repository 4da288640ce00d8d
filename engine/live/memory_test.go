package live

import (
	"runtime/debug"
	"testing"
	"time"
)

// Garbage that is not collected yet fills the memory, too.
func TestGarbageFills(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	w := heapWatch{limit: 256 << 20}
	debug.FreeOSMemory()
	if w.full() {
		t.Skip("the tests take too much memory")
	}
	for range 512 {
		garbage = make([]byte, 1<<20)
	}
	garbage = nil
	time.Sleep(2 * heapInterval)
	if !w.full() {
		t.Error("half a gigabyte of garbage leaves room in 410 MiB")
	}
	deadline := time.Now().Add(10 * time.Second) // it has started a collection
	for w.full() {
		if time.Now().After(deadline) {
			t.Fatal("there is no room after a collection")
		}
		debug.FreeOSMemory()
		time.Sleep(2 * heapInterval)
	}
}

var garbage []byte // keeps the allocations on the heap
