package symbols

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
)

// clock is a time that never passes.
func clock() time.Time { return time.Unix(0, 0) }

// The functions of this process have their names, by the line table or the symbols of the test binary.
func TestOwnNames(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs the proc file system of Linux")
	}
	r := NewResolver("/proc", clock)
	address := uint64(reflect.ValueOf(TestOwnNames).Pointer())
	names := r.Names(uint32(os.Getpid()), []uint64{address, address + 2, 1})
	for _, name := range names[:2] {
		if !strings.HasSuffix(name, "symbols.TestOwnNames") {
			t.Errorf("%q", name)
		}
	}
	if names[2] != "0x0" {
		t.Errorf("%q for an address without a mapping", names[2])
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

// Perf maps name the code of just-in-time compilers, by the ID of the process in its own namespace; the last entry for
// an address counts. Broken lines are passed over.
func TestPerfMap(t *testing.T) {
	r := fake(t, map[string]string{
		"maps":   "00001000-00002000 rwxp 00000000 00:00 0\n00003000-00004000 r-xp 00000000 00:00 0 [vdso]\nbroken\n5-zz r-xp 0 00:00 0\n",
		"status": "Name:\tnode\nNSpid:\t7\t1\n",
		"root/tmp/perf-1.map": "1000 10 old\n1000 10 first function\n0x1020 8 LazyCompile:~second app.js:1\nxyz 1 broken\n1030 0 empty\n" +
			"1040 10\n",
	})
	got := r.Names(7, []uint64{0x1000, 0x1021 + 1, 0x1011 + 1, 0x3001, 0x9000})
	want := []string{"first function", "LazyCompile:~second app.js:1", "0x1011", "[vdso]", "0x8fff"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A perf map that leads out of the process's root is not read.
func TestPerfMapLeadsOut(t *testing.T) {
	r := fake(t, map[string]string{"maps": "00001000-00002000 rwxp 00000000 00:00 0\n", "root/tmp/x": ""})
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("1000 10 secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(r.proc, "7", "root", "tmp", "perf-7.map")); err != nil {
		t.Skip(err)
	}
	if got := r.Names(7, []uint64{0x1004}); got[0] != "0x1004" {
		t.Errorf("%q", got)
	}
}

// A process that has ended keeps the names of its files.
func TestUnreadableFile(t *testing.T) {
	r := fake(t, map[string]string{"maps": "00001000-00002000 r-xp 00000400 08:01 12 /usr/lib/some lib.so (deleted)\n"})
	if got, want := r.Names(7, []uint64{0x1010})[0], "some lib.so+0x410"; got != want {
		t.Errorf("%q, want %q", got, want)
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
