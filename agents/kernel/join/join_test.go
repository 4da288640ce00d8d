package join

import (
	"bytes"
	"debug/dwarf"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"go/version"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/agents/kernel/untrusted"
	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// The offsets in the table agree with the toolchain that runs this test.
func TestOffsets(t *testing.T) {
	folder := t.TempDir()
	source, program := filepath.Join(folder, "main.go"), filepath.Join(folder, "main")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, source).CombinedOutput(); err != nil {
		t.Skipf("%v\n%s", err, out)
	}
	file, err := os.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	f, err := untrusted.NewELF(file)
	if err != nil {
		t.Skip(err)
	}
	sections, err := debugInformation(f)
	if err != nil {
		t.Fatal(err)
	}
	got, err := readOffsets(sections, f.ByteOrder)
	if err != nil {
		t.Fatal(err)
	}
	lang := version.Lang(runtime.Version())
	want, ok := knownOffsets[lang]
	if !ok {
		t.Fatalf("%s is not in the table: add %+v", lang, got)
	}
	if got != want {
		t.Errorf("offsets %+v, the table has %+v", got, want)
	}
}

// Pointers to pointers aren't followed, because the depth of the recursion would be unbounded.
func TestDeepTypes(t *testing.T) {
	const compileUnit, structure, member, pointer, leaf = 1, 2, 3, 4, 5
	abbrev := []byte{
		compileUnit, byte(dwarf.TagCompileUnit), 1, 0, 0,
		structure, byte(dwarf.TagStructType), 1, byte(dwarf.AttrName), 8, 0, 0, // string
		member, byte(dwarf.TagMember), 0, byte(dwarf.AttrName), 8,
		byte(dwarf.AttrDataMemberLoc), 0xb, byte(dwarf.AttrType), 0x13, 0, 0, // data1, ref4
		pointer, byte(dwarf.TagPointerType), 0, byte(dwarf.AttrType), 0x13, 0, 0,
		leaf, byte(dwarf.TagBaseType), 0, 0, 0, 0,
	}
	info := []byte{0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 8, compileUnit}
	members := func(name string, list ...string) {
		info = append(append(append(info, structure), name...), 0)
		for i, m := range list {
			info = append(append(append(info, member), m...), 0, byte(8*(i+1)), 0, 0, 0, 0)
			binary.LittleEndian.PutUint32(info[len(info)-4:], 200)
		}
		info = append(info, 0)
	}
	members("runtime.g", "m", "labels")
	members("other", "curg")
	members("runtime.m", "x", "curg")
	for len(info) < 200 {
		info = append(info, leaf)
	}
	for range 4 << 20 {
		info = append(info, pointer)
		info = binary.LittleEndian.AppendUint32(info, uint32(len(info)+4))
	}
	info = append(info, leaf, 0)
	binary.LittleEndian.PutUint32(info, uint32(len(info)-4))
	sections := map[string][]byte{"abbrev": abbrev, "info": info}
	if got, err := readOffsets(sections, binary.LittleEndian); err != nil ||
		got != (Context{Kind: GoLabels, M: 8, Labels: 16, Curg: 16}) {
		t.Errorf("%+v, %v", got, err)
	}
	sections["info"] = info[:len(info)/2]
	if got, err := readOffsets(sections, binary.LittleEndian); err == nil {
		t.Errorf("the unit ends early: %+v", got)
	}
}

// A process that prevents reading its memory or files yields nothing, but doesn't delay others. A late answer still
// counts.
func TestProcessDoesNotAnswer(t *testing.T) {
	proc := t.TempDir()
	fakeProcess(t, proc, "1")
	environ := filepath.Join(proc, "7", "environ")
	if err := os.Remove(environ); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(environ, 0o600); err != nil {
		t.Skip(err)
	}
	j := NewJoiner(proc, "", "here")
	j.Inspector.Patience = time.Millisecond
	deadline := time.AfterFunc(time.Minute, func() { panic("it waits for the process") })
	for range 3 {
		if s := j.Service(7); s != nil {
			t.Errorf("service %+v", s)
		}
		if _, first, err := j.Context(7); first || !errors.Is(err, errNoAnswer) {
			t.Errorf("first %t, %v", first, err)
		}
	}
	f, err := os.OpenFile(environ, os.O_WRONLY, 0) // the reader has opened it once
	if err == nil {
		_, err = f.WriteString("OTEL_SERVICE_NAME=late")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	deadline.Stop()
	for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() {
		if s := j.Service(7); s != nil && s.Name == "late" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the late answer does not count")
		}
	}
}

