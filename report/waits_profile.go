package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/internal/terminal"
)

// noStack is the frame for time without a sampled stack.
const noStack = "[no stack]"

// WaitsPprof writes the time of each stack in r as a gzipped pprof profile, with the labels class, syscall and pid. The
// innermost frame is the reason, and the outermost frame is the process.
func WaitsPprof(w io.Writer, r *waits.Report) error {
	b := describe.NewProfileBuilder("time of threads by reason and sampled stack", "waits", "time")
	for _, s := range stackTimes(r) {
		labels := map[string][]string{"class": {s.Class.String()}, "pid": {strconv.FormatUint(uint64(s.PID), 10)}}
		if name := r.Syscalls[s.Syscall]; name != "" {
			labels["syscall"] = []string{name}
		}
		b.Add(int64(s.Count), int64(s.TotalNs), labels, s.Frames)
	}
	return b.Write(w)
}

// WaitsFolded writes the time of each stack in r, in nanoseconds, as folded stacks, outermost frame first.
func WaitsFolded(w io.Writer, r *waits.Report) error {
	out := bufio.NewWriter(w)
	for _, s := range stackTimes(r) {
		slices.Reverse(s.Frames)
		fmt.Fprintf(out, "%s %d\n", describe.FoldedStack(s.Frames), s.TotalNs)
	}
	return out.Flush()
}

// stackTimes returns the sampled stacks in r, with the reason as the innermost and the process as the outermost frame.
// It assigns the remaining time of each reason to noStack.
func stackTimes(r *waits.Report) []waits.Stack {
	type reason struct {
		pid     uint32
		class   waits.Class
		syscall int32
	}
	sampled := make(map[reason]waits.StackSum)
	var all []waits.Stack
	for _, s := range r.Stacks {
		k := reason{s.PID, s.Class, s.Syscall}
		sum := sampled[k]
		sampled[k] = waits.StackSum{Count: sum.Count + s.Count, TotalNs: sum.TotalNs + s.TotalNs}
		if len(s.Frames) == 0 {
			s.Frames = []string{noStack}
		}
		all = append(all, s)
	}
	for i := range r.Processes {
		p := &r.Processes[i]
		turns := p.Totals[waits.RunQueue] // run-queue time after waits belongs to no call
		for j := range p.Calls {
			c := &p.Calls[j]
			if c.Class == waits.RunQueue {
				turns.Count, turns.TotalNs = turns.Count-c.Count, turns.TotalNs-c.TotalNs
			}
			sum := sampled[reason{p.PID, c.Class, c.Syscall}]
			if c.TotalNs <= sum.TotalNs {
				continue
			}
			rest := waits.Stack{
				PID:     p.PID,
				Comm:    p.Comm,
				Class:   c.Class,
				Syscall: c.Syscall,
				Frames:  []string{noStack},
				TotalNs: c.TotalNs - sum.TotalNs,
			}
			rest.Count = c.Count - min(c.Count, sum.Count)
			all = append(all, rest)
		}
		if turns.TotalNs > 0 {
			all = append(all, waits.Stack{
				PID:     p.PID,
				Comm:    p.Comm,
				Class:   waits.RunQueue,
				Syscall: waits.NoSyscall,
				Frames:  []string{noStack},
				Count:   turns.Count,
				TotalNs: turns.TotalNs,
			})
		}
	}
	for i := range all {
		s := &all[i]
		frames := append([]string{"[" + r.Reason(s.Class, s.Syscall) + "]"}, s.Frames...)
		s.Frames = append(frames, s.Comm+" ("+strconv.FormatUint(uint64(s.PID), 10)+")")
		for j, f := range s.Frames {
			s.Frames[j] = terminal.Printable(strings.ToValidUTF8(f, "\uFFFD"))
		}
	}
	return all
}
