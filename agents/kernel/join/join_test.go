package join

import (
	"bytes"
	"debug/elf"
	"go/version"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// The offsets of the table are those of the toolchain that runs this test.
func TestOffsets(t *testing.T) {
	folder := t.TempDir()
	source, program := filepath.Join(folder, "main.go"), filepath.Join(folder, "main")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, source).CombinedOutput(); err != nil {
		t.Skipf("%v\n%s", err, out)
	}
	f, err := elf.Open(program)
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	data, err := f.DWARF()
	if err != nil {
		t.Fatal(err)
	}
	got, err := readOffsets(data)
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

// A Go program has a context; one in another language has none, with a reason.
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

// Versions of Go whose labels cannot be read are refused, with the reason.
func TestGoVersions(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("goroutines are read on amd64 only")
	}
	f := &elf.File{FileHeader: elf.FileHeader{Machine: elf.EM_X86_64}}
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

// The name of a process counts before the given one, and its host before this one.
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

// A wait of a process that has ended never gets the service of the next one with its number.
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

// Found identities are joined as they are; everything else has its reason.
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
		{waits.Event{Found: waits.Hex, Trace: hexTrace, Span: [16]uint8([]byte("0000000000000000"))}, waits.MissingNoSpan, false},
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
