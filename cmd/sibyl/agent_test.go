package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/agents/jvm"
	"github.com/sibyl-trace/sibyl/agents/jvm/classify/classtest"
	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
	"github.com/sibyl-trace/sibyl/internal/cli"
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
		"--pid x":                        "whole numbers",
		"--pid 1 --sums x":               "whole number",

		"--pid 1 --cpu-limit 2":                "--cpu-limit needs --sibyl",
		"--pid 1 --token x":                    "--token needs",
		"--pid 1 --service x":                  "--service needs",
		"--comm x --children":                  "--children needs --pid",
		"--pid 1 --interval 1s --duration 10s": "--interval has no effect with --duration",
		"--pid 1 --interval 1s -o html":        "--interval has no effect with -o html",
		"--pid 1 --top 3 -o json":              "--top has no effect",

		"--sibyl http://127.0.0.1:1 --pid 1 --comm x":   "--pid, --comm and --cgroup",
		"--sibyl http://127.0.0.1:1 --duration 10s":     "--duration has no effect",
		"--sibyl http://127.0.0.1:1 --service x":        "--service needs",
		"--sibyl http://127.0.0.1:1 --cpu-limit -1":     "--cpu-limit",
		"--sibyl http://127.0.0.1:1 --cpu-limit NaN":    "--cpu-limit",
		"--pid 1 --sums 4294967295":                     "--sums must be from 1",
		"--sibyl 127.0.0.1:1":                           "want a URL",
		"--sibyl http://127.0.0.1:1 --threshold disk=1": "unknown class",
	} {
		r := sibyl(t, "", strings.Fields("agent kernel "+args)...)
		if r.code != 2 || !strings.Contains(r.err, want) {
			t.Errorf("%q: exit code %d, %s", args, r.code, r.err)
		}
	}
}

// A threshold changes only the threshold of its class.
func TestKernelAgentThresholds(t *testing.T) {
	f := &kernelFlags{
		output:     cli.NewChoice("table"),
		pids:       []uint{1},
		interval:   time.Second,
		sums:       1,
		thresholds: []string{"file=5ms", "sync=0", "net=50ms"},
	}
	s, err := f.settings(func(string) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	for class, want := range map[waits.Class]time.Duration{
		waits.File: 5 * time.Millisecond, waits.Sync: 0, waits.Net: 50 * time.Millisecond,
		waits.RunQueue: 10 * time.Millisecond, waits.DNS: 50 * time.Millisecond,
	} {
		if got := time.Duration(s.Thresholds[class]); got != want {
			t.Errorf("%s: %s, want %s", class, got, want)
		}
	}
}

// Names chosen by a process don't reach the terminal unescaped.
func TestJoinReasonsAreReadable(t *testing.T) {
	var errOut strings.Builder
	p := &process{err: &errOut}
	j, err := p.join("", nil)
	if err != nil {
		t.Fatal(err)
	}
	j.Cannot(7, errors.New("/tmp/\x1b[31mevil.so: it accesses memory"))
	if got := errOut.String(); strings.Contains(got, "\x1b") || !strings.Contains(got, "evil.so") ||
		!strings.HasSuffix(got, "\n") {
		t.Errorf("%q", got)
	}
}

// Wrong arguments of the JVM agent are usage errors, on any machine.
func TestJVMAgentUsage(t *testing.T) {
	for args, want := range map[string]string{
		"":              "--write FILE",
		"attach":        "got 0 arguments, want: sibyl agent jvm attach PID ARGUMENTS",
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
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, jvm.Jar()) {
		t.Errorf("%d bytes, want %d: %v", len(got), len(jvm.Jar()), err)
	}
}

// TestClassify: classify lists packages with verdict and reasons, names skipped entries, and asks about packages when
// it isn't sure. The configuration decides before the model.
func TestClassify(t *testing.T) {
	pool := classtest.Zip(t, map[string][]byte{"com/zaxxer/Pool.class": classtest.Class("com.zaxxer.Pool")})
	jar := filepath.Join(t.TempDir(), "shop.jar")
	if err := os.WriteFile(jar, classtest.Zip(t, map[string][]byte{
		"META-INF/MANIFEST.MF":                 []byte("Start-Class: com.shop.Main\n\n"),
		"BOOT-INF/classes/com/shop/Main.class": classtest.Class("com.shop.Main"),
		"BOOT-INF/classes/com/shop/\x1b.class": []byte("no class"),
		"BOOT-INF/lib/pool-5.1.jar":            pool,
	}), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string][]string{
		"": {
			"main class com.shop.Main\n", "\nown ", " com.shop, 1 class of BOOT-INF/classes: ",
			"\nlibrary ", "1 class of the application, 1 class of libraries.\n",
		},
		"--classes": {" com.shop.Main\n", " com.zaxxer.Pool\n"},
		`--own com\.zaxxer\..*`: {
			"com.zaxxer, 1 class of BOOT-INF/lib/pool-5.1.jar: decided by configuration\n",
			"2 classes of the application, 0 classes of libraries.\n",
		},
		`--exclude com\..*`:       {"0 classes of the application, 2 classes of libraries.\n"},
		`--include com\.shop\..*`: {"1 class of the application, 1 class of libraries.\n"},
		"-o json": {
			`"package": "com.shop"`, `"own": true`, `"feature": "place"`, `"value": "class folder"`,
		},
		"--main com.other.Program": {"main class com.other.Program\n"},
	} {
		r := sibyl(t, "", append(append([]string{"agent", "jvm", "classify"}, strings.Fields(args)...), jar)...)
		if r.code != 0 || !strings.Contains(r.err, "com/shop/·.class: not a class file") {
			t.Errorf("%s: exit code %d, %q", args, r.code, r.err)
		}
		for _, w := range want {
			if !strings.Contains("\n"+r.out, w) {
				t.Errorf("%s: %q lacks %q", args, r.out, w)
			}
		}
	}
	for args, want := range map[string]string{"--own ( " + jar: "--own: error parsing regexp", "": "arg"} {
		r := sibyl(t, "", strings.Fields("agent jvm classify "+args)...)
		if r.code != 2 || !strings.Contains(r.err, want) {
			t.Errorf("%s: exit code %d, %s", args, r.code, r.err)
		}
	}
	if r := sibyl(t, "", "agent", "jvm", "classify", jar+"x"); r.code != 1 ||
		!strings.Contains(r.err, jar+"x: no such file") {
		t.Errorf("missing file: exit code %d, %s", r.code, r.err)
	}
}
