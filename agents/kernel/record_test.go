//go:build linux

package kernel

import (
	"bytes"
	"encoding/binary"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/sibyl-trace/sibyl/agents/kernel/bpf"
	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

var rewrite = flag.Bool("rewrite", false, "record the testdata of package waits")

// The layout of the records that package waits decodes is the same as in C.
func TestLayout(t *testing.T) {
	for _, c := range []struct{ ours, generated any }{
		{waits.Event{}, bpf.WaitEvent{}},
		{waits.Open{}, bpf.WaitOpen{}},
		{waits.Key{}, bpf.WaitSumKey{}},
		{waits.Sum{}, bpf.WaitSum{}},
		{waits.StackKey{}, bpf.WaitStackKey{}},
		{waits.StackSum{}, bpf.WaitStackSum{}},
		{waits.MissingKey{}, bpf.WaitMissingKey{}},
		{waits.Missed{}, bpf.WaitMissed{}},
	} {
		ours, generated := reflect.TypeOf(c.ours), reflect.TypeOf(c.generated)
		var offsets, want []uintptr
		for f := range ours.Fields() {
			offsets = append(offsets, f.Offset)
		}
		for f := range generated.Fields() {
			if f.Type.Size() > 0 { // not structs.HostLayout
				want = append(want, f.Offset)
			}
		}
		if ours.Size() != generated.Size() || !reflect.DeepEqual(offsets, want) {
			t.Errorf("%s: %d bytes, fields at %d; %s: %d bytes, fields at %d",
				ours, ours.Size(), offsets, generated, generated.Size(), want)
		}
	}
	if n := binary.Size(waits.Event{}); n != waits.EventSize {
		t.Errorf("EventSize is %d, want %d", waits.EventSize, n)
	}
	if n := binary.Size(waits.Open{}); n != waits.OpenSize {
		t.Errorf("OpenSize is %d, want %d", waits.OpenSize, n)
	}
	if n := binary.Size(waits.Sum{}); n != waits.SumSize {
		t.Errorf("SumSize is %d, want %d", waits.SumSize, n)
	}
	if n := len(bpf.WaitTarget{}.ThresholdNs); n != waits.NumClasses {
		t.Errorf("%d classes in C, want %d", n, waits.NumClasses)
	}
}

// TestRecord, with -rewrite, records the bytes of all events, states and sums of the truth workload.
func TestRecord(t *testing.T) {
	if !*rewrite {
		t.Skip("only with -rewrite")
	}
	p := open(t, Options{})
	w := start(t, "truth")
	apply(t, p, w.pid, everything,
		waits.Thresholds{waits.RunQueue: 20e6, waits.Net: 1e6, waits.DNS: 1e6, waits.Sync: 1e6, waits.Futex: 19e6})
	w.goOn()
	w.line()
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	r, err := p.Read()
	if err != nil {
		t.Fatal(err)
	}
	var events, open, sums bytes.Buffer
	if err := p.Events(func(e waits.Event) { put(t, &events, e) }); err != nil {
		t.Fatal(err)
	}
	put(t, &open, r.Open)
	for k, s := range r.Sums {
		put(t, &sums, k)
		put(t, &sums, s)
	}
	for name, b := range map[string]*bytes.Buffer{"events": &events, "open": &open, "sums": &sums} {
		if err := os.WriteFile(filepath.Join("waits", "testdata", name+".bin"), b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func put(t *testing.T, to *bytes.Buffer, x any) {
	t.Helper()
	if err := binary.Write(to, binary.LittleEndian, x); err != nil {
		t.Fatal(err)
	}
}
