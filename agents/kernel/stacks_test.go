//go:build linux

package kernel

import (
	"bufio"
	"io"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// startCat starts a program that waits for lines in a pipe, and writes them.
func startCat(t *testing.T) (pid uint32, in io.Writer, out *bufio.Reader) {
	t.Helper()
	c := exec.Command("cat")
	to, from := startPiped(t, c)
	t.Cleanup(func() {
		_ = to.Close()
		_ = c.Wait()
	})
	return uint32(c.Process.Pid), to, bufio.NewReader(from)
}

// Waits in unwanted classes don't take room for stacks from others.
func TestStacksOfWantedClasses(t *testing.T) {
	p := open(t, Options{StackPeriod: 1})
	pid, in, out := startCat(t)
	// stacks makes cat wait for lines, and reports whether there are stacks then.
	stacks := func(class waits.Class) bool {
		apply(t, p, pid, Target{Classes: waits.Set(0).With(class), Stacks: true}, waits.Thresholds{})
		if err := p.ForgetStacks(); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if _, err := io.WriteString(in, "line\n"); err != nil {
				t.Fatal(err)
			}
			if _, err := out.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		var id uint32
		return p.objects.Stacks.NextKey(nil, &id) == nil
	}
	for deadline := time.Now().Add(time.Minute); !stacks(waits.Pipe); {
		if time.Now().After(deadline) {
			t.Fatal("no stacks of waits for pipes")
		}
	}
	if stacks(waits.File) {
		t.Error("stacks of waits for pipes, though only those for files are wanted")
	}
}

// A wait loses its stack if the stack is deleted before the wait ends, because another stack may have reused the ID.
func TestForgottenStacks(t *testing.T) {
	p := open(t, Options{StackPeriod: 1})
	pid, in, out := startCat(t)
	apply(t, p, pid, everything, waits.Thresholds{waits.Pipe: 1})
	waitForInput := func() {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			r, err := p.Read()
			if err != nil || time.Now().After(deadline) {
				t.Fatalf("cat does not wait for its input: %v", err)
			}
			if slices.ContainsFunc(r.Open, func(o waits.Open) bool { return o.TGID == pid && o.Class == waits.Pipe }) {
				return
			}
		}
	}
	for i, forgets := range []bool{false, false, true, false} {
		if waitForInput(); forgets {
			if err := p.ForgetStacks(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := io.WriteString(in, "line\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := out.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		stacks := 0
		err := p.Events(func(e waits.Event) {
			if e.TGID == pid && e.Class == waits.Pipe && e.Stack >= 0 {
				stacks++
			}
		})
		if err != nil || i > 0 && (stacks == 0) != forgets { // the first wait started before the observation
			t.Errorf("wait %d: %d stacks, %v; forgotten: %t", i, stacks, err, forgets)
		}
	}
}
