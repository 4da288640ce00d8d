package pebbledb

import (
	"sync"
	"testing"
	"time"
)

// The first calls of Full are correct, even if they are concurrent.
func TestDiskInitiallyNotFull(t *testing.T) {
	for range 20 {
		d, err := NewDisk(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if d.Free(time.Now()) < d.reserve {
			t.Skip("this disk is full")
		}
		d, err = NewDisk(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if d.Full(time.Now()) {
					t.Error("Full returned true")
				}
			})
		}
		wg.Wait()
	}
}
