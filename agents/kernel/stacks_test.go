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

// Waits whose classes nobody wants take no room for stacks from others.
func TestStacksOfWantedClasses(t *testing.T) {
	for _, classes := range []waits.Set{waits.Set(0).With(waits.File), waits.Set(0).With(waits.Pipe)} {
		p := open(t, Options{StackPeriod: 1})
		c := exec.Command("cat")
		in, out := startPiped(t, c)
		pid := uint32(c.Process.Pid)
		apply(t, p, pid, Target{Classes: classes, Stacks: true}, waits.Thresholds{})
		lines := bufio.NewReader(out)
		for range 20 {
			if _, err := io.WriteString(in, "line\n"); err != nil {
				t.Fatal(err)
			}
			if _, err := lines.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		_ = in.Close()
		_ = c.Wait()
		var id uint32
		some := p.objects.Stacks.NextKey(nil, &id) == nil
		if some != classes.Has(waits.Pipe) {
			t.Errorf("stacks of waits for pipes: %t, wanted are classes %b", some, classes)
		}
	}
}

// A wait loses its stack if that is deleted before its end: another stack may have taken the identity.
func TestForgottenStacks(t *testing.T) {
	p := open(t, Options{StackPeriod: 1})
	c := exec.Command("cat")
	in, out := startPiped(t, c)
	t.Cleanup(func() {
		_ = in.Close()
		_ = c.Wait()
	})
	pid := uint32(c.Process.Pid)
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
	lines := bufio.NewReader(out)
	for i, forgets := range []bool{false, false, true, false} {
		if waitForInput(); forgets {
			if err := p.ForgetStacks(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := io.WriteString(in, "line\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		stacks := 0
		err := p.Events(func(e waits.Event) {
			if e.TGID == pid && e.Class == waits.Pipe && e.Stack >= 0 {
				stacks++
			}
		})
		if err != nil || i > 0 && (stacks == 0) != forgets { // the first wait began before the observation
			t.Errorf("wait %d: %d stacks, %v; forgotten: %t", i, stacks, err, forgets)
		}
	}
}
