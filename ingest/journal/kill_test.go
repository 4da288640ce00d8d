package journal

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// victim and victimSync are environment variables that make the test binary append until it is killed: the directory,
// and whether to sync.
const victim, victimSync = "JOURNAL_VICTIM", "JOURNAL_VICTIM_SYNC"

// Acknowledged records survive killing the process at any time, including its start.
func TestKilled(t *testing.T) {
	if dir := os.Getenv(victim); dir != "" {
		appendForever(t, dir, os.Getenv(victimSync) == "true")
	}
	for _, synced := range []bool{true, false} {
		dir := t.TempDir()
		acked := uint64(0)
		for range 30 {
			c := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestKilled$")
			c.Env = append(os.Environ(), victim+"="+dir, victimSync+"="+fmt.Sprint(synced))
			out, err := c.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			life := time.Duration(rand.IntN(120)) * time.Millisecond
			kill := func() { _ = c.Process.Kill() } // may have ended already
			live := sync.OnceFunc(func() { time.AfterFunc(life, kill) })
			if acked > 0 { // otherwise it lives until it acknowledges a record, however long that takes
				live()
			}
			for lines := bufio.NewScanner(out); lines.Scan(); {
				var n uint64
				if k, err := fmt.Sscanf(lines.Text(), "has %d", &n); k == 1 && err == nil && n < acked {
					t.Errorf("sync=%v: %d records were acknowledged, %d are there", synced, acked, n)
				}
				if k, err := fmt.Sscanf(lines.Text(), "acked %d", &n); k == 1 && err == nil {
					acked = n
					live()
				}
			}
			_ = c.Wait() // it was killed
		}
		j := open(t, dir, synced)
		checkRange(t, read(t, j, 1), 1, j.Next()-1)
		if acked == 0 || j.Next() <= acked {
			t.Errorf("sync=%v: %d records were acknowledged, %d are there", synced, acked, j.Next()-1)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func appendForever(t *testing.T, dir string, synced bool) {
	j := open(t, dir, synced)
	fmt.Println("has", j.Next()-1)
	for {
		for range 1 + rand.IntN(3) {
			n := j.Next()
			j.Add(trace.Nanos(n*10), Protobuf, Pack(nil, record(n)))
		}
		if err := j.Append(); err != nil {
			t.Fatal(err)
		}
		fmt.Println("acked", j.Next()-1)
	}
}