// A mapping whose name is a pipe, or a link out of the process's root, isn't a library.
func TestHostileLibraries(t *testing.T) {
	proc := t.TempDir()
	fakeProcess(t, proc, "1")
	root := filepath.Join(proc, "7", "root")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	err := errors.Join(
		syscall.Mkfifo(filepath.Join(root, `x.so\012`), 0o600), os.Symlink("/dev/zero", filepath.Join(root, "y.so")))
	if err != nil {
		t.Skip(err)
	}
	maps := "1000-2000 r-xp 00000000 08:01 1 /x.so\\012\n3000-4000 r-xp 00000000 08:01 2 /y.so\n"
	if err := os.WriteFile(filepath.Join(proc, "7", "maps"), []byte(maps), 0o600); err != nil {
		t.Fatal(err)
	}
	deadline := time.AfterFunc(time.Minute, func() { panic("it waits for a writer of the pipe") })
	defer deadline.Stop()
	if c, err := libraryContext(filepath.Join(proc, "7")); runtime.GOARCH == "amd64" && !errors.Is(err, errNoRecord) {
		t.Errorf("%+v, %v", c, err)
	}
}

// A program that a process becomes by exec is a different one, even if the file is the same.
func TestExec(t *testing.T) {
	proc := t.TempDir()
	fakeProcess(t, proc, "1")
	stat, environ := filepath.Join(proc, "7", "stat"), filepath.Join(proc, "7", "environ")
	start := func(environment int, service string) {
		text := fmt.Sprintf("7 (a) S %s1 %s%d 0", strings.Repeat("0 ", 18), strings.Repeat("0 ", 27), environment)
		if err := errors.Join(os.WriteFile(stat, []byte(text), 0o600),
			os.WriteFile(environ, []byte("OTEL_SERVICE_NAME="+service), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	j := NewJoiner(proc, "", "here")
	for i, name := range []string{"worker-a", "worker-b"} {
		start(1000+i, name)
		if s := j.Service(7); s == nil || s.Name != name {
			t.Errorf("%+v, want %s", s, name)
		}
	}
}

// A Go program has a context. A program in another language has no context, but a reason.
func TestContext(t *testing.T) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("goroutines are read on amd64 only")
	}
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if c, err := findContext(own); err != nil || c.Kind != GoLabels || c.TLS >= 0 || c.Labels == 0 {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := findContext("/bin/sh"); err == nil || c != (Context{}) {
		t.Errorf("%+v, %v", c, err)
	}
}

// Versions of Go whose labels can't be read are refused, with the reason.
func TestGoVersions(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("goroutines are read on amd64 only")
	}
	f := &untrusted.ELF{File: &elf.File{FileHeader: elf.FileHeader{Machine: elf.EM_X86_64}}}
	for goVersion, want := range map[string]string{
		"go1.23.4":           "it is built by go1.23.4; go1.24 or later is needed",
		"go1.21.0 X:nocover": "it is built by go1.21.0; go1.24 or later is needed",
		"devel go1.27-abc":   "only releases are supported",
		"go1.25.1":           "without debug information",
	} {
		if c, err := goContext(f, goVersion); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v; want %s", goVersion, c, err, want)
		}
	}
	if c, err := goContext(f, "go1.26.3"); err != nil || c.Kind != GoLabels {
		t.Errorf("%+v, %v", c, err)
	}
}

