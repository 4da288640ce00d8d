package pebbledb

import (
	"sync"
	"testing"
	"time"
)

// Whoever asks first gets a true answer, and so does everybody who asks at the same time.
func TestDiskIsNotFullAtFirst(t *testing.T) {
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
					t.Error("full")
				}
			})
		}
		wg.Wait()
	}
}
