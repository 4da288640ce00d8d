package symbols

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/agents/kernel/untrusted"
)

// clock is a time that never passes.
func clock() time.Time { return time.Unix(0, 0) }

// Functions of this process are named by the line table or the symbols of the test binary.
func TestOwnNames(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs the proc file system of Linux")
	}
	r := NewResolver("/proc", clock)
	address := uint64(reflect.ValueOf(TestOwnNames).Pointer())
	names, final := r.Names(uint32(os.Getpid()), []uint64{address, address + 2, 1})
	if !final {
		t.Skip("the machine is too busy")
	}
	for _, name := range names[:2] {
		if !strings.HasSuffix(name, "symbols.TestOwnNames") {
			t.Errorf("%q", name)
		}
	}
	if len(names) != 2 {
		t.Errorf("%q for an address without a mapping", names[2:])
	}
}

// fake writes the files of a process below a folder like /proc.
func fake(t *testing.T, files map[string]string) *Resolver {
	t.Helper()
	proc := t.TempDir()
	for name, text := range files {
		name = filepath.Join(proc, "7", name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return NewResolver(proc, clock)
}

// Perf maps name the code of just-in-time compilers. The ID in their file name is the process's ID in its own
// namespace. The last entry for an address counts. Broken lines are ignored.
func TestPerfMap(t *testing.T) {
	r := fake(t, map[string]string{
		"maps": "00001000-00002000 rwxp 00000000 00:00 0\n" +
			"00003000-00004000 r-xp 00000000 00:00 0 [vdso]\nbroken\n5-zz r-xp 0 00:00 0\n",
		"status": "Name:\tnode\nNSpid:\t7\t1\n",
		"root/tmp/perf-1.map": "1000 10 old\n1000 10 first function\n0x1020 8 LazyCompile:~second app.js:1\n" +
			"xyz 1 broken\n1030 0 empty\n1040 10\n",
	})
	got, _ := r.Names(7, []uint64{0x1000, 0x1021 + 1, 0x1011 + 1, 0x3001, 0x9000, 0x1000})
	want := []string{"first function", "LazyCompile:~second app.js:1", "0x1011", "[vdso]"} // 0x9000 isn't code
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A perf map that is a link out of the process's root isn't read.
func TestPerfMapLeadsOut(t *testing.T) {
	r := fake(t, map[string]string{"maps": "00001000-00002000 rwxp 00000000 00:00 0\n", "root/tmp/x": ""})
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("1000 10 secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(r.proc, "7", "root", "tmp", "perf-7.map")); err != nil {
		t.Skip(err)
	}
	if got, _ := r.Names(7, []uint64{0x1004}); got[0] != "0x1004" {
		t.Errorf("%q", got)
	}
}

// A perf map of another user isn't read: anybody can write one for a process that starts later.
func TestPerfMapOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to give a file away")
	}
	r := fake(t, map[string]string{
		"maps": "00001000-00002000 rwxp 00000000 00:00 0\n", "root/tmp/perf-7.map": "1000 10 forged\n",
	})
	if err := os.Chown(filepath.Join(r.proc, "7", "root", "tmp", "perf-7.map"), 65534, 65534); err != nil {
		t.Skip(err)
	}
	if got, _ := r.Names(7, []uint64{0x1004}); got[0] != "0x1004" {
		t.Errorf("%q", got)
	}
}

// A process that has ended keeps the names of its files.
func TestUnreadableFile(t *testing.T) {
	r := fake(t, map[string]string{"maps": "00001000-00002000 r-xp 00000400 08:01 12 /usr/lib/some lib.so (deleted)\n"})
	if got, _ := r.Names(7, []uint64{0x1010}); got[0] != "some lib.so+0x410" {
		t.Errorf("%q", got)
	}
}

// A Go program without symbols has names from its line table.
func TestStrippedGo(t *testing.T) {
	folder := t.TempDir()
	source, program := filepath.Join(folder, "main.go"), filepath.Join(folder, "main")
	if err := os.WriteFile(source, []byte("package main\n\n//go:noinline\nfunc wait() {}\n\nfunc main() { wait() }\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", program, source)
	build.Env = append(os.Environ(), "GOOS=linux")
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("%v\n%s", err, out)
	}
	f, err := os.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	x := readELF(f)
	for i, y := range x.functions {
		if i := i + 1; y.name == "main.wait" {
			if got, ok := x.at(y.start); !ok || got != "main.wait" ||
				i < len(x.functions) && y.end > x.functions[i].start {
				t.Errorf("%q, %t, up to %x, the next one from %x", got, ok, y.end, x.functions[i].start)
			}
			return
		}
	}
	t.Errorf("none of %d functions is main.wait", len(x.functions))
}

// A perf map of any size takes bounded memory, with names of bounded length.
func TestLongNames(t *testing.T) {
	var text strings.Builder
	name := strings.Repeat("n", 1000) + "\xff"
	for i := range 2000 {
		fmt.Fprintf(&text, "%x 10 %s\n", 0x1000+16*i, name)
	}
	r := fake(t, map[string]string{
		"maps": "00001000-00900000 rwxp 00000000 00:00 0\n", "root/tmp/perf-7.map": text.String(),
	})
	if got, _ := r.Names(7, []uint64{0x1004}); got[0] != name[:untrusted.MaxName] {
		t.Errorf("%q", got)
	}
	if n := r.memory(); n < 2000*untrusted.MaxName || n > 3000*untrusted.MaxName {
		t.Errorf("%d bytes", n)
	}
	x := &table{}
	for i := range uint64(maxTable / 40) {
		x.add(i+1, 1, "n")
	}
	if x.size > maxTable+1000 {
		t.Errorf("%d bytes", x.size)
	}
}

// All files and processes share one budget.
func TestMemory(t *testing.T) {
	r := fake(t, map[string]string{
		"maps": "00001000-00900000 rwxp 00000000 00:00 0\n", "root/tmp/perf-7.map": "1000 10 name\n",
	})
	r.files[fileID{"08:01", 1}] = &reading{table: &table{size: maxMemory / 2}}
	r.processes[8] = &process{perf: &reading{table: &table{size: maxMemory / 2}}}
	if got, _ := r.Names(7, []uint64{0x1004}); got[0] != "name" || r.memory() != 0 {
		t.Errorf("%q, %d bytes", got, r.memory())
	}
}

// A pipe in place of a perf map doesn't block.
func TestPipe(t *testing.T) {
	r := fake(t, map[string]string{"maps": "00001000-00002000 rwxp 00000000 00:00 0\n", "root/tmp/x": ""})
	if err := syscall.Mkfifo(filepath.Join(r.proc, "7", "root", "tmp", "perf-7.map"), 0o600); err != nil {
		t.Skip(err)
	}
	deadline := time.AfterFunc(time.Minute, func() { panic("it waits for a writer of the pipe") })
	defer deadline.Stop()
	if got, final := r.Names(7, []uint64{0x1004}); got[0] != "0x1004" || !final {
		t.Errorf("%q, final %t", got, final)
	}
}

// Mappings that can't be read, because their process prevents it, don't block.
func TestProcessDoesNotAnswer(t *testing.T) {
	r := fake(t, map[string]string{"x": ""})
	r.inspector.Patience = time.Millisecond
	maps := filepath.Join(r.proc, "7", "maps")
	if err := syscall.Mkfifo(maps, 0o600); err != nil {
		t.Skip(err)
	}
	deadline := time.AfterFunc(time.Minute, func() { panic("it waits for the process") })
	defer deadline.Stop()
	for range 3 {
		if got, final := r.Names(7, []uint64{0x1004}); got[0] != "0x1004" || final {
			t.Errorf("%q, final %t", got, final)
		}
	}
	if f, err := os.OpenFile(maps, os.O_WRONLY, 0); err == nil { // the reader ends
		_ = f.Close()
	}
}

// A program that a process becomes by exec has its own symbols.
func TestRenew(t *testing.T) {
	r := fake(t, map[string]string{
		"maps": "00001000-00002000 r-xp 00000000 00:00 0 [first]\n", "stat": "7 (a) S " + strings.Repeat("0 ", 50),
	})
	before, _ := r.Names(7, []uint64{0x1004})
	if r.Renew(7) {
		t.Error("it is the same program")
	}
	other := map[string]string{
		"maps": "00001000-00002000 r-xp 00000000 00:00 0 [second]\n", "stat": "7 (a) S " + strings.Repeat("1 ", 50),
	}
	for name, text := range other {
		if err := os.WriteFile(filepath.Join(r.proc, "7", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if !r.Renew(7) {
		t.Error("it is another program")
	}
	if after, _ := r.Names(7, []uint64{0x1004}); before[0] != "[first]" || after[0] != "[second]" {
		t.Errorf("%q, then %q", before, after)
	}
}

// Broken ELF files have no names, and never cause a panic.
func FuzzELF(f *testing.F) {
	own, err := os.Executable()
	if err != nil {
		f.Fatal(err)
	}
	b, err := os.ReadFile(own)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b[:min(len(b), 4096)])
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(_ *testing.T, b []byte) {
		t := readELF(bytes.NewReader(b))
		for _, a := range []uint64{0, 1, 0x400000, 1 << 63} {
			_, _ = t.at(a)
			_, _ = t.atOffset(a)
		}
		_ = fmt.Sprint(len(parseMappings(bytes.NewReader(b))))
	})
}
