package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sibyl-trace/sibyl/agents/jvm"
)

// Wrong flags of the kernel agent are usage errors that name the flag, on any machine.
func TestKernelAgentUsage(t *testing.T) {
	for args, want := range map[string]string{
		"":                               "--pid, --comm and --cgroup",
		"--pid 1 --comm x":               "--pid, --comm and --cgroup",
		"--pid 0":                        "--pid 0",
		"--pid 1 --threshold disk=1ms":   "unknown class",
		"--pid 1 --threshold file=short": "file=10ms",
		"--pid 1 --classes disk":         "unknown class",
		"--pid 1 --interval 1ms":         "--interval",
		"--pid 1 -o xml":                 "table, json",

		"--sibyl http://127.0.0.1:1 --pid 1 --comm x":   "--pid, --comm and --cgroup",
		"--sibyl http://127.0.0.1:1 --duration 10s":     "--duration has no effect",
		"--sibyl http://127.0.0.1:1 --service x":        "--service needs",
		"--sibyl http://127.0.0.1:1 --cpu-limit -1":     "--cpu-limit",
		"--sibyl 127.0.0.1:1":                           "want a URL",
		"--sibyl http://127.0.0.1:1 --threshold disk=1": "unknown class",
	} {
		var out, errOut strings.Builder
		code := run(t.Context(), append([]string{"agent", "kernel"}, strings.Fields(args)...), func(string) string { return "" }, strings.NewReader(""), &out, &errOut)
		if code != 2 || !strings.Contains(errOut.String(), want) {
			t.Errorf("%q: exit code %d, %s", args, code, errOut.String())
		}
	}
}

// Wrong arguments of the JVM agent are usage errors, on any machine.
func TestJVMAgentUsage(t *testing.T) {
	for args, want := range map[string]string{
		"":              "--write FILE",
		"attach":        "accepts 2 arg(s)",
		"attach x p:y":  `"x" is not the ID of a process`,
		"attach -- 0 p": `"0" is not the ID of a process`,
	} {
		r := sibyl(t, "", append([]string{"agent", "jvm"}, strings.Fields(args)...)...)
		if r.code != 2 || !strings.Contains(r.err, want) {
			t.Errorf("%q: exit code %d, %s", args, r.code, r.err)
		}
	}
}

func TestWriteJVMAgent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.jar")
	for range 2 { // the second time it replaces the file
		if r := sibyl(t, "", "agent", "jvm", "--write", file); r.code != 0 {
			t.Fatal(r.err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, jvm.Jar) {
		t.Errorf("%d bytes, want %d: %v", len(got), len(jvm.Jar), err)
	}
}