// The name in the process takes precedence over the given one, and its host over this machine's.
func TestService(t *testing.T) {
	for _, c := range []struct{ environment, option, want string }{
		{"OTEL_SERVICE_NAME=orders", "stock", "host.name=here process.pid=7 service.name=orders"},
		{"PATH=/bin", "stock", "host.name=here process.pid=7 service.name=stock"},
		{"PATH=/bin", "", ""},
		{"OTEL_RESOURCE_ATTRIBUTES=service.name=a,host.name=there", "", "host.name=there process.pid=7 service.name=a"},
	} {
		proc := t.TempDir()
		fakeProcess(t, proc, "1")
		if err := os.WriteFile(filepath.Join(proc, "7", "environ"), []byte(c.environment), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := readService(proc, 7, c.option, "here", false)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		if s != nil {
			for _, a := range s.Attributes {
				got = append(got, a.Key+"="+a.Value)
			}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%q: %q, want %q", c.environment, text, c.want)
		}
	}
}

// fakeProcess writes the files of a process.
func fakeProcess(t *testing.T, proc, start string) {
	t.Helper()
	folder := filepath.Join(proc, "7")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"stat":    "7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 " + start + " 20",
		"environ": "OTEL_SERVICE_NAME=s" + start, "exe": "",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A wait of a process that has ended never gets the service of a later process with the same number.
func TestNumberIsReused(t *testing.T) {
	proc := t.TempDir()
	j := NewJoiner(proc, "", "here")
	e := waits.Event{TGID: 7, End: 3e9, WaitNs: 1e6, Found: waits.Binary, Trace: [32]uint8{1}, Span: [16]uint8{1}}
	if _, ok := j.Join(&e); ok {
		t.Error("joined to an unknown process")
	}
	fakeProcess(t, proc, "100") // 1 s after the start of the machine
	if s := j.Service(7); s == nil || s != j.Service(7) {
		t.Errorf("service %+v", s)
	}
	if _, first, err := j.Context(7); !first || err == nil {
		t.Errorf("first %t, %v; want an error: the program is no program", first, err)
	}
	if w, ok := j.Join(&e); !ok || w.Service.Name != "s100" {
		t.Errorf("%+v, %t", w, ok)
	}
	fakeProcess(t, proc, "400")
	_ = j.Service(7)
	_, first, _ := j.Context(7)
	if _, ok := j.Join(&e); ok || !first {
		t.Errorf("joined %t to a process that began later, first %t", ok, first)
	}
	if c := j.Joins(); c.Exact != 1 || c.Missing[waits.MissingEnded] != 2 {
		t.Errorf("%+v", c)
	}
}

// Valid identities are joined unchanged. For everything else there is a reason.
func TestReasons(t *testing.T) {
	hexTrace, hexSpan := [32]uint8{}, [16]uint8{}
	copy(hexTrace[:], "0af7651916cd43dd8448eb211c80319c")
	copy(hexSpan[:], "b7ad6b7169203331")
	for _, c := range []struct {
		e    waits.Event
		want waits.Reason
		ok   bool
	}{
		{waits.Event{Found: waits.Hex, Trace: hexTrace, Span: hexSpan}, 0, true},
		{waits.Event{Found: waits.Hex, Trace: hexTrace}, waits.MissingInvalid, false},
		{
			waits.Event{Found: waits.Hex, Trace: hexTrace, Span: [16]uint8([]byte("0000000000000000"))},
			waits.MissingNoSpan, false,
		},
		{waits.Event{Found: waits.Binary}, waits.MissingNoSpan, false},
		{waits.Event{Found: waits.NoGoroutine}, waits.MissingNoGoroutine, false},
		{waits.Event{Found: waits.Unreadable}, waits.MissingUnreadable, false},
		{waits.Event{Found: waits.Unsampled}, waits.MissingUnsampled, false},
		{waits.Event{}, waits.MissingNotSought, false},
	} {
		trace, span, got, ok := spanOf(&c.e)
		if ok != c.ok || !ok && got != c.want {
			t.Errorf("%d: %s, %t", c.e.Found, got, ok)
		}
		if ok && (trace[0] != 0x0a || span[7] != 0x31) || !ok && (trace != [16]byte{} || span != [8]byte{}) {
			t.Errorf("%d: %x %x", c.e.Found, trace, span)
		}
	}
}

// Broken programs have no context, and never cause a panic.
func FuzzProgram(f *testing.F) {
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
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := recovered(bytes.NewReader(b)); err != nil && c != (Context{}) {
			t.Errorf("%+v, %v", c, err)
		}
	})
}
