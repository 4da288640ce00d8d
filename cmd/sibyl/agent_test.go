package main

import (
	"strings"
	"testing"
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
		"--sibyl http://127.0.0.1:1 --threshold disk=1": "unknown class",
	} {
		var out, errOut strings.Builder
		code := run(t.Context(), append([]string{"agent", "kernel"}, strings.Fields(args)...), func(string) string { return "" }, strings.NewReader(""), &out, &errOut)
		if code != 2 || !strings.Contains(errOut.String(), want) {
			t.Errorf("%q: exit code %d, %s", args, code, errOut.String())
		}
	}
}
