//go:build amd64 || arm64

package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// batchSize is the number of entries of a map that one call reads. It exceeds the number of entries in any bucket of a
// map.
const batchSize = 4096

// batches holds buffers for reading maps.
type batches struct {
	keys      []waits.Key
	sums      []waits.Sum
	stackKeys []waits.StackKey
	stackSums []waits.StackSum
	missing   []waits.MissingKey
	missed    []waits.Missed
	record    ringbuf.Record
}

// Read returns all sums, including the time that running threads have spent on a CPU so far, and the states of all
// threads just before the sums were read.
func (p *Probes) Read() (waits.Reading, error) {
	open, onCPU, err := p.threads()
	if err != nil {
		return waits.Reading{}, err
	}
	b := &p.batch
	if b.keys == nil {
		b.keys, b.sums = make([]waits.Key, batchSize), make([]waits.Sum, batchSize)
	}
	sums, err := readMap(p.objects.Sums, b.keys, b.sums)
	if err != nil {
		return waits.Reading{}, fmt.Errorf("read the sums: %w", err)
	}
	for i := range open {
		k := waits.Key{TGID: open[i].TGID, TID: open[i].TID, Syscall: waits.NoSyscall, Class: waits.OnCPU}
		ended := sums[k] // of the thread itself, if it has ended since, or of an earlier thread with its number
		if onCPU[i].Count == 0 || ended.Last > open[i].Now {
			continue
		}
		onCPU[i].Add(&ended)
		onCPU[i].Comm = open[i].Comm
		sums[k] = onCPU[i]
	}
	return waits.Reading{Open: open, Sums: sums}, nil
}

// threads returns the states of all threads of the targets, and the sums of their times on CPUs. It makes the programs
// observe threads that they don't observe yet.
func (p *Probes) threads() (open []waits.Open, onCPU []waits.Sum, err error) {
	f, err := p.states.Open()
	if err != nil {
		return nil, nil, fmt.Errorf("read the states of threads: %w", err)
	}
	var text bytes.Buffer
	_, err = io.Copy(&text, f)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, nil, fmt.Errorf("read the states of threads: %w", err)
	}
	return waits.DecodeThreads(text.Bytes())
}

// Delete deletes sums of threads that have ended.
func (p *Probes) Delete(keys []waits.Key) error {
	for part := range slices.Chunk(keys, batchSize) {
		if _, err := p.objects.Sums.BatchDelete(part, nil); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete sums: %w", err)
		}
	}
	return nil
}

// Stacks returns the sums of sampled stacks.
func (p *Probes) Stacks() (map[waits.StackKey]waits.StackSum, error) {
	b := &p.batch
	if b.stackKeys == nil {
		b.stackKeys, b.stackSums = make([]waits.StackKey, batchSize), make([]waits.StackSum, batchSize)
	}
	sums, err := readMap(p.objects.StackSums, b.stackKeys, b.stackSums)
	if err != nil {
		return nil, fmt.Errorf("read the sums of stacks: %w", err)
	}
	return sums, nil
}

// DeleteStackSums deletes sums of sampled stacks.
func (p *Probes) DeleteStackSums(sums map[waits.StackKey]waits.StackSum) error {
	for k := range sums {
		if err := p.objects.StackSums.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete the sums of stacks: %w", err)
		}
	}
	return nil
}

// ForgetStacks deletes all stacks to make room. Waits that currently refer to a stack lose it, because another stack
// may reuse its ID.
func (p *Probes) ForgetStacks() error {
	var id, next uint32
	err := p.objects.Stacks.NextKey(nil, &next)
	for err == nil {
		id = next
		err = p.objects.Stacks.NextKey(id, &next)
		if deleted := p.objects.Stacks.Delete(id); deleted != nil && !errors.Is(deleted, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete stacks: %w", deleted)
		}
	}
	if !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("delete stacks: %w", err)
	}
	now, err := monotonic()
	if err != nil {
		return err
	}
	if err := p.objects.Forgotten.Set(now); err != nil {
		return fmt.Errorf("record the time at which stacks were deleted: %w", err)
	}
	return nil
}

// maxFrames is the depth of stacks, as in bpf/wait.bpf.c.
const maxFrames = 127

// Stack returns the addresses of a stack, innermost first. The result is empty if the stack has been deleted.
func (p *Probes) Stack(id int32) ([]uint64, error) {
	var frames [maxFrames]uint64
	if err := p.objects.Stacks.Lookup(uint32(id), &frames); err != nil {
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil, nil
		}
		return nil, fmt.Errorf("read stack %d: %w", id, err)
	}
	if end := slices.Index(frames[:], 0); end >= 0 {
		return frames[:end], nil
	}
	return frames[:], nil
}

// Events removes all intervals from the ring buffer and calls each for every interval. It doesn't wait for more.
func (p *Probes) Events(each func(waits.Event)) error {
	p.ring.SetDeadline(time.Unix(1, 0)) // past: don't wait
	for {
		err := p.ring.ReadInto(&p.batch.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the ring buffer: %w", err)
		}
		e, err := waits.DecodeEvent(p.batch.record.RawSample)
		if err != nil {
			return err
		}
		each(e)
	}
}

// maxMissing is the size of the map of missing events.
const maxMissing = 4096

// Missing returns the number and total duration of the individual intervals lost since the previous call, by process,
// class and cause.
func (p *Probes) Missing() (map[waits.MissingKey]waits.Missed, error) {
	b := &p.batch
	if b.missing == nil {
		b.missing, b.missed = make([]waits.MissingKey, maxMissing), make([]waits.Missed, maxMissing)
	}
	var cursor ebpf.MapBatchCursor
	n, err := p.objects.Missing.BatchLookupAndDelete(&cursor, b.missing, b.missed, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) { // the end
		return nil, fmt.Errorf("read the missing intervals: %w", err)
	}
	all := make(map[waits.MissingKey]waits.Missed, n)
	for i := range n {
		all[b.missing[i]] = b.missed[i]
	}
	return all, nil
}

// Others reports whether another process on this machine has loaded the same probes. It returns false if the process
// lacks the capabilities for finding out.
func (p *Probes) Others() bool {
	own, err := p.objects.Switched.Info()
	if err != nil {
		return false
	}
	ownID, _ := own.ID()
	for id := ebpf.ProgramID(0); ; {
		if id, err = ebpf.ProgramGetNextID(id); err != nil {
			return false // the end, or no permission
		}
		if id == ownID {
			continue
		}
		other, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue // it has been removed
		}
		info, err := other.Info()
		_ = other.Close()
		if err == nil && info.Name == own.Name && info.Tag == own.Tag {
			return true
		}
	}
}

// Changes returns the total number of targets that the programs have changed because a process ended, started another
// process, or ran another program. Call [Probes.Apply] to restore the specification.
func (p *Probes) Changes() (n uint64) {
	if err := p.objects.Changes.Get(&n); err != nil {
		return p.until // unknown, so assume changes
	}
	return n
}

// Losses returns the number of records lost since the programs were loaded.
func (p *Probes) Losses() (waits.Losses, error) {
	l := waits.Losses{Gaps: p.gaps}
	v := &p.objects.WaitVariables
	for _, c := range []struct {
		from *ebpf.Variable
		to   *uint64
	}{
		{v.LostEvents, &l.Events},
		{v.LimitedEvents, &l.Limited},
		{v.LostSums, &l.Sums},
		{v.LostThreads, &l.Threads},
		{v.LostStacks, &l.Stacks},
		{v.LostTargets, &l.Children},
		{v.LostMissing, &l.Uncounted},
		{v.LostSwitches, &l.Switches},
		{v.UnseenSwitches, &l.Unseen},
	} {
		if err := c.from.Get(c.to); err != nil {
			return waits.Losses{}, fmt.Errorf("read losses: %w", err)
		}
	}
	for _, program := range p.tracepoints() {
		s, err := program.Stats()
		if err != nil {
			return waits.Losses{}, fmt.Errorf("read statistics of %s: %w", program, err)
		}
		l.Missed += s.RecursionMisses
	}
	l.Children += p.lost
	return l, nil
}

// runs returns the number and the duration of the runs of the programs while the kernel kept statistics.
func (p *Probes) runs() (all runs, err error) {
	for _, program := range append(p.tracepoints(), p.objects.Sampled) {
		s, err := program.Stats()
		if err != nil {
			return runs{}, fmt.Errorf("read statistics of %s: %w", program, err)
		}
		all.count += s.RunCount
		all.time += s.Runtime
	}
	return all, nil
}

// readMap returns the entries of a map, read in batches into keys and values. The result isn't a consistent snapshot if
// entries change during the call.
func readMap[K comparable, V any](m *ebpf.Map, keys []K, values []V) (map[K]V, error) {
	all := make(map[K]V)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			all[keys[i]] = values[i]
		}
		switch {
		case errors.Is(err, ebpf.ErrKeyNotExist):
			return all, nil
		case err != nil:
			return nil, err
		}
	}
}
